"""The controller as a process of its own: killed in the middle of a drain, the story ends the same."""

from __future__ import annotations

import asyncio
import io
import os
import re
import signal

import pytest

from muster.clock import Clock
from muster.demo.cluster import Cluster
from muster.demo.outcome import Outcome
from muster.demo.play import play_in_process
from muster.demo.process import play
from muster.kube.api import NAMESPACES, NODE_HEALTHS, POD_DISRUPTION_BUDGETS, PODS
from muster.resources.base import from_object
from muster.resources.node_health import NodeHealth, State
from muster.sim.defects import Appears, CuredBy, Defect, DefectKind
from muster.sim.plant import Plant

SPEED = 90.0
NODE = "gpu-003"
NAMESPACE = "notebooks"
STARTED = re.compile(r"the controller runs as process (\d+)\.")


def plant() -> Plant:
    """One fault that a reset does not cure and a reboot does, on a fleet without jobs."""
    fault = Defect(
        kind=DefectKind.XID,
        node=NODE,
        gpu=2,
        xid=119,
        cured_by=CuredBy.REBOOT,
        appears=Appears.TIME,
        after_s=1.5 * 3600.0,
    )
    return Plant(seed=5, nodes=6, domains=2, defects=(fault,))


class Watched(io.StringIO):
    """Output that kills the controller the first time a node drains."""

    def __init__(self) -> None:
        super().__init__()
        self.pids: list[int] = []
        self.killed = asyncio.Event()
        self.again = asyncio.Event()

    def write(self, text: str) -> int:
        found = STARTED.search(text)
        if found:
            self.pids.append(int(found[1]))
            if self.killed.is_set():
                self.again.set()
        if "-> Draining" in text and not self.killed.is_set():
            self.killed.set()
            os.kill(self.pids[-1], signal.SIGKILL)
        return super().write(text)


async def _notebook(cluster: Cluster, clock: Clock, again: asyncio.Event) -> None:
    """A pod on the node that must not be disturbed, until a second controller runs."""
    api = cluster.api
    while True:
        healths = (await api.list_page(NODE_HEALTHS)).items
        if healths and NODE in {h.metadata.name for h in map(_serving, healths) if h is not None}:
            break
        await clock.sleep(60)
    await api.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    budget = {"minAvailable": 1, "selector": {"matchLabels": {"app": "notebook"}}}
    await api.create(
        POD_DISRUPTION_BUDGETS,
        {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "keep"}, "spec": budget},
        NAMESPACE,
    )
    container = {"name": "main", "image": "notebook", "resources": {"limits": {"nvidia.com/gpu": "8"}}}
    meta = {"name": "notebook", "labels": {"app": "notebook"}}
    spec = {"nodeName": NODE, "containers": [container]}
    await api.create(PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}, NAMESPACE)
    await again.wait()
    await clock.sleep(60)
    await api.delete(POD_DISRUPTION_BUDGETS, "keep", NAMESPACE)


def _serving(raw: bytes) -> NodeHealth | None:
    import json

    health = from_object(NodeHealth, json.loads(raw))
    life = health.status.lifecycle
    return health if life is not None and life.state is State.IN_SERVICE else None


def ends(outcome: Outcome) -> tuple[object, ...]:
    """What must be the same however often the controller died."""
    named = sorted({n.nodes for n in outcome.named})
    return named, [(row.node, row.state, row.ticket) for row in outcome.fleet], outcome.stuck


@pytest.mark.full
def test_a_controller_killed_in_the_middle_of_a_drain_is_continued() -> None:
    async def main() -> tuple[Outcome, Watched]:
        out = Watched()

        async def beside(cluster: Cluster, clock: Clock) -> None:
            await _notebook(cluster, clock, out.again)

        return await play(plant(), out, SPEED, beside), out

    outcome, out = asyncio.run(main())
    text = out.getvalue()
    assert out.killed.is_set(), text
    assert "ended with code -9; another one starts" in text
    assert len(out.pids) == 2
    assert text.count("-> Draining") == 1
    assert outcome.exact, text
    undisturbed = play_in_process(plant(), io.StringIO(), live=False, speed=0.0)
    assert ends(outcome) == ends(undisturbed)
