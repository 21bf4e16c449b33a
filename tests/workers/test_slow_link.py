"""One slow path between two good nodes: the link is named, and neither of its ends."""

from __future__ import annotations

import asyncio
import tempfile
import warnings
from pathlib import Path

import pytest

from muster.certify.local_fleet import (
    LocalOutcome,
    calibrate,
    carry_on,
    local_tests,
    make_local_plan,
    node_names,
)
from muster.certify.runners.local import LocalRunner
from muster.clock import SystemClock
from muster.resources.certification import CertificationBudget, NodeVerdict
from tests.torch_python import torch_python
from tests.workers.namespaces import make_slow, nodes_in_namespaces, why_not

pytestmark = [pytest.mark.full, pytest.mark.timeout(600)]

CLOCK = SystemClock()
NAMES = node_names(4)


async def certified(a: str, b: str) -> LocalOutcome:
    tests = local_tests(("pair", "all-to-all"))
    with nodes_in_namespaces(NAMES) as places, tempfile.TemporaryDirectory() as folder:
        async with LocalRunner(CLOCK, places, python=torch_python(), folder=Path(folder)) as runner:
            calibration = await calibrate(CLOCK, runner, NAMES, tests)
            make_slow(NAMES, a, b)
            runner.begin("slow-", {})
            plan = make_local_plan(NAMES, tests, calibration, CertificationBudget(), seed=1, matchings=1)
            return await carry_on(CLOCK, runner, plan, calibration)


def test_a_slow_link_is_named_and_no_node() -> None:
    reason = why_not()
    if reason:
        # Not skipped: what could not be proven here stands in the summary, and the reason must be a real one.
        warnings.warn(f"NOT PROVEN HERE: a slow link between network namespaces ({reason})", stacklevel=1)
        assert "not allowed" in reason or "not installed" in reason or "fails" in reason
        return
    outcome = asyncio.run(certified("local-1", "local-2"))
    said = "\n".join(f"{r.id} {r.test} {r.nodes} {r.outcome} {r.message}" for r in outcome.records)
    assert [v.name for v in outcome.verdicts.nodes if v.verdict is NodeVerdict.FAILED] == [], said
    assert [{v.a, v.b} for v in outcome.verdicts.links if v.verdict is NodeVerdict.FAILED] == [
        {"local-1", "local-2"}
    ], said
