"""Program `collective`: all-reduce, all-gather, reduce-scatter or all-to-all over a sweep of sizes.

Every size is timed, in and out of place where both have a meaning, and then done once more on known values: every
element of the result is compared. The time of a size is that of the slowest rank. Parameters: `collective`,
`min_bytes`, `max_bytes`, `factor`, `iterations` (at most), `warmup`, `size_s` (seconds per size and placement, the
iterations are cut to fit), `dtype`, `check`, `statistic` (mean, median or min over the iterations), `algo`, `mnnvl`,
`rails`, `op_timeout_s`, `expected_transport`.
"""

from __future__ import annotations

import os
import statistics
import time
from dataclasses import dataclass
from typing import Any

from muster.workloads import network, pattern
from muster.workloads.bandwidth import COLLECTIVES, bus_factor, figures, sweep
from muster.workloads.context import RankContext
from muster.workloads.operations import Operation, Wrong, operation
from muster.workloads.params import Params
from muster.workloads.pytorch import load_torch, torch_versions
from muster.workloads.rank import RankFailure, RankResult

PARAMS = [
    "collective",
    "min_bytes",
    "max_bytes",
    "factor",
    "iterations",
    "warmup",
    "size_s",
    "dtype",
    "check",
    "statistic",
    "algo",
    "mnnvl",
    "rails",
    "op_timeout_s",
    "expected_transport",
]
MOST_BYTES = 1 << 40


@dataclass(frozen=True)
class Wishes:
    """The parameters, checked."""

    collective: str
    sizes: tuple[int, ...]
    iterations: int
    warmup: int
    size_s: float
    dtype: str
    check: bool
    statistic: str
    expected_transport: str

    @staticmethod
    def of(params: Params, ranks: int) -> Wishes:
        params.refuse_others(*PARAMS)
        dtype = params.text("dtype", "float32", among=tuple(pattern.EXACT))
        width = {"float64": 8, "float16": 2, "bfloat16": 2}.get(dtype, 4)
        most = params.size("max_bytes", 16 << 20, least=1, most=MOST_BYTES)
        least = params.size("min_bytes", min(1024, most), least=0, most=most)
        return Wishes(
            collective=params.text("collective", "all-reduce", among=COLLECTIVES),
            sizes=tuple(sweep(least, most, params.whole("factor", 2, least=2, most=1 << 30), width * ranks)),
            iterations=params.whole("iterations", 20, least=1, most=1_000_000),
            warmup=params.whole("warmup", 5, least=1, most=10_000),
            size_s=params.number("size_s", 2.0, least=0.001, most=3600.0),
            dtype=dtype,
            check=params.flag("check", True),
            statistic=params.text("statistic", "mean", among=("mean", "median", "min")),
            expected_transport=params.text("expected_transport"),
        )


@dataclass(frozen=True)
class Measured:
    """One size and placement, as this rank sees it."""

    size_bytes: int
    placement: str
    own_s: float
    slowest_s: float
    fastest_s: float
    prepare_s: float
    wrong: Wrong | None


def run(context: RankContext) -> RankResult:
    """The program."""
    wishes = Wishes.of(context.params, context.world_size)
    if context.world_size < 2:
        raise RankFailure("harness", "one rank alone has nobody to communicate with: give it at least two")
    log = None
    if context.device == "cuda":
        network.choose(context.params, os.environ, device=context.device)
        log = network.log_to_file(os.environ)
    dist = context.group()
    try:
        below = pattern.span(wishes.dtype, context.world_size)
    except ValueError as error:
        raise RankFailure("harness", str(error)) from error
    with context.waiting("probe"):
        action = operation(wishes.collective, dist, context, wishes.dtype, below)
    measured: list[Measured] = []
    for size in wishes.sizes:
        for placement in action.placements:
            measured.append(_measure(context, action, wishes, size, placement, len(measured)))
    with context.waiting("second look"):
        again = _second_look(context, wishes, measured)
    return _result(context, action, wishes, measured, again, network.taken_from(log))


def _measure(
    context: RankContext, action: Operation, wishes: Wishes, size: int, placement: str, step: int
) -> Measured:
    context.progress.enter("prepare", step=step)
    started = time.perf_counter()
    buffers = action.buffers(size, placement)
    context.synchronize()
    prepare_s = time.perf_counter() - started
    context.inject.before_step(step)
    with context.waiting(f"{wishes.collective} {placement}", step):
        warm = _time(context, action, buffers, wishes.warmup)
        slowest = _over_ranks(context, [min(warm)])[0][0]
        count = max(1, min(wishes.iterations, int(wishes.size_s / max(slowest, 1e-9))))
        times = _time(context, action, buffers, count)
        own = _statistic(wishes.statistic, times)
        most, least = _over_ranks(context, [own])
        # The check has buffers of its own; both together would need twice the memory.
        del buffers
        found = _check(context, action, size, placement) if wishes.check else None
    return Measured(size, placement, own, most[0], least[0], prepare_s, found)


def _statistic(name: str, times: list[float]) -> float:
    if name == "median":
        return statistics.median(times)
    return min(times) if name == "min" else statistics.fmean(times)


