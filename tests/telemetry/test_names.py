"""The table of metrics keeps the conventions, and the page that is made of it is fresh."""

from __future__ import annotations

import re
from pathlib import Path

from muster.telemetry.names import NAMES, Kind, Part
from muster.telemetry.reference_page import page

PAGE = Path(__file__).parents[2] / "docs/reference/metrics.md"
FORBIDDEN = {"node", "gpu", "uuid", "pod", "namespace", "user", "message", "name"}


def test_names_and_units_follow_the_conventions() -> None:
    for name, metric in NAMES.items():
        assert name == metric.name
        assert re.fullmatch(r"muster_[a-z_]+[a-z]", name)
        assert name.startswith("muster_agent_") or metric.part is not Part.AGENT
        assert name.endswith("_total") == (metric.kind is Kind.COUNTER), name
        assert name.endswith("_seconds") or metric.kind is not Kind.HISTOGRAM
        assert metric.help.endswith(".")


def test_no_label_grows_with_the_fleet() -> None:
    for metric in NAMES.values():
        assert not FORBIDDEN & set(metric.labels), metric.name
        assert metric.bound != "1 series" or not metric.labels or metric.name == "muster_build_info"


def test_histograms_have_rising_buckets_and_nothing_else_has_any() -> None:
    for metric in NAMES.values():
        assert bool(metric.buckets) == (metric.kind is Kind.HISTOGRAM), metric.name
        assert list(metric.buckets) == sorted(set(metric.buckets))


def test_the_page_is_fresh() -> None:
    command = "python -m muster.telemetry.reference_page docs/reference/metrics.md"
    assert PAGE.read_text(encoding="utf-8") == page(), f"stale: run {command}"


def test_every_metric_is_seen_to_move_in_a_test() -> None:
    here = Path(__file__).parent
    files = ("test_controller_metrics.py", "test_agent_metrics.py", "test_endpoint.py")
    told = "".join((here / name).read_text(encoding="utf-8") for name in files)
    asserted = set(re.findall(r'"(muster_[a-z_]+)"', told))
    missing = [n for n in NAMES if not asserted & {n, f"{n}_count", f"{n}_sum"}]
    assert missing == []
