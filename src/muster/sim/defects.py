"""What can be wrong in a simulated fleet, when it shows, and what cures it."""

from __future__ import annotations

from enum import StrEnum
from typing import assert_never

from muster.resources.base import Model
from muster.resources.repair import Rung

HANGING_XIDS = frozenset({119})
"""XIDs after which the firmware of the GPU is silent: callers block, so a job hangs until somebody ends it."""

RUNGS_BY_STRENGTH = (Rung.RESET_GPU, Rung.RESTART_DRIVER, Rung.REBOOT, Rung.POWER_CYCLE, Rung.REPLACE)
"""A stronger rung does everything that a weaker one does."""


class DefectKind(StrEnum):
    BAD_NODE = "bad-node"
    """One GPU computes wrong results in a burn and crashes collectives."""
    SLOW_NODE = "slow-node"
    """Passes every health check; computes and communicates at `factor` of the usual rate."""
    BAD_LINK = "bad-link"
    """Traffic between exactly two nodes runs at `factor` of the usual rate; both nodes are good."""
    FLAKY_NODE = "flaky-node"
    """Each run on the node fails with `probability`."""
    XID = "xid"
    """The driver logs an XID, and whatever runs on the node crashes, or hangs (HANGING_XIDS)."""
    DEGRADED_NVLINK = "degraded-nvlink"
    """One GPU comes up with part of its NVLinks; traffic inside the node runs at `factor` of the usual rate."""
    NEEDS_REPLACEMENT = "needs-replacement"
    """One GPU no longer initialises; the driver logs it, at every boot again."""


class CuredBy(StrEnum):
    """The weakest rung that cures the defect."""

    RESET_GPU = "reset-gpu"
    REBOOT = "reboot"
    POWER_CYCLE = "power-cycle"
    REPLACE = "replace"
    NONE = "none"


class Appears(StrEnum):
    START = "start"
    TIME = "time"
    """`after_s` seconds after the fleet started."""
    DRIVER_UPDATE = "driver-update"
    """When the driver update reaches the node; never if there is none."""


class Defect(Model, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One planted defect. `gpu` is an index on the node; `peer` is the other end of a bad link."""

    kind: DefectKind
    node: str
    peer: str = ""
    gpu: int = 0
    cured_by: CuredBy
    appears: Appears = Appears.START
    after_s: float = 0.0
    factor: float = 1.0
    probability: float = 0.0
    xid: int = 0

    def nodes(self) -> tuple[str, ...]:
        """The node, or both ends of a link."""
        return (self.node, self.peer) if self.peer else (self.node,)

    def blames_node(self) -> bool:
        """False for a link: its ends are good."""
        return self.kind is not DefectKind.BAD_LINK

    def hangs(self) -> bool:
        """Whether work on the GPU blocks silently instead of crashing."""
        return self.kind is DefectKind.XID and self.xid in HANGING_XIDS

    def sentence(self) -> str:
        """The truth about it, for narration."""
        match self.kind:
            case DefectKind.BAD_NODE:
                what = f"GPU {self.gpu} of {self.node} computes wrong results"
            case DefectKind.SLOW_NODE:
                what = f"{self.node} works at {self.factor:.0%} of the usual rate"
            case DefectKind.BAD_LINK:
                what = f"the path between {self.node} and {self.peer} runs at {self.factor:.0%} of the usual rate"
            case DefectKind.FLAKY_NODE:
                what = f"{self.node} fails {self.probability:.0%} of its runs"
            case DefectKind.XID:
                what = f"GPU {self.gpu} of {self.node} raises XID {self.xid}"
            case DefectKind.DEGRADED_NVLINK:
                what = f"GPU {self.gpu} of {self.node} came up with part of its NVLinks"
            case DefectKind.NEEDS_REPLACEMENT:
                what = f"GPU {self.gpu} of {self.node} no longer initialises"
            case _ as never:
                assert_never(never)
        return f"{what} (cured by: {self.cured_by.value})"


def cures(rung: Rung, defect: Defect) -> bool:
    """Whether `rung` cures `defect`; a ticket cures nothing by itself, and nothing done to a node cures a link."""
    if defect.cured_by is CuredBy.NONE or rung is Rung.TICKET or not defect.blames_node():
        return False
    needed = RUNGS_BY_STRENGTH.index(Rung(defect.cured_by.value))
    return RUNGS_BY_STRENGTH.index(rung) >= needed
