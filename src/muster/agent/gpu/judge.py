"""From a sample of the GPUs to what is wrong with them. Pure.

Growth counts and never the value of a counter: a new agent on an old node finds nothing. What a GPU does not tell is
no finding. A state that may pass by itself (throttle, rate, downgrade) is told after some looks in a row.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

import msgspec

from muster.agent.gpu.config import GpuConfig
from muster.agent.gpu.ledger import Ledger
from muster.agent.gpu.links import judge_links
from muster.agent.gpu.sample import GpuSample, Sample
from muster.agent.gpu.state import GpuState, Known
from muster.agent.monitor import Look
from muster.faults import catalogue
from muster.resources.fault import Entity, EntityKind, Severity

THERMAL, POWER_BRAKE, HW_SLOWDOWN = 0x40, 0x80, 0x08
"""Clocks event reasons of NVML. 0x04 (power cap) and 0x20 (software thermal) are normal work."""
FABRIC_NONE, FABRIC_COMPLETED = 0, 3
_ACTIONS = {
    0: "None",
    1: "GPU Reset Required",
    2: "Node Reboot Required",
    3: "Drain P2P",
    4: "Drain and Reset",
    5: "Recover IMEX Domain",
    6: "GPU Reset Required",
    7: "Node Reboot Required",
}
"""NVML's recovery actions by the words of XID 154; 6 is a reset over the bus, 7 one of the whole system."""
STUCK_LOOKS = 3
"""So many times as many looks as for a warning: four to five minutes with the intervals of the configuration."""
_MAX_UNKNOWN = 8
NODE = Entity(kind=EntityKind.NODE)


def judge(
    config: GpuConfig, before: GpuState, sample: Sample, boot_id: str, bus_gpus: int, now: datetime
) -> tuple[GpuState, Look]:
    """What the sample says after `before`. `bus_gpus`: GPUs that the node's own files show, whatever NVML says."""
    ledger = Ledger(config, before, boot_id, now)
    unknown: list[str] = []
    if sample.failure:
        if not (sample.absent and not before.most and not bus_gpus and not config.expected_count):
            unknown.append(sample.failure)
    else:
        ledger.tell("nvml-hang", NODE, True)
    named = _named(sample.gpus, before.known)
    for gpu in named:
        unknown += [f"{name} of GPU {gpu.index}: {why}" for name, why in sorted(gpu.errors.items())]
        if gpu.uuid:
            _judge_gpu(ledger, gpu)
    most, known = before.most, before.known
    if sample.complete:
        most, known = _judge_presence(ledger, named, before)
    more = [f"and {len(unknown) - _MAX_UNKNOWN} more"] if len(unknown) > _MAX_UNKNOWN else []
    look = Look(
        sightings=tuple(ledger.sightings),
        probes=tuple(ledger.probes),
        unknown=(*unknown[:_MAX_UNKNOWN], *more),
    )
    return ledger.after(most, known, [gpu.uuid for gpu in named], keep_others=not sample.complete), look


def _named(gpus: Iterable[GpuSample], known: tuple[Known, ...]) -> list[GpuSample]:
    """A GPU that is too far gone to tell its name gets the one that stood at its address, or had its number."""
    named = []
    gpus = list(gpus)
    taken = {gpu.uuid for gpu in gpus if gpu.uuid}
    for gpu in gpus:
        if not gpu.uuid:
            free = [k for k in known if k.uuid not in taken]
            same = next((k for k in free if gpu.pci and k.pci == gpu.pci), None)
            same = same or next((k for k in free if not gpu.pci and k.index == gpu.index), None)
            if same is not None:
                taken.add(same.uuid)
                gpu = msgspec.structs.replace(gpu, uuid=same.uuid, pci=gpu.pci or same.pci)
        named.append(gpu)
    return named


def _judge_presence(ledger: Ledger, gpus: list[GpuSample], before: GpuState) -> tuple[int, tuple[Known, ...]]:
    """Count and identity. Returns the most GPUs seen, and the GPUs to know from now on."""
    listed = [gpu for gpu in gpus if gpu.uuid]
    expected = ledger.config.expected_count or max(before.most, len(gpus))
    uuids = {gpu.uuid for gpu in listed}
    missing = [known for known in before.known if known.uuid not in uuids]
    whole = len(gpus) >= expected
    places = ", ".join(f"{k.uuid} at {k.pci}" if k.pci else k.uuid for k in missing[:8])
    message = f"{len(gpus)} of {expected} GPUs answer" + (f"; missing: {places}" if places else "")
    ledger.tell("gpu-missing", NODE, whole, message)
    at = {known.pci: known.uuid for known in missing if known.pci}
    for gpu in listed:
        if gpu.pci in at and not gpu.lost:
            ledger.happened(
                "gpu-swapped", gpu_entity(gpu), f"{gpu.uuid} stands where {at[gpu.pci]} was", {"before": at[gpu.pci]}
            )
    nameless = len(listed) < len(gpus)
    now_known = {} if whole and not nameless else {k.uuid: k for k in before.known}
    now_known |= {g.uuid: Known(uuid=g.uuid, pci=g.pci, index=g.index) for g in listed}
    if not whole:
        # What stands at an address now has taken the place of what stood there.
        here = {gpu.pci for gpu in listed if gpu.pci}
        now_known = {u: k for u, k in now_known.items() if u in uuids or k.pci not in here}
    return max(before.most, len(gpus)), tuple(now_known[uuid] for uuid in sorted(now_known))


