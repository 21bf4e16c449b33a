"""Node objects and their heartbeat: what the kubelets of the simulated fleet register and keep up to date."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from typing import Any

from muster.clock import Clock
from muster.kube.api import LEASES, NAMESPACES, NODES, AlreadyExistsError, KubeApi, NotFoundError, Object, PatchType
from muster.resources.base import GPU_COUNT_LABEL, GPU_PRESENT_LABEL, GPU_PRODUCT_LABEL, GPU_RESOURCE, HOLD_TAINT
from muster.sim.draws import draw_uuid
from muster.sim.retry import persist
from muster.sim.world import PRODUCT, NodeTruth, World

KUBELET_VERSION = "v1.34.2"
CONTAINER_RUNTIME = "containerd://2.1.4"
OS_IMAGE = "Ubuntu 22.04.5 LTS"
INSTANCE_TYPE = "p5.48xlarge"
"""Eight H100 GPUs on EFA at AWS: the machine whose published numbers the test model uses."""
ZONE = "us-west-2a"
NODE_LEASE_NAMESPACE = "kube-node-lease"
DRIVER_LABEL = "nvidia.com/cuda.driver-version.full"
MANAGER = "kubelet"


def rfc3339(time: datetime) -> str:
    """Whole seconds, as metav1.Time is written."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ")


def micro_time(time: datetime) -> str:
    """Microseconds, as metav1.MicroTime is written."""
    return time.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def labels_of(node: NodeTruth) -> dict[str, str]:
    """The labels that kubelet, cloud controller and GPU feature discovery put on a node like this."""
    return {
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/hostname": node.name,
        "kubernetes.io/os": "linux",
        "node.kubernetes.io/instance-type": INSTANCE_TYPE,
        GPU_COUNT_LABEL: str(len(node.gpus)),
        GPU_PRESENT_LABEL: "true",
        GPU_PRODUCT_LABEL: PRODUCT,
        "nvidia.com/gpu.clique": node.domain,
        DRIVER_LABEL: node.driver,
        "topology.kubernetes.io/rack": node.domain,
        "topology.kubernetes.io/region": ZONE[:-1],
        "topology.kubernetes.io/zone": ZONE,
    }


