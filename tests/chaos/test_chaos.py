"""A fixed budget of seeds, the same trace for the same seed, and every planted bug found."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.chaos.__main__ import SMALL, main, told
from tests.chaos.mix import Kind, draw
from tests.chaos.mutants import MUTANTS, Mutant, named
from tests.chaos.play import play

ROOT = Path(__file__).resolve().parents[2]
QUICK = (3, 5, 13)
"""Seeds that together play most kinds of trouble in a few seconds."""
FULL = range(100, 112)
SHARES = 4


@pytest.mark.parametrize("seed", QUICK)
def test_a_short_seed_breaks_no_invariant(seed: int) -> None:
    outcome = play(seed, deeds=12, nodes=6)
    assert outcome.violations == (), told(outcome, 12, 6)
    assert outcome.steps > 100


@pytest.mark.full
@pytest.mark.parametrize("share", range(SHARES))
def test_no_seed_of_the_budget_breaks_an_invariant(share: int) -> None:
    for seed in list(FULL)[share::SHARES]:
        outcome = play(seed)
        assert outcome.violations == (), told(outcome)


def test_a_planted_bug_is_told_with_its_last_events_and_the_command_that_plays_it_again(
    capsys: pytest.CaptureFixture[str],
) -> None:
    mutant = named("fence-skipped")
    assert main(["--seed", str(mutant.seed), "--mutant", mutant.name, "--steps", "3", "--nodes", "6"]) == 3
    text = capsys.readouterr().out
    assert "fenced broke at step" in text
    assert f"python -m tests.chaos --seed {mutant.seed} --steps 3 --nodes 6 --mutant fence-skipped" in text
    assert text.splitlines()[-1].startswith("1 seeds, ")
    assert text.splitlines()[-1].endswith("1 with violations")


def test_the_same_seed_plays_the_same_in_another_process() -> None:
    """Hashes of text differ between processes: whatever depends on the order of a set would show."""
    here = play(QUICK[0], deeds=3, nodes=6)
    program = f"from tests.chaos.play import play; print(play({QUICK[0]}, deeds=3, nodes=6).digest)"
    environment = {**os.environ, "PYTHONHASHSEED": "4711"}
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == here.digest
    assert play(QUICK[0] + 1, deeds=1, nodes=6).digest != here.digest


def test_every_kind_of_trouble_is_drawn_and_left_out() -> None:
    mixes = [draw(seed) for seed in range(1, 101)]
    for kind in Kind:
        assert 10 < sum(kind in mix for mix in mixes) < 90, kind
    assert {mix.nodes for mix in mixes} == set(range(6, 17))
    assert any(mix.real_tests for mix in mixes)


@pytest.mark.full
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_planted_bug_is_found(mutant: Mutant) -> None:
    with mutant.planted():
        outcome = play(mutant.seed, nodes=SMALL, kinds=mutant.kinds)
    assert outcome.violations, f"{mutant.name} ({mutant.recreates}) was not found by seed {mutant.seed}"
    sound = play(mutant.seed, nodes=SMALL, kinds=mutant.kinds)
    assert sound.violations == (), told(sound)
