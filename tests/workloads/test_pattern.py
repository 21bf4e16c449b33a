"""Known values: exact in every type, different for every rank, and no friend of chunks that changed places."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.workloads.operations import Wrong
from muster.workloads.pattern import EXACT, PERIOD, span, sums, values


@given(st.sampled_from(sorted(EXACT)), st.integers(1, 200))
def test_sums_over_all_ranks_are_exact(dtype: str, ranks: int) -> None:
    below = span(dtype, ranks)
    assert below >= 2
    assert max(sums(ranks, below)) <= EXACT[dtype]
    assert sums(ranks, below)[3] == sum(values(rank, below)[3] for rank in range(ranks))


def test_a_type_too_narrow_for_the_group_is_refused() -> None:
    with pytest.raises(ValueError, match="use float32"):
        span("bfloat16", 4096)


@given(st.integers(0, 6), st.integers(0, 6))
def test_ranks_differ(one: int, other: int) -> None:
    assert (values(one, 256) == values(other, 256)) == (one == other)


@pytest.mark.parametrize("rank", [0, 1, 5])
@pytest.mark.parametrize("chunk", [1 << power for power in range(1, 20)])
def test_chunks_that_changed_places_do_not_fit(rank: int, chunk: int) -> None:
    period = values(rank, 256)
    assert any(period[place] != period[(place + chunk) % PERIOD] for place in range(PERIOD))


def test_blocks_for_different_receivers_differ() -> None:
    assert values(3, 256, 0) != values(3, 256, 1)


@pytest.mark.parametrize(
    ("wrong", "source"),
    [
        (Wrong((0, 8, 0, 0), (3, 0, 3, 2)), 1),
        (Wrong((0, 8, 0, 0), (3, 2, 3, 0)), 1),
        (Wrong((0, 8, 0, 0), (8, 0, 0, 0)), None),  # a single receiver may be at fault itself
        (Wrong((0, 8, 0, 0), (4, 4, 0, 0)), None),
        (Wrong((2, 8, 0, 0), (5, 5, 0, 0)), None),
        (Wrong((8, 0, 0, 0), (2, 2, 2, 2), reduced=True), None),
        (Wrong((0, 0, 0, 0), (0, 0, 0, 0)), None),
    ],
)
def test_a_source_is_named_only_when_it_is_certain(wrong: Wrong, source: int | None) -> None:
    assert wrong.only_source() == source
