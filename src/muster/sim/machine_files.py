"""The machines of a simulated world as files, for agents that are real processes: a host root and a kernel log each.

The files are what `muster agent run --host-root` and `--kernel-log` read on a real node: boot ID, driver, GPUs,
network cards and settings below /proc, /sys and /etc, and a log whose lines are records of /dev/kmsg.
"""

from __future__ import annotations

import os
from pathlib import Path

from muster.sim.agent_sources import (
    BIOS_VERSION,
    GPU_DEVICE_ID,
    KERNEL_SETTINGS,
    NIC_BOARD,
    NIC_FIRMWARE,
    NIC_LINK_LAYER,
    NIC_TYPE,
    NICS,
    NVSWITCHES,
    OS_ID,
    OS_VERSION,
    SYSCTLS,
    VENDOR,
    guid_of,
    serial_of,
)
from muster.sim.defects import DefectKind
from muster.sim.nodes import INSTANCE_TYPE, OS_IMAGE
from muster.sim.world import PRODUCT_NAME, VBIOS, GpuTruth, NodeTruth, World

UNKNOWN_UUID = "GPU-????????-????-????-????-????????????"
"""What the driver shows for a GPU that it could not initialise."""
KERNEL_ARGUMENTS = f"BOOT_IMAGE=/vmlinuz {KERNEL_SETTINGS}"


class MachineFiles:
    """Mirrors `world` below `folder`, at once and whenever it changes, until `close`.

    A machine has a folder with `root` (its file system), `kernel.log`, and `state` (its disk, which survives boots).
    A boot starts the kernel log anew, as it empties the kernel's ring; the log of the boot before is kept beside it
    under a name that nobody reads.
    """

    def __init__(self, world: World, folder: Path) -> None:
        self._world = world
        self._folder = folder
        self._written: dict[Path, str] = {}
        self._boots: dict[str, int] = {}
        self._logged: dict[str, int] = {}
        for name in world.nodes:
            self.state(name).mkdir(parents=True, exist_ok=True)
            self._mirror(name)
        world.on_log.append(self._mirror)
        world.on_power.append(self._mirror)

    def close(self) -> None:
        """Stop following the world; the files stay."""
        self._world.on_log.remove(self._mirror)
        self._world.on_power.remove(self._mirror)

    def root(self, name: str) -> Path:
        """Where the file system of the machine begins."""
        return self._folder / name / "root"

    def kernel_log(self, name: str) -> Path:
        """The kernel log of the present boot."""
        return self._folder / name / "kernel.log"

    def state(self, name: str) -> Path:
        """A folder on the disk of the machine."""
        return self._folder / name / "state"

    def _mirror(self, name: str) -> None:
        node = self._world.nodes[name]
        if not node.up:
            return  # nothing on a machine that is down changes, and nobody looks
        hurt = {d.gpu for d in self._world.defects_of(name) if d.kind is DefectKind.NEEDS_REPLACEMENT}
        for path, text in host_files(node, frozenset(hurt)).items():
            self._put(self.root(name) / path, text)
        # The log last: who reads of a boot or a driver in it finds the files as they are then.
        self._log(node)

    def _put(self, path: Path, text: str) -> None:
        """Replace the file as a whole: nobody must read half of it."""
        if self._written.get(path) == text:
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        beside = path.with_name(f".{path.name}.new")
        beside.write_text(text)
        beside.replace(path)
        self._written[path] = text

    def _log(self, node: NodeTruth) -> None:
        path = self.kernel_log(node.name)
        if self._boots.get(node.name) != node.boots:
            if path.exists():
                path.replace(path.with_name("kernel.log.boot-before"))
            self._boots[node.name] = node.boots
            self._logged[node.name] = 0
        first = max(self._logged[node.name], node.log_start)
        records = b"".join(node.log[first - node.log_start :])
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            # One write: a record of several lines arrives as one.
            os.write(fd, records)
        finally:
            os.close(fd)
        self._logged[node.name] = node.log_end()


