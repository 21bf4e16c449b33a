"""Which page of the runbooks is about a fault. Pure; total: a code that nobody knows has a page as well.

The pages are `docs/runbooks/<name>.md`.
"""

from __future__ import annotations

from enum import StrEnum

from muster.faults import catalogue
from muster.resources.fault import Severity


class Runbook(StrEnum):
    """A page; the value is its name without the ending."""

    APPLICATION = "application"
    GPU_MEMORY = "gpu-memory"
    GPU_GONE = "gpu-gone"
    GPU_FIRMWARE = "gpu-firmware"
    NVLINK = "nvlink"
    PCIE = "pcie"
    THERMAL_POWER = "thermal-and-power"
    NETWORK = "network"
    HOST = "host"
    SERVICES = "services"
    DRIVER = "driver"
    MAINTENANCE = "maintenance"
    UNKNOWN = "unknown-codes"
    SILENT_AGENT = "silent-agent"
    DRAIN = "drain-does-not-end"
    REPAIRS_EXHAUSTED = "repairs-exhausted"
    MANY_NODES = "many-nodes"
    CERTIFICATION_FAILED = "certification-failed"

    @property
    def path(self) -> str:
        """The page's file, as seen from the root of the project."""
        return f"docs/runbooks/{self.value}.md"


_XID_CATEGORIES = {
    "application": Runbook.APPLICATION,
    "driver_firmware": Runbook.GPU_FIRMWARE,
    "interconnect": Runbook.NVLINK,
    "memory": Runbook.GPU_MEMORY,
    "board_bus_power": Runbook.THERMAL_POWER,
}
_XIDS = {
    78: Runbook.DRIVER,
    79: Runbook.GPU_GONE,
    93: Runbook.GPU_FIRMWARE,
    137: Runbook.APPLICATION,
    141: Runbook.APPLICATION,
    142: Runbook.APPLICATION,
    143: Runbook.DRIVER,
    152: Runbook.GPU_FIRMWARE,
    153: Runbook.GPU_FIRMWARE,
    154: Runbook.GPU_FIRMWARE,
    167: Runbook.PCIE,
}
"""Codes whose page is another than their category's."""

