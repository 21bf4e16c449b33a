"""From what the ranks of a run left behind to the outcome of the run. Pure.

A number is judged twice: against the floor of its shape, and against its peers. Slow is a fault: a number fails when
it lies further below the median of its peers than `MARGIN` and than k standard deviations, the deviation taken from
the median absolute deviation, so that slow nodes among the peers do not hide each other. k follows from the number of
numbers compared: with n of them at most `FALSE_ALARMS` false alarms are expected per round, however large the fleet
(a normal spread is assumed). Nobody is blamed for one such number: isolation repeats before it blames.

By simulation, with one slow node in eight: healthy numbers that spread by 1 % raise no false alarm and
hide no node that is 10 % slow, from 4 nodes to 64. At 2 % there are false alarms only in small rounds (0.5 % of the
numbers of 4 nodes, 0.2 % of 8, none of 64), a node 15 % slow is missed in under 1 % of its runs, one 10 % slow in
4 % (4 nodes) to 42 % (64). A wider spread hides slow nodes rather than blame healthy ones.

Peers of a run are runs of the same test over as many equal nodes on the same kind of path: those of the round, then
those that passed earlier in the certification, and, for tests of one node, what equal nodes in service with the same
stack reached for their certificates.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from statistics import NormalDist, median
from typing import assert_never

import msgspec

from muster.certify.baselines import LEAST_SIMILARITY, Baseline
from muster.certify.catalogue import CatalogueTest, Scope, floor_for
from muster.certify.details import NodeDetail, transport_of
from muster.certify.isolation.plan import Plan, PlannedRun
from muster.certify.straggler.means import slow_ranks
from muster.read.collectives.transports import is_expected
from muster.resources.certification import Outcome, Reason, RunRecord

MARGIN = 0.05
"""A number less than 5 % under the median of its peers is never called slow. Healthy nodes of one kind differ by 1 to
2 % in matrix multiplication and collectives; the faults looked for cost 10 % and more."""
FALSE_ALARMS = 0.001
USUAL_SIGMA = 0.015
"""Spread that few peers are assumed to have (healthy nodes, see MARGIN): of few numbers the deviation is anything."""
USUAL_WEIGHT = 8
"""How many peers that assumption weighs."""
MAD_TO_SIGMA = 1.4826
"""Median absolute deviation of a normal distribution -> its standard deviation."""
LEAST_PEERS: Mapping[Scope, int] = {Scope.NODE: 3, Scope.PAIR: 3, Scope.GROUP: 1}
"""Fewer peers say nothing. A group is compared with the other half of the fleet."""
TRANSPORT_LIMIT = 80
MESSAGE_LIMIT = 160
"""Characters of a run's message: a certification keeps thousands of runs in one object."""

_GOOD = (Outcome.PASS, Outcome.WARN)


class HowEnded(Enum):
    """What became of one rank."""

    REPORTED = "reported"
    CRASHED = "crashed"
    """The program ended without a report, and not with success."""
    MUTE = "mute"
    """The program ended with success and without a usable report."""
    TIMEOUT = "timeout"
    """The kubelet stopped it at the deadline of the test."""
    REFUSED = "refused"
    """It never ran: not scheduled, not admitted, image not there."""
    DISTURBED = "disturbed"
    """Somebody else ended it: deleted, evicted, node shut down or gone."""
    OVERDUE = "overdue"
    """Neither an end nor a sign of life when the time was up."""


class Report(msgspec.Struct, frozen=True):
    """The termination message of a test pod. `value` is the number that this rank measured, in `unit`."""

    node: str
    ok: bool
    value: float | None = None
    unit: str = ""
    reason: str = ""
    suspects: tuple[str, ...] = ()
    message: str = ""


@dataclass(frozen=True)
class RankEnd:
    """The end of the rank on `node`. `message` is for people."""

    node: str
    how: HowEnded
    report: Report | None = None
    message: str = ""
    detail: NodeDetail | None = None
    """What the node measured beyond the number that decides."""


_report_decoder = msgspec.json.Decoder(Report)


