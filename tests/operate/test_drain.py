"""Draining: rules for each pod, checkpoints, deadlines, who blocks."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.operate.drain import at_once, drain_step, treatment_of
from muster.operate.model import (
    AskCheckpoint,
    CallCheckpoint,
    CheckpointAnswer,
    DeletePod,
    EvictPod,
    PodView,
    Refusal,
    SavePhase,
    label_digests,
)
from muster.resources.fault_policy import Checkpoint, Drain, DrainMode, DrainRule
from tests.operate.worlds import START, pod

PDB = (
    "Cannot evict pod as it would violate the pod's disruption budget.: "
    "The disruption budget web needs 2 healthy pods and has 2 currently"
)


def labelled(name: str = "train-0", namespace: str = "work", **labels: str) -> PodView:
    return pod(name, namespace=namespace, labels=label_digests(labels))


def evicted(intents: tuple[object, ...]) -> list[str]:
    return [i.pod.name for i in intents if isinstance(i, EvictPod | DeletePod)]


RULES = Drain(
    rules=(
        DrainRule(name="patient", namespaces=("prod-*",), mode=DrainMode.WAIT_FOR_COMPLETION, deadline_s=7200),
        DrainRule(name="night", pod_selector={"tier": "batch"}, mode=DrainMode.DEADLINE, deadline_s=600),
    )
)


@pytest.mark.parametrize(
    ("found", "rule"),
    [
        (labelled(namespace="prod-eu", tier="batch"), "patient"),
        (labelled(tier="batch", app="x"), "night"),
        (labelled(tier="web"), ""),
        (labelled(namespace="pro", app="x"), ""),
    ],
)
def test_the_first_rule_that_matches_namespace_and_labels_decides(found: PodView, rule: str) -> None:
    assert treatment_of(found, RULES).rule == rule


@given(st.dictionaries(st.text(max_size=8), st.text(max_size=8), max_size=6), st.data())
def test_the_digests_of_labels_answer_like_the_labels(labels: dict[str, str], data: st.DataObject) -> None:
    known = labelled()
    known = pod(labels=label_digests(labels))
    keys = st.sampled_from(sorted(labels)) if labels else st.nothing()
    wanted = data.draw(st.dictionaries(st.one_of(keys, st.text(max_size=8)), st.text(max_size=8), max_size=2))
    wanted |= {k: labels[k] for k in data.draw(st.lists(keys, max_size=2, unique=True) if labels else st.just([]))}
    assert known.carries(wanted) is all(labels.get(k) == v for k, v in wanted.items())


def test_each_pod_is_treated_by_its_rule_in_one_step() -> None:
    work = (labelled("a", "prod-eu"), labelled("b", tier="batch"), labelled("c"))
    now = START + timedelta(seconds=60)
    step = drain_step(work, (), RULES, START, "e1", now)
    assert evicted(step.intents) == ["c"]
    assert "work/b to end by 2026-01-05 08:10:00 UTC" in step.blocked
    assert "prod-eu/a to end by themselves" in step.blocked
    later = drain_step(work, (), RULES, START, "e1", START + timedelta(seconds=601))
    assert evicted(later.intents) == ["b", "c"]
    late = drain_step(work, (), RULES, START, "e1", START + timedelta(seconds=7201))
    assert evicted(late.intents) == ["b", "c"]
    assert late.overdue
    assert "the limit of 7200 s is over" in late.blocked


def test_the_budget_that_forbids_an_eviction_is_named_with_since_when() -> None:
    refusal = Refusal("uid-train-0", PDB, START)
    assert refusal.budget == "web"
    step = drain_step((pod(),), (refusal,), Drain(), START, "e1", START + timedelta(seconds=60))
    assert (
        "PodDisruptionBudget web forbids the eviction of work/train-0 since 2026-01-05 08:00:00 UTC" in step.blocked
    )
    assert Refusal("u", "Cannot evict pod as it would violate the pod's disruption budget.").budget == ""


def test_an_emergency_has_no_patience_and_forces_only_what_the_policy_would_force() -> None:
    refusals = (Refusal("uid-train-0", PDB, START),)
    for force in (False, True):
        patient = Drain(mode=DrainMode.WAIT_FOR_COMPLETION, force_after_deadline=force, rules=RULES.rules)
        step = drain_step((pod(),), refusals, at_once(patient), START, "e1", START)
        assert [type(i) for i in step.intents] == [DeletePod if force else EvictPod]
        prod = drain_step((labelled("a", "prod-eu"),), (), at_once(patient), START, "e1", START)
        assert evicted(prod.intents) == ["a"]


# Checkpoints

SAVES = Drain(checkpoint=Checkpoint(timeout_s=300))


def test_a_pod_that_can_save_is_asked_once_and_leaves_when_it_has() -> None:
    able = pod("able", checkpoint=True)
    step = drain_step((able, pod("plain")), (), SAVES, START, "e1", START)
    assert [i.pod.name for i in step.intents if isinstance(i, AskCheckpoint)] == ["able"]
    assert evicted(step.intents) == ["plain"]
    assert "work/able may save their state until 2026-01-05 08:05:00 UTC at the latest" in step.blocked
    asked = pod("able", checkpoint=True, checkpoint_asked="e1")
    assert drain_step((asked,), (), SAVES, START, "e1", START).intents == ()
    # What it saved for an earlier episode is old.
    old = pod("able", checkpoint=True, checkpoint_asked="e0", checkpoint_done="e0")
    assert isinstance(drain_step((old,), (), SAVES, START, "e1", START).intents[0], AskCheckpoint)
    done = pod("able", checkpoint=True, checkpoint_asked="e1", checkpoint_done="e1")
    assert evicted(drain_step((done,), (), SAVES, START, "e1", START).intents) == ["able"]


def test_what_does_not_save_in_time_leaves_all_the_same_and_that_is_told() -> None:
    able = pod("able", checkpoint=True, checkpoint_asked="e1")
    step = drain_step((able,), (), SAVES, START, "e1", START + timedelta(seconds=300))
    assert evicted(step.intents) == ["able"]
    assert "work/able did not save their state in time" in step.blocked


def test_the_webhook_is_told_until_it_says_that_all_is_saved() -> None:
    policy = Drain(checkpoint=Checkpoint(annotate=False, webhook="https://saver/x", timeout_s=300))
    work = (pod("a"), pod("b"))
    first = drain_step(work, (), policy, START, "e1", START, node="n1")
    call = first.intents[0]
    assert isinstance(call, CallCheckpoint)
    assert ([p.name for p in call.pods], call.node) == (["a", "b"], "n1")
    assert call.deadline == START + timedelta(seconds=300)
    answers = (
        CheckpointAnswer("uid-a", "e1", SavePhase.SAVED),
        CheckpointAnswer("uid-b", "e1", SavePhase.FAILED, "it answered 500"),
    )
    second = drain_step(work, (), policy, START, "e1", START, node="n1", answers=answers)
    assert evicted(second.intents) == ["a"]
    again = [i for i in second.intents if isinstance(i, CallCheckpoint)]
    assert [p.name for p in again[0].pods] == ["b"]
    assert "the webhook says: it answered 500" in second.blocked
    other = drain_step(work, (), policy, START, "e2", START, node="n1", answers=answers)
    assert evicted(other.intents) == []


modes = st.sampled_from(list(DrainMode))


@given(
    mode=modes,
    deadline_s=st.integers(0, 900),
    timeout_s=st.integers(0, 900),
    force=st.booleans(),
    refused=st.booleans(),
    able=st.booleans(),
    after_s=st.integers(0, 4000),
    not_before_s=st.one_of(st.none(), st.integers(0, 2000)),
)
def test_nobody_is_made_to_leave_too_early_and_nobody_saves_for_ever(
    mode: DrainMode,
    deadline_s: int,
    timeout_s: int,
    force: bool,
    refused: bool,
    able: bool,
    after_s: int,
    not_before_s: int | None,
) -> None:
    policy = Drain(
        mode=mode, deadline_s=deadline_s, force_after_deadline=force, checkpoint=Checkpoint(timeout_s=timeout_s)
    )
    found = pod("p", checkpoint=able)
    now = START + timedelta(seconds=after_s)
    not_before = START + timedelta(seconds=not_before_s) if not_before_s is not None else None
    refusals = (Refusal(found.uid, PDB, START),) if refused else ()
    step = drain_step((found,), refusals, policy, START, "e1", now, not_before=not_before)
    begins_s = max(deadline_s if mode is DrainMode.DEADLINE else 0, not_before_s or 0)
    leaves = evicted(step.intents) == ["p"]
    if mode is DrainMode.WAIT_FOR_COMPLETION:
        assert not leaves
        assert step.overdue is (after_s >= deadline_s)
    elif after_s < begins_s:
        assert step.intents == ()
    elif able and after_s < begins_s + timeout_s:
        assert not leaves
    else:
        assert leaves
    if any(isinstance(i, DeletePod) for i in step.intents):
        assert force
        assert refused
        assert after_s >= deadline_s
    assert step.blocked
    assert step.recheck_at is None or step.recheck_at > now
