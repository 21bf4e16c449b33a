"""The reference page of policy rules names every variable and disposition that exists."""

from __future__ import annotations

import re
from pathlib import Path

from muster.operate.rules import VARIABLES
from muster.resources.fault_policy import Disposition

PAGE = (Path(__file__).parents[2] / "docs/reference/policy.md").read_text()


def test_the_page_names_every_variable_and_no_other() -> None:
    assert set(re.findall(r"`((?:fault|node)\.[a-z_.]+)`", PAGE)) == set(VARIABLES)


def test_the_page_names_every_disposition_mildest_first() -> None:
    rows = re.findall(r"^\| `([a-z]+)` \|", PAGE.split("## Dispositions")[1], re.MULTILINE)
    assert rows == [d.value for d in Disposition]
