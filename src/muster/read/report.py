"""The answer of `muster read`: faults, incidents, verdicts and values with their evidence, as plain JSON values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from muster.read.moment import Basis, Moment
from muster.resources.fault import Entity, Hint, Scope, Severity


class Result(StrEnum):
    """INVALID: the measurement cannot be used. UNKNOWN: the input does not decide."""

    PASS = "PASS"  # noqa: S105 - a verdict word
    WARN = "WARN"
    FAIL = "FAIL"
    INVALID = "INVALID"
    UNKNOWN = "UNKNOWN"


@dataclass(frozen=True, slots=True)
class Evidence:
    """Where in one file a fault is told. `lines` holds the first line numbers, `total` how many there are."""

    file: str
    lines: tuple[int, ...]
    text: tuple[str, ...]
    total: int

    def plain(self) -> dict[str, Any]:
        plain: dict[str, Any] = {"file": self.file, "lines": list(self.lines), "text": list(self.text)}
        if self.total > len(self.lines):
            plain["lines_total"] = self.total
        return plain


@dataclass(frozen=True, slots=True)
class ReadFault:
    """One fault of the report."""

    code: int | str | None
    kind: str
    entity: Mapping[str, Any]
    """`kind` and what the text says about the entity; `pci` is always there, None when not told."""
    severity: Severity
    scope: Scope | None
    hint: Hint
    name: str
    count: int
    count_is: str
    """`exact`, or `lower-bound` where the writer of the log left some out."""
    first: Moment | None
    last: Moment | None
    details: Mapping[str, Any]
    evidence: tuple[Evidence, ...]
    next: str
    confidence: str | None = None
    cleared: bool = False
    """A later line of the same input takes it back."""

    def plain(self) -> dict[str, Any]:
        plain: dict[str, Any] = {
            "code": self.code,
            "kind": self.kind,
            "entity": dict(self.entity),
            "severity": self.severity.value,
            "scope": self.scope.value if self.scope else None,
            "hint": self.hint.value,
            "name": self.name,
            "count": self.count,
            "count_is": self.count_is,
            **span(self.first, self.last),
        }
        if self.confidence:
            plain["confidence"] = self.confidence
        if self.cleared:
            plain["cleared"] = True
        plain |= {name: value for name, value in self.details.items() if name not in plain}
        if self.evidence:
            plain["line"] = self.evidence[0].lines[0]
        plain["evidence"] = [item.plain() for item in self.evidence]
        plain["next"] = self.next
        return plain


@dataclass(frozen=True, slots=True)
class Incident:
    """Several faults or events with one root. `fields` are the names of the vocabulary."""

    root: int | str
    members: tuple[int | str, ...]
    severity: Severity
    scope: Scope | None
    hint: Hint
    fields: Mapping[str, Any] = field(default_factory=dict)

    def plain(self) -> dict[str, Any]:
        return {
            "root": self.root,
            "members": list(self.members),
            "severity": self.severity.value,
            "scope": self.scope.value if self.scope else None,
            "hint": self.hint.value,
            **self.fields,
        }


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict on `of`: `node`, `gpu <address>`, a node's name, `driver <version>`, ..."""

    of: str
    result: Result
    reason: str
    message: str = ""
    more: Mapping[str, Any] = field(default_factory=dict)
    """What the verdict rests on or lacks (`min_peers`, `confidence`, `comparable_to`)."""

    def plain(self) -> dict[str, Any]:
        plain = {"of": self.of, "result": self.result.value, "reason": self.reason, **self.more}
        return plain | ({"message": self.message} if self.message else {})


@dataclass(frozen=True, slots=True)
class Value:
    """A reading or a derived number. `more` holds what it relates to (`of`, `of_expected`)."""

    value: Any
    unit: str | None = None
    more: Mapping[str, Any] = field(default_factory=dict)

    def plain(self) -> dict[str, Any]:
        plain = {"value": self.value, **self.more}
        return plain | ({"unit": self.unit} if self.unit else {})


@dataclass(frozen=True, slots=True)
class Report:
    """What the inputs say, taken together."""

    kind: str
    files: tuple[str, ...]
    truncated: bool
    faults: tuple[ReadFault, ...] = ()
    incidents: tuple[Incident, ...] = ()
    verdicts: tuple[Verdict, ...] = ()
    values: Mapping[str, Value] = field(default_factory=dict)
    next: str = "Nothing has to be done."

    def plain(self) -> dict[str, Any]:
        """Plain JSON values, the same for the same input every time."""
        return {
            "kind": self.kind,
            "files": list(self.files),
            "truncated": self.truncated,
            "faults": [fault.plain() for fault in self.faults],
            "incidents": [incident.plain() for incident in self.incidents],
            "verdicts": [verdict.plain() for verdict in self.verdicts],
            "values": {name: value.plain() for name, value in self.values.items()},
            "next": self.next,
        }


def span(first: Moment | None, last: Moment | None) -> dict[str, Any]:
    """`first_seen`/`last_seen` (ISO text) or `first_seen_s`/`last_seen_s` (seconds since boot); None: not told."""
    fields: dict[str, Any] = {}
    for name, moment in (("first_seen", first), ("last_seen", last)):
        if moment is not None and moment.basis is Basis.BOOT:
            fields[f"{name}_s"] = moment.seconds
        else:
            fields[name] = moment.text if moment is not None else None
    return fields


def entity_plain(entity: Entity, about: Mapping[str, Any], host: str | None) -> dict[str, Any]:
    """An entity as plain values: what is known, and `pci` always."""
    plain: dict[str, Any] = {"kind": entity.kind.value, "pci": entity.pci}
    for name in ("name", "uuid", "index", "link", "port", "device"):
        value = getattr(entity, name)
        if value is not None:
            plain[name] = value
    plain |= about
    if host:
        plain["node"] = host
    return plain


SEVERITY_RANK = {Severity.INFO: 0, Severity.UNKNOWN: 1, Severity.WARNING: 2, Severity.FATAL: 3}
HINT_RANK = {
    Hint.NONE: 0,
    Hint.RESTART_APP: 1,
    Hint.INSPECT: 2,
    Hint.RESET_GPU: 3,
    Hint.REBOOT: 4,
    Hint.REPLACE: 5,
}


def worst(hints: Sequence[Hint]) -> Hint:
    """The hint that asks for most."""
    return max(hints, key=HINT_RANK.__getitem__, default=Hint.NONE)
