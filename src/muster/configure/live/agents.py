"""Whether Muster's agents report the GPU nodes: what a silent one said last may no longer hold. Pure."""

from __future__ import annotations

from muster.configure.live.check import WELL, Check, unknown
from muster.configure.live.state import LiveState
from muster.resources.node_health import NodeHealth

NAME = "nodes/agents"
_NAMED = 3
_AGENT = "agent"
"""The controller's word for a node that waits for its agent (kind of a blocker)."""


def silent(health: NodeHealth | None) -> bool:
    """Whether the controller says that the agent of the node is silent; False where no controller judges it."""
    lifecycle = health.status.lifecycle if health is not None else None
    return lifecycle is not None and any(b.kind == _AGENT for b in lifecycle.blockers)


def agent_checks(live: LiveState) -> list[Check]:
    """One check, on a cluster where agents run at all: each GPU node has one that reports."""
    healths = {h.metadata.name: h for h in live.node_healths}
    if not any(h.status.observed is not None for h in healths.values()) or live.why_unread("nodes"):
        return []
    lost = sorted(
        node.name
        for node in live.gpu_nodes()
        if node.name not in healths or healths[node.name].status.observed is None or silent(healths[node.name])
    )
    verdict = WELL
    if lost:
        more = f" and {len(lost) - _NAMED} more" if len(lost) > _NAMED else ""
        named = f"{', '.join(lost[:_NAMED])}{more}"
        verdict = unknown(f"no agent of Muster reports {named}, so what these nodes are now is not known")
    look = "'kubectl get pods -A -o wide -l app.kubernetes.io/component=agent'"
    return [Check(NAME, "", verdict, look=look, drift=None, path="agents of GPU nodes")]
