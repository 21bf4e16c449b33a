"""Finds main processes of services below a root folder's /proc, without a client of systemd. Blocking; bounded."""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass

from muster.inventory.machine import Machine

COMM_CHARACTERS = 15
"""The kernel keeps so much of a process's name."""
MAX_PROCESSES = 100_000
GONE = (errno.ENOENT, errno.ESRCH, errno.ENOTDIR, errno.ENODEV)
"""It is not there, or was and has ended. Any other error (no descriptors, no rights) says nothing of it."""
_START_TIME = 19
"""Place of the start time among the fields after the name in /proc/PID/stat."""


@dataclass(frozen=True)
class Process:
    pid: str
    start: str
    """In clock ticks after the boot; with the ID it names one process of a boot."""
    cgroup: str

    @property
    def identity(self) -> str:
        return f"{self.pid}@{self.start}"

    @property
    def in_pod(self) -> bool:
        return "kubepods" in self.cgroup or "/docker" in self.cgroup or "/libpod" in self.cgroup


def by_name(machine: Machine, names: frozenset[str]) -> dict[str, list[Process]]:
    """Living processes whose name (its first 15 characters) is one of `names`, oldest first.

    Raises OSError when the processes of the node cannot be seen: of others nobody may then say that they are missing.
    """
    machine.read("proc/1/stat")
    short = {name[:COMM_CHARACTERS].encode(): name for name in sorted(names)}
    found: dict[str, list[Process]] = {name: [] for name in sorted(names)}
    folder = os.open(machine.root / "proc", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        names_below = os.listdir(folder)  # noqa: PTH208 - pathlib knows no open folders
        for pid in [entry for entry in names_below if entry.isascii() and entry.isdigit()][:MAX_PROCESSES]:
            try:
                # Cheaper than `stat`, and nearly all are none of ours.
                name = short.get(_comm(folder, pid))
                process = _process(machine, pid) if name is not None else None
            except OSError as error:
                if error.errno not in GONE:
                    raise
                continue
            if name is not None and process is not None:
                found[name].append(process)
    finally:
        os.close(folder)
    for processes in found.values():
        processes.sort(key=lambda process: (int(process.start), int(process.pid)))
    return found


def _comm(folder: int, pid: str) -> bytes:
    """Name of a process, by way of an open folder: a node has thousands of them."""
    fd = os.open(f"{pid}/comm", os.O_RDONLY | os.O_CLOEXEC, dir_fd=folder)
    try:
        return os.read(fd, 64).rstrip(b"\n")
    finally:
        os.close(fd)


def _process(machine: Machine, pid: str) -> Process | None:
    fields = machine.read(f"proc/{pid}/stat").rpartition(")")[2].split()
    if len(fields) <= _START_TIME or fields[0] in ("Z", "X") or not fields[_START_TIME].isdigit():
        return None
    return Process(pid, fields[_START_TIME], machine.read(f"proc/{pid}/cgroup")[:4096])
