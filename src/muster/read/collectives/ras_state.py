"""One answer of NCCL's state query (RAS) as values, whichever form it was printed in."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Member:
    """A rank that the answer lists. `count`: number of operations it has launched, where it stands under one."""

    rank: int
    gpu: int | None = None
    nvml: int | None = None
    pid: int | None = None
    node: str | None = None
    count: int | None = None
    said: str | None = None
    """Its own status or error, where it differs from the others."""

    def plain(self) -> dict[str, Any]:
        plain: dict[str, Any] = {"rank": self.rank, "gpu": self.gpu, "pid": self.pid, "node": self.node}
        return plain | ({"nvml": self.nvml} if self.nvml is not None and self.nvml != self.gpu else {})


@dataclass(frozen=True, slots=True)
class Peer:
    """A process of the job."""

    pid: int
    node: str | None
    gpus: tuple[int, ...] = ()
    line: int = field(default=1, compare=False)
    text: str = field(default="", compare=False)

    def plain(self) -> dict[str, Any]:
        gpu: Any = self.gpus[0] if len(self.gpus) == 1 else list(self.gpus)
        return {"pid": self.pid, "node": self.node, "gpu": gpu}


@dataclass(slots=True)
class Counts:
    """How far the ranks of a communicator are in one kind of collective: operation number -> ranks."""

    op: str
    ranks: dict[int, int] = field(default_factory=dict)
    members: list[Member] = field(default_factory=list)


@dataclass(slots=True)
class Section:
    """What the answer says of one communicator under one heading (`INCOMPLETE`, `ERROR`, `MISMATCH`, `DEAD`)."""

    id: str
    hash: str
    error: str
    line: int
    text: str = ""
    missing: int | None = None
    members: list[Member] = field(default_factory=list)
    counts: list[Counts] = field(default_factory=list)
    statuses: dict[str, int] = field(default_factory=dict)
    errors: dict[str, int] = field(default_factory=dict)
    discarded: str | None = None
    """Why it is not believed."""

    @property
    def group(self) -> int | None:
        number = self.id.removeprefix("#").partition("-")[0]
        return int(number) if number.isdecimal() else None

    def everybody(self) -> list[Member]:
        return [*self.members, *(member for counts in self.counts for member in counts.members)]


@dataclass(frozen=True, slots=True)
class Row:
    """One group of communicators with the same shape, as the summary lists it."""

    group: int
    comms: int
    nodes: int
    ranks_per_node: str
    ranks: int
    ranks_in_group: int
    status: str
    error: str
    hash: str | None = None


@dataclass(slots=True)
class Snapshot:
    """One answer. Numbers are None where it does not tell them."""

    file: str
    version: str | None = None
    job: dict[str, int] | None = None
    rows: list[Row] = field(default_factory=list)
    sections: list[Section] = field(default_factory=list)
    missing: list[Peer] = field(default_factory=list)
    missing_count: int = 0
    dead: list[Peer] = field(default_factory=list)
    dead_count: int = 0
    timeouts: int = 0
    truncated: int = 0
    progress: dict[tuple[str, str], tuple[int, int]] = field(default_factory=dict)
    """(communicator, collective) -> (least, greatest) operation number, where the answer tells all of them."""

    @property
    def told(self) -> bool:
        return bool(self.rows or self.sections or self.job or self.missing_count or self.dead_count)

    def check(self) -> None:
        """Mark sections that cannot be true: a defect of the tool prints ranks that the job cannot have."""
        by_group = {row.group: row for row in self.rows}
        gpus = (self.job or {}).get("gpus")
        for section in self.sections:
            row = by_group.get(section.group) if section.group is not None else None
            section.discarded = _impossible(section, row, gpus)

    def kept(self) -> list[Section]:
        return [section for section in self.sections if section.discarded is None]

    def launched(self) -> dict[tuple[str, str], tuple[int, int]]:
        """(communicator, collective) -> (least, greatest) operation number, of whatever the answer tells."""
        found = dict(self.progress)
        for section in self.kept():
            for counts in section.counts:
                if counts.ranks:
                    found[(section.hash, counts.op)] = (min(counts.ranks), max(counts.ranks))
        return found


def _impossible(section: Section, row: Row | None, gpus: int | None) -> str | None:
    sizes = [size for size in (row.ranks if row is not None else None, gpus) if size is not None]
    limit = max(sizes) if sizes else None
    own = row.ranks if row is not None and row.ranks > 0 else limit
    if own is not None and any(not 0 <= member.rank < own for member in section.everybody()):
        return "rank-out-of-range"
    told = [section.missing or 0, *(sum(counts.ranks.values()) for counts in section.counts)]
    told += [sum(section.statuses.values()), sum(section.errors.values())]
    if min(told) < 0 or (own is not None and max(told) > own):
        return "count-out-of-range"
    if row is not None and (row.nodes == 0 or row.ranks == 0):
        return "empty-group"
    return None
