"""Storms and outages: few writes, nothing lost, everything bounded."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from muster.agent.kernel_log import open_kernel_log
from muster.resources.fault import BURST_LIMIT, Fault
from muster.resources.node_health import MonitorState, Observed
from muster.sim.virtual import VirtualClock, run_virtual
from tests.agent.node import PCI, UUID, Bench, xid


def on_bench(story: Callable[[Bench], Awaitable[Any]]) -> Any:
    async def main(clock: VirtualClock) -> Any:
        return await story(await Bench.make(clock))

    return run_virtual(main)


async def seen(bench: Bench) -> Observed:
    observed = await bench.server.observed()
    assert observed is not None
    return observed


def write(bench: Bench, *texts: str) -> None:
    """Lines with the kernel's time of now."""
    booted = bench.machine.readings.booted_at
    assert booted is not None
    now_us = int((bench.clock.now() - booted) / timedelta(microseconds=1))
    bench.log.write()
    for text in texts:
        bench.log.lines.append(b"3,%d,%d,-;%s" % (len(bench.log.lines), now_us, text.encode()))
    bench.log.write("boring")


class Disk:
    """A state store on a disk that may be full."""

    def __init__(self) -> None:
        self.document: bytes | None = None
        self.full = False
        self.largest = 0

    def load(self) -> bytes | None:
        return self.document

    def save(self, document: bytes) -> None:
        if self.full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self.document = document
        self.largest = max(self.largest, len(document))


def minutes(fault: Fault, start: datetime) -> list[int]:
    return [int((burst.at - start) / timedelta(minutes=1)) for burst in fault.bursts]


@pytest.mark.requirement("sla/telemetry")
def test_an_hour_without_the_api_with_a_restart_and_a_full_disk_loses_nothing() -> None:
    """Faults open, close and recur; each minute below is one of the outage."""

    async def story(bench: Bench) -> None:
        disk = bench.state = Disk()  # type: ignore[assignment]
        await bench.start()
        start = bench.clock.now()
        bench.server.down = True

        async def until(minute: int) -> None:
            await bench.clock.sleep((start + timedelta(minutes=minute) - bench.clock.now()).total_seconds())

        write(bench, xid(94))
        await until(5)
        write(bench, xid(94), xid(94))
        await until(10)
        write(bench, f"GPU reset executed: {UUID[0]}, success: true")
        await until(15)
        write(bench, xid(79, PCI[1]))
        await until(20)
        await bench.stop()
        await bench.start()
        await until(25)
        disk.full = True
        write(bench, xid(119))
        await until(30)
        write(bench, f"GPU reset executed: {UUID[0]}, success: true")
        await until(35)
        await bench.stop()
        await bench.start()
        await until(40)
        disk.full = False
        write(bench, xid(94))
        await until(50)
        write(bench, xid(94))
        await until(60)
        bench.server.down = False
        await bench.clock.sleep(61)

        observed = await seen(bench)
        assert [(f.code, f.count, minutes(f, start)) for f in observed.faults] == [
            ("79", 1, [15]),
            ("94", 2, [40, 50]),
        ]
        assert [(p.fault.code, p.fault.count, minutes(p.fault, start), p.closed_by) for p in observed.recent] == [
            ("94", 3, [0, 5], "clean-after-reset"),
            ("119", 1, [25], "clean-after-reset"),
        ]
        assert [p.closed_at for p in observed.recent] == sorted(p.closed_at for p in observed.recent)
        assert all(m.state is MonitorState.OK for m in observed.monitors)
        assert disk.largest < 64 * 1024
        await bench.stop()
        await bench.start(settle_s=40)
        assert await seen(bench) == observed, "and the next agent has nothing to add"

    on_bench(story)


def test_a_full_disk_is_said_and_the_agent_goes_on() -> None:
    async def story(bench: Bench) -> None:
        disk = bench.state = Disk()  # type: ignore[assignment]
        await bench.start()
        disk.full = True
        write(bench, xid(79))
        await bench.clock.sleep(31)
        observed = await seen(bench)
        assert [f.code for f in observed.faults] == ["79"]
        states = {m.name: m.message for m in observed.monitors}
        assert "No space left on device" in states["state"]
        disk.full = False
        write(bench, xid(94))
        await bench.clock.sleep(31)
        assert {m.name: m.message for m in (await seen(bench)).monitors}["state"] == ""

    on_bench(story)


