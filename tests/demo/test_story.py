"""The whole story on virtual time: everything planted is named, nobody else is, and every node settles."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from functools import lru_cache
from pathlib import Path
from xml.etree import ElementTree

import pytest

from muster.demo import chapters
from muster.demo.outcome import Outcome, to_values, verdict_lines
from muster.demo.play import play_in_process
from muster.demo.report import report_html
from muster.operate.budget import allowance
from muster.resources.node_health import State
from muster.sim.defects import CuredBy, DefectKind
from muster.sim.plant import Plant, default_plant, healthy_plant

QUICK_NODES = 16


@lru_cache(maxsize=4)
def played(seed: int, nodes: int = QUICK_NODES) -> tuple[Outcome, str]:
    out = io.StringIO()
    return play_in_process(default_plant(seed, nodes), out, live=False, speed=0.0), out.getvalue()


def lost_for_good(plant: Plant) -> set[str]:
    """Nodes whose only cure the provider refuses, or that nothing cures."""
    refused = {r.node for r in plant.refusals}
    hopeless = {d.node for d in plant.defects if d.blames_node() and d.cured_by is CuredBy.NONE}
    return hopeless | {d.node for d in plant.defects if d.node in refused and d.cured_by is CuredBy.REPLACE}


def check(outcome: Outcome, plant: Plant) -> None:
    assert outcome.stuck == ()
    assert outcome.innocents == (), verdict_lines(outcome)
    assert outcome.missed == (), verdict_lines(outcome)
    out = {row.node for row in outcome.fleet if row.state == State.OUT_OF_SERVICE.value}
    assert out == lost_for_good(plant)
    for row in outcome.fleet:
        assert row.state in (State.IN_SERVICE.value, State.OUT_OF_SERVICE.value)
        assert bool(row.ticket) == (row.node in out)


@pytest.mark.parametrize("seed", [1, 2])
def test_every_defect_is_named_no_innocent_is_and_every_node_settles(seed: int) -> None:
    check(played(seed)[0], default_plant(seed, QUICK_NODES))


@pytest.mark.full
@pytest.mark.parametrize(("seed", "nodes"), [*((seed, 24) for seed in range(20)), (1, 64)])
def test_the_same_for_many_seeds(seed: int, nodes: int) -> None:
    plant = default_plant(seed, nodes)
    check(play_in_process(plant, io.StringIO(), live=False, speed=0.0), plant)


def test_one_seed_tells_one_story() -> None:
    first, text = played(1)
    again = io.StringIO()
    second = play_in_process(default_plant(1, QUICK_NODES), again, live=False, speed=0.0)
    assert again.getvalue() == text
    assert json.dumps(to_values(second)) == json.dumps(to_values(first))


@pytest.mark.full
def test_the_hash_seed_changes_nothing(tmp_path: Path) -> None:
    results = []
    for hash_seed in ("0", "1234"):
        file = tmp_path / f"{hash_seed}.json"
        done = subprocess.run(
            [sys.executable, "-m", "muster.cli.main", "demo", "--nodes", str(QUICK_NODES), "--json", str(file)]
            + ["--report", str(tmp_path / "report.html"), "--plain"],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        results.append((file.read_bytes(), done.stdout))
    assert results[0] == results[1]


def test_plain_lines_tell_all_chapters_without_escape_codes() -> None:
    text = played(1)[1]
    assert "\x1b" not in text
    places = [text.index(f"== {c}") for c in (chapters.BRING_UP, chapters.SERVICE, chapters.FAULT, chapters.UPDATE)]
    assert places == sorted(places)


def test_the_budget_holds_during_the_roll_out() -> None:
    outcome, _ = played(1)
    plant = default_plant(1, QUICK_NODES)
    most = allowance("10%", plant.nodes)
    assert worst_out(outcome) <= most


def worst_out(outcome: Outcome) -> int:
    """Most nodes out of service at one time that had served before and are not given up."""
    changes: list[tuple[object, int]] = []
    for record in outcome.records:
        served = out = False
        for step in sorted(record.transitions, key=lambda t: t.at):
            now_out = served and step.state not in (State.IN_SERVICE, State.OUT_OF_SERVICE)
            served = served or step.state is State.IN_SERVICE
            if now_out != out:
                changes.append((step.at, 1 if now_out else -1))
                out = now_out
    worst = current = 0
    for _, change in sorted(changes, key=lambda c: (c[0], c[1])):
        current += change
        worst = max(worst, current)
    return worst


def test_the_sums_of_the_story_close() -> None:
    goodput = played(1)[0].goodput
    assert goodput["total"]["us"] - sum(x["us"] for x in goodput["losses"]) == goodput["busy"]["us"] > 0
    assert sum(c["us"] for c in goodput["classes"].values()) == goodput["total"]["us"]


def test_three_nodes_are_explained_with_evidence() -> None:
    outcome, _ = played(1)
    assert len(outcome.explanations) == 3
    assert outcome.explanations[0].state == State.OUT_OF_SERVICE.value
    assert outcome.explanations[0].ticket
    for told in outcome.explanations:
        assert told.why
        assert told.next
        assert told.history


def test_the_report_of_the_story_tells_the_verdicts() -> None:
    outcome, _ = played(1)
    html = report_html(outcome)
    ElementTree.fromstring(html.split("\n", 1)[1])
    for planted in outcome.planted:
        assert all(node in html for node in planted.nodes)


def test_a_healthy_fleet_blames_nobody() -> None:
    plant = healthy_plant(3, 8)
    outcome = play_in_process(plant, io.StringIO(), live=False, speed=0.0)
    assert outcome.named == ()
    assert {row.state for row in outcome.fleet} == {State.IN_SERVICE.value}
    assert outcome.exact


def test_the_plant_of_the_story_has_every_kind_of_trouble() -> None:
    kinds = {d.kind for d in default_plant(1, QUICK_NODES).defects}
    assert kinds >= {DefectKind.BAD_NODE, DefectKind.SLOW_NODE, DefectKind.BAD_LINK, DefectKind.XID}