def parse_report(text: str) -> Report | None:
    """Read a termination message; None when it is something else."""
    try:
        report = _report_decoder.decode(text)
    except (msgspec.MsgspecError, RecursionError):
        return None
    return report if report.value is None or math.isfinite(report.value) else None


@dataclass(frozen=True)
class NodeKind:
    """What decides with whom a node may be compared."""

    clique: str = ""
    stack: str = ""


@dataclass(frozen=True)
class Surroundings:
    """What is known beside the runs of the round."""

    kinds: Mapping[str, NodeKind] = field(default_factory=dict)
    """By node."""
    passed: Sequence[RunRecord] = ()
    """Earlier runs of this certification."""
    certified: Mapping[tuple[str, str, str], Sequence[float]] = field(default_factory=dict)
    """(product, stack, metric key) -> numbers that nodes in service reached for their certificates."""


_Shape = tuple[str, int, int, bool]
"""Test, cell, number of nodes, and whether they share one NVLink domain."""


def judge_round(
    plan: Plan, runs: Sequence[PlannedRun], ends: Mapping[str, Sequence[RankEnd]], known: Surroundings
) -> tuple[RunRecord, ...]:
    """The record of every run of `runs`, in their order. `ends`: run ID -> its ranks in rank order."""
    raw = {
        run.id: _raw_record(plan.test(run.test), run, ends.get(run.id, ()), plan.expected_transport) for run in runs
    }
    cell_of = {m.name: i for i, cell in enumerate(plan.cells) for m in (*cell.targets, *cell.partners)}
    shapes = {run.id: _shape(run.test, run.nodes, cell_of, known) for run in runs}
    measured: dict[_Shape, list[tuple[str, float]]] = {}
    for run in runs:
        value = raw[run.id].value
        if raw[run.id].outcome is Outcome.PASS and value is not None:
            measured.setdefault(shapes[run.id], []).append((run.id, value))
    earlier: dict[_Shape, list[float]] = {}
    for record in known.passed:
        if record.outcome in _GOOD and record.value is not None and record.nodes and record.nodes[0] in cell_of:
            earlier.setdefault(_shape(record.test, record.nodes, cell_of, known), []).append(record.value)
    records = []
    for run in runs:
        record, shape = raw[run.id], shapes[run.id]
        if record.outcome is Outcome.PASS and record.value is not None:
            peers = [v for i, v in measured[shape] if i != run.id] + earlier.get(shape, [])
            record = _judge_number(plan, run, record, shape, peers, len(measured[shape]), known)
            if record.outcome is Outcome.PASS and plan.test(run.test).scope is Scope.NODE:
                others = [v for i, _ in measured[shape] if i != run.id for v in _values_of(ends[i])]
                record = _judge_spread(record, _values_of(ends[run.id]), others)
        records.append(record)
    return tuple(records)


def slow_limit(peers: Sequence[float], compared: int) -> tuple[float, float]:
    """(median, limit): a number under the limit is slow. `compared`: how many numbers are judged this way at once.

    >>> slow_limit([100.0, 100.0, 101.0], 4)[0]
    100.0
    """
    middle = median(peers)
    seen = MAD_TO_SIGMA * median([abs(v - middle) for v in peers])
    usual = USUAL_SIGMA * middle
    weight = USUAL_WEIGHT / (USUAL_WEIGHT + len(peers))
    sigma = math.sqrt(weight * usual**2 + (1.0 - weight) * seen**2)
    k = NormalDist().inv_cdf(1.0 - FALSE_ALARMS / max(2, compared))
    return middle, middle - max(MARGIN * middle, k * sigma)


def _shape(test: str, nodes: Sequence[str], cell_of: Mapping[str, int], known: Surroundings) -> _Shape:
    cliques = {known.kinds.get(n, NodeKind()).clique for n in nodes}
    return test, cell_of.get(nodes[0], 0), len(nodes), len(cliques) == 1 and "" not in cliques


