"""What the page on monitoring says of metrics, paths and options is true."""

from __future__ import annotations

import re
from pathlib import Path

from click.testing import CliRunner

from muster import yamlio
from muster.cli.agent import agent
from muster.cli.controller import controller
from muster.telemetry.names import NAMES

PAGE = (Path(__file__).parents[2] / "docs/how-to/monitor.md").read_text(encoding="utf-8")


def known(name: str) -> bool:
    return name in NAMES or re.sub(r"_(bucket|sum|count)$", "", name) in NAMES


def test_every_metric_that_it_names_exists() -> None:
    named = set(re.findall(r"muster_[a-z_]+[a-z]", PAGE))
    assert len(named) >= 10
    assert [n for n in sorted(named) if not known(n) and n != "muster_budget"] == []


def test_labels_in_queries_are_those_of_the_metrics() -> None:
    for name, labels in re.findall(r"(muster_[a-z_]+)\{([^}]*)\}", PAGE):
        assert {label.strip() for label in re.findall(r"(\w+)\s*=", labels)} <= set(NAMES[name].labels), name


def test_the_alerts_are_a_rule_file() -> None:
    document = yamlio.loads(PAGE.split("```yaml")[1].split("```")[0], "the alerts")
    rules = document["groups"][0]["rules"]
    assert len({rule["alert"] for rule in rules}) == len(rules) >= 5
    assert all(rule["expr"] and rule["annotations"]["summary"].endswith(".") for rule in rules)


def test_every_option_that_it_names_exists() -> None:
    explained = "".join(CliRunner().invoke(verb, ["run", "--help"]).output for verb in (controller, agent))
    options = set(re.findall(r"(?<!-)--[a-z][a-z-]+", PAGE))
    assert {"--listen", "--log-format", "--requests-per-second"} <= options
    assert [option for option in sorted(options) if option not in explained] == []
