"""What all cases of the matrix have in common: times, the policy, nodes that serve at first."""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import lru_cache

from msgspec.structs import replace as with_fields

from muster.resources.base import ObjectMeta
from muster.resources.fault import Entity, EntityKind, Fault, Hint, Scope, Severity
from muster.resources.fault_policy import (
    Blackout,
    Budget,
    CertificationPolicy,
    Disposition,
    Drain,
    FaultPolicy,
    FaultPolicySpec,
    LadderStep,
    Rule,
)
from muster.resources.node_health import Lifecycle, State
from muster.resources.repair import Rung
from muster.sim.virtual import DEFAULT_START
from tests.matrix.machine import Hardware
from tests.matrix.outlet import Outlet
from tests.matrix.watch import merged
from tests.operate.worlds import World

TARGET, OTHER = "n01", "n02"
START = DEFAULT_START + timedelta(hours=2)
LOOK_S = 30.0
BEAT_S = 120.0
STRIKE_S = 120.0
DELAY_S = 90.0
ROOM_AGAIN_S = 1500.0
"""When the budget has room again, counted from the strike."""
APPROVED_S = 300.0
HOLD_ENDS_S = 900.0
REST_S = 1000.0
"""So long nothing may change before the case counts as ended: longer than any time limit that still runs."""
LIMIT_S = 6 * 3600.0
LOST_EVERY = 4
OPERATOR = "ada"


def policy_of(budget: str) -> FaultPolicy:
    """Two rungs with short time limits, then a ticket. One node may be out."""
    ladder = (
        LadderStep(rung=Rung.REBOOT, timeout_s=300),
        LadderStep(rung=Rung.POWER_CYCLE, timeout_s=300),
        LadderStep(rung=Rung.TICKET),
    )
    reopens = START + timedelta(seconds=STRIKE_S + ROOM_AGAIN_S)
    midnight = reopens.replace(hour=0, minute=0, second=0)
    shut = Blackout(name="shift", start="00:00", duration_s=int((reopens - midnight).total_seconds()))
    return FaultPolicy(
        metadata=ObjectMeta(name="matrix"),
        spec=FaultPolicySpec(
            rules=(
                Rule(name="only-hold", when="fault.code == '48'", disposition=Disposition.HOLD),
                Rule(
                    name="repair",
                    when="fault.severity in ['fatal', 'unknown']",
                    disposition=Disposition.REPAIR,
                    ladder=ladder,
                ),
            ),
            repair_provider=Outlet.name,
            budget=Budget(
                max_disrupted="1",
                max_disrupted_per_domain="100%",
                require_approval=budget == "approval",
                blackouts=(shut,) if budget == "closed" else (),
            ),
            drain=Drain(deadline_s=300),
            certification=CertificationPolicy(batch_wait_s=10),
        ),
    )


@lru_cache
def serving_life(uid: str) -> Lifecycle:
    """A lifecycle of a node that was certified as the hardware is at first."""
    world = World(policy=merged(policy_of("open")))
    world.observe(fp=Hardware().fingerprint())
    world.certify()
    life = world.life
    assert life.state is State.IN_SERVICE
    assert life.certificate is not None
    return with_fields(life, certificate=with_fields(life.certificate, node_uid=uid))


def only_hold(now: datetime) -> Fault:
    return Fault(
        source="kernel-log",
        check="xid",
        code="48",
        entity=Entity(kind=EntityKind.GPU, uuid="GPU-0001"),
        severity=Severity.FATAL,
        scope=Scope.GPU,
        hint=Hint.INSPECT,
        first_seen=now,
        last_seen=now,
        boot_id="boot-1",
    )
