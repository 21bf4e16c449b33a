"""Program `train`: a small data-parallel training whose losses are known beforehand.

A network of two matrices is fitted to data made from a seed; every rank has its own share of the data, and gradients
are averaged by all-reduce. Each rank also computes, before it starts, what the losses must be: the same training over
the data of all ranks on this one device. A rank that computes or communicates wrongly leaves that curve.

Time is taken in two parts with no barrier between: `compute_s` is this rank's own work up to the collective,
`wait_s` the collective. In synchronous training all ranks have the same step time; the slow one waits least.

Parameters: `steps`, `warmup_steps`, `width`, `batch` (rows per rank), `seed`, `tolerance`, `work` (how many times the
forward and backward pass is repeated per step, to make a step longer), `checkpoint` (folder), `checkpoint_every`,
`op_timeout_s`.
"""

from __future__ import annotations

import ctypes
import hashlib
import math
import os
import statistics
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from muster.workloads import network
from muster.workloads.context import RankContext, first_line
from muster.workloads.params import Params
from muster.workloads.pytorch import load_torch, torch_versions
from muster.workloads.rank import RankFailure, RankResult

PARAMS = [
    "steps",
    "warmup_steps",
    "width",
    "batch",
    "seed",
    "tolerance",
    "work",
    "checkpoint",
    "checkpoint_every",
    "op_timeout_s",
]
REFERENCE_RANKS = 64
"""The curve is computed for at most this many ranks; beyond, ranks repeat the data of rank modulo 64, which leaves
the average over all ranks known without computing for thousands."""
RATE = 0.05


@dataclass(frozen=True)
class Wishes:
    """The parameters, checked."""

    steps: int
    warmup_steps: int
    width: int
    batch: int
    seed: int
    tolerance: float
    work: int
    checkpoint: Path | None
    checkpoint_every: int

    @staticmethod
    def of(params: Params) -> Wishes:
        params.refuse_others(*PARAMS)
        steps = params.whole("steps", 30, least=1, most=1_000_000)
        folder = params.text("checkpoint")
        return Wishes(
            steps=steps,
            warmup_steps=min(steps - 1, params.whole("warmup_steps", 3)),
            width=params.whole("width", 128, least=2, most=32768),
            batch=params.whole("batch", 64, least=1, most=1_000_000),
            seed=params.whole("seed", 1),
            # float32 sums in another order differ by parts in 10^7 per step; a wrong bit in a gradient shows above
            # 10^-3.
            tolerance=params.number("tolerance", 1e-3, least=1e-9, most=1.0),
            work=params.whole("work", 1, least=1, most=10_000),
            checkpoint=Path(folder) if folder else None,
            checkpoint_every=params.whole("checkpoint_every", 10, least=1),
        )


@dataclass
class _Times:
    """Seconds of every step, and what was spent beside steps."""

    compute: list[float]
    wait: list[float]
    cpu: list[float]
    step: list[float]
    checkpoint_s: float = 0.0


