"""The matrix has teeth: each of these mistakes, planted into the code, is found by some of its cases."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace as with_fields

from muster.faults import assembly
from muster.operate import draft, lifecycle, people, projection, proof, remedy, repair_controller, repairs
from muster.operate.budget import Grant
from muster.operate.carry_out import Writer
from muster.operate.draft import Draft
from muster.operate.model import CreateRepair
from muster.operate.policy import judge
from muster.operate.projection import CordonChange
from muster.operate.proof import Proof, ProofState
from muster.operate.providers.turn import turns
from muster.resources.fault import Severity
from muster.resources.node_health import State
from muster.resources.repair import RepairPhase
from tests.matrix.axes import Case, cases_quick
from tests.matrix.play import play

Plant = Callable[[pytest.MonkeyPatch], None]
TRIES = 20
"""Cases of the quick array that a mistake may survive."""


def lift_any_cordon(m: pytest.MonkeyPatch) -> None:
    true = projection.cordon

    def wrong(life: Any, unschedulable: bool, cordoned_by: str) -> CordonChange:
        if unschedulable and not life.cordon:
            return CordonChange(unschedulable=False, annotation="")
        return true(life, unschedulable, cordoned_by)

    m.setattr(projection, "cordon", wrong)


def adopt_a_persons_cordon(m: pytest.MonkeyPatch) -> None:
    """The cordon that was there before is forgotten: it is marked as ours, and goes with ours."""
    true = projection.cordon

    def wrong(life: Any, unschedulable: bool, cordoned_by: str) -> CordonChange:
        if life.cordon and unschedulable and not cordoned_by:
            return CordonChange(annotation=life.episode.id if life.episode else "")
        return true(life, unschedulable, cordoned_by)

    m.setattr(projection, "cordon", wrong)


def create_a_repair_twice(m: pytest.MonkeyPatch) -> None:
    true = Writer.intent

    async def wrong(self: Writer, intent: Any) -> Any:
        if isinstance(intent, CreateRepair):
            meta = with_fields(intent.repair.metadata, name=intent.repair.metadata.name + "-again")
            await true(self, CreateRepair(with_fields(intent.repair, metadata=meta)))
        return await true(self, intent)

    m.setattr(Writer, "intent", wrong)


def ask_again_for_a_deleted_repair(m: pytest.MonkeyPatch) -> None:
    """That it was there once is forgotten."""
    m.setattr(remedy, "_seen", lambda *_: None)
    m.setattr(repairs, "done_without_object", lambda *_: None)


def ignore_a_cancel(m: pytest.MonkeyPatch) -> None:
    true = turns

    def wrong(there: Any, *rest: Any) -> Any:
        return true([with_fields(r, spec=with_fields(r.spec, cancel=False)) for r in there], *rest)

    m.setattr(repair_controller, "turns", wrong)


def close_by_the_reading_of_another_check(m: pytest.MonkeyPatch) -> None:
    m.setattr(assembly, "_is", lambda fault, _check, key, _code: key in (None, fault.entity.key()))


def skip_the_budget(m: pytest.MonkeyPatch) -> None:
    m.setattr(Draft, "ask_budget", lambda self, *, approved=False: Grant())


def believe_the_provider(m: pytest.MonkeyPatch) -> None:
    true = proof.judge_repair

    def wrong(attempt: Any, repair: Any, evidence: Any, now: Any) -> Proof:
        if repair is not None and repair.status.phase is RepairPhase.DONE:
            return Proof(ProofState.PROVED, "believed")
        return true(attempt, repair, evidence, now)

    m.setattr(remedy, "judge_repair", wrong)


def act_on_the_unknown(m: pytest.MonkeyPatch) -> None:
    true = judge

    def wrong(policy: Any, fault: Any, *rest: Any, **more: Any) -> Any:
        return true(policy, with_fields(fault, severity=Severity.FATAL), *rest, **more)

    m.setattr(draft, "judge", wrong)
    m.setattr(
        Draft,
        "disqualifying",
        property(lambda self: tuple(j for j in self.judged if j.judgement.due and j.judgement.ladder)),
    )


def forget_a_release_during_a_repair(m: pytest.MonkeyPatch) -> None:
    """A release is obeyed at once although a repair is under way."""
    table = {**lifecycle.TABLE, (State.REPAIRING, lifecycle.Trigger.RELEASED): State.UNCERTIFIED}
    m.setattr(lifecycle, "TABLE", table)
    true = people._release

    def wrong(d: Any, decision: Any) -> bool:
        if d.life.state is State.REPAIRING:
            people._start_over(d, people._cause(decision))
            return True
        return true(d, decision)

    m.setattr(people, "_release", wrong)
    m.setattr(repairs, "call_back_unwanted", lambda _d: None)


def leave_the_taint(m: pytest.MonkeyPatch) -> None:
    true = projection.taints

    def wrong(life: Any, present: Any) -> Any:
        return true(life, present) if life.held else [dict(t) for t in present]

    m.setattr(projection, "taints", wrong)


def where(**wanted: str) -> Callable[[Case], bool]:
    return lambda case: all(getattr(case, axis) in values.split() for axis, values in wanted.items())


PLANTS: tuple[tuple[Plant, Callable[[Case], bool]], ...] = (
    (lift_any_cordon, where(holder="cordon both")),
    (adopt_a_persons_cordon, where(holder="cordon", node="same", finding="fatal other partly")),
    (create_a_repair_twice, where(finding="fatal other partly")),
    (ask_again_for_a_deleted_repair, where(repair="deleted", finding="fatal other partly")),
    (ignore_a_cancel, where(act="release.Repairing retire.Repairing", repair="geterror")),
    (close_by_the_reading_of_another_check, where(finding="fatal other")),
    (skip_the_budget, where(budget="spent closed")),
    (believe_the_provider, where(repair="lies")),
    (act_on_the_unknown, where(finding="unknown")),
    (forget_a_release_during_a_repair, where(act="release.Repairing")),
    (leave_the_taint, where(finding="fatal other partly")),
)


@pytest.mark.parametrize(("plant", "where_it_shows"), PLANTS, ids=[plant.__name__ for plant, _ in PLANTS])
def test_a_planted_mistake_is_found(
    plant: Plant, where_it_shows: Callable[[Case], bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    cases = [case for case in cases_quick() if where_it_shows(case)]
    assert cases
    assert any(play(case) for case in cases[:TRIES]), f"{len(cases[:TRIES])} cases see nothing"
