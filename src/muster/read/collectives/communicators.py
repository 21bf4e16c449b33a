"""Communicators as NCCL announces them: how many ranks, which of them came up, and where each one sits."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from muster.read.report import Value

MAX_RANKS = 65_536
MAX_SHOWN = 256
_INIT = re.compile(
    r"comm 0x[0-9a-f]{1,16} rank (?P<rank>\d{1,7}) n[Rr]anks (?P<nranks>\d{1,7}) "
    r"(?:.{0,100}?cudaDev (?P<gpu>\d{1,3}))?(?:.{0,60}?busId (?P<bus>[0-9a-f]{2,12}))?"
    r".{0,100}?(?P<what>Init START|Init COMPLETE|Abort COMPLETE|Destroy COMPLETE)"
)
_CHANNELS = re.compile(
    r"(?P<coll>\d{1,4}) coll channels, (?:(?P<collnet>\d{1,4}) collnet channels, )?"
    r"(?:(?P<nvls>\d{1,4}) nvls channels, )?(?P<p2p>\d{1,4}) p2p channels"
)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a rank sits. `pci` is normalised."""

    node: str | None
    local_gpu: int | None
    pci: str | None


class Communicators:
    """The largest communicator of a log is taken for the job's; smaller ones number their ranks anew."""

    def __init__(self) -> None:
        self.size = 0
        self.places: dict[int, Place] = {}
        self.ready: set[int] = set()
        self.aborted: set[int] = set()
        self.channels: dict[str, int] = {}
        self.connected = {"rings": 0, "trees": 0}

    def take(self, host: str | None, message: str) -> bool:
        """Learn from one informative line. True when it was about a communicator."""
        if "anks" in message and (found := _INIT.search(message)):
            self._init(host, found)
            return True
        if "coll channels" in message and (found := _CHANNELS.search(message)):
            self.channels = {name: int(number) for name, number in found.groupdict().items() if number is not None}
            return True
        for name in self.connected:
            if message.startswith(f"Connected all {name}"):
                self.connected[name] += 1
                return True
        return False

    def _init(self, host: str | None, found: re.Match[str]) -> None:
        size, rank = int(found["nranks"]), int(found["rank"])
        if size < self.size or rank >= size or len(self.places) >= MAX_RANKS:
            return
        if size > self.size:
            self.size = size
            self.places, self.ready = {}, set()
        gpu = int(found["gpu"]) if found["gpu"] else None
        self.places.setdefault(rank, Place(host, gpu, address(found["bus"]) if found["bus"] else None))
        match found["what"]:
            case "Init COMPLETE":
                self.ready.add(rank)
            case "Abort COMPLETE":
                self.aborted.add(rank)
            case _:
                pass

    @property
    def up(self) -> bool:
        """All ranks came up and none was aborted."""
        return self.size > 0 and len(self.ready) == self.size and not self.aborted

    def place(self, rank: int) -> dict[str, Any] | None:
        """Where a rank sits, as plain values; None when the log does not tell."""
        found = self.places.get(rank)
        if found is None:
            return None
        return {"rank": rank, "node": found.node, "local_gpu": found.local_gpu, "pci": found.pci}

    def values(self) -> dict[str, Value]:
        values: dict[str, Value] = {}
        if self.size:
            values["ranks"] = Value(self.size)
            values["ranks_started"] = Value(len(self.ready))
            missing = [rank for rank in range(min(self.size, MAX_RANKS)) if rank not in self.places]
            if missing and not self.up:
                values["ranks_not_seen"] = Value(missing[:MAX_SHOWN])
        if self.aborted:
            values["aborted_ranks"] = Value(sorted(self.aborted)[:MAX_SHOWN])
        if self.channels:
            values["channels"] = Value(dict(self.channels))
        if any(self.connected.values()):
            values["ranks_connected"] = Value(dict(self.connected))
        return values


def address(bus: str) -> str | None:
    """A PCI address out of NCCL's `busId`: the digits of `dddd:bb:dd.f` without marks and leading zeros.

    >>> address("9b000")
    '0000:9b:00.0'
    """
    digits = bus.rjust(9, "0")
    if len(digits) > 9:
        return None
    return f"{digits[:4]}:{digits[4:6]}:{digits[6:8]}.{digits[8]}"