def run(context: RankContext) -> RankResult:
    """The program. `value` is steps per second, after the warm-up."""
    started = time.perf_counter()
    wishes = Wishes.of(context.params)
    torch = load_torch()
    torch.manual_seed(wishes.seed)
    log = network.log_to_file(os.environ) if context.device == "cuda" else None
    dist = context.group() if context.world_size > 1 else None
    model = _Model(context, wishes)
    reference_started = time.perf_counter()
    expected = _expected(context, wishes)
    reference_s = time.perf_counter() - reference_started
    losses, times = _train(context, wishes, model, dist)
    checkpoint_s = times.checkpoint_s
    message, step = _off_the_curve(losses, expected, wishes.tolerance)
    counted = slice(wishes.warmup_steps, None)
    productive_s = sum(times.step)
    # The expected curve is no part of training.
    wall_s = time.perf_counter() - started - reference_s
    transport = network.taken_from(log).transport(len(context.spec.nodes)) if context.device == "cuda" else "gloo-tcp"
    return RankResult(
        ok=not message,
        value=len(times.step[counted]) / sum(times.step[counted]),
        unit="steps/s",
        reason="numeric" if message else "",
        message=message,
        compute_s=statistics.fmean(times.compute[counted]),
        wait_s=statistics.fmean(times.wait[counted]),
        gpu=context.gpu,
        transport=transport if context.world_size > 1 else "",
        versions=torch_versions(context.device),
        facts={
            "compute_min_s": min(times.compute[counted]),
            "compute_median_s": statistics.median(times.compute[counted]),
            "cpu_s_per_step": statistics.fmean(times.cpu[counted]),
            "wait_median_s": statistics.median(times.wait[counted]),
            "steps": float(len(times.step)),
            "steps_per_s": len(times.step[counted]) / sum(times.step[counted]),
            "startup_s": context.startup_s,
            "checkpoint_s": checkpoint_s,
            "wall_s": wall_s,
            "goodput_ratio": productive_s / wall_s,
            "loss_first": losses[0],
            "loss_last": losses[-1],
            "first_bad_step": float(-1 if step is None else step),
        },
    )


class _Model:
    """Two matrices with tanh between, fitted to the output of two others."""

    def __init__(self, context: RankContext, wishes: Wishes) -> None:
        torch = load_torch()
        self.torch = torch
        device = context.torch_device()
        scale = 1.0 / math.sqrt(wishes.width)
        made = self._made(wishes.seed, 0, 4, wishes)
        # Plain float32 on GPUs too: TF32 would move the curve.
        torch.backends.cuda.matmul.allow_tf32 = False
        self.weights = [(each * scale).to(device).requires_grad_() for each in made[:2]]
        self.truth = [(each * scale).to(device) for each in made[2:]]
        self.wishes, self.device = wishes, device

    def _made(self, seed: int, stream: int, count: int, wishes: Wishes, rows: int | None = None) -> list[Any]:
        # Made on the CPU, so that all devices start from the same numbers.
        source = self.torch.Generator().manual_seed(seed * 1_000_003 + stream)
        shape = (rows or wishes.width, wishes.width)
        return [self.torch.randn(*shape, generator=source) for _ in range(count)]

    def data(self, rank: int) -> tuple[Any, Any]:
        """The rows of `rank` and what the network must make of them."""
        rows = self._made(self.wishes.seed, 1 + rank % REFERENCE_RANKS, 1, self.wishes, self.wishes.batch)[0].to(
            self.device
        )
        return rows, self.torch.tanh(rows @ self.truth[0]) @ self.truth[1]

    def loss_and_gradients(self, rows: Any, wanted: Any) -> tuple[Any, list[Any]]:
        loss = ((self.torch.tanh(rows @ self.weights[0]) @ self.weights[1] - wanted) ** 2).mean()
        return loss.detach(), list(self.torch.autograd.grad(loss, self.weights))

    def step(self, gradients: list[Any]) -> None:
        with self.torch.no_grad():
            for weight, gradient in zip(self.weights, gradients, strict=True):
                weight -= RATE * self.wishes.width * gradient


def _expected(context: RankContext, wishes: Wishes) -> list[float]:
    """The losses, averaged over ranks, of the same training without any communication."""
    context.progress.enter("expected curve")
    model = _Model(context, wishes)
    shares = min(context.world_size, REFERENCE_RANKS)
    data = [model.data(rank) for rank in range(shares)]
    # How many ranks have the data of each share.
    weights = [len(range(share, context.world_size, REFERENCE_RANKS)) / context.world_size for share in range(shares)]
    losses = []
    for _ in range(wishes.steps):
        total, sums = 0.0, None
        for weight, (rows, wanted) in zip(weights, data, strict=True):
            loss, gradients = model.loss_and_gradients(rows, wanted)
            total += weight * float(loss)
            scaled = [weight * gradient for gradient in gradients]
            sums = scaled if sums is None else [one + other for one, other in zip(sums, scaled, strict=True)]
        model.step(sums or [])
        losses.append(total)
    return losses


