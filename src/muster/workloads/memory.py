"""Program `memory`: patterns over a share of the memory of the device, and how fast it copies.

Every pattern is written everywhere before any of it is read back, so that addresses that fall together show.
Parameters: `share` (of the free memory), `most_bytes`, `copy_bytes`, `seconds` (per copy).
"""

from __future__ import annotations

import os
import statistics
import time
from typing import Any

from muster.workloads.context import RankContext
from muster.workloads.pytorch import load_torch, torch_versions
from muster.workloads.rank import RankFailure, RankResult

PARAMS = ["share", "most_bytes", "copy_bytes", "seconds", "op_timeout_s"]
PATTERNS = (0x00, 0xFF, 0x55, 0xAA)
BLOCK_BYTES = 256 << 20


def run(context: RankContext) -> RankResult:
    """The program. `value` is the copy bandwidth on the device in GB/s, bytes read plus bytes written."""
    params = context.params
    params.refuse_others(*PARAMS)
    torch = load_torch()
    on_gpu = context.device == "cuda"
    share = params.number("share", 0.8 if on_gpu else 0.01, least=0.0, most=0.95)
    device = context.torch_device()
    if on_gpu:
        torch.cuda.set_device(device)
    free = free_bytes(torch, on_gpu)
    # The ranks of a node without GPUs share its memory.
    room = free if on_gpu else free // context.spec.ranks_per_node
    most = params.size("most_bytes", 1 << 50 if on_gpu else 256 << 20, least=1 << 16)
    wanted = min(int(room * share), most) // 8 * 8
    if wanted < 1 << 16:
        raise RankFailure("harness", f"{wanted} bytes to test ({share:g} of {room} free) are too few to say anything")
    wrong, tested = _patterns(context, torch, device, wanted)
    size = min(params.size("copy_bytes", 1 << 30 if on_gpu else 32 << 20, least=4096), wanted)
    seconds = params.number("seconds", 2.0 if on_gpu else 0.3, least=0.001, most=600.0)
    on_device = _copy(context, torch, size, seconds, device, device) * 2
    facts = {"tested_bytes": float(tested), "wrong_words": float(wrong), "device_copy_gb_per_s": on_device}
    if on_gpu:
        facts["host_to_device_gb_per_s"] = _copy(context, torch, size, seconds, "cpu", device)
        facts["device_to_host_gb_per_s"] = _copy(context, torch, size, seconds, device, "cpu")
    return RankResult(
        ok=wrong == 0,
        value=on_device,
        unit="GB/s",
        reason="hardware" if wrong else "",
        message=f"{wrong} words of {tested} bytes read back wrong" if wrong else "",
        suspects=(context.node,) if wrong else (),
        gpu=context.gpu,
        versions=torch_versions(context.device),
        facts=facts,
    )


def free_bytes(torch: Any, on_gpu: bool) -> int:
    """Free memory of the device; on a CPU what the system calls available."""
    if on_gpu:
        return int(torch.cuda.mem_get_info()[0])
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _patterns(context: RankContext, torch: Any, device: Any, wanted: int) -> tuple[int, int]:
    """Wrong words and tested bytes."""
    sizes = [BLOCK_BYTES] * (wanted // BLOCK_BYTES) + [wanted % BLOCK_BYTES]
    blocks = [torch.empty(size // 8, dtype=torch.int64, device=device) for size in sizes if size]
    wrong = 0
    for step, byte in enumerate(PATTERNS):
        word = int.from_bytes(bytes([byte]) * 8, "little", signed=True)
        context.progress.enter("pattern", step=step)
        context.inject.before_step(step)
        for block in blocks:
            block.fill_(word)
        context.inject.spoil(blocks[0])
        wrong += sum(int((block != word).sum()) for block in blocks)
    context.progress.enter("addresses", step=len(PATTERNS))
    start = 0
    for block in blocks:
        torch.arange(start, start + block.numel(), out=block)
        start += block.numel()
    start = 0
    for block in blocks:
        # Consecutive numbers: the first is right, and each is one more than the one before.
        wrong += int(int(block[0]) != start) + int((block[1:] - block[:-1] != 1).sum())
        start += block.numel()
    return wrong, sum(block.numel() for block in blocks) * 8


def _copy(context: RankContext, torch: Any, size: int, seconds: float, source: Any, target: Any) -> float:
    """Bytes copied per second, in GB/s: the median over copies."""
    pinned = context.device == "cuda"
    one = torch.ones(size, dtype=torch.uint8, device=source, pin_memory=pinned and source == "cpu")
    other = torch.empty(size, dtype=torch.uint8, device=target, pin_memory=pinned and target == "cpu")
    other.copy_(one)
    context.synchronize()
    times: list[float] = []
    ends = time.monotonic() + seconds
    while len(times) < 3 or time.monotonic() < ends:
        started = time.perf_counter()
        other.copy_(one)
        context.synchronize()
        times.append(time.perf_counter() - started)
    return size / statistics.median(times) / 1e9
