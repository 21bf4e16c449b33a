"""Patience of the agent with what its monitors see: debounce, start-up grace, bursts and flapping, as data.

A service or a GPU that is not there yet is the normal sight while a node boots, a driver is replaced or a new agent
begins. None of that may condemn a node, so the checks of states that need time to come up are given it.
"""

from __future__ import annotations

from msgspec import structs

from muster.faults.assembly import Debounce, Flapping, Grace, Limits
from muster.resources.base import Model

DEBOUNCE = (
    Debounce(check="gpu", code="gpu-missing", times=2, window_s=300),
    Debounce(check="gpu", code="gpu-lost", times=2, window_s=300),
    Debounce(check="gpu", code="gpu-reset-required", times=2, window_s=300),
    Debounce(check="gpu", code="gpu-pcie-width", times=2, window_s=300),
    Debounce(check="gpu", code="nvlink-down", times=2, window_s=300),
    Debounce(check="gpu", code="gpu-recovery-action", times=2, window_s=300),
)
"""Sightings that a fault needs within a time before it opens."""

GRACE = (
    Grace(check="gpu", code="gpu-missing", seconds=300),
    Grace(check="gpu", code="gpu-lost", seconds=120),
    Grace(check="gpu", code="gpu-reset-required", seconds=120),
    Grace(check="gpu", code="gpu-recovery-action", seconds=60),
    Grace(check="gpu", code="nvlink-down", seconds=300),
    Grace(check="gpu", code="gpu-fabric-state", seconds=600),
    Grace(check="gpu", code="gpu-fabric-health", seconds=600),
    Grace(check="gpu", code="nvml-hang", seconds=300),
)
"""How long after a boot, a start of the agent and a change of the driver a check opens no new fault."""


class TimingConfig(Model, frozen=True, kw_only=True):
    """Section `timing` of the agent's configuration. Rows given here go before ours: the first that fits counts."""

    debounce: tuple[Debounce, ...] = ()
    grace: tuple[Grace, ...] = ()
    burst_gap_s: float = 60.0
    """Sightings of one fault that are further apart than this are different bursts."""
    flapping: Flapping = Flapping()

    def __post_init__(self) -> None:
        if not 1 <= self.burst_gap_s <= 86400:
            raise ValueError("burstGapS must be 1 to 86400")


def limits(timing: TimingConfig, gpu_interval_s: float = 0.0) -> Limits:
    """What the assembly of faults goes by: the rows of the configuration before ours.

    With GPUs that are looked at seldom, the looks of our rows may lie further apart: none may wait for ever.
    """
    ours = tuple(structs.replace(r, window_s=max(r.window_s, (r.times + 0.5) * gpu_interval_s)) for r in DEBOUNCE)
    return Limits(
        debounce=(*timing.debounce, *ours),
        grace=(*timing.grace, *GRACE),
        burst_gap_s=timing.burst_gap_s,
        flapping=timing.flapping,
    )