def ready_conditions(up: bool, now: datetime) -> list[Object]:
    """The conditions of a node that runs, or of one whose kubelet has fallen silent."""
    at = rfc3339(now)
    if not up:
        silent = {"reason": "NodeStatusUnknown", "message": "Kubelet stopped posting node status."}
        return [{"type": "Ready", "status": "Unknown", "lastHeartbeatTime": at, "lastTransitionTime": at, **silent}]
    conditions = [
        ("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
        ("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
        ("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
        ("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
    ]
    return [
        {
            "type": kind,
            "status": status,
            "reason": reason,
            "message": message,
            "lastHeartbeatTime": at,
            "lastTransitionTime": at,
        }
        for kind, status, reason, message in conditions
    ]


def node_info(node: NodeTruth, seed: int) -> Object:
    """`status.nodeInfo` as the kubelet fills it."""
    return {
        "architecture": "amd64",
        "bootID": node.boot_id,
        "containerRuntimeVersion": CONTAINER_RUNTIME,
        "kernelVersion": node.kernel,
        "kubeProxyVersion": "",
        "kubeletVersion": KUBELET_VERSION,
        "machineID": draw_uuid(seed, "machine", node.name).replace("-", ""),
        "operatingSystem": "linux",
        "osImage": OS_IMAGE,
        "systemUUID": draw_uuid(seed, "system", node.name),
    }


def node_object(node: NodeTruth, seed: int, now: datetime) -> Object:
    """The Node that the kubelet registers."""
    resources = {"cpu": "192", "memory": "2113929216Ki", "pods": "250", GPU_RESOURCE: str(len(node.gpus))}
    instance = draw_uuid(seed, "instance", node.name).replace("-", "")[:17]
    status: dict[str, Any] = {
        "capacity": resources,
        "allocatable": resources,
        "conditions": ready_conditions(node.up, now),
        "addresses": [
            {"type": "Hostname", "address": node.name},
            {"type": "InternalIP", "address": address_of(node)},
        ],
        "nodeInfo": node_info(node, seed),
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": node.name, "labels": labels_of(node)},
        "spec": {"providerID": f"aws:///{ZONE}/i-{instance}"},
        "status": status,
    }


def address_of(node: NodeTruth) -> str:
    """An address of the node: the number at the end of its name, in 10.0.0.0/16."""
    number = int(node.name.rsplit("-", 1)[1])
    return f"10.0.{number // 250}.{number % 250 + 1}"


class NodeWriter:
    """Writes the Nodes of a world, and their Leases, through the API.

    `held`: kubelets register with the hold taint (`--register-with-taints`), so that a new node takes no work before
    the controller has seen it.
    """

    def __init__(self, api: KubeApi, clock: Clock, world: World, *, held: bool = False) -> None:
        self._api = api
        self._clock = clock
        self._world = world
        self._held = held
        self.uids: dict[str, str] = {}
        """UID of each Node as registered."""

    async def register(self) -> None:
        """Create the Node and the Lease of every machine; what exists already is taken over."""
        await persist(self._clock, lambda: ensure_namespace(self._api, NODE_LEASE_NAMESPACE))
        for name in self._world.nodes:
            await self.register_node(name)

    async def register_node(self, name: str) -> None:
        """Create the Node and the Lease of one machine."""
        await persist(self._clock, partial(self._register, name))

    async def _register(self, name: str) -> None:
        obj = node_object(self._world.nodes[name], self._world.seed, self._clock.now())
        if self._held:
            obj["spec"]["taints"] = [{"key": HOLD_TAINT, "value": "new-node", "effect": "NoSchedule"}]
        try:
            created = await self._api.create(NODES, obj, manager=MANAGER)
        except AlreadyExistsError:
            created = await self._api.patch(
                NODES, name, {"metadata": {"labels": obj["metadata"]["labels"]}}, PatchType.STRATEGIC, manager=MANAGER
            )
        # A server that resets the status of a created object still gets it.
        if created.get("status", {}).get("nodeInfo", {}).get("bootID") != obj["status"]["nodeInfo"]["bootID"]:
            await self._patch_status(name, obj["status"])
        self.uids[name] = created["metadata"]["uid"]
        await self._make_lease(name)

    async def _make_lease(self, name: str) -> None:
        owner = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": self.uids[name]}
        lease = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": name, "namespace": NODE_LEASE_NAMESPACE, "ownerReferences": [owner]},
            "spec": {"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": micro_time(self._clock.now())},
        }
        try:
            await self._api.create(LEASES, lease, NODE_LEASE_NAMESPACE, manager=MANAGER)
        except AlreadyExistsError:
            await self.renew(name)

    async def report(self, name: str) -> None:
        """Write what the node is now: ready with its boot ID, or fallen silent."""
        node = self._world.nodes[name]
        status: Object = {"conditions": ready_conditions(node.up, self._clock.now())}
        if node.up:
            status["nodeInfo"] = node_info(node, self._world.seed)
        await self._patch_status(name, status)
        if node.up:
            await self.renew(name)

    async def report_driver(self, name: str) -> None:
        """Feature discovery writes the driver's version into the label."""
        labels = {DRIVER_LABEL: self._world.nodes[name].driver}
        await self._api.patch(NODES, name, {"metadata": {"labels": labels}}, PatchType.MERGE, manager="gpu-discovery")

    async def renew(self, name: str) -> None:
        """Renew the kubelet's Lease of the node. One that went with an earlier Node of this name is made anew."""
        spec = {"spec": {"renewTime": micro_time(self._clock.now())}}
        try:
            await self._api.patch(LEASES, name, spec, PatchType.MERGE, NODE_LEASE_NAMESPACE, manager=MANAGER)
        except NotFoundError:
            await self._make_lease(name)

    async def _patch_status(self, name: str, status: Object) -> None:
        await self._api.patch(
            NODES, name, {"status": status}, PatchType.STRATEGIC, subresource="status", manager=MANAGER
        )


async def ensure_namespace(api: KubeApi, name: str) -> None:
    """Create the namespace unless it is there."""
    try:
        await api.get(NAMESPACES, name)
    except NotFoundError:
        try:
            await api.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        except AlreadyExistsError:
            return
