"""The reference page of verdicts names every outcome, verdict and reason that exists, and no other."""

from __future__ import annotations

import re
from enum import StrEnum
from pathlib import Path

import pytest

from muster.resources.certification import NodeVerdict, Outcome, Reason

PAGE = (Path(__file__).parents[2] / "docs/reference/verdicts.md").read_text()


@pytest.mark.parametrize(
    ("heading", "vocabulary"),
    [("Outcome of one run", Outcome), ("Verdict on a node", NodeVerdict), ("Reasons", Reason)],
)
def test_the_page_names_the_whole_vocabulary(heading: str, vocabulary: type[StrEnum]) -> None:
    section = PAGE.split(f"## {heading}\n")[1].split("\n## ")[0]
    rows = re.findall(r"^\| `([^`]+)` \|", section, re.MULTILINE)
    assert rows == [word.value for word in vocabulary if word.value]
