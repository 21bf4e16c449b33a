"""The invariants, checked at every change of the store. See docs/how-to/chaos.md for the list.

Rules about one write hold at that write. Rules about what must follow (a node that lost its certificate must be
closed) count the time in which a controller led, ran and could reach the API server: `REACTION_S` of it is allowed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta

from muster.kube.api import EventType
from muster.operate.budget import allowance
from muster.operate.certificates import counted_digest
from muster.operate.episode import AttemptOutcome, open_attempt
from muster.operate.fleet_usage import is_out
from muster.operate.lifecycle import TABLE, admits
from muster.operate.proof import REBOOTING
from muster.operate.providers.provider import NodeFactsForRepair
from muster.operate.views import node_health_of, read_requests
from muster.resources.base import CORDON_ANNOTATION, REQUESTS_ANNOTATION, from_object
from muster.resources.certification import NodeVerdict
from muster.resources.fault import Severity
from muster.resources.node_health import (
    Cause,
    CauseKind,
    Lifecycle,
    Standing,
    State,
    Transition,
    Verb,
)
from muster.resources.repair import Repair, RepairPhase, Rung
from muster.sim.api_faults import Request
from muster.sim.api_kinds import Kind as ServedKind
from muster.sim.history import Change
from tests.chaos.apiserver import SLOWEST_S, WRITES, Journal, Process
from tests.chaos.machines import Machine
from tests.chaos.truth import Known, Object, annotations_of, appended, attempt_key, line_of, node_rules, why_closed
from tests.invariants.checker import schedulable

MUSTER = "muster-"
"""Processes of the controller are named so."""
REACTION_S = 900.0
"""Time that a controller which leads and reaches the API server may take until a node that must not take work is
closed. Requests are held up, answers get lost and backoffs double here; in peace it is seconds."""
FENCE_S = 6 * SLOWEST_S
"""How old the last proof of leadership may be at a write: it is asked for before each one, and requests are slow."""
NEWS_S = 1500.0
"""How long ago a node may have changed its identity when a decision about the old one is still made in good faith."""
LEGAL = frozenset((before, after) for (before, _), after in TABLE.items()) | {(s, s) for s in State}
FENCED = frozenset({"nodes", "nodehealths", "repairs", "pods"})


@dataclass(frozen=True)
class Violation:
    """`invariant` is the short name of the rule."""

    invariant: str
    message: str
    step: int


@dataclass
class Watch:
    """`able` says whether a controller leads and can work; `elapsed_s` is the virtual time."""

    journal: Journal
    machines: dict[str, Machine]
    elapsed_s: Callable[[], float]
    max_disrupted: str = "10%"
    max_grace: timedelta = timedelta(days=7)
    found: list[Violation] = field(default_factory=list)
    known: dict[str, Known] = field(default_factory=dict)
    repairs: dict[str, Repair] = field(default_factory=dict)
    ever: dict[str, Repair] = field(default_factory=dict)
    """The last that was known of every Repair that there ever was."""
    certifications: dict[str, Object] = field(default_factory=dict)
    """The same of Certifications."""
    orders: dict[tuple[str, str, Rung, int], str] = field(default_factory=dict)
    work: dict[str, tuple[str, float]] = field(default_factory=dict)
    """Pods that run and were not asked to leave: their node, and since when."""
    able_s: float = 0.0
    most_nodes: int = 0
    cordoned: set[str] = field(default_factory=set)
    """Nodes with a cordon of a person."""

    # Telling

    def break_(self, invariant: str, message: str) -> None:
        self.found.append(Violation(invariant, message, self.journal.steps))
        self.journal.note("INVARIANT", f"{invariant}: {message}")

    def of(self, name: str) -> Known:
        return self.known.setdefault(name, Known())

    def open_nodes(self) -> list[str]:
        return sorted(n for n, k in self.known.items() if k.node is not None and schedulable(k.node))

    # News

    def changed(self, kind: ServedKind, change: Change, actor: str) -> None:
        """One change of the store, by `actor`."""
        if kind.plural in ("leases", "events"):
            return
        name = change.key[1]
        gone = change.type is EventType.DELETED
        before = change.previous.obj if change.previous is not None else None
        after = None if gone else change.current.obj
        self.journal.note(actor, line_of(kind.plural, name, before, after))
        ours = actor.startswith(MUSTER)
        match kind.plural:
            case "nodes":
                self._node(name, before, after, ours)
            case "nodehealths":
                self._health(name, before, after, ours)
            case "repairs":
                self._repair(name, after, ours)
            case "certifications":
                if after is not None:
                    self.certifications[name] = after
            case "pods":
                self._pod(name, before, after)

    def _pod(self, name: str, before: Object | None, after: Object | None) -> None:
        if after is None or after["metadata"].get("deletionTimestamp"):
            self.work.pop(name, None)
        elif before is None:
            node = after["spec"].get("nodeName", "")
            self.work[name] = (node, self.elapsed_s())
            self._bound(node)

    def asked(self, process: Process, request: Request) -> None:
        """A request is put: whoever writes must have asked whether it still leads."""
        if not process.identity.startswith(MUSTER) or request.verb not in WRITES or request.plural not in FENCED:
            return
        age_s = process.ran_s - process.fenced_at_s
        if process.fenced_at_s < 0 or age_s > FENCE_S:
            what = f"{request.verb} of {request.plural} {request.name}"
            self.break_("fenced", f"{process.identity} writes ({what}) and asked {age_s:.0f} s ago whether it leads")

    def tick(self, able: bool, passed_s: float) -> None:
        """`passed_s` went by, in which a controller could work, or not."""
        if able:
            self.able_s += passed_s
        for name, known in self.known.items():
            if known.open_since_s is not None and self.able_s - known.open_since_s > REACTION_S:
                why = why_closed(known, self.max_grace, self.journal)
                self.break_("admission", f"{name} has taken work for {REACTION_S:.0f} s although {why}")
                known.open_since_s = None

    def _bound(self, name: str) -> None:
        known = self.known.get(name)
        if known is not None and known.open_since_s is not None and self.able_s - known.open_since_s > REACTION_S:
            self.break_("admission", f"work was placed on {name}, which must not take any")

    def _look(self, name: str) -> None:
        """Whether the node takes work that it must not take."""
        known = self.of(name)
        takes = known.node is not None and schedulable(known.node)
        wrong = takes and bool(why_closed(known, self.max_grace, self.journal))
        if not wrong:
            known.open_since_s = None
        elif known.open_since_s is None:
            known.open_since_s = self.able_s

    # Nodes

    def _node(self, name: str, before: Object | None, after: Object | None, ours: bool) -> None:
        known = self.of(name)
        known.node = after
        if before is None or after is None:
            known.reborn_at_s = self.elapsed_s()
        self.most_nodes = max(self.most_nodes, sum(1 for k in self.known.values() if k.node is not None))
        if before is not None and after is not None and ours:
            for invariant, message in node_rules(name, before, after, known.life):
                self.break_(invariant, message)
        cordon = (
            after is not None
            and after["spec"].get("unschedulable")
            and not annotations_of(after).get(CORDON_ANNOTATION)
        )
        if cordon:
            self.cordoned.add(name)
        else:
            self.cordoned.discard(name)
        self._look(name)

    # Lifecycles

    def _health(self, name: str, before: Object | None, after: Object | None, ours: bool) -> None:
        known = self.of(name)
        old = known.life
        known.health = node_health_of(after) if after is not None else None
        if after is None:
            known.erased_at_s = self.elapsed_s()
        elif ours:
            if before is not None and before.get("spec", {}) != after.get("spec", {}):
                self.break_("people-win", f"the controller changed spec of {name}, which is people's")
            if known.life is not None and known.life != old:
                for invariant, message in self._step(name, old, known.life):
                    self.break_(invariant, message)
        self._look(name)

    def _step(self, name: str, old: Lifecycle | None, new: Lifecycle) -> Iterator[tuple[str, str]]:
        """Rules about one write of a lifecycle."""
        entries = appended(old, new)
        if entries is None:
            yield "append-only", f"the history of {name} was changed, not continued"
            entries = ()
        last = old.state if old is not None else State.UNCERTIFIED
        for entry in entries:
            if (last, entry.state) not in LEGAL:
                yield "legal", f"{name} went from {last.value} to {entry.state.value}"
            yield from self._entry(name, last, entry, new)
            last = entry.state
        if new.state is not last:
            yield "legal", f"{name} is {new.state.value} and its history says {last.value}"
        if not new.held and not admits(new.certificate):
            yield "admission", f"{name} is not held although its certificate does not admit it"
        if new.held and (old is None or not old.held):
            yield from self._spent(name, new)
        yield from self._attempts(name, old, new)

    def _entry(self, name: str, last: State, entry: Transition, new: Lifecycle) -> Iterator[tuple[str, str]]:
        health = self.of(name).health
        assert health is not None
        cause = entry.cause
        if entry.state is State.IN_SERVICE and last is not State.IN_SERVICE:
            yield from self._admitted(name, new, cause)
            if health.spec.hold is not None:
                yield "people-win", f"{name} went into service although {health.spec.hold.by} holds it"
        if entry.state is State.QUARANTINED and last is not State.QUARANTINED:
            yield from self._accused(name, cause)
        starts = entry.state in (State.DRAINING, State.REPAIRING) and entry.state is not last
        if starts and health.spec.paused:
            yield "people-win", f"{name} went to {entry.state.value} although a person paused it"
        if starts and health.spec.hold is not None:
            yield "people-win", f"{name} went to {entry.state.value} although a person holds it"
        if entry.state is State.REPAIRING and cause.name != Rung.RESET_GPU.value:
            # A pod that came a moment ago may not have been seen; one of a GPU alone does not mind the others.
            old = [p for p, (n, at_s) in self.work.items() if n == name and self.elapsed_s() - at_s > NEWS_S]
            if old:
                yield "drained", f"{name} is repaired ({cause.name}) under {', '.join(sorted(old))}"

    def _admitted(self, name: str, new: Lifecycle, cause: Cause) -> Iterator[tuple[str, str]]:
        known = self.of(name)
        assert known.health is not None
        certificate, seen = new.certificate, known.health.status.observed
        if certificate is None or seen is None:
            yield "admission", f"{name} went into service without certificate or agent"
            return
        if certificate.standing is not Standing.VALID:
            yield "admission", f"{name} went into service on a certificate that is {certificate.standing.value}"
        if counted_digest(certificate.fingerprint) != counted_digest(seen.fingerprint):
            yield "admission", f"{name} went into service with another fingerprint than its certificate"
        node_uid = known.node["metadata"]["uid"] if known.node is not None else ""
        settled = self.elapsed_s() - known.reborn_at_s > NEWS_S
        if seen.node_uid != certificate.node_uid or (settled and certificate.node_uid != node_uid):
            yield "admission", f"{name} went into service on the certificate of another node of its name"
        fatal = [f.key() for f in seen.faults if f.severity is Severity.FATAL]
        decision = known.health.spec.decision
        if fatal and (decision is None or decision.verb is not Verb.RELEASE):
            yield "admission", f"{name} went into service with {fatal[0]} open"
        if cause.kind is CauseKind.CERTIFICATION:
            if self._verdict(cause.name, name) is not NodeVerdict.PASSED:
                yield "admission", f"{name} went into service for {cause.name}, which it did not pass"
            made = self.certifications.get(cause.name, {})
            request = read_requests(annotations_of(made).get(REQUESTS_ANNOTATION, "")).get(name)
            if request is None or request.boot_id != seen.boot_id:
                yield "admission", f"{name} went into service for a test of another boot ({cause.name})"
            elif request.fingerprint != counted_digest(seen.fingerprint):
                yield "admission", f"{name} went into service for a test of another fingerprint ({cause.name})"

    def _accused(self, name: str, cause: Cause) -> Iterator[tuple[str, str]]:
        health = self.of(name).health
        seen = health.status.observed if health is not None else None
        if cause.kind is CauseKind.CERTIFICATION and self._verdict(cause.name, name) is not NodeVerdict.FAILED:
            yield "blame", f"{name} is blamed by {cause.name}, which did not find it at fault"
        if cause.kind is CauseKind.FAULT and seen is not None:
            named = [f for f in seen.faults if f.key() == cause.name]
            if named and all(f.severity is Severity.UNKNOWN for f in named):
                yield "unknown-harmless", f"{name} is held for {cause.name}, whose severity is unknown"

    def _verdict(self, certification: str, name: str) -> NodeVerdict | None:
        status = self.certifications.get(certification, {}).get("status") or {}
        told = [r.get("verdict") for r in status.get("nodes") or () if r.get("name") == name]
        return NodeVerdict(told[0]) if told else None

    def _spent(self, name: str, new: Lifecycle) -> Iterator[tuple[str, str]]:
        """A node was taken out: the budget must have had room, unless a person did it."""
        if not self._chosen(name, new):
            return
        others = [n for n, k in self.known.items() if n != name and k.node is not None and k.life is not None]
        out = sorted(n for n in others if self._chosen(n, self.known[n].life))
        limit = allowance(self.max_disrupted, self.most_nodes)
        if len(out) >= limit:
            yield "budget", f"{name} was taken out although {', '.join(out)} were out; the budget allows {limit}"

    def _chosen(self, name: str, life: Lifecycle | None) -> bool:
        if life is None or life.episode is None or not is_out(life):
            return False
        certificate, cause = life.certificate, life.episode.cause
        overdue = (
            certificate is not None
            and certificate.voided_at is not None
            and cause.kind in (CauseKind.DRIFT, CauseKind.AGE)
            and life.since - certificate.voided_at >= self.max_grace
        )
        return cause.kind is not CauseKind.PERSON and not overdue

    def _attempts(self, name: str, old: Lifecycle | None, new: Lifecycle) -> Iterator[tuple[str, str]]:
        """An attempt that counts as proved had its effect."""
        before = {a.repair: a.outcome for a in (old.episode.attempts if old is not None and old.episode else ())}
        for attempt in new.episode.attempts if new.episode is not None else ():
            if attempt.outcome != AttemptOutcome.PROVED or before.get(attempt.repair) == AttemptOutcome.PROVED:
                continue
            repair, machine = self.ever.get(attempt.repair), self.machines.get(name)
            there = attempt.repair in self.repairs
            if repair is None or (there and repair.status.phase is not RepairPhase.DONE):
                yield "proof", f"{attempt.repair} counts as proved and was never done"
            elif (
                Rung(attempt.rung) in REBOOTING
                and machine is not None
                and repair.spec.boot_id_before == machine.boot_id
            ):
                yield "proof", f"{attempt.repair} counts as proved and {name} has not booted"

    # Repairs

    def _repair(self, name: str, after: Object | None, ours: bool) -> None:
        before = self.repairs.pop(name, None)
        if after is None:
            return
        made = from_object(Repair, after)
        self.repairs[name] = self.ever[name] = made
        if before is not None:
            final = (RepairPhase.DONE, RepairPhase.FAILED, RepairPhase.CANCELLED)
            if before.status.phase in final and made.status.phase is not before.status.phase and ours:
                self.break_("legal", f"{name} left its final phase {before.status.phase.value}")
            return
        if not ours:
            return
        spec = made.spec
        key = (spec.node_name, spec.episode, spec.rung, spec.attempt)
        twins = [n for n, r in self.repairs.items() if n != name and key == attempt_key(r)]
        if twins:
            self.break_("once", f"{name} and {twins[0]} are for one attempt")
        known = self.of(spec.node_name)
        attempt = open_attempt(known.life.episode) if known.life is not None else None
        fresh = self.elapsed_s() - max(known.reborn_at_s, known.erased_at_s) < NEWS_S
        if not fresh and (attempt is None or attempt.repair != name):
            self.break_("durable-first", f"{name} was created although the status of its node does not tell of it")

    def order_begun(self, repair: Repair, node: NodeFactsForRepair) -> None:
        """The cloud was asked for something that it had not been asked for under this name."""
        spec, name = repair.spec, repair.metadata.name
        if spec.rung is Rung.TICKET:
            return
        self.journal.deed("cloud", f"begins {name}")
        key = (spec.node_uid, spec.episode, spec.rung, spec.attempt)
        if key in self.orders:
            self.break_("once", f"the cloud was asked twice for one attempt: {self.orders[key]} and {name}")
        self.orders[key] = name
        if node.uid != spec.node_uid:
            self.break_("once", f"{name} was begun on another node of its name")
        if name not in self.repairs and name not in self.ever:
            self.break_("durable-first", f"{name} was begun and does not exist")
        known = self.of(spec.node_name)
        fresh = self.elapsed_s() - max(known.reborn_at_s, known.erased_at_s) < NEWS_S
        if known.life is not None and not known.life.held and not fresh:
            self.break_("once", f"{name} was begun although {spec.node_name} is in service")
