"""The collective operations: buffers with known values, the act, and what is wrong with the result afterwards."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from muster.workloads import pattern
from muster.workloads.context import RankContext
from muster.workloads.pytorch import load_torch


@dataclass(frozen=True)
class Buffers:
    """`send` and `receive` may share memory (in place)."""

    send: Any
    receive: Any
    size_bytes: int


@dataclass(frozen=True)
class Wrong:
    """Wrong elements by the rank that sent them, and by the rank that received them. A reduction cannot tell its
    sources apart (`reduced`): it counts all under source 0."""

    by_source: tuple[int, ...]
    by_receiver: tuple[int, ...]
    reduced: bool = False

    @property
    def total(self) -> int:
        return sum(self.by_source)

    def only_source(self) -> int | None:
        """The rank whose data alone was wrong, in at least two other ranks; None when the source is not certain (a
        single receiver may be at fault itself, and so may the path to it)."""
        sources = [rank for rank, count in enumerate(self.by_source) if count]
        receivers = [rank for rank, count in enumerate(self.by_receiver) if count]
        if self.reduced or len(sources) != 1 or len([rank for rank in receivers if rank != sources[0]]) < 2:
            return None
        return sources[0]


class Operation:
    """One collective of one group. Sizes are whole buffers; they are multiples of the number of ranks."""

    placements: tuple[str, ...] = ("out", "in")
    reduces = False

    def __init__(self, dist: Any, context: RankContext, dtype: str, below: int) -> None:
        torch = load_torch()
        self.torch, self.dist = torch, dist
        self.dtype = getattr(torch, dtype)
        self.device = context.torch_device()
        self.rank, self.ranks, self.below = context.rank, context.world_size, below
        self.made_of = "library"
        """`library`, or `send/recv` when the library of the group lacks the operation."""

    def buffers(self, size_bytes: int, placement: str) -> Buffers:
        """New buffers with known values."""
        raise NotImplementedError

    def act(self, buffers: Buffers) -> None:
        raise NotImplementedError

    def wrong_by_source(self, buffers: Buffers) -> list[int]:
        """Wrong elements in what this rank received, by the rank that sent them."""
        raise NotImplementedError

    def probe(self) -> None:
        """Once on a small buffer; changes to send and receive where the library lacks the operation. That is refused
        before anything is sent, and on all ranks alike, since they run the same library."""
        buffers = self.buffers(64 * self.ranks * self.dtype.itemsize, self.placements[0])
        try:
            self.act(buffers)
        except (RuntimeError, NotImplementedError) as error:
            if "support" not in str(error) and not isinstance(error, NotImplementedError):
                raise
            self.made_of = "send/recv"
            self.act(buffers)

    def _empty(self, elements: int) -> Any:
        return self.torch.empty(elements, dtype=self.dtype, device=self.device)

    def _elements(self, size_bytes: int) -> int:
        return size_bytes // int(self.dtype.itemsize)

    def _fill(self, into: Any, rank: int, *, shift: int = 0, place: int = 0) -> None:
        pattern.fill(self.torch, into, pattern.values(rank, self.below, shift), place)

    def _exchange(self, receive: list[Any], send: list[Any]) -> None:
        """Every rank to every other, so that every pair carries traffic: in step s to the s-th neighbour."""
        receive[self.rank].copy_(send[self.rank])
        for step in range(1, self.ranks):
            to, source = (self.rank + step) % self.ranks, (self.rank - step) % self.ranks
            posted = [
                self.dist.P2POp(self.dist.isend, send[to], to),
                self.dist.P2POp(self.dist.irecv, receive[source], source),
            ]
            for work in self.dist.batch_isend_irecv(posted):
                work.wait()


class AllReduce(Operation):
    # torch.distributed has no all-reduce out of place; a copy before it would cost a sixth of the bandwidth of an
    # H100.
    placements = ("in",)
    reduces = True

    def buffers(self, size_bytes: int, placement: str) -> Buffers:  # noqa: ARG002 - always in place
        send = self._empty(self._elements(size_bytes))
        self._fill(send, self.rank)
        return Buffers(send, send, size_bytes)

    def act(self, buffers: Buffers) -> None:
        self.dist.all_reduce(buffers.receive)

    def wrong_by_source(self, buffers: Buffers) -> list[int]:
        found = pattern.wrong(self.torch, buffers.receive, pattern.sums(self.ranks, self.below))
        return [found] + [0] * (self.ranks - 1)


class AllGather(Operation):
    def buffers(self, size_bytes: int, placement: str) -> Buffers:
        receive = self._empty(self._elements(size_bytes))
        block = receive.numel() // self.ranks
        own = receive[self.rank * block : (self.rank + 1) * block]
        send = own if placement == "in" else self._empty(block)
        self._fill(send, self.rank)
        return Buffers(send, receive, size_bytes)

    def act(self, buffers: Buffers) -> None:
        if self.made_of == "library":
            self.dist.all_gather_into_tensor(buffers.receive, buffers.send)
        else:
            self._exchange(list(buffers.receive.chunk(self.ranks)), [buffers.send] * self.ranks)

    def wrong_by_source(self, buffers: Buffers) -> list[int]:
        blocks = buffers.receive.chunk(self.ranks)
        return [
            pattern.wrong(self.torch, block, pattern.values(rank, self.below)) for rank, block in enumerate(blocks)
        ]


class ReduceScatter(Operation):
    reduces = True

    def buffers(self, size_bytes: int, placement: str) -> Buffers:
        send = self._empty(self._elements(size_bytes))
        self._fill(send, self.rank)
        block = send.numel() // self.ranks
        own = send[self.rank * block : (self.rank + 1) * block]
        return Buffers(send, own if placement == "in" else self._empty(block), size_bytes)

    def act(self, buffers: Buffers) -> None:
        if self.made_of == "library":
            self.dist.reduce_scatter_tensor(buffers.receive, buffers.send)
            return
        arrived = self.torch.empty_like(buffers.send)
        self._exchange(list(arrived.chunk(self.ranks)), list(buffers.send.chunk(self.ranks)))
        buffers.receive.copy_(arrived.view(self.ranks, -1).sum(0))

    def wrong_by_source(self, buffers: Buffers) -> list[int]:
        place = self.rank * buffers.receive.numel()
        found = pattern.wrong(self.torch, buffers.receive, pattern.sums(self.ranks, self.below), place)
        return [found] + [0] * (self.ranks - 1)


class AllToAll(Operation):
    placements = ("out",)

    def buffers(self, size_bytes: int, placement: str) -> Buffers:  # noqa: ARG002 - in place has no meaning here
        send = self._empty(self._elements(size_bytes))
        for to, block in enumerate(send.chunk(self.ranks)):
            self._fill(block, self.rank, shift=to)
        return Buffers(send, self.torch.empty_like(send), size_bytes)

    def act(self, buffers: Buffers) -> None:
        if self.made_of == "library":
            self.dist.all_to_all_single(buffers.receive, buffers.send)
        else:
            self._exchange(list(buffers.receive.chunk(self.ranks)), list(buffers.send.chunk(self.ranks)))

    def wrong_by_source(self, buffers: Buffers) -> list[int]:
        blocks = buffers.receive.chunk(self.ranks)
        return [
            pattern.wrong(self.torch, block, pattern.values(source, self.below, self.rank))
            for source, block in enumerate(blocks)
        ]


_OPERATIONS: dict[str, type[Operation]] = {
    "all-reduce": AllReduce,
    "all-gather": AllGather,
    "reduce-scatter": ReduceScatter,
    "all-to-all": AllToAll,
}


def operation(collective: str, dist: Any, context: RankContext, dtype: str, below: int) -> Operation:
    """The operation by name, tried once."""
    made = _OPERATIONS[collective](dist, context, dtype, below)
    made.probe()
    return made
