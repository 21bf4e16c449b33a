"""Benchmarks and diagnostics with bytes changed: an answer or one sentence, never a crash, and always plain JSON."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.errors import BadInputError
from muster.read import formats
from tests.read.bandwidth_maker import Made
from tests.read.cases import as_input
from tests.read.test_bandwidth_comparisons import GOOD_THEN_BAD, csv, matrix, square, table
from tests.read.test_bandwidth_tables import FAST, RING, as_json
from tests.read.test_diagnostics import R3, document, links, new, old, result, smi, text

WORDS = [
    "nan",
    "-inf",
    "1e308",
    "9" * 40,
    "\x00",
    "|",
    "{",
    "[",
    '"',
    "\n",
    "\r",
    ",",
    "GPU",
    "-1",
    "\u00b2",
    "\u0663",
    " " * 50,
]
SEEDS = {
    "nccl-tests": [
        Made(FAST).text(),
        Made(FAST, layout="old").text("[1,0]<stdout>:"),
        as_json(Made(FAST)),
        csv(GOOD_THEN_BAD),
    ],
    "link": [table({("n1", "n2"): 40, ("n1", "n3"): 94, ("n2", "n4"): 95})],
    "nvbandwidth": [matrix(square(6, slow=2))],
    "dcgm-diag": [
        text(old(R3)),
        text(new()),
        document([result(0), result(1, "Fail")]),
        links(["UD_X"] * 3),
        smi([["<inactive>"]]),
    ],
}


@pytest.mark.parametrize("kind", SEEDS)
@given(st.data())
@settings(max_examples=150, deadline=None)
def test_changed_bytes_are_read_or_refused(kind: str, data: st.DataObject) -> None:
    seed = data.draw(st.sampled_from(SEEDS[kind]))
    for _ in range(data.draw(st.integers(1, 6))):
        at = data.draw(st.integers(0, len(seed)))
        gone = data.draw(st.integers(0, 40))
        seed = seed[:at] + data.draw(st.sampled_from(WORDS)) + seed[at + gone :]
    try:
        report = formats.read([as_input("input", seed.encode())], RING, kind).plain()
    except BadInputError:
        return
    assert json.loads(json.dumps(report, allow_nan=False))["kind"] == kind
