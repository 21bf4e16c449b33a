"""Objects of Kubernetes, as far as an assertion or a drift looks at them; other fields are skipped."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

import msgspec

from muster.resources.base import GPU_RESOURCE, HOLD_TAINT, Model
from muster.resources.gpu_labels import say_gpus

"""Set by Node Feature Discovery on nodes with a PCI device of NVIDIA."""
TEMPLATE_HASH = "pod-template-hash"
INSTANCE_LABEL = "app.kubernetes.io/instance"


class Owner(Model, frozen=True, kw_only=True):
    api_version: str = ""
    kind: str = ""
    name: str = ""
    controller: bool = False

    @property
    def group(self) -> str:
        return self.api_version.rpartition("/")[0]


class Manager(Model, frozen=True, kw_only=True):
    """Who wrote fields of an object, and through which subresource."""

    manager: str = ""
    subresource: str = ""


class Meta(Model, frozen=True, kw_only=True):
    name: str = ""
    namespace: str = ""
    generation: int = 0
    labels: dict[str, str] | None = None
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    owner_references: tuple[Owner, ...] | None = None
    finalizers: tuple[str, ...] | None = None
    managed_fields: tuple[Manager, ...] | None = None


class Condition(Model, frozen=True, kw_only=True):
    """A condition of any kind: every field is only text here, whatever a controller writes."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""


def condition(conditions: tuple[Condition, ...] | None, kind: str) -> Condition | None:
    return next((c for c in conditions or () if c.type == kind), None)


class WorkloadKind(StrEnum):
    DEPLOYMENT = "Deployment"
    STATEFUL_SET = "StatefulSet"
    DAEMON_SET = "DaemonSet"
    JOB = "Job"

    @property
    def group(self) -> str:
        return "batch" if self is WorkloadKind.JOB else "apps"


class Requirement(Model, frozen=True, kw_only=True):
    key: str = ""
    operator: str = ""
    values: tuple[str, ...] | None = None


class SelectorTerm(Model, frozen=True, kw_only=True):
    match_expressions: tuple[Requirement, ...] | None = None
    match_fields: tuple[Requirement, ...] | None = None


class RequiredTerms(Model, frozen=True, kw_only=True):
    node_selector_terms: tuple[SelectorTerm, ...] | None = None


class NodeAffinity(Model, frozen=True, kw_only=True):
    required: RequiredTerms | None = msgspec.field(
        name="requiredDuringSchedulingIgnoredDuringExecution", default=None
    )


class Affinity(Model, frozen=True, kw_only=True):
    node_affinity: NodeAffinity | None = None


class Toleration(Model, frozen=True, kw_only=True):
    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""


class ContainerImage(Model, frozen=True, kw_only=True):
    name: str = ""
    image: str = ""


class PodPlacement(Model, frozen=True, kw_only=True):
    """Where the pods of a template may run, and what they run."""

    containers: tuple[ContainerImage, ...] | None = None
    init_containers: tuple[ContainerImage, ...] | None = None

    node_selector: dict[str, str] | None = None
    affinity: Affinity | None = None
    tolerations: tuple[Toleration, ...] | None = None
    host_network: bool = False


class Template(Model, frozen=True, kw_only=True):
    spec: PodPlacement = PodPlacement()


class UpdateStrategy(Model, frozen=True, kw_only=True):
    type: str = ""


class WorkloadSpec(Model, frozen=True, kw_only=True):
    replicas: int | None = None
    suspend: bool = False
    template: Template = Template()
    update_strategy: UpdateStrategy | None = None


class WorkloadStatus(Model, frozen=True, kw_only=True):
    observed_generation: int | None = None
    replicas: int = 0
    updated_replicas: int = 0
    ready_replicas: int = 0
    available_replicas: int = 0
    desired_number_scheduled: int = 0
    updated_number_scheduled: int = 0
    number_ready: int = 0
    active: int = 0
    succeeded: int = 0
    failed: int = 0
    conditions: tuple[Condition, ...] | None = None


class Workload(Model, frozen=True, kw_only=True):
    """A Deployment, StatefulSet, DaemonSet or Job; the kind stands beside it."""

    metadata: Meta = Meta()
    spec: WorkloadSpec = WorkloadSpec()
    status: WorkloadStatus = WorkloadStatus()


class Waiting(Model, frozen=True, kw_only=True):
    reason: str = ""
    message: str = ""


class Terminated(Model, frozen=True, kw_only=True):
    reason: str = ""
    exit_code: int = 0
    finished_at: datetime | None = None


