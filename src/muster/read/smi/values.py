"""Readings as named values. One GPU: the reading itself; several: a map by the GPU's number or address."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from muster.read.report import Value
from muster.read.smi.fabric import FabricState
from muster.read.smi.judge import Limits
from muster.read.smi.picture import Gpu, Picture
from muster.read.smi.state import Counts, GpuReading

_BANKS = ("max", "high", "partial", "low", "none")
_COUNTS = ("sram_correctable", "sram_uncorrectable", "dram_correctable", "dram_uncorrectable")
_SIMPLE: tuple[tuple[str, str, str, str | None], ...] = (
    ("ecc_enabled", "ecc_enabled", "ecc_enabled", None),
    ("remapped_rows_correctable", "remapped_correctable", "remapped_correctable", None),
    ("remapped_rows_uncorrectable", "remapped_uncorrectable", "remapped_uncorrectable", None),
    ("remap_pending", "remap_pending", "remap_pending", None),
    ("remap_failure", "remap_failure", "remap_failure", None),
    ("retired_pages_single_bit", "retired_single_bit", "retired_single_bit", None),
    ("retired_pages_double_bit", "retired_double_bit", "retired_double_bit", None),
    ("retired_pages_pending", "retired_pending", "retired_pending", None),
    ("sram_threshold_exceeded", "sram_threshold_exceeded", "sram_threshold_exceeded", None),
    ("channel_repair_pending", "channel_repair_pending", "channel_repair_pending", None),
    ("tpc_repair_pending", "tpc_repair_pending", "tpc_repair_pending", None),
    ("unrepairable_memory", "unrepairable_memory", "unrepairable_memory", None),
    ("uncorrectable_errors", "uncorrectable_total.volatile", "", None),
    ("mig_enabled", "mig_enabled", "mig_enabled", None),
    ("performance_state", "performance_state", "performance_state", None),
    ("temperature", "temperature", "temperature_c", "C"),
    ("pcie_generation", "pcie_gen", "pcie_gen", None),
    ("pcie_width", "pcie_width", "pcie_width", "lanes"),
    ("last_xid", "last_xid", "last_xid", None),
    ("nvlink_peers", "nvlink_peers", "", None),
)
"""(name of the value, cell that must be there, attribute of the reading or empty, unit)."""


def key_of(gpu: Gpu, reading: GpuReading) -> int | str:
    """How a map of values names the GPU."""
    if gpu.index_told and reading.index is not None:
        return reading.index
    return reading.pci or (reading.index if reading.index is not None else reading.uuid or "-")


def of_picture(
    picture: Picture, readings: Sequence[GpuReading], fabric: FabricState, limits: Limits
) -> dict[str, Value]:
    """All values of one picture, in a fixed order."""
    values: dict[str, Value] = {}
    for name in ("driver_version", "cuda_version"):
        if name in picture.node:
            values[name] = Value(picture.node[name].text)
    if picture.attached is not None:
        values["attached_gpus"] = Value(picture.attached)
    if picture.listed is not None:
        values["gpus_listed"] = Value(picture.listed)
    gpus = list(zip(picture.gpus, readings, strict=True))
    several = len(gpus) > 1
    for name, cell, attribute, unit in _SIMPLE:
        own = _reader(attribute, cell)
        values |= _one(
            name, [(g, r) for g, r in gpus if cell in g.cells], own, unit, always_map=several or name == "last_xid"
        )
    for name in _COUNTS:
        told = [(g, r) for g, r in gpus if _counts(r, name).told]
        values |= _one(name, told, _count_reader(name), None, always_map=several)
    if any(
        _counts(r, "sram_uncorrectable").aggregate is not None and r.sram_threshold_exceeded is None for r in readings
    ):
        more = {"comparison": "greater-than", "is": "policy-default" if limits == Limits() else "context"}
        values["sram_uncorrectable_limit"] = Value(limits.sram_uncorrectable, more=more)
    banks = [(g, r) for g, r in gpus if r.banks]
    values |= _one(
        "bank_remap_histogram", banks, lambda _, r: {n: r.banks.get(n) for n in _BANKS}, "banks", always_map=several
    )
    values |= _one("banks_total", banks, lambda _, r: sum(r.banks.values()), None, always_map=several)
    asked = [(g, r) for g, r in gpus if "recovery_action" in g.cells]
    values |= _one(
        "recovery_action", asked, lambda _, r: r.recovery_action, None, always_map=several or _numbered(asked)
    )
    values |= _slowdowns(gpus)
    values |= _fabric(gpus, fabric)
    if picture.processes is not None:
        values["gpu_processes"] = Value(picture.processes)
    return values


_Pairs = Sequence[tuple[Gpu, GpuReading]]


def _reader(attribute: str, cell: str) -> Callable[[Gpu, GpuReading], Any]:
    if attribute:
        return lambda _, reading: getattr(reading, attribute)
    return lambda gpu, _: int(gpu.cells[cell].text) if gpu.cells[cell].text.isdecimal() else None


def _count_reader(name: str) -> Callable[[Gpu, GpuReading], Any]:
    return lambda _, reading: _counts(reading, name).plain()


def _counts(reading: GpuReading, name: str) -> Counts:
    found: Counts = getattr(reading, name)
    return found


def _numbered(gpus: _Pairs) -> bool:
    return bool(gpus) and all(gpu.index_told for gpu, _ in gpus)


def _one(
    name: str, gpus: _Pairs, read: Callable[[Gpu, GpuReading], Any], unit: str | None, *, always_map: bool = False
) -> dict[str, Value]:
    if not gpus:
        return {}
    if len(gpus) == 1 and not always_map:
        return {name: Value(read(*gpus[0]), unit)}
    return {name: Value({key_of(gpu, reading): read(gpu, reading) for gpu, reading in gpus}, unit)}


def _slowdowns(gpus: _Pairs) -> dict[str, Value]:
    told = [(g, r) for g, r in gpus if any(name.startswith("slowdown") for name in g.cells)]
    active = {key_of(g, r): list(r.slowdowns) for g, r in told if r.slowdowns}
    return {"slowdowns": Value(active)} if told else {}


def _fabric(gpus: _Pairs, fabric: FabricState) -> dict[str, Value]:
    values: dict[str, Value] = {}
    if any("fabric_state" in gpu.cells for gpu, _ in gpus):
        values["fabric_state"] = Value(dict(fabric.states) or None)
    if any("fabric_status" in gpu.cells for gpu, _ in gpus):
        words = sorted({r.fabric_status for _, r in gpus if r.fabric_status is not None})
        counted = {word: sum(1 for _, r in gpus if r.fabric_status == word) for word in words}
        values["fabric_status"] = Value(counted or None)
    return values
