"""Writes outputs of `nvidia-smi` in the shapes of several driver families, from one description of the GPUs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

FAMILIES = ("470.199.02", "535.161.08", "550.90.07", "570.124.06", "580.95.05", "590.44.01")


@dataclass(frozen=True, kw_only=True)
class Card:
    """One GPU as the tool would show it."""

    pci: str
    uuid: str
    name: str = "NVIDIA H100 80GB HBM3"
    ecc: str = "Enabled"
    ecc_pending: str = "Enabled"
    sram: tuple[int, int] = (0, 0)
    """Uncorrectable SRAM errors: volatile, aggregate."""
    dram: tuple[int, int] = (0, 0)
    dram_corrected: tuple[int, int] = (0, 0)
    threshold: str = "No"
    channel_repair: str = "No"
    unrepairable: str = "No"
    remapped: tuple[int, int] = (0, 0)
    pending: str = "No"
    failure: str = "No"
    banks: tuple[int, int, int, int, int] = (2560, 0, 0, 0, 0)
    action: str = "None"
    fabric: tuple[str, str] = ("Completed", "Success")
    bandwidth: str = "Full"
    active: tuple[str, ...] = ("GPU idle",)
    temperature: str = "34 C"
    state: str = "P0"
    util: str = "0 %"
    generation: tuple[int, int] = (5, 5)
    lanes: tuple[int, int] = (16, 16)
    mig: tuple[str, str] = ("Disabled", "Disabled")

    def changed(self, **fields: Any) -> Card:
        return replace(self, **fields)


def node(count: int = 8) -> list[Card]:
    """Healthy GPUs with addresses of their own."""
    return [
        Card(pci=f"00000000:{0x18 + 9 * n:02X}:00.0", uuid=f"GPU-{n:08x}-1111-2222-3333-{n:012x}")
        for n in range(count)
    ]


@dataclass
class _Text:
    lines: list[str] = field(default_factory=list)
    step: int = 4
    column: int = 42

    def section(self, depth: int, label: str) -> None:
        self.lines.append(" " * self.step * depth + label)

    def entry(self, depth: int, label: str, value: object) -> None:
        left = " " * self.step * depth + label
        self.lines.append(f"{left:<{self.column}}: {value}")


def query_text(
    cards: Sequence[Card], driver: str = FAMILIES[4], *, step: int = 4, attached: int | None = None
) -> str:
    """`nvidia-smi -q` of a driver family, all sections that matter and some that do not."""
    major = int(driver.split(".")[0])
    out = _Text(["", "==============NVSMI LOG==============", ""], step=step, column=42 if major < 590 else 55)
    out.entry(0, "Timestamp", "Sat Feb 14 09:12:44 2026")
    out.entry(0, "Driver Version", driver)
    out.entry(0, "CUDA Version", "13.0")
    out.lines.append("")
    out.entry(0, "Attached GPUs", len(cards) if attached is None else attached)
    for number, card in enumerate(cards):
        _card(out, card, number, major)
    return "\n".join(out.lines) + "\n"


def _card(out: _Text, card: Card, number: int, major: int) -> None:
    out.section(0, f"GPU {card.pci}")
    for label, value in (
        ("Product Name", card.name),
        ("Product Brand", "NVIDIA"),
        ("Display Mode", "Enabled"),
        ("Persistence Mode", "Enabled"),
        ("Addressing Mode", "ATS"),
    ):
        out.entry(1, label, value)
    out.section(1, "MIG Mode")
    out.entry(2, "Current", card.mig[0])
    out.entry(2, "Pending", card.mig[1])
    out.entry(1, "Serial Number", "1652900000000")
    out.entry(1, "GPU UUID", card.uuid)
    out.entry(1, "Minor Number", number)
    out.section(1, "Inforom Version")
    out.entry(2, "ECC Object", "7.16")
    if 520 <= major < 560:
        out.section(1, "GPU Reset Status")
        out.entry(2, "Reset Required", "Yes" if card.action == "Reset" else "No")
        out.entry(2, "Drain and Reset Recommended", "Yes" if card.action == "Drain and Reset" else "No")
    elif major >= 560:
        out.section(1, "GPU Reset Status")
        out.entry(2, "Reset Required", "Requested functionality has been deprecated")
        out.entry(2, "Drain and Reset Recommended", "Requested functionality has been deprecated")
        out.entry(1, "GPU Recovery Action", card.action)
    out.section(1, "PCI")
    out.entry(2, "Bus Id", card.pci)
    out.section(2, "GPU Link Info")
    out.section(3, "PCIe Generation")
    out.entry(4, "Max", card.generation[1])
    out.entry(4, "Current", card.generation[0])
    out.section(3, "Link Width")
    out.entry(4, "Max", f"{card.lanes[1]}x")
    out.entry(4, "Current", f"{card.lanes[0]}x")
    out.entry(2, "Replay Number Rollovers", 0)
    out.entry(1, "Fan Speed", "N/A")
    out.entry(1, "Performance State", card.state)
    _clocks(out, card, major)
    out.section(1, "FB Memory Usage")
    out.entry(2, "Total", "81559 MiB")
    out.section(1, "Utilization")
    out.entry(2, "Gpu" if major < 575 else "GPU", card.util)
    out.section(1, "ECC Mode")
    out.entry(2, "Current", card.ecc)
    out.entry(2, "Pending", card.ecc_pending)
    _memory(out, card, major)
    out.section(1, "Temperature")
    out.entry(2, "GPU Current Temp", card.temperature)
    out.entry(2, "GPU Shutdown Temp", "N/A")
    if major >= 530:
        out.section(1, "Fabric")
        out.entry(2, "State", card.fabric[0])
        out.entry(2, "Status", card.fabric[1])
        if major >= 560:
            out.entry(2, "CliqueId", 0)
            out.entry(2, "ClusterUUID", "00000000-0000-0000-0000-000000000000")
            out.section(2, "Health")
            out.entry(3, "Bandwidth", card.bandwidth)
            out.entry(3, "Route Recovery in progress", "False")
    out.entry(1, "Processes", "None")
    if major >= 575:
        out.section(1, "Capabilities")
        out.entry(2, "EGM", "disabled")


def _clocks(out: _Text, card: Card, major: int) -> None:
    out.section(1, "Clocks Throttle Reasons" if major < 535 else "Clocks Event Reasons")
    for label, word in (
        ("Idle", "GPU idle"),
        ("SW Power Cap", "SW Power Cap"),
        ("HW Slowdown", "HW Slowdown"),
    ):
        out.entry(2, label, "Active" if word in card.active else "Not Active")
    for label in ("HW Thermal Slowdown", "HW Power Brake Slowdown"):
        out.entry(3, label, "Active" if label in card.active else "Not Active")
    out.entry(2, "SW Thermal Slowdown", "Active" if "SW Thermal Slowdown" in card.active else "Not Active")
    if major >= 570:
        out.section(1, "Clocks Event Reasons Counters")
        out.entry(2, "SW Power Capping", "61883 us")
        out.entry(2, "HW Thermal Slowdown", "120 us")
        out.entry(2, "HW Power Braking", "0 us")


def _memory(out: _Text, card: Card, major: int) -> None:
    out.section(1, "ECC Errors")
    for label, position in (("Volatile", 0), ("Aggregate", 1)):
        out.section(2, label)
        out.entry(3, "SRAM Correctable", 0)
        if major >= 550:
            out.entry(3, "SRAM Uncorrectable Parity", card.sram[position])
            out.entry(3, "SRAM Uncorrectable SEC-DED", 0)
        else:
            out.entry(3, "SRAM Uncorrectable", card.sram[position])
        out.entry(3, "DRAM Correctable", card.dram_corrected[position])
        out.entry(3, "DRAM Uncorrectable", card.dram[position])
    if major >= 550:
        out.entry(3, "SRAM Threshold Exceeded", card.threshold)
        out.section(2, "Aggregate Uncorrectable SRAM Sources")
        out.entry(3, "SRAM L2", card.sram[1])
        out.entry(3, "SRAM SM", 0)
    if major >= 575:
        out.entry(2, "Channel Repair Pending", card.channel_repair)
        out.entry(2, "TPC Repair Pending", "No")
        out.entry(2, "Unrepairable Memory", card.unrepairable)
    out.section(1, "Retired Pages")
    for label in ("Single Bit ECC", "Double Bit ECC", "Pending Page Blacklist"):
        out.entry(2, label, "N/A")
    out.section(1, "Remapped Rows")
    out.entry(2, "Correctable Error", card.remapped[0])
    out.entry(2, "Uncorrectable Error", card.remapped[1])
    out.entry(2, "Pending", card.pending)
    out.entry(2, "Remapping Failure Occurred", card.failure)
    out.section(2, "Bank Remap Availability Histogram")
    for label, count in zip(("Max", "High", "Partial", "Low", "None"), card.banks, strict=True):
        out.entry(3, label, f"{count} bank(s)")


def xml(cards: Sequence[Card], driver: str = FAMILIES[4]) -> str:
    """`nvidia-smi -q -x`."""
    reason = "clocks_event_reason" if int(driver.split(".")[0]) >= 535 else "clocks_throttle_reason"
    out = ['<?xml version="1.0" ?>', '<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">', "<nvidia_smi_log>"]
    out += [f"\t<driver_version>{driver}</driver_version>", f"\t<attached_gpus>{len(cards)}</attached_gpus>"]
    for card in cards:
        out.append(f'\t<gpu id="{card.pci}">')
        out += [f"\t\t{line}" for line in _xml_card(card, reason)]
        out.append("\t</gpu>")
    return "\n".join([*out, "</nvidia_smi_log>", ""])


def _xml_card(card: Card, reason: str) -> list[str]:
    flags = {
        "hw_slowdown": "HW Slowdown",
        "hw_thermal_slowdown": "HW Thermal Slowdown",
        "hw_power_brake_slowdown": "HW Power Brake Slowdown",
        "sw_power_cap": "SW Power Cap",
        "sw_thermal_slowdown": "SW Thermal Slowdown",
    }
    active = {name: "Active" if word in card.active else "Not Active" for name, word in flags.items()}
    spans = {}
    for span, n in (("volatile", 0), ("aggregate", 1)):
        spans[span] = {
            "sram_correctable": 0,
            "sram_uncorrectable_parity": 0,
            "sram_uncorrectable_secded": card.sram[n],
            "dram_correctable": card.dram_corrected[n],
            "dram_uncorrectable": card.dram[n],
        }
    spans["aggregate"]["sram_threshold_exceeded"] = card.threshold  # type: ignore[assignment]  # a word among counts
    banks = dict(zip(("max", "high", "partial", "low", "none"), card.banks, strict=True))
    tree: dict[str, Any] = {
        "product_name": card.name,
        "mig_mode": {"current_mig": card.mig[0], "pending_mig": card.mig[1]},
        "uuid": card.uuid,
        "gpu_recovery_action": card.action,
        "pci": {
            "pci_bus_id": card.pci,
            "pci_gpu_link_info": {
                "pcie_gen": {"max_link_gen": card.generation[1], "current_link_gen": card.generation[0]},
                "link_widths": {"max_link_width": f"{card.lanes[1]}x", "current_link_width": f"{card.lanes[0]}x"},
            },
        },
        "performance_state": card.state,
        f"{reason}s": {f"{reason}_{name}": word for name, word in active.items()},
        f"{reason}s_counters": {f"{reason}s_counters_hw_therm_slowdown": "0 us"},
        "utilization": {"gpu_util": card.util},
        "ecc_mode": {"current_ecc": card.ecc, "pending_ecc": card.ecc_pending},
        "ecc_errors": {
            **spans,
            "channel_repair_pending": card.channel_repair,
            "unrepairable_memory": card.unrepairable,
        },
        "remapped_rows": {
            "remapped_row_corr": card.remapped[0],
            "remapped_row_unc": card.remapped[1],
            "remapped_row_pending": card.pending,
            "remapped_row_failure": card.failure,
            "row_remapper_histogram": {f"row_remapper_histogram_{n}": f"{c} bank(s)" for n, c in banks.items()},
        },
        "temperature": {"gpu_temp": card.temperature},
        "fabric": {"state": card.fabric[0], "status": card.fabric[1], "health": {"bandwidth": card.bandwidth}},
    }
    return _xml_lines(tree, 0)


def _xml_lines(tree: Mapping[str, Any], depth: int) -> list[str]:
    lines = []
    for name, value in tree.items():
        if isinstance(value, Mapping):
            lines += ["\t" * depth + f"<{name}>", *_xml_lines(value, depth + 1), "\t" * depth + f"</{name}>"]
        else:
            lines.append("\t" * depth + f"<{name}>{value}</{name}>")
    return lines


CSV_FIELDS = (
    "index, pci.bus_id, uuid, pstate, ecc.mode.current, ecc.mode.pending, ecc.errors.uncorrected.volatile.sram,"
    " ecc.errors.uncorrected.aggregate.sram, ecc.errors.uncorrected.volatile.dram, remapped_rows.correctable,"
    " remapped_rows.uncorrectable, remapped_rows.pending, remapped_rows.failure, gpu_recovery_action, fabric.state,"
    " fabric.status, clocks_event_reasons.hw_thermal_slowdown, pcie.link.width.current, pcie.link.width.max,"
    " temperature.gpu, utilization.gpu [%], mig.mode.current, mig.mode.pending"
)


def csv(cards: Sequence[Card], *, header: bool = True, command: bool = False) -> str:
    """`nvidia-smi --query-gpu=... --format=csv`."""
    lines = [CSV_FIELDS] if header else []
    if command:
        lines.insert(
            0, f"$ nvidia-smi --query-gpu={CSV_FIELDS.replace(' [%]', '').replace(' ', '')} --format=csv,noheader"
        )
    for number, card in enumerate(cards):
        cells = [number, card.pci, card.uuid, card.state, card.ecc, card.ecc_pending, *card.sram, card.dram[0]]
        cells += [*card.remapped, card.pending, card.failure, card.action, *card.fabric]
        cells += ["Active" if "HW Thermal Slowdown" in card.active else "Not Active", *card.lanes]
        cells += [card.temperature.removesuffix(" C"), card.util, *card.mig]
        lines.append(", ".join(str(cell) for cell in cells))
    return "\n".join(lines) + "\n"


def table(cards: Sequence[Card], broken: Sequence[int] = ()) -> str:
    """The default table of drivers since 545. `broken`: positions of GPUs that read ERR!."""
    wide, middle, right = "-" * 41, "-" * 24, "-" * 22
    out = [
        "Sat Feb 14 09:12:44 2026       ",
        f"+{wide}-{middle}-{right}+",
        "| NVIDIA-SMI 580.95.05              Driver Version: 580.95.05      CUDA Version: 13.0     |",
        f"|{wide}+{middle}+{right}+",
        "| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |",
        "| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |",
        "|                                         |                        |               MIG M. |",
        f"|{'=' * 41}+{'=' * 24}+{'=' * 22}|",
    ]
    for number, card in enumerate(cards):
        bad = number in broken
        ecc = "ERR!" if bad else str(card.dram[0] + card.sram[0]) if card.ecc == "Enabled" else "Off"
        temp = card.temperature.replace(" ", "")
        second = (
            "|ERR!  ERR!  ERR!             N/A /  N/A "
            if bad
            else f"| N/A   {temp}    {card.state}             70W /  700W "
        )
        out += [
            f"| {number:>3}  {card.name[:21]:<21}          On  |   {card.pci} Off | {ecc:>20} |",
            f"{second}|       1MiB /  81559MiB |     {'ERR!' if bad else '0%':>5}      Default |",
            f"|                                         |                        | {card.mig[0]:>20} |",
            f"+{wide}+{middle}+{right}+",
        ]
    out += ["", f"+{'-' * 89}+", "| Processes:" + " " * 78 + "|", f"|{'=' * 89}|"]
    out += ["|  No running processes found" + " " * 61 + "|", f"+{'-' * 89}+", ""]
    return "\n".join(out)
