"""A small scheduler: binds pods to nodes with free GPUs, all pods of a pod group at once.

It knows readiness, cordons, NoSchedule taints and tolerations, node selectors, whole GPUs and the order of
priorities, which is what a GPU cluster is made of. It evicts nobody for a more important pod, does not count CPUs and
memory, and leaves a pod pending, with the reason in its condition, that asks for more than it knows. Groups carry the
label of the scheduler plugins, `scheduling.x-k8s.io/pod-group`, and the annotation MIN_MEMBERS.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, runtime_checkable

import msgspec

from muster.clock import Clock
from muster.kube.api import PODS, ConflictError, KubeApi, NotFoundError, PatchType, ResourceType
from muster.resources.base import GPU_RESOURCE
from muster.sim.nodes import rfc3339
from muster.sim.pods import Pod, Toleration
from muster.sim.retry import persist

log = logging.getLogger(__name__)

BINDINGS = ResourceType("", "v1", "bindings", "Binding", True)
"""Creating a Binding with the name of a pod binds the pod (core/v1), on an API server that serves HTTP.

No uid goes with it: an API server does not look at it here. A pod that was replaced under its name in this moment is
bound in the place of the old one; the kubelet refuses it when its GPUs are taken.
"""
POD_GROUP_LABEL = "scheduling.x-k8s.io/pod-group"
MIN_MEMBERS = "sim.muster.dev/min-members"
SCHEDULER = "default-scheduler"
PASS_DELAY_S = 1.0
"""Changes are collected for this long before a pass."""


class _Condition(msgspec.Struct):
    type: str
    status: str


class _Taint(msgspec.Struct, frozen=True):
    key: str
    effect: str = ""
    value: str = ""


class _Metadata(msgspec.Struct):
    name: str
    uid: str = ""
    labels: dict[str, str] = {}


class _Spec(msgspec.Struct):
    unschedulable: bool = False
    taints: tuple[_Taint, ...] = ()


class _Status(msgspec.Struct):
    allocatable: dict[str, str] = {}
    conditions: tuple[_Condition, ...] = ()


class _Node(msgspec.Struct):
    metadata: _Metadata
    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _Status = msgspec.field(default_factory=_Status)


class NodeView(msgspec.Struct, frozen=True):
    """What the scheduler knows about a node."""

    name: str
    labels: dict[str, str]
    ready: bool
    unschedulable: bool
    taints: tuple[_Taint, ...]
    gpus: int
    uid: str = ""


_decoder = msgspec.json.Decoder(_Node)


def project_node(raw: bytes) -> NodeView:
    """Decode one node. Raises msgspec.MsgspecError or ValueError."""
    node = _decoder.decode(raw)
    return NodeView(
        name=node.metadata.name,
        uid=node.metadata.uid,
        labels=node.metadata.labels,
        ready=any(c.type == "Ready" and c.status == "True" for c in node.status.conditions),
        unschedulable=node.spec.unschedulable,
        taints=node.spec.taints,
        gpus=int(node.status.allocatable.get(GPU_RESOURCE, "0")),
    )


def refusal(pod: Pod, node: NodeView) -> str:
    """Why the node does not take the pod, leaving free GPUs aside; empty when it does."""
    if pod.unsupported:
        return f"node(s) were not looked at: the simulated scheduler does not support {pod.unsupported}"
    if not node.ready:
        return "node(s) were not ready"
    if node.unschedulable and not any(_tolerates(t, _UNSCHEDULABLE) for t in pod.tolerations):
        return "node(s) were unschedulable"
    for taint in node.taints:
        if taint.effect in ("NoSchedule", "NoExecute") and not any(_tolerates(t, taint) for t in pod.tolerations):
            return f"node(s) had untolerated taint {{{taint.key}: {taint.value}}}"
    if any(node.labels.get(key) != value for key, value in pod.node_selector.items()):
        return "node(s) didn't match Pod's node affinity/selector"
    return ""


_UNSCHEDULABLE = _Taint("node.kubernetes.io/unschedulable", "NoSchedule")


def _tolerates(toleration: Toleration, taint: _Taint) -> bool:
    if toleration.effect not in ("", taint.effect):
        return False
    if toleration.operator == "Exists":
        return toleration.key in ("", taint.key)
    return toleration.key == taint.key and toleration.value == taint.value


def place(
    group: Sequence[Pod], nodes: Mapping[str, NodeView], free: Mapping[str, int]
) -> tuple[dict[str, str], dict[str, int]]:
    """Nodes for all pods of the group, as pod key -> node, or no node at all; and the count of each refusal.

    Prefers the fullest node that fits, then the order of names, so that groups stay close together.
    """
    left = dict(free)
    chosen: dict[str, str] = {}
    for pod in group:
        reasons: dict[str, int] = {}
        fitting = []
        for name in sorted(nodes):
            why = refusal(pod, nodes[name]) or ("" if left[name] >= pod.gpus else f"Insufficient {GPU_RESOURCE}")
            if why:
                reasons[why] = reasons.get(why, 0) + 1
            else:
                fitting.append((left[name], name))
        if not fitting:
            return {}, reasons
        _, best = min(fitting)
        chosen[pod.key] = best
        left[best] -= pod.gpus
    return chosen, {}


@runtime_checkable
class Binder(Protocol):
    """An API that binds pods by a method of its own; `KubeApi` has none."""

    async def bind(self, pod: str, namespace: str, node: str) -> None: ...


class Scheduler:
    """Binds what is pending. `poke` is the callback of the fleet's pod and node caches."""

    def __init__(
        self,
        api: KubeApi,
        clock: Clock,
        pods: Callable[[], Mapping[str, Pod]],
        nodes: Callable[[], Mapping[str, NodeView]],
    ) -> None:
        self._api = api
        self._clock = clock
        self._pods = pods
        self._nodes = nodes
        self._dirty = asyncio.Event()
        self._assumed: dict[str, tuple[str, str, int]] = {}
        self._explained: dict[str, str] = {}

    def poke(self, key: str) -> None:  # noqa: ARG002 - a pass looks at everything
        self._dirty.set()

    async def run(self) -> None:
        """Schedule for ever."""
        while True:
            await self._dirty.wait()
            await self._clock.sleep(PASS_DELAY_S)
            self._dirty.clear()
            await self._pass()

    async def _pass(self) -> None:
        pods = self._pods()
        waiting = [p for p in pods.values() if self._is_waiting(p)]
        uids = {pod.uid for pod in waiting}
        self._explained = {uid: message for uid, message in self._explained.items() if uid in uids}
        if not waiting:
            return
        nodes = dict(self._nodes())
        free = self._free(pods, nodes)
        for group in _groups(waiting):
            chosen, reasons = place(group, nodes, free)
            for pod in group:
                if pod.key in chosen:
                    free[chosen[pod.key]] -= pod.gpus
                    self._assumed[pod.uid] = (pod.key, chosen[pod.key], pod.gpus)
                    await self._bind(pod, chosen[pod.key])
                else:
                    await self._explain(pod, len(nodes), reasons)

    def _is_waiting(self, pod: Pod) -> bool:
        fresh = not pod.node and not pod.deleting and not pod.ended and pod.uid not in self._assumed
        return fresh and pod.scheduler == SCHEDULER and not pod.gated

    def _free(self, pods: Mapping[str, Pod], nodes: Mapping[str, NodeView]) -> dict[str, int]:
        free = {name: node.gpus for name, node in nodes.items()}
        for pod in pods.values():
            if pod.node in free and not pod.ended:
                free[pod.node] -= pod.gpus
        for uid, (key, node, gpus) in list(self._assumed.items()):
            seen = pods.get(key)
            if seen is None or seen.uid != uid or seen.node:
                del self._assumed[uid]
            elif node in free:
                free[node] -= gpus
        return free

    async def _bind(self, pod: Pod, node: str) -> None:
        self._explained.pop(pod.uid, None)
        try:
            await persist(self._clock, lambda: self._write_binding(pod, node))
        except ConflictError as error:
            # Bound by an earlier attempt whose answer was lost; the cache will say so.
            log.info("pod %s is bound already: %s", pod.key, error)
        except NotFoundError as error:
            log.info("pod %s went away before it was bound: %s", pod.key, error)
            self._assumed.pop(pod.uid, None)

    async def _write_binding(self, pod: Pod, node: str) -> None:
        if isinstance(self._api, Binder):
            await self._api.bind(pod.name, pod.namespace, node)
            return
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": pod.name, "namespace": pod.namespace},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        await self._api.create(BINDINGS, binding, pod.namespace, manager=SCHEDULER)

    async def _explain(self, pod: Pod, nodes: int, reasons: Mapping[str, int]) -> None:
        """Say in the pod's condition why it waits, once for each reason."""
        parts = [f"{count} {why}" for why, count in sorted(reasons.items())] or [
            "another pod of its group does not fit"
        ]
        message = f"0/{nodes} nodes are available: {', '.join(parts)}."
        if self._explained.get(pod.uid) == message:
            return
        self._explained[pod.uid] = message
        at = rfc3339(self._clock.now())
        condition = {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": message,
            "lastProbeTime": None,
            "lastTransitionTime": at,
        }
        try:
            await persist(
                self._clock,
                lambda: self._api.patch(
                    PODS,
                    pod.name,
                    {"status": {"conditions": [condition]}},
                    PatchType.STRATEGIC,
                    pod.namespace,
                    subresource="status",
                    manager=SCHEDULER,
                ),
            )
        except (NotFoundError, ConflictError):
            self._explained.pop(pod.uid, None)


def _groups(waiting: Sequence[Pod]) -> list[list[Pod]]:
    """Pods that are placed together, the most important and then the oldest first; a group with missing members is
    left out."""
    groups: dict[tuple[str, str], list[Pod]] = {}
    for pod in sorted(waiting, key=lambda p: (-p.priority, p.created, p.key)):
        group = pod.labels.get(POD_GROUP_LABEL, "")
        groups.setdefault((pod.namespace, group or pod.name), []).append(pod)
    return [group for group in groups.values() if len(group) >= _members(group[0])]


def _members(pod: Pod) -> int:
    text = pod.annotations.get(MIN_MEMBERS, "1")
    return int(text) if text.isdecimal() and len(text) < 6 else 1
