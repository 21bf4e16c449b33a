"""A verdict for each node of a cell, with the runs for and against it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from muster.certify.isolation.cell import CellState
from muster.certify.isolation.group import Group
from muster.certify.isolation.narrowing import scale_ratio
from muster.certify.isolation.plan import WITHDRAWN, Plan
from muster.resources.certification import (
    Layer,
    NodeResult,
    NodeVerdict,
    Outcome,
    Reason,
    RunRecord,
)

EVIDENCE_LIMIT = 24
"""Run IDs kept per verdict and side, the latest: the status of a large certification must stay small."""

_GOOD = (Outcome.PASS, Outcome.WARN)


class NodeVerdicts:
    """Verdicts on the nodes of one cell."""

    def __init__(
        self,
        plan: Plan,
        cell: CellState,
        by_node: Mapping[str, list[RunRecord]],
        withdrawn: Mapping[str, RunRecord],
        spent: str,
    ) -> None:
        self.plan = plan
        self.cell = cell
        self.screening = cell.screening
        self.by_node = by_node
        self.withdrawn = withdrawn
        self.spent = spent

    def node(self, name: str) -> NodeResult:
        records = [r for r in self.by_node.get(name, []) if r.test != WITHDRAWN]
        failed_test, ratio, limit = self._condemnation(name)
        if failed_test:
            return self._failed(name, records, failed_test, ratio, limit)
        if name in self.withdrawn:
            return self._open(name, records, self.withdrawn[name].reason, self.withdrawn[name].message)
        missing = self._missing(name)
        if missing is not None:
            return self._open(name, records, *missing)
        passed, failed = ids(records, good=True), ids(records, good=False)
        flakes = f"; {len(failed)} failed run(s) have another cause" if failed else ""
        return NodeResult(
            name=name,
            verdict=NodeVerdict.PASSED,
            message=f"Passed {len(passed)} run(s){flakes}.",
            evidence_for=passed[-EVIDENCE_LIMIT:],
            evidence_against=failed[-EVIDENCE_LIMIT:],
            metrics=self._metrics(records),
        )

    def _condemnation(self, name: str) -> tuple[str, float, float]:
        """(test, ratio, threshold that stands for the allowed error), the test empty for a node that is not bad."""
        limits = self.screening.limits
        local = self.screening.local_failed(name)
        if local and self.screening.local_ratio(name, local) >= limits.local:
            return local, self.screening.local_ratio(name, local), limits.local
        if local:
            return local, self.screening.slowness[local].ratio(name), limits.number
        pair = self.plan.pair_test()
        if pair is not None and self.screening.pair_failed(name):
            return pair.name, self.screening.judgement.nodes[name], limits.pair
        for group in self.cell.groups:
            if name in group.bad:
                return group.test, scale_ratio(group.grid, group.scale_verdicts[name]), limits.group
        return "", 0.0, 1.0

    def _failed(self, name: str, records: list[RunRecord], test: str, ratio: float, limit: float) -> NodeResult:
        against = [r for r in records if r.test == test and r.outcome is Outcome.FAIL]
        if limit == self.screening.limits.number and test == self.screening.slow_in(name):
            return self._slow(name, records, test, ratio)
        others = sorted({n for r in against for n in r.nodes if n != name})
        with_whom = f" with {len(others)} other node(s)" if others else ""
        layer, words = self._layer(name, test)
        return NodeResult(
            name=name,
            verdict=NodeVerdict.FAILED,
            reason=usual(against),
            layer=layer,
            message=f"Failed {test} in {len(against)} run(s){with_whom}{the_worst(against)}.{words}",
            evidence_for=ids(records, good=False)[-EVIDENCE_LIMIT:],
            evidence_against=ids(records, good=True)[-EVIDENCE_LIMIT:],
            error_bound=significant(min(1.0, self.plan.budget.max_false_blame * limit / ratio)),
            metrics=self._metrics(records),
        )

    def _slow(self, name: str, records: list[RunRecord], test: str, ratio: float) -> NodeResult:
        """A node whose numbers are low on average; single ones may have passed."""
        slowness, limit = self.screening.slowness[test], self.screening.limits.number
        mine = [r for r in records if r.test == test and r.value is not None]
        words = f"{len(slowness.numbers[name])} numbers of {test} lie {slowness.deficit(name):.1%} under the median"
        return NodeResult(
            name=name,
            verdict=NodeVerdict.FAILED,
            reason=self.plan.test(test).below,
            layer=self.plan.test(test).layer,
            message=f"{words} of {len(slowness.numbers)} nodes on average; a healthy node reaches "
            f"{slowness.healthy:.1%} under it at most.",
            evidence_for=tuple(r.id for r in mine)[-EVIDENCE_LIMIT:],
            evidence_against=ids([r for r in records if r.test != test], good=True)[-EVIDENCE_LIMIT:],
            error_bound=significant(min(1.0, self.plan.budget.max_false_blame * limit / ratio)),
            metrics=self._metrics(records),
        )

    def _layer(self, name: str, test: str) -> tuple[Layer, str]:
        """The layer in which a condemned node fails, and how one knows."""
        subject = next((s for s in self.cell.subjects if s.nodes == (name,) and s.test == test), None)
        if subject is None:
            return self.plan.test(test).layer, ""
        layer, layers = self.cell.layers.layer(self.plan, subject), self.cell.layers
        rails = layers.bad_rails(self.plan, subject, self.cell.rails)
        if rails:
            return layer, f" Over one NIC at a time only rail {', '.join(map(str, rails))} fails."
        net = self.plan.variant_of(test, "net")
        if net is not None and layer is Layer.NVLINK:
            return layer, f" It passes {net.name}: the fault is in NVLink."
        if subject.network:
            return layer, " Inside its domain it passes: the fault is in what leaves the domain."
        return layer, f" It fails {net.name} too." if net is not None and layer is Layer.NETWORK else ""

    def _open(self, name: str, records: list[RunRecord], reason: Reason, message: str) -> NodeResult:
        measured = any(r.outcome in (*_GOOD, Outcome.FAIL) for r in records)
        return NodeResult(
            name=name,
            verdict=NodeVerdict.UNDETERMINED if measured else NodeVerdict.UNTESTED,
            reason=reason,
            message=message,
            evidence_for=ids(records, good=True)[-EVIDENCE_LIMIT:],
            evidence_against=ids(records, good=False)[-EVIDENCE_LIMIT:],
            metrics=self._metrics(records),
        )

    def _missing(self, name: str) -> tuple[Reason, str] | None:
        """Why a node that is not condemned cannot pass, or None."""
        screening = self.screening
        records = self.by_node.get(name, [])
        unspent = Reason.BUDGET if self.spent else None
        if name in screening.given_up:
            wasted = [r for r in records if r.outcome in (Outcome.INVALID, Outcome.UNKNOWN)]
            return usual(wasted) or Reason.HARNESS, f"{screening.given_up[name]}{last_word(wasted)}."
        failed = [r for r in records if r.outcome is Outcome.FAIL]
        for test in self.plan.local_tests():
            if not screening.local_done(name, test.name):
                mine = [r for r in failed if r.test == test.name]
                return unspent or usual(mine) or Reason.BUDGET, f"{test.name} is not decided{the_worst(mine)}."
        if name in screening.in_bad_rack:
            return (
                Reason.LINK,
                f"Everything in {screening.domains[name]} fails: the domain is at fault, not its nodes.",
            )
        if name in screening.behind_bad_way:
            return (
                Reason.LINK,
                f"Nothing out of {screening.domains[name]} passes, so the node is not proven beyond it.",
            )
        pair = self.plan.pair_test()
        if pair is not None:
            mine = [r for r in failed if r.test == pair.name]
            if name in screening.suspects:
                why = "no further proven partner" if unspent is None else "the budget is spent"
                return unspent or Reason.NO_PARTNER, f"Failed {len(mine)} pair run(s), not decided: {why}."
            towards = screening.unproven_way(name)
            if towards:
                return (
                    Reason.LINK,
                    f"The link to {towards} is bad, and nobody else beyond {screening.domains[name]} is left to tell "
                    "it from the way out of the node itself.",
                )
            if not screening.pairs.passes.get(name, 0):
                return unspent or Reason.NO_PARTNER, "No pair run: there is no partner to test this node with."
        for index, test in enumerate(self.plan.group_tests()):
            group = self.cell.groups[index] if index < len(self.cell.groups) else None
            missing = self._missing_in(group, name, unspent)
            if missing is not None:
                reason, words = missing
                return reason, f"{test.name}: {words}."
        return None

    def _missing_in(self, group: Group | None, name: str, unspent: Reason | None) -> tuple[Reason, str] | None:
        if group is None:
            return unspent or Reason.NO_PARTNER, "the group run was not reached"
        if name in group.covered:
            return None
        for members in group.unresolved:
            if name in members:
                against = [r for r in self.by_node[name] if r.test == group.test and r.outcome is Outcome.FAIL]
                return (
                    unspent or usual(against) or Reason.HARNESS,
                    f"a group of {len(members)} with this node fails, and it could not be narrowed down",
                )
        return unspent or Reason.NO_PARTNER, "no group run with this node passed"

    def _metrics(self, records: Sequence[RunRecord]) -> dict[str, float]:
        """Best number per test among the runs that passed."""
        best: dict[str, float] = {}
        keys = {test.name: test.metric_key for test in self.plan.tests}
        for record in records:
            key = keys.get(record.test, "")
            if key and record.value is not None and record.outcome in _GOOD:
                best[key] = max(record.value, best.get(key, record.value))
        return dict(sorted(best.items()))


def ids(records: Sequence[RunRecord], *, good: bool) -> tuple[str, ...]:
    wanted = _GOOD if good else (Outcome.FAIL,)
    return tuple(r.id for r in records if r.outcome in wanted)


def usual(records: Sequence[RunRecord]) -> Reason:
    """The most frequent reason; of equally frequent ones the first by name."""
    counts = Counter(r.reason for r in records if r.reason is not Reason.NONE)
    return min(counts, key=lambda reason: (-counts[reason], reason.value)) if counts else Reason.NONE


def the_worst(records: Sequence[RunRecord]) -> str:
    """The worst number among `records` in words, with its floor."""
    measured = [r for r in records if r.value is not None]
    if not measured:
        return last_word(records)
    worst = min(measured, key=lambda r: (r.value or 0.0, r.id))
    number = f"{worst.value:.4g} {worst.unit}"
    if worst.floor is not None and worst.value is not None and worst.value < worst.floor:
        return f": {number}, floor {worst.floor:g}"
    # Above the floor, or without one, it failed by comparison; only the run itself says with whom.
    said = worst.message.rstrip(".")[:200]
    return f": {said}" if number in said else f": {number}; {said}" if said else f": {number}"


def last_word(records: Sequence[RunRecord]) -> str:
    said = [r.message for r in records if r.message]
    return f": {said[-1].rstrip('.')[:200]}" if said else ""


def significant(value: float) -> float:
    return float(f"{value:.2g}")