def _train(context: RankContext, wishes: Wishes, model: _Model, dist: Any) -> tuple[list[float], _Times]:
    torch = load_torch()
    rows, wanted = model.data(context.rank)
    times = _Times([], [], [], [])
    losses = []
    keeper = _Checkpoint(context, wishes)
    for step in range(wishes.steps):
        context.progress.enter("compute", step=step)
        started, cpu_started = time.perf_counter(), time.process_time()
        context.inject.before_step(step)
        for _ in range(wishes.work):
            loss, gradients = model.loss_and_gradients(rows, wanted)
        sent = torch.cat([loss.reshape(1), *(gradient.reshape(-1) for gradient in gradients)])
        context.inject.spoil(sent)
        context.synchronize()
        computed, cpu_computed = time.perf_counter(), time.process_time()
        if dist is not None:
            with context.waiting("all-reduce", step):
                context.inject.before_send(sent.numel() * 4)
                dist.all_reduce(sent)
                context.synchronize()
        waited = time.perf_counter()
        sent /= context.world_size
        losses.append(float(sent[0]))
        model.step([part.view_as(weight) for part, weight in zip(sent[1:].chunk(2), model.weights, strict=True)])
        context.synchronize()
        ended = time.perf_counter()
        times.compute.append(computed - started + ended - waited)
        times.cpu.append(cpu_computed - cpu_started)
        times.wait.append(waited - computed)
        times.step.append(ended - started)
        if not math.isfinite(losses[-1]):
            break
        times.checkpoint_s += keeper.after(step, model)
    return losses, times


def _off_the_curve(losses: list[float], expected: list[float], tolerance: float) -> tuple[str, int | None]:
    """Sentence and step of the first loss that is not the expected one; empty when all are. Pure."""
    for step, (found, wanted) in enumerate(zip(losses, expected, strict=False)):
        if not math.isfinite(found) or abs(found - wanted) > tolerance * max(abs(wanted), 1e-12):
            return f"loss {found:.6g} at step {step}, expected {wanted:.6g} (within {tolerance:g} of it)", step
    if len(losses) != len(expected):
        return f"{len(losses)} losses of {len(expected)} steps", len(losses)
    return "", None


def _bytes_of(weight: Any) -> bytes:
    """The memory of a contiguous tensor on the CPU. PyTorch's own way needs NumPy, which an image may lack."""
    return ctypes.string_at(weight.data_ptr(), weight.numel() * weight.element_size())


class _Checkpoint:
    """Rank 0 writes the weights, reads them back and compares; without a folder nothing is written."""

    def __init__(self, context: RankContext, wishes: Wishes) -> None:
        self.context, self.wishes = context, wishes

    def after(self, step: int, model: _Model) -> float:
        """Seconds spent. Raises `RankFailure` (`hardware`) when what is read is not what was written."""
        folder = self.wishes.checkpoint
        if folder is None or self.context.rank != 0 or (step + 1) % self.wishes.checkpoint_every:
            return 0.0
        self.context.progress.enter("checkpoint", step=step)
        started = time.perf_counter()
        content = b"".join(_bytes_of(weight.detach().cpu().contiguous()) for weight in model.weights)
        path = folder / f"muster-checkpoint-{os.getpid()}"
        try:
            with path.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            same = hashlib.sha256(path.read_bytes()).digest() == hashlib.sha256(content).digest()
            path.unlink()
        except OSError as error:
            raise RankFailure(
                "harness", f"the checkpoint cannot be written to {folder}: {first_line(error)}"
            ) from error
        if not same:
            raise RankFailure(
                "hardware", f"the checkpoint read from {folder} is not the one written", (self.context.node,)
            )
        return time.perf_counter() - started
