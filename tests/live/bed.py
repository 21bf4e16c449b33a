"""A small recipe and a simulated cluster in which it is installed, for the tests of this folder."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from muster import yamlio
from muster.configure.catalogue import Placement, Source, SourceKind
from muster.configure.live.assess import assess
from muster.configure.live.drift import drift
from muster.configure.live.read import read
from muster.configure.live.state import LiveState
from muster.configure.lock import locked
from muster.configure.order import order
from muster.configure.plan import Plan, plan
from muster.configure.recipe import Recipe, RecipeComponent
from muster.kube.api import NODES, PODS, SECRETS, KubeApi, Object, PatchType, ResourceType
from muster.resources.baseline import Assertion, AssertionResult, Drift
from muster.sim.inprocess import InProcessApi
from muster.sim.store import Store
from muster.sim.virtual import VirtualClock, run_virtual

NAMESPACES = ResourceType("", "v1", "namespaces", "Namespace", False)
APPS = {
    "Deployment": ResourceType("apps", "v1", "deployments", "Deployment", True),
    "DaemonSet": ResourceType("apps", "v1", "daemonsets", "DaemonSet", True),
    "StatefulSet": ResourceType("apps", "v1", "statefulsets", "StatefulSet", True),
    "Job": ResourceType("batch", "v1", "jobs", "Job", True),
}
REPLICA_SETS = ResourceType("apps", "v1", "replicasets", "ReplicaSet", True)
GPU_NODE = {"nvidia.com/gpu.present": "true", "kubernetes.io/os": "linux"}
CREATED = "2026-01-05T07:00:00Z"


def component(
    name: str, namespace: str = "", *, chart: bool = True, version: str = "1.2.3", **more: Any
) -> RecipeComponent:
    """A component with a chart of its own name, or one of manifests alone."""
    source = Source(kind=SourceKind.MANIFESTS)
    if chart:
        source = Source(kind=SourceKind.HELM, repository="https://charts.example.com", chart=name, version=version)
    return RecipeComponent(name=name, source=source, namespace=namespace or name, **more)


def recipe_of(*components: RecipeComponent, **more: Any) -> Recipe:
    found = order({c.name: c.depends_on for c in components})
    by_name = {c.name: c for c in components}
    ordered = tuple(by_name[name] for name in found.sequence)
    fields = {"catalogue": "sha256:0", "criteria": {}, **more}
    return locked(Recipe(components=ordered, levels=found.levels, **fields))


def on_gpu_nodes(name: str, **more: Any) -> RecipeComponent:
    """A component whose DaemonSets run on GPU nodes."""
    return component(name, placement=Placement(accelerated_tolerations=("tolerations",)), **more)


def release_secret(
    name: str,
    namespace: str,
    *,
    chart: str = "",
    version: str = "1.2.3",
    revision: int = 1,
    status: str = "deployed",
    values: Mapping[str, Any] | None = None,
    manifest: str = "",
    files: Mapping[str, str] | None = None,
    description: str = "",
) -> Object:
    """Helm's record, as Helm writes it."""
    record = {
        "name": name,
        "namespace": namespace,
        "version": revision,
        "info": {"status": status, "description": description, "first_deployed": "2026-01-05T07:00:00.123Z"},
        "chart": {
            "metadata": {"name": chart or name, "version": version, "appVersion": "9"},
            "templates": [{"name": "templates/a.yaml", "data": base64.b64encode(b"x").decode()}],
            "values": {"default": 1},
            "files": [
                {"name": path, "data": base64.b64encode(text.encode()).decode()}
                for path, text in (files or {}).items()
            ],
        },
        "manifest": manifest,
    }
    if values is not None:
        record["config"] = dict(values)
    packed = base64.b64encode(gzip.compress(json.dumps(record).encode(), mtime=0))
    labels = {"owner": "helm", "name": name, "status": status, "version": str(revision)}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": f"sh.helm.release.v1.{name}.v{revision}", "namespace": namespace, "labels": labels},
        "type": "helm.sh/release.v1",
        "data": {"release": base64.b64encode(packed).decode()},
    }