def _judge_number(
    plan: Plan,
    run: PlannedRun,
    record: RunRecord,
    shape: _Shape,
    peers: Sequence[float],
    compared: int,
    known: Surroundings,
) -> RunRecord:
    test, cell = plan.test(run.test), plan.cells[shape[1]]
    value = record.value or 0.0
    floor = plan.floors.get(test.name)
    if floor is None:
        floor = floor_for(
            test.name,
            product=cell.product,
            platform=cell.platform,
            nodes=len(run.nodes),
            gpus_per_node=cell.gpus,
            one_domain=shape[3],
        )
    record = msgspec.structs.replace(record, floor=floor)
    if floor is not None and value < floor:
        words = f"{value:.4g} {test.unit} is under the floor of {floor:.4g}"
        return msgspec.structs.replace(record, outcome=Outcome.FAIL, reason=test.below, message=words)
    if len(peers) < LEAST_PEERS[test.scope] and test.scope is Scope.NODE:
        stack = known.kinds.get(run.nodes[0], NodeKind()).stack
        peers = [*peers, *known.certified.get((cell.product, stack, test.metric_key), ())]
    if len(peers) >= LEAST_PEERS[test.scope]:
        middle, limit = slow_limit(peers, compared)
        if value < limit:
            words = f"{value:.4g} {test.unit} is {1 - value / middle:.0%} under the median of {len(peers)} peer runs"
            return msgspec.structs.replace(record, outcome=Outcome.FAIL, reason=test.below, message=words)
    elif floor is None:
        words = "no floor is known for this shape and there are too few peers to compare with"
        return msgspec.structs.replace(record, outcome=Outcome.UNKNOWN, message=words)
    return record


def _values_of(ends: Sequence[RankEnd]) -> list[float]:
    """What the single GPUs of a run reached."""
    return [r.value for e in ends if e.detail is not None for r in e.detail.ranks if r.value is not None]


def _judge_spread(record: RunRecord, mine: Sequence[float], others: Sequence[float]) -> RunRecord:
    """A pass with a warning where the GPUs of a node spread unlike those of its peers."""
    usual = Baseline.learn(others)
    alike = usual.similarity(mine) if usual is not None else None
    if usual is None or alike is None or alike >= LEAST_SIMILARITY:
        return record
    words = f"GPUs spread unlike those of {len(usual.values)} peers: {min(mine):.4g} to {max(mine):.4g} {record.unit}"
    return msgspec.structs.replace(record, outcome=Outcome.WARN, message=words[:MESSAGE_LIMIT])


# The ranks of one run


def _raw_record(test: CatalogueTest, run: PlannedRun, ends: Sequence[RankEnd], expected: str) -> RunRecord:
    """The record before its number is compared with anything. `expected`: the transport between nodes, or empty."""
    details = [e.detail for e in ends if e.detail is not None]
    transport = transport_of(details)

    def record(outcome: Outcome, reason: Reason, message: str, suspects: Sequence[str] = ()) -> RunRecord:
        blamed = tuple(n for n in run.nodes if n in frozenset(suspects))
        return RunRecord(
            id=run.id,
            round=run.round,
            test=run.test,
            nodes=run.nodes,
            outcome=outcome,
            reason=reason,
            suspects=blamed,
            message=" ".join(message.split())[:MESSAGE_LIMIT],
            transport=transport[:TRANSPORT_LIMIT],
            variant=run.variant,
        )

    if len(ends) != len(run.nodes):
        return record(Outcome.UNKNOWN, Reason.HARNESS, "the run was not carried out")
    # Whatever else the ranks say: a run that was disturbed, or never complete, is evidence of nothing.
    for how in (HowEnded.REFUSED, HowEnded.DISTURBED, HowEnded.OVERDUE):
        found = [e for e in ends if e.how is how]
        if found:
            outcome, reason = _unusable(how)
            return record(outcome, reason, f"{found[0].node}: {found[0].message}", [e.node for e in found])
    wrong = next((words for e in ends if (words := _harness_error(test, e))), "")
    if wrong:
        return record(Outcome.INVALID, Reason.HARNESS, wrong)
    failed = [(e, _failure(e)) for e in ends]
    reasons = [(e, reason) for e, reason in failed if reason is not None]
    if reasons:
        end, reason = min(reasons, key=lambda pair: _TELLING.index(pair[1]))
        return record(Outcome.FAIL, reason, f"{end.node}: {_words(end)}", _suspects(reasons))
    wrong_values = sum(row.wrong or 0 for detail in details for row in detail.sizes)
    if wrong_values:
        return record(Outcome.FAIL, Reason.NUMERIC, f"{wrong_values} wrong value(s) in the results")
    if expected and len(run.nodes) > 1 and test.collective:
        if not transport:
            return record(Outcome.UNKNOWN, Reason.TRANSPORT, f"the log does not tell whether {expected} was used")
        if not is_expected(expected, transport):
            return record(Outcome.FAIL, Reason.TRANSPORT, f"used {transport} between nodes, expected {expected}")
    slow = slow_ranks([rank for detail in details for rank in detail.ranks], slow_limit)
    if slow:
        worst, share = slow[0]
        gpu = f", GPU {worst.gpu}" if worst.gpu is not None else ""
        more = f" (and {len(slow) - 1} more)" if len(slow) > 1 else ""
        words = f"rank {worst.rank} on {worst.node}{gpu} computes {share:.0%} longer than its peers{more}"
        return record(Outcome.FAIL, Reason.STRAGGLER, words, [rank.node for rank, _ in slow])
    if not test.metric:
        return record(Outcome.PASS, Reason.NONE, "")
    # A collective is as slow as its slowest rank.
    value = min(e.report.value for e in ends if e.report is not None and e.report.value is not None)
    return msgspec.structs.replace(record(Outcome.PASS, Reason.NONE, ""), value=value, unit=test.unit)


