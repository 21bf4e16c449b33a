"""Builders of histories for the tests of patterns: plain values."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from muster.operate.patterns.history import History
from muster.resources.fault import Burst, Entity, EntityKind, Fault, Hint, Scope, Severity
from muster.resources.node_health import Cause, CauseKind, PastFault, State, Transition

NOW = datetime(2026, 1, 8, 12, 0, tzinfo=UTC)
GPU0 = Entity(kind=EntityKind.GPU, uuid="GPU-0", pci="0000:1b:00.0", index=0)
GPU1 = Entity(kind=EntityKind.GPU, uuid="GPU-1", pci="0000:3b:00.0", index=1)
LINK = Entity(kind=EntityKind.NVLINK, uuid="GPU-0", pci="0000:1b:00.0", link=4)
LINK2 = Entity(kind=EntityKind.NVLINK, uuid="GPU-0", pci="0000:1b:00.0", link=9)
PORT = Entity(kind=EntityKind.NIC, device="mlx5_0", port=1)


def ago(hours: float = 0, minutes: float = 0) -> datetime:
    return NOW - timedelta(hours=hours, minutes=minutes)


def burst(at: datetime, *, lasts_s: float = 0, count: int = 1, **details: str) -> Burst:
    return Burst(at=at, until=at + timedelta(seconds=lasts_s), count=count, details=details)


def fault(
    code: str,
    *bursts: Burst,
    check: str = "xid",
    entity: Entity = GPU0,
    severity: Severity = Severity.FATAL,
    hint: Hint = Hint.RESET_GPU,
    source: str = "kernel-log",
    scope: Scope = Scope.GPU,
) -> Fault:
    return Fault(
        source=source,
        check=check,
        code=code,
        entity=entity,
        severity=severity,
        scope=scope,
        hint=hint,
        message="seen",
        count=sum(b.count for b in bursts) or 1,
        first_seen=min((b.at for b in bursts), default=NOW),
        last_seen=max((b.until for b in bursts), default=NOW),
        bursts=bursts,
    )


def closed(one: Fault, at: datetime) -> PastFault:
    return PastFault(fault=one, closed_at=at, closed_by="clean-after-reset")


def repair_began(at: datetime, rung: str = "reboot") -> Transition:
    return Transition(state=State.REPAIRING, at=at, episode="e1", cause=Cause(kind=CauseKind.REPAIR, name=rung))


def repair_proved(at: datetime) -> Transition:
    return Transition(state=State.UNCERTIFIED, at=at, episode="e1", cause=Cause(kind=CauseKind.REPAIR, name="reboot"))


def past(*faults: Fault, **more: object) -> History:
    """A history of open faults."""
    return History(open=faults, **more)  # type: ignore[arg-type]
