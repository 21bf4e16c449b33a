"""A kernel log in a file: every line once, in order, whatever happens to the file and to the agent."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.agent import log_file
from muster.agent.kernel_log import MAX_LINE_BYTES, open_kernel_log
from muster.agent.log_file import LogFile
from muster.agent.sources import LogBatch
from muster.errors import BadInputError
from muster.sim.virtual import VirtualClock, run_virtual

BOOT = "0f1e2d3c-0000-4000-8000-123456789abc"


def append(file: Path, *lines: bytes) -> None:
    with file.open("ab") as log:
        log.write(b"".join(line + b"\n" for line in lines))


async def within(clock: VirtualClock, work: Coroutine[Any, Any, LogBatch], seconds: float) -> LogBatch | None:
    """What `work` gives within `seconds`, or None: the source is still waiting."""
    task = asyncio.ensure_future(work)
    await asyncio.wait({task, asyncio.ensure_future(clock.sleep(seconds))}, return_when=asyncio.FIRST_COMPLETED)
    if not task.done():
        task.cancel()
        return None
    return task.result()


async def drain(clock: VirtualClock, source: LogFile, cursor: str | None) -> tuple[list[bytes], str | None]:
    found: list[bytes] = []
    while (batch := await within(clock, source.read(cursor), 2.0)) is not None:
        found += batch.records
        cursor = batch.cursor
    return found, cursor


def test_reads_what_is_there_then_waits_for_more(tmp_path: Path) -> None:
    file = tmp_path / "kmsg"
    append(file, b"one", b"two")

    async def main(clock: VirtualClock) -> list[Any]:
        source = LogFile(file, BOOT, clock)
        first, cursor = await drain(clock, source, None)
        with file.open("ab") as log:
            log.write(b"thr")
        unfinished, cursor = await drain(clock, source, cursor)
        append(file, b"ee")
        rest, _ = await drain(clock, source, cursor)
        return [first, unfinished, rest]

    assert run_virtual(main) == [[b"one", b"two"], [], [b"three"]]


def test_a_new_agent_resumes_at_the_cursor(tmp_path: Path) -> None:
    file = tmp_path / "kmsg"
    append(file, b"one", b"two")

    async def main(clock: VirtualClock) -> list[bytes]:
        _, cursor = await drain(clock, LogFile(file, BOOT, clock), None)
        append(file, b"three")
        found, _ = await drain(clock, LogFile(file, BOOT, clock), cursor)
        return found

    assert run_virtual(main) == [b"three"]


@pytest.mark.parametrize("restart", [False, True])
def test_rotation_by_renaming_loses_and_repeats_nothing(tmp_path: Path, restart: bool) -> None:
    file = tmp_path / "kmsg"
    append(file, b"one")

    async def main(clock: VirtualClock) -> list[bytes]:
        source = LogFile(file, BOOT, clock)
        first, cursor = await drain(clock, source, None)
        append(file, b"two")
        with file.open("ab") as log:
            log.write(b"unfinished")
        file.rename(tmp_path / "kmsg.1")
        append(file, b"three")
        if restart:
            source = LogFile(file, BOOT, clock)
        rest, _ = await drain(clock, source, cursor)
        return first + rest

    assert run_virtual(main) == [b"one", b"two", b"unfinished", b"three"]


def test_a_rotated_file_whose_successor_is_not_there_yet_is_waited_for(tmp_path: Path) -> None:
    file = tmp_path / "kmsg"
    append(file, b"one")

    async def main(clock: VirtualClock) -> list[list[bytes]]:
        source = LogFile(file, BOOT, clock)
        first, cursor = await drain(clock, source, None)
        file.rename(tmp_path / "kmsg.1")
        between, cursor = await drain(clock, source, cursor)
        append(file, b"two")
        rest, _ = await drain(clock, source, cursor)
        return [first, between, rest]

    assert run_virtual(main) == [[b"one"], [], [b"two"]]


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("after", [[b"new"], [b"new 1", b"new 2", b"new 3, longer than before"]])
def test_a_truncated_file_is_read_from_its_start(tmp_path: Path, restart: bool, after: list[bytes]) -> None:
    file = tmp_path / "kmsg"
    append(file, b"old one", b"old two")

    async def main(clock: VirtualClock) -> list[bytes]:
        source = LogFile(file, BOOT, clock)
        _, cursor = await drain(clock, source, None)
        file.write_bytes(b"")
        append(file, *after)
        if restart:
            source = LogFile(file, BOOT, clock)
        rest, _ = await drain(clock, source, cursor)
        return rest

    assert run_virtual(main) == after


def test_missing_sequence_numbers_are_counted_as_lost(tmp_path: Path) -> None:
    file = tmp_path / "kmsg"
    append(file, b"6,10,1,-;a", b"6,11,2,-;b", b" SUBSYSTEM=pci", b"6,15,3,-;c", b"plain", b"6,3,9,-;next boot")

    async def main(clock: VirtualClock) -> tuple[int, int]:
        batch = await LogFile(file, BOOT, clock).read(None)
        return batch.lost, len(batch.records)

    assert run_virtual(main) == (3, 6)


def test_lines_of_other_boots_are_left_out_of_a_journal(tmp_path: Path) -> None:
    file = tmp_path / "journal.json"
    ours = b'{"_BOOT_ID":"' + BOOT.replace("-", "").encode() + b'","MESSAGE":"ours"}'
    append(file, b'{"_BOOT_ID":"ffff","MESSAGE":"old"}', ours, b'{"MESSAGE":"no boot said"}')

    async def main(clock: VirtualClock) -> list[bytes]:
        found, _ = await drain(clock, LogFile(file, BOOT, clock), None)
        return found

    assert run_virtual(main) == [ours, b'{"MESSAGE":"no boot said"}']


@pytest.mark.parametrize("size", [MAX_LINE_BYTES - 1, MAX_LINE_BYTES, MAX_LINE_BYTES + 1, 300_000, 1_000_000])
def test_long_lines_are_cut_and_the_next_line_is_whole(tmp_path: Path, size: int) -> None:
    file = tmp_path / "kmsg"
    append(file, b"x" * size, b"after")

    async def main(clock: VirtualClock) -> list[bytes]:
        found, _ = await drain(clock, LogFile(file, BOOT, clock), None)
        return found

    assert run_virtual(main) == [b"x" * min(size, MAX_LINE_BYTES), b"after"]


def test_binary_junk_is_only_split_at_newlines(tmp_path: Path) -> None:
    file = tmp_path / "kmsg"
    junk = bytes(range(256)) * 20
    append(file, junk, b"\x00\xff", b"", b"{broken json")

    async def main(clock: VirtualClock) -> bytes:
        found, _ = await drain(clock, LogFile(file, BOOT, clock), "no cursor \x00 of ours")
        return b"\n".join(found)

    assert run_virtual(main) == junk + b"\n\x00\xff\n{broken json"


def test_a_file_that_is_gone_is_an_error_of_the_source(tmp_path: Path) -> None:
    async def main(clock: VirtualClock) -> None:
        await LogFile(tmp_path / "none", BOOT, clock).read(None)

    with pytest.raises(FileNotFoundError):
        run_virtual(main)


def test_a_path_that_is_no_log_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match=r"^Cannot read the kernel log .*; give --kernel-log PATH\.$"):
        open_kernel_log(tmp_path / "none", BOOT, VirtualClock())
    with pytest.raises(BadInputError, match=r"is a directory; give --kernel-log FILE\.$"):
        open_kernel_log(tmp_path, BOOT, VirtualClock())


action = st.sampled_from(["write", "write", "part", "rotate", "restart", "read"])


@settings(max_examples=80, deadline=None)
@given(st.lists(action, max_size=25), st.integers(1, 40))
def test_every_line_is_read_once_in_order(
    tmp_path_factory: pytest.TempPathFactory, actions: list[str], length: int
) -> None:
    """Writes in pieces, rotations that the agent sees in time, restarts from the last cursor, tiny chunks."""
    file = tmp_path_factory.mktemp("log") / "kmsg"
    file.touch()

    async def main(clock: VirtualClock) -> None:
        source, cursor = LogFile(file, BOOT, clock), None
        written: list[bytes] = []
        found: list[bytes] = []
        rotated = False
        for number, what in enumerate(actions):
            line = f"{number}:".encode() + b"x" * length
            if what == "write":
                append(file, line)
                written.append(line)
            elif what == "part":
                with file.open("ab") as log:
                    log.write(line[:2])
                    log.flush()
                    more, cursor = await drain(clock, source, cursor)
                    found += more
                    log.write(line[2:] + b"\n")
                written.append(line)
                rotated = False
            elif what == "rotate" and not rotated and cursor and file.stat().st_size:
                file.rename(file.with_name("kmsg.1"))
                file.touch()
                rotated = True
            elif what == "restart":
                source.close()
                source = LogFile(file, BOOT, clock)
            elif what == "read":
                more, cursor = await drain(clock, source, cursor)
                found += more
                rotated = False
        more, _ = await drain(clock, source, cursor)
        assert found + more == written

    original = log_file.CHUNK_BYTES
    log_file.CHUNK_BYTES = MAX_LINE_BYTES + 1
    try:
        run_virtual(main)
    finally:
        log_file.CHUNK_BYTES = original
