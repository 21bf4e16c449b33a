"""The kernel log of a real node: /dev/kmsg, a FIFO or a file in its format, or a file of `journalctl -o json`.

A cursor stands for a place that survives a restart of the agent: the boot and sequence number for a stream, the file,
offset and a checksum of its beginning for a file.
"""

from __future__ import annotations

import asyncio
import errno
import os
import re
import stat
from pathlib import Path

import msgspec

from muster.agent.sources import LogBatch, LogSource
from muster.clock import Clock
from muster.errors import BadInputError

MAX_LINE_BYTES = 64 * 1024
"""Longer lines are cut to this; the rest is dropped."""
MAX_BATCH_RECORDS = 4096
_SEQUENCE = re.compile(rb"\d{1,10},(\d{1,20}),\d")


class Cursor(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where reading continues. A stream uses `boot` and `sequence`, a file everything else and `sequence`."""

    boot: str = ""
    sequence: int | None = None
    """Sequence number of the last record read."""
    inode: int = 0
    offset: int = 0
    head_size: int = 0
    head: int = 0
    """Checksum of the first `head_size` bytes: a file of the same inode with another beginning is another file."""
    cutting: bool = False
    """Inside a line that is too long: drop what comes until its end."""

    def encode(self) -> str:
        return msgspec.json.encode(self).decode()

    @classmethod
    def decode(cls, text: str | None) -> Cursor:
        """Read what `encode` wrote; anything else is the start."""
        try:
            return msgspec.json.decode(text or "{}", type=cls)
        except msgspec.MsgspecError:
            return cls()


def open_kernel_log(path: Path, boot_id: str, clock: Clock) -> LogSource:
    """The source for whatever `path` is. Raises BadInputError when it is missing or a directory."""
    from muster.agent.log_file import LogFile

    try:
        mode = path.stat().st_mode
    except OSError as error:
        raise BadInputError(
            f"Cannot read the kernel log {path} ({error.strerror or error}); give --kernel-log PATH."
        ) from error
    if stat.S_ISDIR(mode):
        raise BadInputError(f"The kernel log {path} is a directory; give --kernel-log FILE.")
    if stat.S_ISREG(mode):
        return LogFile(path, boot_id, clock)
    return KmsgStream(path, boot_id, fifo=stat.S_ISFIFO(mode))


class Sequence:
    """Follows the sequence numbers of kernel records: what was read before, and how many are missing in between."""

    def __init__(self, last: int | None) -> None:
        self.last = last
        self.lost = 0

    def is_new(self, record: bytes) -> bool:
        """Whether `record` was not read before. A record without a number always counts as new."""
        match = _SEQUENCE.match(record)
        if match is None:
            return True
        number = int(match.group(1))
        if self.last is not None:
            if number <= self.last:
                return False
            self.lost += number - self.last - 1
        self.last = number
        return True

    def restart(self, record: bytes) -> None:
        """Count on from `record`, whose number need not follow."""
        self.last = None
        self.is_new(record)

    def take_lost(self) -> int:
        lost, self.lost = self.lost, 0
        return lost


class KmsgStream:
    """/dev/kmsg (one record per read) or a FIFO with the same lines. Woken by the event loop, never polls.

    After a restart the device gives all that its ring still holds; records up to the cursor are skipped. A FIFO holds
    nothing back, so what is written to it while no agent reads is up to its writer.
    """

    READ_BYTES = 64 * 1024

    def __init__(self, path: Path, boot_id: str, *, fifo: bool) -> None:
        self._path = path
        self._boot_id = boot_id
        self._fifo = fifo
        self._fd: int | None = None
        self._given: str | None = None
        self._sequence = Sequence(None)
        self._rest = b""
        self._cutting = False

    async def read(self, cursor: str | None) -> LogBatch:
        """The next records; waits for one. Raises OSError when the log cannot be opened or read."""
        if self._fd is None or cursor != self._given:
            self._open(Cursor.decode(cursor))
        while True:
            records = self._available()
            lost = self._sequence.take_lost()
            if records or lost:
                self._given = Cursor(boot=self._boot_id, sequence=self._sequence.last).encode()
                return LogBatch(tuple(records), self._given, lost)
            await self._readable()

    def close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _open(self, cursor: Cursor) -> None:
        same_boot = cursor.boot == self._boot_id
        self._sequence = Sequence(cursor.sequence if same_boot else None)
        if self._fifo and self._fd is not None:
            # What a FIFO still holds would be gone with its last reader.
            return
        self.close()
        self._rest = b""
        self._cutting = False
        # A FIFO is opened for writing as well: otherwise it ends whenever its last writer leaves.
        access = os.O_RDWR if self._fifo else os.O_RDONLY
        self._fd = os.open(self._path, access | os.O_NONBLOCK | os.O_CLOEXEC)

    def _available(self) -> list[bytes]:
        assert self._fd is not None  # noqa: S101 - read opened it
        records: list[bytes] = []
        while len(records) < MAX_BATCH_RECORDS:
            try:
                data = os.read(self._fd, self.READ_BYTES)
            except BlockingIOError:
                break
            except OSError as error:
                if error.errno == errno.EPIPE:
                    # Records were overwritten before they were read; the next one's number tells how many.
                    continue
                self.close()
                raise
            if not data:
                break
            records += [line for line in self._lines(data) if line and self._sequence.is_new(line)]
        return records

    def _lines(self, data: bytes) -> list[bytes]:
        if not self._fifo:
            # One whole record: its line, then ` KEY=value` lines.
            return [line[:MAX_LINE_BYTES] for line in data.split(b"\n")]
        *lines, self._rest = (self._rest + data).split(b"\n")
        if lines and self._cutting:
            lines = lines[1:]
            self._cutting = False
        if len(self._rest) > MAX_LINE_BYTES:
            if not self._cutting:
                lines.append(self._rest[:MAX_LINE_BYTES])
            self._cutting = True
            self._rest = b""
        return [line[:MAX_LINE_BYTES] for line in lines]

    async def _readable(self) -> None:
        assert self._fd is not None  # noqa: S101 - read opened it
        loop = asyncio.get_running_loop()
        ready: asyncio.Future[None] = loop.create_future()
        fd = self._fd

        def wake() -> None:
            if not ready.done():
                ready.set_result(None)

        loop.add_reader(fd, wake)
        try:
            await ready
        finally:
            loop.remove_reader(fd)
