"""The snapshot of one node: every collector, in a fixed order, none of which can take the others down."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

from muster.configure.snapshot import gpu, network, system
from muster.configure.snapshot.machine import Findings, Machine
from muster.resources.base import API_VERSION, Model
from muster.resources.fingerprint import Reading, ReadingClass, class_digest, fingerprint

COLLECTORS: tuple[tuple[str, Callable[[Machine], Findings]], ...] = (
    ("os", system.os_release),
    ("kernel", system.kernel),
    ("sysctl", system.sysctls),
    ("modules", system.modules),
    ("firmware", system.firmware),
    ("systemd", system.units),
    ("gpu", gpu.gpus),
    ("driver", gpu.driver),
    ("net", network.ethernet),
    ("rdma", network.rdma),
)

PROGRAM_TIMEOUT_S = 10.0


class UnknownReading(Model, frozen=True, kw_only=True):
    name: str
    reason: str


class NodeSnapshot(Model, frozen=True, kw_only=True):
    """Readings sorted by name, what could not be read, and the digests that a certificate is bound to."""

    api_version: str = API_VERSION
    kind: str = "Snapshot"
    node: str
    taken_at: datetime
    fingerprint: str
    """Digest over all readings that are not volatile."""
    digests: dict[str, str]
    """Digest per class: identity, stack, config."""
    readings: tuple[Reading, ...]
    unknown: tuple[UnknownReading, ...] = ()


def take(machine: Machine, node: str, now: datetime) -> NodeSnapshot:
    """Run every collector over `machine`."""
    readings: dict[str, Reading] = {}
    unknown: list[UnknownReading] = []
    for name, collector in COLLECTORS:
        try:
            findings = collector(machine)
        except Exception as error:  # a bug in one collector must not hide what the others saw
            findings = Findings()
            findings.miss(name, f"the collector failed: {type(error).__name__}")
        for reading in findings.readings:
            readings.setdefault(reading.name, reading)
        unknown += [UnknownReading(name=u.name, reason=u.reason) for u in findings.unknown]
    ordered = tuple(readings[name] for name in sorted(readings))
    kept = tuple(c for c in ReadingClass if c is not ReadingClass.VOLATILE)
    return NodeSnapshot(
        node=node,
        taken_at=now,
        fingerprint=fingerprint(ordered).digest,
        digests={c.value: class_digest(ordered, (c,)) for c in kept},
        readings=ordered,
        unknown=tuple(sorted(unknown, key=lambda u: u.name)),
    )


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
