"""Readings of a host, against expectations and without any."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from muster.workloads import host, host_readings, nvidia_smi
from muster.workloads.host import Readings
from muster.workloads.host_readings import Nic, PciLink, RdmaPort
from muster.workloads.nvidia_smi import Gpu, Gpus, Remap
from muster.workloads.params import Params

GPU = Gpu(0, "NVIDIA H100", "580.65", "0000:01:00.0", 16, 16, True, 0, 41.0)
GOOD = Readings(
    gpus=Gpus((GPU, replace(GPU, index=1)), (Remap("0000:01:00.0", 0, False, False),), (), 36),
    nics=(Nic("eth0", True, 100.0, 9000), Nic("eth1", False, None, 1500)),
    ports=(RdmaPort("mlx5_0:1", True, 400.0, "InfiniBand"),),
    links=(PciLink("0000:01:00.0", "gpu", 16, 16, 2.5, 32.0), PciLink("0000:02:00.0", "nic", 16, 16, 32.0, 32.0)),
    sysctls={"vm.nr_hugepages": "0", "net.ipv4.tcp_rmem": "4096 87380 6291456"},
    clock_offset_s=0.00002,
    clock_synchronized=True,
    free_bytes=500_000_000_000,
    unreadable=(),
)
ALL = {
    "expected_gpus": 2,
    "expected_nics": 1,
    "min_link_gbps": 400,
    "mtu": 9000,
    "sysctls": {"vm.nr_hugepages": 0, "net.ipv4.tcp_rmem": "4096  87380 6291456"},
    "max_clock_offset_ms": 1,
    "min_free_gb": 100,
    "full_pcie": True,
    "ecc": True,
}


def test_a_host_as_expected() -> None:
    found = host.judge(Params(ALL), GOOD)
    assert found.broken == []
    assert found.unknown == []


@pytest.mark.parametrize(
    ("readings", "told"),
    [
        (replace(GOOD, gpus=replace(GOOD.gpus or Gpus(), gpus=(GPU,))), "1 GPUs of 2"),
        (replace(GOOD, ports=()), "eth0 runs at 100 of 400"),
        (replace(GOOD, ports=(RdmaPort("mlx5_0:1", True, 200.0, ""),)), "mlx5_0:1 runs at 200 of 400"),
        (replace(GOOD, ports=(RdmaPort("mlx5_0:1", False, None, ""),)), "0 active RDMA ports of 1"),
        (replace(GOOD, nics=(Nic("eth0", True, 100.0, 1500),)), "MTU of eth0 is 1500"),
        (replace(GOOD, sysctls={**GOOD.sysctls, "vm.nr_hugepages": "7"}), "vm.nr_hugepages is 7"),
        (replace(GOOD, clock_offset_s=0.25), "250 ms off"),
        (replace(GOOD, free_bytes=5_000_000_000), "5.0 GB of disk free"),
        (replace(GOOD, links=(PciLink("0000:01:00.0", "gpu", 8, 16, 2.5, 32.0),)), "x8 of x16"),
        (replace(GOOD, links=(PciLink("0000:02:00.0", "nic", 16, 16, 8.0, 32.0),)), "8 of 32 GT/s"),
        (replace(GOOD, gpus=Gpus((replace(GPU, ecc=False), GPU))), "ECC of GPU 0 is off"),
    ],
)
@pytest.mark.requirement("companion/BMAAS08", "companion/ATTEST01", "companion/ATTEST02")
def test_what_is_not_as_expected_is_told(readings: Readings, told: str) -> None:
    found = host.judge(Params(ALL), readings)
    assert any(told in sentence for sentence in found.broken), found


@pytest.mark.parametrize(
    ("readings", "name"),
    [
        (replace(GOOD, gpus=None), "number of GPUs"),
        (replace(GOOD, unreadable=("GPUs",)), "number of GPUs"),
        (replace(GOOD, ports=(), nics=()), "MTU"),
        (replace(GOOD, sysctls={}), "sysctl vm.nr_hugepages"),
        (replace(GOOD, clock_offset_s=None), "clock offset"),
        (replace(GOOD, free_bytes=None), "free disk space"),
        (replace(GOOD, links=()), "PCIe links"),
        (replace(GOOD, ports=(RdmaPort("mlx5_0:1", True, None, ""),)), "link rate of mlx5_0:1"),
    ],
)
def test_what_cannot_be_read_is_never_a_pass(readings: Readings, name: str) -> None:
    found = host.judge(Params(ALL), readings)
    assert any(name in unknown for unknown in found.unknown), found


def test_without_expectations_only_what_is_broken_is_judged() -> None:
    poor = replace(GOOD, nics=(), ports=(), clock_offset_s=9.0, free_bytes=1)
    assert host.judge(Params({}), poor).broken == []
    broken = replace(
        GOOD,
        gpus=Gpus(
            (replace(GPU, uncorrected=3),),
            (Remap("0000:01:00.0", 8, True, True),),
            ((0, 5),),
            17,
        ),
    )
    told = host.judge(Params({}), broken).broken
    assert len(told) == 4
    assert host.judge(Params({"judge_faults": False}), broken).broken == []


def test_facts_leave_out_what_is_not_known() -> None:
    known, unknown = host.facts(GOOD), host.facts(replace(GOOD, gpus=None, clock_offset_s=None, free_bytes=None))
    assert known["gpus"] == 2
    assert known["slowest_link_gbps"] == 100
    assert "gpus" not in unknown
    assert "clock_offset_ms" not in unknown
    assert "disk_free_gb" not in unknown


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def test_files_of_a_machine(tmp_path: Path) -> None:
    pci = "sys/bus/pci/devices/0000:01:00.0"
    write(
        tmp_path,
        {
            "sys/class/net/eth0/device/vendor": "0x15b3",
            "sys/class/net/eth0/speed": "400000\n",
            "sys/class/net/eth0/mtu": "9000\n",
            "sys/class/net/eth0/operstate": "up\n",
            "sys/class/net/eth1/device/vendor": "0x15b3",
            "sys/class/net/eth1/speed": "-1\n",
            "sys/class/net/eth1/operstate": "down\n",
            "sys/class/net/lo/mtu": "65536",
            "sys/class/infiniband/mlx5_0/ports/1/state": "4: ACTIVE\n",
            "sys/class/infiniband/mlx5_0/ports/1/rate": "400 Gb/sec (4X NDR)\n",
            "sys/class/infiniband/mlx5_0/ports/1/link_layer": "InfiniBand\n",
            f"{pci}/class": "0x030200\n",
            f"{pci}/vendor": "0x10de\n",
            f"{pci}/current_link_width": "8\n",
            f"{pci}/max_link_width": "16\n",
            f"{pci}/current_link_speed": "2.5 GT/s PCIe\n",
            f"{pci}/max_link_speed": "32.0 GT/s PCIe\n",
            "sys/bus/pci/devices/0000:00:1f.0/class": "0x060100",
            "proc/sys/net/ipv4/tcp_rmem": "4096\t87380\t6291456\n",
        },
    )
    assert host_readings.nics(tmp_path) == [Nic("eth0", True, 400.0, 9000), Nic("eth1", False, None, None)]
    assert host_readings.rdma_ports(tmp_path) == [RdmaPort("mlx5_0:1", True, 400.0, "InfiniBand")]
    assert host_readings.pci_links(tmp_path) == [PciLink("0000:01:00.0", "gpu", 8, 16, 2.5, 32.0)]
    assert host_readings.sysctl(tmp_path, "net.ipv4.tcp_rmem") == "4096 87380 6291456"
    assert host_readings.sysctl(tmp_path, "net.ipv4.none") is None


@pytest.mark.parametrize("name", ["../../etc/passwd", "net..x", "/etc/passwd", "a b", "", "A" * 200])
def test_a_sysctl_with_another_path_is_not_read(tmp_path: Path, name: str) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/passwd").write_text("secret")
    assert host_readings.sysctl(tmp_path, name) is None


@pytest.mark.parametrize(
    ("text", "offset"),
    [
        (
            "A29FC87B,162.159.200.123,4,1764500000.1,-0.000012,0.00001,0.00002,-7.1,0.0,0.03,0.02,0.001,64.2,Normal",
            0.000012,
        ),
        ("00000000,,0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,1.0,1.0,0.0,Not synchronised", None),
        ("garbage", None),
        ("1,2,3,4,x,6,7,8,9,10,11,12,13,Normal", None),
    ],
)
def test_the_offset_of_the_clock(text: str, offset: float | None) -> None:
    assert host_readings.parse_chrony(text) == offset


def test_gpus_of_nvidia_smi() -> None:
    text = (
        "0, NVIDIA H100 80GB HBM3, 580.65.06, 00000000:19:00.0, 1, 5, 16, 16, Enabled, 0, 33\n"
        "1, NVIDIA H100 80GB HBM3, 580.65.06, 00000000:3B:00.0, 5, 5, 8, 16, [N/A], [N/A], 70\n"
        "Unable to determine the device handle for GPU0000:5D:00.0: Unknown Error\n"
    )
    first, second = nvidia_smi.parse_gpus(text)
    assert (first.ecc, first.uncorrected, first.width, first.temperature_c) == (True, 0, 16, 33.0)
    assert (second.ecc, second.uncorrected, second.width, second.most_width) == (None, None, 8, 16)


def test_row_remapping_of_nvidia_smi() -> None:
    text = "00000000:19:00.0, 0, 2, Yes, No\n00000000:3B:00.0, 0, 0, 0, 1\n0000:5D:00.0, [N/A], [N/A], [N/A], [N/A]\n"
    found = nvidia_smi.parse_remaps(text)
    assert [(each.pending, each.failure) for each in found] == [(True, False), (False, True), (None, None)]


def test_nvlinks_of_nvidia_smi() -> None:
    text = (
        "GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-1)\n\t Link 0: 26.562 GB/s\n\t Link 1: <inactive>\n"
        "GPU 1: NVIDIA H100 80GB HBM3 (UUID: GPU-2)\n\t Link 0: 26.562 GB/s\n"
    )
    assert nvidia_smi.parse_nvlink(text) == (2, ((0, 1),))
    assert nvidia_smi.parse_nvlink("GPU 0: T4 (UUID: x)\n\t Link 0: <inactive>\n") == (0, ())


@pytest.mark.parametrize("parse", [nvidia_smi.parse_gpus, nvidia_smi.parse_remaps, nvidia_smi.parse_nvlink])
def test_noise_is_no_gpu(parse: Any) -> None:
    assert parse("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n,,,,\n") in (
        (),
        (0, ()),
    )
