"""The NVLink fabric as the GPUs see it. Pure. A GPU whose fabric is not complete runs no CUDA program, whatever a
list of GPUs or a ready pod says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from muster.read.smi.state import GpuReading

_HEALTHY_WORDS = ("false", "none", "full", "healthy", "not supported", "n/a", "no")
_DEGRADED = ("bandwidth", "route_recovery_in_progress", "access_timeout_recovery")


class FabricFault(StrEnum):
    NOT_COMPLETE = "fabric-not-complete"
    FAILED = "fabric-error"
    UNHEALTHY = "fabric-unhealthy"
    DEGRADED = "fabric-degraded"


@dataclass(frozen=True)
class FabricState:
    """Positions of the GPUs by what is wrong with their fabric. `supported`: GPUs that have a fabric at all."""

    wrong: Mapping[FabricFault, tuple[int, ...]]
    supported: int
    states: Mapping[str, int]


def judge(gpus: Sequence[GpuReading]) -> FabricState:
    """Sort the GPUs by the state of their fabric; a GPU without one is left out."""
    wrong: dict[FabricFault, list[int]] = {}
    states: dict[str, int] = {}
    supported = 0
    for position, gpu in enumerate(gpus):
        state = gpu.fabric_state
        if state is None:
            continue
        states[state] = states.get(state, 0) + 1
        if state.casefold() == "not supported":
            continue
        supported += 1
        fault = _fault(gpu, state.casefold())
        if fault is not None:
            wrong.setdefault(fault, []).append(position)
    ordered = {fault: tuple(wrong[fault]) for fault in FabricFault if fault in wrong}
    return FabricState(ordered, supported, dict(sorted(states.items())))


def _fault(gpu: GpuReading, state: str) -> FabricFault | None:
    status = (gpu.fabric_status or "success").casefold()
    if state in ("in progress", "not started"):
        return FabricFault.NOT_COMPLETE
    if state != "completed" or status not in ("success", "0"):
        return FabricFault.FAILED
    bad = [name for name, word in gpu.fabric_health.items() if word.casefold() not in _HEALTHY_WORDS]
    if not bad:
        return None
    if all(name in _DEGRADED or gpu.fabric_health[name].casefold() == "limited capacity" for name in bad):
        return FabricFault.DEGRADED
    return FabricFault.UNHEALTHY