class Running(Model, frozen=True, kw_only=True):
    started_at: datetime | None = None


class ContainerState(Model, frozen=True, kw_only=True):
    waiting: Waiting | None = None
    running: Running | None = None
    terminated: Terminated | None = None


class ContainerStatus(Model, frozen=True, kw_only=True):
    name: str = ""
    ready: bool = False
    restart_count: int = 0
    state: ContainerState | None = None
    last_state: ContainerState | None = None


class PodSpec(Model, frozen=True, kw_only=True):
    node_name: str = ""


class PodStatus(Model, frozen=True, kw_only=True):
    phase: str = ""
    reason: str = ""
    conditions: tuple[Condition, ...] | None = None
    init_container_statuses: tuple[ContainerStatus, ...] | None = None
    container_statuses: tuple[ContainerStatus, ...] | None = None


class Pod(Model, frozen=True, kw_only=True):
    metadata: Meta = Meta()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


class ConditionsOnly(Model, frozen=True, kw_only=True):
    conditions: tuple[Condition, ...] | None = None
    phase: str = ""


class Names(Model, frozen=True, kw_only=True):
    kind: str = ""
    plural: str = ""


class CrdVersion(Model, frozen=True, kw_only=True):
    name: str = ""
    served: bool = False


class CrdSpec(Model, frozen=True, kw_only=True):
    group: str = ""
    names: Names = Names()
    scope: str = ""
    versions: tuple[CrdVersion, ...] | None = None


class Crd(Model, frozen=True, kw_only=True):
    metadata: Meta = Meta()
    spec: CrdSpec = CrdSpec()
    status: ConditionsOnly = ConditionsOnly()


class Conditioned(Model, frozen=True, kw_only=True):
    """A claim (by its phase) or an APIService (by its conditions)."""

    metadata: Meta = Meta()
    status: ConditionsOnly = ConditionsOnly()


class ServiceReference(Model, frozen=True, kw_only=True):
    name: str = ""
    namespace: str = ""


class ClientConfig(Model, frozen=True, kw_only=True):
    ca_bundle: str = ""
    service: ServiceReference | None = None


class Webhook(Model, frozen=True, kw_only=True):
    name: str = ""
    client_config: ClientConfig = ClientConfig()


class WebhookConfiguration(Model, frozen=True, kw_only=True):
    metadata: Meta = Meta()
    webhooks: tuple[Webhook, ...] | None = None


class EndpointConditions(Model, frozen=True, kw_only=True):
    ready: bool | None = None


class Endpoint(Model, frozen=True, kw_only=True):
    conditions: EndpointConditions = EndpointConditions()


class EndpointSlice(Model, frozen=True, kw_only=True):
    metadata: Meta = Meta()
    endpoints: tuple[Endpoint, ...] | None = None

    @property
    def ready(self) -> bool:
        # Absent means ready, as the API says.
        return any(e.conditions.ready is not False for e in self.endpoints or ())


class Taint(Model, frozen=True, kw_only=True):
    key: str = ""
    value: str = ""
    effect: str = ""

    def __str__(self) -> str:
        return f"{self.key}={self.value}:{self.effect}" if self.value else f"{self.key}:{self.effect}"


class NodeSpec(Model, frozen=True, kw_only=True):
    taints: tuple[Taint, ...] | None = None
    provider_id: str = msgspec.field(name="providerID", default="")


class NodeInfo(Model, frozen=True, kw_only=True):
    kernel_version: str = ""
    os_image: str = ""
    kubelet_version: str = ""


class NodeStatus(Model, frozen=True, kw_only=True):
    capacity: dict[str, str] | None = None
    conditions: tuple[Condition, ...] | None = None
    node_info: NodeInfo = NodeInfo()


class LiveNode(Model, frozen=True, kw_only=True):
    metadata: Meta = Meta()
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()

    @property
    def name(self) -> str:
        return self.metadata.name

    @property
    def labels(self) -> dict[str, str]:
        return self.metadata.labels or {}

    @property
    def in_service(self) -> bool:
        """False on a node that is down or that Muster holds: what does not run there is the node's trouble."""
        ready = condition(self.status.conditions, "Ready")
        if ready is not None and ready.status != "True":
            return False
        return not any(taint.key == HOLD_TAINT for taint in self.spec.taints or ())

    @property
    def has_gpus(self) -> bool:
        """By its capacity or by its labels; any of them is enough."""
        return (self.status.capacity or {}).get(GPU_RESOURCE, "0") != "0" or say_gpus(self.labels)
