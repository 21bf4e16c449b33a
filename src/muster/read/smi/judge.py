"""What the readings of one GPU mean. Pure: the same judgement serves text that was saved and live values.

The rules, with their reasons:
- A row that waits to be remapped needs a reset when the GPU is idle; spare rows are there for that. A remap that
  failed, memory beyond repair, or banks without any spare row left call for replacement (NVIDIA GPU memory error
  management: row remapping failure is a condition for return).
- SRAM has no spare rows. The driver's own flag `SRAM Threshold Exceeded` decides; where it is not told, a count over
  the life of the GPU above `sram_uncorrectable_limit` does, with less confidence (a rule of thumb).
- Corrected errors are no fault. Lifetime counts of DRAM errors alone are history.
- The recovery action is the driver's direct statement of what the GPU needs and outranks every counter.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from muster.faults import catalogue
from muster.read.smi.clocks import settings, speed
from muster.read.smi.finding import GpuFinding, replace, warning, when_idle
from muster.read.smi.state import GpuReading
from muster.resources.fault import Hint, Scope, Severity


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Policy values. Four SRAM errors over life and 60 retired pages are the usual limits for replacement."""

    sram_uncorrectable: int = 4
    retired_pages: int = 60


def judge(gpu: GpuReading, limits: Limits = Limits()) -> tuple[GpuFinding, ...]:
    """Findings, what the driver itself asks for first."""
    return (*_recovery(gpu), *_memory(gpu, limits), *_trouble(gpu), *speed(gpu), *settings(gpu))


# ---------------------------------------------------------------- recovery action

_ACTION_WORDS = {
    "reset": "GPU Reset Required",
    "gpu reset": "GPU Reset Required",
    "reboot": "Node Reboot Required",
    "node reboot": "Node Reboot Required",
    "system reboot": "Node Reboot Required",
    "drain p2p": "Drain P2P",
    "drain and reset": "Drain and Reset",
    "drain p2p + reset": "Drain and Reset",
    "bus reset": "GPU Reset Required",
}
ACTION_NUMBERS = {0: "None", 1: "Reset", 2: "Reboot", 3: "Drain P2P", 4: "Drain and Reset"}
"""Values of `nvmlDeviceGpuRecoveryAction_t`."""


def _recovery(gpu: GpuReading) -> Iterator[GpuFinding]:
    told = (gpu.recovery_action or "").strip()
    action = told or ("Drain and Reset" if gpu.drain_and_reset else "Reset" if gpu.reset_required else "")
    if not action or action.casefold() in ("none", "0"):
        return
    known = catalogue.recovery_action(_ACTION_WORDS.get(action.casefold(), action))
    word = "-".join(action.casefold().replace("+", " ").split())
    yield GpuFinding(
        code="gpu-recovery-action",
        check="gpu-recovery-action",
        name=f"The driver asks for: {action}",
        severity=known.severity,
        scope=known.scope,
        hint=known.hint,
        reason=f"recovery-action-{word}",
        fields=("recovery_action", "reset_required", "drain_and_reset"),
        details={"recovery_action": word},
        next=_ACTION_ADVICE.get(known.text, ""),
    )


_ACTION_ADVICE = {
    "GPU Reset Required": "Drain the work off {gpu} and reset it; reboot the node if the reset fails.",
    "Drain and Reset": "Let the work on {gpu} end, put nothing new on it, then reset it.",
    "Drain P2P": "End the jobs that use peer-to-peer traffic of {gpu}, then look at the recovery action again.",
    "Node Reboot Required": "Take the node out of service and reboot it.",
}

# ---------------------------------------------------------------- memory


def _memory(gpu: GpuReading, limits: Limits) -> Iterator[GpuFinding]:
    yield from _beyond_repair(gpu)
    yield from _sram(gpu, limits)
    yield from _pages(gpu, limits)
    pending = bool(gpu.remap_pending or gpu.channel_repair_pending or gpu.tpc_repair_pending)
    dead = bool(gpu.remap_failure or gpu.unrepairable_memory)
    if pending and not dead:
        yield _pending(gpu)
    fresh = gpu.dram_uncorrectable.volatile or 0
    if fresh and not pending and not dead and not gpu.retired_pending:
        yield warning(
            "dram-uncorrectable",
            "ecc",
            f"{fresh} uncorrectable DRAM error(s) since the last reset",
            ("dram_uncorrectable.volatile",),
            {"volatile": fresh, "aggregate": gpu.dram_uncorrectable.aggregate},
            "Look at the kernel log for Xid 48, 63, 64, 94 or 95 of {gpu}; reset it when it is idle.",
        )
    total = gpu.uncorrectable_total.volatile or 0
    if total and not gpu.dram_uncorrectable.told and not gpu.sram_uncorrectable.told and not pending and not dead:
        yield warning(
            "ecc-uncorrectable",
            "ecc",
            f"{total} uncorrectable memory error(s) since the last reset",
            ("uncorrectable_total.volatile",),
            {"volatile": total, "aggregate": gpu.uncorrectable_total.aggregate},
            "Read `nvidia-smi -q -d ECC,ROW_REMAPPER` of {gpu}: which memory it was and whether a repair is pending.",
        )


