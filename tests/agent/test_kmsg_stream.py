"""The kernel log as a stream: a FIFO with the lines of /dev/kmsg, and records as the device gives them."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from muster.agent.kernel_log import MAX_LINE_BYTES, Cursor, KmsgStream, open_kernel_log
from muster.agent.sources import LogBatch
from muster.clock import SystemClock

BOOT = "0f1e2d3c-0000-4000-8000-123456789abc"


def record(number: int, text: str) -> bytes:
    return f"6,{number},{number * 1000},-;{text}".encode()


@pytest.fixture
def fifo(tmp_path: Path) -> Path:
    path = tmp_path / "kmsg"
    os.mkfifo(path)
    return path


def run(fifo: Path, use: Callable[[KmsgStream, int], Awaitable[Any]]) -> Any:
    async def main() -> Any:
        source = open_kernel_log(fifo, BOOT, SystemClock())
        assert isinstance(source, KmsgStream)
        writer = os.open(fifo, os.O_RDWR | os.O_NONBLOCK)
        try:
            return await asyncio.wait_for(use(source, writer), timeout=20)
        finally:
            source.close()
            os.close(writer)

    return asyncio.run(main())


def test_a_record_wakes_the_reader(fifo: Path) -> None:
    async def use(source: KmsgStream, writer: int) -> LogBatch:
        waiting = asyncio.ensure_future(source.read(None))
        await asyncio.sleep(0)
        assert not waiting.done()
        os.write(writer, record(1, "hello") + b"\n" + record(2, "half"))
        return await waiting

    batch = run(fifo, use)
    assert batch.records == (record(1, "hello"),)
    assert Cursor.decode(batch.cursor) == Cursor(boot=BOOT, sequence=1)


def test_records_up_to_the_cursor_are_skipped_and_gaps_are_counted(fifo: Path) -> None:
    async def use(source: KmsgStream, writer: int) -> LogBatch:
        lines = [record(number, "x") for number in (3, 4, 5, 9)] + [b" SUBSYSTEM=pci", b"no number"]
        os.write(writer, b"\n".join(lines) + b"\n")
        return await source.read(Cursor(boot=BOOT, sequence=4).encode())

    batch = run(fifo, use)
    assert batch.records == (record(5, "x"), record(9, "x"), b" SUBSYSTEM=pci", b"no number")
    assert batch.lost == 3


def test_a_cursor_of_another_boot_skips_nothing(fifo: Path) -> None:
    async def use(source: KmsgStream, writer: int) -> LogBatch:
        os.write(writer, record(3, "x") + b"\n")
        return await source.read(Cursor(boot="earlier", sequence=4000).encode())

    batch = run(fifo, use)
    assert (batch.records, batch.lost) == ((record(3, "x"),), 0)


def test_an_endless_line_is_cut_and_the_next_one_is_whole(fifo: Path) -> None:
    async def write_all(writer: int, left: bytes) -> None:
        while left:
            try:
                left = left[os.write(writer, left) :]
            except BlockingIOError:
                await asyncio.sleep(0)

    async def use(source: KmsgStream, writer: int) -> list[bytes]:
        writing = asyncio.ensure_future(write_all(writer, b"x" * 300_000 + b"\nafter\n"))
        found: list[bytes] = []
        cursor = None
        while b"after" not in found:
            batch = await source.read(cursor)
            found += batch.records
            cursor = batch.cursor
        await writing
        return found

    found = run(fifo, use)
    assert found == [b"x" * MAX_LINE_BYTES, b"after"]


def test_overwritten_records_of_the_device_are_counted(fifo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The device answers EPIPE once, then goes on with the oldest record that it still has."""
    answers: list[Any] = [
        record(1, "first") + b"\n DEVICE=+pci:0000:3b:00.0\n",
        OSError(errno.EPIPE, "Broken pipe"),
        record(40, "later") + b"\n",
        BlockingIOError(errno.EAGAIN, "nothing more"),
    ]

    def read(fd: int, size: int) -> bytes:
        answer = answers.pop(0)
        if isinstance(answer, OSError):
            raise answer
        return answer  # type: ignore[no-any-return]

    async def main() -> LogBatch:
        source = KmsgStream(Path(os.devnull), BOOT, fifo=False)
        monkeypatch.setattr("muster.agent.kernel_log.os.read", read)
        return await source.read(None)

    batch = asyncio.run(main())
    assert batch.records == (record(1, "first"), b" DEVICE=+pci:0000:3b:00.0", record(40, "later"))
    assert batch.lost == 38


def test_another_error_of_the_device_reaches_the_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(fd: int, size: int) -> bytes:
        raise OSError(errno.EIO, "Input/output error")

    async def main() -> None:
        source = KmsgStream(Path(os.devnull), BOOT, fifo=False)
        monkeypatch.setattr("muster.agent.kernel_log.os.read", read)
        await source.read(None)

    with pytest.raises(OSError, match="Input/output error"):
        asyncio.run(main())


def test_cursors_survive_their_text_and_anything_else_is_the_start() -> None:
    cursor = Cursor(boot="b", sequence=0, inode=3, offset=9, head_size=9, head=77, cutting=True)
    assert Cursor.decode(cursor.encode()) == cursor
    for text in (None, "", "[]", "{", '{"offset":"x"}', "\x00"):
        assert Cursor.decode(text) == Cursor()
