"""What differs between two snapshots, by class. Pure.

Volatile readings never count. A reading that only one side could read is not compared, and that counts: unknown is
never equal. What neither side could read says nothing about a change.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from muster.configure.snapshot.model import ClusterSnapshot, Item, NodeEntry
from muster.configure.snapshot.nodes import label_class, taint_class
from muster.errors import BadInputError
from muster.inventory.record import NodeSnapshot, UnknownReading
from muster.resources.base import Model
from muster.resources.fingerprint import Reading, ReadingClass

PRESENT = "present"
"""Name of the reading that a node, release or image is there at all."""
IDENTITY, STACK, CONFIG, VOLATILE = ReadingClass


class SnapshotChange(Model, frozen=True, kw_only=True):
    """One difference. `subject` is `machine`, `cluster`, or a kind and a name; None is absent.

    `not_compared` is why one side has no value: it could not be read there.
    """

    subject: str
    name: str
    reading_class: ReadingClass
    before: str | None = None
    after: str | None = None
    not_compared: str = ""

    def counts(self) -> bool:
        """Whether it is a difference that matters."""
        return self.reading_class is not VOLATILE


@dataclass
class _Subject:
    values: dict[str, Reading] = field(default_factory=dict)
    unknown: dict[str, str] = field(default_factory=dict)


def changes(
    before: NodeSnapshot | ClusterSnapshot, after: NodeSnapshot | ClusterSnapshot
) -> tuple[SnapshotChange, ...]:
    """Every difference, volatile ones too, by subject and name.

    Raises BadInputError when one is of a machine and the other of a cluster.
    """
    if isinstance(before, NodeSnapshot) != isinstance(after, NodeSnapshot):
        raise BadInputError("One snapshot is of a machine and the other of a cluster; compare two of the same kind.")
    old, new = _subjects(before), _subjects(after)
    gone = _unreadable(before), _unreadable(after)
    return tuple(
        change
        for subject in sorted({*old, *new}, key=lambda key: (_rank(key), key))
        for change in _compare(subject, old.get(subject), new.get(subject), gone)
    )


_KINDS = ("machine", "cluster", "node", "release", "crd", "policy", "storage-class", "image")


def _rank(subject: str) -> int:
    return _KINDS.index(subject.partition(" ")[0])


def _compare(
    subject: str, old: _Subject | None, new: _Subject | None, unreadable: tuple[dict[str, str], dict[str, str]]
) -> Iterator[SnapshotChange]:
    if old is None or new is None:
        side = old or new or _Subject()
        kind = subject.partition(" ")[0]
        reason = unreadable[0 if old is None else 1].get(kind, "")
        yield SnapshotChange(
            subject=subject,
            name=PRESENT,
            reading_class=_class_of(kind, side),
            before=None if old is None else "yes",
            after=None if new is None else "yes",
            not_compared=reason,
        )
        return
    for name in sorted({*old.values, *new.values}):
        a, b = old.values.get(name), new.values.get(name)
        if a is not None and b is not None and a.value == b.value:
            continue
        known = b or a
        assert known is not None  # noqa: S101 - the name came from one of the two
        why = _why_missing(name, old if a is None else new if b is None else None)
        # A reading that is volatile on either side comes and goes by itself.
        volatile = VOLATILE in (r.reading_class for r in (a, b) if r is not None)
        yield SnapshotChange(
            subject=subject,
            name=name,
            reading_class=VOLATILE if volatile else known.reading_class,
            before=a.value if a else None,
            after=b.value if b else None,
            not_compared=why,
        )


def _why_missing(name: str, side: _Subject | None) -> str:
    """Why `side` has no reading `name`: it, or the group that it belongs to, could not be read."""
    if side is None:
        return ""
    parts = name.split(".")
    groups = [".".join(parts[:length]) for length in range(len(parts), 0, -1)]
    found = next((side.unknown[group] for group in groups if group in side.unknown), "")
    if found:
        return found
    return side.unknown.get(_SOURCE_OF.get(parts[0], ""), "")


_SOURCE_OF = {"module": "modules", "unit": "systemd", "system": "firmware", "gpu": "nvml", "cuda": "nvml"}
"""First word of a reading -> the collector under whose name a failure stands."""


def _class_of(kind: str, side: _Subject) -> ReadingClass:
    """What it means that a whole subject is there on one side only."""
    if kind == "node":
        return IDENTITY
    classes = {reading.reading_class for reading in side.values.values()}
    return next((c for c in (STACK, IDENTITY, CONFIG) if c in classes), VOLATILE if classes else STACK)


def _subjects(snapshot: NodeSnapshot | ClusterSnapshot) -> dict[str, _Subject]:
    if isinstance(snapshot, NodeSnapshot):
        return {"machine": _subject(snapshot.readings, snapshot.unknown)}
    found = {"cluster": _subject(snapshot.readings, snapshot.unknown)}
    found |= {f"node {entry.node}": _node(entry) for entry in snapshot.nodes}
    for kind, items in _lists(snapshot).items():
        found |= {f"{kind} {_key(item)}": _subject(item.readings, item.unknown) for item in items}
    return found


def _lists(snapshot: ClusterSnapshot) -> Mapping[str, tuple[Item, ...]]:
    return {
        "release": snapshot.releases,
        "crd": snapshot.crds,
        "policy": snapshot.policies,
        "storage-class": snapshot.storage_classes,
        "image": snapshot.images,
    }


def _unreadable(snapshot: NodeSnapshot | ClusterSnapshot) -> dict[str, str]:
    """Kind of subject -> why subjects of it may be missing."""
    names = {
        "nodes": "node",
        "releases": "release",
        "crds": "crd",
        "storageClasses": "storage-class",
        "images": "image",
    }
    found: dict[str, str] = {}
    for unknown in snapshot.unknown:
        kind = names.get(unknown.name) or ("policy" if unknown.name.startswith("policy.") else "")
        if unknown.name.startswith("release "):
            kind = "release"
        if kind:
            found.setdefault(kind, unknown.reason)
    return found


def _key(item: Item) -> str:
    return f"{item.namespace}/{item.name}" if item.namespace else item.name


def _subject(readings: Iterable[Reading], unknown: Iterable[UnknownReading]) -> _Subject:
    return _Subject({reading.name: reading for reading in readings}, {u.name: u.reason for u in unknown})


def _node(entry: NodeEntry) -> _Subject:
    """One namespace of names for what the Node object and the agent say; labels and taints under their own names."""
    subject = _subject(entry.readings, entry.unknown)
    for reading in entry.reported:
        subject.values[f"node:{reading.name}"] = reading
    for key, value in entry.labels.items():
        subject.values[f"label:{key}"] = Reading(name=key, value=value, reading_class=label_class(key))
    for taint in entry.taints:
        subject.values[f"taint:{taint.key}:{taint.effect}"] = Reading(
            name=taint.key, value=taint.value, reading_class=taint_class(taint.key)
        )
    if "readings" in subject.unknown:
        # The agent is silent: none of its readings can be compared.
        reason = subject.unknown["readings"]
        subject.unknown |= dict.fromkeys(_AGENT_GROUPS, reason)
    return subject


_AGENT_GROUPS = ("os", "kernel", "sysctl", "module", "system", "driver", "gpu", "nvswitch", "rdma")
