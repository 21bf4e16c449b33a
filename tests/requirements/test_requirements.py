"""The page of requirements says what the tests say, and nothing is left out or promised twice."""

from __future__ import annotations

import pytest

from tests.requirements.marks import ROOT, MarkError, Suite, collect, proofs
from tests.requirements.page import PAGE, by_requirement, render
from tests.requirements.rows import Priority, load

REQUIREMENTS = load()
PROOFS = collect()
ROWS = [row for area in REQUIREMENTS.areas for row in area.rows]


def test_the_page_is_fresh() -> None:
    command = f"python -m tests.requirements {PAGE}"
    assert (ROOT / PAGE).read_text(encoding="utf-8") == render(REQUIREMENTS, PROOFS), f"stale: run {command}"


def test_every_requirement_has_one_row() -> None:
    ids = REQUIREMENTS.ids()
    assert len(ids) == len(set(ids))
    assert all(name.split("/")[0] in ("v2.4", "companion", "sla") for name in ids)


def test_marks_name_requirements_that_exist() -> None:
    known = set(REQUIREMENTS.ids())
    assert [(p.file, p.test, name) for p in PROOFS for name in p.ids if name not in known] == []


def test_a_row_has_tests_or_a_reason_and_never_both() -> None:
    tested = by_requirement(PROOFS).keys()
    for row in ROWS:
        marked = [name for name in row.ids if name in tested]
        if row.priority is Priority.OUT:
            assert row.why, row.ids
            assert not marked, row.ids
            continue
        assert row.measure, row.ids
        assert not row.why, row.ids
        assert bool(marked) != bool(row.without), f"{row.ids}: tests or a reason why there are none"
        assert not row.partly or marked, f"{row.ids}: partly needs tests"
        assert marked in ([], list(row.ids)), f"{row.ids}: rows with several IDs are proven for all or none"


def test_what_a_mark_is() -> None:
    text = """
import pytest
pytestmark = [pytest.mark.full, pytest.mark.requirement("v2.4/A")]

@pytest.mark.parametrize("x", [1])
@pytest.mark.requirement("v2.4/B", "v2.4/C")
def test_one(x): ...

async def test_two(real_cluster): ...

def helper(): ...
"""
    one, two = proofs(text, "tests/x/test_y.py")
    assert (one.test, one.ids, one.suite) == ("test_one", ("v2.4/A", "v2.4/B", "v2.4/C"), Suite.FULL)
    assert (two.test, two.ids, two.suite) == ("test_two", ("v2.4/A",), Suite.REAL_API)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("@pytest.mark.requirement(NAME)\ndef test_one(): ...", "must be texts"),
        ("@pytest.mark.requirement\ndef test_one(): ...", "names no requirement"),
        ("@pytest.mark.skip\n@pytest.mark.requirement('v2.4/A')\ndef test_one(): ...", "proves nothing"),
        ("@pytest.mark.requirement('v2.4/A')\ndef helper(): ...", "only a test function"),
    ],
)
def test_marks_that_cannot_be_read_name_their_line(text: str, said: str) -> None:
    with pytest.raises(MarkError, match=rf"tests/x/test_y.py:\d+: .*{said}"):
        list(proofs(text, "tests/x/test_y.py"))
