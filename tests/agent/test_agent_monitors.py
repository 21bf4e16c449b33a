"""Monitors of the agent: each looks on its own, fails on its own, and goes on where the agent before it stopped."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from muster.agent.monitor import Look, NodeFacts
from muster.agent.sources import Probe
from muster.agent.timing import TimingConfig, limits
from muster.errors import BadInputError
from muster.faults.sighting import Grace, Sighting
from muster.resources.fault import Entity, EntityKind, Fault, Hint, Scope, Severity
from muster.resources.fingerprint import Reading, ReadingClass
from muster.resources.node_health import Gpu, GpuAssignment, MonitorState, Notice, NoticeKind, NoticeStatus, Observed
from muster.sim.virtual import VirtualClock, run_virtual
from tests.agent.node import PCI, UUID, Bench, xid

PORT = Entity(kind=EntityKind.NIC, device="mlx5_0", port=1)
NODE = Entity(kind=EntityKind.NODE)


class Scripted:
    """A monitor that shows what the test put there."""

    def __init__(self, name: str = "probe", *, interval_s: float = 30.0, deadline_s: float = 10.0) -> None:
        self.name, self.interval_s, self.deadline_s = name, interval_s, deadline_s
        self.shown = Look()
        self.error: Exception | None = None
        self.hangs = False
        self.looked: list[datetime] = []
        self.facts: NodeFacts | None = None
        self.kept = ""
        self.restored: list[str] = []
        self.closed = 0

    async def look(self, facts: NodeFacts, now: datetime) -> Look:
        self.looked.append(now)
        self.facts = facts
        if self.hangs:
            await asyncio.Event().wait()
        if self.error is not None:
            raise self.error
        return self.shown

    def keep(self) -> str:
        return self.kept

    def restore(self, kept: str) -> None:
        self.restored.append(kept)

    async def close(self) -> None:
        self.closed += 1


def on_bench(story: Callable[[Bench], Awaitable[Any]]) -> Any:
    async def main(clock: VirtualClock) -> Any:
        return await story(await Bench.make(clock))

    return run_virtual(main)


async def seen(bench: Bench) -> Observed:
    observed = await bench.server.observed()
    assert observed is not None
    return observed


async def monitors(bench: Bench) -> dict[str, str]:
    return {m.name: m.message for m in (await seen(bench)).monitors}


def port(healthy: bool | None, source: str = "probe") -> Look:
    fields: dict[str, Any] = {"source": source, "check": "nic-port", "code": "down", "entity": PORT}
    fields |= {"severity": Severity.FATAL, "scope": Scope.LINK, "hint": Hint.INSPECT, "message": "port 1 is down"}
    return Look(probes=(Probe(healthy=healthy, **fields),))


def test_monitors_look_at_their_intervals_and_not_all_at_once() -> None:
    async def story(bench: Bench) -> None:
        mine = [Scripted(f"m{n}", interval_s=30.0 * (1 + n % 2)) for n in range(6)]
        bench.monitors = tuple(mine)
        await bench.start(settle_s=601)
        assert [len(m.looked) for m in mine] == [20, 10, 20, 10, 20, 10] or len(mine[0].looked) == 21
        assert len({m.looked[0] for m in mine}) == 6
        assert len({m.looked[5] for m in mine}) == 6
        assert mine[0].facts == NodeFacts(
            boot_id="boot-1", booted_at=bench.machine.readings.booted_at, gpus=bench.machine.readings.gpus
        )
        await bench.stop()
        assert [m.closed for m in mine] == [1] * 6

    on_bench(story)


@pytest.mark.parametrize("error", [OSError(5, "Input/output error"), BadInputError("no such thing"), KeyError("bug")])
def test_a_monitor_that_fails_is_degraded_alone(error: Exception) -> None:
    async def story(bench: Bench) -> None:
        broken, fine = Scripted("broken"), Scripted("fine")
        broken.error, fine.shown = error, port(False, "fine")
        bench.monitors = (broken, fine)
        await bench.start(settle_s=10)
        told = await monitors(bench)
        assert told["broken"]
        assert (told["fine"], told["kernel-log"]) == ("", "")
        assert [f.check for f in await bench.server.faults()] == ["nic-port"]
        bench.log.write(xid(79))
        await bench.clock.sleep(1)
        assert len(await bench.server.faults()) == 2
        broken.error = None
        await bench.clock.sleep(60)
        assert (await monitors(bench))["broken"] == ""

    on_bench(story)


def test_a_look_that_hangs_is_given_up_and_the_others_go_on() -> None:
    async def story(bench: Bench) -> None:
        stuck, fine = Scripted("stuck", deadline_s=10), Scripted("fine")
        stuck.hangs = True
        bench.monitors = (stuck, fine)
        await bench.start(settle_s=65)
        assert (await monitors(bench))["stuck"] == "no answer within 10 s"
        assert len(fine.looked) >= 2
        stuck.hangs = False
        await bench.clock.sleep(60)
        assert (await monitors(bench))["stuck"] == ""

    on_bench(story)


def test_a_look_that_does_not_even_end_when_cancelled_is_not_doubled() -> None:
    async def story(bench: Bench) -> None:
        free = asyncio.Event()

        class Stubborn(Scripted):
            async def look(self, facts: NodeFacts, now: datetime) -> Look:
                self.looked.append(now)
                while not free.is_set():
                    try:
                        await free.wait()
                    except asyncio.CancelledError:
                        continue
                return Look()

        monitor = Stubborn("stubborn", deadline_s=5)
        bench.monitors = (monitor,)
        await bench.start(settle_s=180)
        assert len(monitor.looked) == 1
        assert (await monitors(bench))["stubborn"] == "the look before has not ended yet"
        free.set()
        await bench.clock.sleep(60)
        assert (await monitors(bench))["stubborn"] == ""

    on_bench(story)


def test_probes_open_and_close_and_unknown_does_neither() -> None:
    async def story(bench: Bench) -> list[tuple[int, str]]:
        monitor = Scripted()
        bench.monitors = (monitor,)
        await bench.start(settle_s=2)
        found = []
        for healthy in (None, False, None, True):
            monitor.shown = port(healthy)
            await bench.clock.sleep(30)
            states = {m.name: m.state for m in (await seen(bench)).monitors}
            found.append((len(await bench.server.faults()), states["probe"].value))
        return found

    assert on_bench(story) == [(0, "degraded"), (1, "ok"), (1, "degraded"), (0, "ok")]


def test_a_standing_state_is_published_a_few_times_and_is_one_burst() -> None:
    async def story(bench: Bench) -> tuple[int, Fault]:
        monitor = Scripted(interval_s=300)
        monitor.shown = port(False)
        bench.monitors = (monitor,)
        await bench.start(settle_s=2)
        sent = bench.server.statuses()
        await bench.clock.sleep(6 * 3600)
        (fault,) = await bench.server.faults()
        return bench.server.statuses() - sent, fault

    writes, fault = on_bench(story)
    assert writes <= 6 * 12
    assert (fault.count, len(fault.bursts)) == (1, 1)
    assert fault.last_seen - fault.first_seen >= timedelta(hours=5, minutes=50)


def test_what_a_monitor_keeps_comes_back_to_the_next_agent_and_a_restart_is_no_news() -> None:
    async def story(bench: Bench) -> None:
        monitor = Scripted()
        monitor.kept, monitor.shown = '{"base": 7}', replace(port(False), unknown=("one thing",))
        bench.monitors = (monitor,)
        await bench.start(settle_s=400)
        before = await seen(bench)
        sent = bench.server.statuses()
        await bench.stop()
        after = Scripted()
        after.shown = monitor.shown
        bench.monitors = (after,)
        await bench.start(settle_s=0.5)
        assert after.restored == ['{"base": 7}']
        assert (await seen(bench)).monitors == before.monitors
        assert [f.key() for f in (await seen(bench)).faults] == [f.key() for f in before.faults]
        await bench.clock.sleep(40)
        assert bench.server.statuses() - sent <= 1

    on_bench(story)


def test_too_much_to_keep_is_nothing_to_keep() -> None:
    async def story(bench: Bench) -> None:
        monitor = Scripted()
        monitor.kept = "x" * (256 * 1024 + 1)
        bench.monitors = (monitor,)
        await bench.start(settle_s=10)
        await bench.stop()
        again = Scripted()
        bench.monitors = (again,)
        await bench.start()
        assert again.restored == []

    on_bench(story)


def test_a_monitor_that_was_turned_off_leaves_no_faults_behind() -> None:
    async def story(bench: Bench) -> None:
        monitor = Scripted()
        monitor.shown = port(False)
        bench.monitors = (monitor,)
        await bench.start(settle_s=2)
        bench.log.write(xid(79))
        await bench.clock.sleep(1)
        assert len(await bench.server.faults()) == 2
        await bench.stop()
        bench.monitors = ()
        await bench.start()
        observed = await seen(bench)
        assert [f.code for f in observed.faults] == ["79"]
        assert [(p.fault.code, p.closed_by) for p in observed.recent] == [("down", "taken-back")]

    on_bench(story)


def notice(number: str, source: str = "aws") -> Notice:
    return Notice(id=number, source=source, kind=NoticeKind.REBOOT, status=NoticeStatus.SCHEDULED)


def test_notices_stand_until_their_own_monitor_says_otherwise() -> None:
    async def story(bench: Bench) -> list[list[str]]:
        aws, file = Scripted("maintenance-aws"), Scripted("maintenance-file")
        aws.shown, file.shown = Look(notices=(notice("2"), notice("1"))), Look(notices=(notice("f", "file"),))
        bench.monitors = (aws, file)
        await bench.start(settle_s=5)
        found = [[n.id for n in (await seen(bench)).notices]]
        await bench.stop()
        aws = Scripted("maintenance-aws")
        aws.error = OSError("the metadata service is away")
        bench.monitors = (aws, file)
        await bench.start(settle_s=70)
        found.append([n.id for n in (await seen(bench)).notices])
        aws.error, aws.shown = None, Look(notices=())
        await bench.clock.sleep(31)
        found.append([n.id for n in (await seen(bench)).notices])
        return found

    assert on_bench(story) == [["1", "2", "f"], ["1", "2", "f"], ["f"]]


def test_assignments_are_those_of_now_or_unknown() -> None:
    async def story(bench: Bench) -> list[Any]:
        monitor = Scripted("assignments")
        bench.monitors = (monitor, Scripted("other"))
        held = (GpuAssignment(pod_uid="u", gpus=("GPU-1",)),)
        found = []
        for n, shown in enumerate((Look(assignments=held), Look(unknown=("no socket",)), Look(assignments=()))):
            monitor.shown = shown
            await (bench.start(settle_s=5) if n == 0 else bench.clock.sleep(30))
            found.append((await seen(bench)).assignments)
        monitor.error = OSError("gone")
        await bench.clock.sleep(30)
        return [*found, (await seen(bench)).assignments]

    held = (GpuAssignment(pod_uid="u", gpus=("GPU-1",)),)
    assert on_bench(story) == [held, None, (), None]


def test_what_a_boot_makes_stale_closes_by_a_whole_look_only() -> None:
    async def story(bench: Bench) -> None:
        monitor = Scripted("gpu")
        event = Sighting(
            source="gpu",
            check="gpu",
            code="gpu-ecc-uncorrected",
            entity=Entity(kind=EntityKind.GPU, uuid=UUID[0]),
            severity=Severity.FATAL,
            scope=Scope.GPU,
            hint=Hint.RESET_GPU,
            at=bench.clock.now(),
        )
        monitor.shown = Look(sightings=(event,))
        bench.monitors = (monitor,)
        await bench.start(settle_s=2)
        monitor.shown = Look(unknown=("driver not loaded",))
        await bench.reboot()
        await bench.clock.sleep(100)
        assert [f.code for f in await bench.server.faults()] == ["gpu-ecc-uncorrected"]
        monitor.shown = Look()
        await bench.clock.sleep(31)
        observed = await seen(bench)
        assert (observed.faults, [p.closed_by for p in observed.recent]) == ((), ["clean-after-boot"])

    on_bench(story)


def test_faults_of_a_swapped_gpu_go_with_it_and_those_of_a_missing_one_stay() -> None:
    async def story(bench: Bench) -> None:
        await bench.start()
        bench.log.write(xid(79))
        await bench.clock.sleep(10)
        gpus = bench.machine.readings.gpus
        bench.machine.change(gpus=gpus[1:])
        await bench.clock.sleep(60)
        assert [f.code for f in await bench.server.faults()] == ["79"]
        bench.machine.change(gpus=(Gpu(index=0, uuid="GPU-other", pci=PCI[0]), gpus[1]))
        await bench.clock.sleep(60)
        observed = await seen(bench)
        assert (observed.faults, [p.closed_by for p in observed.recent]) == ((), ["gpu-gone"])

    on_bench(story)


def test_grace_covers_a_start_of_the_agent_a_boot_and_a_new_driver() -> None:
    async def story(bench: Bench) -> None:
        monitor = Scripted()
        bench.monitors = (monitor,)
        bench.limits = limits(TimingConfig(grace=(Grace(check="nic-port", seconds=300),)))
        monitor.shown = port(False)
        await bench.start(settle_s=290)
        assert await bench.server.faults() == (), "the agent has just begun"
        monitor.shown = port(True)
        await bench.clock.sleep(100)
        monitor.shown = port(False)
        await bench.reboot()
        await bench.clock.sleep(280)
        assert await bench.server.faults() == (), "the node has just booted"
        monitor.shown = port(True)
        await bench.clock.sleep(100)
        driver = Reading(name="driver.version", value="590.10", reading_class=ReadingClass.STACK)
        bench.machine.change(readings=(*bench.machine.readings.readings[:-1], driver))
        await bench.clock.sleep(31)
        monitor.shown = port(False)
        await bench.clock.sleep(250)
        assert await bench.server.faults() == (), "the driver has just been replaced"
        await bench.clock.sleep(60)
        assert [f.code for f in await bench.server.faults()] == ["down"], "what does not come up is a fault"

    on_bench(story)


def test_once_looks_with_every_monitor() -> None:
    async def story(bench: Bench) -> None:
        fine, broken = Scripted("fine"), Scripted("broken")
        fine.shown, broken.hangs = port(False, "fine"), True
        bench.monitors = (fine, broken)
        observed = await bench.agent().run_once()
        assert [f.code for f in observed.faults] == ["down"]
        states = {m.name: m.state for m in observed.monitors}
        assert (states["fine"], states["broken"]) == (MonitorState.OK, MonitorState.DEGRADED)
        assert (fine.closed, broken.closed) == (1, 1)

    on_bench(story)


def test_words_about_a_monitor_that_change_at_each_look_cause_no_storm_of_writes() -> None:
    async def story(bench: Bench) -> tuple[int, str]:
        monitor = Scripted(interval_s=2)
        bench.monitors = (monitor,)
        await bench.start(settle_s=2)
        sent = bench.server.statuses()
        for number in range(300):
            monitor.error = OSError(f"attempt {number}")
            await bench.clock.sleep(2)
        await bench.clock.sleep(100)
        return bench.server.statuses() - sent, (await monitors(bench))["probe"]

    writes, words = on_bench(story)
    assert 2 <= writes <= 12
    assert words == "attempt 299"
