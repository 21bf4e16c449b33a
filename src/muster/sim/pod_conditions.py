"""Conditions in the status of a pod, as the control plane sets them."""

from __future__ import annotations

from typing import Any

from muster.kube.api import Object


def with_condition(pod: Object, condition: dict[str, Any]) -> Object:
    """The pod with `condition` in its status, in the place of an older one of its type."""
    status = dict(pod.get("status") or {})
    conditions = list(status.get("conditions") or ())
    places = [at for at, c in enumerate(conditions) if c.get("type") == condition["type"]]
    if not places:
        conditions.append(condition)
    else:
        before = conditions[places[0]]
        if all(before.get(name) == condition.get(name) for name in ("status", "reason", "message")):
            return pod
        conditions[places[0]] = condition
    return {**pod, "status": {**status, "conditions": conditions}}


def condition(kind: str, status: str, at: str, reason: str = "", message: str = "") -> dict[str, Any]:
    """A condition as it is stored; `at` is the time of its last change (RFC 3339)."""
    made: dict[str, Any] = {"type": kind, "status": status, "lastProbeTime": None, "lastTransitionTime": at}
    told = {"reason": reason, "message": message}
    return {**made, **{name: value for name, value in told.items() if value}}