def gpu_entity(gpu: GpuSample) -> Entity:
    return Entity(kind=EntityKind.GPU, uuid=gpu.uuid, pci=gpu.pci or None, index=gpu.index)


def _judge_gpu(ledger: Ledger, gpu: GpuSample) -> None:
    entity = gpu_entity(gpu)
    ledger.tell("gpu-lost", entity, not gpu.lost, "NVML says that the GPU is lost")
    if gpu.lost:
        return
    ledger.tell("gpu-reset-required", entity, not gpu.reset_required, "NVML asks for a reset before it answers")
    if gpu.reset_required:
        return
    _memory(ledger, gpu, entity)
    _heat(ledger, gpu, entity)
    _pcie(ledger, gpu, entity)
    _setup(ledger, gpu, entity)
    _recovery(ledger, gpu, entity)
    _fabric(ledger, gpu, entity)
    judge_links(ledger, gpu, entity)


def _memory(ledger: Ledger, gpu: GpuSample, entity: Entity) -> None:
    for code, name, value in (
        ("gpu-ecc-uncorrected", "ecc_uncorrected", gpu.ecc_uncorrected),
        ("gpu-sram-uncorrected", "sram_uncorrected", gpu.sram_uncorrected),
    ):
        if value is None:
            continue
        growth = ledger.growth(f"{gpu.uuid}/{name}", value, anew=True)
        if growth is not None and growth.by > 0:
            ledger.happened(code, entity, f"{growth.by} new errors, {value} since the last reset", count=growth.by)
        elif value == 0:
            ledger.tell(code, entity, True)  # the counter began anew: the GPU was reset and is clean
    if gpu.ecc_corrected is not None:
        growth = ledger.growth(f"{gpu.uuid}/ecc_corrected", gpu.ecc_corrected)
        if growth is None:
            ledger.no_rate("gpu-ecc-corrected-storm", entity, f"{gpu.uuid}/ecc_corrected")
        else:
            rate = growth.per_s * 3600
            bad = rate > ledger.config.ecc_corrected_per_hour
            ledger.tell_lasting("gpu-ecc-corrected-storm", entity, bad, f"{rate:.0f} corrected errors an hour")
    ledger.tell_flag("gpu-sram-threshold", entity, gpu.sram_threshold)
    ledger.tell_flag("gpu-remap-pending", entity, gpu.remap_pending)
    ledger.tell_flag("gpu-remap-failed", entity, gpu.remap_failed)
    ledger.tell_flag("gpu-pages-pending", entity, gpu.pages_pending)


def _heat(ledger: Ledger, gpu: GpuSample, entity: Entity) -> None:
    if gpu.throttle is not None:
        bits = gpu.throttle
        words = f"clocks event reasons 0x{bits:x}"
        ledger.tell_lasting("gpu-thermal-throttle", entity, bool(bits & THERMAL), words)
        ledger.tell_lasting("gpu-power-brake", entity, bool(bits & POWER_BRAKE), words)
        other = bool(bits & HW_SLOWDOWN) and not bits & (THERMAL | POWER_BRAKE)
        ledger.tell_lasting("gpu-hw-slowdown", entity, other, words)
    margin = gpu.margin_c
    if margin is None and gpu.temperature_c is not None and gpu.slowdown_c:
        margin = gpu.slowdown_c - gpu.temperature_c
    if margin is not None:
        hot = margin <= ledger.config.thermal_margin_c
        now = f"{gpu.temperature_c:g} C, " if gpu.temperature_c is not None else ""
        ledger.tell_lasting("gpu-temperature", entity, hot, f"{now}{margin:g} C below the slowdown temperature")


