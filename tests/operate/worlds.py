"""Builders of nodes and fleets for the tests of the lifecycle: plain values, one clock that tests move by hand."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from msgspec.structs import replace as with_fields

from muster.operate.budget import Member, Usage
from muster.operate.certificates import counted_digest
from muster.operate.correlation.model import NOTHING, Correlations
from muster.operate.coverage import NO_STANDARD, Standard
from muster.operate.decide import decide
from muster.operate.fleet_usage import disruptions_of
from muster.operate.model import (
    CancelRepair,
    CertificationView,
    CreateRepair,
    Decision,
    EvictPod,
    FleetView,
    NodeView,
    PodView,
    TestRequest,
    WavePlan,
)
from muster.operate.policy import FULL_AUTOMATION, EffectivePolicy, effective_policy, with_provider
from muster.resources.certification import NodeVerdict, Phase, Purpose, Reason
from muster.resources.fault import Entity, EntityKind, Fault, Hint, Scope, Severity
from muster.resources.fingerprint import Fingerprint, Reading, ReadingClass, fingerprint
from muster.resources.node_health import Decision as PersonDecision
from muster.resources.node_health import Lifecycle, NodeHealthSpec, Observed, PersonHold, State, Verb
from muster.resources.repair import Repair, RepairPhase, RepairStatus

START = datetime(2026, 1, 5, 8, 0, tzinfo=UTC)
AUTOMATED = effective_policy([with_provider(FULL_AUTOMATION, "test-provider")], {})
SAFE = effective_policy([], {})


def readings(driver: str = "580.65", gpu: str = "GPU-1", sysctl: str = "1") -> Fingerprint:
    return fingerprint(
        [
            Reading(name="driver.version", value=driver, reading_class=ReadingClass.STACK),
            Reading(name="gpu.0.uuid", value=gpu, reading_class=ReadingClass.IDENTITY),
            Reading(name="sysctl.vm.swappiness", value=sysctl, reading_class=ReadingClass.CONFIG),
        ]
    )


def fault(
    code: str = "79",
    *,
    severity: Severity = Severity.FATAL,
    scope: Scope = Scope.GPU,
    hint: Hint = Hint.REBOOT,
    seen: datetime = START,
    boot: str = "boot-1",
) -> Fault:
    return Fault(
        source="kernel-log",
        check="xid",
        code=code,
        entity=Entity(kind=EntityKind.GPU, uuid="GPU-1"),
        severity=severity,
        scope=scope,
        hint=hint,
        message="GPU has fallen off the bus",
        first_seen=seen,
        last_seen=seen,
        boot_id=boot,
    )


def pod(name: str = "train-0", **fields: object) -> PodView:
    base = PodView(name=name, namespace="work", uid=f"uid-{name}", node="n1", gpus=8, owner_kind="Job")
    return replace(base, **fields)  # type: ignore[arg-type]


@dataclass
class World:
    """One node and its clock. `settle` decides until nothing changes, as the controller does."""

    policy: EffectivePolicy = AUTOMATED
    now: datetime = START
    node: NodeView = field(default_factory=lambda: NodeView(name="n1", uid="uid-1", agent_seen=START))
    others: tuple[Member, ...] = tuple(Member(f"x{i}", f"d{i % 4}") for i in range(19))
    others_out: tuple[str, ...] = ()
    wave: WavePlan = field(default_factory=WavePlan)
    correlations: Correlations = NOTHING
    standard: Standard = NO_STANDARD
    demand: bool = False
    decisions: list[Decision] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.observe()

    @property
    def life(self) -> Lifecycle:
        assert self.node.lifecycle is not None
        return self.node.lifecycle

    @property
    def fleet(self) -> FleetView:
        usage = Usage(members=(self.node.member, *self.others))
        for member in self.others:
            if member.name in self.others_out:
                usage = usage.taking(member, START - timedelta(days=1))
        if self.node.lifecycle is not None:
            own = disruptions_of(self.node.member, self.node.lifecycle)
            usage = Usage(usage.members, (*usage.disruptions, *own))
        return FleetView(
            usage=usage,
            wave=self.wave,
            correlations=self.correlations,
            standard=self.standard,
            demand=self.demand,
        )

    def observe(self, *faults: Fault, boot: str = "boot-1", fp: Fingerprint | None = None, **more: object) -> None:
        """The agent publishes what it sees, and its heartbeat is fresh."""
        old = self.node.observed
        fresh = fp or (old.fingerprint if old else readings())
        seen = Observed(
            observed_at=self.now, node_uid=self.node.uid, boot_id=boot, fingerprint=fresh, faults=tuple(faults)
        )
        seen = with_fields(seen, **more)
        self.node = replace(self.node, observed=seen, agent_seen=self.now)

    def pass_time(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)
        self.node = replace(self.node, agent_seen=self.now)

    def decide(self) -> Decision:
        decision = decide(self.node, self.fleet, self.policy, self.now)
        self.node = replace(self.node, lifecycle=decision.lifecycle)
        self.decisions.append(decision)
        for intent in decision.intents:
            if isinstance(intent, CreateRepair):
                self.node = replace(self.node, repairs=(*self.node.repairs, intent.repair))
        return decision

    def settle(self) -> Decision:
        """Decide until the lifecycle stays as it is; returns the first decision."""
        first = self.decide()
        last = first
        for _ in range(8):
            before = self.life
            last = self.decide()
            if self.life == before:
                return first
        raise AssertionError(f"does not settle: {last.lifecycle}")

    def certification(
        self, phase: Phase = Phase.RUNNING, verdict: NodeVerdict = NodeVerdict.PASSED, **more: object
    ) -> None:
        """A certification asked for the node as it is now, or the running one moved to `phase`."""
        name = self.life.certification or f"cert-{len(self.node.certifications)}"
        known = {c.name: c for c in self.node.certifications}
        if name in known:
            view = replace(known[name], phase=phase, verdict=verdict, **more)  # type: ignore[arg-type]
        else:
            assert self.node.observed is not None
            assert self.life.episode is not None
            view = CertificationView(
                name=name,
                profile=self.life.profile,
                purpose=Purpose.BRINGUP,
                phase=phase,
                request=TestRequest(
                    self.life.episode.id,
                    self.life.since,
                    counted_digest(self.node.observed.fingerprint),
                    self.node.observed.boot_id,
                ),
                verdict=verdict,
                reason=Reason.BANDWIDTH,
            )
        self.node = replace(self.node, certifications=tuple((known | {name: view}).values()))

    def certify(self, verdict: NodeVerdict = NodeVerdict.PASSED, **more: object) -> None:
        """Through a whole certification with the given end; `more` are fields of what it then tells."""
        self.settle()
        self.pass_time(60)
        self.certification()
        self.settle()
        assert self.life.state is State.CERTIFYING, self.life.next
        self.pass_time(1200)
        self.certification(Phase.SUCCEEDED if verdict is NodeVerdict.PASSED else Phase.FAILED, verdict, **more)
        self.settle()

    def repair(self, phase: RepairPhase, after_s: float = 300) -> Repair:
        """The provider moves the repair under way to `phase`."""
        self.pass_time(after_s)
        last = self.node.repairs[-1]
        done = phase in (RepairPhase.DONE, RepairPhase.FAILED)
        moved = with_fields(last, status=RepairStatus(phase=phase, finished_at=self.now if done else None))
        self.node = replace(self.node, repairs=(*self.node.repairs[:-1], moved))
        return moved

    def say(self, verb: Verb, name: str = "d1") -> None:
        decision = PersonDecision(id=name, verb=verb, by="ada", at=self.now)
        self.node = replace(self.node, spec=with_fields(self.node.spec, decision=decision))

    def hold(self, held: bool = True) -> None:
        hold = PersonHold(by="ada", reason="looking", at=self.now) if held else None
        self.node = replace(self.node, spec=with_fields(self.node.spec, hold=hold))

    def pause(self, paused: bool = True) -> None:
        self.node = replace(self.node, spec=with_fields(self.node.spec, paused=paused))

    @property
    def evictions(self) -> list[str]:
        return [i.pod.key for d in self.decisions for i in d.intents if isinstance(i, EvictPod)]

    @property
    def cancelled(self) -> list[str]:
        """Names of the repairs that the last decision called back."""
        return [i.name for i in self.decisions[-1].intents if isinstance(i, CancelRepair)]

    @property
    def rungs(self) -> list[str]:
        """Rungs that were asked for, in order."""
        return [r.spec.rung.value for r in self.node.repairs]

    @property
    def waits(self) -> dict[str, str]:
        """Kind of blocker -> message."""
        return {b.kind: b.message for b in self.life.blockers}


def serving(policy: EffectivePolicy = AUTOMATED) -> World:
    """A node that was certified and takes work."""
    world = World(policy=policy)
    world.certify()
    assert world.life.state is State.IN_SERVICE, world.life.next
    world.decisions.clear()
    return world


def states(life: Lifecycle) -> list[str]:
    return [entry.state.value for entry in life.history]


__all__ = ["NodeHealthSpec", "World", "fault", "pod", "readings", "serving", "states"]
