"""The part of a Pod that the simulated fleet needs, decoded straight from the JSON of a watch event."""

from __future__ import annotations

from typing import Any

import msgspec

from muster.resources.base import GPU_RESOURCE


class _Owner(msgspec.Struct):
    kind: str = ""
    name: str = ""


class _Metadata(msgspec.Struct, rename="camel"):
    name: str
    namespace: str = ""
    uid: str = ""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    creation_timestamp: str = ""
    deletion_timestamp: str | None = None
    deletion_grace_period_seconds: int | None = None


class _Resources(msgspec.Struct):
    limits: dict[str, Any] = {}
    requests: dict[str, Any] = {}


class _Container(msgspec.Struct):
    name: str = "main"
    image: str = ""
    resources: _Resources = msgspec.field(default_factory=_Resources)


class Toleration(msgspec.Struct, frozen=True):
    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


class _Spec(msgspec.Struct, rename="camel"):
    node_name: str = ""
    containers: tuple[_Container, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    node_selector: dict[str, str] = {}
    active_deadline_seconds: int | None = None
    scheduler_name: str = "default-scheduler"
    priority: int | None = None
    scheduling_gates: tuple[Any, ...] = ()
    init_containers: tuple[_Container, ...] = ()
    affinity: Any = None
    topology_spread_constraints: tuple[Any, ...] = ()
    resource_claims: tuple[Any, ...] = ()


class _Status(msgspec.Struct):
    phase: str = "Pending"


class _Pod(msgspec.Struct):
    metadata: _Metadata
    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _Status = msgspec.field(default_factory=_Status)


class Pod(msgspec.Struct, frozen=True):
    """A pod as the fleet sees it. `gpus` counts whole GPUs, `grace_s` is set while it is being deleted."""

    namespace: str
    name: str
    uid: str
    node: str
    phase: str
    created: str
    labels: dict[str, str]
    annotations: dict[str, str]
    deleting: bool
    grace_s: int
    gpus: int
    containers: tuple[tuple[str, str], ...]
    """Name and image of each container."""
    tolerations: tuple[Toleration, ...]
    node_selector: dict[str, str]
    deadline_s: int | None
    scheduler: str
    priority: int = 0
    gated: bool = False
    """Not to be scheduled yet."""
    unsupported: str = ""
    """A wish about its place that the simulated scheduler does not know; empty when it knows all of them."""

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def ended(self) -> bool:
        """The containers have stopped for good; the pod uses no GPU any more."""
        return self.phase in ("Succeeded", "Failed")


_decoder = msgspec.json.Decoder(_Pod)


def project_pod(raw: bytes) -> Pod:
    """Decode one pod. Raises msgspec.MsgspecError or ValueError."""
    pod = _decoder.decode(raw)
    meta, spec = pod.metadata, pod.spec
    return Pod(
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        node=spec.node_name,
        phase=pod.status.phase,
        created=meta.creation_timestamp,
        labels=meta.labels,
        annotations=meta.annotations,
        deleting=meta.deletion_timestamp is not None,
        grace_s=meta.deletion_grace_period_seconds or 0,
        gpus=_gpus_of(spec),
        containers=tuple((container.name, container.image) for container in spec.containers),
        tolerations=spec.tolerations,
        node_selector=spec.node_selector,
        deadline_s=spec.active_deadline_seconds,
        scheduler=spec.scheduler_name,
        priority=spec.priority or 0,
        gated=bool(spec.scheduling_gates),
        unsupported=_unsupported(spec),
    )


def _unsupported(spec: _Spec) -> str:
    wishes = {
        "affinity": spec.affinity,
        "topologySpreadConstraints": spec.topology_spread_constraints,
        "resourceClaims": spec.resource_claims,
    }
    return ", ".join(f"spec.{name}" for name, wish in wishes.items() if wish)


def _gpus_of(spec: _Spec) -> int:
    """GPUs of all containers together, or those of the greediest init container where that is more."""
    together = sum(_gpus(container.resources) for container in spec.containers)
    return max([together, *(_gpus(container.resources) for container in spec.init_containers)])


def _gpus(resources: _Resources) -> int:
    return int(resources.limits.get(GPU_RESOURCE, resources.requests.get(GPU_RESOURCE, 0)))
