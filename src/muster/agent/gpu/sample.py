"""What one look at the GPUs of a node told, whatever the source. A value that a GPU does not have stays None."""

from __future__ import annotations

import msgspec


class LinkSample(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One NVLink of a GPU. Counters are those of the driver: they grow until the driver is loaded anew."""

    link: int
    """-1: the sum of all links, from a source that tells no more."""
    up: bool | None = None
    crc: int | None = None
    replay: int | None = None
    recovery: int | None = None
    effective_errors: int | None = None
    """NVLink 5: errors that were left after correction."""
    effective_ber: float | None = None
    """NVLink 5: bit error rate after correction."""


class GpuSample(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One GPU."""

    index: int
    uuid: str = ""
    """Empty when not even that could be asked."""
    pci: str = ""
    """`dddd:bb:dd.f`."""
    product: str = ""
    lost: bool = False
    """The driver says that the GPU does not answer any more."""
    reset_required: bool = False
    """The driver says that the GPU must be reset before it answers again."""
    ecc_uncorrected: int | None = None
    """Since the driver was loaded or the GPU was reset."""
    ecc_corrected: int | None = None
    sram_uncorrected: int | None = None
    sram_threshold: bool | None = None
    remap_pending: bool | None = None
    remap_failed: bool | None = None
    pages_pending: bool | None = None
    throttle: int | None = None
    """Bits of the clocks event reasons."""
    temperature_c: float | None = None
    slowdown_c: float | None = None
    margin_c: float | None = None
    """Degrees to the slowdown temperature."""
    pcie_width: int | None = None
    pcie_max_width: int | None = None
    pcie_generation: int | None = None
    pcie_max_generation: int | None = None
    pcie_replays: int | None = None
    busy_percent: float | None = None
    recovery_action: int | None = None
    fabric_state: int | None = None
    fabric_status: int | None = None
    fabric_health: int | None = None
    """Health mask."""
    inforom_corrupted: bool | None = None
    persistence: bool | None = None
    ecc_mode: bool | None = None
    ecc_pending: bool | None = None
    xid: int | None = None
    """The last XID, from a source that tells one."""
    links: tuple[LinkSample, ...] = ()
    errors: dict[str, str] = {}
    """What could not be read although the GPU has it, and why."""


class Sample(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """All GPUs of a node at one moment."""

    gpus: tuple[GpuSample, ...] = ()
    complete: bool = False
    """Every GPU that the source lists is here."""
    failure: str = ""
    """Why there is nothing, or nothing more."""
    absent: bool = False
    """The failure is that there is no library or no driver: on a node without GPUs that is as it should be."""
    hung: bool = False
    """The failure is that the source did not answer in time."""
    stuck: int = 0
    """Processes that asked, hang in the kernel and cannot be ended."""
