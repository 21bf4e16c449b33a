"""The parts of the bed that judge a story, on made-up snapshots: each finds what it is there to find."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from muster.resources.base import HOLD_TAINT, REQUESTS_ANNOTATION, ObjectMeta
from muster.resources.certification import (
    Certification,
    CertificationSpec,
    CertificationStatus,
    NodeResult,
    NodeVerdict,
)
from muster.resources.node_health import Lifecycle, NodeHealth, NodeHealthStatus, State
from tests.invariants.checker import Snapshot
from tests.real.bed import RULES, released
from tests.real.ending import passed, passes
from tests.real.rights import credential_of

NOW = datetime(2026, 1, 5, 8, 0, tzinfo=UTC)
HELD = Lifecycle(state=State.UNCERTIFIED, since=NOW, held=True, hold_reason="new-node", next="Waits.")


def snapshot(life: Lifecycle, *, tainted: bool) -> Snapshot:
    taints = [{"key": HOLD_TAINT, "effect": "NoSchedule"}] if tainted else []
    node: dict[str, Any] = {"metadata": {"name": "n1", "uid": "u"}, "spec": {"taints": taints}}
    health = NodeHealth(metadata=ObjectMeta(name="n1"), status=NodeHealthStatus(lifecycle=life))
    return Snapshot(NOW, RULES, {"n1": node}, {"n1": health})


def test_a_node_that_loses_its_taint_while_it_is_held_was_released() -> None:
    found = released(snapshot(HELD, tainted=True), snapshot(HELD, tainted=False))
    assert [v.invariant for v in found] == [1]


@pytest.mark.parametrize(
    ("before", "tainted_before", "after", "tainted_after"),
    [
        pytest.param(HELD, True, HELD, True, id="still held"),
        pytest.param(HELD, False, HELD, False, id="not held yet"),
        pytest.param(HELD, True, replace(HELD, held=False), False, id="let go"),
        pytest.param(HELD, True, replace(HELD, since=NOW + timedelta(seconds=1)), False, id="held anew since"),
    ],
)
def test_other_changes_release_nobody(
    before: Lifecycle, tainted_before: bool, after: Lifecycle, tainted_after: bool
) -> None:
    assert released(snapshot(before, tainted=tainted_before), snapshot(after, tainted=tainted_after)) == []


def certification(name: str, request: str, verdict: NodeVerdict, profile: str = "repair") -> Certification:
    requests = {"n1": {"episode": request}}
    return Certification(
        metadata=ObjectMeta(name=name, annotations={REQUESTS_ANNOTATION: json.dumps(requests)}),
        spec=CertificationSpec(nodes=("n1",), profile=profile),
        status=CertificationStatus(nodes=(NodeResult(name="n1", verdict=verdict),)),
    )


def test_passing_twice_for_one_request_counts_twice() -> None:
    first, again = (certification(name, "e1", NodeVerdict.PASSED) for name in ("a", "b"))
    failed, later = certification("c", "e1", NodeVerdict.FAILED), certification("d", "e2", NodeVerdict.PASSED)
    assert sorted(passes([first, again, failed, later]).values()) == [1, 2]


def test_who_passed_is_told_by_profile() -> None:
    one = certification("a", "e1", NodeVerdict.PASSED, "stack")
    other = certification("b", "e1", NodeVerdict.FAILED, "bringup")
    seen = Snapshot(NOW, RULES, certifications={"a": one, "b": other})
    assert (passed(seen, "stack"), passed(seen, "bringup")) == ({"n1"}, set())


def test_a_token_has_the_credential_that_the_audit_log_shows() -> None:
    claims = base64.urlsafe_b64encode(json.dumps({"jti": "1234"}).encode()).decode().rstrip("=")
    assert credential_of(f"header.{claims}.signature") == "JTI=1234"
