"""Every combination that the covering arrays name is played and judged by invariants.

A case that fails is played again by its ID: `pytest tests/matrix -n0 -k '<id>'` for those of the quick array,
`python -m tests.matrix.replay '<id>'` for any.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.matrix.axes import AXES, Case, case_of, cases_full, cases_quick
from tests.matrix.play import play
from tests.matrix.replay import said

SHARES = 40
ROOT = Path(__file__).parents[2]


def test_an_id_is_the_case_and_nothing_else_is_one() -> None:
    for case in cases_quick():
        assert case_of(case.id) == case
    with pytest.raises(ValueError, match="is no case"):
        case_of("once:fatal")


@pytest.mark.parametrize("case", cases_quick(), ids=lambda case: case.id)
def test_quick(case: Case) -> None:
    found = play(case)
    assert found == [], said(case, found)


@pytest.mark.full
@pytest.mark.parametrize("share", range(SHARES))
def test_full(share: int) -> None:
    failed = [(case, found) for case in cases_full()[share::SHARES] if (found := play(case))]
    assert failed == [], "\n".join(said(case, found) for case, found in failed)


def test_a_case_is_told_alike_whatever_the_hash_seed() -> None:
    case = Case(**{name: values[-1] for name, values in AXES.items()} | {"finding": "partly", "node": "same"})
    command = [sys.executable, "-m", "tests.matrix.replay", case.id]
    told = []
    for seed in ("0", "1"):
        environ = {**os.environ, "PYTHONHASHSEED": seed}
        done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        told.append(done.stdout)
    assert told[0] == told[1]
    assert "Repairing" in told[0]
