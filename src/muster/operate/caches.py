"""The node controller's picture of the cluster: watch caches, what belongs to which node, and its own last writes."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, Generic, TypeVar

from muster.clock import Clock
from muster.errors import UnreachableError
from muster.kube.api import (
    BASELINES,
    CERTIFICATIONS,
    FAULT_POLICIES,
    LEASES,
    MAINTENANCES,
    NODE_HEALTHS,
    NODES,
    PODS,
    REPAIRS,
    ApiError,
    KubeApi,
    ResourceType,
)
from muster.kube.cache import WatchCache
from muster.operate import views
from muster.operate.baselines import RecipesInForce, baseline_in_force
from muster.operate.claims import (
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    ClaimView,
    SliceView,
    claim_view,
    gpus_of_claims,
    slice_view,
)
from muster.operate.maintenance.scope import concerns
from muster.operate.model import CheckpointAnswer, NodeView, PodView, Refusal
from muster.operate.policy import EffectivePolicy, effective_policy
from muster.operate.views import CertificationRecord, NodeRecord
from muster.resources.base import HOLD_TAINT, SYSTEM_NAMESPACE, agent_lease
from muster.resources.fault_policy import FaultPolicy
from muster.resources.maintenance import Maintenance
from muster.resources.node_health import NodeHealth, NodeHealthSpec
from muster.resources.repair import Repair, RepairPhase

T = TypeVar("T")
log = logging.getLogger(__name__)

CLAIMS_RETRY_S = 600.0
"""How often it is asked whether the cluster has ResourceClaims by now."""

UNFINISHED = (RepairPhase.PENDING, RepairPhase.RUNNING)

LEASE_PREFIX = agent_lease("")


class Owned(Generic[T]):
    """Which objects belong to which node. Kept up to date by `note`, which says whose picture changed."""

    def __init__(self, owners: Callable[[T], Iterable[str]]) -> None:
        self._owners = owners
        self._of_key: dict[str, tuple[str, ...]] = {}
        self._of_node: dict[str, dict[str, T]] = {}

    def note(self, key: str, value: T | None) -> tuple[str, ...]:
        """Take in the new value of `key` (None: gone). Returns the nodes concerned, before and after, sorted."""
        before = self._of_key.pop(key, ())
        after = tuple(sorted(set(self._owners(value)))) if value is not None else ()
        for node in before:
            mine = self._of_node[node]
            del mine[key]
            if not mine:
                del self._of_node[node]
        if value is not None and after:
            for node in after:
                self._of_node.setdefault(node, {})[key] = value
            self._of_key[key] = after
        return tuple(sorted({*before, *after}))

    def of(self, node: str) -> tuple[T, ...]:
        """The objects of `node`, by key."""
        mine = self._of_node.get(node)
        return tuple(mine[key] for key in sorted(mine)) if mine else ()


class Latest:
    """NodeHealths as last written by this controller, until the watch has caught up with them."""

    def __init__(self) -> None:
        self._written: dict[str, NodeHealth] = {}

    def put(self, health: NodeHealth) -> None:
        self._written[health.metadata.name] = health

    def pick(self, name: str, cached: NodeHealth | None) -> NodeHealth | None:
        """The newer of what was written and what was seen."""
        mine = self._written.get(name)
        if mine is None:
            return cached
        if cached is not None and _version(cached) >= _version(mine):
            del self._written[name]
            return cached
        return mine

    def forget(self, name: str) -> None:
        self._written.pop(name, None)


class Heartbeats:
    """When each agent was heard from, by the controller's own clock.

    A heartbeat carries the time of the node's clock, which may be wrong by hours. Only that it changed counts. The
    first one that a controller sees may be old, so its own word is taken, but never for a time that is still to come.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._heard: dict[str, tuple[datetime, datetime]] = {}

    def note(self, node: str, renewed: datetime | None) -> None:
        """Take in what the Lease of the agent on `node` says now (None: there is none)."""
        if renewed is None:
            self._heard.pop(node, None)
            return
        known = self._heard.get(node)
        if known is None:
            self._heard[node] = (renewed, min(renewed, self._clock.now()))
        elif known[0] != renewed:
            self._heard[node] = (renewed, self._clock.now())

    def of(self, node: str) -> datetime | None:
        known = self._heard.get(node)
        return known[1] if known is not None else None


