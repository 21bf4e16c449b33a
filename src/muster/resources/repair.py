"""`Repair`: one attempt on one rung of the ladder, and the contract for providers of repairs.

The controller creates it; the provider named in `spec.provider` carries it out and reports in `status`. `Done` means
that the provider did its work. It is not proof: the controller waits for the effect itself (changed boot ID, fault
gone, fresh observation) before it counts the attempt as successful.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from muster.resources.base import API_VERSION, Model, ObjectMeta


class Rung(StrEnum):
    """Rungs of the repair ladder, mildest first."""

    RESET_GPU = "reset-gpu"
    RESTART_DRIVER = "restart-driver"
    REBOOT = "reboot"
    POWER_CYCLE = "power-cycle"
    REPLACE = "replace"
    TICKET = "ticket"


class RepairPhase(StrEnum):
    PENDING = "Pending"
    RUNNING = "Running"
    DONE = "Done"
    FAILED = "Failed"
    CANCELLED = "Cancelled"
    """Given up before it began, because the episode that asked for it is over."""


class RepairSpec(Model, frozen=True, kw_only=True):
    node_name: str
    node_uid: str
    """The repair applies to this incarnation of the node only."""
    episode: str
    rung: Rung
    attempt: int = 1
    provider: str
    gpu_uuids: tuple[str, ...] = ()
    """GPUs to reset, or to replace; empty means all of the node."""
    boot_id_before: str = ""
    reason: str = ""
    timeout_s: int = 1800
    cancel: bool = False
    """Nobody wants the repair any more: a provider that has not begun must not begin, and ends it as `Cancelled`."""


class RepairStatus(Model, frozen=True, kw_only=True):
    phase: RepairPhase = RepairPhase.PENDING
    started_at: datetime | None = None
    finished_at: datetime | None = None
    message: str = ""
    external_id: str = ""
    """Identifier at the provider: job name, cloud operation, ticket number."""


class Repair(Model, frozen=True, kw_only=True):
    api_version: str = API_VERSION
    kind: str = "Repair"
    metadata: ObjectMeta
    spec: RepairSpec
    status: RepairStatus = RepairStatus()
