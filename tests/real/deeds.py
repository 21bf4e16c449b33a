"""What tests do to a cluster in which a story goes on, and what they wait for."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any

from muster.clock import SystemClock
from muster.kube.api import (
    EVENTS,
    NAMESPACES,
    NODE_HEALTHS,
    POD_DISRUPTION_BUDGETS,
    PODS,
    ForbiddenError,
    NotFoundError,
    PatchType,
)
from muster.kube.election import micro_time
from muster.resources.node_health import State
from muster.sim.retry import persist
from tests.invariants.checker import Snapshot
from tests.real.bed import Bed

LIMIT_S = 150.0
POLL_S = 0.15
NAMESPACE, NOTEBOOK, BUDGET = "notebooks", "notebook", "keep"
FINALIZER = "tests.muster.dev/still-here"


@dataclass
class Deeds:
    """Done to `bed`; `done` says what was done, in order."""

    bed: Bed
    done: list[str] = field(default_factory=list)

    async def until(self, what: str, seen: Callable[[Snapshot], bool]) -> Snapshot:
        """Wait until the cluster shows it. Fails after LIMIT_S real seconds."""
        deadline = time.monotonic() + LIMIT_S
        while True:
            snapshot = await self.bed.snapshot()
            if seen(snapshot):
                return snapshot
            assert time.monotonic() < deadline, f"never saw {what} after {self.done}:\n{self.bed.out.getvalue()}"
            await asyncio.sleep(POLL_S)

    async def until_state(self, node: str, state: State) -> Snapshot:
        return await self.until(f"{node} {state.value}", lambda s: state_of(s, node) is state)

    # Controllers

    async def leader(self, other_than: str = "") -> str:
        """The identity of a leader, another one than `other_than`."""
        deadline = time.monotonic() + LIMIT_S
        while True:
            found = await persist(SystemClock(), lambda: self.bed.controllers.leader(self.bed.api))
            if found and found != other_than:
                return found
            assert time.monotonic() < deadline, (
                f"nobody leads but {other_than}: {self.bed.controllers.told()[-3000:]}"
            )
            await asyncio.sleep(POLL_S)

    async def kill_leader(self, when: str) -> None:
        """SIGKILL the leader; return when another one leads."""
        leader = await self.leader()
        self.bed.controllers.kill(leader)
        self.done.append(f"killed {leader} while {when}")
        await self.leader(other_than=leader)

    async def cut_off_leader(self, when: str, *, silently: bool) -> Cut:
        """Break the leader's connections until another one leads. `silently`: nothing is reset, nothing arrives."""
        leader = await self.leader()
        slot = int(leader.partition(".")[0].rpartition("-")[2])
        link = self.bed.links[slot]
        link.freeze() if silently else link.cut()
        self.done.append(f"{'froze' if silently else 'cut'} the link of {leader} while {when}")
        await self.leader(other_than=leader)
        return Cut(leader, self.bed.credentials[slot], link.heal)

    # The API server

    async def restart_api_server(self, when: str, *, kill: bool, compact: bool = False) -> None:
        """Stop it (`kill`: without asking) and start it. `compact`: no watch can go on where it was."""
        plane = self.bed.plane
        if compact:
            await asyncio.to_thread(plane.compact)
        await asyncio.to_thread(plane.stop_api_server, kill=kill)
        begin = _now()
        await asyncio.to_thread(plane.start_api_server)
        self.bed.starts.append((begin, _now()))
        self.done.append(f"{'killed' if kill else 'stopped'} and started the API server while {when}")

    # People

    async def release_twice(self, node: str) -> None:
        """A person releases a node that works, and again: nothing comes of it but the same words twice."""
        for decision in ("release-1", "release-2"):
            patch = {"spec": {"decision": {"id": decision, "verb": "release", "by": "night-shift"}}}
            await self.bed.api.patch(NODE_HEALTHS, node, patch, PatchType.MERGE)
            await self.until("the decision acknowledged", partial(_seen, node, decision))
        deadline = time.monotonic() + LIMIT_S
        while not await self._a_series():
            assert time.monotonic() < deadline, "the same words twice are not one event that happened twice"
            await asyncio.sleep(POLL_S)

    async def _a_series(self) -> bool:
        page = await self.bed.api.list_page(EVENTS, "default")
        return any((json.loads(raw).get("series") or {}).get("count", 0) >= 2 for raw in page.items)

    # Work on a node

    async def place_notebook(self, node: str) -> None:
        """A pod with GPUs that a budget protects, and that stays after its eviction until `let_go`."""
        api = self.bed.api
        await api.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
        budget = {"minAvailable": 1, "selector": {"matchLabels": {"app": NOTEBOOK}}}
        body = {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": BUDGET},
            "spec": budget,
        }
        await api.create(POD_DISRUPTION_BUDGETS, body, NAMESPACE)
        container = {"name": "main", "image": "notebook", "resources": {"limits": {"nvidia.com/gpu": "8"}}}
        metadata = {"name": NOTEBOOK, "labels": {"app": NOTEBOOK}, "finalizers": [FINALIZER]}
        spec = {"nodeName": node, "containers": [container], "terminationGracePeriodSeconds": 30}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
        deadline = time.monotonic() + LIMIT_S
        while True:
            try:
                await api.create(PODS, pod, NAMESPACE)
                return
            except ForbiddenError:
                # The namespace is new, its default service account is still being made.
                assert time.monotonic() < deadline, "the default service account never came"
                await asyncio.sleep(POLL_S)

    async def allow_eviction(self) -> None:
        """Take the budget away; return when the notebook is on its way out."""
        await self.bed.api.delete(POD_DISRUPTION_BUDGETS, BUDGET, NAMESPACE)
        deadline = time.monotonic() + LIMIT_S
        while not (await self._notebook())["metadata"].get("deletionTimestamp"):
            assert time.monotonic() < deadline, f"the notebook is not evicted:\n{self.bed.out.getvalue()}"
            await asyncio.sleep(POLL_S)
        self.done.append("let the notebook be evicted")

    async def let_go(self) -> None:
        """Nothing keeps the evicted notebook any more."""
        patch = {"metadata": {"finalizers": None}}
        try:
            await self.bed.api.patch(PODS, NOTEBOOK, patch, PatchType.MERGE, NAMESPACE)
        except NotFoundError:
            raise AssertionError("the notebook went away although a finalizer keeps it") from None

    async def _notebook(self) -> dict[str, Any]:
        return await persist(SystemClock(), lambda: self.bed.api.get(PODS, NOTEBOOK, NAMESPACE))


@dataclass(frozen=True)
class Cut:
    """A controller that was cut off: its identity and credential, and what connects it again."""

    identity: str
    credential: str
    heal: Callable[[], None]


def _seen(node: str, decision: str, snapshot: Snapshot) -> bool:
    return any(name == node and life.decision_seen == decision for name, life in snapshot.lives())


def _now() -> str:
    return micro_time(datetime.now(UTC))


def state_of(snapshot: Snapshot, node: str) -> State | None:
    """The state of the node's lifecycle."""
    return next((life.state for name, life in snapshot.lives() if name == node), None)
