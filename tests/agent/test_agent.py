"""The agent on a made-up node: what it publishes, when, and what survives restarts, boots and outages."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from muster.agent.sources import Probe
from muster.errors import BadInputError
from muster.kube.api import LEASES, NODE_HEALTHS, NODES
from muster.resources.base import SYSTEM_NAMESPACE, agent_lease
from muster.resources.fault import Entity, EntityKind, Hint, Scope, Severity
from muster.resources.fingerprint import Reading, ReadingClass
from muster.resources.node_health import MonitorState, Observed
from muster.sim.virtual import VirtualClock, run_virtual
from tests.agent.node import NODE, PCI, UUID, Bench, xid


def on_bench(story: Callable[[Bench], Awaitable[Any]]) -> Any:
    async def main(clock: VirtualClock) -> Any:
        return await story(await Bench.make(clock))

    return run_virtual(main)


async def seen(bench: Bench) -> Observed:
    observed = await bench.server.observed()
    assert observed is not None
    return observed


def test_a_healthy_node_is_published_once_and_keeps_its_heartbeat() -> None:
    async def story(bench: Bench) -> None:
        await bench.start()
        first = await seen(bench)
        assert (first.node_uid, first.boot_id, first.agent_version) == ("uid-1", "boot-1", "1.0")
        assert [gpu.uuid for gpu in first.gpus] == list(UUID)
        assert [(m.name, m.state) for m in first.monitors] == [
            (name, MonitorState.OK) for name in ("inventory", "kernel-log", "state")
        ]
        assert first.faults == ()
        sent = bench.server.statuses()
        await bench.clock.sleep(550)
        assert bench.server.statuses() == sent
        assert await seen(bench) == first
        lease = await bench.server.get(LEASES, agent_lease(NODE), SYSTEM_NAMESPACE)
        assert lease["spec"]["renewTime"] > "2026-01-05T08:08"
        assert lease["spec"]["leaseDurationSeconds"] == 180

    on_bench(story)


def test_a_fault_in_the_log_is_published_at_once_with_the_uuid_of_its_gpu() -> None:
    async def story(bench: Bench) -> None:
        await bench.start()
        bench.log.write("usb 1-1: new device", xid(79))
        await bench.clock.sleep(0.01)
        (fault,) = await bench.server.faults()
        assert (fault.check, fault.code, fault.severity) == ("xid", "79", Severity.FATAL)
        assert (fault.entity.uuid, fault.entity.pci) == (UUID[0], PCI[0])
        assert (fault.source, fault.boot_id) == ("kernel-log", "boot-1")
        assert (await seen(bench)).observed_at == bench.clock.start.replace(second=1)

    on_bench(story)


def test_repetitions_raise_the_count_without_a_write_each() -> None:
    async def story(bench: Bench) -> None:
        await bench.start()
        for _ in range(120):
            bench.log.write(xid(94))
            await bench.clock.sleep(10)
        assert bench.server.statuses() <= 8
        await bench.clock.sleep(600)
        (fault,) = await bench.server.faults()
        assert fault.count == 120

    on_bench(story)


def test_800_000_identical_lines_are_one_fault_with_a_count() -> None:
    async def story(bench: Bench) -> tuple[int, int]:
        await bench.start()
        bench.log.write(*([xid(94)] * 800_000))
        await bench.clock.sleep(700)
        (fault,) = await bench.server.faults()
        return fault.count, bench.server.statuses()

    count, writes = on_bench(story)
    assert count == 800_000
    assert writes <= 6


def test_junk_in_the_log_harms_nothing() -> None:
    async def story(bench: Bench) -> None:
        await bench.start()
        bench.log.write(
            bytes(range(256)) * 16,
            b"\xff\xfe" * 100,
            b"NVRM: Xid (PCI:" + b"\x00" * 100,
            "NVRM: Xid (PCI:0000:1a:00): 99999999999999999999, " + "x" * 65536,
            b"x" * 65536,
            "",
        )
        bench.log.lines += [b"", b"\n", b";;;;", b"6,", b" KEY=value", b"{", b'{"MESSAGE":[1,2,300]}', b"6,7,8,c;"]
        bench.log.write(xid(79))
        await bench.clock.sleep(1)
        assert ("xid", "79") in [(fault.check, fault.code) for fault in await bench.server.faults()]
        assert all(len(fault.message) <= 400 for fault in await bench.server.faults())

    on_bench(story)


def test_a_new_agent_goes_on_where_the_old_one_stopped() -> None:
    async def story(bench: Bench) -> None:
        await bench.start()
        bench.log.write(xid(94), xid(94))
        await bench.clock.sleep(1)
        before = await seen(bench)
        await bench.stop()
        bench.log.write(xid(94))
        await bench.start()
        await bench.clock.sleep(700)
        (fault,) = await bench.server.faults()
        assert fault.count == 3
        assert fault.first_seen == before.faults[0].first_seen

    on_bench(story)


def test_a_restart_without_news_is_no_change() -> None:
    async def story(bench: Bench) -> None:
        await bench.start()
        bench.log.write(xid(79))
        await bench.clock.sleep(60)
        before = await seen(bench)
        await bench.stop()
        await bench.clock.sleep(300)
        await bench.start()
        await bench.clock.sleep(60)
        assert await seen(bench) == before

    on_bench(story)


def test_a_damaged_memory_is_no_memory() -> None:
    async def story(bench: Bench) -> None:
        bench.state.save(b'{"bootId": 5, "truncat')
        bench.log.write(xid(79))
        await bench.start()
        assert [fault.code for fault in await bench.server.faults()] == ["79"]

    on_bench(story)


def test_a_boot_and_a_clean_log_close_what_was_open() -> None:
    async def story(bench: Bench) -> None:
        await bench.start()
        bench.log.write(xid(79))
        await bench.clock.sleep(1)
        await bench.reboot()
        first = await seen(bench)
        assert first.boot_id == "boot-2"
        assert [fault.code for fault in first.faults] == ["79"], "the boot alone proves nothing"
        await bench.clock.sleep(10)
        assert await bench.server.faults() == ()

    on_bench(story)


def test_a_fault_that_is_back_after_the_boot_stays_open() -> None:
    async def story(bench: Bench) -> None:
        await bench.start()
        bench.log.write(xid(79))
        await bench.clock.sleep(1)
        await bench.stop()
        bench.log.restart("boot-2")
        bench.log.write("Linux version 6.8", xid(79))
        bench.machine.change(boot_id="boot-2", booted_at=bench.clock.now())
        await bench.start()
        await bench.clock.sleep(100)
        (fault,) = await bench.server.faults()
        assert fault.boot_id == "boot-2"

    on_bench(story)


def test_a_gpu_that_is_missing_after_the_boot_keeps_its_fault() -> None:
    async def story(bench: Bench) -> None:
        await bench.start()
        bench.log.write(xid(79))
        await bench.clock.sleep(1)
        bench.machine.change(gpus=bench.machine.readings.gpus[1:])
        await bench.reboot()
        await bench.clock.sleep(100)
        assert [fault.code for fault in await bench.server.faults()] == ["79"]
        bench.machine.change(
            gpus=(
                bench.machine.readings.gpus[0],
                type(bench.machine.readings.gpus[0])(index=1, uuid="GPU-new", pci="0000:5d:00.0"),
            )
        )
        await bench.clock.sleep(100)
        assert await bench.server.faults() == ()

    on_bench(story)


def test_a_reset_of_the_gpu_and_a_clean_log_close_its_faults_only() -> None:
    async def story(bench: Bench) -> None:
        await bench.start()
        bench.log.write(xid(119), xid(79, PCI[1]))
        await bench.clock.sleep(10)
        assert len(await bench.server.faults()) == 2
        bench.log.write(f"GPU reset executed: {UUID[0]}, success: true")
        await bench.clock.sleep(1)
        assert len(await bench.server.faults()) == 2
        await bench.clock.sleep(10)
        assert [fault.entity.uuid for fault in await bench.server.faults()] == [UUID[1]]

    on_bench(story)


def test_a_fault_that_follows_the_reset_in_the_same_batch_stays_open() -> None:
    async def story(bench: Bench) -> None:
        await bench.start()
        bench.log.write(xid(119), f"GPU reset executed: {UUID[0]}, success: true", xid(119))
        await bench.clock.sleep(100)
        assert [fault.code for fault in await bench.server.faults()] == ["119"]

    on_bench(story)


def test_a_driver_update_shows_within_one_interval() -> None:
    async def story(bench: Bench) -> None:
        await bench.start()
        before = await seen(bench)
        readings = tuple(
            Reading(name="driver.version", value="580.95.05", reading_class=ReadingClass.STACK)
            if reading.name == "driver.version"
            else reading
            for reading in bench.machine.readings.readings
        )
        bench.machine.change(readings=readings)
        await bench.clock.sleep(31)
        after = await seen(bench)
        assert after.fingerprint.digest != before.fingerprint.digest
        assert after.boot_id == before.boot_id

    on_bench(story)


def test_an_unread_reading_keeps_its_value_and_the_monitor_says_so() -> None:
    async def story(bench: Bench) -> None:
        await bench.start()
        before = await seen(bench)
        gpus = bench.machine.readings.gpus
        bench.machine.change(
            readings=tuple(r for r in bench.machine.readings.readings if r.name != "gpu.1.uuid"),
            gpus=(gpus[0], type(gpus[1])(index=1, uuid="", pci=PCI[1])),
            unread=("gpu.1.uuid",),
        )
        await bench.clock.sleep(31)
        after = await seen(bench)
        assert after.fingerprint == before.fingerprint
        assert after.gpus == before.gpus
        (monitor,) = (monitor for monitor in after.monitors if monitor.state is MonitorState.DEGRADED)
        assert (monitor.name, monitor.message) == ("inventory", "not readable now: gpu.1.uuid")

    on_bench(story)


def test_an_outage_of_the_api_loses_nothing() -> None:
    async def story(bench: Bench) -> None:
        await bench.start()
        bench.server.down = True
        bench.log.write(xid(79))
        await bench.clock.sleep(3600)
        bench.log.write(xid(94, PCI[1]))
        await bench.clock.sleep(3600)
        await bench.stop()
        await bench.start()
        await bench.clock.sleep(600)
        bench.server.down = False
        await bench.clock.sleep(61)
        assert [fault.code for fault in await bench.server.faults()] == ["79", "94"]

    on_bench(story)


@pytest.mark.parametrize("error", [OSError(5, "Input/output error"), RuntimeError("a bug of the source")])
def test_a_log_that_cannot_be_read_degrades_alone(error: Exception) -> None:
    async def story(bench: Bench) -> None:
        await bench.start()
        bench.log.write("boring")
        bench.log.error = error
        bench.log.write("more")
        await bench.clock.sleep(40)
        states = {monitor.name: monitor for monitor in (await seen(bench)).monitors}
        assert states["kernel-log"].state is MonitorState.DEGRADED
        assert str(error).split("]")[-1].strip() in states["kernel-log"].message
        assert states["inventory"].state is MonitorState.OK
        bench.log.error = None
        bench.log.write(xid(79))
        await bench.clock.sleep(61)
        states = {monitor.name: monitor for monitor in (await seen(bench)).monitors}
        assert states["kernel-log"].state is MonitorState.OK
        assert [fault.code for fault in await bench.server.faults()] == ["79"]

    on_bench(story)


def test_an_inventory_that_fails_keeps_the_last_fingerprint() -> None:
    async def story(bench: Bench) -> None:
        await bench.start()
        before = await seen(bench)
        bench.machine.error = OSError(5, "Input/output error")
        await bench.clock.sleep(40)
        after = await seen(bench)
        assert after.fingerprint == before.fingerprint
        assert {monitor.name: monitor.state for monitor in after.monitors}["inventory"] is MonitorState.DEGRADED
        bench.log.write(xid(79))
        await bench.clock.sleep(1)
        assert [fault.code for fault in await bench.server.faults()] == ["79"]

    on_bench(story)


def test_an_inventory_that_never_worked_publishes_nothing_but_the_heartbeat() -> None:
    async def story(bench: Bench) -> None:
        bench.machine.error = OSError(2, "No such file")
        await bench.start(settle_s=120)
        assert await bench.server.observed() is None
        assert (await bench.server.get(LEASES, agent_lease(NODE), SYSTEM_NAMESPACE))["spec"]["holderIdentity"] == NODE
        bench.machine.error = None
        await bench.clock.sleep(31)
        assert (await seen(bench)).boot_id == "boot-1"

    on_bench(story)


def test_lost_records_are_said_for_an_hour() -> None:
    async def story(bench: Bench) -> None:
        await bench.start()
        bench.log.lost = 38
        bench.log.write("after the gap")
        await bench.clock.sleep(1)
        states = {monitor.name: monitor.message for monitor in (await seen(bench)).monitors}
        assert states["kernel-log"] == "38 records were lost before they could be read"
        await bench.clock.sleep(3700)
        bench.log.write("something")
        await bench.clock.sleep(1)
        states = {monitor.name: monitor.message for monitor in (await seen(bench)).monitors}
        assert states["kernel-log"] == ""

    on_bench(story)


def probe(healthy: bool | None) -> Probe:
    return Probe(
        source="host",
        check="filesystem",
        code="read-only",
        entity=Entity(kind=EntityKind.FILESYSTEM, name="/"),
        healthy=healthy,
        severity=Severity.FATAL,
        scope=Scope.NODE,
        hint=Hint.INSPECT,
        message="/ is read-only",
    )


def test_a_probe_opens_and_closes_its_fault_and_unknown_does_neither() -> None:
    async def story(bench: Bench) -> list[Any]:
        await bench.start()
        found = []
        for healthy in (None, False, None, True):
            bench.machine.change(probes=(probe(healthy),))
            await bench.clock.sleep(31)
            observed = await seen(bench)
            states = {monitor.name: monitor.state for monitor in observed.monitors}
            found.append(([fault.check for fault in observed.faults], states["host"].value))
        return found

    assert on_bench(story) == [
        ([], "degraded"),
        (["filesystem"], "ok"),
        (["filesystem"], "degraded"),
        ([], "ok"),
    ]


def test_the_uid_comes_from_the_api_when_the_inventory_does_not_know_it() -> None:
    async def story(bench: Bench) -> tuple[str, str]:
        bench.machine.change(node_uid="")
        await bench.start()
        node = await bench.server.get(type(NODE_HEALTHS)("", "v1", "nodes", "Node", False), NODE)
        return (await seen(bench)).node_uid, node["metadata"]["uid"]

    published, real = on_bench(story)
    assert published == real


def test_the_agent_writes_its_own_objects_only() -> None:
    async def story(bench: Bench) -> list[tuple[str, str, list[str]]]:
        await bench.start()
        bench.log.write(xid(79))
        await bench.clock.sleep(300)
        return sorted(
            {(kind, name, tuple(obj.get("status", obj.get("spec", {})))) for kind, name, obj in bench.server.applied}
        )  # type: ignore[misc]

    assert on_bench(story) == [
        ("Lease", "agent-n1", ("holderIdentity", "leaseDurationSeconds", "acquireTime", "renewTime")),
        ("NodeHealth", "n1", ("observed",)),
    ]


def test_once_reads_publishes_and_returns() -> None:
    async def story(bench: Bench) -> Observed:
        bench.log.write(*(["boring"] * 10_000), xid(79))
        observed = await bench.agent().run_once()
        assert await seen(bench) == observed
        bench.log.write(xid(94))
        return await bench.agent().run_once()

    assert [fault.code for fault in on_bench(story).faults] == ["79", "94"]


def test_once_on_a_node_that_the_cluster_does_not_have_names_the_remedy() -> None:
    async def story(bench: Bench) -> None:
        bench.machine.change(node_uid="")
        await bench.server.delete(NODES, NODE)
        with pytest.raises(BadInputError, match="The cluster has no Node 'n1'; give --node the name"):
            await bench.agent().run_once()

    on_bench(story)
