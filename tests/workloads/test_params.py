"""Parameters and injected faults are typed, bounded, and refused by name."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.workloads.inject import Injection
from muster.workloads.params import Params, bytes_of, text_of
from muster.workloads.rank import RankFailure


@given(st.integers(0, 1 << 50))
def test_a_size_survives_being_written(size: int) -> None:
    assert bytes_of(text_of(size)) == size


@pytest.mark.parametrize(
    ("text", "size"), [("64", 64), ("4K", 4096), ("1.5M", 1572864), ("2GiB", 2 << 30), ("1TB", 1 << 40), (" 8b ", 8)]
)
def test_sizes_as_people_write_them(text: str, size: int) -> None:
    assert bytes_of(text) == size


@pytest.mark.parametrize("text", ["", "many", "-4K", "4X", "1e9", "1" * 40])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(ValueError, match="is no size"):
        bytes_of(text)


@pytest.mark.parametrize(
    ("values", "read"),
    [
        ({"n": "three"}, lambda p: p.number("n", 1.0)),
        ({"n": float("nan")}, lambda p: p.number("n", 1.0)),
        ({"n": True}, lambda p: p.number("n", 1.0)),
        ({"n": -1}, lambda p: p.whole("n", 1)),
        ({"n": 1.5}, lambda p: p.whole("n", 1)),
        ({"n": "4X"}, lambda p: p.size("n", 1)),
        ({"n": 10}, lambda p: p.size("n", 1, most=4)),
        ({"n": 3}, lambda p: p.text("n")),
        ({"n": "green"}, lambda p: p.text("n", among=("red", "blue"))),
        ({"n": "yes"}, lambda p: p.flag("n")),
        ({"n": [1]}, lambda p: p.texts("n")),
        ({"n": [-1]}, lambda p: p.wholes("n")),
        ({"n": [True]}, lambda p: p.wholes("n")),
        ({"n": []}, lambda p: p.mapping("n")),
        ({"n": 1}, lambda p: p.refuse_others("m")),
    ],
)
def test_a_wrong_parameter_is_refused_by_name(values: dict[str, Any], read: Any) -> None:
    with pytest.raises(RankFailure, match=r"\bn\b") as failure:
        read(Params(values))
    assert failure.value.reason == "harness"
    assert failure.value.suspects == ()


def test_texts_from_the_command_line_are_read_too() -> None:
    params = Params({"n": "7", "s": "1M", "f": "true", "g": False})
    assert params.whole("n", 1) == 7
    assert params.size("s", 1) == 1 << 20
    assert params.flag("f") is True
    assert params.flag("g", True) is False
    assert params.number("missing", 2.5) == 2.5


def test_a_fault_concerns_only_the_rank_that_it_names() -> None:
    inject = {"node": "b", "local_rank": 1, "sleep_s": 0.5, "corrupt": True}
    assert Injection.of(inject, node="b", local_rank=1) == Injection(sleep_s=0.5, corrupt=True)
    assert Injection.of(inject, node="a", local_rank=1) == Injection()
    assert Injection.of(inject, node="b", local_rank=0) == Injection()
    assert Injection.of({}, node="a", local_rank=0) == Injection()


def test_an_unknown_fault_is_refused() -> None:
    with pytest.raises(RankFailure, match="melt"):
        Injection.of({"melt": True}, node="a", local_rank=0)
