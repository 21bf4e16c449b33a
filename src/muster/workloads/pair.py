"""Program `pair`: point-to-point bandwidth between ranks of two nodes, each direction and both at once, and latency.

With several ranks per node, rank i of the first node talks to rank i of the second, all at once. Parameters:
`max_bytes`, `iterations` (at most), `size_s` (seconds per figure), `latency_bytes`, `latency_count`, `check`, and
those of the network (`mnnvl`, `rails`, `op_timeout_s`).
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from typing import Any

from muster.workloads import network, pattern
from muster.workloads.context import RankContext
from muster.workloads.pytorch import load_torch, torch_versions
from muster.workloads.rank import RankFailure, RankResult

PARAMS = [
    "max_bytes",
    "iterations",
    "size_s",
    "latency_bytes",
    "latency_count",
    "check",
    "algo",
    "mnnvl",
    "rails",
    "op_timeout_s",
]
BELOW = 256


def run(context: RankContext) -> RankResult:
    """The program. `value` is the slower of the two directions, in GB/s of the slowest pair of ranks."""
    params = context.params
    params.refuse_others(*PARAMS)
    if context.world_size % 2:
        raise RankFailure("harness", f"{context.world_size} ranks do not make pairs: give an even number")
    log = None
    if context.device == "cuda":
        network.choose(params, os.environ, device=context.device)
        log = network.log_to_file(os.environ)
    pair = _Pair(context)
    size = params.size("max_bytes", 64 << 20, least=4) // 4 * 4
    forward = pair.bandwidth(size, "forward", 0)
    backward = pair.bandwidth(size, "backward", 1)
    both = pair.bandwidth(size, "both", 2)
    latencies = pair.latencies(
        params.size("latency_bytes", 8, least=4) // 4 * 4, params.whole("latency_count", 200, least=1, most=100_000)
    )
    wrong = pair.wrong(size) if params.flag("check", True) else None
    found = network.taken_from(log)
    message = f"{wrong} wrong values in what the pair exchanged" if wrong else ""
    return RankResult(
        ok=not wrong,
        value=min(forward, backward),
        unit="GB/s",
        reason="numeric" if wrong else "",
        message=message,
        sizes=({"sizeBytes": size, "placement": "out", "timeUs": size / min(forward, backward) / 1e3,
                "algbwGbPerS": min(forward, backward), "busbwGbPerS": min(forward, backward), "wrong": wrong},),
        wait_s=size / min(forward, backward) / 1e9,
        gpu=context.gpu,
        transport=found.transport(len(context.spec.nodes)) if context.device == "cuda" else "gloo-tcp",
        versions=torch_versions(context.device),
        facts={
            "forward_gb_per_s": forward,
            "backward_gb_per_s": backward,
            "both_gb_per_s": both,
            "latency_us": statistics.median(latencies) * 1e6,
            "latency_p99_us": _quantile(latencies, 0.99) * 1e6,
            "startup_s": context.startup_s,
        },
    )  # fmt: skip


class _Pair:
    """One rank and its opposite number."""

    def __init__(self, context: RankContext) -> None:
        self.context = context
        self.dist = context.group()
        self.torch = load_torch()
        half = context.world_size // 2
        self.first = context.rank < half
        self.other = context.rank + half if self.first else context.rank - half

    def bandwidth(self, size: int, direction: str, step: int) -> float:
        """GB/s of one direction (of both together for `both`), of the slowest pair."""
        context = self.context
        send, receive = self._empty(size), self._empty(size)
        sends = direction == "both" or self.first == (direction == "forward")
        receives = direction == "both" or not sends
        context.inject.before_step(step)

        def once() -> None:
            if sends:
                context.inject.before_send(size)
            self._exchange(send if sends else None, receive if receives else None)
            # The sender has handed its bytes over, not delivered them: it waits for a word from the receiver.
            self._acknowledge(sends, receives)

        with context.waiting(f"pair {direction}", step):
            self._timed(once, 2)
            taken_s = self._slowest(self._timed(once, 3) / 3)
            wish_s = context.params.number("size_s", 2.0, least=0.001, most=3600.0)
            most = context.params.whole("iterations", 20, least=1, most=1_000_000)
            count = max(1, min(most, int(wish_s / max(taken_s, 1e-9))))
            taken_s = self._slowest(self._timed(once, count) / count)
        return size * (2 if direction == "both" else 1) / taken_s / 1e9

    def latencies(self, size: int, count: int) -> list[float]:
        """Half the round trip of small messages, in seconds, one by one."""
        context = self.context
        tensor = self._empty(size)
        times = []
        with context.waiting("latency", 3):
            for _ in range(count + 10):
                started = time.perf_counter()
                for sends in (self.first, not self.first):
                    self._exchange(tensor if sends else None, None if sends else tensor)
                context.synchronize()
                times.append((time.perf_counter() - started) / 2)
        return times[10:]

    def wrong(self, size: int) -> int:
        """Wrong elements over all pairs, both directions."""
        context, torch = self.context, self.torch
        send, receive = self._empty(size), self._empty(size)
        pattern.fill(torch, send, pattern.values(context.rank, BELOW))
        context.inject.spoil(send)
        with context.waiting("check", 4):
            self._exchange(send, receive)
            context.synchronize()
            found = torch.tensor(
                [pattern.wrong(torch, receive, pattern.values(self.other, BELOW))], device=receive.device
            )
            self.dist.all_reduce(found)
        return int(found)

    def _empty(self, size: int) -> Any:
        return self.torch.zeros(size // 4, dtype=self.torch.float32, device=self.context.torch_device())

    def _exchange(self, send: Any, receive: Any) -> None:
        posted = []
        if send is not None:
            posted.append(self.dist.P2POp(self.dist.isend, send, self.other))
        if receive is not None:
            posted.append(self.dist.P2POp(self.dist.irecv, receive, self.other))
        for work in self.dist.batch_isend_irecv(posted):
            work.wait()

    def _acknowledge(self, sends: bool, receives: bool) -> None:
        if sends and receives:
            return
        word = self._empty(4)
        self._exchange(word if receives else None, word if sends else None)

    def _timed(self, once: Callable[[], None], count: int) -> float:
        started = time.perf_counter()
        for _ in range(count):
            once()
        self.context.synchronize()
        return time.perf_counter() - started

    def _slowest(self, taken_s: float) -> float:
        found = self.torch.tensor([taken_s], dtype=self.torch.float64, device=self.context.torch_device())
        self.dist.all_reduce(found, op=self.dist.ReduceOp.MAX)
        return float(found)


def _quantile(numbers: list[float], share: float) -> float:
    ordered = sorted(numbers)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
