"""Lines that the NVIDIA driver writes to the kernel log, and the record format of /dev/kmsg.

Sources: the public XID documentation for codes and meaning, and public kernel logs for the wording.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

KMSG_MAX_US = 2**63 - 1


class LoggedGpu(Protocol):
    """What a line tells about a GPU."""

    @property
    def index(self) -> int: ...
    @property
    def uuid(self) -> str: ...
    @property
    def serial(self) -> str: ...
    @property
    def pci(self) -> str: ...


def kmsg_record(text: str, priority: int, sequence: int, since_boot_us: int) -> bytes:
    """One record as a read of /dev/kmsg returns it: `priority,sequence,microseconds,flags;text`, newline at the end.

    `priority` is the syslog level with facility 0 (kernel); control bytes in the text are escaped as the kernel does.
    """
    escaped = "".join(
        c if 32 <= ord(c) < 127 and c != "\\" else "".join(f"\\x{b:02x}" for b in c.encode()) for c in text
    )
    return f"{priority},{sequence},{min(max(since_boot_us, 0), KMSG_MAX_US)},-;{escaped}\n".encode()


def boot_messages(driver: str) -> tuple[str, ...]:
    """What loading the driver writes."""
    return (f"NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  {driver}  Release Build  (dvs-builder)",)


def init_failed_messages(gpu: LoggedGpu) -> tuple[str, ...]:
    """What is logged when the driver cannot bring up the GPU."""
    return (
        f"NVRM: GPU {gpu.pci}: RmInitAdapter failed! (0x26:0xffff:1127)",
        f"NVRM: GPU {gpu.pci}: rm_init_adapter failed, device minor number {gpu.index}",
    )


def reset_message(gpu: LoggedGpu) -> str:
    """What is logged when a GPU reset has succeeded."""
    return f"GPU reset executed: {gpu.uuid}, success: true"


def _short(gpu: LoggedGpu) -> str:
    return gpu.pci.rsplit(".", 1)[0]


def _xid(gpu: LoggedGpu, code: int, rest: str) -> str:
    return f"NVRM: Xid (PCI:{_short(gpu)}): {code}, {rest}"


def _dbe(gpu: LoggedGpu, pid: int) -> tuple[str, ...]:
    who = f"pid={pid}, name=python3"
    return (
        _xid(
            gpu,
            48,
            f"{who}, An uncorrectable double bit error (DBE) has been detected on GPU in the framebuffer "
            f"at partition {pid % 5}, subpartition {pid % 2}.",
        ),
        _xid(
            gpu, 63, f"{who}, Row Remapper: New row (0x{pid * 256:016x}) marked for remapping, reset gpu to activate."
        ),
        _xid(gpu, 45, f"{who}, Ch 00000008"),
    )


def _off_bus(gpu: LoggedGpu, pid: int) -> tuple[str, ...]:  # noqa: ARG001 - the driver names no process
    return (
        _xid(gpu, 79, "pid='<unknown>', name=<unknown>, GPU has fallen off the bus."),
        f"NVRM: GPU {gpu.pci}: GPU has fallen off the bus.",
        f"NVRM: GPU {gpu.pci}: GPU serial number is {gpu.serial}.",
        _xid(gpu, 154, "GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)"),
    )


def _gsp_timeout(gpu: LoggedGpu, pid: int) -> tuple[str, ...]:
    waits = f"Timeout after 6s of waiting for RPC response from GPU{gpu.index} GSP!"
    return (
        _xid(gpu, 119, f"pid={pid}, name=python3, {waits} Expected function 76 (GSP_RM_CONTROL) (0x20801813 0x4c)."),
        f"NVRM: GPU{gpu.index} GSP RPC buffer contains function 76 (GSP_RM_CONTROL) and data 0x0000000020801813 "
        "0x000000000000004c.",
        _xid(gpu, 119, f"pid={pid}, name=python3, {waits} Expected function 10 (FREE) (0xa55a0090 0x0)."),
    )


def _nvlink(gpu: LoggedGpu, pid: int) -> tuple[str, ...]:
    registers = "(0x0, 0x0, 0x10000, 0x0, 0x0, 0x0, 0x0)"
    return (
        _xid(gpu, 74, f"pid='<unknown>', name=<unknown>, NVLink: fatal error detected on link {pid % 18}{registers}"),
    )


def _contained(gpu: LoggedGpu, pid: int) -> tuple[str, ...]:
    return (_xid(gpu, 94, f"pid={pid}, name=python3, Contained: SM (0x1). RST: No, D-RST: No"),)


def _uncontained(gpu: LoggedGpu, pid: int) -> tuple[str, ...]:
    return (_xid(gpu, 95, f"pid={pid}, name=python3, Uncontained: LTC TAG (0x2,0x0). RST: Yes, D-RST: No"),)


_MESSAGES: dict[int, Callable[[LoggedGpu, int], tuple[str, ...]]] = {
    48: _dbe,
    74: _nvlink,
    79: _off_bus,
    94: _contained,
    95: _uncontained,
    119: _gsp_timeout,
}

KNOWN_XIDS = tuple(sorted(_MESSAGES))
"""Codes whose wording the simulator knows."""


def xid_messages(code: int, gpu: LoggedGpu, pid: int) -> tuple[str, ...]:
    """The lines that the driver writes when `gpu` raises the XID `code`, in order, the GPU's identity first.

    Raises KeyError for a code outside KNOWN_XIDS.
    """
    identity = (f"NVRM: GPU at PCI:{_short(gpu)}: {gpu.uuid}", f"NVRM: GPU Board Serial Number: {gpu.serial}")
    return identity + _MESSAGES[code](gpu, pid)
