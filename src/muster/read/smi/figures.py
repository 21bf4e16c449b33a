"""A small YAML or JSON file that says how the node does beside the GPUs' own readings.

`pods` (name, ready, age_s), `processes` or `services` (running or active), `kernel_modules` (state by name, or a list
of loaded ones beside `expected_kernel_modules`), `cuda_init` (error, name), `uptime_s`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from muster.read.source import Input
from muster.read.tables.source import mapping

_TELLING = re.compile(
    r'(?:^\s{0,4}"?|[{,]\s{0,4}")(?:cuda_init|kernel_modules|fabric_manager|nv-fabricmanager)"?\s{0,4}:', re.MULTILINE
)
_UP = ("running", "active", "loaded", "ok", "true", "ready", "live")
_LONG_S = 600.0
"""A fabric is up within minutes; after ten of them `In Progress` is no start-up any more."""


@dataclass(frozen=True)
class NodeFigures:
    """`cuda_error`: 0 when a CUDA initialisation worked, None when nobody tried."""

    cuda_error: int | None = None
    cuda_name: str = ""
    missing_modules: tuple[str, ...] = ()
    modules_told: bool = False
    stopped: tuple[str, ...] = ()
    """Processes and services that should run and do not."""
    ready_pods: tuple[str, ...] = ()
    age_s: float | None = None
    file: str = ""
    inventory: Mapping[str, Any] = field(default_factory=dict)
    """Keys that the context knows too (`expected_pci`, `metrics_pci`, `expected_gpus`)."""

    @property
    def fabric_manager_stopped(self) -> bool:
        return any("fabric" in name for name in self.stopped)

    @property
    def long_up(self) -> bool:
        return self.age_s is not None and self.age_s >= _LONG_S


def score(sample: bytes) -> float:
    """1 for a mapping with one of the telling keys at its top level."""
    text = sample[:65536].decode("utf-8", "replace")
    return 1.0 if _TELLING.search(text) and "apiVersion" not in text else 0.0


def parse(item: Input) -> NodeFigures:
    """Read the file. Raises BadInputError when it is no mapping."""
    told = mapping(item)
    cuda = _mapping(told.get("cuda_init"))
    error = cuda.get("error", cuda.get("code"))
    modules = told.get("kernel_modules")
    pods = [row for row in _list(told.get("pods")) if isinstance(row, dict)]
    ages = [float(a) for a in [told.get("uptime_s"), *(row.get("age_s") for row in pods)] if a and _is_number(a)]
    return NodeFigures(
        cuda_error=error if isinstance(error, int) and not isinstance(error, bool) else None,
        cuda_name=str(cuda.get("name", ""))[:80],
        missing_modules=_missing(modules, told.get("expected_kernel_modules")),
        modules_told=modules is not None,
        stopped=_stopped(told),
        ready_pods=tuple(str(row.get("name", ""))[:120] for row in pods[:64] if row.get("ready") is True),
        age_s=max(ages) if ages else None,
        file=item.name,
        inventory={
            k: told[k] for k in ("expected_pci", "metrics_pci", "expected_gpus", "observed_gpus") if k in told
        },
    )


def _missing(modules: Any, expected: Any) -> tuple[str, ...]:
    if isinstance(modules, list):
        loaded = {str(name) for name in modules}
        return tuple(sorted(str(name)[:60] for name in _list(expected) if str(name) not in loaded))
    states = _mapping(modules)
    return tuple(sorted(str(name)[:60] for name, state in states.items() if str(state).casefold() not in _UP))[:64]


def _stopped(told: Mapping[str, Any]) -> tuple[str, ...]:
    found = []
    for key in ("processes", "services"):
        for name, state in _mapping(told.get(key)).items():
            up = state
            if isinstance(state, dict):
                up = state.get("running", state.get("active", state.get("state", True)))
            if str(up).casefold() not in _UP:
                found.append(str(name)[:60])
    found += [
        name
        for name in ("fabric_manager", "nv-fabricmanager")
        if name in told and not isinstance(told[name], dict) and str(told[name]).casefold() not in _UP
    ]
    return tuple(sorted(found))[:64]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value >= 0


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
