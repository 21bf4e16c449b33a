"""What is known of one GPU at one moment: plain values, None where the source does not tell."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class Counts:
    """Errors since the driver was loaded or the GPU was reset (`volatile`), and over the life of the GPU."""

    volatile: int | None = None
    aggregate: int | None = None

    @property
    def told(self) -> bool:
        return self.volatile is not None or self.aggregate is not None

    def plain(self) -> dict[str, int | None]:
        return {"volatile": self.volatile, "aggregate": self.aggregate}


@dataclass(frozen=True, kw_only=True)
class GpuReading:
    """One GPU. `trouble`: what the tool wrote in place of readings (`GPU is lost`, `ERR!`), by field."""

    index: int | None = None
    pci: str | None = None
    uuid: str | None = None
    name: str | None = None

    ecc_enabled: bool | None = None
    ecc_pending: bool | None = None
    sram_correctable: Counts = Counts()
    sram_uncorrectable: Counts = Counts()
    dram_correctable: Counts = Counts()
    dram_uncorrectable: Counts = Counts()
    uncorrectable_total: Counts = Counts()
    """Where the source gives only a sum."""
    sram_threshold_exceeded: bool | None = None
    channel_repair_pending: bool | None = None
    tpc_repair_pending: bool | None = None
    unrepairable_memory: bool | None = None

    remapped_correctable: int | None = None
    remapped_uncorrectable: int | None = None
    remap_pending: bool | None = None
    remap_failure: bool | None = None
    banks: Mapping[str, int] = field(default_factory=dict)
    """Banks by spare rows left: `max`, `high`, `partial`, `low`, `none`."""

    retired_single_bit: int | None = None
    retired_double_bit: int | None = None
    retired_pending: bool | None = None

    recovery_action: str | None = None
    """As the driver words it: `None`, `Reset`, `Reboot`, `Drain P2P`, `Drain and Reset`."""
    reset_required: bool | None = None
    drain_and_reset: bool | None = None
    last_xid: int | None = None

    fabric_state: str | None = None
    fabric_status: str | None = None
    fabric_health: Mapping[str, str] = field(default_factory=dict)

    slowdowns: tuple[str, ...] = ()
    """Active reasons for lower clocks, sorted: `hw-thermal`, `hw-power-brake`, `hw`, `sw-thermal`, `sw-power-cap`."""
    temperature_c: float | None = None
    slowdown_temperature_c: float | None = None
    performance_state: str | None = None
    utilization_percent: float | None = None
    pcie_gen: int | None = None
    pcie_gen_max: int | None = None
    pcie_width: int | None = None
    pcie_width_max: int | None = None

    mig_enabled: bool | None = None
    mig_pending: bool | None = None
    trouble: Mapping[str, str] = field(default_factory=dict)

    @property
    def told(self) -> bool:
        """True when anything was read that tells health; a temperature or a load alone tells none."""
        return any(
            value not in (None, (), {}, Counts()) for name, value in vars(self).items() if name not in _NO_HEALTH
        )

    @property
    def silent(self) -> bool:
        """True when nothing was read but what names the GPU."""
        names = ("index", "pci", "uuid", "name", "trouble")
        return all(value in (None, (), {}, Counts()) for name, value in vars(self).items() if name not in names)


_NO_HEALTH = (
    "index",
    "pci",
    "uuid",
    "name",
    "temperature_c",
    "slowdown_temperature_c",
    "performance_state",
    "utilization_percent",
    "pcie_gen",
    "pcie_gen_max",
    "pcie_width",
    "pcie_width_max",
    "mig_enabled",
    "mig_pending",
)
