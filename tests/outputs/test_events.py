"""What leaves Muster: events read off histories, their words for receivers, and which receiver gets which."""

from __future__ import annotations

import hashlib
import hmac
import json
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.operate.outputs import encode
from muster.operate.outputs.config import Only
from muster.operate.outputs.event import EventType, FleetEvent, Weight, events_for, events_of, in_order
from muster.resources.node_health import Cause, CauseKind, Lifecycle, State, Transition

T0 = datetime(2026, 11, 30, 12, tzinfo=UTC)


def at(minutes: float) -> datetime:
    return T0 + timedelta(minutes=minutes)


def step(minutes: float, state: State, kind: CauseKind = CauseKind.FAULT, message: str = "why") -> Transition:
    return Transition(state=state, at=at(minutes), episode="e1", cause=Cause(kind=kind, name="n", message=message))


STORY = (
    step(0, State.UNCERTIFIED, CauseKind.NEW_NODE),
    step(5, State.CERTIFYING, CauseKind.CERTIFICATION),
    step(9, State.IN_SERVICE, CauseKind.CERTIFICATION),
    step(20, State.QUARANTINED),
    step(21, State.REPAIRING, CauseKind.REPAIR),
    step(30, State.QUARANTINED, CauseKind.REPAIR),
    step(31, State.QUARANTINED, CauseKind.PERSON),
    step(32, State.OUT_OF_SERVICE, CauseKind.REPAIR),
)


def life(history: tuple[Transition, ...]) -> Lifecycle:
    return Lifecycle(state=history[-1].state, since=history[-1].at, history=history, next="a person decides")


transitions = st.builds(
    step,
    st.floats(0, 1e4, allow_nan=False),
    st.sampled_from(State),
    st.sampled_from(CauseKind),
    st.text(max_size=40),
)


def test_each_step_has_its_type_and_weight() -> None:
    found = [(e.type, e.weight, e.before, e.state) for e in events_of("n1", life(STORY))]
    assert found == [
        (EventType.JOINED, Weight.INFO, "", "Uncertified"),
        (EventType.STEP, Weight.INFO, "Uncertified", "Certifying"),
        (EventType.RETURNED, Weight.INFO, "Certifying", "InService"),
        (EventType.LEFT_SERVICE, Weight.WARNING, "InService", "Quarantined"),
        (EventType.STEP, Weight.INFO, "Quarantined", "Repairing"),
        (EventType.STEP, Weight.INFO, "Repairing", "Quarantined"),
        (EventType.PERSON, Weight.INFO, "Quarantined", "Quarantined"),
        (EventType.OUT_OF_SERVICE, Weight.ATTENTION, "Quarantined", "OutOfService"),
    ]


@given(st.lists(transitions, min_size=1, max_size=12), st.integers(0, 12))
def test_what_was_just_written_is_what_a_later_reading_finds(history: list[Transition], count: int) -> None:
    told = life(tuple(history))
    just = events_for("n1", told, told.history[max(0, len(history) - count) :])
    assert list(just) == list(events_of("n1", told))[max(0, len(history) - count) :]


@given(st.lists(transitions, min_size=1, max_size=12), st.data())
def test_ids_do_not_depend_on_how_often_or_from_where_the_history_is_read(
    history: list[Transition], data: st.DataObject
) -> None:
    whole = life(tuple(history))
    cut = life(tuple(history[data.draw(st.integers(0, len(history) - 1)) :]))
    ids = [event.id for event in events_of("n1", whole)]
    assert [event.id for event in events_of("n1", cut)] == ids[len(ids) - len(cut.history) :]
    assert [event.id for event in events_of("n2", whole)] != ids


