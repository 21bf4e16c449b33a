"""What was read of a live cluster, as values.

`unread` names what could not be read, with the reason: whoever asserts something about it must answer "unknown".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

import msgspec

from muster.configure.live.kinds import (
    Conditioned,
    Crd,
    EndpointSlice,
    LiveNode,
    Owner,
    Pod,
    WebhookConfiguration,
    Workload,
    WorkloadKind,
)
from muster.resources.node_health import NodeHealth


class Via(StrEnum):
    """Who tells of an installed release."""

    HELM = "Helm"
    ARGOCD = "Argo CD"
    FLUX = "Flux"


@dataclass(frozen=True)
class OwnedObject:
    """An object that a release owns, as the release names it. `namespace` is empty when it was not stated."""

    group: str
    kind: str
    namespace: str
    name: str
    replicas: int | None = None
    images: tuple[tuple[str, str], ...] = ()
    """(container, image) of the pods of a workload, where the release tells them."""
    api_version: str = ""
    spec: Mapping[str, Any] | None = field(default=None, compare=False)
    """Of a custom resource, as the release has it, where it is small enough to be read."""
    expires: bool = False
    """A Job that removes itself some time after its end."""


@dataclass(frozen=True)
class Installed:
    """A release as one of its tellers sees it. `deployed` is None while that cannot be told.

    `values` are those that the deployer was given, None when they cannot be seen; `owned` is None when the objects
    of the release are not listed anywhere, and labels have to tell.
    """

    via: Via
    name: str
    namespace: str
    deployed: bool | None
    state: str
    chart: str = ""
    chart_version: str = ""
    source: str = ""
    values: Mapping[str, Any] | None = None
    owned: tuple[OwnedObject, ...] | None = None
    manifest: str = ""
    """What Helm applied, where it is small enough to be kept."""
    note: str = ""


@dataclass(frozen=True)
class Custom:
    """A custom resource: its type, and the object as plain JSON values."""

    group: str
    kind: str
    plural: str
    object: Mapping[str, Any]

    @property
    def name(self) -> str:
        return str(self._metadata.get("name", ""))

    @property
    def namespace(self) -> str:
        return str(self._metadata.get("namespace", ""))

    @property
    def owners(self) -> tuple[Owner, ...]:
        try:
            return msgspec.convert(self._metadata.get("ownerReferences") or [], tuple[Owner, ...], strict=False)
        except msgspec.ValidationError:
            return ()

    @property
    def _metadata(self) -> Mapping[str, Any]:
        found = self.object.get("metadata")
        return found if isinstance(found, Mapping) else {}


Place = tuple[str, str]
"""(resource as `plural.group`, namespace); the namespace is empty for a list over the whole cluster."""


@dataclass(frozen=True)
class LiveState:
    """One reading of the cluster, taken at `now`."""

    now: datetime
    kubernetes_version: str = ""
    installed: tuple[Installed, ...] = ()
    workloads: Mapping[WorkloadKind, tuple[Workload, ...]] = field(default_factory=dict)
    pods: tuple[Pod, ...] = ()
    """Those that are not plainly well."""
    crds: tuple[Crd, ...] = ()
    claims: tuple[Conditioned, ...] = ()
    api_services: tuple[Conditioned, ...] = ()
    webhooks: Mapping[str, tuple[WebhookConfiguration, ...]] = field(default_factory=dict)
    """By kind."""
    endpoint_slices: tuple[EndpointSlice, ...] = ()
    customs: tuple[Custom, ...] = ()
    nodes: tuple[LiveNode, ...] = ()
    node_healths: tuple[NodeHealth, ...] = ()
    confirmed: Mapping[str, str] = field(default_factory=dict)
    """Constraints that nothing in a cluster tells -> the value that a person vouches for."""
    looked_at: frozenset[Place] = frozenset()
    """Custom resources that were asked for, with or without success."""
    unread: Mapping[Place, str] = field(default_factory=dict)

    def why_unread(self, resource: str, namespace: str = "") -> str | None:
        """Why `resource` could not be read in `namespace` (empty: anywhere), or None when it was."""
        if not namespace:
            return next((self.unread[place] for place in sorted(self.unread) if place[0] == resource), None)
        return self.unread.get((resource, namespace)) or self.unread.get((resource, ""))

    def gpu_nodes(self) -> tuple[LiveNode, ...]:
        """Nodes with GPUs, by what they say of themselves or by what Muster's agent sees on them."""
        seen = {
            h.metadata.name for h in self.node_healths if h.status.observed is not None and h.status.observed.gpus
        }
        return tuple(node for node in self.nodes if node.has_gpus or node.name in seen)
