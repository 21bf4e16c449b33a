"""The snapshot of the machine that Muster runs on: every collector, and NVML."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

from muster.inventory import nvml
from muster.inventory.collect import COLLECTORS, collect
from muster.inventory.machine import Findings, Machine
from muster.resources.base import API_VERSION, Model
from muster.resources.fingerprint import Reading, ReadingClass, class_digest, fingerprint

PROGRAM_TIMEOUT_S = 10.0
KIND = "Snapshot"


class UnknownReading(Model, frozen=True, kw_only=True):
    """A reading that could not be had, and why."""

    name: str
    reason: str


class NodeSnapshot(Model, frozen=True, kw_only=True):
    """Readings sorted by name, what could not be read, and the digests that a certificate is bound to."""

    api_version: str = API_VERSION
    kind: str = KIND
    node: str
    taken_at: datetime
    fingerprint: str
    """Digest over all readings that are not volatile."""
    digests: dict[str, str]
    """Digest per class: identity, stack, config."""
    readings: tuple[Reading, ...]
    unknown: tuple[UnknownReading, ...] = ()

    def gpu_count(self) -> int | None:
        """How many NVIDIA GPUs were found; None when that could not be read."""
        value = next((r.value for r in self.readings if r.name == "gpu.count"), None)
        return int(value) if value is not None and value.isdigit() else None


def take(
    machine: Machine, node: str, now: datetime, *, ask_nvml: Callable[[], nvml.Answer] | None = None
) -> NodeSnapshot:
    """Run every collector over `machine`, and ask NVML where it is this machine's (`ask_nvml`)."""
    found = collect(machine, COLLECTORS)
    if ask_nvml is not None:
        found = _with_nvml(found, ask_nvml)
    return snapshot_of(found, node, now)


def snapshot_of(found: Findings, node: str, now: datetime) -> NodeSnapshot:
    """The snapshot of what was found. Of two readings with one name the first counts."""
    readings = {reading.name: reading for reading in reversed(found.readings)}
    ordered = tuple(readings[name] for name in sorted(readings))
    kept = tuple(c for c in ReadingClass if c is not ReadingClass.VOLATILE)
    return NodeSnapshot(
        node=node,
        taken_at=now,
        fingerprint=fingerprint(ordered).digest,
        digests={c.value: class_digest(ordered, (c,)) for c in kept},
        readings=ordered,
        unknown=tuple(
            UnknownReading(name=name, reason=reason)
            for name, reason in sorted({(unknown.name, unknown.reason) for unknown in found.unknown})
        ),
    )


def _with_nvml(found: Findings, ask_nvml: Callable[[], nvml.Answer]) -> Findings:
    try:
        return nvml.merge(found, ask_nvml())
    except Exception as error:  # whatever NVML does, the readings of the files stay
        found.miss("nvml", f"NVML could not be asked: {type(error).__name__}")
        return found


def this_machine() -> Machine:
    """The machine that this process runs on."""
    return Machine(Path("/"), _run)


def _run(command: list[str]) -> str:
    program = shutil.which(command[0])
    if program is None:
        raise OSError(2, f"{command[0]} is not installed")
    try:
        done = subprocess.run(
            [program, *command[1:]],
            capture_output=True,
            timeout=PROGRAM_TIMEOUT_S,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired as error:
        raise OSError(110, f"{command[0]} did not answer within {PROGRAM_TIMEOUT_S:g} s") from error
    if done.returncode != 0:
        raise OSError(5, f"{command[0]} failed with exit code {done.returncode}")
    return done.stdout.decode("utf-8", errors="replace")
