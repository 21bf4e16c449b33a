"""Carrying out what was decided: writing the lifecycle, its projections and the intents. Every step is idempotent."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Any, assert_never

from muster.clock import Clock
from muster.errors import MusterError, UnreachableError
from muster.kube.api import (
    CERTIFICATIONS,
    FAULT_POLICIES,
    NODE_HEALTHS,
    NODES,
    PODS,
    REPAIRS,
    AlreadyExistsError,
    ApiError,
    ConflictError,
    KubeApi,
    NotFoundError,
    PatchType,
    TooManyRequestsError,
)
from muster.operate.batch import Batch
from muster.operate.checkpoint import ASKED_ANNOTATION
from muster.operate.model import (
    AskCheckpoint,
    CallCheckpoint,
    CancelRepair,
    CreateRepair,
    DeletePod,
    EvictPod,
    Intent,
    PodView,
    Refusal,
)
from muster.operate.outputs.action import Action, Result
from muster.operate.projection import condition, node_patch
from muster.operate.remedy import DRAIN_RETRY_S
from muster.operate.views import NodeRecord, node_health_of, write_requests
from muster.resources.base import (
    API_VERSION,
    CONTROLLER_MANAGER,
    CORDON_ANNOTATION,
    HOLD_TAINT,
    REQUESTS_ANNOTATION,
    ObjectMeta,
    to_object,
)
from muster.resources.certification import Certification
from muster.resources.fault_policy import FaultPolicy
from muster.resources.node_health import Lifecycle, NodeHealth
from muster.resources.repair import Repair, RepairPhase

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
        self,
        api: KubeApi,
        clock: Clock,
        still_leading: Callable[[], Awaitable[bool]] = always_leading,
        *,
        actor: str = CONTROLLER_MANAGER,
        on_action: Callable[[Action], None] | None = None,
    ) -> None:
        """`on_action` is told of each write that changes something for others, `actor` is who is named for it."""
        self._actor = actor
        self._on_action = on_action
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

    async def node_health(self, name: str) -> NodeHealth | None:
        """The NodeHealth as the API server has it now; None when there is none."""
        try:
            return node_health_of(await self._api.get(NODE_HEALTHS, name))
        except NotFoundError:
            return None

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
                self._tell_projection(record.name, node, patch, life)
            except NotFoundError:
                return
            except ConflictError:
                if attempt == PATCH_ATTEMPTS - 1:
                    raise
                continue
            return

    def tell(
        self,
        action: str,
        target: str,
        *,
        node: str,
        episode: str,
        result: Result = Result.DONE,
        message: str = "",
        actor: str = "",
    ) -> None:
        """Tell whoever keeps the record what was done."""
        if self._on_action is not None:
            self._on_action(
                Action(
                    at=self._clock.now(),
                    actor=actor or self._actor,
                    action=action,
                    target=target,
                    result=result,
                    node=node,
                    episode=episode,
                    message=message,
                )
            )

    def _tell_projection(self, name: str, before: dict[str, Any], patch: dict[str, Any], life: Lifecycle) -> None:
        spec = patch.get("spec", {})
        episode = life.episode.id if life.episode else ""
        old = before.get("spec") or {}
        held = any(t.get("key") == HOLD_TAINT for t in old.get("taints") or ())
        if "taints" in spec and held != life.held:
            reason = life.hold_reason
            self.tell("hold" if life.held else "release", f"Node/{name}", node=name, episode=episode, message=reason)
        if "unschedulable" in spec and bool(old.get("unschedulable")) != bool(spec["unschedulable"]):
            word = "cordon" if spec["unschedulable"] else "uncordon"
            self.tell(word, f"Node/{name}", node=name, episode=episode)

    async def intent(self, intent: Intent) -> Refusal | None:
        """Carry out one intent. Returns the refusal when a PodDisruptionBudget forbids an eviction.

        Calls of a webhook are not carried out here: they take too long for whoever waits for this.
        """
        try:
            return await self._carry_out(intent)
        except (ApiError, UnreachableError) as error:
            if not isinstance(error, TooManyRequestsError):  # "not now" is no failure: it is asked for again
                word, target, node, episode = _named(intent)
                self.tell(word, target, node=node, episode=episode, result=Result.FAILED, message=str(error)[:300])
            raise

    async def _carry_out(self, intent: Intent) -> Refusal | None:
        match intent:
            case EvictPod():
                return await self._evict(intent.pod, intent.episode)
            case DeletePod():
                await self._delete(intent.pod, intent.episode)
            case AskCheckpoint():
                await self._ask_checkpoint(intent.pod, intent.episode)
            case CreateRepair():
                await self.fence()
                if await self._create(REPAIRS, intent.repair):
                    self._tell_repair(intent.repair)
            case CancelRepair():
                await self._cancel_repair(intent)
            case CallCheckpoint():
                raise AssertionError("calls of a webhook are made by CheckpointCalls")
            case _:
                assert_never(intent)
        return None

    def _tell_repair(self, made: Repair) -> None:
        spec = made.spec
        target = f"Repair/{made.metadata.name}"
        self.tell("repair-created", target, node=spec.node_name, episode=spec.episode, message=spec.reason)

    async def _ask_checkpoint(self, pod: PodView, episode: str) -> None:
        """Ask the pod by annotation to save its state; another pod of the name is not meant."""
        try:
            metadata = (await self._api.get(PODS, pod.name, pod.namespace))["metadata"]
            if metadata.get("uid") != pod.uid or metadata.get("annotations", {}).get(ASKED_ANNOTATION) == episode:
                return
            asked = {"resourceVersion": metadata["resourceVersion"], "annotations": {ASKED_ANNOTATION: episode}}
            body = {"metadata": asked}
            await self.fence()
            await self._api.patch(
                PODS, pod.name, body, PatchType.MERGE, namespace=pod.namespace, manager=CONTROLLER_MANAGER
            )
        except (NotFoundError, ConflictError):
            return  # gone, or changed in between: then it is asked when it is looked at again
        self.tell("checkpoint", f"Pod/{pod.key}", node=pod.node, episode=episode)

    async def _cancel_repair(self, wanted: CancelRepair) -> None:
        """Say that nobody wants the repair any more, unless the provider says that it has begun."""
        try:
            found = await self._api.get(REPAIRS, wanted.name)
        except NotFoundError:
            return
        metadata, status = found["metadata"], found.get("status") or {}
        over = status.get("phase") not in (None, RepairPhase.PENDING.value, RepairPhase.RUNNING.value)
        begun = over or status.get("externalId")
        if metadata.get("uid") != wanted.uid or begun or found["spec"].get("cancel"):
            return
        body = {"metadata": {"resourceVersion": metadata["resourceVersion"]}, "spec": {"cancel": True}}
        await self.fence()
        await self._api.patch(REPAIRS, wanted.name, body, PatchType.MERGE, manager=CONTROLLER_MANAGER)
        node = found["spec"].get("nodeName", "")
        target = f"Repair/{wanted.name}"
        self.tell("repair-cancelled", target, node=node, episode=wanted.episode, message=wanted.reason)

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

    async def _create(self, res: Any, value: Any) -> bool:
        """Whether it was created now."""
        body = to_object(value)
        body.pop("status", None)
        body |= {"apiVersion": res.api_version, "kind": res.kind}
        try:
            await self._api.create(res, body, manager=CONTROLLER_MANAGER)
        except AlreadyExistsError:
            # An earlier attempt took effect, perhaps that of a controller that died right after it.
            return False
        return True

    async def _evict(self, pod: PodView, episode: str) -> Refusal | None:
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
            said = str(error)[:300]
            target = f"Pod/{pod.key}"
            self.tell("evict", target, node=pod.node, episode=episode, result=Result.REFUSED, message=said)
            return Refusal(pod.uid, said, now)
        self.tell("evict", f"Pod/{pod.key}", node=pod.node, episode=episode)
        return None

    async def _delete(self, pod: PodView, episode: str) -> None:
        await self.fence()
        try:
            await self._api.delete(PODS, pod.name, pod.namespace, uid=pod.uid)
        except (NotFoundError, ConflictError):
            return
        self.tell("delete-pod", f"Pod/{pod.key}", node=pod.node, episode=episode)


def _named(intent: Intent) -> tuple[str, str, str, str]:
    """Action, target, node and episode, for the audit log."""
    if isinstance(intent, CancelRepair):
        return "repair-cancelled", f"Repair/{intent.name}", "", intent.episode
    if isinstance(intent, CreateRepair):
        name, spec = intent.repair.metadata.name, intent.repair.spec
        return "repair-created", f"Repair/{name}", spec.node_name, spec.episode
    if isinstance(intent, CallCheckpoint):
        return "checkpoint", f"Node/{intent.node}", intent.node, intent.episode
    word = (
        "evict" if isinstance(intent, EvictPod) else "delete-pod" if isinstance(intent, DeletePod) else "checkpoint"
    )
    return word, f"Pod/{intent.pod.key}", intent.pod.node, intent.episode


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
