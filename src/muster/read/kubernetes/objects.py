"""Values of Kubernetes objects, as far as they say something about a node's fitness."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Condition:
    """One condition. Times are ISO text, None where not told."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    heartbeat: str | None = None
    transition: str | None = None
    line: int = 0


@dataclass(frozen=True)
class Taint:
    key: str
    value: str
    effect: str

    @property
    def text(self) -> str:
        return self.key + (f"={self.value}" if self.value else "") + f":{self.effect}"


@dataclass(frozen=True)
class Event:
    """An event; `object` is `kind/name` in lower case where told, `age_s` since it was seen last."""

    type: str
    reason: str
    message: str
    object: str = ""
    namespace: str = ""
    source: str = ""
    count: int = 1
    line: int = 0
    age_s: float | None = None


@dataclass
class Node:
    """A node. Empty mappings: the text does not show the section."""

    name: str | None = None
    line: int = 1
    conditions: list[Condition] = field(default_factory=list)
    taints: list[Taint] = field(default_factory=list)
    unschedulable: bool | None = None
    capacity: dict[str, str] = field(default_factory=dict)
    allocatable: dict[str, str] = field(default_factory=dict)
    allocated: dict[str, str] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
    boot_id: str | None = None
    events: list[Event] = field(default_factory=list)
    lines: dict[str, int] = field(default_factory=dict)
    status_word: str = ""
    """The STATUS column of `kubectl get nodes`."""


@dataclass(frozen=True)
class Container:
    name: str
    state: str = ""
    reason: str = ""
    exit_code: int | None = None
    last_reason: str = ""
    last_exit_code: int | None = None
    restarts: int = 0
    message: str = ""
    line: int = 0


@dataclass
class Pod:
    name: str | None = None
    namespace: str | None = None
    line: int = 1
    node: str | None = None
    phase: str = ""
    reason: str = ""
    message: str = ""
    deleting: bool = False
    deleting_for_s: float | None = None
    finalizers: tuple[str, ...] = ()
    gpus: int = 0
    containers: list[Container] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    lines: dict[str, int] = field(default_factory=dict)

    @property
    def label(self) -> str:
        name = self.name or "pod"
        return f"{self.namespace}/{name}" if self.namespace else name


@dataclass(frozen=True)
class Device:
    """A device of a ResourceSlice."""

    name: str
    node: str | None
    driver: str
    uuid: str | None
    taints: tuple[Taint, ...]
    line: int = 0


@dataclass
class Objects:
    """All objects of one text."""

    nodes: list[Node] = field(default_factory=list)
    pods: list[Pod] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    devices: list[Device] = field(default_factory=list)
    cut: bool = False
    """The text ends within an object."""


def is_gpu(resource: str) -> bool:
    """An extended resource that counts GPUs or parts of them."""
    domain, _, name = resource.partition("/")
    return bool(name) and (name.startswith(("gpu", "mig-")) or domain.startswith("gpu.")) and "memory" not in name


def whole(quantity: str) -> int | None:
    """A count; None for another quantity."""
    return int(quantity) if quantity.strip().isdigit() and len(quantity) < 12 else None