def host_files(node: NodeTruth, dead_gpus: frozenset[int]) -> dict[str, str]:
    """Path below the host root -> content, for everything that the inventory of a Linux node reads.

    `dead_gpus` holds the indices of GPUs that the driver could not initialise.
    """
    return {**_system(node), **_gpus(node, dead_gpus), **_nics(node)}


def _system(node: NodeTruth) -> dict[str, str]:
    dmi = "sys/class/dmi/id"
    return {
        "proc/sys/kernel/random/boot_id": f"{node.boot_id}\n",
        "proc/sys/kernel/osrelease": f"{node.kernel}\n",
        "proc/stat": f"cpu  1 2 3 4\nbtime {int(node.booted_at.timestamp())}\n",
        "proc/cmdline": f"{KERNEL_ARGUMENTS}\n",
        "proc/modules": "nvidia_uvm 1 0 - Live 0x0\nnvidia 2 1 nvidia_uvm, Live 0x0\n",
        "proc/driver/nvidia/version": (
            f"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {node.driver}  Release Build  (dvs-builder)\n"
        ),
        "sys/module/nvidia/version": f"{node.driver}\n",
        "sys/module/nvidia_uvm/version": f"{node.driver}\n",
        "etc/os-release": f'ID={OS_ID}\nVERSION_ID="{OS_VERSION}"\nPRETTY_NAME="{OS_IMAGE}"\n',
        **{f"proc/sys/{name.replace('.', '/')}": f"{value}\n" for name, value in SYSCTLS.items()},
        f"{dmi}/sys_vendor": f"{VENDOR}\n",
        f"{dmi}/product_name": f"{INSTANCE_TYPE}\n",
        f"{dmi}/product_serial": f"{serial_of(node)}\n",
        f"{dmi}/bios_version": f"{BIOS_VERSION}\n",
    }


def _gpus(node: NodeTruth, dead_gpus: frozenset[int]) -> dict[str, str]:
    files: dict[str, str] = {}
    for gpu in node.gpus:
        files |= _pci(gpu.pci, "0x030200", GPU_DEVICE_ID)
        path = f"proc/driver/nvidia/gpus/{gpu.pci}/information"
        files[path] = _information(gpu, node.driver, dead=gpu.index in dead_gpus)
    for index in range(NVSWITCHES):
        files |= _pci(f"0000:{0xE0 + index:02x}:00.0", "0x068000", "0x22a3")
    return files


def _pci(address: str, pci_class: str, device: str) -> dict[str, str]:
    path = f"sys/bus/pci/devices/{address}"
    return {f"{path}/vendor": "0x10de\n", f"{path}/class": f"{pci_class}\n", f"{path}/device": f"{device}\n"}


def _nics(node: NodeTruth) -> dict[str, str]:
    files: dict[str, str] = {}
    for index in range(NICS):
        path = f"sys/class/infiniband/mlx5_{index}"
        files[f"{path}/node_guid"] = f"{guid_of(node, index)}\n"
        files[f"{path}/hca_type"] = f"{NIC_TYPE}\n"
        files[f"{path}/board_id"] = f"{NIC_BOARD}\n"
        files[f"{path}/fw_ver"] = f"{NIC_FIRMWARE}\n"
        files[f"{path}/ports/1/link_layer"] = f"{NIC_LINK_LAYER}\n"
        files[f"{path}/ports/1/rate"] = "400 Gb/sec (4X NDR)\n"
        files[f"{path}/ports/1/state"] = "4: ACTIVE\n"
    return files


def _information(gpu: GpuTruth, driver: str, *, dead: bool) -> str:
    return (
        f"Model: \t\t {PRODUCT_NAME}\n"
        f"IRQ:   \t\t {100 + gpu.index}\n"
        f"GPU UUID: \t {UNKNOWN_UUID if dead else gpu.uuid}\n"
        f"Video BIOS: \t {'??.??.??.??.??' if dead else VBIOS}\n"
        "Bus Type: \t PCIe\n"
        f"Bus Location: \t {gpu.pci}\n"
        f"Device Minor: \t {gpu.index}\n"
        f"GPU Firmware: \t {driver}\n"
    )