def test_new_bursts_are_published_once_a_minute_at_most_and_each_in_the_end() -> None:
    async def story(bench: Bench) -> tuple[int, list[int]]:
        await bench.start()
        start = bench.clock.now()
        for minute in range(0, 30, 2):
            await bench.clock.sleep((start + timedelta(minutes=minute) - bench.clock.now()).total_seconds())
            write(bench, xid(94))
            await bench.clock.sleep(0.1)
            write(bench, xid(94, PCI[1]))
        await bench.clock.sleep(100)
        observed = await seen(bench)
        return bench.server.statuses(), [len(f.bursts) for f in observed.faults]

    writes, found = on_bench(story)
    assert found == [15, 15]
    assert 15 <= writes <= 15 + 15 + 8


def test_a_day_of_storms_stays_small() -> None:
    async def story(bench: Bench) -> tuple[Observed, int]:
        disk = bench.state = Disk()  # type: ignore[assignment]
        await bench.start()
        for hour in range(24):
            for number in range(40):
                write(bench, *[xid(13, PCI[number % 2], f"pid=1, (GPC {number % 8}, TPC {hour % 7}, SM 1): x")] * 25)
            await bench.clock.sleep(3600)
        return await seen(bench), disk.largest

    observed, largest = on_bench(story)
    assert sum(f.count for f in observed.faults) == 24 * 40 * 25
    assert all(len(f.bursts) <= BURST_LIMIT for f in observed.faults)
    assert all(sum(b.count for b in f.bursts) == f.count for f in observed.faults)
    assert len(msgspec.json.encode(observed)) < 64 * 1024
    assert largest < 256 * 1024


def test_the_log_of_a_whole_boot_keeps_its_bursts_although_it_is_read_in_one_go() -> None:
    """A fault of the boot before the agent started, and one that came hourly since."""

    async def story(bench: Bench) -> list[tuple[str, int, int]]:
        bench.machine.change(booted_at=bench.clock.now() - timedelta(hours=6))
        lines = [b"3,1,1000,-;" + xid(79, PCI[1]).encode()]
        for hour in range(5):
            for number in range(100):
                stamp = (hour * 3600 + number) * 1_000_000
                lines.append(b"3,%d,%d,-;%s" % (len(lines), stamp, xid(94).encode()))
        bench.log.lines = lines
        bench.log.largest = 10_000
        await bench.start()
        return [(f.code, f.count, len(f.bursts)) for f in await bench.server.faults()]

    assert on_bench(story) == [("79", 1, 1), ("94", 500, 5)]


def test_a_fifo_with_junk_long_lines_a_gap_and_a_storm(tmp_path: Path) -> None:
    """The real reader of /dev/kmsg on a FIFO, behind the agent, in the machine's own time."""
    from muster.agent.agent import Agent
    from muster.agent.state import MemoryStateStore
    from muster.clock import SystemClock
    from tests.agent.node import NODE, Machine, Server

    path = tmp_path / "kmsg"
    os.mkfifo(path)

    def feed() -> None:
        with path.open("wb") as fifo:
            fifo.write(b"3,1,1000,-;" + xid(79, PCI[1]).encode() + b"\n")
            fifo.write(bytes(range(256)) * 8 + b"\n")
            fifo.write(b"6,2,2000,-;" + b"x" * 65536 + b"\n")
            for number in range(10, 20_010):
                fifo.write(b"3,%d,%d,-;%s\n" % (number, 3000 + number, xid(94).encode()))

    async def main() -> Observed:
        clock = VirtualClock()
        server = await Server.start(clock)
        source = open_kernel_log(path, "boot-1", SystemClock())
        agent = Agent(server, NODE, source, Machine(), SystemClock(), state=MemoryStateStore(), version="1.0")
        running = asyncio.ensure_future(agent.run())
        await asyncio.to_thread(feed)
        async with asyncio.timeout(60):
            while sum(f.count for f in (agent._picture.faults if agent._picture else ())) < 20_001:  # noqa: ASYNC110
                await asyncio.sleep(0)
        observed = agent._compose()
        running.cancel()
        await asyncio.wait({running})
        assert observed is not None
        return observed

    observed = asyncio.run(main())
    assert [(f.code, f.count) for f in sorted(observed.faults, key=lambda f: f.code)] == [("79", 1), ("94", 20_000)]
    log = next(m for m in observed.monitors if m.name == "kernel-log")
    assert "records were lost" in log.message
