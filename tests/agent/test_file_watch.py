"""The kernel wakes who waits for a file: at once when it changes, and only then."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from muster.agent.file_watch import FileWatch
from muster.clock import SystemClock
from muster.sim.virtual import VirtualClock, run_virtual

LONG_S = 60.0


async def woken_by(watch: FileWatch, act: object) -> bool:
    """Whether the wait ends because of `act`, long before its limit."""
    waiting = asyncio.ensure_future(watch.changed(LONG_S))
    await asyncio.sleep(0)
    act()  # type: ignore[operator]
    done, _ = await asyncio.wait({waiting}, timeout=10)
    waiting.cancel()
    return bool(done)


@pytest.mark.parametrize("what", ["append", "truncate", "rename", "unlink", "before-the-wait"])
def test_a_change_wakes(tmp_path: Path, what: str) -> None:
    file = tmp_path / "log"
    file.write_text("one\n")

    def append() -> None:
        with file.open("a") as log:
            log.write("two\n")

    acts = {
        "append": append,
        "truncate": lambda: os.truncate(file, 0),
        "rename": lambda: file.rename(tmp_path / "log.1"),
        "unlink": file.unlink,
        "before-the-wait": lambda: None,
    }

    async def main() -> bool:
        watch = FileWatch(SystemClock())
        watch.follow(file)
        if what == "before-the-wait":
            append()
        try:
            return await woken_by(watch, acts[what])
        finally:
            watch.close()

    assert asyncio.run(main())


def test_only_the_file_that_is_followed_wakes(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    old.touch()
    new.touch()

    async def main(clock: VirtualClock) -> tuple[float, float]:
        watch = FileWatch(clock)
        watch.follow(old)
        watch.follow(new)
        # The end of the first watch is itself an event.
        await watch.changed(LONG_S)
        old.write_text("x")
        before = clock.elapsed_s
        await watch.changed(LONG_S)
        silent = clock.elapsed_s - before
        new.write_text("x")
        before = clock.elapsed_s
        await watch.changed(LONG_S)
        watch.close()
        return silent, clock.elapsed_s - before

    assert run_virtual(main) == (LONG_S, 0.0)


def test_without_a_watch_it_waits_and_no_more(tmp_path: Path) -> None:
    async def main(clock: VirtualClock) -> float:
        watch = FileWatch(clock)
        watch.follow(tmp_path / "missing")
        await watch.changed(LONG_S)
        watch.close()
        return clock.elapsed_s

    assert run_virtual(main) == LONG_S
