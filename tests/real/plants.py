"""What happens in the fleets of the end-to-end tests. Small, because every node brings an agent process."""

from __future__ import annotations

from muster.resources.repair import Rung
from muster.sim.defects import Appears, CuredBy, Defect, DefectKind
from muster.sim.plant import DriverUpdate, JobMix, Plant, Refusal

DEGRADED, BROKEN, FAULTY, GOOD = "gpu-002", "gpu-007", "gpu-003", "gpu-001"

ACCEPTANCE = Plant(
    seed=2,
    nodes=8,
    domains=2,
    update=DriverUpdate(at_s=3600.0, driver="580.95.05"),
    jobs=JobMix(count=1, nodes=2, duration_s=900.0, start_s=900.0),
    defects=(
        Defect(
            kind=DefectKind.DEGRADED_NVLINK,
            node=DEGRADED,
            gpu=1,
            factor=0.45,
            cured_by=CuredBy.REBOOT,
            appears=Appears.DRIVER_UPDATE,
        ),
        Defect(
            kind=DefectKind.NEEDS_REPLACEMENT,
            node=BROKEN,
            gpu=4,
            cured_by=CuredBy.REPLACE,
            appears=Appears.DRIVER_UPDATE,
        ),
    ),
    refusals=(Refusal(node=BROKEN, rung=Rung.REPLACE, message="no spare GPU board in stock"),),
)
"""The driver update: one node's NVLink comes up degraded (a reboot cures it), one GPU needs replacing (no spare)."""

DISTURBED = Plant(
    seed=5,
    nodes=6,
    domains=2,
    defects=(
        Defect(
            kind=DefectKind.XID,
            node=FAULTY,
            gpu=2,
            xid=119,
            cured_by=CuredBy.REBOOT,
            appears=Appears.TIME,
            after_s=3600.0,
        ),
    ),
)
"""One fault that a reset does not cure and a reboot does; everything else that happens is done by the test."""
