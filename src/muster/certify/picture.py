"""What the certification controller sees of the cluster: nodes, and what is known about their health."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping

import msgspec

from muster.certify.claimed_gpus import ClaimedGpus, claimed_gpus
from muster.certify.measure import NodeKind, Surroundings
from muster.certify.nodes import HealthFacts, NodeFacts, health_facts, node_facts
from muster.clock import Clock
from muster.kube.api import NODE_HEALTHS, NODES, PODS, KubeApi, NotFoundError, ResourceType
from muster.kube.cache import WatchCache
from muster.resources.base import CERTIFICATION_LABEL, GPU_RESOURCE, ObjectMeta
from muster.resources.certification import RunRecord

PAGE_SIZE = 500
RESOURCE_SLICES = ResourceType("resource.k8s.io", "v1", "resourceslices", "ResourceSlice", False)


class _Resources(msgspec.Struct, frozen=True):
    requests: dict[str, str | int] = {}
    limits: dict[str, str | int] = {}


class _Container(msgspec.Struct, frozen=True):
    resources: _Resources = _Resources()


class _PodSpec(msgspec.Struct, frozen=True):
    node_name: str = msgspec.field(name="nodeName", default="")
    containers: tuple[_Container, ...] = ()


class _PodStatus(msgspec.Struct, frozen=True):
    phase: str = ""


class _Pod(msgspec.Struct, frozen=True):
    metadata: ObjectMeta
    spec: _PodSpec = _PodSpec()
    status: _PodStatus = _PodStatus()


_pod_decoder = msgspec.json.Decoder(_Pod, strict=False)


def gpu_user(raw: bytes) -> tuple[str, str, str] | None:
    """(node, certification, namespace/name) of a pod that has GPUs of its node; None for every other pod."""
    try:
        pod = _pod_decoder.decode(raw)
    except msgspec.MsgspecError:
        return None
    over = pod.status.phase in ("Succeeded", "Failed")
    asks = [c.resources for c in pod.spec.containers]
    asked = [r.limits.get(GPU_RESOURCE, r.requests.get(GPU_RESOURCE, 0)) for r in asks]
    if over or not pod.spec.node_name or all(str(count) == "0" for count in asked):
        return None
    meta = pod.metadata
    return pod.spec.node_name, meta.labels.get(CERTIFICATION_LABEL, ""), f"{meta.namespace}/{meta.name}"


async def read_claimed_gpus(api: KubeApi) -> dict[str, ClaimedGpus]:
    """Node -> GPUs that the DRA driver offers there; none where the API server knows no ResourceSlices. Raises
    ApiErrors."""
    slices: list[bytes] = []
    token = ""
    while True:
        try:
            page = await api.list_page(RESOURCE_SLICES, limit=PAGE_SIZE, continue_token=token)
        except NotFoundError:
            return {}
        slices += page.items
        token = page.continue_token
        if not token:
            return claimed_gpus(slices)


class Picture:
    """Watch caches of Nodes and NodeHealths, as slim projections. `on_change` is called when a Node changed."""

    def __init__(self, api: KubeApi, clock: Clock, on_change: Callable[[str], None]) -> None:
        self._api = api
        self._nodes = WatchCache(api, NODES, node_facts, clock=clock, on_change=on_change, seed=1)
        self._healths = WatchCache(api, NODE_HEALTHS, health_facts, clock=clock, seed=1)

    def runs(self) -> tuple[Awaitable[None], ...]:
        """The watches, to be run for ever."""
        return (self._nodes.run(), self._healths.run())

    async def wait_synced(self) -> None:
        """Return when the picture is complete."""
        await self._nodes.wait_synced()
        await self._healths.wait_synced()

    @property
    def nodes(self) -> Mapping[str, NodeFacts]:
        return self._nodes.items()

    @property
    def healths(self) -> Mapping[str, HealthFacts]:
        return self._healths.items()

    def alive(self, name: str) -> bool:
        """Whether the node exists and is Ready."""
        node = self._nodes.get(name)
        return node is not None and node.ready

    async def claimed_gpus(self) -> dict[str, ClaimedGpus]:
        """Node -> GPUs that the DRA driver offers there. Raises ApiErrors."""
        return await read_claimed_gpus(self._api)

    async def gpu_users(self, certification: str) -> dict[str, str]:
        """Node -> a pod (`namespace/name`) that has GPUs there and is not of `certification`. Raises ApiErrors."""
        found: dict[str, str] = {}
        token = ""
        while True:
            page = await self._api.list_page(PODS, limit=PAGE_SIZE, continue_token=token)
            for raw in page.items:
                user = gpu_user(raw)
                if user is not None and user[1] != certification:
                    found[user[0]] = min(found.get(user[0], user[2]), user[2])
            token = page.continue_token
            if not token:
                return found

    def surroundings(
        self, members: Iterable[str], under_test: frozenset[str], passed: tuple[RunRecord, ...]
    ) -> Surroundings:
        """What the numbers of runs among `members` are compared with. Nodes `under_test` prove nothing yet."""
        nodes, healths = self.nodes, self.healths
        kinds = {
            name: NodeKind(nodes[name].clique, healths[name].stack if name in healths else "")
            for name in sorted(members)
            if name in nodes
        }
        certified: dict[tuple[str, str, str], list[float]] = {}
        for name in sorted(healths):
            health, node = healths[name], nodes.get(name)
            if name in under_test or node is None or not health.metrics or not health.stack:
                continue
            for key, value in health.metrics.items():
                certified.setdefault((node.product, health.stack, key), []).append(value)
        return Surroundings(kinds, passed, certified)
