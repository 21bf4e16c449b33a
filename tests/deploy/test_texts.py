"""Alerts, dashboard, notes, values, README and the page about installation: they say what is there."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from muster import yamlio
from muster.telemetry.names import NAMES, Kind, Part
from tests.deploy.chart import CHART, OBSERVERS, one, render, templates
from tests.deploy.values import EVERYTHING

pytestmark = pytest.mark.full

ROOT = CHART.parents[1]

# Metrics

_WORD = re.compile(r"\bmuster_[a-z_]+\b")


def _exposed() -> dict[str, Part]:
    found: dict[str, Part] = {}
    for metric in NAMES.values():
        suffixes = ("_bucket", "_sum", "_count") if metric.kind is Kind.HISTOGRAM else ("",)
        found |= {metric.name + suffix: metric.part for suffix in suffixes}
    return found


def _expressions() -> list[tuple[str, str]]:
    objects = render(EVERYTHING)
    rules = one(objects, "PrometheusRule")["spec"]["groups"][0]["rules"]
    dashboard = json.loads(one(objects, "ConfigMap", "muster-dashboard")["data"]["muster.json"])
    found = [(rule["alert"], rule["expr"]) for rule in rules]
    return found + [(p["title"], t["expr"]) for p in dashboard["panels"] for t in p["targets"]]


@pytest.mark.requirement("v2.4/OMA02")
def test_alerts_and_dashboard_ask_for_metrics_that_exist() -> None:
    expressions = _expressions()
    assert len(expressions) > 20
    exposed = _exposed()
    for title, expression in expressions:
        names = _WORD.findall(expression)
        assert names, title
        assert set(names) <= exposed.keys(), title


def test_alerts_and_dashboard_ask_for_labels_that_exist() -> None:
    """`node`, `container` and `le` come from the scrape and from histograms."""
    for title, expression in _expressions():
        labels = {label for name in _WORD.findall(expression) for label in _labels(name)} | {
            "node",
            "container",
            "le",
        }
        grouped = {w.strip() for part in re.findall(r"by \(([^)]*)\)", expression) for w in part.split(",")}
        matched = set(re.findall(r"[{,]\s*(\w+)(?:=~|=|!=)", expression))
        assert grouped | matched <= labels, title


def _labels(name: str) -> tuple[str, ...]:
    return max((m for m in NAMES.values() if name.startswith(m.name)), key=lambda m: len(m.name)).labels


@pytest.mark.requirement("v2.4/OMA02", "companion/OBS04")
def test_every_alert_says_what_to_do() -> None:
    (group,) = one(render(EVERYTHING), "PrometheusRule")["spec"]["groups"]
    assert group["name"] == "muster"
    for rule in group["rules"]:
        assert rule["labels"]["severity"] in ("warning", "critical")
        assert rule["annotations"].keys() == {"summary", "description"}
        labels = set(re.findall(r"\$labels\.(\w+)", str(rule["annotations"])))
        allowed = {label for name in _WORD.findall(rule["expr"]) for label in _labels(name)} | {"node"}
        assert labels <= allowed


# Texts


def test_the_notes_warn_of_the_hold() -> None:
    (notes,) = [t for path, t in templates().items() if path.endswith("NOTES.txt")]
    assert "EVERY GPU NODE IS HELD NOW" in notes
    assert "registry.example/muster-tests:1" in notes
    (notes,) = [t for path, t in templates(OBSERVERS).items() if path.endswith("NOTES.txt")]
    assert "HELD" not in notes
    assert "Only the agents run" in notes


def _leaves(values: Mapping[str, Any], schema: Mapping[str, Any], path: str = "") -> dict[str, Any]:
    """Values by path, down to where the schema stops naming keys."""
    found: dict[str, Any] = {}
    for key, value in values.items():
        here = f"{path}{key}"
        part = schema["properties"][key]
        if "properties" in part and key != "resources":
            found |= _leaves(value, part, f"{here}.")
        else:
            found[here] = value
    return found


def test_the_readme_of_the_chart_names_every_value_and_its_default() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    wanted = _leaves(yamlio.load(CHART / "values.yaml"), schema)
    rows = re.findall(r"^\| `([\w.]+)` \| (?:`(.+?)`)? ?\| (.+) \|$", (CHART / "README.md").read_text(), re.MULTILINE)
    assert [name for name, _, _ in rows] == list(wanted)
    for name, default, said in rows:
        if default:
            assert json.loads(default) == wanted[name], name
        else:
            assert said.startswith("Default: "), name


def test_every_value_has_a_schema_and_every_schema_a_value() -> None:
    def same(values: Any, schema: Mapping[str, Any], path: str) -> None:
        if "properties" not in schema or path.endswith(".resources"):
            return
        assert schema["additionalProperties"] is False, path
        assert set(schema["properties"]) - {"global"} == set(values), path
        for key, value in values.items():
            same(value, schema["properties"][key], f"{path}.{key}")

    same(yamlio.load(CHART / "values.yaml"), json.loads((CHART / "values.schema.json").read_text()), "")


def test_every_value_is_explained() -> None:
    lines = (CHART / "values.yaml").read_text().splitlines()
    obvious = {
        "pullPolicy",
        "affinity",
        "nodeSelector",
        "podAnnotations",
        "podLabels",
        "labels",
        "enabled",
        "interval",
        "cpu",
        "memory",
        "grafana_dashboard",
    }
    for before, line in itertools.pairwise(lines):
        match = re.fullmatch(r"\s*(\w+): \S.*", line)
        if match and not line.strip().startswith("#") and match.group(1) not in obvious:
            listed = line.strip().startswith(("operator", "effect"))
            assert listed or before.strip().startswith("#"), line


def test_the_install_page_names_only_values_that_exist() -> None:
    page = (ROOT / "docs" / "install.md").read_text()
    schema = json.loads((CHART / "values.schema.json").read_text())
    known = _leaves(yamlio.load(CHART / "values.yaml"), schema)
    heads = "|".join(sorted({name.partition(".")[0] for name in known if "." in name}))
    for name in re.findall(rf"\b(?:{heads})(?:\.[A-Za-z]+)+\b(?![/\[])", page):
        if name.rpartition(".")[2] in ("md", "json") or name.endswith(".muster.dev"):
            continue
        assert any(leaf == name or leaf.startswith(f"{name}.") for leaf in known), name


def test_files_of_the_project_do_not_leave_the_image_room() -> None:
    """The image takes in what it is built from and nothing else."""
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    sources = sorted({word for line in copied for word in line.split()})
    assert sorted(line[1:] for line in ignored if line.startswith("!")) == sources
    for source in sources:
        assert Path(ROOT / source).exists()
