"""What a run measured: from the reports of its ranks to one outcome. Pure.

Order of judgement: a run that never ran properly is INVALID; a rank that failed fails the run; a number that is
missing makes it UNKNOWN; a number under the floor, or far under its peers, fails it. A run is judged, never a node: that
a pair is slow says nothing about which end is slow, isolation finds that out with other partners.

Peers are runs of the same test over the same number of nodes and the same architecture, in this round and in history.
Comparison is one-sided and robust (median and MAD, both unharmed by up to half of the values): a run fails when it is
slower than the median by `z_limit(n)` scaled MADs and by LEAST_DROP. For normal noise at most FALSE_ALARMS runs of a
round with n peers fail wrongly, whatever n is; isolation allows for 1 % of all runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from statistics import NormalDist, median

import msgspec

from muster.certify.catalogue import CatalogueTest, Scope
from muster.resources.certification import Outcome, Reason, RunRecord

FALSE_ALARMS = 0.05
"""Expected number of healthy runs failed by comparison, per round of a fleet, normal noise assumed."""

LEAST_PEERS = 4
"""Fewer values than this have no meaningful spread."""

LEAST_DROP = 0.02
"""Smaller differences are never called slow, however small the spread is."""

SPREAD_FLOOR = 0.005
"""The scaled MAD counts as at least this share of the median: values that are almost equal must not explode."""

GROUP_RATIO = 0.7
"""Without a floor and without peers of the same size, a group fails below this share of the best group of any size."""

MESSAGE_LIMIT = 200
_MAD_TO_SIGMA = 1.4826


class End(Enum):
    """How the pod of a rank ended."""

    REPORTED = auto()
    CRASHED = auto()
    """Ended without a readable report."""
    TIMED_OUT = auto()
    """Stopped at the deadline of the test."""
    NEVER_RAN = auto()
    """Not started within the time for scheduling, or refused by the node."""
    LOST = auto()
    """Taken away by something else: evicted, deleted, the node vanished."""


class RankReport(msgspec.Struct, frozen=True, kw_only=True):
    """What one rank says: the JSON of its termination message."""

    node: str
    ok: bool
    value: float | None = None
    unit: str = ""
    reason: str = ""
    suspects: tuple[str, ...] = ()
    message: str = ""


_decoder = msgspec.json.Decoder(RankReport)


def read_report(text: str, node: str) -> RankReport | None:
    """The report in a termination message, or None when it is not one, or not one of this node."""
    try:
        report = _decoder.decode(text.encode())
    except (msgspec.MsgspecError, UnicodeEncodeError):
        return None
    finite = report.value is None or abs(report.value) < 1e12
    return report if report.node == node and finite else None


@dataclass(frozen=True)
class RankEnd:
    """The end of one rank; `report` only with REPORTED. `message` says what Kubernetes said."""

    node: str
    end: End
    report: RankReport | None = None
    message: str = ""


@dataclass(frozen=True)
class FinishedRun:
    """A run with the ends of its ranks in rank order. Only runs of one `architecture` are compared."""

    id: str
    round: int
    test: CatalogueTest
    ranks: tuple[RankEnd, ...]
    floor: float | None = None
    architecture: str = ""

    @property
    def nodes(self) -> tuple[str, ...]:
        return tuple(rank.node for rank in self.ranks)


Shape = tuple[str, str, int]
"""Test, architecture, number of nodes: runs of one shape are peers."""


def judge_round(runs: Sequence[FinishedRun], history: Mapping[Shape, Sequence[float]]) -> tuple[RunRecord, ...]:
    """Records of the runs, in their order. `history`: numbers of earlier good runs by shape."""
    raw = [_without_comparison(run) for run in runs]
    peers: dict[Shape, list[float]] = {shape: list(values) for shape, values in history.items()}
    for run, record in zip(runs, raw, strict=True):
        if record.outcome is Outcome.PASS and record.value is not None:
            peers.setdefault(_shape(run), []).append(record.value)
    return tuple(_compared(run, record, peers) for run, record in zip(runs, raw, strict=True))


def _shape(run: FinishedRun) -> Shape:
    return (run.test.name, run.architecture, len(run.ranks))


def _without_comparison(run: FinishedRun) -> RunRecord:
    """Everything that the run says by itself; PASS is provisional."""

    def record(
        outcome: Outcome,
        reason: Reason = Reason.NONE,
        message: str = "",
        *,
        suspects: tuple[str, ...] = (),
        value: float | None = None,
    ) -> RunRecord:
        return RunRecord(
            id=run.id,
            round=run.round,
            test=run.test.name,
            nodes=run.nodes,
            outcome=outcome,
            reason=reason,
            value=value,
            unit=run.test.unit,
            floor=run.floor,
            suspects=suspects,
            message=message[:MESSAGE_LIMIT],
        )

    never = [r for r in run.ranks if r.end is End.NEVER_RAN]
    if never:
        names = tuple(r.node for r in never)
        return record(Outcome.INVALID, Reason.SCHEDULING, never[0].message or "never started", suspects=names)
    lost = [r for r in run.ranks if r.end is End.LOST]
    if lost:
        return record(Outcome.UNKNOWN, Reason.SCHEDULING, lost[0].message, suspects=tuple(r.node for r in lost))
    failed = _first_failure(run)
    if failed is not None:
        outcome, reason, message, suspects = failed
        return record(outcome, reason, message, suspects=suspects)
    reports = [r.report for r in run.ranks if r.report is not None]
    if not run.test.metric:
        return record(Outcome.PASS)
    if any(report.value is None for report in reports):
        return record(Outcome.UNKNOWN, Reason.HARNESS, "a rank reported no number")
    if any(report.unit != run.test.unit for report in reports):
        return record(Outcome.INVALID, Reason.HARNESS, f"a rank reported another unit than {run.test.unit}")
    value = min(report.value for report in reports if report.value is not None)
    said = next((report.message for report in reports if report.message), "")
    if run.floor is not None and value < run.floor:
        return record(Outcome.FAIL, run.test.below, said or "under the floor", value=value)
    return record(Outcome.PASS, message=said, value=value)


def _first_failure(run: FinishedRun) -> tuple[Outcome, Reason, str, tuple[str, ...]] | None:
    """What ranks without a good report make of the run."""
    crashed = [r for r in run.ranks if r.end is End.CRASHED]
    timed_out = [r for r in run.ranks if r.end is End.TIMED_OUT]
    complaints = [r.report for r in run.ranks if r.report is not None and not r.report.ok]
    for report in complaints:
        if _reason(report.reason) is Reason.HARNESS:
            return Outcome.INVALID, Reason.HARNESS, report.message, _hints(run, [report])
    if complaints:
        # The reports of those that know most come first: who names a suspect, then who names a reason.
        best = max(complaints, key=lambda r: (bool(r.suspects), bool(r.reason)))
        return Outcome.FAIL, _reason(best.reason), best.message, _hints(run, complaints)
    if crashed:
        message = crashed[0].message or "a rank ended without a report"
        return Outcome.FAIL, Reason.CRASH, message, tuple(r.node for r in crashed)
    if timed_out:
        return Outcome.FAIL, Reason.TIMEOUT, f"not finished after {run.test.deadline_s} s", ()
    return None


def _hints(run: FinishedRun, reports: Sequence[RankReport]) -> tuple[str, ...]:
    """Nodes of the run that ranks point at, sorted."""
    return tuple(sorted({name for report in reports for name in report.suspects if name in run.nodes}))


def _reason(word: str) -> Reason:
    """The reason that a rank gives; an unknown word is a crash, since the rank did fail."""
    known = {reason.value: reason for reason in Reason if reason is not Reason.NONE}
    return known.get(word, Reason.CRASH)


def _compared(run: FinishedRun, record: RunRecord, peers: Mapping[Shape, Sequence[float]]) -> RunRecord:
    """The record after comparison with peers; a number without anything to compare it with is no pass."""
    if record.outcome is not Outcome.PASS or record.value is None:
        return record
    values = peers[_shape(run)]
    if len(values) >= LEAST_PEERS:
        centre = median(values)
        if is_slow(record.value, values):
            drop = 100.0 * (1.0 - record.value / centre)
            said = f"{drop:.1f} % slower than the median of {len(values)} runs ({centre:.4g} {record.unit})"
            return msgspec.structs.replace(record, outcome=Outcome.FAIL, reason=Reason.STRAGGLER, message=said)
        return record
    if record.floor is not None:
        return record
    if run.test.scope is Scope.GROUP:
        return _against_other_sizes(run, record, peers)
    said = f"no floor is known and {len(values) - 1} peer(s) are too few to compare with"
    return msgspec.structs.replace(record, outcome=Outcome.UNKNOWN, reason=Reason.NONE, message=said)


def _against_other_sizes(run: FinishedRun, record: RunRecord, peers: Mapping[Shape, Sequence[float]]) -> RunRecord:
    """A group number beside groups of other sizes. busbw is made to be comparable across sizes, roughly."""
    best = max(
        (
            value
            for (test, architecture, size), values in sorted(peers.items())
            for value in values
            if test == run.test.name and architecture == run.architecture and size != len(run.ranks)
        ),
        default=None,
    )
    value = record.value or 0.0
    if best is None:
        said = "no floor is known and no other group to compare with"
        return msgspec.structs.replace(record, outcome=Outcome.UNKNOWN, message=said)
    if value < GROUP_RATIO * best:
        said = f"less than {GROUP_RATIO:.0%} of the best other group ({best:.4g} {record.unit})"
        return msgspec.structs.replace(record, outcome=Outcome.FAIL, reason=Reason.STRAGGLER, message=said)
    return record


def z_limit(peers: int) -> float:
    """How many scaled MADs below the median are slow, so that FALSE_ALARMS is kept for so many peers."""
    return NormalDist().inv_cdf(1.0 - min(0.01, FALSE_ALARMS / max(1, peers)))


def is_slow(value: float, values: Sequence[float]) -> bool:
    """Whether `value` is an outlier to the low side among `values` (which may hold it)."""
    centre = median(values)
    spread = max(_MAD_TO_SIGMA * median(abs(v - centre) for v in values), SPREAD_FLOOR * centre)
    drop = centre - value
    return drop > LEAST_DROP * centre and drop > z_limit(len(values)) * spread


def history_of(records: Sequence[RunRecord], architecture_of: Mapping[str, str]) -> dict[Shape, list[float]]:
    """Numbers that later runs are compared with: of good runs, and of group runs that had nothing to compare with.

    `architecture_of`: by node. Runs over nodes that are not in it are left out.
    """
    found: dict[Shape, list[float]] = {}
    for record in records:
        architecture = architecture_of.get(record.nodes[0]) if record.nodes else None
        unjudged = record.outcome is Outcome.UNKNOWN and len(record.nodes) > 2
        if record.value is None or architecture is None or not (record.outcome is Outcome.PASS or unjudged):
            continue
        found.setdefault((record.test, architecture, len(record.nodes)), []).append(record.value)
    return found