def _time(context: RankContext, action: Operation, buffers: Any, count: int) -> list[float]:
    """Seconds of each of `count` operations on this rank."""
    size_bytes = buffers.size_bytes
    if context.device != "cuda":
        times = []
        for _ in range(count):
            started = time.perf_counter()
            context.inject.before_send(size_bytes)
            action.act(buffers)
            times.append(time.perf_counter() - started)
        return times
    torch = load_torch()
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(count + 1)]
    marks[0].record()
    for mark in marks[1:]:
        context.inject.before_send(size_bytes)
        action.act(buffers)
        mark.record()
    context.synchronize()
    return [marks[at].elapsed_time(marks[at + 1]) / 1000.0 for at in range(count)]


def _over_ranks(context: RankContext, numbers: list[float]) -> tuple[list[float], list[float]]:
    """The largest and the smallest of each number over all ranks."""
    torch = load_torch()
    both = torch.tensor(numbers + [-each for each in numbers], dtype=torch.float64, device=context.torch_device())
    context.group().all_reduce(both, op=context.group().ReduceOp.MAX)
    listed = [float(each) for each in both.tolist()]
    return listed[: len(numbers)], [-each for each in listed[len(numbers) :]]


def _check(context: RankContext, action: Operation, size: int, placement: str) -> Wrong:
    """The operation once on known values, every element compared, counts added over all ranks."""
    torch = load_torch()
    buffers = action.buffers(size, placement)
    context.inject.spoil(buffers.send)
    action.act(buffers)
    context.synchronize()
    by_source = torch.tensor(action.wrong_by_source(buffers), dtype=torch.int64, device=context.torch_device())
    by_receiver = torch.zeros_like(by_source)
    by_receiver[context.rank] = by_source.sum()
    together = torch.stack([by_source, by_receiver])
    context.group().all_reduce(together)
    return Wrong(tuple(together[0].tolist()), tuple(together[1].tolist()), reduced=action.reduces)


def _second_look(context: RankContext, wishes: Wishes, measured: list[Measured]) -> Wrong | None:
    """A reduction with wrong values does not tell whose they are; gathering everybody's data may, if it happens
    again. All ranks know the same counts, so all of them take this look, or none."""
    bad = [each for each in measured if each.wrong is not None and each.wrong.total]
    if not bad or bad[0].wrong is None or not bad[0].wrong.reduced:
        return None
    gather = operation(
        "all-gather", context.group(), context, wishes.dtype, pattern.span(wishes.dtype, context.world_size)
    )
    return _check(
        context, gather, min(bad[0].size_bytes, 16 << 20) // context.world_size // 8 * 8 * context.world_size, "out"
    )


def _result(
    context: RankContext,
    action: Operation,
    wishes: Wishes,
    measured: list[Measured],
    again: Wrong | None,
    log: network.NcclLog,
) -> RankResult:
    ranks = context.world_size
    sizes = [
        figures(
            wishes.collective, ranks, each.size_bytes, each.slowest_s,
            placement=each.placement, wrong=None if each.wrong is None else each.wrong.total,
        )
        for each in measured
    ]  # fmt: skip
    peak = max(measured, key=lambda each: each.size_bytes / each.slowest_s)
    own_gb_per_s = peak.size_bytes / peak.own_s / 1e9 * bus_factor(wishes.collective, ranks)
    versions = torch_versions(context.device) | {"collective": action.made_of}
    if log.version:
        versions["nccl"] = log.version
    if log.channels:
        versions["channels"] = ", ".join(f"{way} x{count}" for way, count in log.channels[:8])
    transport = log.transport(len(context.spec.nodes)) if context.device == "cuda" else "gloo-tcp"
    reason, message, suspects = _verdict(context, wishes, measured, again, transport)
    return RankResult(
        ok=not reason,
        value=own_gb_per_s,
        unit="GB/s",
        reason=reason,
        message=message,
        suspects=suspects,
        sizes=tuple(sizes),
        compute_s=statistics.fmean(each.prepare_s for each in measured),
        wait_s=peak.own_s,
        gpu=context.gpu,
        transport=transport,
        versions=versions,
        facts={
            "avg_busbw_gb_per_s": statistics.fmean(size["busbwGbPerS"] or 0.0 for size in sizes),
            "peak_size_bytes": float(peak.size_bytes),
            "rank_time_spread_ratio": (peak.slowest_s - peak.fastest_s) / peak.slowest_s,
            "startup_s": context.startup_s,
        },
    )


def _verdict(
    context: RankContext, wishes: Wishes, measured: list[Measured], again: Wrong | None, transport: str
) -> tuple[str, str, tuple[str, ...]]:
    """Reason, message and suspects; an empty reason when the rank is well."""
    for each in measured:
        if each.wrong is None or not each.wrong.total:
            continue
        source = each.wrong.only_source() if again is None else again.only_source()
        told = "" if source is None else f", all from rank {source} ({context.node_of(source)})"
        message = (
            f"{each.wrong.total} wrong values in {wishes.collective} of {each.size_bytes} bytes "
            f"({'in' if each.placement == 'in' else 'out of'} place){told}"
        )
        return "numeric", message, () if source is None else (context.node_of(source),)
    wanted = wishes.expected_transport
    if not wanted or context.device != "cuda":
        return "", "", ()
    if not _somebody_names_it(context, transport):
        return "harness", f"expected {wanted}, and no rank's NCCL log names the transport", ()
    if transport and not network.is_transport(wanted, transport):
        return "transport", f"expected {wanted}, used {transport}", ()
    return "", "", ()


def _somebody_names_it(context: RankContext, transport: str) -> bool:
    torch = load_torch()
    named = torch.tensor([float(bool(transport))], device=context.torch_device())
    with context.waiting("transport"):
        context.group().all_reduce(named)
    return bool(named.item())
