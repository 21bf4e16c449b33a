"""The small interface behind which every Kubernetes client stands.

Objects are plain JSON values (`dict`), decoded afresh for each caller, so nobody shares mutable state. Two
implementations: `muster.kube.http` (a real API server, through lightkube) and `muster.sim.inprocess` (the simulated
store without HTTP).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

from muster.errors import ExitCode, MusterError, UnreachableError

Object = dict[str, Any]


@dataclass(frozen=True)
class ResourceType:
    """A kind of object as the API serves it. `group` is empty for the core group."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version


NODES = ResourceType("", "v1", "nodes", "Node", False)
PODS = ResourceType("", "v1", "pods", "Pod", True)
NAMESPACES = ResourceType("", "v1", "namespaces", "Namespace", False)
EVENTS = ResourceType("events.k8s.io", "v1", "events", "Event", True)
CONFIG_MAPS = ResourceType("", "v1", "configmaps", "ConfigMap", True)
LEASES = ResourceType("coordination.k8s.io", "v1", "leases", "Lease", True)
SECRETS = ResourceType("", "v1", "secrets", "Secret", True)
PERSISTENT_VOLUME_CLAIMS = ResourceType("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim", True)
DEPLOYMENTS = ResourceType("apps", "v1", "deployments", "Deployment", True)
STATEFUL_SETS = ResourceType("apps", "v1", "statefulsets", "StatefulSet", True)
DAEMON_SETS = ResourceType("apps", "v1", "daemonsets", "DaemonSet", True)
JOBS = ResourceType("batch", "v1", "jobs", "Job", True)
SERVICES = ResourceType("", "v1", "services", "Service", True)
ENDPOINT_SLICES = ResourceType("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice", True)
API_SERVICES = ResourceType("apiregistration.k8s.io", "v1", "apiservices", "APIService", False)
_ADMISSION = "admissionregistration.k8s.io"
VALIDATING_WEBHOOKS = ResourceType(
    _ADMISSION, "v1", "validatingwebhookconfigurations", "ValidatingWebhookConfiguration", False
)
MUTATING_WEBHOOKS = ResourceType(
    _ADMISSION, "v1", "mutatingwebhookconfigurations", "MutatingWebhookConfiguration", False
)
ARGO_APPLICATIONS = ResourceType("argoproj.io", "v1alpha1", "applications", "Application", True)
FLUX_HELM_RELEASES = ResourceType("helm.toolkit.fluxcd.io", "v2", "helmreleases", "HelmRelease", True)
FLUX_HELM_REPOSITORIES = ResourceType("source.toolkit.fluxcd.io", "v1", "helmrepositories", "HelmRepository", True)
POD_DISRUPTION_BUDGETS = ResourceType("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", True)
CRDS = ResourceType("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", False)
NODE_HEALTHS = ResourceType("muster.dev", "v1alpha1", "nodehealths", "NodeHealth", False)
CERTIFICATIONS = ResourceType("muster.dev", "v1alpha1", "certifications", "Certification", False)
CERTIFICATION_PARTS = ResourceType("muster.dev", "v1alpha1", "certificationparts", "CertificationPart", False)
REPAIRS = ResourceType("muster.dev", "v1alpha1", "repairs", "Repair", False)
MAINTENANCES = ResourceType("muster.dev", "v1alpha1", "maintenances", "Maintenance", False)
FAULT_POLICIES = ResourceType("muster.dev", "v1alpha1", "faultpolicies", "FaultPolicy", False)
BASELINES = ResourceType("muster.dev", "v1alpha1", "baselines", "Baseline", False)


class PatchType(StrEnum):
    JSON = "application/json-patch+json"
    MERGE = "application/merge-patch+json"
    STRATEGIC = "application/strategic-merge-patch+json"


class EventType(StrEnum):
    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"
    BOOKMARK = "BOOKMARK"


@dataclass(frozen=True)
class WatchEvent:
    """One event of a watch. `raw` is the object's JSON; decoding is left to whoever needs a part of it."""

    type: EventType
    raw: bytes