_CHECKS = {
    "xid": Runbook.UNKNOWN,
    "sxid": Runbook.NVLINK,
    "nvlink5": Runbook.NVLINK,
    "nvlink-discovery": Runbook.NVLINK,
    "fabric-manager": Runbook.NVLINK,
    "gpu-off-bus": Runbook.GPU_GONE,
    "gpu-lost": Runbook.GPU_GONE,
    "gpu-unreadable": Runbook.GPU_GONE,
    "gpu-recovery-action": Runbook.GPU_FIRMWARE,
    "gpu-setting": Runbook.DRIVER,
    "gpu-init": Runbook.DRIVER,
    "driver": Runbook.DRIVER,
    "gpu-reset-marker": Runbook.REPAIRS_EXHAUSTED,
    "peermem": Runbook.DRIVER,
    "nic": Runbook.NETWORK,
    "nic-port": Runbook.NETWORK,
    "filesystem": Runbook.HOST,
    "disk": Runbook.HOST,
    "memory": Runbook.HOST,
    "hardware-error": Runbook.HOST,
    "kernel": Runbook.HOST,
    "oom": Runbook.HOST,
    "clock": Runbook.HOST,
    "pressure": Runbook.HOST,
    "process-crash": Runbook.APPLICATION,
    "pcie": Runbook.PCIE,
    "service": Runbook.SERVICES,
    "pattern": Runbook.REPAIRS_EXHAUSTED,
    "maintenance": Runbook.MAINTENANCE,
    # Kinds of `muster read`
    "ecc": Runbook.GPU_MEMORY,
    "row-remap": Runbook.GPU_MEMORY,
    "page-retirement": Runbook.GPU_MEMORY,
    "inforom-corrupted": Runbook.GPU_FIRMWARE,
    "thermal": Runbook.THERMAL_POWER,
    "power": Runbook.THERMAL_POWER,
    "nvlink": Runbook.NVLINK,
    "fabric": Runbook.NVLINK,
    "nvls-multicast-bind": Runbook.NVLINK,
    "cuda": Runbook.DRIVER,
    "cuda-system-not-ready": Runbook.NVLINK,
    "optic": Runbook.NETWORK,
    "ib-port-error": Runbook.NETWORK,
    "ib-retry-exceeded": Runbook.NETWORK,
    "net-plugin-load": Runbook.NETWORK,
    "transport-fallback": Runbook.NETWORK,
    "collective-timeout": Runbook.NETWORK,
    "host-hang": Runbook.HOST,
    "segfault": Runbook.APPLICATION,
    "process-exit": Runbook.APPLICATION,
    "process-not-responding": Runbook.APPLICATION,
    "pairwise": Runbook.CERTIFICATION_FAILED,
    "nccl-tests": Runbook.CERTIFICATION_FAILED,
    "nvbandwidth": Runbook.CERTIFICATION_FAILED,
    "condition": Runbook.SERVICES,
    "kubernetes": Runbook.SERVICES,
}
_CODES = {
    # GPU monitor
    "gpu-missing": Runbook.GPU_GONE,
    "gpu-lost": Runbook.GPU_GONE,
    "gpu-swapped": Runbook.GPU_GONE,
    "nvml-hang": Runbook.GPU_GONE,
    "gpu-unreadable": Runbook.GPU_GONE,
    "gpu-reset-required": Runbook.GPU_FIRMWARE,
    "gpu-recovery-action": Runbook.GPU_FIRMWARE,
    "gpu-inforom-corrupted": Runbook.GPU_FIRMWARE,
    "gpu-ecc-uncorrected": Runbook.GPU_MEMORY,
    "gpu-ecc-corrected-storm": Runbook.GPU_MEMORY,
    "gpu-sram-uncorrected": Runbook.GPU_MEMORY,
    "gpu-sram-threshold": Runbook.GPU_MEMORY,
    "gpu-remap-pending": Runbook.GPU_MEMORY,
    "gpu-remap-failed": Runbook.GPU_MEMORY,
    "gpu-pages-pending": Runbook.GPU_MEMORY,
    "gpu-ecc-mode-pending": Runbook.GPU_MEMORY,
    "gpu-thermal-throttle": Runbook.THERMAL_POWER,
    "gpu-hw-slowdown": Runbook.THERMAL_POWER,
    "gpu-power-brake": Runbook.THERMAL_POWER,
    "gpu-temperature": Runbook.THERMAL_POWER,
    "gpu-pcie-width": Runbook.PCIE,
    "gpu-pcie-generation": Runbook.PCIE,
    "gpu-pcie-replays": Runbook.PCIE,
    "nvlink-down": Runbook.NVLINK,
    "nvlink-errors": Runbook.NVLINK,
    "gpu-fabric-state": Runbook.NVLINK,
    "gpu-fabric-health": Runbook.NVLINK,
    "gpu-persistence-off": Runbook.SERVICES,
    # Kernel log and Kubernetes
    "oom-kill-cgroup": Runbook.APPLICATION,
    "container-out-of-memory": Runbook.APPLICATION,
    "pod-stuck-terminating": Runbook.DRAIN,
    "gpus-missing": Runbook.GPU_GONE,
    "gpu-insufficient": Runbook.GPU_GONE,
    "gpu-not-allocatable": Runbook.GPU_GONE,
    "gpu-allocation-failed": Runbook.DRIVER,
    "nvml-failed": Runbook.DRIVER,
    "disk-pressure": Runbook.HOST,
}
"""Codes of our own that say more than their check."""

_PATTERNS = (
    ("xid31-", Runbook.APPLICATION),
    ("xid13-", Runbook.APPLICATION),
    ("xid74-", Runbook.NVLINK),
    ("lone-xid", Runbook.UNKNOWN),
    ("repeated-nic-", Runbook.NETWORK),
)
"""Beginnings of the names of patterns; what is not here came back although it was repaired."""

