"""What all resource models share: the struct base, metadata, conditions, names of labels, taints and managers."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Any, TypeVar

import msgspec

GROUP = "muster.dev"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"

SYSTEM_NAMESPACE = "muster-system"
"""Namespace of leases, test pods and everything else namespaced that Muster owns."""

HOLD_TAINT = "muster.dev/hold"
STATE_LABEL = "muster.dev/state"
HEALTH_CONDITION = "MusterHealthy"
CORDON_ANNOTATION = "muster.dev/cordoned-by"
"""Present (value: episode ID) only on nodes that Muster itself cordoned; a cordon without it is a person's."""

AGENT_MANAGER = "muster-agent"
CONTROLLER_MANAGER = "muster-controller"
CONTROLLER_LEASE = "muster-controller"

CERTIFICATION_LABEL = "muster.dev/certification"
RUN_LABEL = "muster.dev/run"
WORKERS_LABEL = "muster.dev/workers"
"""On everything that keeps the workers of a certification: their common name."""
RUN_SPEC_ANNOTATION = "muster.dev/run-spec"
REQUESTS_ANNOTATION = "muster.dev/requests"
"""On a Certification: JSON, node -> {episode, since, fingerprint, bootId}: for what it was asked."""
PLAN_ANNOTATION = "muster.dev/plan"
"""On a Certification: the plan as JSON. Together with `status.runs` it determines everything that follows."""
TEST_DIGESTS_ANNOTATION = "muster.dev/test-digests"
"""On a Certification: JSON, test -> digest of its definition, written by whoever runs the tests."""

GPU_RESOURCE = "nvidia.com/gpu"
GPU_PRESENT_LABEL = "nvidia.com/gpu.present"
GPU_PRODUCT_LABEL = "nvidia.com/gpu.product"
GPU_COUNT_LABEL = "nvidia.com/gpu.count"


def agent_lease(node: str) -> str:
    """Name of the Lease (in SYSTEM_NAMESPACE) that the agent of `node` renews as its heartbeat."""
    return f"agent-{node}"


class Model(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Base of every model: immutable, camelCase on the wire, defaults left out, unknown fields ignored on reading."""


class ConditionStatus(StrEnum):
    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


class Condition(Model, frozen=True, kw_only=True):
    """A Kubernetes condition (`metav1.Condition`)."""

    type: str
    status: ConditionStatus
    reason: str
    message: str = ""
    last_transition_time: datetime


class ObjectMeta(Model, frozen=True, kw_only=True):
    """The part of Kubernetes metadata that Muster reads."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    finalizers: tuple[str, ...] = ()


M = TypeVar("M", bound=msgspec.Struct)


def from_object(model: type[M], obj: dict[str, Any]) -> M:
    """Decode a Kubernetes object (plain JSON values) into `model`. Raises msgspec.ValidationError."""
    return msgspec.convert(obj, model, strict=False)


def to_object(value: msgspec.Struct) -> dict[str, Any]:
    """Encode a model into plain JSON values (times as RFC 3339 text, tuples as lists, defaults left out)."""
    encoded: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(value))
    return encoded
