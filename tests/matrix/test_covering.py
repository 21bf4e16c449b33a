"""The covering arrays cover what they promise, in few rows, and are the same every time."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.matrix.axes import AXES, FULL_GROUPS, QUICK_GROUPS, SIZES, cases_full, cases_quick
from tests.matrix.covering import covered, covering_rows, groups_of, wanted


@settings(max_examples=30)
@given(sizes=st.lists(st.integers(1, 4), min_size=3, max_size=5), seed=st.integers(0, 99))
def test_all_pairs_and_one_triple_are_covered(sizes: list[int], seed: int) -> None:
    groups = groups_of(len(sizes), 2, [(0, 1, 2)])
    rows = covering_rows(sizes, groups, seed)
    assert {c for row in rows for c in covered(row, groups)} == wanted(sizes, groups)
    assert all(0 <= value < size for row in rows for value, size in zip(row, sizes, strict=True))
    assert covering_rows(sizes, groups, seed) == rows


def test_a_row_that_is_taken_away_leaves_a_gap() -> None:
    """The array is not padded: nearly every row is needed."""
    groups = groups_of(4, 2)
    rows = covering_rows([3, 3, 3, 3], groups)
    assert len(rows) <= 15
    needed = [
        {c for r in rows if r is not row for c in covered(r, groups)} != wanted([3, 3, 3, 3], groups) for row in rows
    ]
    assert needed.count(True) >= len(rows) - 4


def test_the_matrix_covers_all_pairs_and_the_triples_of_delivery_finding_and_holder() -> None:
    for cases, groups in ((cases_quick(), QUICK_GROUPS), (cases_full(), FULL_GROUPS)):
        rows = [tuple(values.index(getattr(case, name)) for name, values in AXES.items()) for case in cases]
        assert {c for row in rows for c in covered(row, groups)} == wanted(SIZES, groups)
        ids = [case.id for case in cases]
        assert len(set(ids)) == len(ids)
    product = 1
    for size in SIZES:
        product *= size
    assert len(cases_quick()) < len(cases_full()) < product / 20
