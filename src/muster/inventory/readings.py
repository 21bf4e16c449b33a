"""The vocabulary of readings of a machine: each name with its class, its unit and who can tell it.

A name stands here once, and collectors take the class from here. Parts in angle brackets vary.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from muster.resources.fingerprint import ReadingClass

IDENTITY, STACK, CONFIG, VOLATILE = ReadingClass


@dataclass(frozen=True, slots=True)
class Known:
    """One reading, or one per part in angle brackets. `source` says where it is read."""

    name: str
    reading_class: ReadingClass
    says: str
    source: str


FILES, DRIVER, NVML, SYSTEMD = "files", "driver files", "NVML", "systemd"
"""Sources. The agent asks only the first two; NVML and systemd answer a snapshot taken on the machine."""

VOCABULARY: tuple[Known, ...] = (
    Known("os.id", STACK, "Distribution: `ID` of os-release.", FILES),
    Known("os.version_id", STACK, "Its release: `VERSION_ID` of os-release.", FILES),
    Known("os.name", STACK, "Its name for people: `PRETTY_NAME` of os-release.", FILES),
    Known("kernel.version", STACK, "Release of the running kernel.", FILES),
    Known("kernel.cmdline", CONFIG, "Arguments of the kernel without those that name a disk or an image.", FILES),
    Known("boot.id", VOLATILE, "Identity of this boot.", FILES),
    Known("sysctl.<name>", CONFIG, "A setting below /proc/sys, dots for slashes.", FILES),
    Known("module.<name>", STACK, "A kernel module that matters to GPUs, fabrics or storage: its version.", FILES),
    Known("system.vendor", IDENTITY, "Maker of the machine (DMI).", FILES),
    Known("system.product", IDENTITY, "Model of the machine (DMI).", FILES),
    Known("system.serial", IDENTITY, "Serial number of the machine (DMI); only root may read it.", FILES),
    Known("system.bios_version", STACK, "Version of the firmware (DMI).", FILES),
    Known("unit.<unit>.enabled", CONFIG, "Whether a service starts at boot.", SYSTEMD),
    Known("unit.<unit>.active", VOLATILE, "Whether it runs now.", SYSTEMD),
    Known("driver.version", STACK, "Version of the loaded NVIDIA driver, or `not loaded`.", DRIVER),
    Known("cuda.driver_version", STACK, "Newest CUDA that the driver supports.", NVML),
    Known("nvml.version", STACK, "Version of the NVML library.", NVML),
    Known("gpu", IDENTITY, "`none found`: the machine has no NVIDIA GPU. Absent when it has one.", FILES),
    Known("gpu.count", IDENTITY, "Number of NVIDIA GPUs on the PCI bus; 0 when none was found.", FILES),
    Known("nvswitch.count", IDENTITY, "Number of NVSwitches on the PCI bus.", FILES),
    Known("gpu.<n>.pci", IDENTITY, "PCI address. GPUs are numbered in the order of their addresses.", FILES),
    Known("gpu.<n>.device_id", IDENTITY, "PCI device ID.", FILES),
    Known("gpu.<n>.subsystem_id", IDENTITY, "PCI subsystem ID: the board.", FILES),
    Known("gpu.<n>.pcie_max_speed", IDENTITY, "Fastest speed of the PCIe link, as sysfs spells it (GT/s).", FILES),
    Known("gpu.<n>.pcie_max_width", IDENTITY, "Widest width of the PCIe link, lanes.", FILES),
    Known("gpu.<n>.pcie_speed", VOLATILE, "Speed now; idle GPUs lower it (GT/s).", FILES),
    Known("gpu.<n>.pcie_width", VOLATILE, "Width now, lanes.", FILES),
    Known("gpu.<n>.numa_node", CONFIG, "NUMA node of the GPU; -1: the firmware does not tell.", FILES),
    Known("gpu.<n>.product", IDENTITY, "Product name.", DRIVER),
    Known("gpu.<n>.uuid", IDENTITY, "UUID.", DRIVER),
    Known("gpu.<n>.vbios", STACK, "Version of the video BIOS.", DRIVER),
    Known("gpu.<n>.gsp_firmware", STACK, "Version of the GSP firmware, which comes with the driver.", DRIVER),
    Known("gpu.<n>.serial", IDENTITY, "Serial number of the board.", NVML),
    Known("gpu.<n>.board_part_number", IDENTITY, "Part number of the board.", NVML),
    Known("gpu.<n>.compute_capability", IDENTITY, "CUDA compute capability.", NVML),
    Known("gpu.<n>.memory_mib", STACK, "Memory, MiB, as the driver counts it.", NVML),
    Known("gpu.<n>.inforom", STACK, "Version of the InfoROM image.", NVML),
    Known("gpu.<n>.ecc_mode", CONFIG, "ECC now: enabled or disabled.", NVML),
    Known("gpu.<n>.ecc_mode_pending", CONFIG, "ECC after the next reset.", NVML),
    Known("gpu.<n>.mig_mode", CONFIG, "MIG now: enabled or disabled.", NVML),
    Known("gpu.<n>.mig_mode_pending", CONFIG, "MIG after the next reset.", NVML),
    Known("gpu.<n>.mig.count", CONFIG, "Number of MIG devices; absent while MIG is disabled.", NVML),
    Known("gpu.<n>.mig.<g>.<c>.profile", CONFIG, "Profile of compute instance c of GPU instance g.", NVML),
    Known("gpu.<n>.mig.<g>.<c>.uuid", CONFIG, "UUID of that MIG device.", NVML),
    Known("gpu.<n>.mig.<g>.<c>.slices", CONFIG, "Its slices: GPU instance / compute instance.", NVML),
    Known("gpu.<n>.mig.<g>.<c>.memory_mib", CONFIG, "Its memory, MiB.", NVML),
    Known("gpu.<n>.compute_mode", CONFIG, "default, exclusive-process or prohibited.", NVML),
    Known("gpu.<n>.persistence_mode", CONFIG, "Whether the driver stays loaded without clients.", NVML),
    Known("gpu.<n>.power_limit_w", CONFIG, "Power limit, W.", NVML),
    Known("gpu.<n>.pcie_max_generation", IDENTITY, "Highest PCIe generation of GPU and slot.", NVML),
    Known("gpu.<n>.pcie_generation", VOLATILE, "PCIe generation now.", NVML),
    Known("gpu.<n>.nvlink.count", IDENTITY, "Number of NVLinks that the GPU has.", NVML),
    Known("gpu.<n>.nvlink.version", IDENTITY, "Versions of its NVLinks.", NVML),
    Known("gpu.<n>.nvlink.active", CONFIG, "Number of NVLinks that are up.", NVML),
    Known("gpu.<n>.nvlink.<link>.state", VOLATILE, "Whether one link is up.", NVML),
    Known("gpu.<n>.nvlink.<link>.remote", CONFIG, "Kind and PCI address of what is at its other end.", NVML),
    Known("gpu.<n>.fabric.cluster_uuid", CONFIG, "NVLink domain that the fabric manager put the GPU into.", NVML),
    Known("gpu.<n>.fabric.clique", CONFIG, "Partition of that domain.", NVML),
    Known(
        "gpu.<n>.fabric.state", VOLATILE, "Registration with the fabric: completed, in-progress, not-started.", NVML
    ),
    Known("gpu.<n>.fabric.health_mask", VOLATILE, "Health bits of the fabric, hexadecimal.", NVML),
    Known("gpu.<n>.nvml", VOLATILE, "`ok`, `lost` or `not listed`: what NVML says about the GPU.", NVML),
    # Counters of damage. They belong to fault detection: a node is not another node because a row was remapped.
    Known("gpu.<n>.remapped_rows_correctable", VOLATILE, "Rows remapped after correctable errors.", NVML),
    Known("gpu.<n>.remapped_rows_uncorrectable", VOLATILE, "Rows remapped after uncorrectable errors.", NVML),
    Known("gpu.<n>.remapped_rows_pending", VOLATILE, "Whether a remapping waits for a reset.", NVML),
    Known("gpu.<n>.remapped_rows_failed", VOLATILE, "Whether a remapping failed: the GPU has to be replaced.", NVML),
    Known("gpu.<n>.retired_pages", VOLATILE, "Pages retired on GPUs without row remapping.", NVML),
    Known("gpu.<n>.temperature_c", VOLATILE, "Temperature, degrees Celsius.", NVML),
    Known("gpu.<n>.power_w", VOLATILE, "Power now, W.", NVML),
    Known("gpu.<n>.performance_state", VOLATILE, "Performance state: P0 is the highest.", NVML),
    Known("net", IDENTITY, "`none found`: no network device with hardware behind it.", FILES),
    Known("net.<device>.address", IDENTITY, "MAC address.", FILES),
    Known("net.<device>.mtu", CONFIG, "MTU, bytes.", FILES),
    Known("net.<device>.driver", STACK, "Name of its driver.", FILES),
    Known("net.<device>.state", VOLATILE, "Up or down.", FILES),
    Known("net.<device>.speed_mbps", VOLATILE, "Link speed, Mbit/s; absent while down.", FILES),
    Known("rdma", IDENTITY, "`none found`: no InfiniBand or RoCE device.", FILES),
    Known("rdma.<device>.node_guid", IDENTITY, "GUID of the device.", FILES),
    Known("rdma.<device>.type", IDENTITY, "Type of the adapter.", FILES),
    Known("rdma.<device>.board", IDENTITY, "Board ID (PSID).", FILES),
    Known("rdma.<device>.firmware", STACK, "Firmware version.", FILES),
    Known("rdma.<device>.<port>.link_layer", CONFIG, "InfiniBand or Ethernet.", FILES),
    Known("rdma.<device>.<port>.rate", VOLATILE, "Link rate (Gb/s), as sysfs spells it.", FILES),
    Known("rdma.<device>.<port>.state", VOLATILE, "State of the port.", FILES),
)

ON_DEMAND_MODULES = frozenset({"nvidia_uvm", "nvidia_modeset", "nvidia_drm"})
"""Loaded by the first program that needs them and with the driver's version: volatile instead of stack."""