def workload(kind: str, name: str, namespace: str, **spec: Any) -> Object:
    """A workload; `spec` goes over a plain one, `pod` over the spec of its pods."""
    pod = {"containers": [{"name": "main", "image": "work:1"}], **spec.pop("pod", {})}
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": pod}
    plain: dict[str, Any] = {"selector": {"matchLabels": labels}, "template": template}
    if kind == "Job":
        plain = {"template": {"spec": {**pod, "restartPolicy": "Never"}}}
    if kind == "StatefulSet":
        plain["serviceName"] = name
    metadata: dict[str, Any] = {"name": name, "namespace": namespace}
    group = "batch/v1" if kind == "Job" else "apps/v1"
    return {"apiVersion": group, "kind": kind, "metadata": metadata, "spec": {**plain, **spec}}


def well(kind: str, count: int = 1) -> dict[str, Any]:
    """The status of a workload that is as it should be."""
    match kind:
        case "DaemonSet":
            return {
                "observedGeneration": 1,
                "currentNumberScheduled": count,
                "numberMisscheduled": 0,
                "desiredNumberScheduled": count,
                "numberReady": count,
                "numberAvailable": count,
                "updatedNumberScheduled": count,
            }
        case "Job":
            at = {"lastProbeTime": CREATED, "lastTransitionTime": CREATED}
            conditions = [
                {"type": "SuccessCriteriaMet", "status": "True", "reason": "CompletionsReached", **at},
                {"type": "Complete", "status": "True", "reason": "CompletionsReached", **at},
            ]
            times = {"startTime": CREATED, "completionTime": CREATED}
            return {"succeeded": 1, "conditions": conditions, **times}
        case _:
            return {
                "observedGeneration": 1,
                "replicas": count,
                "updatedReplicas": count,
                "readyReplicas": count,
                "availableReplicas": count,
            }


def pod(
    name: str,
    namespace: str,
    owner: tuple[str, str],
    *,
    node: str = "gpu-1",
    phase: str = "Running",
    containers: Iterable[Mapping[str, Any]] = (),
    init: Iterable[Mapping[str, Any]] = (),
    conditions: Iterable[Mapping[str, Any]] = (),
) -> Object:
    """A pod of `owner` (kind, name) with the status that a kubelet would write."""
    kind, above = owner
    group = "batch/v1" if kind == "Job" else "apps/v1"
    return {
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": {"pod-template-hash": "5d8f"},
            "ownerReferences": [{"apiVersion": group, "kind": kind, "name": above, "uid": "u-2", "controller": True}],
        },
        "spec": {"nodeName": node, "containers": [{"name": "main", "image": "work:1"}]}
        if node
        else {"containers": [{"name": "main", "image": "work:1"}]},
        "status": {
            "phase": phase,
            "containerStatuses": [dict(c) for c in containers],
            "initContainerStatuses": [dict(c) for c in init],
            "conditions": [dict(c) for c in conditions],
        },
    }


def container(name: str = "main", *, restarts: int = 0, state: Any = None, last: Any = None) -> dict[str, Any]:
    running = {"running": {"startedAt": CREATED}}
    return {
        "name": name,
        "image": "work:1",
        "imageID": "",
        "ready": state is None,
        "restartCount": restarts,
        "state": state or running,
        **({"lastState": last} if last else {}),
    }


