"""What must not stop or blind the agent: monitors that say nonsense, a clock that is set back, a disk that fails."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from muster.agent.host.blocking import Blocking
from muster.agent.inventory import LinuxInventory
from muster.agent.monitor import Look
from muster.agent.picture import Picture
from muster.agent.state import DirectoryStateStore
from muster.clock import SystemClock
from muster.errors import UnreachableError
from muster.faults.sighting import Grace, Limits, Sighting
from muster.kube.api import NODES
from muster.resources.fault import Entity, EntityKind, Hint, Scope, Severity
from muster.resources.node_health import GpuAssignment
from muster.sim.virtual import VirtualClock, run_virtual
from tests.agent.node import UUID, Bench, Server, xid
from tests.agent.test_agent_monitors import Scripted, monitors, on_bench, port, seen


def sighting(**more: Any) -> Sighting:
    fields: dict[str, Any] = {"source": "bad", "check": "c", "code": "k", "entity": Entity(kind=EntityKind.NODE)}
    fields |= {"severity": Severity.WARNING, "scope": Scope.NODE, "hint": Hint.NONE}
    return Sighting(**{"at": datetime(2026, 1, 1).astimezone(), **fields, **more})


@pytest.mark.parametrize(
    "shown",
    [
        None,
        Look(probes=(None,)),  # type: ignore[arg-type]  # what a plugin may do
        Look(sightings=(sighting(at=datetime(2026, 1, 1)),)),  # noqa: DTZ001 - without a time zone
        Look(sightings=(sighting(severity="fatal"),)),
        Look(unknown=(7,)),  # type: ignore[arg-type]  # what a plugin may do
    ],
    ids=["no look", "no probe", "naive time", "no severity", "no words"],
)
def test_a_monitor_that_says_nonsense_is_degraded_alone(shown: Any) -> None:
    async def story(bench: Bench) -> None:
        bad, fine = Scripted("bad"), Scripted("fine")
        bad.shown, fine.shown = shown, port(False, "fine")
        bench.monitors = (bad, fine)
        await bench.start(settle_s=100)
        assert (await monitors(bench))["bad"]
        bench.log.write(xid(79))
        await bench.clock.sleep(1)
        assert sorted(f.code for f in await bench.server.faults()) == ["79", "down"]
        await bench.stop()
        await bench.start()
        assert sorted(f.code for f in await bench.server.faults()) == ["79", "down"]

    on_bench(story)


def test_text_that_is_no_text_is_made_fit_before_it_is_kept_and_published() -> None:
    async def story(bench: Bench) -> str:
        bad = Scripted("bad")
        words = "bro\udcffken \x1b[31m" + "x" * 1_000_000
        bad.shown = Look(
            sightings=(sighting(message=words, at=bench.clock.now(), details={"na\udcffme": words}),),
            unknown=(words,),
        )
        bench.monitors = (bad,)
        await bench.start(settle_s=100)
        (fault,) = await bench.server.faults()
        await bench.stop()
        await bench.start()
        assert [f.key() for f in await bench.server.faults()] == [fault.key()]
        return fault.message

    message = on_bench(story)
    assert message.startswith("bro ken [31m")
    assert len(message) <= 1024


class Settable:
    """A clock that somebody sets."""

    def __init__(self, inner: VirtualClock) -> None:
        self._inner = inner
        self.by = timedelta()

    def now(self) -> datetime:
        return self._inner.now() + self.by

    async def sleep(self, seconds: float) -> None:
        await self._inner.sleep(seconds)


def with_settable_clock(story: Callable[[Bench, Settable], Awaitable[Any]]) -> Any:
    async def main(inner: VirtualClock) -> Any:
        clock = Settable(inner)
        bench = Bench(clock, await Server.start(inner))  # type: ignore[arg-type]  # a clock like any other
        return await story(bench, clock)

    return run_virtual(main)


def test_a_clock_that_is_set_back_by_years_stretches_no_grace() -> None:
    """A node whose battery is empty may boot years ahead of time."""

    async def story(bench: Bench, clock: Settable) -> list[int]:
        clock.by = timedelta(days=4000)
        monitor = Scripted()
        monitor.shown = port(False)
        bench.monitors = (monitor,)
        bench.limits = Limits(grace=(Grace(check="nic-port", seconds=300),))
        await bench.start(settle_s=60)
        found = [len(await bench.server.faults())]
        clock.by = timedelta()
        await bench.clock.sleep(200)
        found.append(len(await bench.server.faults()))
        await bench.clock.sleep(200)
        await bench.stop()
        await bench.start(settle_s=400)
        found.append(len(await bench.server.faults()))
        return found

    assert with_settable_clock(story) == [0, 0, 1]


def test_a_fault_from_the_future_still_closes_by_proof_and_its_count_is_still_told() -> None:
    async def story(bench: Bench, clock: Settable) -> None:
        clock.by = timedelta(days=4000)
        monitor = Scripted()
        monitor.shown = port(False)
        bench.monitors = (monitor,)
        await bench.start(settle_s=60)
        bench.log.write(xid(79))
        await bench.clock.sleep(10)
        assert len(await bench.server.faults()) == 2
        clock.by = timedelta()
        await bench.clock.sleep(120)
        observed = await seen(bench)
        assert max(f.last_seen for f in observed.faults) <= clock.now()
        bench.log.write(xid(79))
        await bench.clock.sleep(400)
        (fault,) = [f for f in await bench.server.faults() if f.code == "79"]
        assert fault.count == 2
        monitor.shown = port(True)
        await bench.clock.sleep(60)
        observed = await seen(bench)
        assert [f.code for f in observed.faults] == ["79"]
        assert [p.closed_by for p in observed.recent] == ["healthy-reading"]

    with_settable_clock(story)


def test_a_node_that_is_made_anew_is_noticed_although_the_clock_was_set_back() -> None:
    async def story(bench: Bench, clock: Settable) -> str:
        clock.by = timedelta(days=4000)
        bench.machine.change(node_uid="")
        await bench.start(settle_s=60)
        clock.by = timedelta()
        await bench.server.delete(NODES, "n1")
        await bench.server.create(NODES, {"metadata": {"name": "n1"}})
        wanted = str((await bench.server.get(NODES, "n1"))["metadata"]["uid"])
        await bench.clock.sleep(1200)
        return "same" if (await seen(bench)).node_uid == wanted else "other"

    assert with_settable_clock(story) == "same"


def test_an_agent_whose_state_can_be_neither_read_nor_kept_begins_anew_and_says_so(tmp_path: Path) -> None:
    (tmp_path / DirectoryStateStore.FILE).mkdir()

    async def story(bench: Bench) -> dict[str, str]:
        bench.state = DirectoryStateStore(tmp_path)  # type: ignore[assignment]  # a store like any other
        await bench.start(settle_s=10)
        bench.log.write(xid(79))
        await bench.clock.sleep(10)
        assert [f.code for f in await bench.server.faults()] == ["79"]
        return await monitors(bench)

    assert "state cannot be kept on the node" in on_bench(story)["state"]


@pytest.mark.parametrize("number", [28, 30, 5, 122])
def test_a_disk_that_is_full_or_read_only_keeps_no_agent_from_starting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """That is a fault of the node, and the agent is there to tell it."""
    DirectoryStateStore(tmp_path).save(b"kept")

    def refuse(*args: object, **kwargs: object) -> int:
        raise OSError(number, "refused")

    monkeypatch.setattr(Path, "write_bytes", refuse)
    store = DirectoryStateStore(tmp_path)
    assert store.load() == b"kept"
    assert DirectoryStateStore(tmp_path / "not-there").load() is None


def node_with_driver(root: Path) -> None:
    for path, text in {
        "proc/sys/kernel/random/boot_id": "11111111-2222-4333-8444-555555555555",
        "proc/stat": "btime 1767600000",
        "proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release",
        "proc/driver/nvidia/gpus/0000:1a:00.0/information": f"Model: H100\nGPU UUID: {UUID[0]}",
        "etc/os-release": 'ID=ubuntu\nVERSION_ID="24.04"\nNAME=Ubuntu',
        "proc/sys/kernel/osrelease": "6.8.0",
    }.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text + "\n")


def test_a_driver_that_hangs_hangs_neither_the_agent_nor_what_is_known_of_its_gpus(tmp_path: Path) -> None:
    """The driver's files in /proc wait for its locks: a driver that is stuck holds every reader."""
    node_with_driver(tmp_path)
    information = tmp_path / "proc/driver/nvidia/gpus/0000:1a:00.0/information"

    async def story() -> None:
        inventory = LinuxInventory(tmp_path, clock=SystemClock(), deadline_s=0.3)
        before = await inventory.read()
        assert [gpu.uuid for gpu in before.gpus] == [UUID[0]]
        information.unlink()
        os.mkfifo(information)  # opening it waits for a writer: a read that does not come back
        for _ in range(2):
            after = await inventory.read()
            assert after.boot_id == before.boot_id
            assert after.gpus == before.gpus
            assert after.readings == before.readings
            assert "gpu" in after.unread
        # One that starts now knows nothing of before.
        anew = await LinuxInventory(tmp_path, clock=SystemClock(), deadline_s=0.3).read()
        assert (anew.gpus, anew.boot_id) == ((), before.boot_id)
        assert "gpu" in anew.unread
        assert await LinuxInventory(tmp_path, clock=SystemClock()).boot_id() == before.boot_id

    asyncio.run(story())