HOT_PLUGGED_DRIVERS = frozenset({"ena", "gve", "hv_netvsc", "mana", "virtio_net", "vmxnet3", "xen_netfront"})
"""Network devices of virtual machines. Pod networks attach and detach them while the node works, so their
readings are volatile, but for the device that holds the default route."""

_PART = re.compile(r"<([a-z]+)>")
_NUMBERS = frozenset({"n", "g", "c", "link", "port"})


def _pattern(name: str) -> re.Pattern[str]:
    pieces = _PART.split(name)
    return re.compile(
        "".join(
            re.escape(piece) if at % 2 == 0 else r"[0-9]+" if piece in _NUMBERS else r".+"
            for at, piece in enumerate(pieces)
        ),
        re.DOTALL,
    )


_PATTERNS = tuple((_pattern(known.name), known) for known in VOCABULARY)


@lru_cache(maxsize=4096)
def known(name: str) -> Known | None:
    """The entry of the vocabulary for a reading, or None for a name that no collector may use."""
    return next((entry for pattern, entry in _PATTERNS if pattern.fullmatch(name)), None)


def class_of(name: str) -> ReadingClass:
    """The class of a reading. Raises KeyError for a name that is not in the vocabulary."""
    entry = known(name)
    if entry is None:
        raise KeyError(name)
    return entry.reading_class
