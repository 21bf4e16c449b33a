"""Constraints only narrow, and a contradiction shows both sides."""

from __future__ import annotations

import pytest

from muster.configure.constraints import KINDS, demand, kind_of, narrow
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
