"""The snapshot: a fake node with eight GPUs, this machine, and what is honest about gaps."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime
from pathlib import Path

import pytest

from muster.inventory.machine import Machine
from muster.inventory.node import take, this_machine
from muster.inventory.record import NodeSnapshot
from muster.resources.fingerprint import ReadingClass

NOW = datetime(2026, 1, 5, 8, 0, tzinfo=UTC)
CMDLINE = "BOOT_IMAGE=/vmlinuz root=UUID=1 ro quiet iommu=pt"


def write(root: Path, path: str, text: str) -> None:
    target = root / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text + "\n")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A node with 8 GPUs, 4 NVSwitches, an Ethernet port, a bridge and two InfiniBand devices."""
    write(tmp_path, "etc/os-release", 'ID=ubuntu\nVERSION_ID="24.04"\nPRETTY_NAME="Ubuntu 24.04.2 LTS"')
    write(tmp_path, "proc/sys/kernel/osrelease", "6.8.0-1028-aws")
    write(tmp_path, "proc/sys/kernel/random/boot_id", "0b1e0000-0000-0000-0000-000000000001")
    write(tmp_path, "proc/sys/kernel/numa_balancing", "0")
    write(tmp_path, "proc/cmdline", CMDLINE)
    write(tmp_path, "proc/modules", "nvidia 9000 3 - Live 0x0\nmlx5_core 1 0 - Live 0x0\nveth 1 0 - Live 0x0")
    write(tmp_path, "sys/module/nvidia/version", "580.95.05")
    write(
        tmp_path,
        "proc/driver/nvidia/version",
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  x",
    )
    for index in range(8):
        address = f"0000:{index + 0x10:02x}:00.0"
        device = f"sys/bus/pci/devices/{address}"
        for name, text in (
            ("vendor", "0x10de"), ("class", "0x030200"), ("device", "0x2330"), ("subsystem_device", "0x16c1"),
            ("max_link_speed", "32.0 GT/s PCIe"), ("max_link_width", "16"), ("numa_node", str(index // 4)),
            ("current_link_speed", "2.5 GT/s PCIe"), ("current_link_width", "16"),
        ):  # fmt: skip
            write(tmp_path, f"{device}/{name}", text)
        information = (
            f"Model: \t\t NVIDIA H100 80GB HBM3\nGPU UUID: \t GPU-{index:08d}\nVideo BIOS: \t 96.00.89.00.01"
        )
        write(tmp_path, f"proc/driver/nvidia/gpus/{address}/information", information)
    for index in range(4):
        write(tmp_path, f"sys/bus/pci/devices/0000:8{index}:00.0/vendor", "0x10de")
        write(tmp_path, f"sys/bus/pci/devices/0000:8{index}:00.0/class", "0x068000")
    write(tmp_path, "sys/bus/pci/devices/0000:00:1f.0/vendor", "0x8086")
    write(tmp_path, "sys/class/net/eth0/address", "02:00:00:00:00:01")
    write(tmp_path, "sys/class/net/eth0/mtu", "9001")
    write(tmp_path, "sys/class/net/eth0/operstate", "up")
    (tmp_path / "sys/class/net/eth0/device").mkdir()
    (tmp_path / "sys/class/net/eth0/device/driver").symlink_to("../../../bus/pci/drivers/ena")
    write(tmp_path, "sys/class/net/cni0/address", "02:00:00:00:00:02")
    for name in ("mlx5_2", "mlx5_10"):
        for path, text in (("node_guid", "b83f:d203:0051:9f2a"), ("fw_ver", "28.39.1002"), ("hca_type", "MT4129")):
            write(tmp_path, f"sys/class/infiniband/{name}/{path}", text)
        for path, text in (("link_layer", "InfiniBand"), ("rate", "400 Gb/sec (4X NDR)"), ("state", "4: ACTIVE")):
            write(tmp_path, f"sys/class/infiniband/{name}/ports/1/{path}", text)
    return tmp_path


def values(snapshot: NodeSnapshot) -> dict[str, str]:
    return {r.name: r.value for r in snapshot.readings}


@pytest.mark.requirement("v2.4/BFX03")
def test_a_node_with_eight_gpus(root: Path) -> None:
    snapshot = take(Machine(root), "node-1", NOW)
    found = values(snapshot)
    assert found["gpu.count"] == "8"
    assert found["nvswitch.count"] == "4"
    assert [found[f"gpu.{n}.uuid"] for n in range(8)] == [f"GPU-{n:08d}" for n in range(8)]
    assert found["gpu.7.product"] == "NVIDIA H100 80GB HBM3"
    assert found["driver.version"] == found["module.nvidia"] == "580.95.05"
    assert found["os.id"] == "ubuntu"
    assert found["kernel.version"] == "6.8.0-1028-aws"
    assert found["kernel.cmdline"] == "ro quiet iommu=pt"
    assert found["net.eth0.driver"] == "ena"
    assert found["rdma.mlx5_10.firmware"] == "28.39.1002"
    assert "net.cni0.address" not in found
    assert "module.veth" not in found


@pytest.mark.parametrize(
    ("path", "text", "changed"),
    [
        ("sys/bus/pci/devices/0000:10:00.0/current_link_speed", "32.0 GT/s PCIe", []),
        ("proc/sys/kernel/random/boot_id", "other", []),
        ("sys/class/net/eth0/operstate", "down", []),
        ("sys/class/infiniband/mlx5_2/ports/1/state", "1: DOWN", []),
        ("proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX x86_64 Kernel Module  590.1.02  x", ["stack"]),
        ("proc/sys/kernel/numa_balancing", "1", ["config"]),
        (
            "proc/driver/nvidia/gpus/0000:10:00.0/information",
            "GPU UUID: GPU-new\nVideo BIOS: 96.00.89.00.01",
            ["identity"],
        ),
        ("proc/cmdline", CMDLINE.replace("UUID=1", "UUID=2"), []),
    ],
)
@pytest.mark.requirement("companion/BMAAS08")
def test_what_a_change_means(root: Path, path: str, text: str, changed: list[str]) -> None:
    before = take(Machine(root), "node-1", NOW)
    write(root, path, text)
    after = take(Machine(root), "node-1", NOW)
    assert [c for c in before.digests if before.digests[c] != after.digests[c]] == changed
    assert (before.fingerprint == after.fingerprint) == (not changed)


def test_no_gpu_is_said(root: Path) -> None:
    shutil.rmtree(root / "sys/bus/pci/devices")
    (root / "sys/bus/pci/devices").mkdir()
    shutil.rmtree(root / "proc/driver/nvidia")
    snapshot = take(Machine(root), "node-1", NOW)
    assert values(snapshot)["gpu"] == "none found"
    assert not [u for u in snapshot.unknown if u.name == "gpu"]


def test_what_cannot_be_read_is_unknown_with_a_reason(tmp_path: Path) -> None:
    snapshot = take(Machine(tmp_path), "empty", NOW)
    unknown = {u.name: u.reason for u in snapshot.unknown}
    assert {"gpu", "os", "kernel.version", "modules", "systemd", "net"} <= set(unknown)
    assert all(unknown.values())
    assert "gpu" not in values(snapshot)


def test_an_uninitialised_gpu_is_unknown(root: Path) -> None:
    write(root, "proc/driver/nvidia/gpus/0000:10:00.0/information", "Model: H100\nGPU UUID: GPU-????????")
    snapshot = take(Machine(root), "node-1", NOW)
    assert "gpu.0.uuid" not in values(snapshot)
    assert any(u.name == "gpu.0.uuid" and "initialised" in u.reason for u in snapshot.unknown)


def test_hostile_files(root: Path) -> None:
    (root / "etc/os-release").write_bytes(b"ID=ubuntu\x1b[31m\x00\xff\nVERSION_ID=" + b"9" * 3_000_000)
    (root / "proc/modules").write_bytes(b"\x00" * 100)
    (root / "proc/cmdline").write_text("unbalanced 'quote")
    snapshot = take(Machine(root), "node-1", NOW)
    assert all(r.value.isprintable() and len(r.value) <= 1024 for r in snapshot.readings)
    assert values(snapshot)["kernel.cmdline"] == "unbalanced 'quote"


def test_systemd_units(root: Path) -> None:
    (root / "run/systemd/system").mkdir(parents=True)
    answer = (
        "Id=kubelet.service\nLoadState=loaded\nUnitFileState=enabled\nActiveState=active\n\n"
        "Id=docker.service\nLoadState=not-found\nUnitFileState=\nActiveState=inactive\n"
    )
    snapshot = take(Machine(root, lambda command: answer), "node-1", NOW)
    classes = {r.name: r.reading_class for r in snapshot.readings}
    assert classes["unit.kubelet.service.enabled"] is ReadingClass.CONFIG
    assert classes["unit.kubelet.service.active"] is ReadingClass.VOLATILE
    assert "unit.docker.service.enabled" not in classes

    def fails(command: list[str]) -> str:
        raise OSError(110, "systemctl did not answer")

    failed = take(Machine(root, fails), "node-1", NOW)
    assert any(u.name == "systemd" and "did not answer" in u.reason for u in failed.unknown)


def test_an_untouched_machine_keeps_its_fingerprint() -> None:
    first, second = (take(this_machine(), "here", NOW) for _ in range(2))
    assert first.fingerprint == second.fingerprint
    assert first.digests == second.digests


@pytest.mark.parametrize(
    ("path", "text", "unknown"),
    [
        ("etc/os-release", "ID=\nNAME\n=x", "os.id"),
        ("proc/driver/nvidia/version", "garbage", "driver.version"),
        ("sys/bus/pci/devices/0000:f0:00.0/vendor/x", "", "gpu.count"),
        ("sys/class/infiniband/odd/ports", "a file", "rdma.odd.ports"),
        ("proc/driver/nvidia/gpus/0000:10:00.0/information", "\x1b[31m????", "gpu.0.uuid"),
    ],
)
def test_odd_content_is_unknown_with_a_reason(path: str, text: str, unknown: str, root: Path) -> None:
    write(root, path, text)
    found = take(Machine(root), "node-1", NOW)
    assert [u.reason for u in found.unknown if u.name == unknown] not in ([], [""])
    assert ("gpu.count" in [r.name for r in found.readings]) == (unknown != "gpu.count")
    assert "gpu.7.pci" in [r.name for r in found.readings]


def test_names_with_odd_digits_are_read(root: Path) -> None:
    write(root, "sys/class/infiniband/mlx5_\u00b2/node_guid", "x")
    found = take(Machine(root), "node-1", NOW)
    assert "rdma.mlx5_\u00b2.node_guid" in [r.name for r in found.readings]
    assert "rdma.mlx5_10.node_guid" in [r.name for r in found.readings]


def test_a_machine_without_a_pci_bus_has_no_gpu_and_one_without_sysfs_is_unknown(tmp_path: Path) -> None:
    write(tmp_path, "proc/sys/kernel/osrelease", "6.8.0")
    assert "gpu" in {u.name for u in take(Machine(tmp_path), "n", NOW).unknown}
    (tmp_path / "sys/bus").mkdir(parents=True)
    found = take(Machine(tmp_path), "n", NOW)
    assert values(found)["gpu"] == "none found"
    assert found.gpu_count() == 0