def _unusable(how: HowEnded) -> tuple[Outcome, Reason]:
    if how is HowEnded.REFUSED:
        return Outcome.INVALID, Reason.SCHEDULING
    return Outcome.UNKNOWN, Reason.HARNESS


_TELLING = (
    Reason.HARDWARE,
    Reason.NUMERIC,
    Reason.COMPUTE,
    Reason.TRANSPORT,
    Reason.BANDWIDTH,
    Reason.STRAGGLER,
    Reason.LINK,
    Reason.CRASH,
    Reason.HANG,
    Reason.TIMEOUT,
)
"""Reasons for which a run may fail, the most telling first: what one rank saw beats what its peers suffered."""

_NOT_EVIDENCE = (Reason.HARNESS, Reason.SCHEDULING, Reason.BUDGET, Reason.NO_PARTNER)


def _harness_error(test: CatalogueTest, end: RankEnd) -> str:
    """Why what the rank says cannot be used, or nothing."""
    if end.how is HowEnded.MUTE:
        return f"{end.node}: the test program ended without a readable report"
    report = end.report
    if report is None:
        return ""
    if report.node != end.node:
        return f"{end.node}: the report is about {report.node[:60]}"
    if not report.ok:
        return f"{end.node}: {report.message}" if report.reason in _NOT_EVIDENCE else ""
    if test.metric and (report.value is None or report.value <= 0 or report.unit != test.unit):
        return f"{end.node}: the report holds no positive number in {test.unit}"
    return ""


def _failure(end: RankEnd) -> Reason | None:
    """Why the rank failed; None when it did not."""
    match end.how:
        case HowEnded.CRASHED:
            return Reason.CRASH
        case HowEnded.TIMEOUT:
            return Reason.TIMEOUT
        case HowEnded.REPORTED:
            if end.report is None or end.report.ok:
                return None
            # The vocabulary of programs is open; a word that is not known still is a failed test.
            return next((r for r in _TELLING if r.value == end.report.reason), Reason.CRASH)
        case HowEnded.MUTE | HowEnded.REFUSED | HowEnded.DISTURBED | HowEnded.OVERDUE:
            return None
        case _:
            assert_never(end.how)


def _suspects(failed: Sequence[tuple[RankEnd, Reason]]) -> list[str]:
    named = [name for end, _ in failed if end.report is not None for name in end.report.suspects]
    return named + [end.node for end, _ in failed if end.how is not HowEnded.REPORTED]


def _words(end: RankEnd) -> str:
    return end.report.message if end.report is not None and end.report.message else end.message
