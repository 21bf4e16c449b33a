"""File systems of the node as a shell: mountinfo of the first process, statvfs of local file systems."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import msgspec

from muster.agent.host import filesystems, mounts
from muster.agent.host.blocking import Blocking
from muster.agent.host.config import FilesystemsConfig
from muster.agent.monitor import Look, NodeFacts
from muster.clock import Clock
from muster.errors import UnreachableError
from muster.inventory.machine import Machine

_MAX_BYTES = 4 * 1024 * 1024


def _is_there(machine: Machine, path: str) -> bool:
    """A file system that has given up answers with errors: that is no reason to look away."""
    try:
        return machine.exists(path)
    except OSError:
        return True


class FilesystemMonitor:
    """Read-only, full, or out of inodes."""

    name = filesystems.SOURCE

    def __init__(
        self,
        config: FilesystemsConfig,
        root: Path,
        clock: Clock,
        statvfs: Callable[[Path], os.statvfs_result] = os.statvfs,
    ) -> None:
        self.interval_s, self.deadline_s = config.interval_s, config.deadline_s
        self._config = config
        self._root = root
        self._statvfs = statvfs
        self._blocking = Blocking("the look at the file systems", clock)
        self._memory = filesystems.FilesystemMemory()

    async def look(self, facts: NodeFacts, now: datetime) -> Look:  # noqa: ARG002 - the protocol of monitors
        found, unknown = await self._blocking.run(self._read)
        self._memory, probes = filesystems.judge(self._memory, found, self._config, facts.boot_id)
        return Look(probes=probes, unknown=unknown)

    def _read(self) -> tuple[list[tuple[mounts.Mount, filesystems.Usage | None]], tuple[str, ...]]:
        machine = Machine(self._root)
        paths = [path for path in self._config.paths if _is_there(machine, path)]
        found: list[tuple[mounts.Mount, filesystems.Usage | None]] = []
        unknown: list[str] = []
        for mount in mounts.watched(mounts.parse(self._mountinfo()), paths):
            try:
                told = self._statvfs(self._root / mount.point.lstrip("/"))
            except OSError as error:
                unknown.append(f"use of {mount.point}: {error.strerror or type(error).__name__}")
                found.append((mount, None))
                continue
            used = filesystems.usage(told.f_blocks, told.f_bavail, told.f_bfree, told.f_files, told.f_favail)
            found.append((mount, used))
        if not found:
            raise UnreachableError(f"No local file system of the node can be seen below {self._root}.")
        return found, tuple(unknown)

    def _mountinfo(self) -> str:
        """The mounts of the node, not those of the agent's own container. Raises OSError."""
        with (self._root / "proc/1/mountinfo").open("rb") as file:
            return file.read(_MAX_BYTES).decode("utf-8", errors="replace")

    def keep(self) -> str:
        return msgspec.json.encode(self._memory).decode()

    def restore(self, kept: str) -> None:
        try:
            self._memory = msgspec.json.decode(kept, type=filesystems.FilesystemMemory)
        except (msgspec.MsgspecError, UnicodeEncodeError):
            self._memory = filesystems.FilesystemMemory()

    async def close(self) -> None:
        return None