@dataclass(frozen=True)
class ListPage:
    """`items` hold the JSON of each object; `resource_version` is where a watch continues."""

    items: tuple[bytes, ...]
    resource_version: str
    continue_token: str = ""


class ApiError(MusterError):
    """The API server answered with a Status of failure. `reason` is the machine-readable word of the Status.

    Each kind has the exit code that a verb ends with when nobody handles it (see docs/reference/exit-codes.md).
    """

    def __init__(self, code: int, reason: str, message: str, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.retry_after_s = retry_after_s


class NotFoundError(ApiError):
    """404: no such object."""

    exit_code = ExitCode.BAD_INPUT


class AlreadyExistsError(ApiError):
    """409 AlreadyExists: create found the name taken."""

    exit_code = ExitCode.BAD_INPUT


class ConflictError(ApiError):
    """409 Conflict: the object changed since it was read, or another manager owns a field."""

    exit_code = ExitCode.NOT_SATISFIED


class GoneError(ApiError):
    """410: the resource version is too old; list again."""

    exit_code = ExitCode.UNREACHABLE


class InvalidError(ApiError):
    """400 or 422: the server refuses the object."""

    exit_code = ExitCode.BAD_INPUT


class ForbiddenError(ApiError):
    """401 (the login is refused) or 403 (this user may not do it)."""

    exit_code = ExitCode.UNREACHABLE


class TooManyRequestsError(ApiError):
    """429: the server is busy, or a PodDisruptionBudget forbids an eviction now."""

    exit_code = ExitCode.UNREACHABLE


class ServerError(ApiError):
    """5xx: the outcome of a write is unknown."""

    exit_code = ExitCode.UNREACHABLE


class ConnectionLostError(UnreachableError):
    """No answer: the outcome of a write is unknown."""


class KubeApi(Protocol):
    """What shells may ask of a Kubernetes API server. Every method may raise ApiError or ConnectionLostError."""

    async def get(self, res: ResourceType, name: str, namespace: str = "") -> Object: ...

    async def list_page(
        self,
        res: ResourceType,
        namespace: str = "",
        *,
        label_selector: str = "",
        field_selector: str = "",
        limit: int = 0,
        continue_token: str = "",
        resource_version: str = "",
    ) -> ListPage:
        """One page of a list (all of it when `limit` is 0). Namespace "" of a namespaced kind means all."""
        ...

    def watch(
        self,
        res: ResourceType,
        resource_version: str,
        namespace: str = "",
        *,
        label_selector: str = "",
        field_selector: str = "",
        timeout_s: float = 300.0,
    ) -> AsyncIterator[WatchEvent]:
        """Events after `resource_version`, with bookmarks. Ends normally at the server's time limit.

        Raises GoneError when the version is too old, ConnectionLostError when the stream breaks or stays silent.
        """
        ...

    async def create(self, res: ResourceType, obj: Object, namespace: str = "", *, manager: str = "") -> Object: ...

    async def replace(self, res: ResourceType, obj: Object, *, subresource: str = "", manager: str = "") -> Object:
        """PUT. A resourceVersion in the metadata makes it conditional (ConflictError)."""
        ...

    async def patch(
        self,
        res: ResourceType,
        name: str,
        patch: Mapping[str, Any] | list[Any],
        patch_type: PatchType,
        namespace: str = "",
        *,
        subresource: str = "",
        manager: str = "",
    ) -> Object: ...

    async def apply(
        self,
        res: ResourceType,
        obj: Object,
        *,
        manager: str,
        force: bool = True,
        subresource: str = "",
    ) -> Object:
        """Server-side apply of `obj` (with apiVersion, kind, name). Creates it when absent."""
        ...

    async def delete(
        self,
        res: ResourceType,
        name: str,
        namespace: str = "",
        *,
        grace_period_s: int | None = None,
        uid: str = "",
        resource_version: str = "",
    ) -> None:
        """Delete; `uid` and `resource_version` are preconditions (ConflictError)."""
        ...

    async def evict(self, pod: str, namespace: str, *, uid: str = "", grace_period_s: int | None = None) -> None:
        """Ask for the eviction of a pod. TooManyRequestsError: a PodDisruptionBudget forbids it now."""
        ...
