"""The inventory of a real Linux node, read from /proc, /sys and /etc; no process is started.

NVML is not asked: it can hang, and the driver's own files tell what identifies a GPU. Readings that only NVML has
(serial number, ECC mode) are therefore not part of the fingerprint yet.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path

from muster.agent.sources import NodeReadings
from muster.errors import BadInputError
from muster.read.pci import normalise
from muster.resources.fingerprint import Reading, ReadingClass
from muster.resources.node_health import Gpu

MAX_FILE_BYTES = 64 * 1024
MAX_VALUE = 1024
SYSCTLS = (
    "kernel.numa_balancing",
    "net.core.rmem_max",
    "net.core.wmem_max",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_wmem",
    "vm.max_map_count",
    "vm.nr_hugepages",
    "vm.overcommit_memory",
    "vm.swappiness",
    "vm.zone_reclaim_mode",
)
"""Settings that decide how GPU and network memory behave."""
VOLATILE_ARGUMENTS = ("root=", "BOOT_IMAGE=", "initrd=", "resume=", "ostree=", "rd.luks.uuid=", "boot=")
"""Kernel arguments that name a disk or an image path: they differ between equal nodes."""
_UNKNOWN_UUID = "?"
_DRIVER_VERSION = re.compile(r"Kernel Module(?: for \S+)?\s+(\d+(?:\.\d+)+)")


class LinuxInventory:
    """Reads the node whose file system is mounted at `root`."""

    def __init__(self, root: Path = Path("/"), *, node_uid: str = "") -> None:
        self._root = root
        self._node_uid = node_uid

    async def read(self) -> NodeReadings:
        """The readings of this moment. Raises BadInputError when the node shows no boot ID."""
        boot_id = self._text("proc/sys/kernel/random/boot_id")
        if not boot_id:
            raise BadInputError(f"Cannot read the boot ID below {self._root}; is /proc of the node mounted there?")
        readings: list[Reading] = []
        unread: list[str] = []
        gpus = self._gpus(readings, unread)
        self._stack(readings)
        self._nics(readings)
        self._config(readings)
        return NodeReadings(
            node_uid=self._node_uid,
            boot_id=boot_id,
            booted_at=self._booted_at(),
            readings=tuple(sorted(readings, key=lambda reading: reading.name)),
            gpus=gpus,
            unread=tuple(unread),
        )

    def _gpus(self, readings: list[Reading], unread: list[str]) -> tuple[Gpu, ...]:
        """GPUs in the order of their PCI addresses, which is the order of nvidia-smi."""
        found = []
        folder = self._root / "proc/driver/nvidia/gpus"
        for index, device in enumerate(sorted(_entries(folder))):
            information = _fields(self._text(f"proc/driver/nvidia/gpus/{device}/information"))
            uuid = information.get("GPU UUID", "")
            product = information.get("Model", "")
            if not uuid or _UNKNOWN_UUID in uuid:
                unread.append(f"gpu.{index}.uuid")
                uuid = ""
            identity = {"uuid": uuid, "product": product}
            vbios = information.get("Video BIOS", "")
            stack = {
                "vbios": vbios if _UNKNOWN_UUID not in vbios else "",
                "firmware": information.get("GPU Firmware", ""),
            }
            _add(readings, f"gpu.{index}.", identity, ReadingClass.IDENTITY)
            _add(readings, f"gpu.{index}.", stack, ReadingClass.STACK)
            address = information.get("Bus Location", device)
            found.append(Gpu(index=index, uuid=uuid, pci=normalise(address) or address, product=product))
        _add(readings, "gpu.", {"count": str(len(found))}, ReadingClass.IDENTITY)
        return tuple(found)

    def _stack(self, readings: list[Reading]) -> None:
        version = _DRIVER_VERSION.search(self._text("proc/driver/nvidia/version"))
        values = {
            "driver.version": version.group(1) if version else "",
            "kernel.release": self._text("proc/sys/kernel/osrelease"),
            "os.image": _os_image(self._text("etc/os-release")),
        }
        _add(readings, "", values, ReadingClass.STACK)

    def _nics(self, readings: list[Reading]) -> None:
        for device in sorted(_entries(self._root / "sys/class/infiniband")):
            folder = f"sys/class/infiniband/{device}"
            _add(readings, f"nic.{device}.", {"board": self._text(f"{folder}/board_id")}, ReadingClass.IDENTITY)
            _add(readings, f"nic.{device}.", {"firmware": self._text(f"{folder}/fw_ver")}, ReadingClass.STACK)

    def _config(self, readings: list[Reading]) -> None:
        arguments = self._text("proc/cmdline").split()
        kept = " ".join(word for word in arguments if not word.startswith(VOLATILE_ARGUMENTS))
        values = {"kernel.cmdline": kept}
        for name in SYSCTLS:
            values[f"sysctl.{name}"] = " ".join(self._text("proc/sys/" + name.replace(".", "/")).split())
        for line in self._text("proc/modules").splitlines():
            module = line.split(" ", 1)[0]
            if module.startswith("nvidia") or module == "gdrdrv":
                values[f"module.{module}"] = self._text(f"sys/module/{module}/version") or "loaded"
        _add(readings, "", values, ReadingClass.CONFIG)

    def _booted_at(self) -> datetime | None:
        for line in self._text("proc/stat").splitlines():
            name, _, value = line.partition(" ")
            if name == "btime" and value.strip().isdecimal():
                return datetime.fromtimestamp(int(value), UTC)
        return None

    def _text(self, path: str) -> str:
        """The stripped content of a file, bounded; empty when it is missing or not readable."""
        try:
            with (self._root / path).open("rb") as file:
                return file.read(MAX_FILE_BYTES).decode(errors="replace").strip()
        except OSError:
            return ""


def _entries(folder: Path) -> list[str]:
    try:
        return [entry.name for entry in folder.iterdir()]
    except OSError:
        return []


def _fields(text: str) -> dict[str, str]:
    """`Name: \\t value` lines."""
    fields = {}
    for line in text.splitlines():
        name, colon, value = line.partition(":")
        if colon:
            fields[name.strip()] = value.strip()
    return fields


def _add(readings: list[Reading], prefix: str, values: dict[str, str], kind: ReadingClass) -> None:
    for name, value in values.items():
        if value:
            readings.append(Reading(name=prefix + name, value=value[:MAX_VALUE], reading_class=kind))


def _os_image(os_release: str) -> str:
    """PRETTY_NAME of /etc/os-release, as the kubelet reports it."""
    for line in os_release.splitlines():
        name, _, value = line.partition("=")
        if name.strip() == "PRETTY_NAME":
            return value.strip().strip("\"'")
    return ""