def _pcie(ledger: Ledger, gpu: GpuSample, entity: Entity) -> None:
    if gpu.pcie_width and gpu.pcie_max_width:
        words = f"x{gpu.pcie_width} of x{gpu.pcie_max_width}"
        ledger.tell("gpu-pcie-width", entity, gpu.pcie_width >= gpu.pcie_max_width, words)
    if gpu.pcie_generation and gpu.pcie_max_generation:
        slow = gpu.pcie_generation < gpu.pcie_max_generation
        busy = gpu.busy_percent is not None and gpu.busy_percent >= ledger.config.busy_percent
        if busy or not slow:
            words = (
                f"generation {gpu.pcie_generation} of {gpu.pcie_max_generation} at {gpu.busy_percent or 0:g} % load"
            )
            ledger.tell_lasting("gpu-pcie-generation", entity, slow, words)
    if gpu.pcie_replays is not None:
        growth = ledger.growth(f"{gpu.uuid}/pcie_replays", gpu.pcie_replays)
        if growth is None:
            ledger.no_rate("gpu-pcie-replays", entity, f"{gpu.uuid}/pcie_replays")
        else:
            rate = growth.per_s * 60
            bad = rate > ledger.config.pcie_replays_per_minute
            ledger.tell_lasting("gpu-pcie-replays", entity, bad, f"{rate:.0f} replays a minute")


def _setup(ledger: Ledger, gpu: GpuSample, entity: Entity) -> None:
    ledger.tell_flag("gpu-inforom-corrupted", entity, gpu.inforom_corrupted)
    if gpu.persistence is not None:
        ledger.tell("gpu-persistence-off", entity, gpu.persistence)
    if gpu.ecc_mode is not None and gpu.ecc_pending is not None:
        words = f"ECC will be {'on' if gpu.ecc_pending else 'off'} after the next reset"
        ledger.tell("gpu-ecc-mode-pending", entity, gpu.ecc_mode == gpu.ecc_pending, words)
    if gpu.xid:
        growth = ledger.growth(f"{gpu.uuid}/xid", gpu.xid)
        if growth is not None and growth.by != 0:
            ledger.xid(gpu.xid, entity)
    elif gpu.xid is not None:
        ledger.growth(f"{gpu.uuid}/xid", 0)


def _recovery(ledger: Ledger, gpu: GpuSample, entity: Entity) -> None:
    if gpu.recovery_action is None:
        return
    action = catalogue.recovery_action(_ACTIONS.get(gpu.recovery_action, f"action {gpu.recovery_action}"))
    none = gpu.recovery_action == 0
    # Another node's IMEX trouble asks for nothing here: it is told, and it is no reason to hold this node.
    words = f"the driver asks for: {action.text}"
    judged = None if none else (action.severity, action.scope, action.hint)
    ledger.tell("gpu-recovery-action", entity, none, words, judged)


def _fabric(ledger: Ledger, gpu: GpuSample, entity: Entity) -> None:
    """Registration and health of the GPU in the fabric. A GPU without partition, or without a manager, is idle."""
    if not gpu.fabric_state:
        return
    completed = gpu.fabric_state == FABRIC_COMPLETED
    failed = completed and bool(gpu.fabric_status)
    words = f"registration ended with error {gpu.fabric_status}" if failed else "the registration is not completed"
    ledger.tell_lasting("gpu-fabric-state", entity, failed or not completed, words)
    if completed and gpu.fabric_health:
        troubles = fabric_troubles(gpu.fabric_health)
        ledger.tell_lasting("gpu-fabric-health", entity, bool(troubles), ", ".join(troubles))


_CONFIGURATION = {
    2: "wrong system GUID",
    3: "wrong chassis serial number",
    5: "too few NVLinks",
    6: "GPU firmware does not fit",
    7: "invalid location",
    8: "GPU in an invalid state",
}
"""Values of the mask's field for configuration; 4 (no partition) is normal for a GPU that is not given out."""


def fabric_troubles(mask: int) -> list[str]:
    """What the health mask of the fabric complains about; fields that say not supported or fine are left out."""
    found = []
    if mask & 0x3 == 1:
        found.append("degraded bandwidth")
    if mask >> 4 & 0x3 == 1:
        found.append("unhealthy route")
    wrong = _CONFIGURATION.get(mask >> 8 & 0xF)
    if wrong is not None:
        found.append(wrong)
    return found


def hang(config: GpuConfig, before: GpuState, sample: Sample, misses: int, boot_id: str, now: datetime) -> Look:
    """NVML missed its deadline `misses` times in a row.

    Once or twice is unknown. From the third time on it is a warning: whoever starts work there will wait as well. It
    is fatal only with a proof from the kernel: a process that asked cannot be ended, so the driver itself is stuck
    and only a reboot helps. A driver that resets GPUs or is loaded anew holds processes as well, for a minute or two,
    so the proof has to last.
    """
    ledger = Ledger(config, before, boot_id, now)
    if misses >= config.looks:
        stuck = f"; {sample.stuck} processes hang in the kernel and cannot be ended" if sample.stuck else ""
        row = catalogue.condition("nvml-hang")
        severity = Severity.FATAL if sample.stuck and misses >= STUCK_LOOKS * config.looks else row.severity
        ledger.tell("nvml-hang", NODE, False, f"{sample.failure}{stuck}", (severity, row.scope, row.hint))
    return Look(probes=tuple(ledger.probes), unknown=(sample.failure,))
