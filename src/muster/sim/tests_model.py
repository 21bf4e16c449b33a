"""What a certification test would report, computed from the truth: pure, and the same for the same seed and run.

Nominal numbers, for eight-GPU H100 nodes with 400 Gb/s of network per GPU:

- all-reduce over two nodes: 487.9 GB/s busbw, all-to-all over two nodes: 79.1 GB/s busbw, as NVIDIA published for
  passing H100 nodes on EFA. All-to-all over more nodes follows from the network limit of a GPU, about 42 GB/s, and
  the share of traffic that leaves the node: busbw = limit * (R - 1) / (R - 8) with R ranks.
- all-reduce inside a node: 475 GB/s busbw over NVLink 4, the usual result of nccl-tests on such a node.
- sustained BF16 GEMM: 650 TFLOP/s per GPU, about two thirds of the 989 TFLOP/s of the data sheet.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random

import msgspec

from muster.sim.defects import Defect, DefectKind
from muster.sim.draws import rng
from muster.sim.world import GPUS_PER_NODE, World

GEMM_TFLOPS = 650.0
NODE_ALL_REDUCE_GBPS = 475.0
ALL_REDUCE_GBPS = 487.9
NETWORK_LIMIT_GBPS = 42.2
MEMORY_GBPS = 2900.0
"""Device-to-device copy, of the 3,350 GB/s of HBM3 in the data sheet."""
NOISE = 0.004
"""Standard deviation of a measured number, as a share of it; at most three of them are drawn."""
WATCHDOG_S = 120.0
"""After this much silence of a rank, the others give up."""
DEGRADED_LINKS, ALL_LINKS = 8, 18

NODE_TESTS = ("host", "gpu-burn", "gpu-memory", "nvlink-loopback", "nic-loopback", "storage", "dcgm-diag")
NETWORK_TESTS = ("pair-net", "pair-rail", "all-to-all-net")
"""Run past NVLink between nodes."""
GROUP_TESTS = (
    *("pair", "point-to-point", "all-reduce", "all-gather", "reduce-scatter", "all-to-all", "train"),
    *NETWORK_TESTS,
)
DURATION_S: Mapping[str, float] = {
    "host": 25.0,
    "gpu-burn": 120.0,
    "gpu-memory": 60.0,
    "nvlink-loopback": 60.0,
    "nic-loopback": 60.0,
    "storage": 60.0,
    "dcgm-diag": 300.0,
    "pair": 60.0,
    "pair-net": 60.0,
    "pair-rail": 60.0,
    "point-to-point": 60.0,
    "all-to-all-net": 120.0,
    "all-reduce": 120.0,
    "all-gather": 120.0,
    "reduce-scatter": 120.0,
    "all-to-all": 120.0,
    "train": 600.0,
}
"""Nominal run times, as the shipped catalogue of tests states them where it knows the test."""
UNITS: Mapping[str, str] = {"gpu-burn": "TFLOP/s", "train": "steps/s", "host": "", "dcgm-diag": ""}


class RunSpec(msgspec.Struct, frozen=True):
    """The annotation `muster.dev/run-spec` of a test pod."""

    run: str
    test: str
    nodes: tuple[str, ...]
    rank: int


class Report(msgspec.Struct, frozen=True):
    """The termination message of a test pod. `value` is the number that this rank measured, in `unit`."""

    node: str
    ok: bool
    value: float | None = None
    unit: str = ""
    reason: str = ""
    suspects: tuple[str, ...] = ()
    message: str = ""

    def encode(self) -> str:
        """JSON, at most the 4,096 bytes that Kubernetes keeps."""
        return msgspec.json.encode(self).decode()[:4096]


@dataclass(frozen=True)
class RunOutcome:
    """How long the run takes and what each rank reports, in rank order. A rank that is not `ok` exits with 1."""

    duration_s: float
    reports: tuple[Report, ...]


def parse_run_spec(text: str) -> RunSpec | None:
    """Read the annotation; None when it is not a run spec."""
    try:
        spec = msgspec.json.decode(text, type=RunSpec)
    except msgspec.MsgspecError:
        return None
    return spec if spec.nodes and 0 <= spec.rank < len(spec.nodes) else None


def simulate_run(world: World, certification: str, spec: RunSpec) -> RunOutcome:
    """The outcome of a run whose ranks all started, given the truth at that moment."""
    unknown = [name for name in spec.nodes if name not in world.nodes]
    if unknown or spec.test not in DURATION_S:
        why = f"no node {unknown[0]}" if unknown else f"no test program {spec.test!r}"
        return _all_ranks(5.0, spec, Report("", False, reason="harness", message=f"harness error: {why}"))
    if spec.test in NODE_TESTS:
        draws = {name: rng(world.seed, "run", certification, spec.run, name) for name in spec.nodes}
        reports = tuple(_node_test(world, spec.test, name, draws[name]) for name in spec.nodes)
        return RunOutcome(DURATION_S[spec.test], reports)
    return _group_test(world, spec, rng(world.seed, "run", certification, spec.run))


def _all_ranks(duration_s: float, spec: RunSpec, report: Report) -> RunOutcome:
    return RunOutcome(duration_s, tuple(msgspec.structs.replace(report, node=name) for name in spec.nodes))


def _noisy(draw: Random, value: float) -> float:
    return round(value * (1.0 + NOISE * min(3.0, max(-3.0, draw.gauss(0.0, 1.0)))), 2)


def _of_kind(defects: Sequence[Defect], *kinds: DefectKind) -> Defect | None:
    return next((d for d in defects if d.kind in kinds), None)


def _rate(defects: Sequence[Defect]) -> float:
    slow = _of_kind(defects, DefectKind.SLOW_NODE)
    return slow.factor if slow else 1.0


# Tests of one node


def _node_test(world: World, test: str, name: str, draw: Random) -> Report:
    defects = world.defects_of(name)
    flaky = _of_kind(defects, DefectKind.FLAKY_NODE)
    if flaky and draw.random() < flaky.probability:
        return Report(name, False, reason="crash", suspects=(name,), message="the test program crashed")
    for defect in defects:
        failure = _node_failure(test, name, defect)
        if failure is not None:
            return failure
    return _measured(test, name, defects, draw)


def _node_failure(test: str, name: str, defect: Defect) -> Report | None:
    """How the defect makes the test fail outright, or None."""
    match defect.kind:
        case DefectKind.BAD_NODE if test in ("gpu-burn", "dcgm-diag"):
            what = f"GPU {defect.gpu}: {137 + 11 * defect.gpu} wrong results against the reference"
            return Report(name, False, reason="numeric", suspects=(name,), message=what)
        case DefectKind.BAD_NODE if test == "nvlink-loopback":
            what = f"GPU {defect.gpu}: unspecified launch failure in the collective"
            return Report(name, False, reason="crash", suspects=(name,), message=what)
        case DefectKind.XID if test not in ("host", "storage", "nic-loopback"):
            what = f"GPU {defect.gpu}: the driver does not answer (XID {defect.xid})"
            return Report(name, False, reason="crash", suspects=(name,), message=what)
        case DefectKind.NEEDS_REPLACEMENT if test == "host":
            what = f"{GPUS_PER_NODE - 1} of {GPUS_PER_NODE} GPUs present; GPU {defect.gpu} does not initialise"
            return Report(name, False, reason="hardware", suspects=(name,), message=what)
        case DefectKind.NEEDS_REPLACEMENT if test not in ("storage", "nic-loopback"):
            what = f"GPU {defect.gpu}: initialisation failed"
            return Report(name, False, reason="crash", suspects=(name,), message=what)
        case DefectKind.DEGRADED_NVLINK if test == "host":
            what = f"GPU {defect.gpu}: {DEGRADED_LINKS} of {ALL_LINKS} NVLinks active"
            return Report(name, False, reason="hardware", suspects=(name,), message=what)
        case _:
            return None


def _measured(test: str, name: str, defects: Sequence[Defect], draw: Random) -> Report:
    nominal = {
        "gpu-burn": GEMM_TFLOPS,
        "gpu-memory": MEMORY_GBPS,
        "nvlink-loopback": NODE_ALL_REDUCE_GBPS,
        "nic-loopback": NETWORK_LIMIT_GBPS,
        "storage": 6.0,
    }.get(test)
    if nominal is None:
        return Report(name, True, message="all checks passed")
    rate = _rate(defects)
    message = ""
    nvlink = _of_kind(defects, DefectKind.DEGRADED_NVLINK)
    if nvlink and test == "nvlink-loopback":
        rate *= nvlink.factor
        message = f"slowest ring passes GPU {nvlink.gpu}: {DEGRADED_LINKS} of {ALL_LINKS} NVLinks active"
    return Report(name, True, _noisy(draw, nominal * rate), UNITS.get(test, "GB/s"), message=message)


# Tests of several nodes


def _group_test(world: World, spec: RunSpec, draw: Random) -> RunOutcome:
    broken = _breaks_collective(world, spec, draw)
    if broken is not None:
        return broken
    value = _nominal(spec.test, len(spec.nodes)) * _slowest(world, spec)
    unit = UNITS.get(spec.test, "GB/s")
    reports = tuple(Report(name, True, _noisy(draw, value), unit) for name in spec.nodes)
    return RunOutcome(DURATION_S[spec.test], reports)


def _breaks_collective(world: World, spec: RunSpec, draw: Random) -> RunOutcome | None:
    """A rank that crashes or falls silent takes the whole run with it; what the others see differs."""
    for name in spec.nodes:
        defects = world.defects_of(name)
        flaky = _of_kind(defects, DefectKind.FLAKY_NODE)
        fails_now = flaky is not None and draw.random() < flaky.probability
        if fails_now or _of_kind(defects, DefectKind.BAD_NODE, DefectKind.NEEDS_REPLACEMENT):
            # Peers only see connections close; which rank was first is not known to them.
            lost = "a peer closed the connection (remote process exited or network error)"
            reports = tuple(Report(peer, False, reason="crash", message=lost) for peer in spec.nodes)
            return RunOutcome(20.0, reports)
        if _of_kind(defects, DefectKind.XID):
            silent = f"no progress for {WATCHDOG_S:.0f} s; the watchdog ended the run"
            reports = tuple(Report(peer, False, reason="hang", message=silent) for peer in spec.nodes)
            return RunOutcome(WATCHDOG_S, reports)
    return None


def _nominal(test: str, nodes: int) -> float:
    ranks = nodes * GPUS_PER_NODE
    leaving = NETWORK_LIMIT_GBPS * (ranks - 1) / (ranks - GPUS_PER_NODE) if nodes > 1 else NODE_ALL_REDUCE_GBPS
    match test:
        case "all-to-all" | "all-to-all-net":
            return leaving
        case "pair-rail":
            return ALL_REDUCE_GBPS / GPUS_PER_NODE  # a NIC for each GPU
        case "point-to-point":
            return NETWORK_LIMIT_GBPS
        case "train":
            return 0.35
        case "all-gather" | "reduce-scatter":
            return 338.6
        case _:
            return ALL_REDUCE_GBPS if nodes > 1 else NODE_ALL_REDUCE_GBPS


def _slowest(world: World, spec: RunSpec) -> float:
    """The rate of the slowest part: a collective is as slow as its slowest node or link."""
    members = frozenset(spec.nodes)
    rate = 1.0
    for defect in world.active:
        if defect.kind is DefectKind.BAD_LINK:
            if members.issuperset(defect.nodes()) and _uses_link(spec, defect):
                rate = min(rate, defect.factor)
        elif defect.node in members and (
            defect.kind is DefectKind.SLOW_NODE
            or (defect.kind is DefectKind.DEGRADED_NVLINK and spec.test not in NETWORK_TESTS)
        ):
            rate = min(rate, defect.factor)
    return rate


def _uses_link(spec: RunSpec, link: Defect) -> bool:
    """All-to-all exercises every pair of nodes; a ring only neighbours in rank order."""
    if spec.test in ("all-to-all", "all-to-all-net"):
        return True
    distance = abs(spec.nodes.index(link.node) - spec.nodes.index(link.peer))
    return distance in (1, len(spec.nodes) - 1)


def silent_rank_report(name: str, gone: str) -> Report:
    """What the rank on `name` reports, WATCHDOG_S after the rank on `gone` went away."""
    message = f"the rank on {gone} went away; the watchdog ended the run after {WATCHDOG_S:.0f} s"
    return Report(name, False, reason="hang", suspects=(gone,), message=message)
