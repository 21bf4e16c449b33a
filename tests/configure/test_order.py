"""Order: every edge respected, independent of how the input is arranged, cycles named."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.configure.order import order
from muster.errors import BadInputError


@st.composite
def graphs(draw: st.DrawFn) -> dict[str, list[str]]:
    names = draw(st.lists(st.text("abcdef", min_size=1, max_size=3), unique=True, max_size=9))
    return {
        name: draw(st.lists(st.sampled_from(names[:at]), unique=True)) if at else [] for at, name in enumerate(names)
    }


@given(graphs(), st.randoms(use_true_random=False))
def test_edges_and_determinism(graph: dict[str, list[str]], random: object) -> None:
    found = order(graph)
    assert sorted(found.sequence) == sorted(graph)
    place = {name: at for at, name in enumerate(found.sequence)}
    for name, needed in graph.items():
        assert all(place[n] < place[name] and found.level_of(n) < found.level_of(name) for n in needed)
        assert found.level_of(name) == max((found.level_of(n) + 1 for n in needed), default=0)
    shuffled = list(graph.items())
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert order({name: list(reversed(needed)) for name, needed in shuffled}) == found


def test_ties_are_alphabetical() -> None:
    assert order({"c": [], "a": ["b"], "b": []}).sequence == ("b", "a", "c")


def test_a_cycle_is_reported_with_its_path() -> None:
    with pytest.raises(BadInputError, match="b -> c -> d -> b"):
        order({"a": ["b"], "b": ["c"], "c": ["d"], "d": ["b"], "e": []})
    with pytest.raises(BadInputError, match="x -> x"):
        order({"x": ["x"]})


def test_an_undeclared_dependency_is_an_error() -> None:
    with pytest.raises(BadInputError, match="'gone'"):
        order({"a": ["gone"]})
