"""From the cells of one GPU to its typed reading."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from muster.read import pci
from muster.read.smi import cells
from muster.read.smi.cells import Cell
from muster.read.smi.state import Counts, GpuReading

_FLAGS = (
    "ecc_enabled",
    "ecc_pending",
    "sram_threshold_exceeded",
    "channel_repair_pending",
    "tpc_repair_pending",
    "unrepairable_memory",
    "remap_pending",
    "remap_failure",
    "retired_pending",
    "reset_required",
    "drain_and_reset",
    "mig_enabled",
    "mig_pending",
)
_NUMBERS = (
    "index",
    "remapped_correctable",
    "remapped_uncorrectable",
    "retired_single_bit",
    "retired_double_bit",
    "last_xid",
)
_WORDS = ("name", "uuid", "fabric_state", "fabric_status", "performance_state")


def reading_of(found: Mapping[str, Cell]) -> GpuReading:
    """The reading of one GPU. A cell that cannot be read is None, and kept under `trouble` if it tells an error."""
    text = {name: cell.text for name, cell in found.items()}
    values: dict[str, Any] = {name: cells.yes_no(text[name]) for name in _FLAGS if name in text}
    values |= {name: cells.whole(text[name]) for name in _NUMBERS if name in text}
    values |= {name: cells.words(text[name]) for name in _WORDS if name in text}
    values["recovery_action"] = _action(text)
    values["pci"] = pci.normalise(text["pci"]) if "pci" in text else None
    for memory in ("sram", "dram"):
        for kind in ("correctable", "uncorrectable"):
            values[f"{memory}_{kind}"] = _counts(text, f"{memory}_{kind}")
    values["uncorrectable_total"] = _counts(text, "uncorrectable_total")
    values["banks"] = _group(text, "banks.", cells.whole)
    values["fabric_health"] = _group(text, "fabric_health.", cells.words)
    active = [n.removeprefix("slowdown.") for n, t in text.items() if n.startswith("slowdown.") and cells.yes_no(t)]
    values["slowdowns"] = tuple(sorted({*active, *_mask(text.get("slowdown_mask", ""))}))
    for name, source in (("temperature_c", "temperature"), ("slowdown_temperature_c", "slowdown_temperature")):
        values[name] = cells.number(text.get(source, ""))
    values["utilization_percent"] = cells.number(text.get("utilization", ""))
    for name in ("pcie_gen", "pcie_gen_max"):
        values[name] = cells.generation(text.get(name, ""))
    for name in ("pcie_width", "pcie_width_max"):
        values[name] = cells.width(text.get(name, ""))
    wrong = {name: cells.trouble(told) for name, told in sorted(text.items())}
    values["trouble"] = {name: kind for name, kind in wrong.items() if kind is not None}
    return GpuReading(**values)


_BITS = {0x4: "sw-power-cap", 0x8: "hw", 0x20: "sw-thermal", 0x40: "hw-thermal", 0x80: "hw-power-brake"}
"""Bits of `nvmlClocksEventReasons` that are judged; idle, application clocks and sync boost are not."""


def _mask(text: str) -> tuple[str, ...]:
    """`0x0000000000000048`, or the same number in decimal as DCGM writes it."""
    told = cells.bare(text).casefold()
    digits = told.removeprefix("0x")
    if len(digits) > 20 or not digits or any(c not in "0123456789abcdef" for c in digits):
        return ()
    if not told.startswith("0x") and not digits.isdecimal():
        return ()
    number = int(digits, 16 if told.startswith("0x") else 10)
    return tuple(word for bit, word in _BITS.items() if number & bit)


def _action(text: Mapping[str, str]) -> str | None:
    """The word `None` is an answer here: the driver asks for nothing."""
    told = cells.bare(text.get("recovery_action", ""))[:80]
    if cells.is_nothing(told) or cells.trouble(told) not in (None, "reset-required"):
        return None
    return told


def _counts(text: Mapping[str, str], name: str) -> Counts:
    return Counts(volatile=_count(text, name, "volatile"), aggregate=_count(text, name, "aggregate"))


def _count(text: Mapping[str, str], name: str, span: str) -> int | None:
    direct = cells.whole(text.get(f"{name}.{span}", ""))
    if direct is not None or name != "sram_uncorrectable":
        return direct
    parts = [cells.whole(text.get(f"{name}_{part}.{span}", "")) for part in ("parity", "secded")]
    told = [part for part in parts if part is not None]
    if told:
        return sum(told)
    # GPUs before Ampere: a table of units with a total; all but the device memory is SRAM.
    total, device = (cells.whole(text.get(f"{n}.{span}", "")) for n in ("uncorrectable_total", "dram_uncorrectable"))
    return total - device if total is not None and device is not None and total >= device else None


def _group(text: Mapping[str, str], stem: str, read: Any) -> dict[str, Any]:
    group = {name.removeprefix(stem): read(value) for name, value in text.items() if name.startswith(stem)}
    return {name: value for name, value in group.items() if value is not None}
