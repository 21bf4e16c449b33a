"""Names and UIDs of the node's pods, from the folders that the kubelet keeps for them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class PodNames:
    """`names`: UID -> `namespace/name`; `uids`: the other way, all that have had the name."""

    names: Mapping[str, str]
    uids: Mapping[str, tuple[str, ...]]


def from_log_folders(folders: Iterable[str]) -> PodNames:
    """From names of folders in `/var/log/pods`: `<namespace>_<name>_<uid>`."""
    names: dict[str, str] = {}
    uids: dict[str, list[str]] = {}
    for folder in sorted(folders):
        parts = folder.split("_")
        if len(parts) != 3 or not all(parts):
            continue
        name = f"{parts[0]}/{parts[1]}"
        names[parts[2]] = name
        uids.setdefault(name, []).append(parts[2])
    return PodNames(names, {name: tuple(found) for name, found in uids.items()})


def uid_of(name: str, pods: PodNames, present: frozenset[str] | None) -> str | None:
    """The UID of the pod that has the name now; None when it is not known or not certain.

    `present`: UIDs of the pods that the kubelet keeps now, where that can be read. It is only asked, never listed.
    """
    found = pods.uids.get(name, ())
    if present is not None:
        found = tuple(uid for uid in found if uid in present)
    return found[0] if len(found) == 1 else None
