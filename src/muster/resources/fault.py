"""A fault: what is wrong with which entity, how badly, and what usually helps."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from muster.resources.base import Model


class EntityKind(StrEnum):
    """What a fault is about."""

    NODE = "node"
    GPU = "gpu"
    NVLINK = "nvlink"
    NVSWITCH = "nvswitch"
    NVSWITCH_PORT = "nvswitch-port"
    NIC = "nic"
    DISK = "disk"
    FILESYSTEM = "filesystem"
    DIMM = "dimm"
    CPU = "cpu"
    PCI_DEVICE = "pci-device"
    PROCESS = "process"
    SERVICE = "service"


class Severity(StrEnum):
    FATAL = "fatal"
    WARNING = "warning"
    INFO = "info"
    UNKNOWN = "unknown"


class Scope(StrEnum):
    """How far the effect reaches."""

    APPLICATION = "application"
    GPU = "gpu"
    NODE = "node"
    LINK = "link"
    FABRIC = "fabric"
    CONFIG = "config"
    SOFTWARE = "software"
    JOB = "job"
    FLEET = "fleet"


class Hint(StrEnum):
    """What usually helps; a proposal to the policy, never an order."""

    NONE = "none"
    RESTART_APP = "restart-app"
    RESET_GPU = "reset-gpu"
    REBOOT = "reboot"
    REPLACE = "replace"
    INSPECT = "inspect"


class Entity(Model, frozen=True, kw_only=True):
    """The thing that is at fault. Identity of a GPU is its UUID; PCI address and index are attributes.

    `pci` is normalised to `dddd:bb:dd.f` in lower case. A field that the source does not tell stays None.
    """

    kind: EntityKind
    name: str | None = None
    uuid: str | None = None
    pci: str | None = None
    index: int | None = None
    link: int | None = None
    port: int | None = None
    device: str | None = None

    def key(self) -> str:
        """Stable identity of the entity on its node: kind, then UUID or else address or name, then link or port."""
        identity = self.uuid or self.pci or self.device or self.name
        if identity is None and self.index is not None:
            identity = str(self.index)
        parts = [self.kind.value, identity or "-"]
        if self.link is not None:
            parts.append(f"link{self.link}")
        if self.port is not None:
            parts.append(f"port{self.port}")
        return "/".join(parts)


class Burst(Model, frozen=True, kw_only=True):
    """Sightings of one fault that followed each other closely and told the same details."""

    at: datetime
    """Time of the first sighting."""
    until: datetime
    """Time of the last one."""
    count: int = 1
    details: dict[str, str] = {}
    """What the source tells beside the entity, for patterns: `gpc`, `tpc`, `reg0` (hexadecimal), `pid`, ..."""


BURST_LIMIT = 16
"""Bursts that a fault keeps. Beyond it those of equal details that lie closest together become one."""


class Fault(Model, frozen=True, kw_only=True):
    """One open fault on one node. Keyed by (check, code, entity); repeated sightings only raise `count`."""

    source: str
    """Monitor that saw it, for example `kernel-log`."""
    check: str
    """Kind of finding: `xid`, `sxid`, `nvlink5`, `gpu-off-bus`, `nic`, ..."""
    code: str
    """Code within the check, as text: `79`, `mlx5-health`."""
    entity: Entity
    severity: Severity
    scope: Scope
    hint: Hint
    message: str = ""
    count: int = 1
    first_seen: datetime
    last_seen: datetime
    boot_id: str = ""
    """Boot during which it was seen; a changed boot ID and a fresh clean reading close it."""
    bursts: tuple[Burst, ...] = ()
    """When it was seen, oldest first, at most BURST_LIMIT entries: the raw material of patterns over history."""

    def key(self) -> str:
        return f"{self.check}/{self.code}/{self.entity.key()}"
