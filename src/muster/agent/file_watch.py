"""Waits for a file to change without looking at it all the time: Linux inotify, through libc.

The packages that wrap inotify start a process to find libc; an agent that counts its memory does without.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
from pathlib import Path

from muster.clock import Clock

IN_MODIFY, IN_ATTRIB, IN_MOVE_SELF = 0x2, 0x4, 0x800
"""Written to; unlinked, among others; renamed. From <sys/inotify.h>."""
READ_BYTES = 64 * 1024


class FileWatch:
    """Watches one file at a time. Where the kernel gives no watch (too many, not Linux) `changed` is a plain wait."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._watch = -1
        try:
            self._fd = int(self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))
        except AttributeError:  # not Linux
            self._fd = -1

    def follow(self, path: Path) -> None:
        """Watch the file that is at `path` now, and no other."""
        if self._fd < 0:
            return
        if self._watch >= 0:
            self._libc.inotify_rm_watch(self._fd, self._watch)
        mask = IN_MODIFY | IN_ATTRIB | IN_MOVE_SELF
        self._watch = int(self._libc.inotify_add_watch(self._fd, os.fsencode(path), mask))

    async def changed(self, at_most_s: float) -> None:
        """Return when the file has changed since the last call, or after `at_most_s` of the clock."""
        if self._watch < 0:
            await self._clock.sleep(at_most_s)
            return
        loop = asyncio.get_running_loop()
        news = asyncio.Event()
        loop.add_reader(self._fd, news.set)
        limit = asyncio.ensure_future(self._clock.sleep(at_most_s))
        changed = asyncio.ensure_future(news.wait())
        try:
            await asyncio.wait((limit, changed), return_when=asyncio.FIRST_COMPLETED)
        finally:
            limit.cancel()
            changed.cancel()
            loop.remove_reader(self._fd)
        with contextlib.suppress(BlockingIOError):
            os.read(self._fd, READ_BYTES)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = self._watch = -1
