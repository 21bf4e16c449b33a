"""Sightings of one kind become one fault with its count and evidence, in bounded memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from muster.read.moment import Moment
from muster.read.report import Evidence, ReadFault
from muster.read.source import printable
from muster.resources.fault import Hint, Scope, Severity

MAX_FAULTS = 1000
MAX_NUMBERS = 20
MAX_TEXTS = 4
MAX_LISTED = 256
TEXT_LIMIT = 400


@dataclass(frozen=True, slots=True)
class Kind:
    """What a code means, wherever it is seen."""

    code: str
    name: str
    severity: Severity
    scope: Scope | None
    hint: Hint
    next: str
    confidence: str | None = None


@dataclass
class Sighted:
    """One fault while it is collected. `entity` holds plain values; `order` is the place of its first sighting."""

    kind: Kind
    entity: dict[str, Any]
    order: int
    details: dict[str, Any]
    count: int = 0
    first: Moment | None = None
    last: Moment | None = None
    pids: set[tuple[str | None, int]] = field(default_factory=set)
    listed: dict[str, list[Any]] = field(default_factory=dict)
    cleared: bool = False
    evidence: dict[str, tuple[list[int], list[str], list[int]]] = field(default_factory=dict)

    def add(self, file: str, number: int, text: str, moment: Moment | None) -> None:
        self.count += 1
        if moment is not None:
            self.first = self.first or moment
            self.last = moment
        numbers, texts, total = self.evidence.setdefault(file, ([], [], [0]))
        total[0] += 1
        if len(numbers) < MAX_NUMBERS:
            numbers.append(number)
        if len(texts) < MAX_TEXTS:
            texts.append(printable(text.strip(), TEXT_LIMIT))

    def merge(self, other: Sighted) -> None:
        """Take in another fault that turned out to be the same one."""
        self.count += other.count
        self.order = min(self.order, other.order)
        self.first, self.last = self.first or other.first, other.last or self.last
        self.pids |= other.pids
        self.cleared &= other.cleared
        for name, values in other.listed.items():
            for value in values:
                self.listing(name, value)
        for file, (numbers, texts, total) in other.evidence.items():
            own = self.evidence.setdefault(file, ([], [], [0]))
            own[0][:] = sorted([*own[0], *numbers])[:MAX_NUMBERS]
            own[1][:] = [*own[1], *texts][:MAX_TEXTS]
            own[2][0] += total[0]

    def listing(self, name: str, value: Any) -> None:
        values = self.listed.setdefault(name, [])
        if value not in values and len(values) < MAX_LISTED:
            values.append(value)

    def fault(self) -> ReadFault:
        details = {**self.details, **self.listed}
        if len(self.pids) > 0:
            details["processes"] = len(self.pids)
        return ReadFault(
            code=self.kind.code,
            kind=self.kind.code,
            entity=self.entity,
            severity=self.kind.severity,
            scope=self.kind.scope,
            hint=self.kind.hint,
            name=self.kind.name,
            count=self.count,
            count_is="exact",
            first=self.first,
            last=self.last,
            details=details,
            evidence=tuple(
                Evidence(file, tuple(numbers), tuple(texts), total[0])
                for file, (numbers, texts, total) in self.evidence.items()
            ),
            next=self.kind.next,
            confidence=self.kind.confidence,
            cleared=self.cleared,
        )


class Sightings:
    """All faults of a reading, in the order in which they were first seen.

    A key begins with the tuple of the nodes that the fault speaks of, where it speaks of any.
    """

    def __init__(self) -> None:
        self.by_key: dict[tuple[Any, ...], Sighted] = {}
        self.not_listed = 0

    def see(
        self,
        key: tuple[Any, ...],
        kind: Kind,
        make: Callable[[], tuple[dict[str, Any], dict[str, Any]]],
        order: int,
    ) -> Sighted | None:
        """The fault of this key. `make` gives entity and details when it is new. None when there are too many."""
        full = (kind.code, *key)
        sighted = self.by_key.get(full)
        if sighted is None:
            if len(self.by_key) >= MAX_FAULTS:
                self.not_listed += 1
                return None
            entity, details = make()
            sighted = self.by_key[full] = Sighted(kind, entity, order, details)
        return sighted

    def rename(self, name_of: Callable[[str | None], str | None]) -> None:
        """Give every node its one name, once all lines are read, and merge what then is the same fault."""
        renamed: dict[tuple[Any, ...], Sighted] = {}
        for key, sighted in self.by_key.items():
            code, names, *rest = key
            if not isinstance(names, tuple):
                renamed[key] = sighted
                continue
            own = tuple(name_of(name) for name in names)
            sighted.entity = _renamed(sighted.entity, name_of)
            reported = sighted.details.get("reported_by")
            if isinstance(reported, dict) and "node" in reported:
                reported["node"] = name_of(reported["node"])
            before = renamed.setdefault((code, own, *rest), sighted)
            if before is not sighted:
                before.merge(sighted)
        self.by_key = renamed

    def all(self) -> list[Sighted]:
        return list(self.by_key.values())

    def of(self, *codes: str) -> list[Sighted]:
        return [s for s in self.by_key.values() if s.kind.code in codes]


def _renamed(entity: Mapping[str, Any], name_of: Callable[[str | None], str | None]) -> dict[str, Any]:
    renamed = dict(entity)
    if entity["kind"] == "link":
        renamed["between"] = [name_of(name) for name in entity["between"]]
    elif entity["kind"] == "node":
        renamed["name"] = name_of(entity.get("name"))
    elif "node" in entity:
        renamed["node"] = name_of(entity["node"])
    return renamed


def node(name: str | None, **more: Any) -> dict[str, Any]:
    """The entity of a node; what is not told stays out, except the name."""
    return {"kind": "node", "name": name, **_known(more)}


def link(a: str | None, b: str | None, **more: Any) -> dict[str, Any]:
    """The entity of the path between two ends, reporter first."""
    return {"kind": "link", "between": [a, b], **_known(more)}


def process(node_name: str | None, pid: int | None, **more: Any) -> dict[str, Any]:
    return {"kind": "process", "node": node_name, "pid": pid, **_known(more)}


def _known(more: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in more.items() if value is not None}
