"""Four racks of eighteen nodes, one fault or several at once: exactly what is broken is named, wherever it sits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from msgspec.structs import replace

from muster.certify.isolate import begin, next_round, observe
from muster.certify.isolation.plan import Plan, PlannedRun, Round, Verdicts
from muster.certify.isolation.tallies import Pair, pair_of
from muster.certify.truth import Truth, carry_out, compare
from muster.resources.certification import FaultAt, Layer, NodeVerdict, Outcome, Reason, RunRecord
from tests.certify import fleets
from tests.certify.fleets import name

LAYERS = ("pair", "pair-net", "pair-rail", "all-to-all")
RACK = 18


def racks(nodes: int = 4 * RACK, tests: Sequence[str] = LAYERS, *, matchings: int = 2, seed: int = 0) -> Plan:
    """The fleet with a rack as the failure domain."""
    plan = fleets.plan(nodes, tests, matchings=matchings, seed=seed)
    (cell,) = plan.cells
    targets = tuple(replace(m, domain=f"rack-{i // RACK}") for i, m in enumerate(cell.targets))
    return replace(plan, cells=(replace(cell, targets=targets),))


def domains(plan: Plan) -> dict[str, str]:
    return {m.name: m.domain for cell in plan.cells for m in cell.targets}


def failed(verdicts: Verdicts) -> set[str]:
    return {v.name for v in verdicts.nodes if v.verdict is NodeVerdict.FAILED}


def bad_parts(verdicts: Verdicts) -> set[tuple[FaultAt, str, str]]:
    return {(v.at, v.a, v.b) for v in verdicts.links if v.verdict is NodeVerdict.FAILED}


FAULTS: dict[str, dict[str, Any]] = {
    "none": {},
    "one node": {"nodes": {name(40): 1.0}},
    "five nodes in three racks": {"nodes": {name(i): 1.0 for i in (3, 11, 25, 26, 70)}},
    "NVLink of one node": {"nvlink": {name(5): 1.0}},
    "network of one node": {"network": {name(41): 1.0}},
    "NVLink of one node and the network of another": {"nvlink": {name(5): 1.0}, "network": {name(41): 1.0}},
    "path between the first and the third rack": {"trunks": {("rack-0", "rack-2"): 1.0}},
    "path between the first two racks": {"trunks": {("rack-0", "rack-1"): 1.0}},
    "path between two racks and a node of a third": {
        "trunks": {("rack-0", "rack-1"): 1.0},
        "nodes": {name(60): 1.0},
    },
    "link in one rack and a node of another": {"links": {(name(2), name(15)): 1.0}, "nodes": {name(30): 1.0}},
    "nodes that fail in large groups only, beside a dead one": {
        "scale": {name(7): 9, name(50): 9},
        "nodes": {name(30): 1.0},
    },
}


@pytest.mark.parametrize("case", FAULTS)
def test_what_is_broken_is_named_and_nobody_else(case: str) -> None:
    plan = racks()
    truth = Truth(domains=domains(plan), **FAULTS[case])
    verdicts, _ = carry_out(plan, truth.answer)
    found = compare(truth, verdicts)
    assert failed(verdicts) == truth.bad_nodes
    assert found.named_links == truth.bad_links
    assert found.named_shared == truth.bad_shared
    assert not found.blamed
    assert not found.undetermined
    assert verdicts.unresolved == ()


@pytest.mark.parametrize("position", range(0, 4 * RACK, 5))
def test_a_network_that_fails_is_found_on_every_node_and_not_only_on_the_first_of_a_rack(position: int) -> None:
    """Every node takes part in runs that leave its rack: no node speaks for its neighbours."""
    plan = racks()
    truth = Truth(domains=domains(plan), network={name(position): 1.0})
    verdicts, _ = carry_out(plan, truth.answer)
    assert failed(verdicts) == {name(position)}
    assert compare(truth, verdicts).exact


@dataclass(frozen=True)
class NvlinkPath:
    """A path that fails over NVLink only; the same nodes talk well with NVLink off."""

    ends: Pair

    def answer(self, step: Round, _before: Sequence[RunRecord] = ()) -> list[RunRecord]:
        return [self._record(run) for run in step.runs]

    def _record(self, run: PlannedRun) -> RunRecord:
        hit = set(self.ends) <= set(run.nodes) and run.test in ("pair", "all-to-all")
        return RunRecord(
            id=run.id,
            round=run.round,
            test=run.test,
            nodes=run.nodes,
            outcome=Outcome.FAIL if hit else Outcome.PASS,
            reason=Reason.BANDWIDTH if hit else Reason.NONE,
            variant=run.variant,
        )


@pytest.mark.parametrize("ends", [(0, 17), (0, 1), (4, 12)])
def test_a_path_that_fails_over_nvlink_only_is_no_passing_trouble(ends: tuple[int, int]) -> None:
    pair = pair_of(name(ends[0]), name(ends[1]))
    verdicts, _ = carry_out(racks(RACK), NvlinkPath(pair).answer)
    assert failed(verdicts) == set()
    assert bad_parts(verdicts) == {(FaultAt.LINK, *pair)}
    (link,) = [v for v in verdicts.links if v.verdict is NodeVerdict.FAILED]
    assert link.layer in (Layer.NVLINK, Layer.UNKNOWN)


Chosen = Callable[[PlannedRun], bool]


def _fails_once(plan: Plan, chosen: Chosen) -> Verdicts:
    """Carry the plan out with one failure, in the first run that is `chosen`, and never again."""
    state = begin(plan)
    done = False
    while isinstance(step := next_round(state), Round):
        records = Truth().answer(step)
        for index, run in enumerate(step.runs):
            if not done and chosen(run):
                done = True
                records[index] = replace(records[index], outcome=Outcome.FAIL, reason=Reason.CRASH)
        state = observe(state, records)
    assert done
    return step


@pytest.mark.parametrize(
    "chosen",
    [lambda run: run.test == "pair", lambda run: len(run.nodes) > 2, lambda run: run.test == "host"],
    ids=["pair", "group", "node"],
)
def test_what_fails_once_and_never_again_leaves_no_blame(chosen: Chosen) -> None:
    plan = racks(RACK, ("host", "pair", "all-to-all"))
    verdicts = _fails_once(plan, chosen)
    assert failed(verdicts) == set()
    assert bad_parts(verdicts) == set()
    assert {v.verdict for v in verdicts.nodes} == {NodeVerdict.PASSED}


def test_one_failed_run_of_everybody_blames_nobody_by_itself() -> None:
    """The run over all nodes fails because of one: the others are cleared by what they do without it."""
    plan = racks(4 * RACK, ("all-to-all", "pair"))
    truth = Truth(scale={name(33): 3})
    verdicts, state = carry_out(plan, truth.answer)
    whole = [r for r in state.records if len(r.nodes) == 4 * RACK]
    assert whole
    assert whole[0].outcome is Outcome.FAIL
    assert failed(verdicts) == {name(33)}
    assert sum(v.verdict is NodeVerdict.PASSED for v in verdicts.nodes) == 4 * RACK - 1


@pytest.mark.parametrize("least", [3, 9, 20, 36])
def test_groups_keep_half_the_size_of_the_fleet_while_a_fault_is_narrowed(least: int) -> None:
    """Smaller groups would clear a fault that shows in large ones, and thresholds depend on the size."""
    plan = racks(4 * RACK, ("pair", "all-to-all"))
    truth = Truth(scale={name(33): least})
    sizes: set[int] = set()
    state = begin(plan)
    while isinstance(step := next_round(state), Round):
        sizes |= {len(run.nodes) for run in step.runs if run.test == "all-to-all"}
        state = observe(state, truth.answer(step))
    assert compare(truth, step).exact
    assert min(sizes) == 2 * RACK
