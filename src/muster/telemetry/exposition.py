"""The text format of Prometheus, version 0.0.4, and what /proc says about this process.

Written here because the client library that is usual for it costs an agent 2 MiB of memory, for a page of code.
"""

from __future__ import annotations

import math
import os
import resource
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from muster.telemetry.names import Kind

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_HELP = str.maketrans({"\\": r"\\", "\n": r"\n"})
_LABEL = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})
_STARTED, _USER, _SYSTEM, _VIRTUAL, _RESIDENT = 19, 11, 12, 20, 21
"""Fields of /proc/self/stat behind the name of the program, see proc(5)."""


@dataclass(frozen=True)
class Sample:
    """One line. `suffix` is added to the name of the family (`_bucket` and the like)."""

    value: float
    labels: tuple[tuple[str, str], ...] = ()
    suffix: str = ""


@dataclass(frozen=True)
class Family:
    """All samples of one metric."""

    name: str
    kind: Kind
    help: str
    samples: Sequence[Sample]


def text(families: Iterable[Family]) -> bytes:
    """The body of an answer to a scrape."""
    lines = []
    for family in families:
        lines.append(f"# HELP {family.name} {family.help.translate(_HELP)}")
        lines.append(f"# TYPE {family.name} {family.kind.value}")
        for sample in family.samples:
            labels = ",".join(f'{key}="{value.translate(_LABEL)}"' for key, value in sample.labels)
            braced = f"{{{labels}}}" if labels else ""
            lines.append(f"{family.name}{sample.suffix}{braced} {number(sample.value)}")
    return ("\n".join(lines) + "\n").encode("utf-8", "replace")


def number(value: float) -> str:
    """A value as the format writes it: whole numbers without a point."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if value == int(value) and abs(value) < 2**53 else repr(float(value))


def process_families() -> list[Family]:
    """The standard metrics of a process; none where there is no /proc."""
    try:
        stat = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        booted = next(line for line in Path("/proc/stat").read_text().splitlines() if line.startswith("btime "))
        open_files = sum(1 for _ in Path("/proc/self/fd").iterdir())
    except (OSError, StopIteration):
        return []
    ticks = os.sysconf("SC_CLK_TCK")
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    found = (
        (
            "cpu_seconds_total",
            Kind.COUNTER,
            "User and system CPU time.",
            (int(stat[_USER]) + int(stat[_SYSTEM])) / ticks,
        ),
        ("resident_memory_bytes", Kind.GAUGE, "Resident memory.", int(stat[_RESIDENT]) * resource.getpagesize()),
        ("virtual_memory_bytes", Kind.GAUGE, "Virtual memory.", int(stat[_VIRTUAL])),
        ("start_time_seconds", Kind.GAUGE, "Start, Unix time.", int(booted.split()[1]) + int(stat[_STARTED]) / ticks),
        ("open_fds", Kind.GAUGE, "Open file descriptors.", open_files),
        ("max_fds", Kind.GAUGE, "File descriptors that may be open.", math.inf if limit < 0 else limit),
    )
    return [Family(f"process_{name}", kind, says, (Sample(value),)) for name, kind, says, value in found]