def test_an_agent_that_starts_while_the_driver_hangs_keeps_gpus_fingerprint_and_faults() -> None:
    async def story(bench: Bench) -> None:
        await bench.start()
        bench.log.write(xid(79))
        await bench.clock.sleep(10)
        before = await seen(bench)
        await bench.stop()
        whole = bench.machine.readings
        bench.machine.change(readings=(), gpus=(), unread=("driver", "gpu"))
        await bench.start(settle_s=120)
        after = await seen(bench)
        assert (after.gpus, after.fingerprint) == (before.gpus, before.fingerprint)
        assert [f.key() for f in after.faults] == [f.key() for f in before.faults]
        assert (await monitors(bench))["inventory"] == "not readable now: driver, gpu"
        bench.machine.readings = whole
        await bench.clock.sleep(60)
        assert (await seen(bench)).gpus == before.gpus

    on_bench(story)


def test_records_that_break_the_agent_are_skipped_and_counted_and_do_not_come_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = Picture.read_log

    def read_log(picture: Picture, records: Sequence[bytes], now: datetime) -> bool:
        if any(b"poison" in record for record in records):
            raise ZeroDivisionError("a bug")
        return real(picture, records, now)

    monkeypatch.setattr(Picture, "read_log", read_log)

    async def story(bench: Bench) -> str:
        bench.log.write("poison")
        await bench.start()
        bench.log.write(xid(79))
        await bench.clock.sleep(10)
        assert [f.code for f in await bench.server.faults()] == ["79"]
        told = (await monitors(bench))["kernel-log"]
        await bench.stop()
        await bench.start(settle_s=10)
        assert [f.code for f in await bench.server.faults()] == ["79"]
        return told

    assert "1 records were lost" in on_bench(story)


