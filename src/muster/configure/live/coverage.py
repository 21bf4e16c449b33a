"""Which nodes the pods of a template may run on: node selector, required node affinity, taints. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from muster.configure.live.kinds import LiveNode, PodPlacement, Requirement, SelectorTerm, Taint, Toleration
from muster.resources.base import HOLD_TAINT

_DAEMON_SET_TOLERATES = frozenset(
    {
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/unreachable",
        "node.kubernetes.io/disk-pressure",
        "node.kubernetes.io/memory-pressure",
        "node.kubernetes.io/pid-pressure",
        "node.kubernetes.io/unschedulable",
        "node.kubernetes.io/network-unavailable",
    }
)
"""The controller of DaemonSets adds these tolerations to its pods (the last one with the host's network only)."""
_REPELLING = ("NoSchedule", "NoExecute")


def selects(placement: PodPlacement, node: LiveNode) -> bool:
    """Whether selector and required affinity admit `node`, taints left aside."""
    wanted = placement.node_selector or {}
    if any(node.labels.get(key) != value for key, value in wanted.items()):
        return False
    affinity = placement.affinity.node_affinity if placement.affinity is not None else None
    if affinity is None or affinity.required is None:
        return True
    return any(_term_holds(term, node) for term in affinity.required.node_selector_terms or ())


def untolerated(placement: PodPlacement, node: LiveNode) -> tuple[Taint, ...]:
    """The taints that keep a DaemonSet's new pods off `node`. Muster's own hold is none: it is meant to."""
    return tuple(
        taint
        for taint in node.spec.taints or ()
        if taint.effect in _REPELLING
        and taint.key != HOLD_TAINT
        and taint.key not in _DAEMON_SET_TOLERATES
        and not any(_tolerates(t, taint) for t in placement.tolerations or ())
    )


def repels_when_held(placement: PodPlacement, node: LiveNode) -> bool:
    """Whether Muster's hold keeps new pods off `node`; wrong for a DaemonSet that prepares nodes."""
    return any(
        taint.key == HOLD_TAINT and not any(_tolerates(t, taint) for t in placement.tolerations or ())
        for taint in node.spec.taints or ()
    )


def why_none(placement: PodPlacement, nodes: Sequence[LiveNode]) -> str:
    """Why no node is covered, in one clause."""
    selected = [node for node in nodes if selects(placement, node)]
    if selected:
        taints = sorted({str(t) for node in selected for t in untolerated(placement, node)})
        if taints:
            return f"it does not tolerate the taint {', '.join(taints[:3])} of the nodes that it selects"
        return "the DaemonSet controller has not placed it although nodes match"
    for key, value in sorted((placement.node_selector or {}).items()):
        if not any(node.labels.get(key) == value for node in nodes):
            return f"its node selector {key}={value} matches no node"
    if placement.node_selector:
        told = ",".join(f"{k}={v}" for k, v in sorted(placement.node_selector.items()))
        return f"its node selector {told} matches no node as a whole"
    return "its required node affinity matches no node"


def _term_holds(term: SelectorTerm, node: LiveNode) -> bool:
    if not term.match_expressions and not term.match_fields:
        return False  # as the API says: an empty term matches nothing
    labels = all(_requirement_holds(r, node.labels) for r in term.match_expressions or ())
    fields = {"metadata.name": node.name}
    return labels and all(_requirement_holds(r, fields) for r in term.match_fields or ())


def _requirement_holds(wanted: Requirement, labels: dict[str, str]) -> bool:
    value, values = labels.get(wanted.key), wanted.values or ()
    match wanted.operator:
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt":
            if value is None or len(values) != 1:
                return False
            try:
                found, bound = int(value), int(values[0])
            except ValueError:
                return False
            return found > bound if wanted.operator == "Gt" else found < bound
        case _:
            return False


def _tolerates(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator == "Exists":
        return True
    return bool(toleration.key) and toleration.value == taint.value
