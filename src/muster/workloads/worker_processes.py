"""What the worker needs of Linux: nothing it started is left running, nothing that a program leaves does harm."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import stat
import time
from collections.abc import Sequence
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_SET_CHILD_SUBREAPER = 36


def _prctl(option: int, value: int) -> bool:
    try:
        return int(ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)) == 0
    except (OSError, AttributeError):
        return False


def become_subreaper() -> bool:
    """Orphans among the descendants of this process become its children. False where the system cannot do that."""
    return _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def hide_memory() -> bool:
    """What this process knows cannot be read from `/proc` by programs of the same user, nor end in a core file."""
    return _prctl(_PR_SET_DUMPABLE, 0)


def read_regular(path: Path, limit_bytes: int, *, last: bool = False) -> bytes:
    """The first (or `last`) bytes of a file that a program may have put there. Never blocks, never follows a link.

    Raises OSError, also for what is no regular file: a pipe has no end, and a link may lead to a device.
    """
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(fd, "rb") as file:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(f"{path.name} is no regular file")
        if last:
            file.seek(max(0, found.st_size - limit_bytes))
        return file.read(limit_bytes)


def die_with_parent(parent: int) -> None:
    """This process is killed when the thread that started it ends. `parent`: the process of that thread."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def children() -> list[int]:
    """Children of this process, dead ones that nobody waited for included, in order."""
    own = os.getpid()
    return sorted(int(e.name) for e in Path("/proc").iterdir() if e.name.isdigit() and _parent(e) == own)


def children_among(pids: Sequence[int], parents: Sequence[int]) -> list[int]:
    """Those of `pids` that are there, as children of one of `parents`: a number may be that of another one by now."""
    return [pid for pid in pids if _parent(Path("/proc") / str(pid)) in parents]


def _parent(entry: Path) -> int:
    try:
        stat = (entry / "stat").read_text(errors="replace")
    except OSError:
        return 0
    # The name of the program stands in parentheses and may hold anything.
    return int(stat.rpartition(")")[2].split()[1])


def kill_children(keep: frozenset[int], within_s: float) -> list[int]:
    """Kill every child but `keep`, with what they leave behind; those that are not gone after `within_s`."""
    deadline = time.monotonic() + within_s
    while True:
        left = [pid for pid in children() if pid not in keep]
        if not left or time.monotonic() >= deadline:
            return left
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        time.sleep(0.01)
