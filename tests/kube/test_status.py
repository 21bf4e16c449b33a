"""A Status of failure as a typed error: what it says about disruption budgets is not lost."""

from __future__ import annotations

import json
from typing import Any

from muster.kube.api import TooManyRequestsError
from muster.kube.status import error_from_status

REFUSAL = "Cannot evict pod as it would violate the pod's disruption budget."


def status(causes: list[dict[str, Any]]) -> bytes:
    details = {"causes": causes, "retryAfterSeconds": 10}
    return json.dumps({"code": 429, "reason": "TooManyRequests", "message": REFUSAL, "details": details}).encode()


def test_the_budget_that_forbids_an_eviction_is_named() -> None:
    text = "The disruption budget train needs 2 healthy pods and has 2 currently"
    error = error_from_status(429, status([{"reason": "DisruptionBudget", "message": text}]))
    assert isinstance(error, TooManyRequestsError)
    assert str(error) == f"{REFUSAL.rstrip('.')}: {text}"
    assert error.retry_after_s == 10


def test_other_causes_stay_out_of_the_message() -> None:
    error = error_from_status(429, status([{"reason": "FieldValueInvalid", "message": "x", "field": "spec"}]))
    assert str(error) == REFUSAL


def test_a_status_without_details_is_read() -> None:
    assert str(error_from_status(500, b'{"message": "m", "details": null}')) == "m"