class World:
    """A simulated cluster on a virtual clock, and what Muster sees of it."""

    def __init__(self, clock: VirtualClock, recipe: Recipe) -> None:
        self.clock = clock
        self.recipe = recipe
        self.plan: Plan = plan(recipe)
        self.store = Store(clock)
        self.api = InProcessApi(self.store)

    async def namespace(self, name: str) -> None:
        try:
            await self.api.create(NAMESPACES, {"metadata": {"name": name}})
        except Exception as error:
            if "already exists" not in str(error):
                raise

    async def node(self, name: str, labels: Mapping[str, str] | None = None, **more: Any) -> None:
        info = {
            "kernelVersion": "6.8.0-1028-aws",
            "osImage": "Ubuntu 24.04.1 LTS",
            "kubeletVersion": "v1.34.1",
            "architecture": "amd64",
            "bootID": "b",
            "containerRuntimeVersion": "containerd://2",
            "kubeProxyVersion": "",
            "machineID": "m",
            "operatingSystem": "linux",
            "systemUUID": "s",
        }
        body = {
            "metadata": {"name": name, "labels": dict(GPU_NODE if labels is None else labels)},
            "spec": {key: value for key, value in more.items() if key == "taints"},
            "status": {"nodeInfo": info | more.get("info", {})},
        }
        await self.api.create(NODES, body)

    async def install(self, name: str, *objects: tuple[Object, Mapping[str, Any]], **record: Any) -> None:
        """A release of the plan with its Helm record and its workloads, each with a status."""
        release = next(r for r in self.plan.releases if r.name == name)
        await self.namespace(release.namespace)
        manifest = record.pop("manifest", "") + yamlio.dumps_all([obj for obj, _ in objects] or [None])
        fields = {
            "chart": release.chart or release.name,
            "version": release.version or "0.1.0",
            "values": release.values,
            "manifest": manifest,
        }
        secret = release_secret(release.name, release.namespace, **{**fields, **record})
        await self.api.create(SECRETS, secret, release.namespace)
        for obj, status in objects:
            await self.add(obj, status)

    async def own(self, obj: Object, res: ResourceType, name: str, namespace: str = "") -> Object:
        """`obj` with an owner reference to an object that is there."""
        owner = await self.api.get(res, name, namespace)
        reference = {
            "apiVersion": res.api_version,
            "kind": res.kind,
            "name": name,
            "uid": owner["metadata"]["uid"],
            "controller": True,
        }
        return {**obj, "metadata": {**obj["metadata"], "ownerReferences": [reference]}}

    async def add(self, obj: Object, status: Mapping[str, Any] | None = None) -> None:
        res = APPS[obj["kind"]]
        namespace = obj["metadata"]["namespace"]
        await self.namespace(namespace)
        await self.api.create(res, obj, namespace)
        if status is not None:
            await self.status(res, obj["metadata"]["name"], namespace, status)

    async def status(self, res: ResourceType, name: str, namespace: str, status: Mapping[str, Any]) -> None:
        await self.api.patch(res, name, {"status": dict(status)}, PatchType.MERGE, namespace, subresource="status")

    async def add_pod(self, obj: Object) -> None:
        """The pod, owned by the object that is there: the garbage collector takes orphans away."""
        namespace = obj["metadata"]["namespace"]
        await self.namespace(namespace)
        reference = obj["metadata"]["ownerReferences"][0]
        if reference["kind"] == "ReplicaSet":
            above = workload("Deployment", reference["name"], namespace)
            made = await self.api.create(REPLICA_SETS, {**above, "kind": "ReplicaSet"}, namespace)
        else:
            made = await self.api.get(APPS[reference["kind"]], reference["name"], namespace)
        reference["uid"] = made["metadata"]["uid"]
        await self.api.create(PODS, {key: part for key, part in obj.items() if key != "status"}, namespace)
        await self.status(PODS, obj["metadata"]["name"], namespace, obj["status"])

    async def look(self, api: KubeApi | None = None, **more: Any) -> LiveState:
        fields = {"now": self.clock.now(), "kubernetes_version": "v1.34.1", **more}
        return await read(api or self.api, self.recipe, self.plan, **fields)


def by_name(assertions: Iterable[Assertion]) -> dict[str, Assertion]:
    return {a.name: a for a in assertions}


def results(assertions: Iterable[Assertion]) -> dict[str, AssertionResult]:
    return {a.name: a.result for a in assertions}


def told(drifts: Iterable[Drift]) -> list[tuple[str, str, str]]:
    return [(d.drift_class.value, d.component or d.node, d.path) for d in drifts]


Setup = Callable[[World], Awaitable[None]]


def see(recipe: Recipe, setup: Setup, **more: Any) -> LiveState:
    """What is read of a cluster that `setup` has built."""

    async def main(clock: VirtualClock) -> LiveState:
        world = World(clock, recipe)
        await setup(world)
        return await world.look(**more)

    return run_virtual(main)


def judge(recipe: Recipe, setup: Setup, **more: Any) -> dict[str, Assertion]:
    state = see(recipe, setup, **more)
    return by_name(assess(recipe, plan(recipe), state))


def compare(recipe: Recipe, setup: Setup, **more: Any) -> tuple[Drift, ...]:
    return drift(recipe, plan(recipe), see(recipe, setup, **more))
