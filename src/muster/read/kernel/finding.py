"""What one record of a kernel or service log says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from muster.faults import catalogue
from muster.read.moment import Moment
from muster.resources.fault import Entity, EntityKind, Hint, Scope, Severity

Code = int | str | None
Confidence = str | None
"""`low` where an inference supports the reading, None where the text says it."""


@dataclass(frozen=True, slots=True)
class Detection:
    """The meaning of a message, whenever and wherever it was written."""

    check: str
    code: Code
    entity: Entity
    severity: Severity | None
    """None: no fault (an identity, a version)."""
    scope: Scope | None
    hint: Hint
    name: str
    """What happened, in a few words."""
    details: Mapping[str, Any] = field(default_factory=dict)
    """What else the text says, by name; a detail that it does not say is absent or None."""
    about: Mapping[str, Any] = field(default_factory=dict)
    """Attributes of the entity that `Entity` has no field for."""
    companion: bool = False
    """Belongs to a fault told by another record: joins it without counting, opens it only if there is none."""
    clears: tuple[tuple[str, str], ...] = ()
    """(check, code) of faults on the same device that this takes back."""
    group: str = ""
    """Separates faults that share check, code and entity."""
    confidence: Confidence = None
    count: int = 1

    def changed(self, **changes: Any) -> Detection:
        return replace(self, **changes)


@dataclass(frozen=True, slots=True)
class Finding:
    """A detection, where and when."""

    detection: Detection
    first: Moment | None
    last: Moment | None
    lines: tuple[tuple[int, str], ...]
    """(line number from 1, text) of the record."""
    host: str | None = None
    boot_id: str | None = None
    cut: bool = False
    """The record is the last line of its file and may be incomplete."""


def condition(
    code: str,
    entity: Entity,
    details: Mapping[str, Any] | None = None,
    about: Mapping[str, Any] | None = None,
    **changes: Any,
) -> Detection:
    """A detection of one of the catalogue's own pattern codes."""
    known = catalogue.condition(code)
    detection = Detection(
        check=known.check,
        code=code,
        entity=entity,
        severity=known.severity,
        scope=known.scope,
        hint=known.hint,
        name=known.name,
        details=details or {},
        about=about or {},
    )
    return detection.changed(**changes) if changes else detection


def note(
    check: str, entity: Entity, name: str, details: Mapping[str, Any] | None = None, **changes: Any
) -> Detection:
    """Something worth knowing that is no fault."""
    detection = Detection(
        check=check,
        code=None,
        entity=entity,
        severity=None,
        scope=None,
        hint=Hint.NONE,
        name=name,
        details=details or {},
    )
    return detection.changed(**changes) if changes else detection


NODE = Entity(kind=EntityKind.NODE)
