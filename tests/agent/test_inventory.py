"""The inventory of a Linux node from a made-up file system."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from muster.agent.inventory import LinuxInventory
from muster.agent.sources import NodeReadings
from muster.errors import BadInputError
from muster.resources.fingerprint import ReadingClass, fingerprint
from muster.resources.node_health import Gpu

BOOT = "0f1e2d3c-0000-4000-8000-123456789abc"


def put(root: Path, path: str, text: str) -> None:
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def put_gpu(root: Path, address: str, uuid: str, vbios: str = "96.00.74.00.01") -> None:
    put(
        root,
        f"proc/driver/nvidia/gpus/{address}/information",
        f"Model: \t\t NVIDIA H100 80GB HBM3\nIRQ:   \t\t 118\nGPU UUID: \t {uuid}\nVideo BIOS: \t {vbios}\n"
        f"Bus Type: \t PCIe\nBus Location: \t {address}\nDevice Minor: \t 0\nGPU Firmware: \t 580.65.06\n",
    )


@pytest.fixture
def root(tmp_path: Path) -> Path:
    put(tmp_path, "proc/sys/kernel/random/boot_id", BOOT + "\n")
    put(tmp_path, "proc/sys/kernel/osrelease", "6.8.0-60-generic\n")
    put(tmp_path, "proc/stat", "cpu 1 2 3\nbtime 1767600000\n")
    put(tmp_path, "proc/cmdline", "BOOT_IMAGE=/vmlinuz root=UUID=abc ro iommu=pt  pci=realloc=off\n")
    put(tmp_path, "proc/sys/vm/max_map_count", "1048576\n")
    put(tmp_path, "proc/sys/net/ipv4/tcp_rmem", "4096\t131072\t6291456\n")
    put(tmp_path, "proc/modules", "nvidia_uvm 1 0 - Live 0x0\nnvidia 2 1 nvidia_uvm, Live 0x0\next4 1 0 - Live 0x0\n")
    put(tmp_path, "sys/module/nvidia/version", "580.65.06\n")
    put(tmp_path, "etc/os-release", 'ID=ubuntu\nVERSION_ID="24.04"\nPRETTY_NAME="Ubuntu 24.04.2 LTS"\n')
    put(
        tmp_path,
        "proc/driver/nvidia/version",
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build  (x)\nGCC version: 13\n",
    )
    put(tmp_path, "sys/class/infiniband/mlx5_0/fw_ver", "28.43.2566\n")
    put(tmp_path, "sys/class/infiniband/mlx5_0/board_id", "MT_0000000838\n")
    put(tmp_path, "sys/class/infiniband/mlx5_0/node_guid", "b83f:d203:0051:9f2a\n")
    for name, text in (("link_layer", "InfiniBand"), ("rate", "400 Gb/sec (4X NDR)"), ("state", "4: ACTIVE")):
        put(tmp_path, f"sys/class/infiniband/mlx5_0/ports/1/{name}", text)
    (tmp_path / "sys/bus/pci/devices").mkdir(parents=True)
    put_gpu(tmp_path, "0000:3b:00.0", "GPU-bbbb")
    put_gpu(tmp_path, "0000:1a:00.0", "GPU-aaaa")
    return tmp_path


def read(root: Path) -> NodeReadings:
    return asyncio.run(LinuxInventory(root, node_uid="u").read())


def test_everything_that_identifies_the_node_is_read(root: Path) -> None:
    found = read(root)
    values = {reading.name: (reading.value, reading.reading_class) for reading in found.readings}
    identity, stack, config = ReadingClass.IDENTITY, ReadingClass.STACK, ReadingClass.CONFIG
    assert values == {
        "gpu.0.gsp_firmware": ("580.65.06", stack),
        "gpu.0.pci": ("0000:1a:00.0", identity),
        "gpu.0.product": ("NVIDIA H100 80GB HBM3", identity),
        "gpu.0.uuid": ("GPU-aaaa", identity),
        "gpu.0.vbios": ("96.00.74.00.01", stack),
        "gpu.1.gsp_firmware": ("580.65.06", stack),
        "gpu.1.pci": ("0000:3b:00.0", identity),
        "gpu.1.product": ("NVIDIA H100 80GB HBM3", identity),
        "gpu.1.uuid": ("GPU-bbbb", identity),
        "gpu.1.vbios": ("96.00.74.00.01", stack),
        "gpu.count": ("2", identity),
        "driver.version": ("580.65.06", stack),
        "kernel.version": ("6.8.0-60-generic", stack),
        "kernel.cmdline": ("ro iommu=pt pci=realloc=off", config),
        "os.id": ("ubuntu", stack),
        "os.name": ("Ubuntu 24.04.2 LTS", stack),
        "os.version_id": ("24.04", stack),
        "module.nvidia": ("580.65.06", stack),
        "nvswitch.count": ("0", identity),
        "rdma.mlx5_0.board": ("MT_0000000838", identity),
        "rdma.mlx5_0.firmware": ("28.43.2566", stack),
        "rdma.mlx5_0.node_guid": ("b83f:d203:0051:9f2a", identity),
        "rdma.mlx5_0.1.link_layer": ("InfiniBand", config),
        "sysctl.net.ipv4.tcp_rmem": ("4096 131072 6291456", config),
        "sysctl.vm.max_map_count": ("1048576", config),
    }
    assert found.gpus == (
        Gpu(index=0, uuid="GPU-aaaa", pci="0000:1a:00.0", product="NVIDIA H100 80GB HBM3"),
        Gpu(index=1, uuid="GPU-bbbb", pci="0000:3b:00.0", product="NVIDIA H100 80GB HBM3"),
    )
    assert (found.node_uid, found.boot_id) == ("u", BOOT)
    assert found.booted_at == datetime(2026, 1, 5, 8, 0, tzinfo=UTC)
    assert found.unread == ()
    fingerprint(found.readings)


def test_reading_twice_gives_the_same(root: Path) -> None:
    assert read(root) == read(root)


def test_no_gpu_is_said_explicitly(root: Path) -> None:
    for file in sorted((root / "proc/driver/nvidia/gpus").glob("*/information")):
        file.unlink()
        file.parent.rmdir()
    found = read(root)
    assert found.gpus == ()
    assert [reading.value for reading in found.readings if reading.name == "gpu.count"] == ["0"]


def test_a_uuid_that_the_driver_does_not_know_yet_is_unread_and_not_a_change(root: Path) -> None:
    put_gpu(root, "0000:3b:00.0", "GPU-????????-????-????-????-????????????", "??.??.??.??.??")
    found = read(root)
    assert found.unread == ("gpu.1.uuid", "gpu.1.vbios")
    assert found.gpus[1].uuid == ""
    assert found.gpus[1].pci == "0000:3b:00.0"
    assert "gpu.1.vbios" not in [reading.name for reading in found.readings]


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 01:15:15 UTC 2023", "535.104.05"),
        ("NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  580.95.05  Release Build", "580.95.05"),
        ("", None),
        ("something else", None),
    ],
)
def test_the_driver_version_in_both_wordings(root: Path, text: str, version: str | None) -> None:
    put(root, "proc/driver/nvidia/version", text)
    found = read(root)
    values = {reading.name: reading.value for reading in found.readings}
    assert values.get("driver.version") == version
    assert ("driver.version" in found.unread) == (version is None)


def test_a_driver_that_is_being_replaced_changes_no_identity(root: Path) -> None:
    """The PCI bus still shows the GPUs while no driver is loaded; what the driver told is kept by the agent."""
    for address in ("0000:1a:00.0", "0000:3b:00.0"):
        put(root, f"sys/bus/pci/devices/{address}/vendor", "0x10de\n")
        put(root, f"sys/bus/pci/devices/{address}/class", "0x030200\n")
    before = {r.name: r.value for r in read(root).readings}
    shutil.rmtree(root / "proc/driver/nvidia")
    after = read(root)
    assert {r.name: r.value for r in after.readings}["driver.version"] == "not loaded"
    gone = {f"gpu.{n}.{part}" for n in (0, 1) for part in ("uuid", "product", "vbios", "gsp_firmware")}
    assert set(after.unread) == gone
    assert before.keys() - {r.name for r in after.readings} == gone
    assert [gpu.pci for gpu in after.gpus] == ["0000:1a:00.0", "0000:3b:00.0"]


def test_a_module_that_a_program_loads_and_a_virtual_function_are_not_the_node(root: Path) -> None:
    before = read(root)
    with (root / "proc/modules").open("a") as file:
        file.write("nvidia_modeset 1 0 - Live 0x0\n")
    put(root, "sys/class/infiniband/mlx5_1/node_guid", "b83f:d203:0051:9f2b\n")
    (root / "sys/class/infiniband/mlx5_1/ports").mkdir()
    (root / "sys/class/infiniband/mlx5_1/device/physfn").mkdir(parents=True)
    assert read(root).readings == before.readings


def test_the_agent_reads_without_yaml_and_nvml() -> None:
    """Both cost memory that every node of a fleet would pay."""
    code = (
        "import sys, muster.agent.agent, muster.agent.inventory\n"
        "print(sorted({'yaml', 'pynvml', 'muster.inventory.nvml'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_hostile_files_are_bounded(root: Path) -> None:
    put(root, "proc/sys/kernel/osrelease", "x" * 1_000_000)
    (root / "proc/modules").write_bytes(bytes(range(256)) * 100)
    assert max(len(reading.value) for reading in read(root).readings) <= 1024


def test_a_place_without_proc_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(
        BadInputError, match=r"^Cannot read the boot ID below .*; is /proc of the node mounted there\?$"
    ):
        read(tmp_path)


def test_this_machine_can_be_read() -> None:
    found = asyncio.run(LinuxInventory().read())
    names = [reading.name for reading in found.readings]
    assert len(found.boot_id) == 36
    assert "kernel.version" in names
    assert names == sorted(names)
