"""Hand-made nodes, certifications and repairs, as the controllers write them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from muster.demo.outcome import (
    FleetRow,
    Line,
    Named,
    Outcome,
    Planted,
    named_by_certifications,
    named_by_faults,
)
from muster.operate.explain import explain
from muster.operate.goodput_report import goodput_values
from muster.operate.records import snapshot_records
from muster.resources.base import ObjectMeta
from muster.resources.certification import (
    Certification,
    CertificationSpec,
    CertificationStatus,
    LinkResult,
    NodeResult,
    NodeVerdict,
    Phase,
    Reason,
    RunRecord,
)
from muster.resources.certification import Outcome as RunOutcome
from muster.resources.fault import Entity, EntityKind, Fault, Hint, Scope, Severity
from muster.resources.fingerprint import Reading, ReadingClass, fingerprint
from muster.resources.node_health import (
    Blocker,
    Cause,
    CauseKind,
    Certificate,
    CertifiedTest,
    Episode,
    Lifecycle,
    NodeHealth,
    NodeHealthSpec,
    NodeHealthStatus,
    Observed,
    RungAttempt,
    Standing,
    State,
    Transition,
)
from muster.resources.repair import Repair, RepairPhase, RepairSpec, RepairStatus, Rung

T0 = datetime(2026, 1, 5, 8, 0, tzinfo=UTC)


def at(minutes: float) -> datetime:
    return T0 + timedelta(minutes=minutes)


PRINT = fingerprint([Reading(name="driver.version", value="580.65.06", reading_class=ReadingClass.STACK)])
FAULT = Fault(
    source="kernel-log",
    check="xid",
    code="119",
    entity=Entity(kind=EntityKind.GPU, uuid="GPU-3", pci="0000:3b:00.0", index=3),
    severity=Severity.FATAL,
    scope=Scope.GPU,
    hint=Hint.RESET_GPU,
    message="NVRM: Xid (PCI:0000:3b:00): 119, Timeout after 6s of waiting for RPC response\x1b[31m",
    count=3,
    first_seen=at(100),
    last_seen=at(102),
    boot_id="boot-1",
)


def certificate(standing: Standing = Standing.VALID, because: str = "") -> Certificate:
    return Certificate(
        node_uid="uid-1",
        fingerprint=PRINT,
        profile="bringup",
        tests=(CertifiedTest(name="gpu-burn", digest="sha256:1", metrics={"tflops": 600.0}),),
        certification="bringup-1",
        issued_at=at(30),
        standing=standing,
        voided_at=at(100) if because else None,
        voided_because=because,
    )


def health(
    name: str, lifecycle: Lifecycle | None, faults: tuple[Fault, ...] = (), spec: NodeHealthSpec | None = None
) -> NodeHealth:
    observed = Observed(observed_at=at(99), node_uid="uid-1", boot_id="boot-1", fingerprint=PRINT, faults=faults)
    return NodeHealth(
        metadata=ObjectMeta(name=name, creation_timestamp=T0),
        spec=spec or NodeHealthSpec(),
        status=NodeHealthStatus(observed=observed, lifecycle=lifecycle),
    )


def transitions(*steps: tuple[float, State, CauseKind, str, str]) -> tuple[Transition, ...]:
    return tuple(
        Transition(
            state=state,
            at=at(minutes),
            episode=episode,
            cause=Cause(kind=kind, name=FAULT.key() if kind is CauseKind.FAULT else "", message=message),
        )
        for minutes, state, kind, episode, message in steps
    )


BROUGHT_UP = (
    (0.0, State.UNCERTIFIED, CauseKind.NEW_NODE, "e0", "node-01 joined the cluster"),
    (10.0, State.CERTIFYING, CauseKind.CERTIFICATION, "e0", "bringup-1 started"),
    (30.0, State.IN_SERVICE, CauseKind.CERTIFICATION, "e0", "bringup-1 passed"),
)


def in_service(name: str = "node-01") -> NodeHealth:
    return health(
        name,
        Lifecycle(
            state=State.IN_SERVICE,
            since=at(30),
            certificate=certificate(),
            next="Nothing: it works until something changes.",
            history=transitions(*BROUGHT_UP),
        ),
    )


def repairing(name: str = "node-02") -> NodeHealth:
    cause = Cause(kind=CauseKind.FAULT, name=FAULT.key(), message="XID 119 on GPU 3: the GSP does not answer")
    return health(
        name,
        Lifecycle(
            state=State.REPAIRING,
            since=at(105),
            held=True,
            hold_reason="fault",
            episode=Episode(
                id="e1",
                cause=cause,
                opened_at=at(100),
                attempts=(
                    RungAttempt(
                        rung="reset-gpu", attempt=1, repair="r-1", outcome="recertification-failed", at=at(101)
                    ),
                    RungAttempt(rung="reboot", attempt=1, repair="r-2", at=at(105)),
                ),
            ),
            certificate=certificate(Standing.VOID, "a disqualifying fault opened"),
            certification="repair-1",
            blockers=(Blocker(kind="repair", message="the reboot to show a new boot ID", since=at(105)),),
            next="When the boot ID changed and the fault is gone, it is certified again.",
            history=transitions(
                *BROUGHT_UP,
                (100.0, State.QUARANTINED, CauseKind.FAULT, "e1", cause.message),
                (105.0, State.REPAIRING, CauseKind.REPAIR, "e1", "reboot was ordered"),
            ),
        ),
        (FAULT,),
    )


def out_of_service(name: str = "node-03") -> NodeHealth:
    cause = Cause(kind=CauseKind.CERTIFICATION, name="stack-1", message="stack-1 failed it: GPU 5 does not start")
    return health(
        name,
        Lifecycle(
            state=State.OUT_OF_SERVICE,
            since=at(200),
            held=True,
            hold_reason="certification",
            episode=Episode(id="e2", cause=cause, opened_at=at(150), ticket="INC-00042"),
            next="A person decides: the ladder is spent.",
            history=transitions(
                *BROUGHT_UP,
                (150.0, State.QUARANTINED, CauseKind.CERTIFICATION, "e2", cause.message),
                (200.0, State.OUT_OF_SERVICE, CauseKind.CERTIFICATION, "e2", "the ladder is spent"),
            ),
        ),
    )


def failed_certification() -> Certification:
    runs = (
        RunRecord(
            id="r1-3",
            round=1,
            test="gpu-burn",
            nodes=("node-02",),
            outcome=RunOutcome.FAIL,
            reason=Reason.COMPUTE,
            value=412.5,
            unit="TFLOP/s",
            floor=500.0,
        ),
        RunRecord(id="r2-1", round=2, test="pair", nodes=("node-02", "node-01"), outcome=RunOutcome.FAIL),
    )
    return Certification(
        metadata=ObjectMeta(name="repair-1"),
        spec=CertificationSpec(nodes=("node-02",), profile="repair"),
        status=CertificationStatus(
            phase=Phase.FAILED,
            started_at=at(103),
            finished_at=at(104),
            runs=runs,
            nodes=(
                NodeResult(
                    name="node-02",
                    verdict=NodeVerdict.FAILED,
                    reason=Reason.COMPUTE,
                    message="GPU 3 computes too slowly",
                    evidence_against=("r1-3", "r2-1"),
                    error_bound=0.0004,
                ),
            ),
            links=(
                LinkResult(a="node-02", b="node-09", verdict=NodeVerdict.FAILED, message="slow", evidence=("r2-1",)),
            ),
        ),
    )


def reboot_repair() -> Repair:
    return Repair(
        metadata=ObjectMeta(name="r-2", creation_timestamp=at(105)),
        spec=RepairSpec(
            node_name="node-02", node_uid="uid-1", episode="e1", rung=Rung.REBOOT, provider="simulated-cloud"
        ),
        status=RepairStatus(phase=RepairPhase.RUNNING, external_id="op-7"),
    )


def outcome(planted_link: bool = True) -> Outcome:
    """A small finished story: node-02 was named and repaired, a link was named, node-03 ended with a ticket."""
    healths = [in_service(), repairing(), out_of_service()]
    records = snapshot_records(healths, [], [reboot_repair()], {}, at(240))
    planted = [Planted(("node-02",), "GPU 3 of node-02 raises XID 119"), Planted(("node-03",), "GPU 5 is dead")]
    if planted_link:
        planted.append(Planted(("node-02", "node-09"), "the path is slow"))
    return Outcome(
        seed=7,
        start=T0,
        end=at(240),
        fleet=(
            FleetRow("node-01", "domain-0", "InService", "", 0, trouble=False),
            FleetRow("node-02", "domain-0", "Repairing", "", 1, trouble=True),
            FleetRow("node-03", "domain-1", "OutOfService", "INC-00042", 1, trouble=True),
        ),
        planted=tuple(planted),
        named=(*named_by_certifications([failed_certification()]), *named_by_faults(healths), NODE_03),
        goodput=goodput_values(records, T0, at(240)),
        records=records,
        explanations=tuple(explain(h, [failed_certification()], [reboot_repair()], now=at(240)) for h in healths),
        lines=(Line(at(100), "3 a fault", "node-02", "-> Quarantined: XID 119 <script>alert(1)</script>"),),
    )


NODE_03 = Named(("node-03",), "stack-1", "hardware", "GPU 5 does not start", ("run r9: FAIL",), 0.0001)