def _version(health: NodeHealth) -> int:
    """Resource versions of one resource are ordered decimal numbers (promised since Kubernetes 1.35, true before)."""
    text = health.metadata.resource_version
    return int(text) if text.isdigit() else 0


class Caches:
    """Everything the node controller watches. `changed(node)` and `policies_changed()` are called on news."""

    def __init__(
        self,
        api: KubeApi,
        clock: Clock,
        *,
        changed: Callable[[str], None],
        work_changed: Callable[[str], None],
        heartbeat: Callable[[str], None],
        policies_changed: Callable[[str], None],
        standard_changed: Callable[[], None],
        demand_changed: Callable[[], None],
        claims: bool = False,
    ) -> None:
        """`claims`: look at ResourceClaims and ResourceSlices too, if the cluster serves them."""
        self._api = api
        self._clock = clock
        self._with_claims = claims
        self._changed = changed
        self._work_changed = work_changed
        self._heartbeat = heartbeat
        self._policies_changed = policies_changed
        self._standard_changed = standard_changed
        self._demand_changed = demand_changed
        self.recipes = RecipesInForce()
        self._pending: set[str] = set()
        self.latest = Latest()
        self._heartbeats = Heartbeats(clock)
        self.refusals: dict[str, Refusal] = {}
        self.checkpoints: dict[str, CheckpointAnswer] = {}
        self._claims: Owned[ClaimView] = Owned(lambda claim: claim.pods)
        self._slices: Owned[SliceView] = Owned(lambda found: (found.pool,))
        self._pods: Owned[PodView] = Owned(lambda pod: (pod.node,) if pod.node else ())
        self._repairs: Owned[Repair] = Owned(lambda repair: (repair.spec.node_name,))
        self._certifications: Owned[CertificationRecord] = Owned(lambda c: (*c.spec.nodes, *c.spec.partners))
        self._policy_of: dict[str, tuple[Mapping[str, str], EffectivePolicy]] = {}
        self.nodes = WatchCache(api, NODES, views.node_record, clock=clock, on_change=self._node)
        self.healths = WatchCache(api, NODE_HEALTHS, views.node_health, clock=clock, on_change=self._health)
        self.pods = WatchCache(api, PODS, views.pod_view, clock=clock, on_change=self._pod)
        self.repairs = WatchCache(api, REPAIRS, views.repair.decode, clock=clock, on_change=self._repair)
        self.certifications = WatchCache(
            api, CERTIFICATIONS, views.certification_record, clock=clock, on_change=self._certification
        )
        self.policies = WatchCache(
            api, FAULT_POLICIES, views.fault_policy.decode, clock=clock, on_change=self._policy
        )
        self.maintenances = WatchCache(
            api, MAINTENANCES, views.maintenance.decode, clock=clock, on_change=self._maintenance
        )
        self._known_maintenances: dict[str, Maintenance] = {}
        self.claims = WatchCache(api, RESOURCE_CLAIMS, claim_view, clock=clock, on_change=self._claim)
        self.slices = WatchCache(api, RESOURCE_SLICES, slice_view, clock=clock, on_change=self._slice)
        self.baselines = WatchCache(api, BASELINES, baseline_in_force, clock=clock, on_change=self._baseline)
        self.leases = WatchCache(
            api, LEASES, views.lease_renewed, clock=clock, namespace=SYSTEM_NAMESPACE, on_change=self._lease
        )

    def runs(self) -> list[Awaitable[None]]:
        """The list-watches, to be run for ever."""
        return [
            self.nodes.run(),
            self.healths.run(),
            self.pods.run(),
            self.repairs.run(),
            self.certifications.run(),
            self.policies.run(),
            self.maintenances.run(),
            self.leases.run(),
            # A role of the controller's may lack the right, where nobody uses Baselines.
            self._optional(BASELINES, self.baselines),
            *self._runs_of_claims(),
        ]

    def _runs_of_claims(self) -> list[Awaitable[None]]:
        if not self._with_claims:
            return []
        return [self._optional(RESOURCE_CLAIMS, self.claims), self._optional(RESOURCE_SLICES, self.slices)]

    async def _optional(self, res: ResourceType, cache: WatchCache[Any]) -> None:
        """Run a cache of a resource that the cluster may not serve, or that we may not read."""
        while True:
            try:
                await self._api.list_page(res, limit=1)
            except (ApiError, UnreachableError) as error:
                log.info("%s cannot be read (%s): they tell nothing until then", res.plural, error)
                await self._clock.sleep(CLAIMS_RETRY_S)
            else:
                await cache.run()

    async def wait_synced(self) -> None:
        """Return when all of them hold a complete picture: nothing is decided on half of one."""
        await asyncio.gather(
            self.nodes.wait_synced(),
            self.healths.wait_synced(),
            self.pods.wait_synced(),
            self.repairs.wait_synced(),
            self.certifications.wait_synced(),
            self.policies.wait_synced(),
            self.maintenances.wait_synced(),
            self.leases.wait_synced(),
        )

    # The picture of one node

    def managed(self) -> tuple[str, ...]:
        """Names of the nodes that are Muster's business, sorted."""
        healths = self.healths.items()
        return tuple(sorted(name for name, node in self.nodes.items().items() if node.gpus or name in healths))

    def node(self, name: str) -> NodeRecord | None:
        """The node, if it exists and is Muster's business."""
        record = self.nodes.get(name)
        return record if record is not None and (record.gpus or self.healths.get(name) is not None) else None

    def health(self, name: str) -> NodeHealth | None:
        return self.latest.pick(name, self.healths.get(name))

    def policy(self, name: str, labels: Mapping[str, str]) -> EffectivePolicy:
        """The policy in force on a node; merged anew only when its labels or a policy changed."""
        known = self._policy_of.get(name)
        if known is None or known[0] != labels:
            known = (dict(labels), effective_policy(self.all_policies(), labels))
            self._policy_of[name] = known
        return known[1]

    def all_policies(self) -> list[FaultPolicy]:
        found = self.policies.items()
        return [found[name] for name in sorted(found)]

    def view(self, record: NodeRecord) -> NodeView:
        """Everything known about one node."""
        health = self.health(record.name)
        episode = health.status.lifecycle.episode if health and health.status.lifecycle else None
        pods = self._pods.of(record.name)
        repairs = self._repairs.of(record.name)
        named = [c for c in self.certifications_of(record.name) if record.name in c.spec.nodes]
        named.sort(key=lambda c: (c.created.timestamp() if c.created else math.inf, c.name))
        return NodeView(
            name=record.name,
            uid=record.uid,
            labels=record.labels,
            ready=record.ready,
            boot_id=record.boot_id,
            unschedulable=record.unschedulable,
            cordoned_by=record.cordoned_by,
            hold_taint=any(taint.get("key") == HOLD_TAINT for taint in record.taints),
            spec=health.spec if health else NodeHealthSpec(),
            observed=health.status.observed if health else None,
            lifecycle=health.status.lifecycle if health else None,
            agent_seen=self.agent_seen(record.name),
            pods=pods,
            certifications=tuple(c.view(record.name) for c in named),
            repairs=tuple(r for r in repairs if episode and r.spec.episode == episode.id),
            stray_repairs=tuple(
                r
                for r in repairs
                if r.status.phase in UNFINISHED and (episode is None or r.spec.episode != episode.id)
            ),
            refusals=tuple(self.refusals[p.uid] for p in pods if p.uid in self.refusals),
            checkpoints=tuple(self.checkpoints[p.uid] for p in pods if p.uid in self.checkpoints),
            maintenances=self.maintenances_of(record),
            claimed_gpus=self._claimed(pods),
        )

    @property
    def demand(self) -> bool:
        """Whether pods wait for GPUs without a node."""
        return bool(self._pending)

    def maintenances_of(self, record: NodeRecord) -> tuple[Maintenance, ...]:
        """The Maintenances that concern the node, by name."""
        found = self.maintenances.items()
        if not found:
            return ()
        return tuple(found[name] for name in sorted(found) if concerns(found[name].spec, record))

    def _claimed(self, pods: Iterable[PodView]) -> Mapping[str, tuple[str, ...]]:
        if not self.claims.items():
            return {}
        known: dict[str, tuple[str, ...]] = {}
        for pod in pods:
            claims = self._claims.of(pod.uid)
            pools = sorted({pool for claim in claims for pool, _ in claim.devices})
            slices = [view for pool in pools for view in self._slices.of(pool)]
            gpus = gpus_of_claims(claims, slices)
            if gpus:
                known[pod.uid] = gpus
        return known

    def prune(self) -> None:
        """Forget what was said about pods that are gone."""
        present = {pod.uid for pod in self.pods.items().values() if pod is not None}
        self.refusals = {uid: r for uid, r in self.refusals.items() if uid in present}
        self.checkpoints = {uid: a for uid, a in self.checkpoints.items() if uid in present}

    def agent_seen(self, name: str) -> datetime | None:
        """When the agent of the node was heard from last, by the controller's clock."""
        return self._heartbeats.of(name)

    def certifications_of(self, name: str) -> list[CertificationRecord]:
        """Certifications that name the node, as one to be tested or as a partner."""
        return list(self._certifications.of(name))

    def in_test(self, name: str) -> bool:
        """Whether an unfinished certification uses the node."""
        return any(not c.ended for c in self._certifications.of(name))

    def created(self, record: CertificationRecord) -> None:
        """Count a certification that this controller has just created, before the watch shows it."""
        if self.certifications.get(record.name) is None:
            for node in self._certifications.note(record.name, record):
                self._changed(node)

    # News

    def _node(self, key: str) -> None:
        self._changed(key)

    def _health(self, key: str) -> None:
        if self.healths.get(key) is None:
            self.latest.forget(key)
        self._changed(key)

    def _pod(self, key: str) -> None:
        value = self.pods.get(key)
        for node in self._pods.note(key, value):
            self._work_changed(node)
        before = self.demand
        if value is not None and value.is_work and not value.node and not value.deleting:
            self._pending.add(key)
        else:
            self._pending.discard(key)
        if self.demand != before:
            self._demand_changed()

    def _repair(self, key: str) -> None:
        for node in self._repairs.note(key, self.repairs.get(key)):
            self._changed(node)

    def _certification(self, key: str) -> None:
        for node in self._certifications.note(key, self.certifications.get(key)):
            self._changed(node)

    def _maintenance(self, key: str) -> None:
        old, new = self._known_maintenances.pop(key, None), self.maintenances.get(key)
        if new is not None:
            self._known_maintenances[key] = new
        for name in self.managed():
            record = self.nodes.get(name)
            if record is not None and any(m is not None and concerns(m.spec, record) for m in (old, new)):
                self._changed(name)

    def _baseline(self, key: str) -> None:
        if self.recipes.note(key, self.baselines.get(key)):
            self._standard_changed()

    def _claim(self, key: str) -> None:
        self._claims.note(key, self.claims.get(key))

    def _slice(self, key: str) -> None:
        self._slices.note(key, self.slices.get(key))

    def _policy(self, key: str) -> None:
        self._policy_of.clear()
        self._policies_changed(key)

    def _lease(self, key: str) -> None:
        name = key.removeprefix(f"{SYSTEM_NAMESPACE}/")
        if name.startswith(LEASE_PREFIX):
            self._heartbeats.note(name.removeprefix(LEASE_PREFIX), self.leases.get(key))
            self._heartbeat(name.removeprefix(LEASE_PREFIX))
