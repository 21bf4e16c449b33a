"""Values of one nccl-tests run: rows with both halves, ranks, summary. GB/s are 10^9 bytes a second."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

BANDWIDTH_UNIT = "GB/s"


@dataclass(frozen=True, slots=True)
class Figure:
    """A printed number. `resolution` is half a unit of its last digit: the true value lies within it."""

    value: float
    resolution: float

    @property
    def finite(self) -> bool:
        return math.isfinite(self.value)


@dataclass(frozen=True, slots=True)
class Half:
    """One half of a row, out of place or in place. `wrong`: None where not checked or the column is `error`."""

    time_us: float
    algbw: Figure
    busbw: Figure
    wrong: int | None
    error: float | None = None
    """Relative rounding error, which old releases print in place of the number of wrong values."""

    @property
    def finite(self) -> bool:
        return math.isfinite(self.time_us) and self.algbw.finite and self.busbw.finite

    def plain(self) -> dict[str, Any]:
        plain: dict[str, Any] = {
            "time_us": finite(self.time_us),
            "algbw": finite(self.algbw.value),
            "busbw": finite(self.busbw.value),
            "wrong": self.wrong,
        }
        return plain | ({"error": finite(self.error)} if self.error is not None else {})


@dataclass(frozen=True, slots=True)
class Row:
    """One message size. `nodes`: only in tables with a leading column of node counts."""

    line: int
    size: int
    count: int
    type: str
    redop: str | None
    root: int | None
    out_of_place: Half | None
    in_place: Half | None
    nodes: int | None = None

    @property
    def halves(self) -> tuple[Half, ...]:
        return tuple(half for half in (self.out_of_place, self.in_place) if half is not None)

    @property
    def primary(self) -> Half | None:
        """The out-of-place half where there is one."""
        return self.out_of_place or self.in_place

    @property
    def slower_busbw(self) -> float | None:
        """Bus bandwidth of the slower half, in GB/s; None when a half is no number."""
        found = [half.busbw.value for half in self.halves]
        return min(found) if found and all(map(math.isfinite, found)) else None

    def plain(self) -> dict[str, Any]:
        return {
            "size": self.size,
            "count": self.count,
            "type": self.type,
            "redop": self.redop,
            "root": self.root,
            "out_of_place": self.out_of_place.plain() if self.out_of_place else None,
            "in_place": self.in_place.plain() if self.in_place else None,
        }


@dataclass(frozen=True, slots=True)
class Rank:
    """One line of `Using devices`. A PCI address is unique only together with its host."""

    rank: int
    group: int | None
    pid: int
    host: str
    device: int
    pci: str | None
    """Normalised; None in old releases, which print the bus number alone (`bus`)."""
    bus: str | None
    gpu: str

    def plain(self) -> dict[str, Any]:
        plain: dict[str, Any] = {
            "rank": self.rank,
            "pid": self.pid,
            "host": self.host,
            "device": self.device,
            "pci": self.pci,
            "gpu": self.gpu,
        }
        plain |= {"group": self.group} if self.group is not None else {}
        return plain | ({"bus": self.bus} if self.bus is not None else {})


@dataclass(frozen=True, slots=True)
class Failure:
    """A line with which the program gave up."""

    line: int
    host: str
    kind: str
    """`nccl`, `cuda` or `test`."""
    where: str
    error: str

    def plain(self) -> dict[str, Any]:
        return {"host": self.host or None, "kind": self.kind, "where": self.where, "error": self.error}


@dataclass(frozen=True)
class Table:
    """One run of one nccl-tests program, as far as its output goes."""

    rows: tuple[Row, ...]
    last_column: str | None = None
    """`wrong` or `error`; None when no row was read."""
    program: str | None = None
    version: str | None = None
    nccl_version: Mapping[str, str] = field(default_factory=dict)
    parameters: Mapping[str, int] = field(default_factory=dict)
    ranks: tuple[Rank, ...] = ()
    prefix: Mapping[str, int | str] = field(default_factory=dict)
    out_of_bounds: int | None = None
    out_of_bounds_failed: bool = False
    avg: float | None = None
    """`Avg bus bandwidth` as printed, in GB/s."""
    avg_failed: bool = False
    """The program itself found the average below the least it was told."""
    failures: tuple[Failure, ...] = ()
    malformed: tuple[int, ...] = ()
    """Lines that look like rows of this table and cannot be read."""
    cut: bool = False
    """The last row is not whole."""
    lines: tuple[int, int] = (0, 0)

    @property
    def complete(self) -> bool:
        """The summary is there and no row is broken: the run came to its end."""
        return self.avg is not None and self.out_of_bounds is not None and not self.cut and not self.malformed

    @property
    def wrong(self) -> int | None:
        """All wrong values; None when none of the rows was checked."""
        found = [half.wrong for row in self.rows for half in row.halves if half.wrong is not None]
        return sum(found) if found else None

    @property
    def checked(self) -> bool:
        """At least one row tells whether its values were right."""
        return any(half.wrong is not None or half.error is not None for row in self.rows for half in row.halves)

    @property
    def largest(self) -> Row | None:
        """The row of the largest size; of several the last."""
        return max(self.rows, key=lambda row: (row.size, row.line), default=None)

    @property
    def hosts(self) -> tuple[str, ...]:
        """Hosts of the ranks, in rank order."""
        return tuple(dict.fromkeys(rank.host for rank in self.ranks))


def finite(value: float | None) -> float | int | None:
    """A number that JSON knows; None for NaN and infinity."""
    return value if value is not None and math.isfinite(value) else None
