"""Program `gemm`: sustained matrix multiplication on the device of this rank, checked while it runs.

The first product is compared with float64 on sampled elements; every later batch must repeat it bit by bit.
Throughput is taken batch by batch: that it falls while the work stays the same is throttling. Parameters:
`duration_s`, `size` (of the square matrices), `dtype`, `tolerance`.
"""

from __future__ import annotations

import statistics
import time
from typing import Any

from muster.workloads.context import RankContext
from muster.workloads.pytorch import load_torch, torch_versions
from muster.workloads.rank import RankResult

PARAMS = ["duration_s", "size", "dtype", "tolerance", "op_timeout_s"]
BATCH_S = 0.5
"""A batch is as many products as take about this long."""
SAMPLES = 64
TOLERANCE = {"float64": 1e-12, "float32": 1e-4, "float16": 2e-2, "bfloat16": 5e-2}
"""Largest error of a sampled element over the typical size of an element (square root of the length of the sum)."""


def run(context: RankContext) -> RankResult:
    """The program. `value` is the mean throughput after the first batch, in TFLOP/s."""
    params = context.params
    params.refuse_others(*PARAMS)
    on_gpu = context.device == "cuda"
    torch = load_torch()
    dtype = params.text("dtype", "bfloat16" if on_gpu else "float32", among=tuple(TOLERANCE))
    size = params.whole("size", 8192 if on_gpu else 384, least=8, most=65536)
    duration_s = params.number("duration_s", 20.0 if on_gpu else 2.0, least=0.01, most=86400.0)
    tolerance = params.number("tolerance", TOLERANCE[dtype], least=0.0, most=1.0)
    if on_gpu:
        torch.cuda.set_device(context.torch_device())
    source = torch.Generator().manual_seed(7)
    left, right = (
        torch.randn(size, size, generator=source).to(device=context.torch_device(), dtype=getattr(torch, dtype))
        for _ in range(2)
    )
    context.progress.enter("reference")
    first = left @ right
    context.synchronize()
    error = sampled_error(torch, left, right, first)
    burned = _burn(context, left, right, first, duration_s)
    rates = [2.0 * size**3 * count / taken / 1e12 for count, taken in burned.batches]
    steady = rates[1:] or rates
    throttled = throttling(steady)
    wrong = burned.wrong
    spoiled = error > tolerance or wrong > 0
    message = f"{wrong} wrong elements, error {error:.2g} of an element (at most {tolerance:g})" if spoiled else ""
    return RankResult(
        ok=not spoiled,
        value=statistics.fmean(steady),
        unit="TFLOP/s",
        reason="numeric" if spoiled else "",
        message=message,
        suspects=(context.node,) if spoiled else (),
        compute_s=statistics.fmean(taken / count for count, taken in burned.batches),
        gpu=context.gpu,
        versions=torch_versions(context.device),
        facts={
            "tflops_min": min(steady),
            "tflops_max": max(steady),
            "throttling_ratio": throttled,
            "error_ratio": error,
            "wrong_elements": float(wrong),
            "cpu_s_per_step": burned.cpu_s / max(1, sum(count for count, _ in burned.batches)),
            "batch_median_s": statistics.median(taken / count for count, taken in burned.batches),
            "compute_min_s": min(taken / count for count, taken in burned.batches),
        },
    )


class _Burned:
    def __init__(self) -> None:
        self.batches: list[tuple[int, float]] = []
        """Products and seconds of each batch."""
        self.wrong = 0
        self.cpu_s = 0.0


def _burn(context: RankContext, left: Any, right: Any, first: Any, duration_s: float) -> _Burned:
    burned = _Burned()
    count = 1
    ends = time.monotonic() + duration_s
    while not burned.batches or time.monotonic() < ends:
        step = len(burned.batches)
        context.progress.enter("gemm", step=step)
        started, cpu_started = time.perf_counter(), time.process_time()
        for _ in range(count):
            context.inject.before_step(step)
            product = left @ right
        context.synchronize()
        taken = time.perf_counter() - started
        burned.cpu_s += time.process_time() - cpu_started
        burned.batches.append((count, taken))
        context.inject.spoil(product)
        burned.wrong += int((product != first).sum())
        count = max(1, min(count * 4, int(count * min(BATCH_S, duration_s / 8) / max(taken, 1e-9))))
    return burned


def sampled_error(torch: Any, left: Any, right: Any, product: Any) -> float:
    """Largest error over sampled elements, against float64 on the CPU, over the square root of the length of the
    sum."""
    size = left.shape[0]
    rows = [(at * 37 + 11) % size for at in range(SAMPLES)]
    columns = [(at * 53 + 5) % size for at in range(SAMPLES)]
    exact = (left[rows].cpu().double() * right[:, columns].cpu().double().T).sum(1)
    found = product[rows, columns].cpu().double()
    worst = (found - exact).abs().max()
    return float(worst) / float(size) ** 0.5 if bool(torch.isfinite(worst)) else float("inf")


def throttling(rates: list[float]) -> float:
    """By how much the last third is slower than the first third, as a ratio of the first; 0 when it is not."""
    third = max(1, len(rates) // 3)
    early, late = statistics.median(rates[:third]), statistics.median(rates[-third:])
    return max(0.0, 1.0 - late / early) if early > 0 else 0.0
