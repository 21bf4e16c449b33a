"""The node controller's picture of the cluster: watch caches, what belongs to which node, and its own last writes."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Iterable, Mapping
from datetime import datetime
from typing import Generic, TypeVar

from muster.clock import Clock
from muster.kube.api import (
    CERTIFICATIONS,
    FAULT_POLICIES,
    LEASES,
    NODE_HEALTHS,
    NODES,
    PODS,
    REPAIRS,
    KubeApi,
)
from muster.kube.cache import WatchCache
from muster.operate import views
from muster.operate.model import NodeView, PodView, Refusal
from muster.operate.policy import EffectivePolicy, effective_policy
from muster.operate.views import CertificationRecord, NodeRecord
from muster.resources.base import SYSTEM_NAMESPACE, agent_lease
from muster.resources.fault_policy import FaultPolicy
from muster.resources.node_health import NodeHealth, NodeHealthSpec
from muster.resources.repair import Repair

T = TypeVar("T")

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
    ) -> None:
        self._changed = changed
        self._work_changed = work_changed
        self._heartbeat = heartbeat
        self._policies_changed = policies_changed
        self.latest = Latest()
        self._heartbeats = Heartbeats(clock)
        self.refusals: dict[str, Refusal] = {}
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
            self.leases.run(),
        ]

    async def wait_synced(self) -> None:
        """Return when all of them hold a complete picture: nothing is decided on half of one."""
        await asyncio.gather(
            self.nodes.wait_synced(),
            self.healths.wait_synced(),
            self.pods.wait_synced(),
            self.repairs.wait_synced(),
            self.certifications.wait_synced(),
            self.policies.wait_synced(),
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
            spec=health.spec if health else NodeHealthSpec(),
            observed=health.status.observed if health else None,
            lifecycle=health.status.lifecycle if health else None,
            agent_seen=self.agent_seen(record.name),
            pods=pods,
            certifications=tuple(c.view(record.name) for c in named),
            repairs=tuple(r for r in self._repairs.of(record.name) if episode and r.spec.episode == episode.id),
            refusals=tuple(self.refusals[p.uid] for p in pods if p.uid in self.refusals),
        )

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

    def _repair(self, key: str) -> None:
        for node in self._repairs.note(key, self.repairs.get(key)):
            self._changed(node)

    def _certification(self, key: str) -> None:
        for node in self._certifications.note(key, self.certifications.get(key)):
            self._changed(node)

    def _policy(self, key: str) -> None:
        self._policy_of.clear()
        self._policies_changed(key)

    def _lease(self, key: str) -> None:
        name = key.removeprefix(f"{SYSTEM_NAMESPACE}/")
        if name.startswith(LEASE_PREFIX):
            self._heartbeats.note(name.removeprefix(LEASE_PREFIX), self.leases.get(key))
            self._heartbeat(name.removeprefix(LEASE_PREFIX))