@given(st.lists(transitions, min_size=1, max_size=12), st.randoms())
@pytest.mark.requirement("companion/OBS04")
def test_in_order_each_once(history: list[Transition], shuffle: object) -> None:
    events = list(events_of("n1", life(tuple(history))))
    twice = events * 2
    shuffle.shuffle(twice)  # type: ignore[attr-defined]  # hypothesis gives a random.Random
    found = in_order(twice)
    assert sorted({e.id for e in events}) == sorted(e.id for e in found)
    assert [e.at for e in found] == sorted(e.at for e in found)


def test_since_leaves_out_what_was_before() -> None:
    assert [e.at for e in events_of("n1", life(STORY), since=at(21))] == [at(21), at(30), at(31), at(32)]


def test_a_cloudevent_has_what_the_specification_asks_for() -> None:
    event = events_of("n1", life(STORY), domain="rack-1", pool="train")[3]
    found = encode.cloudevent(event, "east")
    required = {"specversion", "id", "source", "type"}
    assert required <= found.keys()
    assert found["specversion"] == "1.0"
    assert found["source"] == "/muster/east"
    assert found["type"] == "dev.muster.node.left-service"
    assert found["subject"] == "n1"
    assert datetime.fromisoformat(found["time"]) == event.at
    assert found["data"]["cause"] == {"kind": "fault", "name": "n", "message": "why"}
    # Attribute names of CloudEvents are lower-case letters and digits only.
    assert all(name.isalnum() and name == name.lower() for name in found)


def test_a_receiver_can_check_the_signature() -> None:
    body = encode.webhook_body(events_of("n1", life(STORY)), "east")
    value = encode.signature(b"key", body, T0)
    time, _, digest = value.partition(",v1=")
    assert int(time.removeprefix("t=")) == int(T0.timestamp())
    assert digest == hmac.new(b"key", time.removeprefix("t=").encode() + b"." + body, hashlib.sha256).hexdigest()
    assert encode.signature(b"other", body, T0) != value


def test_a_burst_is_one_message_with_what_needs_a_person_first() -> None:
    many = [e for n in range(40) for e in events_of(f"n{n}", life(STORY[:4]))] + list(events_of("n99", life(STORY)))
    text = json.loads(encode.chat_body(many, "east"))["text"]
    lines = text.splitlines()
    assert lines[0] == "*east*"
    assert lines[1].startswith("A person must decide: n99: Quarantined -&gt; OutOfService")
    assert len(lines) == 1 + encode.SHOWN_LINES + 1
    counted = sum(int(part.split()[0]) for part in lines[-1].removeprefix("and ").split(", "))
    assert counted == len(many) - encode.SHOWN_LINES


@given(st.text(max_size=2000))
def test_a_message_from_a_machine_can_be_no_mention_and_no_link(message: str) -> None:
    event = events_of("n1", life((step(0, State.QUARANTINED, message="<!channel> " + message),)))[0]
    text = json.loads(encode.chat_body([event], ""))["text"]
    assert "<" not in text
    assert ">" not in text
    assert len(text) <= encode.CHAT_LIMIT


def test_only_what_is_asked_for() -> None:
    def taken(only: Only) -> list[EventType]:
        return [e.type for e in events_of("n1", life(STORY), pool="train") if only.takes(e)]

    assert taken(Only(min_weight=Weight.WARNING)) == [EventType.LEFT_SERVICE, EventType.OUT_OF_SERVICE]
    assert taken(Only(types=(EventType.RETURNED,))) == [EventType.RETURNED]
    assert taken(Only(causes=(CauseKind.PERSON,))) == [EventType.PERSON]
    assert taken(Only(pools=("other",))) == []
    assert len(taken(Only())) == len(STORY)


def test_retiring_a_node_is_no_news_for_the_person_who_did_it() -> None:
    found = events_of("n1", life((STORY[2], step(40, State.OUT_OF_SERVICE, CauseKind.PERSON))))
    assert found[-1].weight is Weight.INFO


def events(count: int, first: float = 0) -> list[FleetEvent]:
    return [events_of(f"n{n}", life((STORY[2], step(first + n, State.QUARANTINED))))[1] for n in range(count)]