@pytest.mark.parametrize("error", [ValueError("a bug of the client"), OSError(24, "Too many open files")])
def test_a_client_that_breaks_stops_neither_watch_nor_later_telling(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    async def story(bench: Bench) -> list[str]:
        await bench.start()

        async def broken(*args: Any, **options: Any) -> Any:
            raise error

        with monkeypatch.context() as patch:
            patch.setattr(bench.server, "apply", broken)
            patch.setattr(bench.server, "patch", broken)
            bench.log.write(xid(79))
            await bench.clock.sleep(200)
        await bench.clock.sleep(100)
        return [f.code for f in await bench.server.faults()]

    assert on_bench(story) == ["79"]


def test_a_thread_that_cannot_begin_is_an_error_of_one_look(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    async def story() -> int:
        blocking = Blocking("the look", SystemClock())
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", refuse)
            with pytest.raises(UnreachableError, match="the look cannot begin"):
                await blocking.run(lambda: 1)
        return await blocking.run(lambda: 2)

    assert asyncio.run(story()) == 2


def test_more_pods_than_the_nodehealth_has_room_for_are_published_as_far_as_it_goes() -> None:
    async def story(bench: Bench) -> int:
        monitor = Scripted("assignments")
        monitor.shown = Look(assignments=tuple(GpuAssignment(pod_uid=f"u{n}", gpus=("GPU-1",)) for n in range(2000)))
        bench.monitors = (monitor,)
        await bench.start(settle_s=60)
        return len((await seen(bench)).assignments or ())

    assert on_bench(story) == 512


def test_one_look_at_everything_says_what_the_inventory_cannot_read() -> None:
    async def story(bench: Bench) -> dict[str, str]:
        bench.machine.change(unread=("gpu",))
        return {m.name: m.message for m in (await bench.agent().run_once()).monitors}

    assert on_bench(story)["inventory"] == "not readable now: gpu"


@pytest.mark.parametrize("kept", ["\udc80", 7, None, b"x"])
def test_a_monitor_that_wants_nonsense_kept_keeps_nothing_and_stops_nobody(kept: Any) -> None:
    async def story(bench: Bench) -> str:
        bad, fine = Scripted("bad"), Scripted("fine")
        bad.kept, fine.kept = kept, "mine"
        bench.monitors = (bad, fine)
        await bench.start(settle_s=60)
        assert (await monitors(bench))["state"] == ""
        await bench.stop()
        again = Scripted("fine")
        bench.monitors = (Scripted("bad"), again)
        await bench.start()
        return again.restored[0]

    assert on_bench(story) == "mine"
