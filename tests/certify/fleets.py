"""Plans over imaginary fleets, and strategies for what is wrong with them."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st

from muster.certify import catalogue
from muster.certify.isolation.plan import Cell, Member, Plan
from muster.certify.isolation.tallies import pair_of
from muster.certify.truth import Truth
from muster.resources.certification import CertificationBudget

PAIRS = ("pair",)
GROUPS = ("pair", "all-to-all")
EVERYTHING = ("host", "gpu-burn", "nvlink-loopback", "pair", "all-to-all", "all-reduce")
GENEROUS = CertificationBudget(
    max_rounds=150, max_runs=100_000, max_wall_minutes=10_000.0, max_node_minutes=10_000_000.0
)


def name(index: int) -> str:
    return f"node-{index:04d}"


def members(indices: Sequence[int]) -> tuple[Member, ...]:
    return tuple(Member(name=name(i), domain=f"domain-{i // 8}") for i in indices)


def plan(
    nodes: int,
    tests: Sequence[str] = PAIRS,
    *,
    partners: int = 0,
    seed: int = 0,
    matchings: int = 1,
    weakest: float = 0.8,
    budget: CertificationBudget = GENEROUS,
) -> Plan:
    """Targets 0..nodes-1 and after them the partners, eight nodes to a domain, one architecture."""
    return Plan(
        seed=seed,
        tests=tuple(catalogue.tests()[t] for t in tests),
        matchings=matchings,
        weakest_rate=weakest,
        budget=budget,
        cells=(
            Cell(
                product="NVIDIA-H100-80GB-HBM3",
                gpus=8,
                targets=members(range(nodes)),
                partners=members(range(nodes, nodes + partners)),
            ),
        ),
    )


@st.composite
def deterministic_faults(draw: st.DrawFn, nodes: int) -> Truth:
    """Up to a quarter of the nodes always bad (in everything or in one local test), and up to one bad link."""
    order = draw(st.permutations(range(nodes)))
    bad = draw(st.integers(0, nodes // 4))
    local = draw(st.integers(0, bad))
    in_all = {name(i): 1.0 for i in order[local:bad]}
    in_one = {(name(i), draw(st.sampled_from(("host", "gpu-burn")))): 1.0 for i in order[:local]}
    links = {}
    if draw(st.booleans()):
        a, b = order[bad], order[bad + 1]
        links[pair_of(name(a), name(b))] = 1.0
    return Truth(nodes=in_all, tests=in_one, links=links)


@st.composite
def any_faults(draw: st.DrawFn, nodes: int) -> Truth:
    """Anything: flaky and dead nodes, several links, faults at size, noise, unusable runs."""
    index = st.integers(0, nodes - 1)
    rate = st.sampled_from((0.3, 0.5, 0.8, 1.0))
    pairs = draw(st.lists(st.tuples(index, index).filter(lambda p: p[0] != p[1]), max_size=3))
    return Truth(
        seed=draw(st.integers(0, 10_000)),
        nodes={name(i): draw(rate) for i in draw(st.sets(index, max_size=nodes))},
        tests={(name(i), "host"): draw(rate) for i in draw(st.sets(index, max_size=2))},
        links={pair_of(name(a), name(b)): draw(rate) for a, b in pairs},
        scale={name(i): draw(st.integers(3, nodes)) for i in draw(st.sets(index, max_size=1))},
        noise=draw(st.sampled_from((0.0, 0.005, 0.01))),
        unusable=draw(st.sampled_from((0.0, 0.0, 0.05, 0.5))),
    )
