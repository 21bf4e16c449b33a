"""The mounts of a node, from the text of `mountinfo`; and what is wrong with them. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

LOCAL_TYPES = frozenset({"bcachefs", "btrfs", "ext2", "ext3", "ext4", "f2fs", "xfs", "zfs"})
"""File systems on the node's own disks. Those of a network can hang, the kernel's own have no space to speak of."""
_ESCAPE = re.compile(r"\\([0-7]{3})")
_EMERGENCY = ("emergency_ro", "shutdown")
"""What EXT4 and XFS show among the options of a file system that gave up writing."""
MAX_MOUNTS = 20_000


@dataclass(frozen=True)
class Mount:
    """One line of mountinfo."""

    device: str
    """`major:minor`: mounts of one file system share it."""
    point: str
    type: str
    source: str
    options: tuple[str, ...]
    """Of this mount."""
    super_options: tuple[str, ...]
    """Of the file system behind it."""


class Writability(StrEnum):
    WRITABLE = "writable"
    READ_ONLY = "read-only"
    """It is mounted like that; many systems mount parts of theirs so on purpose."""
    BROKEN = "broken"
    """Mounted for writing, but the file system refuses: that is how it reacts to errors."""


def parse(text: str) -> tuple[Mount, ...]:
    """The mounts in the order of the file; lines that are none are left out."""
    found: list[Mount] = []
    for line in text.splitlines()[:MAX_MOUNTS]:
        fields = line.split(" ")
        if len(fields) < 10 or "-" not in fields[6:]:
            continue
        at = fields.index("-", 6)
        if len(fields) < at + 4:
            continue
        found.append(
            Mount(
                device=fields[2],
                point=_plain(fields[4]),
                type=fields[at + 1],
                source=_plain(fields[at + 2]),
                options=tuple(fields[5].split(",")),
                super_options=tuple(fields[at + 3].split(",")),
            )
        )
    return tuple(found)


def _plain(text: str) -> str:
    return _ESCAPE.sub(lambda match: chr(int(match[1], 8)), text)


def writability(mount: Mount) -> Writability:
    """Whether the file system takes writes here. `remount,ro` by a person makes mount and file system read-only."""
    if any(word in mount.super_options for word in _EMERGENCY):
        return Writability.BROKEN
    if "ro" in mount.options:
        return Writability.READ_ONLY
    return Writability.BROKEN if "ro" in mount.super_options else Writability.WRITABLE


def watched(mounts: Iterable[Mount], paths: Iterable[str]) -> tuple[Mount, ...]:
    """The mounts that hold `paths`, each local file system once, sorted by mount point."""
    by_point: dict[str, Mount] = {}
    for mount in mounts:
        # A later mount on the same point covers the earlier one.
        by_point[mount.point] = mount
    by_device: dict[str, Mount] = {}
    for path in sorted(paths):
        holding = _holding(by_point, path)
        if holding is not None and holding.type in LOCAL_TYPES:
            by_device.setdefault(holding.device, holding)
    return tuple(sorted(by_device.values(), key=lambda mount: mount.point))


def _holding(by_point: dict[str, Mount], path: str) -> Mount | None:
    while path not in by_point:
        if path in ("", "/"):
            return None
        path = path.rpartition("/")[0] or "/"
    return by_point[path]
