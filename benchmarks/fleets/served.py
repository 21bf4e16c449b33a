"""A process of its own: the simulated API server with a fleet in service, and the load of its agents.

    python served.py NODES KUBECONFIG

Says `ready` when the fleet stands. Each line `SECONDS` on its standard input then makes that load and is answered by
one JSON object. The load is written straight into the store, as if its requests had been accepted: per node and
second 0.03 changes of what an agent sees (an error of an application, seen again; one in WARNING_EVERY is a new
warning, one in FATAL_EVERY a GPU that fell off the bus), and a heartbeat of every agent each minute.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from fleets.objects import (
    fallen_off,
    fault_on,
    health_named,
    in_service,
    lease_of,
    node_of,
    observed_of,
    open_policy,
    world_of,
)
from muster.clock import SystemClock
from muster.kube.api import (
    CRDS,
    FAULT_POLICIES,
    LEASES,
    NODE_HEALTHS,
    NODES,
    PODS,
    Object,
    ResourceType,
)
from muster.operate import projection
from muster.resources import crd
from muster.resources.base import SYSTEM_NAMESPACE, agent_lease, to_object
from muster.resources.fault import Hint, Severity
from muster.sim.api_kinds import Kind
from muster.sim.history import Key, Version
from muster.sim.inprocess import InProcessApi
from muster.sim.managed_fields import Managers
from muster.sim.nodes import ensure_namespace, micro_time
from muster.sim.server import ApiServer
from muster.sim.store import Store
from muster.sim.world import NodeTruth

EVENTS_PER_NODE_S = 0.03
HEARTBEAT_S = 60.0
FATAL_EVERY = 100
WARNING_EVERY = 10
STEP_S = 0.05
DAEMON_PODS = 2
AFTER_S = 10.0
"""How long the last decisions are waited for."""


class TimedStore(Store):
    """A store that notes when the controller says of a failed node that it is held."""

    def __init__(self) -> None:
        self.failed: dict[str, float] = {}
        self.took: list[float] = []
        super().__init__(SystemClock(), history_limit=100_000)

    def commit(
        self, kind: Kind, key: Key, obj: Object, managers: Managers, *, dry_run: bool = False, limit_bytes: int = 0
    ) -> Version:
        version = super().commit(kind, key, obj, managers, dry_run=dry_run, limit_bytes=limit_bytes)
        waits = self.failed and kind.plural == NODE_HEALTHS.plural and key[1] in self.failed
        if waits and obj.get("status", {}).get("lifecycle", {}).get("held"):
            self.took.append(time.monotonic() - self.failed.pop(key[1]))
        return version


class Load:
    """The fleet in the store, and what its agents write."""

    def __init__(self, store: TimedStore, machines: list[NodeTruth]) -> None:
        self._store = store
        self._machines = machines
        self._random = random.Random(1)
        self._healthy = list(range(len(machines)))
        self._random.shuffle(self._healthy)
        self._writes = self._events = 0

    async def set_up(self) -> None:
        api = InProcessApi(self._store)
        for manifest in crd.manifests():
            await api.create(CRDS, dict(manifest))
        await ensure_namespace(api, SYSTEM_NAMESPACE)
        await api.create(FAULT_POLICIES, to_object(open_policy()))
        for machine in self._machines:
            self._put_in_service(machine)

    def _put(self, res: ResourceType, obj: Object, namespace: str = "") -> None:
        kind = self._store.kind(res)
        metadata = {"creationTimestamp": self._store.timestamp(), "uid": self._store.new_uid(), **obj["metadata"]}
        self._store.commit(kind, (namespace, metadata["name"]), {**obj, "metadata": metadata}, ())

    def _put_in_service(self, machine: NodeTruth) -> None:
        now, name, uid = datetime.now(UTC), machine.name, self._store.new_uid()
        observed = observed_of(machine, uid)
        life = in_service(observed)
        node = node_of(machine)
        node["metadata"] = {**node["metadata"], "uid": uid}
        node["metadata"]["labels"] = {**node["metadata"]["labels"], **projection.labels(life)}
        condition = projection.condition(life, None, now)
        node["status"]["conditions"] = [*node["status"]["conditions"], condition]
        self._put(NODES, node)
        status = {"observed": to_object(observed), "lifecycle": to_object(life)}
        self._put(NODE_HEALTHS, {**health_named(name), "spec": {}, "status": status})
        self._put(LEASES, lease_of(name), SYSTEM_NAMESPACE)
        for number in range(DAEMON_PODS):
            self._put(PODS, pod(f"daemon-{number}-{name}", name, 0), "default")
        self._put(PODS, pod(f"train-{name}", name, len(machine.gpus)), "default")

    def _change(self, res: ResourceType, key: Key, change: Any) -> None:
        kind = self._store.kind(res)
        present = self._store.find(kind, key)
        assert present is not None
        self._store.commit(kind, key, change(present.obj), present.managers)
        self._writes += 1

    def _heartbeat(self, number: int) -> None:
        now = micro_time(datetime.now(UTC))
        name = agent_lease(self._machines[number % len(self._machines)].name)
        self._change(LEASES, (SYSTEM_NAMESPACE, name), lambda o: {**o, "spec": {**o["spec"], "renewTime": now}})

    def _event(self) -> None:
        self._events += 1
        fatal = self._events % FATAL_EVERY == 0 and len(self._healthy) > 1
        machine = self._machines[self._healthy.pop() if fatal else self._random.choice(self._healthy)]
        count = self._events
        if fatal:
            fault = fallen_off(machine)
        elif count % WARNING_EVERY == 0:
            fault = fault_on(machine, "92", Severity.WARNING, Hint.NONE)
        else:
            fault = fault_on(machine, "43", Severity.INFO, Hint.NONE, count)

        def change(health: Object) -> Object:
            status = health["status"]
            observed = {**status["observed"], "faults": [to_object(fault)]}
            return {**health, "status": {**status, "observed": observed}}

        if fatal:
            self._store.failed[machine.name] = time.monotonic()
        self._change(NODE_HEALTHS, ("", machine.name), change)

    async def run(self, seconds: float) -> dict[str, Any]:
        """Make the load; returns what was written and how long the decisions took."""
        self._store.took.clear()
        self._writes = self._events = 0
        nodes = len(self._machines)
        began = time.monotonic()
        beats = 0
        while (passed := time.monotonic() - began) < seconds:
            while self._events < passed * nodes * EVENTS_PER_NODE_S:
                self._event()
            while beats < passed * nodes / HEARTBEAT_S:
                self._heartbeat(beats)
                beats += 1
            await asyncio.sleep(STEP_S)
        ended = time.monotonic()
        while self._store.failed and time.monotonic() < ended + AFTER_S:  # noqa: ASYNC110 - another process answers
            await asyncio.sleep(STEP_S)
        undecided = len(self._store.failed)
        self._store.failed.clear()
        return {
            "events_per_s": self._events / (ended - began),
            "writes_per_s": self._writes / (ended - began),
            "took_s": sorted(self._store.took),
            "undecided": undecided,
        }


def pod(name: str, node: str, gpus: int) -> Object:
    """A running pod."""
    created = (datetime.now(UTC) - timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
    resources = {"cpu": "4", "memory": "16Gi", **({"nvidia.com/gpu": str(gpus)} if gpus else {})}
    owner = {"apiVersion": "batch/v1", "kind": "Job" if gpus else "DaemonSet", "name": name, "uid": name}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "default",
            "labels": {"app": name.split("-", 1)[0], "batch.kubernetes.io/job-name": name},
            "creationTimestamp": created,
            "ownerReferences": [{**owner, "controller": True}],
        },
        "spec": {
            "nodeName": node,
            "containers": [{"name": "main", "image": "registry.example/app:1", "resources": {"limits": resources}}],
        },
        "status": {"phase": "Running", "startTime": created, "podIP": "10.1.2.3", "qosClass": "Burstable"},
    }


async def serve(nodes: int, kubeconfig: Path) -> None:
    store = TimedStore()
    load = Load(store, list(world_of(nodes).nodes.values()))
    await load.set_up()
    async with ApiServer(store) as server:
        kubeconfig.touch(mode=0o600)
        kubeconfig.write_text(server.kubeconfig())
        print("ready", flush=True)
        while line := await asyncio.to_thread(sys.stdin.readline):
            print(json.dumps(await load.run(float(line))), flush=True)


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), Path(sys.argv[2])))
