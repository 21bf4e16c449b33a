"""File systems that became read-only or full: from what was read and what is remembered to probes. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from muster.agent.host.config import FilesystemsConfig
from muster.agent.host.mounts import Mount, Writability, writability
from muster.agent.sources import Probe
from muster.plain_text import plain
from muster.resources.base import Model
from muster.resources.fault import Entity, EntityKind, Hint, Scope, Severity

SOURCE = "host-filesystems"
CHECK = "filesystem"
READ_ONLY, FULL, NO_INODES = "mount-readonly", "filesystem-full", "inodes-exhausted"
MAX_REMEMBERED = 128


@dataclass(frozen=True)
class Usage:
    """How full a file system is, in percent; None: it does not tell (BTRFS counts no inodes)."""

    blocks_percent: float | None
    inodes_percent: float | None


def usage(blocks: int, available: int, free: int, inodes: int, inodes_available: int) -> Usage:
    """Percentages as `df` gives them: what is reserved for root counts as neither used nor available."""
    used = blocks - free
    usable = used + available
    return Usage(
        100 * used / usable if blocks > 0 and usable > 0 else None,
        100 * (inodes - inodes_available) / inodes if inodes > 0 else None,
    )


class FilesystemMemory(Model, frozen=True, kw_only=True):
    boot_id: str = ""
    writable: tuple[str, ...] = ()
    """Mount points that this boot saw writable."""
    writable_before: tuple[str, ...] = ()
    """Those that an earlier boot did: a file system that comes up read-only after errors is not well either."""
    full: tuple[str, ...] = ()
    """`<code> <mount point>` of what was full at the last look."""


def judge(
    before: FilesystemMemory,
    mounts: Sequence[tuple[Mount, Usage | None]],
    config: FilesystemsConfig,
    boot_id: str,
) -> tuple[FilesystemMemory, tuple[Probe, ...]]:
    """The memory after this look, and the probes. Usage None: not known this time, so nothing is said of it."""
    known = before if before.boot_id == boot_id else _in_boot(before, boot_id)
    writable, full = list(known.writable), list(known.full)
    probes: list[Probe] = []
    for mount, used in mounts:
        state = writability(mount)
        broken = state is Writability.BROKEN
        lost = state is Writability.READ_ONLY and mount.point in writable
        lost_before = state is Writability.READ_ONLY and mount.point in known.writable_before
        if state is Writability.WRITABLE and mount.point not in writable:
            writable.append(mount.point)
        when = "in this boot" if lost else "before the node booted"
        how = "refuses writes after errors" if broken else f"was writable {when} and is read-only"
        severity = Severity.FATAL if broken or lost else Severity.WARNING
        healthy = not (broken or lost or lost_before)
        probes.append(_probe(mount, READ_ONLY, healthy, severity, f"{_name(mount)} {how}"))
        if used is None or state is not Writability.WRITABLE:
            continue
        for code, percent, what in (
            (FULL, used.blocks_percent, "space"),
            (NO_INODES, used.inodes_percent, "inodes"),
        ):
            if percent is None:
                continue
            key = f"{code} {mount.point}"
            on = percent >= (config.free_percent if key in full else config.full_percent)
            full = [other for other in full if other != key] + ([key] if on else [])
            words = f"{_name(mount)} has {percent:.1f} % of its {what} in use"
            probes.append(_probe(mount, code, not on, Severity.WARNING, words))
    memory = msgspec.structs.replace(
        known, writable=tuple(sorted(writable)[:MAX_REMEMBERED]), full=tuple(sorted(full)[:MAX_REMEMBERED])
    )
    return memory, tuple(probes)


def _in_boot(before: FilesystemMemory, boot_id: str) -> FilesystemMemory:
    earlier = sorted({*before.writable, *before.writable_before})[:MAX_REMEMBERED]
    return FilesystemMemory(boot_id=boot_id, writable_before=tuple(earlier))


def _name(mount: Mount) -> str:
    return plain(f"{mount.point} ({mount.type} on {mount.source})", 200)


def _probe(mount: Mount, code: str, healthy: bool, severity: Severity, message: str) -> Probe:
    return Probe(
        source=SOURCE,
        check=CHECK,
        code=code,
        entity=Entity(kind=EntityKind.FILESYSTEM, name=plain(mount.point, 200)),
        healthy=healthy,
        severity=severity,
        scope=Scope.NODE,
        hint=Hint.INSPECT,
        message="" if healthy else message,
    )
