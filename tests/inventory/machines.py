"""Made-up machines as files below a folder."""

from __future__ import annotations

from pathlib import Path

DRIVER = "580.95.05"


def write(root: Path, path: str, text: str) -> None:
    target = root / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text + "\n")


def put_gpu(root: Path, address: str, uuid: str, product: str = "NVIDIA H100 80GB HBM3") -> None:
    """A GPU on the PCI bus that the driver has initialised."""
    device = f"sys/bus/pci/devices/{address}"
    for name, text in (("vendor", "0x10de"), ("class", "0x030200"), ("device", "0x2330")):
        write(root, f"{device}/{name}", text)
    write(
        root,
        f"proc/driver/nvidia/gpus/{address}/information",
        f"Model: \t\t {product}\nGPU UUID: \t {uuid}\nVideo BIOS: \t 96.00.A5.00.01\nGPU Firmware: \t {DRIVER}",
    )


def put_hgx(root: Path, gpus: int = 8, first_bus: int = 0x10) -> None:
    """The GPUs of the stand-in's scenarios, as the files of the machine show them."""
    for index in range(gpus):
        address = f"0000:{first_bus + index:02x}:00.0"
        put_gpu(root, address, f"GPU-{index:08d}-0000-0000-0000-000000000000")
    write(root, "proc/driver/nvidia/version", f"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {DRIVER}  x")


def put_system(root: Path) -> None:
    """What every Linux machine has."""
    write(root, "etc/os-release", 'ID=ubuntu\nVERSION_ID="24.04"\nPRETTY_NAME="Ubuntu 24.04.2 LTS"')
    write(root, "proc/sys/kernel/osrelease", "6.8.0-1028-aws")
    write(root, "proc/sys/kernel/random/boot_id", "0b1e0000-0000-0000-0000-000000000001")
    write(root, "proc/cmdline", "root=UUID=1 ro")
    write(root, "proc/modules", "nvidia 9000 3 - Live 0x0")
    (root / "sys/bus/pci/devices").mkdir(parents=True, exist_ok=True)
    (root / "sys/class/net").mkdir(parents=True, exist_ok=True)
