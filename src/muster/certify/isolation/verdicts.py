"""From the evidence to a verdict for each node and link, with the runs for and against it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from muster.certify.isolation.cell import CellState
from muster.certify.isolation.group import Group
from muster.certify.isolation.narrowing import scale_ratio
from muster.certify.isolation.plan import WITHDRAWN, Plan, Verdicts
from muster.resources.certification import Cost, LinkResult, NodeResult, NodeVerdict, Outcome, Reason, RunRecord

EVIDENCE_LIMIT = 24
"""Run IDs kept per verdict and side, the latest: the status of a large certification must stay small."""

_GOOD = (Outcome.PASS, Outcome.WARN)


def verdicts(
    plan: Plan,
    cells: Sequence[CellState],
    records: Sequence[RunRecord],
    withdrawn: Mapping[str, RunRecord],
    cost: Cost,
    spent: str,
) -> Verdicts:
    """Verdicts on the evidence so far. Only what is proven passes; only what is proven bad fails."""
    by_node: dict[str, list[RunRecord]] = {}
    for record in records:
        for node in record.nodes:
            by_node.setdefault(node, []).append(record)
    nodes: list[NodeResult] = []
    links: list[LinkResult] = []
    unresolved: list[str] = []
    notes: list[str] = [f"The budget ended the certification: {spent}."] if spent else []
    for cell in cells:
        judge = _CellVerdicts(plan, cell, by_node, withdrawn, spent)
        nodes += [judge.node(name) for name in cell.screening.targets]
        links += judge.links()
        unresolved += judge.unresolved()
        notes += judge.partner_notes()
    for untested in plan.untested:
        nodes.append(
            NodeResult(
                name=untested.name, verdict=NodeVerdict.UNTESTED, reason=untested.reason, message=untested.message
            )
        )
    nodes.sort(key=lambda result: result.name)
    return Verdicts(tuple(nodes), tuple(links), tuple(unresolved), tuple(notes), cost)


class _CellVerdicts:
    """Verdicts of one cell."""

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
        passed, failed = _ids(records, good=True), _ids(records, good=False)
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
        if local:
            return local, self.screening.local_ratio(name, local), limits.local
        pair = self.plan.pair_test()
        if pair is not None and self.screening.pair_failed(name):
            return pair.name, self.screening.judgement.nodes[name], limits.pair
        for group in self.cell.groups:
            if name in group.bad:
                return group.test, scale_ratio(group.grid, group.scale_verdicts[name]), limits.group
        return "", 0.0, 1.0

    def _failed(self, name: str, records: list[RunRecord], test: str, ratio: float, limit: float) -> NodeResult:
        against = [r for r in records if r.test == test and r.outcome is Outcome.FAIL]
        others = sorted({n for r in against for n in r.nodes if n != name})
        with_whom = f" with {len(others)} other node(s)" if others else ""
        return NodeResult(
            name=name,
            verdict=NodeVerdict.FAILED,
            reason=_reason(against),
            message=f"Failed {test} in {len(against)} run(s){with_whom}{_number(against)}.",
            evidence_for=_ids(records, good=False)[-EVIDENCE_LIMIT:],
            evidence_against=_ids(records, good=True)[-EVIDENCE_LIMIT:],
            error_bound=_significant(min(1.0, self.plan.budget.max_false_blame * limit / ratio)),
            metrics=self._metrics(records),
        )

    def _open(self, name: str, records: list[RunRecord], reason: Reason, message: str) -> NodeResult:
        measured = any(r.outcome in (*_GOOD, Outcome.FAIL) for r in records)
        return NodeResult(
            name=name,
            verdict=NodeVerdict.UNDETERMINED if measured else NodeVerdict.UNTESTED,
            reason=reason,
            message=message,
            evidence_for=_ids(records, good=True)[-EVIDENCE_LIMIT:],
            evidence_against=_ids(records, good=False)[-EVIDENCE_LIMIT:],
            metrics=self._metrics(records),
        )

    def _missing(self, name: str) -> tuple[Reason, str] | None:
        """Why a node that is not condemned cannot pass, or None."""
        screening = self.screening
        records = self.by_node.get(name, [])
        unspent = Reason.BUDGET if self.spent else None
        if name in screening.given_up:
            wasted = [r for r in records if r.outcome in (Outcome.INVALID, Outcome.UNKNOWN)]
            return _reason(wasted) or Reason.HARNESS, f"{screening.given_up[name]}{_last_word(wasted)}."
        failed = [r for r in records if r.outcome is Outcome.FAIL]
        for test in self.plan.local_tests():
            if not screening.local_done(name, test.name):
                mine = [r for r in failed if r.test == test.name]
                return unspent or _reason(mine) or Reason.BUDGET, f"{test.name} is not decided{_number(mine)}."
        pair = self.plan.pair_test()
        if pair is not None:
            mine = [r for r in failed if r.test == pair.name]
            if name in screening.suspects:
                why = "no further proven partner" if unspent is None else "the budget is spent"
                return unspent or Reason.NO_PARTNER, f"Failed {len(mine)} pair run(s), not decided: {why}."
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
                    unspent or _reason(against) or Reason.HARNESS,
                    f"a group of {len(members)} with this node fails, and it could not be narrowed down",
                )
        return unspent or Reason.NO_PARTNER, "no group run with this node passed"

    def links(self) -> list[LinkResult]:
        results = []
        pair_test = self.plan.pair_test()
        for a, b in self.screening.bad_links:
            ratio = self.screening.judgement.links[a, b]
            runs = [r for r in self.by_node.get(a, []) if b in r.nodes and r.outcome is Outcome.FAIL]
            direct = [r for r in runs if pair_test is not None and r.test == pair_test.name]
            limits = self.screening.limits
            odds = self.screening.judgement.link_odds[a, b]
            bound = self.plan.budget.max_false_blame * max(limits.link / ratio, limits.link_odds / odds)
            results.append(
                LinkResult(
                    a=a,
                    b=b,
                    verdict=NodeVerdict.FAILED,
                    message=f"The pair failed {len(direct)} run(s), both ends pass with others{_number(direct)}.",
                    evidence=tuple(r.id for r in runs)[-EVIDENCE_LIMIT:],
                    error_bound=_significant(min(1.0, bound)),
                )
            )
        for pair in self.screening.open_links:
            tally = self.screening.pairs.tallies[pair]
            results.append(
                LinkResult(
                    a=pair[0],
                    b=pair[1],
                    verdict=NodeVerdict.UNDETERMINED,
                    message=f"The pair failed {tally.fails} and passed {tally.passes} run(s); not decided.",
                )
            )
        return results

    def unresolved(self) -> list[str]:
        found = []
        for group in self.cell.groups:
            found += [
                f"{group.test} over {len(members)} nodes ({members[0]} to {members[-1]}) fails; no node or link "
                "could be named."
                for members in group.unresolved
            ]
            if not group.done and self.spent and group.fails:
                found.append(
                    f"{group.test} over {len(group.sets[0])} nodes fails; the budget ended before the cause."
                )
        return found

    def partner_notes(self) -> list[str]:
        screening = self.screening
        notes = []
        for name in screening.partners:
            if name in screening.condemned or name in self.cell.group_bad:
                notes.append(f"The borrowed partner {name} failed itself; its runs count against nobody else.")
            elif name in screening.suspects:
                notes.append(f"The borrowed partner {name} is in doubt after failed runs.")
        return notes

    def _metrics(self, records: Sequence[RunRecord]) -> dict[str, float]:
        """Best number per test among the runs that passed."""
        best: dict[str, float] = {}
        keys = {test.name: test.metric_key for test in self.plan.tests}
        for record in records:
            key = keys.get(record.test, "")
            if key and record.value is not None and record.outcome in _GOOD:
                best[key] = max(record.value, best.get(key, record.value))
        return dict(sorted(best.items()))


def _ids(records: Sequence[RunRecord], *, good: bool) -> tuple[str, ...]:
    wanted = _GOOD if good else (Outcome.FAIL,)
    return tuple(r.id for r in records if r.outcome in wanted)


def _reason(records: Sequence[RunRecord]) -> Reason:
    """The most frequent reason; of equally frequent ones the first by name."""
    counts = Counter(r.reason for r in records if r.reason is not Reason.NONE)
    return min(counts, key=lambda reason: (-counts[reason], reason.value)) if counts else Reason.NONE


def _number(records: Sequence[RunRecord]) -> str:
    """The worst number among `records` in words, with its floor."""
    measured = [r for r in records if r.value is not None]
    if not measured:
        return _last_word(records)
    worst = min(measured, key=lambda r: (r.value or 0.0, r.id))
    number = f"{worst.value:.4g} {worst.unit}"
    if worst.floor is not None and worst.value is not None and worst.value < worst.floor:
        return f": {number}, floor {worst.floor:g}"
    # Above the floor, or without one, it failed by comparison; only the run itself says with whom.
    said = worst.message.rstrip(".")[:200]
    return f": {said}" if number in said else f": {number}; {said}" if said else f": {number}"


def _last_word(records: Sequence[RunRecord]) -> str:
    said = [r.message for r in records if r.message]
    return f": {said[-1].rstrip('.')[:200]}" if said else ""


def _significant(value: float) -> float:
    return float(f"{value:.2g}")
