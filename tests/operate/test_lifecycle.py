"""The table of transitions: what can happen, what cannot, and that every node has a way back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from muster.operate.episode import open_episode
from muster.operate.lifecycle import (
    HOLD_REASONS,
    TABLE,
    IllegalTransitionError,
    Trigger,
    admits,
    born,
    move,
    target,
)
from muster.resources.node_health import HISTORY_LIMIT, Cause, CauseKind, State
from tests.operate.worlds import START, serving

CAUSE = Cause(kind=CauseKind.FAULT, name="x")
BY_PERSON = {Trigger.RELEASED, Trigger.RETIRED, Trigger.HOLD_LIFTED, Trigger.PERSON_HELD, Trigger.NODE_REPLACED}


def ways(start: State, without: frozenset[Trigger] = frozenset()) -> set[State]:
    """States that can be reached from `start`."""
    found = {start}
    while True:
        more = {to for (frm, trigger), to in TABLE.items() if frm in found and trigger not in without} - found
        if not more:
            return found
        found |= more


@pytest.mark.requirement("v2.4/CNP04")
def test_every_state_is_reached_from_the_first() -> None:
    assert ways(State.UNCERTIFIED) == set(State)


@pytest.mark.parametrize("state", [s for s in State if s is not State.OUT_OF_SERVICE])
def test_every_state_leads_back_to_service_without_a_person(state: State) -> None:
    assert State.IN_SERVICE in ways(state, frozenset(BY_PERSON))


def test_only_a_person_or_a_new_node_ends_out_of_service() -> None:
    leaving = {trigger for (state, trigger) in TABLE if state is State.OUT_OF_SERVICE}
    assert leaving == {Trigger.RELEASED, Trigger.NODE_REPLACED}


def test_service_is_entered_by_a_pass_or_from_a_persons_hold_only() -> None:
    entries = {key for key, to in TABLE.items() if to is State.IN_SERVICE}
    assert entries == {
        (State.CERTIFYING, Trigger.CERTIFICATION_PASSED),
        (State.QUARANTINED, Trigger.HOLD_LIFTED),
        (State.UNCERTIFIED, Trigger.GAVE_WAY),
    }


@pytest.mark.parametrize("state", [s for s in State if s is not State.IN_SERVICE])
@pytest.mark.requirement("v2.4/OFM05")
def test_without_hold_lifted_every_way_to_service_passes_certifying(state: State) -> None:
    edges = {
        k: v
        for k, v in TABLE.items()
        if k[1] not in (Trigger.HOLD_LIFTED, Trigger.GAVE_WAY) and k[0] is not State.CERTIFYING
    }
    assert State.IN_SERVICE not in edges.values()


@pytest.mark.parametrize("state", list(State))
@pytest.mark.parametrize("trigger", list(Trigger))
@pytest.mark.requirement("v2.4/CNP04")
def test_what_is_not_in_the_table_cannot_be_expressed(state: State, trigger: Trigger) -> None:
    life = replace(born(open_episode("n", "u", CAUSE, START), "bringup", START), state=state)
    if (state, trigger) not in TABLE:
        with pytest.raises(IllegalTransitionError, match=trigger.value):
            move(life, trigger, CAUSE, START)
    elif target(state, trigger) is State.IN_SERVICE:
        with pytest.raises(IllegalTransitionError, match="certificate"):
            move(life, trigger, CAUSE, START)
    else:
        assert move(life, trigger, CAUSE, START).state is TABLE[state, trigger]


@given(st.lists(st.sampled_from(list(Trigger)), max_size=120))
@pytest.mark.requirement("v2.4/CNP04", "companion/BMAAS07")
def test_any_walk_keeps_hold_and_history_right(triggers: list[Trigger]) -> None:
    life = born(open_episode("n", "u", CAUSE, START), "bringup", START)
    certificate = serving().life.certificate
    for trigger in triggers:
        if (life.state, trigger) not in TABLE:
            continue
        life = move(replace(life, certificate=certificate), trigger, CAUSE, START)
        assert life.held == (life.state is not State.IN_SERVICE)
        assert life.hold_reason == HOLD_REASONS.get(life.state, "")
        assert len(life.history) <= HISTORY_LIMIT
        assert life.history[-1].state is life.state
        assert life.state is not State.IN_SERVICE or admits(life.certificate)
