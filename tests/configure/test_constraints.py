"""Constraints only narrow, and a contradiction shows both sides."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.configure.constraints import KINDS, NODE_NAMES, Constraint, Kind, demand, kind_of, narrow
from muster.errors import BadInputError


def test_a_weaker_demand_does_not_widen() -> None:
    strong = demand("kubernetes.version", ">= 1.34", "a")
    both = narrow(strong, "kubernetes.version", ">= 1.30 < 1.36", "b")
    assert both.value == ">= 1.34 < 1.36"
    assert [d.source for d in both.demands] == ["a", "b"]


@pytest.mark.parametrize(
    ("name", "one", "other"),
    [
        ("kubernetes.version", ">= 1.34", "< 1.33"),
        ("os.id", "ubuntu", "ol"),
        ("nodes.gpu.label", "!a", "a=true"),
        ("nccl-all-reduce-bw", ">= 300", "<= 100"),
    ],
)
def test_contradiction_shows_both_sides(name: str, one: str, other: str) -> None:
    with pytest.raises(BadInputError) as caught:
        narrow(demand(name, one, "overlays/a.yaml"), name, other, "overlays/b.yaml")
    assert all(part in str(caught.value) for part in (name, one, other, "overlays/a.yaml", "overlays/b.yaml"))


def test_labels_add_up() -> None:
    both = narrow(demand("nodes.gpu.label", "b=1", "x"), "nodes.gpu.label", "!a", "y")
    assert both.value == "!a b=1"


def test_unknown_name_gets_a_suggestion() -> None:
    with pytest.raises(BadInputError, match=r"kubernetes\.version"):
        kind_of("kubernetes.versoin")
    assert all(kind_of(name) for name in KINDS)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("kubernetes.version", ">= 1.35 < 1.30", "No version satisfies"),
        ("kubernetes.version", "1.30 1.31", "No version satisfies"),
        ("nodes.gpu.label", "a", "key=value or !key"),
        ("nodes.gpu.label", "!a=b", "key=value or !key"),
        ("nodes.gpu.label", "a=1 a=2", "No node can have"),
        ("nodes.gpu.label", "a=1 !a", "No node can have"),
        # Taken as text, these would hold for no node at all.
        ("os.version_id", ">= 22.04", "compared as text"),
        ("os.version_id", "22.04 || 24.04", "compared as text"),
        ("os.id", "!= ol", "compared as text"),
        ("os.id", "ubuntu, rhel", "compared as text"),
        ("os.id", " ", "compared as text"),
    ],
)
def test_a_demand_that_nothing_satisfies_is_refused(name: str, text: str, message: str) -> None:
    with pytest.raises(BadInputError, match=message):
        demand(name, text, "overlays/a.yaml")


TEXTS = {
    Kind.KUBERNETES: [">= 1.30", "> 1.30", "< 1.34 || >= 1.35.0-gke.7", "<= 1.34.3", "!= 1.33", ">= 1.32.0-0", "any"],
    Kind.CHART: [">= v25.10.0", "< 27.0.0", "!= 26.7.0", ">= 26.7.0-rc.1", "~26.3"],
    Kind.DRIVER: [">= 580.95.05", "< 580.173.02", "!= 580.95.05.01", ">= 570"],
    Kind.KERNEL: [">= 6.8", "< 7.0.0-rc3", ">= 6.8.0-1028-aws", "!= 6.11"],
    Kind.NUMBER: [">= 300", "<= 2000", ">= 744.71", "!= 500"],
    Kind.TEXT: ["ubuntu", "ol"],
    Kind.LABEL: ["a=1", "!b", "a=1 c=2", "a=2", "!a  b=3"],
}


@st.composite
def three_demands(draw: st.DrawFn) -> tuple[str, list[str]]:
    name = draw(st.sampled_from(sorted(KINDS)))
    return name, [draw(st.sampled_from(TEXTS[kind_of(name)])) for _ in range(3)]


def together(name: str, *texts: str) -> str:
    """What holds after all demands, or `nothing`."""
    current: Constraint | None = None
    try:
        for text in texts:
            current = narrow(current, name, text, f"file of {text}")
    except BadInputError:
        return "nothing"
    return "" if current is None else current.value


@given(three_demands())
def test_narrowing_is_commutative_associative_and_idempotent(case: tuple[str, list[str]]) -> None:
    name, (a, b, c) = case
    assert together(name, a, b) == together(name, b, a)
    assert together(name, a, b, c) == together(name, c, b, a) == together(name, b, a, c)
    assert together(name, a, a) == together(name, a)
    ab = together(name, a, b)
    if ab != "nothing":
        assert together(name, ab, c) == together(name, a, b, c)
        assert together(name, ab, a) == ab


def test_constraints_of_nodes_are_known_names() -> None:
    assert set(KINDS) >= NODE_NAMES
    assert "kubernetes.version" not in NODE_NAMES
