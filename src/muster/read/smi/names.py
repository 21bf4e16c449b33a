"""Names of the readings: what `nvidia-smi` calls them in text, XML and CSV, each mapped to one name of ours.

Driver families move and rename sections: `Clocks Throttle Reasons` became `Clocks Event Reasons` (535), SRAM
uncorrectable errors are split into parity and SEC-DED (550), `GPU Reset Status` became `GPU Recovery Action` (565).
Names in text and XML are compared as paths of lower-case words, longest known end first, so that an excerpt that
has lost its outer sections is read all the same.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

_NOT_A_WORD = re.compile(r"[^a-z0-9]+")
_UNIT = re.compile(r"\[[^\]]{0,20}\]\s*$")

_PATHS: Mapping[str, tuple[str, ...]] = {
    "index": ("index",),
    "pci": ("pci_bus_id", "bus_id", "gpu_bus_id"),
    "uuid": ("gpu_uuid", "uuid"),
    "name": ("product_name",),
    "ecc_enabled": ("ecc_mode/current", "ecc_mode/current_ecc", "current_ecc"),
    "ecc_pending": ("ecc_mode/pending", "ecc_mode/pending_ecc", "pending_ecc"),
    "sram_threshold_exceeded": ("sram_threshold_exceeded",),
    "channel_repair_pending": ("channel_repair_pending",),
    "tpc_repair_pending": ("tpc_repair_pending",),
    "unrepairable_memory": ("unrepairable_memory",),
    "remapped_correctable": ("remapped_rows/correctable_error", "remapped_row_corr"),
    "remapped_uncorrectable": ("remapped_rows/uncorrectable_error", "remapped_row_unc"),
    "remap_pending": ("remapped_rows/pending", "remapped_row_pending"),
    "remap_failure": ("remapping_failure_occurred", "remapped_row_failure"),
    "retired_single_bit": ("retired_pages/single_bit_ecc", "multiple_single_bit_retirement/retired_count"),
    "retired_double_bit": ("retired_pages/double_bit_ecc", "double_bit_retirement/retired_count"),
    "retired_pending": (
        "pending_page_blacklist",
        "pending_page_retirement",
        "pending_blacklist",
        "pending_retirement",
    ),
    "recovery_action": ("gpu_recovery_action", "recovery_action"),
    "reset_required": ("gpu_reset_status/reset_required", "reset_required"),
    "drain_and_reset": ("drain_and_reset_recommended",),
    "fabric_state": ("fabric/state",),
    "fabric_status": ("fabric/status",),
    "performance_state": ("performance_state",),
    "temperature": ("gpu_current_temp", "gpu_temp"),
    "slowdown_temperature": ("gpu_slowdown_temp", "gpu_temp_slow_threshold"),
    "utilization": ("utilization/gpu", "utilization/gpu_util"),
    "pcie_gen": ("pcie_generation/current", "pcie_gen/current_link_gen"),
    "pcie_gen_max": ("pcie_generation/max", "pcie_gen/max_link_gen"),
    "pcie_width": ("link_width/current", "link_widths/current_link_width"),
    "pcie_width_max": ("link_width/max", "link_widths/max_link_width"),
    "mig_enabled": ("mig_mode/current", "current_mig"),
    "mig_pending": ("mig_mode/pending", "pending_mig"),
    "cuda_version": ("cuda_version",),
    "driver_version": ("driver_version",),
    "attached_gpus": ("attached_gpus",),
    "timestamp": ("timestamp",),
}
_SLOWDOWNS = {
    "hw_thermal_slowdown": "hw-thermal",
    "hw_power_brake_slowdown": "hw-power-brake",
    "hw_power_brake": "hw-power-brake",
    "hw_slowdown": "hw",
    "sw_thermal_slowdown": "sw-thermal",
    "sw_power_cap": "sw-power-cap",
}
_FABRIC_HEALTH = (
    "summary",
    "bandwidth",
    "route_recovery_in_progress",
    "route_unhealthy",
    "access_timeout_recovery",
    "incorrect_configuration",
)
_BANKS = ("max", "high", "partial", "low", "none")
_SPANS = ("volatile", "aggregate")


def _tables() -> dict[str, str]:
    table = {path: field for field, paths in _PATHS.items() for path in paths}
    for word, reason in _SLOWDOWNS.items():
        table[word] = f"slowdown.{reason}"
        for stem in ("clocks_throttle_reason", "clocks_event_reason"):
            table[f"{stem}_{word}"] = f"slowdown.{reason}"
    # Under `HW Slowdown` the text output gives the two kinds of it.
    for part in _FABRIC_HEALTH:
        table[f"health/{part}"] = f"fabric_health.{part}"
    for bank in _BANKS:
        table[f"bank_remap_availability_histogram/{bank}"] = f"banks.{bank}"
        table[f"row_remapper_histogram_{bank}"] = f"banks.{bank}"
    for span in _SPANS:
        for memory in ("sram", "dram"):
            table[f"{span}/{memory}_correctable"] = f"{memory}_correctable.{span}"
            table[f"{span}/{memory}_uncorrectable"] = f"{memory}_uncorrectable.{span}"
        for part in ("parity", "sec_ded", "secded"):
            name = "parity" if part == "parity" else "secded"
            table[f"{span}/sram_uncorrectable_{part}"] = f"sram_uncorrectable_{name}.{span}"
        for bits, word in (("single_bit", "correctable"), ("double_bit", "uncorrectable")):
            table[f"{span}/{bits}/device_memory"] = f"dram_{word}.{span}"
            table[f"{span}/{bits}/total"] = f"{word}_total.{span}"
    return table


_TABLE = _tables()
_LONGEST = max(path.count("/") for path in _TABLE) + 1
_COUNTERS = "reasons_counters"
"""`Clocks Event Reasons Counters` hold times since boot under the same names; they are no present state."""

_COLUMNS: Mapping[str, str] = {
    "index": "index",
    "uuid": "uuid",
    "timestamp": "timestamp",
    "driver_version": "driver_version",
    "gpu_name": "name",
    "name": "name",
    "gpu_bus_id": "pci",
    "pci.bus_id": "pci",
    "gpu_uuid": "uuid",
    "ecc.mode.current": "ecc_enabled",
    "ecc.mode.pending": "ecc_pending",
    "ecc.errors.uncorrected.aggregate.sram.threshold_exceeded": "sram_threshold_exceeded",
    "gpu_recovery_action": "recovery_action",
    "reset_status.reset_required": "reset_required",
    "reset_status.drain_and_reset_recommended": "drain_and_reset",
    "retired_pages.single_bit_ecc.count": "retired_single_bit",
    "retired_pages.sbe": "retired_single_bit",
    "retired_pages.double_bit.count": "retired_double_bit",
    "retired_pages.dbe": "retired_double_bit",
    "retired_pages.pending": "retired_pending",
    "remapped_rows.correctable": "remapped_correctable",
    "remapped_rows.uncorrectable": "remapped_uncorrectable",
    "remapped_rows.pending": "remap_pending",
    "remapped_rows.failure": "remap_failure",
    "fabric.state": "fabric_state",
    "fabric.status": "fabric_status",
    "pstate": "performance_state",
    "temperature.gpu": "temperature",
    "utilization.gpu": "utilization",
    "pcie.link.gen.current": "pcie_gen",
    "pcie.link.gen.gpucurrent": "pcie_gen",
    "pcie.link.gen.max": "pcie_gen_max",
    "pcie.link.width.current": "pcie_width",
    "pcie.link.width.max": "pcie_width_max",
    "mig.mode.current": "mig_enabled",
    "mig.mode.pending": "mig_pending",
    "count": "attached_gpus",
}
_ECC_COLUMN = re.compile(
    r"ecc\.errors\.(?P<word>un)?corrected\.(?P<span>volatile|aggregate)\."
    r"(?P<part>device_memory|dram|sram|total|sram[._]parity|sram[._]sec[_-]?ded)"
)


def word(label: str) -> str:
    """`SRAM Uncorrectable SEC-DED` -> `sram_uncorrectable_sec_ded`."""
    return _NOT_A_WORD.sub("_", label.casefold()).strip("_")


def of_path(path: tuple[str, ...]) -> str | None:
    """Our name of a reading, from the words of its sections and its label (outermost first)."""
    if any(_COUNTERS in part for part in path[:-1]) or "processes" in path[:-1]:
        return None
    for length in range(min(_LONGEST, len(path)), 0, -1):
        found = _TABLE.get("/".join(path[-length:]))
        if found is not None:
            return found
    return None


def of_column(title: str) -> str | None:
    """Our name of a column of `--query-gpu`, `--query-remapped-rows` and the like. The unit does not matter."""
    name = _UNIT.sub("", title).strip().casefold()
    match = _ECC_COLUMN.fullmatch(name)
    if match is not None:
        stem = "uncorrectable" if match["word"] else "correctable"
        part = match["part"].replace(".", "_")
        if part == "total":
            return f"{stem}_total.{match['span']}"
        if part in ("device_memory", "dram"):
            return f"dram_{stem}.{match['span']}"
        kind = "" if part == "sram" else "_parity" if part.endswith("parity") else "_secded"
        return f"sram_{stem}{kind}.{match['span']}"
    for stem in ("clocks_throttle_reasons.", "clocks_event_reasons."):
        if name.startswith(stem):
            if name == f"{stem}active":
                return "slowdown_mask"
            reason = _SLOWDOWNS.get(name.removeprefix(stem))
            return f"slowdown.{reason}" if reason else None
    if name.startswith("remapped_rows.histogram."):
        bank = name.removeprefix("remapped_rows.histogram.")
        return f"banks.{bank}" if bank in _BANKS else None
    if name.startswith("fabric.health."):
        part = word(name.removeprefix("fabric.health."))
        return f"fabric_health.{part}" if part in _FABRIC_HEALTH else None
    return _COLUMNS.get(name)
