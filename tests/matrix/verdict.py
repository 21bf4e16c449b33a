"""How a case may end, and what must stand on a node then."""

from __future__ import annotations

from typing import Any

from muster.resources.node_health import Lifecycle, State
from tests.matrix.axes import Case


def marks(name: str, node: Any, life: Lifecycle) -> list[str]:
    """Taint, label and condition as they are documented, without the code that writes them."""
    found = []
    taints = [(t["value"], t["effect"]) for t in node["spec"].get("taints") or [] if t["key"] == "muster.dev/hold"]
    if taints != ([(life.hold_reason, "NoSchedule")] if life.held else []):
        found.append(f"{name} is {life.state.value} with the taints {taints}")
    if node["metadata"]["labels"].get("muster.dev/state") != life.state.value:
        found.append(f"{name} is {life.state.value} with the label of another state")
    shown = [c["status"] for c in node["status"]["conditions"] if c["type"] == "MusterHealthy"]
    if len(shown) != 1 or (life.held and shown != ["False"]):
        found.append(f"{name} is {life.state.value} with the conditions {shown}")
    return found


def ends_well(case: Case, broken: set[int], node: Any, life: Lifecycle | None) -> list[str]:
    """In service and well, out with a reason, or waiting for somebody who is named."""
    if life is None:
        return ["the node has no lifecycle"]
    if node is None:
        return [] if life.held else ["a node that is gone is not held"]
    if life.state is State.IN_SERVICE:
        waived = any(word in case.act for word in ("release", "uncordon"))
        if broken and not waived and not life.blockers:
            return [f"it takes work with broken GPUs {sorted(broken)}"]
        return []
    if not life.hold_reason or not life.next:
        return [f"{life.state.value} without a reason"]
    waits = {b.kind for b in life.blockers}
    if life.state is State.OUT_OF_SERVICE:
        return [] if "person" in waits else [f"out of service and nobody is named: {life.blockers}"]
    if not waits & {"person", "budget", "maintenance"}:
        return [f"{life.state.value} for ever, waits for {[f'{b.kind}: {b.message}' for b in life.blockers]}"]
    return []
