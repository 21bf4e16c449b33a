"""What runners read of a pod: the fields of its object that say whose it is, where it runs and how it ends. Pure."""

from __future__ import annotations

from datetime import datetime

import msgspec


class Owner(msgspec.Struct, frozen=True):
    kind: str = ""
    uid: str = ""


class Metadata(msgspec.Struct, frozen=True, rename="camel"):
    name: str
    uid: str = ""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    owner_references: tuple[Owner, ...] = ()
    creation_timestamp: datetime | None = None
    deletion_timestamp: str | None = None


class Condition(msgspec.Struct, frozen=True):
    type: str
    status: str
    reason: str = ""
    message: str = ""


class Waiting(msgspec.Struct, frozen=True):
    reason: str = ""
    message: str = ""


class Terminated(msgspec.Struct, frozen=True, rename="camel"):
    exit_code: int = 0
    reason: str = ""
    message: str = ""


class ContainerState(msgspec.Struct, frozen=True):
    waiting: Waiting | None = None
    terminated: Terminated | None = None


class Container(msgspec.Struct, frozen=True):
    state: ContainerState = ContainerState()
    ready: bool = False


class PodStatus(msgspec.Struct, frozen=True, rename="camel"):
    phase: str = "Pending"
    reason: str = ""
    message: str = ""
    pod_ip: str = msgspec.field(name="podIP", default="")
    conditions: tuple[Condition, ...] = ()
    init_container_statuses: tuple[Container, ...] = ()
    container_statuses: tuple[Container, ...] = ()


class PodSpec(msgspec.Struct, frozen=True, rename="camel"):
    node_name: str = ""


class Pod(msgspec.Struct, frozen=True):
    metadata: Metadata
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()
