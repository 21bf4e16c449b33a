"""The page about goodput: its profile, its log and its numbers belong together."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from muster import yamlio
from muster.read import formats
from muster.read.training.profiles import Event
from tests.read.cases import as_input

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "measure-goodput.md"


def block(kind: str) -> str:
    (found,) = re.findall(rf"```{kind}\n(.*?)```", PAGE.read_text(), re.DOTALL)
    return str(found)


def test_the_example_gives_the_numbers_of_the_page() -> None:
    log = as_input("loop.log", block("text").encode())
    context = yamlio.loads(block("yaml"), "context")
    values = formats.read([log], context, "training-log").plain()["values"]
    said = {name: float(seconds) for seconds, name in re.findall(r"(\d+) `(\w+)`", PAGE.read_text())}
    parts = values["parts"]["value"]
    assert {name: parts[name] for name in said} == said
    assert sum(said.values()) == values["wall_time"]["value"] == 160
    # Reckoned from the log by hand: 4 steps, one of them twice, one pause of 5 s, 60 s down, 45 s of starting.
    assert values["goodput_time"]["value"] == pytest.approx(40 / 160)
    assert values["goodput_ettr"]["value"] == pytest.approx(45 / 160)
    assert values["goodput_useful_progress"]["value"] == pytest.approx((160 - 10 - 45 - 60 - 5) / 100)
    assert values["goodput_flop"]["value"] == pytest.approx(40 / 160 * 400 / 989, abs=1e-4)


def test_the_page_names_every_part_and_event() -> None:
    text = PAGE.read_text()
    log = as_input("loop.log", block("text").encode())
    report = formats.read([log], yamlio.loads(block("yaml"), "context"), "training-log").plain()
    missing = [name for name in (*report["values"]["parts"]["value"], *Event) if f"`{name}`" not in text]
    assert missing == []
