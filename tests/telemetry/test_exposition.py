"""The text format: whatever is counted comes back from an independent parser."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from muster.telemetry.exposition import Family, Sample, number, process_families, text
from muster.telemetry.names import Kind

LABELS = st.text(st.characters(blacklist_categories=["Cs", "Cc"], whitelist_characters='\n\\"'), max_size=20)


@given(value=LABELS, says=LABELS, count=st.floats(allow_nan=False))
def test_any_label_help_and_value_survive(value: str, says: str, count: float) -> None:
    family = Family("muster_x", Kind.GAUGE, says, [Sample(count, (("a", value), ("b", "plain")))])
    found = list(text_string_to_metric_families(text([family]).decode()))
    assert [(f.name, f.type) for f in found] == [("muster_x", "gauge")]
    assert [(s.name, s.labels, s.value) for s in found[0].samples] == [
        ("muster_x", {"a": value, "b": "plain"}, count)
    ]


def test_numbers_are_written_as_the_format_wants_them() -> None:
    assert [number(v) for v in (0, 1.0, -3, 0.25, 2**60, math.inf, -math.inf, math.nan)] == [
        "0", "1", "-3", "0.25", "1.152921504606847e+18", "+Inf", "-Inf", "NaN",
    ]  # fmt: skip


def test_the_process_tells_of_itself() -> None:
    found = {f.name: f.samples[0].value for f in process_families()}
    assert found["process_resident_memory_bytes"] > 4 * 1024 * 1024
    assert found["process_virtual_memory_bytes"] >= found["process_resident_memory_bytes"]
    assert found["process_cpu_seconds_total"] > 0
    assert 3 <= found["process_open_fds"] <= found["process_max_fds"]
    assert found["process_start_time_seconds"] > 1_700_000_000
