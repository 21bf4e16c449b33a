"""Bounded reads of one machine below a root folder, and what collectors yield.

A collector that cannot read something says so with the reason; it never leaves a gap that looks like "nothing there".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from muster.inventory.readings import class_of
from muster.resources.fingerprint import Reading, ReadingClass

MAX_FILE_BYTES = 256 * 1024
MAX_VALUE = 1024
MAX_ENTRIES = 4096

Run = Callable[[list[str]], str]
"""Runs a program and returns its output; raises OSError with a reason when that is not possible."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """Something that could not be read, and why."""

    name: str
    reason: str


@dataclass
class Findings:
    """What one collector found."""

    readings: list[Reading] = field(default_factory=list)
    unknown: list[Unknown] = field(default_factory=list)

    def add(self, name: str, value: str, reading_class: ReadingClass | None = None) -> None:
        """Keep a reading. Its class is that of the vocabulary unless the collector knows better."""
        name = printable(name)
        kept = class_of(name) if reading_class is None else reading_class
        self.readings.append(Reading(name=name, value=printable(value), reading_class=kept))

    def miss(self, name: str, error: OSError | str) -> None:
        """Say that `name` could not be read."""
        reason = error if isinstance(error, str) else (error.strerror or type(error).__name__)
        self.unknown.append(Unknown(printable(name), printable(reason)))

    def extend(self, other: Findings) -> None:
        self.readings += other.readings
        self.unknown += other.unknown

    def values(self) -> dict[str, str]:
        """Name -> value; of two readings with one name the first counts."""
        return {reading.name: reading.value for reading in reversed(self.readings)}


def printable(text: str) -> str:
    """`text` on one line, control characters shown as `?`, at most MAX_VALUE characters."""
    line = " ".join(text[: MAX_VALUE * 4].split())[:MAX_VALUE]
    return re.sub(r"[^\x20-\x7e\u00a0-\ud7ff\uf900-\uffef]", "?", line)


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine as seen below `root` (`/` for this one). `run` is None where programs cannot be run."""

    root: Path
    run: Run | None = None

    def read(self, path: str) -> str:
        """The text of a file, trimmed. Raises OSError."""
        with (self.root / path.lstrip("/")).open("rb") as file:
            return file.read(MAX_FILE_BYTES).decode("utf-8", errors="replace").strip()

    def entries(self, path: str) -> list[str]:
        """Names in a folder, sorted. Raises OSError."""
        return sorted(entry.name for entry in (self.root / path.lstrip("/")).iterdir())[:MAX_ENTRIES]

    def exists(self, path: str) -> bool:
        return (self.root / path.lstrip("/")).exists()

    def link_name(self, path: str) -> str:
        """Last part of what a symbolic link points to. Raises OSError."""
        return Path((self.root / path.lstrip("/")).readlink()).name

    def collect(
        self,
        findings: Findings,
        path: str,
        name: str,
        reading_class: ReadingClass | None = None,
        *,
        required: bool = True,
    ) -> None:
        """Add the text of a file as the reading `name`. A missing file is unknown only where it is `required`."""
        try:
            findings.add(name, self.read(path), reading_class)
        except FileNotFoundError as error:
            if required:
                findings.miss(name, error)
        except OSError as error:
            findings.miss(name, error)


def numeric_order(names: list[str]) -> Iterator[str]:
    """`mlx5_2` before `mlx5_10`."""
    yield from sorted(
        names,
        key=lambda n: [
            (0, int(p), "") if p.isascii() and p.isdigit() else (1, 0, p) for p in re.split(r"([0-9]+)", n)
        ],
    )
