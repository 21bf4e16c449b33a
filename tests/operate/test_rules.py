"""Expressions: vocabularies, the history that rules see, register bits, and answers that are kept by content."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.operate import rules
from muster.operate.patterns.history import History
from muster.operate.rules import (
    Vocabulary,
    burst_values,
    compile_rule,
    fault_values,
    holds,
    names,
    register_bits,
    variables,
)
from muster.resources.fault import Entity, EntityKind, Fault
from muster.resources.node_health import RungAttempt
from tests.operate.histories import GPU0, GPU1, LINK, NOW, ago, burst, closed, fault, repair_began


def true(when: str, about: Fault, history: History | None = None) -> bool | str:
    return holds(when, variables(about, "n1", {"pool": "a"}, NOW, history))


HISTORY = History(
    open=(fault("79", burst(ago(2))),),
    past=(
        closed(fault("79", burst(ago(50)), burst(ago(30))), ago(20)),
        closed(fault("74", burst(ago(3)), entity=LINK), ago(2)),
        closed(fault("48", burst(ago(3)), entity=GPU1), ago(2)),
    ),
    transitions=(repair_began(ago(60)), repair_began(ago(5))),
    attempts=(
        RungAttempt(rung="reset-gpu", attempt=1, repair="r1", at=ago(5)),
        RungAttempt(rung="reset-gpu", attempt=2, repair="r2", at=ago(4)),
    ),
)


@pytest.mark.parametrize(
    ("when", "answer"),
    [
        ("history.bursts_24h['xid/79'] == 1", True),
        ("history.bursts_7d['xid/79'] == 3", True),
        ("history.bursts_24h['xid/74'] == 1", True),  # a link belongs to its GPU
        ("'xid/48' in history.bursts_24h", False),  # that was another GPU
        ("history.repairs_24h == 1 && history.repairs_7d == 2", True),
        ("history.last_repair_age_s == 18000", True),
        ("history.attempts['reset-gpu'] == 2 && !('reboot' in history.attempts)", True),
    ],
)
def test_rules_see_the_history_of_the_device(when: str, answer: bool) -> None:
    assert true(when, HISTORY.open[0], HISTORY) is answer


def test_a_fault_of_the_node_sees_the_history_of_all_its_devices() -> None:
    about_node = fault("soft-lockup", burst(ago(1)), check="kernel", entity=Entity(kind=EntityKind.NODE))
    assert true("history.bursts_24h['xid/48'] == 1 && history.bursts_24h['xid/79'] == 1", about_node, HISTORY) is True


def test_bursts_before_the_boundary_do_not_count() -> None:
    from dataclasses import replace

    later = replace(HISTORY, boundary=ago(10))
    assert true("history.bursts_7d['xid/79'] == 1", HISTORY.open[0], later) is True


def test_without_a_history_there_is_only_the_fault_itself() -> None:
    assert true("history.repairs_7d == 0 && history.last_repair_age_s == -1", fault("79")) is True
    assert true("history.bursts_24h == {'xid/79': 1}", fault("79")) is True


@pytest.mark.parametrize(
    ("vocabulary", "when", "fine"),
    [
        (Vocabulary.RULE, "fault.age_s > 3 && history.repairs_24h > 1", True),
        (Vocabulary.RULE, "bits.reg0.exists(b, b == 1)", False),
        (
            Vocabulary.PATTERN,
            "13 in bits.reg2 && details['gpc'] == '1' && repair.age_s < 60 && burst.count > 1",
            True,
        ),
        (Vocabulary.PATTERN, "fault.age_s > 3", False),
        (Vocabulary.PATTERN, "fault.count > 3", False),
        (Vocabulary.UNLESS, "size(other) > 0 && node.pool == 'a'", True),
        (Vocabulary.UNLESS, "fault.code == '1'", False),
        (Vocabulary.FINDING, "fault.severity == 'fatal' && node.domain == 'r1'", True),
        (Vocabulary.FINDING, "history.repairs_24h > 1", False),
    ],
)
def test_each_place_has_its_vocabulary(vocabulary: Vocabulary, when: str, fine: bool) -> None:
    assert (compile_rule(when, vocabulary).problem == "") is fine
    assert all(name in names(vocabulary) for name in compile_rule(when, vocabulary).uses)


@pytest.mark.parametrize(
    ("text", "bits"),
    [
        ("0x00100002", [1, 20]),
        ("00100002", [1, 20]),
        ("0X1", [0]),
        ("0x80000000", [31]),
        ("0x0", []),
        ("", []),
        ("0x", []),
        ("fish", []),
        ("0x" + "f" * 40, []),
    ],
)
def test_bits_of_registers(text: str, bits: list[int]) -> None:
    assert register_bits({"reg0": text})["reg0"] == bits
    values = burst_values(fault_values(fault("74")), burst(NOW, reg0=text), "n1", {}, -1, False)
    assert holds(f"bits.reg0 == {bits} && bits.reg6 == []", values, Vocabulary.PATTERN) is True


@given(st.integers(0, 2**32 - 1))
def test_bits_are_those_of_the_number(value: int) -> None:
    assert sum(1 << b for b in register_bits({"reg3": f"0x{value:08x}"})["reg3"]) == value


@given(st.text(max_size=40))
def test_no_text_of_a_register_makes_reading_raise(text: str) -> None:
    assert all(0 <= b < 64 for b in register_bits({"reg0": text})["reg0"])


def test_answers_are_kept_by_what_the_expression_names() -> None:
    rules._answers.clear()
    first = fault("79")
    for index in range(20):
        other = fault("79", burst(NOW - timedelta(seconds=index)), entity=GPU0 if index % 2 else GPU1)
        assert true("fault.code == '79'", other) is True
    assert len(rules._answers) == 1
    assert true("fault.code == '79' && fault.entity.uuid == 'GPU-1'", first) is False
    assert len(rules._answers) == 2


def test_the_memory_of_answers_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "KEPT_ANSWERS", 10)
    rules._answers.clear()
    for index in range(50):
        assert true("fault.code == '3'", fault(str(index))) is (index == 3)
    assert len(rules._answers) <= 10


@pytest.mark.parametrize(
    "when",
    [
        "fault . code == '79'",
        "fault\n.\ncode == '79'",
        "fault. // a word\ncode == '79'",
        "'fault.age_s' != fault.code",
    ],
)
def test_a_name_is_known_however_it_is_written(when: str) -> None:
    assert true(when, fault("79")) is True


@given(st.sampled_from(["79", "48"]), st.sampled_from([GPU0, GPU1]), st.integers(0, 100))
def test_kept_answers_are_those_of_a_fresh_evaluation(code: str, entity: Entity, hours: int) -> None:
    when = "fault.code == '79' && fault.entity.index == 0 && fault.age_s > 3600 && node.pool == 'default'"
    about = fault(code, burst(ago(hours)), entity=entity)
    kept = holds(when, variables(about, "n1", {}, NOW))
    rules._answers.clear()
    assert holds(when, variables(about, "n1", {}, NOW)) == kept == (code == "79" and entity == GPU0 and hours > 1)