def _beyond_repair(gpu: GpuReading) -> Iterator[GpuFinding]:
    without = gpu.banks.get("none", 0)
    details = {"banks_without_spare": without} if gpu.banks else {}
    if gpu.remap_failure:
        yield replace(
            "row-remap-failed", "row-remap", "A memory row could not be remapped", ("remap_failure",), details
        )
    elif gpu.unrepairable_memory:
        yield replace(
            "memory-unrepairable", "row-remap", "Memory is beyond repair", ("unrepairable_memory",), details
        )
    elif without:
        yield replace(
            "row-remap-exhausted",
            "row-remap",
            f"{without} memory bank(s) have no spare row left",
            ("banks.none",),
            details,
            severity=Severity.WARNING,
        )


def _sram(gpu: GpuReading, limits: Limits) -> Iterator[GpuFinding]:
    fresh, life = gpu.sram_uncorrectable.volatile, gpu.sram_uncorrectable.aggregate
    counts = {"volatile": fresh, "aggregate": life}
    fields = (
        "sram_threshold_exceeded",
        "sram_uncorrectable",
        "sram_uncorrectable_parity",
        "sram_uncorrectable_secded",
    )
    if gpu.sram_threshold_exceeded:
        yield replace(
            "sram-uncorrectable",
            "ecc",
            "The driver says that SRAM errors exceed the limit for replacement",
            fields,
            {**counts, "told_by": "driver"},
            reason="sram-threshold-exceeded",
        )
    elif gpu.sram_threshold_exceeded is None and life is not None and life > limits.sram_uncorrectable:
        yield replace(
            "sram-uncorrectable",
            "ecc",
            f"{life} uncorrectable SRAM errors over the life of the GPU, more than {limits.sram_uncorrectable}",
            fields,
            {**counts, "limit": limits.sram_uncorrectable, "told_by": "limit"},
            reason="sram-uncorrectable-limit",
            confidence="low",
        )
    elif fresh:
        yield warning(
            "sram-uncorrectable",
            "ecc",
            f"{fresh} uncorrectable SRAM error(s) since the last reset",
            fields,
            counts,
            "Reset {gpu} when it is idle and watch the SRAM count: SRAM has no spare rows, so an error that"
            " comes back means replacement.",
        )


def _pages(gpu: GpuReading, limits: Limits) -> Iterator[GpuFinding]:
    retired = (gpu.retired_single_bit or 0) + (gpu.retired_double_bit or 0)
    if retired >= limits.retired_pages:
        yield replace(
            "retired-pages-limit",
            "page-retirement",
            f"{retired} retired memory pages; {limits.retired_pages} are the limit",
            ("retired_single_bit", "retired_double_bit"),
            {"retired_pages": retired},
        )
    if gpu.retired_pending:
        yield when_idle(
            "page-retirement-pending", "page-retirement", "A memory page waits to be retired", "retired_pending"
        )


def _pending(gpu: GpuReading) -> GpuFinding:
    if gpu.remap_pending:
        return when_idle("row-remap-pending", "row-remap", "A memory row waits to be remapped", "remap_pending")
    name = "channel_repair_pending" if gpu.channel_repair_pending else "tpc_repair_pending"
    what = "A memory channel" if gpu.channel_repair_pending else "A processing cluster (TPC)"
    return when_idle("repair-pending", "row-remap", f"{what} waits to be repaired", name)


# ---------------------------------------------------------------- readings that fail


def _trouble(gpu: GpuReading) -> Iterator[GpuFinding]:
    kinds = set(gpu.trouble.values())
    fields = tuple(gpu.trouble)
    if "lost" in kinds:
        yield GpuFinding(
            code="gpu-lost",
            check="gpu-lost",
            name="The driver has lost the GPU",
            severity=Severity.FATAL,
            scope=Scope.GPU,
            hint=Hint.REBOOT,
            reason="gpu-lost",
            fields=fields,
        )
    elif "reset-required" in kinds:
        if not (gpu.recovery_action and gpu.recovery_action.casefold() != "none"):
            yield GpuFinding(
                code="gpu-reset-required",
                check="gpu-recovery-action",
                name="The GPU answers nothing until it is reset",
                severity=Severity.FATAL,
                scope=Scope.GPU,
                hint=Hint.RESET_GPU,
                reason="gpu-reset-required",
                fields=fields,
            )
    elif "failed" in kinds:
        yield _failed(tuple(name for name in fields if gpu.trouble[name] == "failed"), gpu.silent)
    elif "blocked" in kinds:
        yield warning(
            "gpu-readings-blocked",
            "gpu-unreadable",
            f"{len(fields)} reading(s) of the GPU may not be read by this user",
            fields,
            {"blocked": list(fields)},
            "Read them as root or outside the container; nothing is known of {gpu} meanwhile.",
        )


_LIVE = ("temperature", "performance_state", "utilization", "power", "uncorrectable_total.volatile")
"""Readings that a working GPU always gives (an error count: always or never)."""


def _failed(fields: tuple[str, ...], silent: bool) -> GpuFinding:
    """One reading that fails is a nuisance; when all of them do, nobody can use the GPU. `silent`: no other came."""
    if sum(1 for name in fields if name in _LIVE) >= 3 or (silent and len(fields) >= 3):
        return GpuFinding(
            code="gpu-unreadable",
            check="gpu-unreadable",
            name="The driver reads nothing from the GPU any more",
            severity=Severity.FATAL,
            scope=Scope.GPU,
            hint=Hint.RESET_GPU,
            reason="gpu-unreadable",
            fields=fields,
            details={"failed": list(fields)},
            confidence="low",
        )
    return warning(
        "gpu-unreadable",
        "gpu-unreadable",
        f"{len(fields)} reading(s) of the GPU fail",
        fields,
        {"failed": list(fields)},
        "Look for an Xid of {gpu} in the kernel log and at its recovery action; what fails is unknown, not zero.",
    )
