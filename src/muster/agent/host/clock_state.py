"""The system clock: synchronised, how far off at most, and whether it was set. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

import msgspec

from muster.agent.host.config import ClockConfig
from muster.agent.sources import Probe
from muster.resources.base import Model
from muster.resources.fault import Entity, EntityKind, Hint, Scope, Severity

SOURCE = "host-clock"
CHECK = "clock"
UNSYNCHRONISED, INACCURATE, JUMPED = "clock-unsynchronised", "clock-inaccurate", "clock-jumped"
JUMP_TOLD_S = 600.0
"""How long a step is told: others must be able to connect it with what their time stamps say."""


@dataclass(frozen=True)
class ClockReading:
    """What the kernel says of its clock (`adjtimex`)."""

    synchronised: bool
    offset_s: float
    max_error_s: float
    ahead_s: float
    """Wall clock minus time since the boot: constant but for corrections."""


class ClockMemory(Model, frozen=True, kw_only=True):
    boot_id: str = ""
    ahead_s: float | None = None
    unsynchronised_since: datetime | None = None
    jumped_at: datetime | None = None
    jump_s: float = 0.0


def judge(
    before: ClockMemory,
    reading: ClockReading,
    config: ClockConfig,
    boot_id: str,
    booted_at: datetime | None,
    now: datetime,
) -> tuple[ClockMemory, tuple[Probe, ...]]:
    """The memory after this look, and the probes. Within the grace a clock that is not synchronised is unknown."""
    known = before if before.boot_id == boot_id else ClockMemory(boot_id=boot_id)
    probes: list[Probe] = []
    grace = timedelta(seconds=config.grace_s)
    if reading.synchronised:
        since = None
        off = max(abs(reading.offset_s), reading.max_error_s)
        probes.append(_probe(UNSYNCHRONISED, True, ""))
        words = f"the clock may be off by {off:.3f} s, more than {config.max_error_s:g} s"
        probes.append(_probe(INACCURATE, off <= config.max_error_s, words))
    else:
        # A clock that was set forward must not make the wait look over.
        since = min(known.unsynchronised_since or now, now)
        young = booted_at is not None and now < booted_at + grace
        minutes = (now - since).total_seconds() / 60
        words = f"no time service has disciplined the clock for {minutes:.0f} minutes"
        confirmed = now >= since + grace and not young
        probes.append(_probe(UNSYNCHRONISED, False if confirmed else None, words))
    step = reading.ahead_s - known.ahead_s if known.ahead_s is not None else 0.0
    jumped_at, jump_s = known.jumped_at, known.jump_s
    if abs(step) >= config.jump_s:
        jumped_at, jump_s = now, step
    told = jumped_at is not None and abs((now - jumped_at).total_seconds()) < JUMP_TOLD_S
    words = f"the clock was set by {jump_s:+.1f} s; time stamps of before and after do not compare"
    probes.append(_probe(JUMPED, not told, words, Severity.INFO))
    memory = msgspec.structs.replace(
        known,
        ahead_s=reading.ahead_s,
        unsynchronised_since=since,
        jumped_at=jumped_at if told else None,
        jump_s=jump_s if told else 0.0,
    )
    return memory, tuple(probes)


def _probe(code: str, healthy: bool | None, message: str, severity: Severity = Severity.WARNING) -> Probe:
    return Probe(
        source=SOURCE,
        check=CHECK,
        code=code,
        entity=Entity(kind=EntityKind.NODE),
        healthy=healthy,
        severity=severity,
        scope=Scope.CONFIG,
        hint=Hint.INSPECT if severity is not Severity.INFO else Hint.NONE,
        message="" if healthy else message,
    )
