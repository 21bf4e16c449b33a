"""A kernel log in a regular file: followed through rotation and truncation, without losing or repeating a line."""

from __future__ import annotations

import os
import zlib
from pathlib import Path

from muster.agent.file_watch import FileWatch
from muster.agent.kernel_log import MAX_LINE_BYTES, Cursor, Sequence
from muster.agent.sources import LogBatch
from muster.clock import Clock, speed_of

CHUNK_BYTES = 256 * 1024
HEAD_BYTES = 256
POLL_S = 1.0
"""Of the machine's time: how often a file is looked at that gives no sign of change (on a network, say)."""


class LogFile:
    """Reads `path` as it grows.

    Rotation by renaming is followed to the end of the old file first; after a restart of the agent the old file is
    looked for as `<path>.1`. A file that was cut, or whose beginning changed, is read from its start. Lines of
    `journalctl -o json` that belong to another boot are left out.
    """

    def __init__(self, path: Path, boot_id: str, clock: Clock, *, poll_s: float = POLL_S) -> None:
        """`poll_s` is for when the kernel cannot wake the reader: the machine's time, whatever `clock` says."""
        self._path = path
        self._boot = boot_id.replace("-", "").encode()
        self._poll_s = poll_s * speed_of(clock)
        self._watch = FileWatch(clock)
        self._fd: int | None = None
        self._given: str | None = None
        self._inode = 0
        self._offset = 0
        self._head_size = 0
        self._head = 0
        self._cutting = False
        self._sequence = Sequence(None)

    async def read(self, cursor: str | None) -> LogBatch:
        """The next records; waits for one. Raises OSError when the file cannot be opened.

        A batch without records tells that reading goes on in another file: its cursor must not be lost.
        """
        if self._fd is None or cursor != self._given:
            self._resume(Cursor.decode(cursor))
        while True:
            inode = self._inode
            lines, more = self._advance()
            records = [line for line in lines if line and self._is_wanted(line)]
            if records or inode != self._inode:
                lost = self._sequence.take_lost()
                self._given = self._cursor().encode()
                return LogBatch(tuple(records), self._given, lost)
            if not more:
                await self._watch.changed(self._poll_s)

    def close(self) -> None:
        """Let go of the file; nothing is read after this."""
        self._close_file()
        self._watch.close()

    def _close_file(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _cursor(self) -> Cursor:
        return Cursor(
            sequence=self._sequence.last,
            inode=self._inode,
            offset=self._offset,
            head_size=self._head_size,
            head=self._head,
            cutting=self._cutting,
        )

    def _resume(self, cursor: Cursor) -> None:
        """Find the file of the cursor; failing that, start with the oldest file that cannot have been read."""
        rotated = self._path.with_name(self._path.name + ".1")
        truncated = False
        for path in (self._path, rotated):
            try:
                self._open(path)
            except FileNotFoundError:
                continue
            truncated |= self._inode == cursor.inode
            self._offset, self._head_size, self._head = cursor.offset, cursor.head_size, cursor.head
            if self._inode == cursor.inode and self._is_same_file():
                self._cutting = cursor.cutting
                self._sequence = Sequence(cursor.sequence)
                return
        # When the cursor's own file is gone altogether, the rotated one came after it.
        began_before = cursor.inode != 0 and not truncated and rotated.exists()
        self._open(rotated if began_before else self._path)

    def _open(self, path: Path) -> None:
        """Open from the start. Raises OSError."""
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._close_file()
        self._fd = fd
        self._inode = os.fstat(fd).st_ino
        self._watch.follow(path)
        self._restart()

    def _restart(self) -> None:
        self._offset = self._head_size = self._head = 0
        self._cutting = False
        self._sequence = Sequence(None)

    def _is_same_file(self) -> bool:
        """Whether the open file still has the beginning, and at least the length, that was read."""
        assert self._fd is not None  # noqa: S101 - the caller opened it
        if os.fstat(self._fd).st_size < self._offset:
            return False
        return zlib.crc32(os.pread(self._fd, self._head_size, 0)) == self._head

    def _advance(self) -> tuple[list[bytes], bool]:
        """The next complete lines, and whether it is worth looking again at once."""
        assert self._fd is not None  # noqa: S101 - read opened it
        if not self._is_same_file():
            self._restart()
        data = os.pread(self._fd, CHUNK_BYTES, self._offset)
        end = data.rfind(b"\n") + 1
        if end:
            lines = data[: end - 1].split(b"\n")
        elif len(data) > MAX_LINE_BYTES:
            lines, end = [data], len(data)
            if self._cutting:
                self._move(end)
                return [], True
            self._move(end)
            self._cutting = True
            return [data[:MAX_LINE_BYTES]], True
        elif self._is_rotated():
            # Nothing will be added to the old file: an unfinished line is all there is of it.
            lines = [data] if data and not self._cutting else []
            self._open(self._path)
            return lines, True
        else:
            return [], False
        if self._cutting:
            lines = lines[1:]
            self._cutting = False
        self._move(end)
        return [line[:MAX_LINE_BYTES] for line in lines], True

    def _move(self, size: int) -> None:
        self._offset += size
        if self._head_size < HEAD_BYTES:
            assert self._fd is not None  # noqa: S101 - read opened it
            self._head_size = min(HEAD_BYTES, self._offset)
            self._head = zlib.crc32(os.pread(self._fd, self._head_size, 0))

    def _is_rotated(self) -> bool:
        """Whether another file has taken the place of the open one."""
        try:
            return self._path.stat().st_ino != self._inode
        except FileNotFoundError:
            return False

    def _is_wanted(self, line: bytes) -> bool:
        if line.startswith(b"{"):
            return not self._boot or b'"_BOOT_ID"' not in line or self._boot in line
        # In a file the offset says what is new; the numbers only tell what is missing.
        if not self._sequence.is_new(line):
            self._sequence.restart(line)
        return True
