"""Sizes and bandwidths of a sweep."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.workloads.bandwidth import COLLECTIVES, bus_factor, figures, sweep, table


@given(
    least=st.integers(0, 1 << 20),
    more=st.integers(0, 1 << 30),
    factor=st.integers(2, 10),
    granule=st.integers(1, 4096),
)
def test_a_sweep_rises_in_granules_and_ends_at_the_largest_size(
    least: int, more: int, factor: int, granule: int
) -> None:
    most = max(1, least + more)
    sizes = sweep(least, most, factor, granule)
    assert sizes == sorted(set(sizes))
    assert all(size >= granule and size % granule == 0 for size in sizes)
    assert sizes[-1] == max(1, most // granule) * granule
    assert all(size <= max(most, granule) for size in sizes)


@pytest.mark.parametrize(("least", "most", "factor"), [(0, 0, 2), (8, 4, 2), (1, 8, 1), (-1, 8, 2)])
def test_a_sweep_of_nothing_is_refused(least: int, most: int, factor: int) -> None:
    with pytest.raises(ValueError, match="no sweep"):
        sweep(least, most, factor, 1)


def test_factors_are_those_of_nccl_tests() -> None:
    assert bus_factor("all-reduce", 8) == pytest.approx(1.75)
    assert bus_factor("all-gather", 8) == bus_factor("reduce-scatter", 8) == bus_factor("all-to-all", 8) == 0.875
    assert bus_factor("all-reduce", 1) == 0
    with pytest.raises(ValueError, match="no collective"):
        bus_factor("broadcast", 8)


@given(st.sampled_from(COLLECTIVES), st.integers(2, 4096))
def test_no_factor_exceeds_what_the_wire_carries(collective: str, ranks: int) -> None:
    assert 0.5 <= bus_factor(collective, ranks) < 2


def test_figures_of_a_known_time() -> None:
    found = figures("all-reduce", 16, 1_000_000_000, 0.004, placement="in", wrong=0)
    assert found["algbwGbPerS"] == pytest.approx(250.0)
    assert found["busbwGbPerS"] == pytest.approx(468.75)
    assert found["timeUs"] == pytest.approx(4000.0)


def test_no_time_gives_no_bandwidth() -> None:
    found = figures("all-reduce", 2, 1024, 0.0, placement="in", wrong=None)
    assert found["busbwGbPerS"] is None
    assert found["timeUs"] is None
    assert "n/a" in table([found])


def test_the_table_has_a_line_per_size() -> None:
    lines = table([figures("all-gather", 2, 1024, 1e-3, placement="out", wrong=3)]).splitlines()
    assert len(lines) == 2
    assert lines[1].split() == ["1024", "out", "1000.000", "0.001", "0.001", "3"]
