"""Replays recorded history against policies: what they would have asked for, fault by fault. Pure.

At every moment at which something was seen, closed or fell due, the node is put together as it was known then, its
patterns are concluded, the fleet is correlated, and each open fault is judged. The world is taken as it was: what a
hold or a repair would have changed afterwards nobody can replay. Budgets are not asked: this counts wishes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from msgspec.structs import replace

from muster.moments import after
from muster.operate.backtest.recording import RecordedNode, Recording
from muster.operate.correlation.changes import changes_of, findings_of
from muster.operate.correlation.correlate import correlate
from muster.operate.correlation.model import Change, Correlations, FleetNode
from muster.operate.patterns.derive import derive
from muster.operate.patterns.history import DERIVED, History, bursts_of, history_of, is_derived
from muster.operate.policy import MILDEST_FIRST, EffectivePolicy, Judgement, effective_policy, judge
from muster.resources.fault import Fault
from muster.resources.fault_policy import Disposition, FaultPolicy
from muster.resources.node_health import Lifecycle, PastFault

MAX_MOMENTS = 400
"""Moments looked at on one node; of more the latest are taken."""
EARLIEST = timedelta(days=400)
"""Times longer before the export than that come from clocks that were wrong."""
AGES_S = (60, 300, 3600, 86400)
"""Rules may ask how old a fault is: it is judged again at these ages."""


@dataclass(frozen=True)
class Outcome:
    """The furthest that a policy went for one fault while it was open."""

    node: str
    fault: str
    """Key of the fault."""
    opened_at: datetime
    disposition: Disposition
    rule: str
    at: datetime
    """When it went so far first."""
    capped_by: str = ""


@dataclass(frozen=True)
class _Span:
    """One fault from its opening to its closing."""

    fault: Fault
    closed_at: datetime | None
    past: PastFault | None

    def open_at(self, moment: datetime) -> bool:
        return self.fault.first_seen <= moment and (self.closed_at is None or moment < self.closed_at)


def replay(
    recording: Recording, policies: Sequence[FaultPolicy], since: datetime | None = None
) -> tuple[Outcome, ...]:
    """What `policies` (over the safe default) would have asked for, sorted by node, fault and time."""
    nodes = {n.name: n for n in recording.nodes}
    spans = {name: _spans(node) for name, node in nodes.items()}
    effective = {name: effective_policy(policies, node.labels) for name, node in nodes.items()}
    moments = sorted(
        (moment, name)
        for name in nodes
        for moment in _moments(spans[name], effective[name], recording.exported_at, since)[-MAX_MOMENTS:]
    )
    fleet = _Fleet(nodes, spans, effective)
    worst: dict[tuple[str, str, datetime], Outcome] = {}
    for moment, name in moments:
        for fault, judgement in fleet.judged(name, moment):
            opened = _opened(fault)
            key = (name, fault.key(), opened)
            outcome = Outcome(
                name, fault.key(), opened, judgement.disposition, judgement.rule, moment, judgement.capped_by
            )
            if judgement.due and (key not in worst or _rank(outcome) > _rank(worst[key])):
                worst[key] = outcome
    return tuple(worst[key] for key in sorted(worst))


def not_all_of(
    recording: Recording, policies: Sequence[FaultPolicy], since: datetime | None = None
) -> tuple[str, ...]:
    """Nodes on which more happened than is looked at (MAX_MOMENTS), sorted."""
    return tuple(
        sorted(
            n.name
            for n in recording.nodes
            if len(_moments(_spans(n), effective_policy(policies, n.labels), recording.exported_at, since))
            > MAX_MOMENTS
        )
    )


def _opened(fault: Fault) -> datetime:
    # A derived fault's first sighting moves as its evidence grows old: one pattern on one entity is one outcome.
    return datetime.min.replace(tzinfo=fault.first_seen.tzinfo) if fault.check == DERIVED else fault.first_seen


def _rank(outcome: Outcome) -> int:
    return MILDEST_FIRST.index(outcome.disposition)


def _spans(node: RecordedNode) -> tuple[_Span, ...]:
    observed = node.health.status.observed
    if observed is None:
        return ()
    opened = [_Span(f, None, None) for f in observed.faults if not is_derived(f)]
    return (*opened, *(_Span(p.fault, p.closed_at, p) for p in observed.recent if not is_derived(p.fault)))


def _moments(
    spans: Sequence[_Span], policy: EffectivePolicy, end: datetime, since: datetime | None
) -> list[datetime]:
    graces = sorted({*(r.grace_s for r in policy.rules), *AGES_S})
    found = {end} if spans else set()
    for span in spans:
        found.update(after(span.fault.first_seen, s) for s in graces)
        found.update(b.at for b in bursts_of(span.fault))
        if span.closed_at is not None:
            found.add(span.closed_at)
    begin = since or end - EARLIEST
    return [m for m in sorted(found) if begin <= m <= end]


class _Fleet:
    """The recorded fleet, asked for moments in order of time; correlations are worked out once for each moment."""

    def __init__(
        self,
        nodes: Mapping[str, RecordedNode],
        spans: Mapping[str, Sequence[_Span]],
        policies: Mapping[str, EffectivePolicy],
    ) -> None:
        self._nodes = nodes
        self._spans = spans
        self._policies = policies
        self._with_faults = sorted(name for name, own in spans.items() if own)
        self._known: tuple[datetime, Correlations] | None = None
        self._derived: dict[str, tuple[Fault, ...]] = {}

    def judged(self, name: str, moment: datetime) -> list[tuple[Fault, Judgement]]:
        """The faults that were open on the node at `moment`, derived ones included, each with its judgement."""
        node, policy = self._nodes[name], self._policies[name]
        history = self._history(name, moment)
        before = self._derived.get(name, ())
        derived, _ = derive(policy, history, name, node.labels, before, moment)
        self._derived[name] = derived
        correlated = self._correlations(moment).of(name)
        return [
            (
                fault,
                judge(policy, fault, node.labels, moment, node_name=name, history=history, correlated=correlated),
            )
            for fault in (*history.open, *derived)
        ]

    def _history(self, name: str, moment: datetime) -> History:
        spans = self._spans[name]
        life = _life_at(self._nodes[name].health.status.lifecycle, moment)
        return History(
            open=_open(spans, moment),
            past=tuple(s.past for s in spans if s.past is not None and s.past.closed_at <= moment),
            transitions=(known := history_of(None, life)).transitions,
            attempts=known.attempts,
            boundary=known.boundary,
            released=known.released,
            repaired=known.repaired,
        )

    def _correlations(self, moment: datetime) -> Correlations:
        if self._known is None or self._known[0] != moment:
            findings = [
                finding
                for name in self._with_faults
                for finding in findings_of(name, _open(self._spans[name], moment), {})
            ]
            distinct = {f.node for f in findings}
            found = Correlations()
            if len(distinct) > 1:
                fleet = {name: FleetNode(n.labels, _changes_at(n, moment)) for name, n in self._nodes.items()}
                found = correlate(self._policies, fleet, findings, moment)
            self._known = (moment, found)
        return self._known[1]


def _open(spans: Sequence[_Span], moment: datetime) -> tuple[Fault, ...]:
    return tuple(sorted((_as_known(s.fault, moment) for s in spans if s.open_at(moment)), key=lambda f: f.key()))


def _as_known(fault: Fault, moment: datetime) -> Fault:
    """The fault as it was known at `moment`: later bursts had not happened."""
    if not fault.bursts or fault.last_seen <= moment:
        return fault
    bursts = tuple(replace(b, until=min(b.until, moment)) for b in fault.bursts if b.at <= moment)
    count = sum(b.count for b in bursts) or 1
    return replace(fault, bursts=bursts, last_seen=min(fault.last_seen, moment), count=count)


def _life_at(life: Lifecycle | None, moment: datetime) -> Lifecycle | None:
    """The lifecycle with what had happened by `moment`."""
    if life is None:
        return None
    episode = life.episode
    if episode is not None:
        attempts = tuple(a for a in episode.attempts if a.at <= moment)
        episode = replace(episode, attempts=attempts) if episode.opened_at <= moment else None
    return replace(life, history=tuple(t for t in life.history if t.at <= moment), episode=episode)


def _changes_at(node: RecordedNode, moment: datetime) -> tuple[Change, ...]:
    status = node.health.status
    changed = changes_of(_life_at(status.lifecycle, moment), status.observed, moment)
    return tuple(c for c in changed if c.at <= moment)
