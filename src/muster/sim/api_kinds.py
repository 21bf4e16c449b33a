"""The kinds that the API server serves: what is built in, and the description that custom resources add to."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from muster.kube.api import ResourceType
from muster.sim.builtin_fields import struct_name
from muster.sim.shapes import Shape

if TYPE_CHECKING:
    from muster.sim.custom_resources import CustomSchema

ALL_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")


@dataclass(frozen=True)
class Kind:
    """One served resource in one version.

    `storage` names the store that it shares with its other versions. `top` lists the top-level fields besides
    apiVersion, kind and metadata. `generation`: changes of anything but metadata and status raise
    `metadata.generation`. `status_on_create`: what happens to a status in a create request.
    """

    resource: ResourceType
    storage: str
    storage_api_version: str
    singular: str
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    subresources: tuple[str, ...] = ()
    top: tuple[str, ...] = ("spec", "status")
    generation: bool = False
    keeps_status_on_create: bool = False
    field_labels: tuple[str, ...] = ()
    shape: Shape = field(default_factory=Shape)
    custom: CustomSchema | None = None

    @property
    def has_status(self) -> bool:
        return "status" in self.subresources

    @property
    def plural(self) -> str:
        return self.resource.plural

    @property
    def group(self) -> str:
        return self.resource.group

    @property
    def name(self) -> str:
        return self.resource.kind

    @property
    def namespaced(self) -> bool:
        return self.resource.namespaced

    @property
    def api_version(self) -> str:
        return self.resource.api_version


_POD_LABELS = (
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.schedulerName",
    "spec.serviceAccountName",
    "spec.hostNetwork",
    "status.phase",
    "status.podIP",
    "status.podIPs",
    "status.nominatedNodeName",
)
_EVENT_LABELS = (
    "involvedObject.kind",
    "involvedObject.namespace",
    "involvedObject.name",
    "involvedObject.uid",
    "involvedObject.apiVersion",
    "involvedObject.resourceVersion",
    "involvedObject.fieldPath",
    "reason",
    "reportingComponent",
    "source",
    "type",
)
_NEW_EVENT_LABELS = (
    *(f"regarding.{x}" for x in ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")),
    "reason",
    "reportingController",
    "type",
)


def _kind(
    group: str,
    version: str,
    plural: str,
    name: str,
    namespaced: bool,
    short: str = "",
    *,
    status: bool = False,
    more: tuple[str, ...] = (),
    top: tuple[str, ...] | None = None,
    generation: bool = False,
    keeps_status_on_create: bool = False,
    categories: tuple[str, ...] = (),
    field_labels: tuple[str, ...] = (),
) -> Kind:
    resource = ResourceType(group, version, plural, name, namespaced)
    return Kind(
        resource=resource,
        storage=f"{plural}.{group}" if group else plural,
        storage_api_version=resource.api_version,
        singular=name.lower(),
        short_names=tuple(short.split()),
        categories=categories,
        subresources=(("status",) if status else ()) + more,
        top=top if top is not None else (("spec", "status") if status else ("spec",)),
        generation=generation,
        keeps_status_on_create=keeps_status_on_create,
        field_labels=field_labels,
        shape=Shape.builtin(struct_name(group, name)),
    )


def _events() -> Iterable[Kind]:
    """Events are one storage behind two versions; it holds the core form."""
    core_fields = (
        *("involvedObject", "reason", "message", "source", "firstTimestamp", "lastTimestamp", "count", "type"),
        *("eventTime", "series", "action", "related", "reportingComponent", "reportingInstance"),
    )
    new_fields = (
        *("eventTime", "series", "reportingController", "reportingInstance", "action", "reason", "regarding"),
        *("related", "note", "type", "deprecatedSource", "deprecatedFirstTimestamp", "deprecatedLastTimestamp"),
        "deprecatedCount",
    )
    for group, fields, labels in (("", core_fields, _EVENT_LABELS), ("events.k8s.io", new_fields, _NEW_EVENT_LABELS)):
        yield Kind(
            resource=ResourceType(group, "v1", "events", "Event", True),
            storage="events",
            storage_api_version="v1",
            singular="event",
            short_names=("ev",),
            top=fields,
            field_labels=labels,
            shape=Shape.builtin(struct_name(group, "Event")),
        )


_RBAC = "rbac.authorization.k8s.io"

BUILTINS: tuple[Kind, ...] = (
    _kind(
        "",
        "v1",
        "namespaces",
        "Namespace",
        False,
        "ns",
        status=True,
        more=("finalize",),
        field_labels=("status.phase",),
    ),
    _kind(
        *("", "v1", "nodes", "Node", False, "no"),
        status=True,
        keeps_status_on_create=True,
        field_labels=("spec.unschedulable",),
    ),
    _kind(
        *("", "v1", "pods", "Pod", True, "po"),
        status=True,
        more=("binding", "eviction", "log"),
        generation=True,
        categories=("all",),
        field_labels=_POD_LABELS,
    ),
    _kind("", "v1", "configmaps", "ConfigMap", True, "cm", top=("data", "binaryData", "immutable")),
    _kind(
        *("", "v1", "secrets", "Secret", True),
        top=("data", "stringData", "type", "immutable"),
        field_labels=("type",),
    ),
    _kind(
        *("", "v1", "services", "Service", True, "svc"),
        status=True,
        categories=("all",),
        field_labels=("spec.clusterIP", "spec.type"),
    ),
    _kind(
        *("", "v1", "serviceaccounts", "ServiceAccount", True, "sa"),
        more=("token",),
        top=("secrets", "imagePullSecrets", "automountServiceAccountToken"),
    ),
    *_events(),
    _kind("coordination.k8s.io", "v1", "leases", "Lease", True),
    _kind("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", True, "pdb", status=True, generation=True),
    _kind(
        *("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", False, "crd crds"),
        status=True,
        generation=True,
        categories=("api-extensions",),
    ),
    _kind(
        "apps", "v1", "deployments", "Deployment", True, "deploy", status=True, generation=True, categories=("all",)
    ),
    _kind("apps", "v1", "daemonsets", "DaemonSet", True, "ds", status=True, generation=True, categories=("all",)),
    _kind("apps", "v1", "replicasets", "ReplicaSet", True, "rs", status=True, generation=True, categories=("all",)),
    _kind(
        "apps", "v1", "statefulsets", "StatefulSet", True, "sts", status=True, generation=True, categories=("all",)
    ),
    _kind(
        *("batch", "v1", "jobs", "Job", True),
        status=True,
        generation=True,
        categories=("all",),
        field_labels=("status.successful",),
    ),
    _kind(
        *("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", False, "pc"),
        top=("value", "globalDefault", "description", "preemptionPolicy"),
        generation=True,
    ),
    _kind(_RBAC, "v1", "roles", "Role", True, top=("rules",)),
    _kind(_RBAC, "v1", "clusterroles", "ClusterRole", False, top=("rules", "aggregationRule")),
    _kind(_RBAC, "v1", "rolebindings", "RoleBinding", True, top=("subjects", "roleRef")),
    _kind(_RBAC, "v1", "clusterrolebindings", "ClusterRoleBinding", False, top=("subjects", "roleRef")),
    _kind(
        *("admissionregistration.k8s.io", "v1", "validatingadmissionpolicies", "ValidatingAdmissionPolicy", False),
        status=True,
        generation=True,
        categories=("api-extensions",),
    ),
    _kind(
        *("admissionregistration.k8s.io", "v1", "mutatingadmissionpolicies", "MutatingAdmissionPolicy", False),
        top=("spec",),
        generation=True,
        categories=("api-extensions",),
    ),
    _kind(
        *("admissionregistration.k8s.io", "v1", "mutatingadmissionpolicybindings"),
        *("MutatingAdmissionPolicyBinding", False),
        top=("spec",),
        generation=True,
        categories=("api-extensions",),
    ),
    _kind(
        *("admissionregistration.k8s.io", "v1", "validatingadmissionpolicybindings"),
        *("ValidatingAdmissionPolicyBinding", False),
        generation=True,
        categories=("api-extensions",),
    ),
)


class Registry:
    """Kinds by group, version and plural. Custom resources come and go."""

    def __init__(self) -> None:
        self._kinds: dict[tuple[str, str, str], Kind] = {}
        for kind in BUILTINS:
            self.add(kind)

    def add(self, kind: Kind) -> None:
        self._kinds[(kind.group, kind.resource.version, kind.plural)] = kind

    def remove(self, group: str, plural: str) -> None:
        for key in [key for key in self._kinds if key[0] == group and key[2] == plural]:
            del self._kinds[key]

    def find(self, group: str, version: str, plural: str) -> Kind | None:
        return self._kinds.get((group, version, plural))

    def by_kind(self, api_version: str, name: str) -> Kind | None:
        group, _, version = api_version.rpartition("/")
        for kind in self._kinds.values():
            if kind.group == group and kind.resource.version == version and kind.name == name:
                return kind
        return None

    def all(self) -> tuple[Kind, ...]:
        """Every kind: built-ins first, then custom resources in the order of their creation."""
        return tuple(self._kinds.values())
