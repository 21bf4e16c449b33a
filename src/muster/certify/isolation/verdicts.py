"""From the evidence to a verdict for each node and link, with the runs for and against it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from muster.certify.isolation.cell import CellState
from muster.certify.isolation.layers import Subject, fleet_rails, rail_variant
from muster.certify.isolation.likelihood import spurious_rate
from muster.certify.isolation.node_verdicts import EVIDENCE_LIMIT, NodeVerdicts, significant, the_worst
from muster.certify.isolation.plan import Plan, Verdicts
from muster.certify.isolation.shared import Part
from muster.certify.isolation.tallies import Pair, pair_of
from muster.resources.certification import (
    Cost,
    FaultAt,
    Layer,
    LinkResult,
    NodeResult,
    NodeVerdict,
    Outcome,
    RunRecord,
)


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


class _CellVerdicts(NodeVerdicts):
    """Verdicts on the nodes, links and shared parts of one cell."""

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
                    layer=self._path_layer((a, b)),
                    rail=self._path_rail((a, b)),
                    verdict=NodeVerdict.FAILED,
                    message=f"The pair failed {len(direct)} run(s), both ends pass with others{the_worst(direct)}.",
                    evidence=tuple(r.id for r in runs)[-EVIDENCE_LIMIT:],
                    error_bound=significant(min(1.0, bound)),
                )
            )
        results += [*self._shared(), *self._rails()]
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

    def _shared(self) -> list[LinkResult]:
        """Trunks, ways out of a domain and racks."""
        results = []
        limit = self.screening.limits.shared
        for shared in self.screening.bad_shared:
            if shared.part is Part.SPINE:
                continue  # A rail, if one can be named; otherwise a sentence among the unresolved.
            pairs = self.screening.judgement.shared_runs[shared].failed
            runs = self._failed_runs(pairs)
            at = FaultAt.TRUNK if shared.part is Part.TRUNK else FaultAt.DOMAIN
            words = {
                Part.TRUNK: f"between {shared.a} and {shared.b}; pairs inside them, and with others, pass",
                Part.UPLINK: f"out of {shared.a}; pairs inside it pass",
                Part.RACK: f"with nodes of {shared.a}, inside it too; its nodes are not judged one by one",
            }[shared.part]
            results.append(
                LinkResult(
                    a=shared.a,
                    b=shared.b,
                    at=at,
                    layer=self._path_layer(pairs[0])
                    or (Layer.UNKNOWN if shared.part is Part.RACK else Layer.NETWORK),
                    verdict=NodeVerdict.FAILED,
                    message=f"{len(pairs)} different pairs failed {words}{the_worst(runs)}.",
                    evidence=tuple(r.id for r in runs)[-EVIDENCE_LIMIT:],
                    error_bound=significant(
                        min(1.0, self.plan.budget.max_false_blame * limit / self.screening.judgement.shared[shared])
                    ),
                )
            )
        return results

    def _path(self, pair: Pair) -> Subject | None:
        return next((s for s in self.cell.subjects if s.nodes == pair), None)

    def _path_layer(self, pair: Pair) -> Layer:
        subject = self._path(pair)
        return self.cell.layers.layer(self.plan, subject) if subject is not None else Layer.UNKNOWN

    def _path_rail(self, pair: Pair) -> int | None:
        subject = self._path(pair)
        rails = self.cell.layers.bad_rails(self.plan, subject, self.cell.rails) if subject is not None else ()
        return rails[0] if len(rails) == 1 else None

    def _rails(self) -> list[LinkResult]:
        """NICs of nodes that failed, and rails that fail for everybody."""
        results = []
        for subject in self.cell.subjects if not self.cell.fleet_pairs else ():
            if len(subject.nodes) > 1:
                continue
            name = subject.nodes[0]
            for rail in self.cell.layers.bad_rails(self.plan, subject, self.cell.rails):
                runs = self._rail_runs((name,), rail)
                bound = self.node(name).error_bound
                results.append(self._rail(name, rail, runs, "other rails of the node pass", bound))
        limits = self.screening.limits
        for rail in fleet_rails(self.cell.layers, self.plan, self.cell.fleet_pairs, self.cell.rails):
            runs = self._rail_runs([s.nodes[0] for s in self.cell.fleet_pairs], rail)
            # Chance would have to fail every run; the rate it is taken to have is the one of pairs.
            bound = len(runs) and limits.shared * spurious_rate(0.0, 0.0) ** len(runs)
            words = f"for all {len(self.cell.fleet_pairs)} pairs looked at, other rails pass for all"
            results.append(self._rail("", rail, runs, words, min(1.0, bound * self.plan.budget.max_false_blame)))
        return results

    def _rail_runs(self, names: Sequence[str], rail: int) -> list[RunRecord]:
        found = {
            r.id: r
            for name in names
            for r in self.by_node.get(name, [])
            if r.variant == rail_variant(rail) and r.outcome is Outcome.FAIL
        }
        return [found[i] for i in sorted(found)]

    def _rail(self, name: str, rail: int, runs: Sequence[RunRecord], words: str, bound: float | None) -> LinkResult:
        return LinkResult(
            a=name,
            at=FaultAt.RAIL,
            rail=rail,
            layer=Layer.NETWORK,
            verdict=NodeVerdict.FAILED,
            message=f"Rail {rail} failed {len(runs)} run(s), {words}{the_worst(runs)}.",
            evidence=tuple(r.id for r in runs)[-EVIDENCE_LIMIT:],
            error_bound=None if bound is None else significant(bound),
        )

    def _failed_runs(self, pairs: Sequence[Pair]) -> list[RunRecord]:
        """Failed runs of exactly these pairs, in the order in which they were made."""
        wanted = frozenset(pairs)
        found = {
            r.id: r
            for name in sorted({end for pair in pairs for end in pair})
            for r in self.by_node.get(name, [])
            if r.outcome is Outcome.FAIL and len(r.nodes) == 2 and pair_of(*r.nodes) in wanted and not r.variant
        }
        return [found[i] for i in sorted(found)]

    def unresolved(self) -> list[str]:
        found = []
        rails = fleet_rails(self.cell.layers, self.plan, self.cell.fleet_pairs, self.cell.rails)
        if any(s.part is Part.SPINE for s in self.screening.bad_shared) and not rails:
            found.append("Pairs inside the domains pass, and none between domains does; no rail could be named.")
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