_DCGM_PREFIXES = ("DCGM_", "GPU_")
_DCGM_WORDS: tuple[tuple[str, Runbook], ...] = (
    ("PERSISTENCE", Runbook.SERVICES),
    ("HOSTENGINE", Runbook.SERVICES),
    ("FM_NOT_INITIALIZED", Runbook.SERVICES),
    ("IMEX", Runbook.SERVICES),
    ("NVLINK", Runbook.NVLINK),
    ("NVSWITCH", Runbook.NVLINK),
    ("FABRIC", Runbook.NVLINK),
    ("BROKEN_P2P", Runbook.NVLINK),
    ("SXID", Runbook.NVLINK),
    ("FALLEN_OFF_BUS", Runbook.GPU_GONE),
    ("DEVICE_COUNT_MISMATCH", Runbook.GPU_GONE),
    ("EMPTY_GPU_LIST", Runbook.GPU_GONE),
    ("RECOVERY", Runbook.GPU_FIRMWARE),
    ("INFOROM", Runbook.GPU_FIRMWARE),
    ("XID", Runbook.UNKNOWN),
    ("PCI", Runbook.PCIE),
    ("LOW_BANDWIDTH", Runbook.PCIE),
    ("HIGH_LATENCY", Runbook.PCIE),
    ("THERMAL", Runbook.THERMAL_POWER),
    ("TEMP", Runbook.THERMAL_POWER),
    ("POWER", Runbook.THERMAL_POWER),
    ("CLOCK", Runbook.THERMAL_POWER),
    ("THROTTL", Runbook.THERMAL_POWER),
    ("STRESS_LEVEL", Runbook.THERMAL_POWER),
    ("GFLOPS", Runbook.THERMAL_POWER),
    ("MEMORY_MISMATCH", Runbook.GPU_MEMORY),
    ("FAULTY_MEMORY", Runbook.GPU_MEMORY),
    ("MEMORY_BANDWIDTH", Runbook.GPU_MEMORY),
    ("BE_", Runbook.GPU_MEMORY),
    ("_DBE", Runbook.GPU_MEMORY),
    ("ECC", Runbook.GPU_MEMORY),
    ("REMAP", Runbook.GPU_MEMORY),
    ("RETIRE", Runbook.GPU_MEMORY),
    ("UNCONTAINED", Runbook.GPU_MEMORY),
    ("SRAM", Runbook.GPU_MEMORY),
    ("L1TAG", Runbook.GPU_MEMORY),
    ("NAN_VALUE", Runbook.GPU_MEMORY),
    ("DENYLISTED", Runbook.DRIVER),
    ("NVML", Runbook.DRIVER),
    ("CANNOT_OPEN_LIB", Runbook.DRIVER),
    ("CUDA", Runbook.DRIVER),
    ("NCCL", Runbook.CERTIFICATION_FAILED),
    ("EUD_TEST_FAILED", Runbook.CERTIFICATION_FAILED),
)
"""Parts of the names of DCGM codes; the first that a code has decides. Others are about DCGM, not about a machine."""


def runbook(check: str, code: str) -> Runbook:
    """The page about a fault."""
    if check == "xid" and code.isdecimal() and code.isascii() and len(code) < 6:
        return _xid(int(code))
    if code.startswith(_DCGM_PREFIXES):
        return next((page for word, page in _DCGM_WORDS if word in code), Runbook.UNKNOWN)
    if check == "pattern":
        return next((page for start, page in _PATTERNS if code.startswith(start)), Runbook.REPAIRS_EXHAUSTED)
    return _CODES.get(code) or _CHECKS.get(check, Runbook.UNKNOWN)


def _xid(code: int) -> Runbook:
    entry = catalogue.xid(code)
    if entry.severity is Severity.UNKNOWN and code not in _XIDS and code not in catalogue.NVLINK5_XIDS:
        return Runbook.UNKNOWN
    return _XIDS.get(code) or _XID_CATEGORIES.get(entry.category, Runbook.UNKNOWN)
