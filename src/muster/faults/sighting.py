"""What monitors hand to the assembly of faults, and the patience it has with them."""

from __future__ import annotations

from datetime import datetime

import msgspec

from muster.plain_text import plain
from muster.resources.base import Model
from muster.resources.fault import Entity, Hint, Scope, Severity

MAX_DETAILS = 12
MAX_DETAIL_CHARACTERS = 64
MAX_NAME_CHARACTERS = 253
MAX_MESSAGE_CHARACTERS = 1024


class Sighting(Model, frozen=True, kw_only=True):
    """One monitor saw one fault on one entity, `count` times (0: another record of a sighting already counted)."""

    source: str
    check: str
    code: str
    entity: Entity
    severity: Severity
    scope: Scope
    hint: Hint
    message: str = ""
    at: datetime
    """Aware, UTC."""
    since: datetime | None = None
    """Of several sightings in one, the time of the first; None: `at`."""
    count: int = 1
    boot_id: str = ""
    """Boot during which it was seen; empty: the current one."""
    clears: tuple[str, ...] = ()
    """`<check>/<code>` of faults on the same device that this takes back."""
    details: dict[str, str] = {}
    """What the source tells beside the entity, for patterns: `gpc`, `reg0`, `pid`, ...; kept in the bursts."""
    standing: bool = False
    """A state that goes on, told again at each look: it prolongs the latest burst and counts once."""

    @property
    def began(self) -> datetime:
        return self.since if self.since is not None and self.since <= self.at else self.at


class Debounce(Model, frozen=True, kw_only=True):
    """A fault of `check` (and `code`, if given) opens only after `times` sightings within `window_s` seconds."""

    check: str
    code: str = ""
    times: int = 2
    window_s: float = 60.0


class Grace(Model, frozen=True, kw_only=True):
    """A fault of `check` (and `code`, if given) does not open within `seconds` of a start, boot or driver change."""

    check: str
    code: str = ""
    seconds: float


class Flapping(Model, frozen=True, kw_only=True):
    """A fault that closed `times` times within `window_s` stays open until it was well for `quiet_s` without a break.

    So a state that comes and goes is one long fault. The latch ends at the latest `quiet_s` after the last bad
    sighting, if something still tells that all is well.
    """

    times: int = 3
    window_s: float = 3600.0
    quiet_s: float = 1800.0


class Limits(Model, frozen=True, kw_only=True):
    """Bounds and patience of the assembly. Of several rows that fit, the first counts."""

    max_open: int = 256
    """Open faults beyond this become one explicit overflow fault; the mildest give way first."""
    max_pending: int = 256
    """Debounced sightings that wait for their repetition."""
    max_bursts: int = 1024
    """Bursts of all open faults together, so that the published object stays small."""
    debounce: tuple[Debounce, ...] = ()
    grace: tuple[Grace, ...] = ()
    burst_gap_s: float = 60.0
    """Sightings of one fault that are further apart than this are different bursts."""
    flapping: Flapping = Flapping()

    def patience(self, check: str, code: str) -> Debounce | None:
        """The debounce of this check and code."""
        return next((r for r in self.debounce if r.check == check and r.code in ("", code)), None)

    def grace_s(self, check: str, code: str) -> float:
        """Seconds after a start in which this check and code open nothing."""
        return next((r.seconds for r in self.grace if r.check == check and r.code in ("", code)), 0.0)


def bounded(details: dict[str, str]) -> dict[str, str]:
    """Details come from logs: few and short, sorted by name."""
    return {
        fit(name, MAX_DETAIL_CHARACTERS): fit(str(details[name]), MAX_DETAIL_CHARACTERS)
        for name in sorted(details)[:MAX_DETAILS]
    }


def fit(text: str, at_most: int) -> str:
    """`text` as it is when it can be printed and is short enough, else made so: it is published and kept."""
    return text if len(text) <= at_most and text.isprintable() else plain(text, at_most)


def fit_entity(entity: Entity) -> Entity:
    """The entity with names that can be published."""
    told = {"name": entity.name, "uuid": entity.uuid, "pci": entity.pci, "device": entity.device}
    fitting = {field: fit(text, MAX_NAME_CHARACTERS) for field, text in told.items() if text is not None}
    if all(told[field] == text for field, text in fitting.items()):
        return entity
    return msgspec.structs.replace(entity, **fitting)
