"""Carrying out what was decided: writing the lifecycle, its projections and the intents. Every step is idempotent."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Any, assert_never

from muster.clock import Clock
from muster.errors import MusterError
from muster.kube.api import (
    CERTIFICATIONS,
    FAULT_POLICIES,
    NODE_HEALTHS,
    NODES,
    PODS,
    REPAIRS,
    AlreadyExistsError,
    ConflictError,
    KubeApi,
    NotFoundError,
    PatchType,
    TooManyRequestsError,
)
from muster.operate.batch import Batch
from muster.operate.model import CreateRepair, DeletePod, EvictPod, Intent, PodView, Refusal
from muster.operate.projection import condition, node_patch
from muster.operate.remedy import DRAIN_RETRY_S
from muster.operate.views import NodeRecord, node_health_of, write_requests
from muster.resources.base import (
    API_VERSION,
    CONTROLLER_MANAGER,
    CORDON_ANNOTATION,
    REQUESTS_ANNOTATION,
    ObjectMeta,
    to_object,
)
from muster.resources.certification import Certification
from muster.resources.fault_policy import FaultPolicy
from muster.resources.node_health import Lifecycle, NodeHealth

log = logging.getLogger(__name__)

PATCH_ATTEMPTS = 4
"""How often a Node is read again when somebody else changed it in between."""


class NotLeadingError(MusterError):
    """This controller no longer holds the lease: it must not write any more."""


async def always_leading() -> bool:
    """For a controller that runs without an election (tests, one process)."""
    return True


class Writer:
    """All writes of the node controller."""

    def __init__(
        self, api: KubeApi, clock: Clock, still_leading: Callable[[], Awaitable[bool]] = always_leading
    ) -> None:
        self._api = api
        self._clock = clock
        self._still_leading = still_leading
        self._asking = asyncio.Lock()
        self._question: asyncio.Future[bool] | None = None
        self._asked: dict[str, datetime] = {}

    async def fence(self) -> None:
        """Raises NotLeadingError when the lease belongs to somebody else. Asked before each write.

        In a burst many ask at once: one question answers all who came before it was put.
        """
        if self._question is None:
            self._question = asyncio.ensure_future(self._put_question())
            self._question.add_done_callback(_read)
        if not await asyncio.shield(self._question):
            raise NotLeadingError("This controller has lost its lease and stops; another one goes on.")

    async def _put_question(self) -> bool:
        async with self._asking:
            # From here on it is too late to join: the lease may be read before a later caller has read its object.
            self._question = None
            return await self._still_leading()

    async def lifecycle(self, name: str, health: NodeHealth | None, life: Lifecycle) -> NodeHealth:
        """Write `status.lifecycle`, on condition that the object is still the one that was decided on.

        Raises ConflictError when it is not: the decision is then made again on the newer one.
        """
        if health is None:
            base = {"apiVersion": API_VERSION, "kind": NODE_HEALTHS.kind, "metadata": {"name": name}, "spec": {}}
            try:
                created = await self._api.create(NODE_HEALTHS, base, manager=CONTROLLER_MANAGER)
            except AlreadyExistsError as error:
                raise ConflictError(409, "Conflict", f"NodeHealth {name} exists by now") from error
            version = created["metadata"]["resourceVersion"]
        else:
            version = health.metadata.resource_version
        applied = await self._api.apply(
            NODE_HEALTHS,
            {
                "apiVersion": API_VERSION,
                "kind": NODE_HEALTHS.kind,
                "metadata": {"name": name, "resourceVersion": version},
                "status": {"lifecycle": _written(life)},
            },
            manager=CONTROLLER_MANAGER,
            subresource="status",
        )
        return node_health_of(applied)

    async def node_is_gone(self, name: str) -> bool:
        """Asked of the API server: a cache that lags behind must not make anybody believe it."""
        try:
            await self._api.get(NODES, name)
        except NotFoundError:
            return True
        return False

    async def project(self, record: NodeRecord, life: Lifecycle) -> None:
        """Bring taint, label, cordon and condition of the Node in line with `life`."""
        patch = node_patch(
            life, [dict(t) for t in record.taints], dict(record.labels), record.cordoned_by, record.unschedulable
        )
        if patch:
            await self._patch_node(record, life)
        changed = condition(life, dict(record.condition) if record.condition else None, self._clock.now())
        if changed is not None:
            body = {"status": {"conditions": [changed]}}
            await self.fence()
            try:
                await self._api.patch(
                    NODES, record.name, body, PatchType.STRATEGIC, subresource="status", manager=CONTROLLER_MANAGER
                )
            except NotFoundError:
                return

    async def _patch_node(self, record: NodeRecord, life: Lifecycle) -> None:
        """Patch the Node as it is now: taints are one list, and a person's cordon must not be overwritten."""
        for attempt in range(PATCH_ATTEMPTS):
            try:
                node = await self._api.get(NODES, record.name)
                if node["metadata"].get("uid") != record.uid:
                    return
                patch = patch_for(node, life)
                if not patch:
                    return
                patch.setdefault("metadata", {})["resourceVersion"] = node["metadata"]["resourceVersion"]
                # After the reading: a process that was suspended anywhere before this line finds its lease gone, and
                # one that is suspended after it finds the Node changed by its successor.
                await self.fence()
                await self._api.patch(NODES, record.name, patch, PatchType.MERGE, manager=CONTROLLER_MANAGER)
            except NotFoundError:
                return
            except ConflictError:
                if attempt == PATCH_ATTEMPTS - 1:
                    raise
                continue
            return

    async def intent(self, intent: Intent) -> Refusal | None:
        """Carry out one intent. Returns the refusal when a PodDisruptionBudget forbids an eviction."""
        match intent:
            case EvictPod():
                return await self._evict(intent.pod)
            case DeletePod():
                await self._delete(intent.pod)
            case CreateRepair():
                await self.fence()
                await self._create(REPAIRS, intent.repair)
            case _:
                assert_never(intent)
        return None

    async def certification(self, batch: Batch) -> Certification:
        """Create the certification of `batch` unless it exists."""
        wanted = Certification(
            metadata=ObjectMeta(name=batch.name, annotations={REQUESTS_ANNOTATION: write_requests(batch.requests)}),
            spec=batch.spec,
        )
        await self.fence()
        await self._create(CERTIFICATIONS, wanted)
        return wanted

    async def policy_conditions(self, policy: FaultPolicy, found: tuple[Any, ...]) -> None:
        """Say in the policy's status whether it is in force."""
        body = {
            "apiVersion": API_VERSION,
            "kind": FAULT_POLICIES.kind,
            "metadata": {"name": policy.metadata.name},
            "status": {"conditions": [to_object(c) for c in found]},
        }
        await self.fence()
        await self._api.apply(FAULT_POLICIES, body, manager=CONTROLLER_MANAGER, subresource="status")

    async def _create(self, res: Any, value: Any) -> None:
        body = to_object(value)
        body.pop("status", None)
        body |= {"apiVersion": res.api_version, "kind": res.kind}
        try:
            await self._api.create(res, body, manager=CONTROLLER_MANAGER)
        except AlreadyExistsError:
            # An earlier attempt took effect, perhaps that of a controller that died right after it.
            return

    async def _evict(self, pod: PodView) -> Refusal | None:
        now = self._clock.now()
        last = self._asked.get(pod.uid)
        if last is not None and now - last < timedelta(seconds=DRAIN_RETRY_S / 2):
            return None
        self._asked = {uid: at for uid, at in self._asked.items() if now - at < timedelta(seconds=DRAIN_RETRY_S)}
        self._asked[pod.uid] = now
        await self.fence()
        try:
            await self._api.evict(pod.name, pod.namespace, uid=pod.uid)
        except (NotFoundError, ConflictError):
            return None  # gone, or another pod of that name: nothing is left to evict
        except TooManyRequestsError as error:
            if "disruption budget" not in str(error).lower():
                raise
            return Refusal(pod.uid, str(error)[:300])
        return None

    async def _delete(self, pod: PodView) -> None:
        await self.fence()
        try:
            await self._api.delete(PODS, pod.name, pod.namespace, uid=pod.uid)
        except (NotFoundError, ConflictError):
            return


def _read(question: asyncio.Future[bool]) -> None:
    """An error that nobody waited for (all were cancelled) is nobody's news."""
    if not question.cancelled():
        question.exception()


def _written(life: Lifecycle) -> dict[str, Any]:
    """The lifecycle as it is stored. Defaults that people look for are written out: `kubectl get` shows no others."""
    body = to_object(life) | {"held": life.held}
    if life.certificate is not None:
        body["certificate"]["standing"] = life.certificate.standing.value
    return body


def patch_for(node: dict[str, Any], life: Lifecycle) -> dict[str, Any]:
    """The patch for a Node as the API server returned it."""
    metadata, spec = node["metadata"], node.get("spec") or {}
    return node_patch(
        life,
        spec.get("taints") or [],
        metadata.get("labels") or {},
        (metadata.get("annotations") or {}).get(CORDON_ANNOTATION, ""),
        bool(spec.get("unschedulable", False)),
    )
