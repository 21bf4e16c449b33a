"""What a host says of itself, from /proc, /sys and small programs. Reads only; a file that cannot be read is told."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

TEXT_LIMIT_BYTES = 256 * 1024
PROGRAM_LIMIT_S = 20.0
_SYSCTL = re.compile(r"[a-z0-9_][a-z0-9_.\-]{0,99}")


@dataclass(frozen=True)
class Nic:
    """A network interface with a device behind it. None: it does not say (no carrier)."""

    name: str
    up: bool
    gbps: float | None
    mtu: int | None


@dataclass(frozen=True)
class RdmaPort:
    name: str
    active: bool
    gbps: float | None
    link_layer: str


@dataclass(frozen=True)
class PciLink:
    """The PCI Express link of one GPU or NIC. Speeds in GT/s."""

    address: str
    kind: str
    """`gpu` or `nic`."""
    width: int | None
    most_width: int | None
    speed: float | None
    most_speed: float | None

    @property
    def narrow(self) -> bool:
        return self.width is not None and self.most_width is not None and self.width < self.most_width

    @property
    def slow(self) -> bool:
        """GPUs lower the speed of an idle link, so for them this says nothing."""
        return self.speed is not None and self.most_speed is not None and self.speed < self.most_speed


@dataclass
class Unreadable:
    """What could not be read, by name: neither good nor bad."""

    names: list[str] = field(default_factory=list)


def read_text(path: Path) -> str | None:
    """The text of a small file; None when it cannot be read."""
    try:
        with path.open("rb") as file:
            return file.read(TEXT_LIMIT_BYTES).decode("utf-8", "replace").strip()
    except OSError:
        return None


def number_in(text: str | None) -> float | None:
    """The number at the start of `400 Gb/sec (4X NDR)`, `32.0 GT/s PCIe`, `16`; None for anything else."""
    match = re.match(r"(\d{1,12}(?:\.\d{1,6})?)(?!\d)", text or "")
    return float(match.group(1)) if match else None


def sysctl(root: Path, name: str) -> str | None:
    """Value of a kernel setting, blanks between words made single; None when there is none of that name."""
    if not _SYSCTL.fullmatch(name) or ".." in name:
        return None
    text = read_text(root / "proc/sys" / name.replace(".", "/"))
    return None if text is None else " ".join(text.split())


def nics(root: Path) -> list[Nic]:
    found = []
    for folder in sorted((root / "sys/class/net").glob("*")):
        if not (folder / "device").exists():
            continue
        mbps, mtu = number_in(read_text(folder / "speed")), number_in(read_text(folder / "mtu"))
        found.append(
            Nic(
                name=folder.name,
                up=read_text(folder / "operstate") == "up",
                gbps=None if mbps is None else mbps / 1000.0,
                mtu=None if mtu is None else int(mtu),
            )
        )
    return found


def rdma_ports(root: Path) -> list[RdmaPort]:
    return [
        RdmaPort(
            name=f"{port.parent.parent.name}:{port.name}",
            active="ACTIVE" in (read_text(port / "state") or ""),
            gbps=number_in(read_text(port / "rate")),
            link_layer=read_text(port / "link_layer") or "",
        )
        for port in sorted((root / "sys/class/infiniband").glob("*/ports/*"))
    ]


def pci_links(root: Path) -> list[PciLink]:
    """Links of NVIDIA GPUs and of network cards."""
    found = []
    for folder in sorted((root / "sys/bus/pci/devices").glob("*")):
        kind = _kind(read_text(folder / "class") or "", read_text(folder / "vendor") or "")
        if not kind or not (folder / "max_link_width").exists():
            continue
        widths = [number_in(read_text(folder / f"{which}_link_width")) for which in ("current", "max")]
        speeds = [number_in(read_text(folder / f"{which}_link_speed")) for which in ("current", "max")]
        # 255 and 0 are what a device answers that does not answer.
        known = [None if each in (None, 0, 255) else int(each or 0) for each in widths]
        found.append(PciLink(folder.name, kind, known[0], known[1], speeds[0], speeds[1]))
    return found


def _kind(pci_class: str, vendor: str) -> str:
    if vendor == "0x10de" and pci_class.startswith(("0x0302", "0x0300")):
        return "gpu"
    return "nic" if pci_class.startswith(("0x0200", "0x0207")) else ""


def clock_offset_s(unreadable: Unreadable) -> float | None:
    """How far the clock is from its time servers, as chrony says; None when it is not known."""
    text = output(["chronyc", "-n", "-c", "tracking"])
    offset = None if text is None else parse_chrony(text)
    if offset is None:
        unreadable.names.append("clock offset")
    return offset


def parse_chrony(text: str) -> float | None:
    """Pure. `chronyc -c tracking`: comma-separated; the fifth field is the offset in seconds, the last the leap
    status."""
    fields = text.strip().split(",")
    if len(fields) < 14 or fields[-1].strip() == "Not synchronised":
        return None
    try:
        return abs(float(fields[4]))
    except ValueError:
        return None


def clock_synchronized() -> bool | None:
    """Whether systemd calls the clock synchronized; None where it does not say."""
    text = output(["timedatectl", "show", "--property=NTPSynchronized", "--value"])
    return {"yes": True, "no": False}.get((text or "").strip())


def free_disk_bytes(path: str) -> int | None:
    try:
        return shutil.disk_usage(path).free
    except OSError:
        return None


def output(argv: list[str]) -> str | None:
    """What a small program prints; None when it is not there, fails, or takes too long."""
    if shutil.which(argv[0]) is None:
        return None
    try:
        done = subprocess.run(
            argv, capture_output=True, timeout=PROGRAM_LIMIT_S, check=False, env=os.environ | {"LC_ALL": "C"}
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout[:TEXT_LIMIT_BYTES].decode("utf-8", "replace") if done.returncode == 0 else None
