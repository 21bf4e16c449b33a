"""Projections of a lifecycle onto its Node: taint, label, condition, cordon. Rebuilt from the status at any time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from muster.operate.lifecycle import admits
from muster.operate.model import BlockerKind
from muster.resources.base import CORDON_ANNOTATION, HEALTH_CONDITION, HOLD_TAINT, STATE_LABEL, ConditionStatus
from muster.resources.node_health import Lifecycle, Standing, State

MESSAGE_LIMIT = 1024
"""Length of a condition's message: a summary, never state."""

Taint = dict[str, Any]


@dataclass(frozen=True)
class Health:
    """Content of the condition `MusterHealthy`."""

    status: ConditionStatus
    reason: str
    message: str


def taints(life: Lifecycle, present: Sequence[Taint]) -> list[Taint]:
    """The taints the node should have: all foreign ones as they are, and the hold when the node is held.

    A hold that is there keeps its place: others add their taints behind it, and order alone is nothing to write.
    """
    hold = [{"key": HOLD_TAINT, "value": life.hold_reason, "effect": "NoSchedule"}]
    if life.no_execute:
        hold.append({"key": HOLD_TAINT, "value": life.hold_reason, "effect": "NoExecute"})
    place = next((n for n, t in enumerate(present) if t.get("key") == HOLD_TAINT), len(present))
    before, after = (
        [dict(t) for t in part if t.get("key") != HOLD_TAINT] for part in (present[:place], present[place:])
    )
    # The server adds the time to a taint that evicts; it is no difference.
    present_ours = [dict(t) for t in present if t.get("key") == HOLD_TAINT]
    if life.held and [{k: v for k, v in t.items() if k != "timeAdded"} for t in present_ours] == hold:
        hold = present_ours
    return [*before, *(hold if life.held else []), *after]


def labels(life: Lifecycle) -> dict[str, str]:
    return {STATE_LABEL: life.state.value}


def health(life: Lifecycle) -> Health:
    """True: works on a valid certificate. Unknown: in service but unseen. False: anything else, with the reason."""
    kinds = [b.kind for b in life.blockers]
    message = life.next[:MESSAGE_LIMIT]
    if life.state is not State.IN_SERVICE or not admits(life.certificate):
        return Health(ConditionStatus.FALSE, life.state.value, message)
    if BlockerKind.FAULT in kinds or BlockerKind.BUDGET in kinds:
        return Health(ConditionStatus.FALSE, "DisruptionWaits", message)
    if BlockerKind.AGENT in kinds:
        return Health(ConditionStatus.UNKNOWN, "AgentSilent", message)
    if BlockerKind.NODE in kinds:
        return Health(ConditionStatus.UNKNOWN, "NodeNotReady", message)
    if life.certificate is not None and life.certificate.standing is Standing.GRACE:
        return Health(ConditionStatus.TRUE, "Grace", message)
    return Health(ConditionStatus.TRUE, "Certified", message)


def condition(life: Lifecycle, present: dict[str, Any] | None, now: datetime) -> dict[str, Any] | None:
    """The condition to write, or None when `present` says it already."""
    wanted = health(life)
    seen = present or {}
    same_status = seen.get("status") == wanted.status.value
    if same_status and (seen.get("reason"), seen.get("message", "")) == (wanted.reason, wanted.message):
        return None
    stamp = now.strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "type": HEALTH_CONDITION,
        "status": wanted.status.value,
        "reason": wanted.reason,
        "message": wanted.message,
        "lastHeartbeatTime": stamp,
        "lastTransitionTime": (seen.get("lastTransitionTime") or stamp) if same_status else stamp,
    }


@dataclass(frozen=True)
class CordonChange:
    """What to change about the cordon; None leaves the field alone. An empty `annotation` removes it."""

    unschedulable: bool | None = None
    annotation: str | None = None


def cordon(life: Lifecycle, unschedulable: bool, cordoned_by: str) -> CordonChange:
    """How the cordon follows the lifecycle. A cordon without our annotation is a person's and is never touched.

    A cordon of ours that a person lifted (annotation there, node schedulable) is not placed again here: the decision
    sees it and takes it into the lifecycle.
    """
    episode = life.episode.id if life.episode else ""
    if life.cordon and not cordoned_by and not unschedulable:
        return CordonChange(unschedulable=True, annotation=episode)
    if life.cordon or not cordoned_by:
        return CordonChange()
    return CordonChange(unschedulable=False if unschedulable else None, annotation="")


def node_patch(
    life: Lifecycle,
    present_taints: Sequence[Taint],
    present_labels: dict[str, str],
    cordoned_by: str,
    unschedulable: bool,
) -> dict[str, Any]:
    """A JSON merge patch for the Node's metadata and spec, empty when everything is in place."""
    metadata: dict[str, Any] = {}
    spec: dict[str, Any] = {}
    wanted = labels(life)
    if any(present_labels.get(k) != v for k, v in wanted.items()):
        metadata["labels"] = wanted
    wanted_taints = taints(life, present_taints)
    if wanted_taints != [dict(t) for t in present_taints]:
        spec["taints"] = wanted_taints or None
    change = cordon(life, unschedulable, cordoned_by)
    if change.annotation is not None:
        metadata["annotations"] = {CORDON_ANNOTATION: change.annotation or None}
    if change.unschedulable is not None:
        spec["unschedulable"] = change.unschedulable or None
    patch: dict[str, Any] = {}
    if metadata:
        patch["metadata"] = metadata
    if spec:
        patch["spec"] = spec
    return patch
