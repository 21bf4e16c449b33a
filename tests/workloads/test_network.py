"""The transport that NCCL's log tells of, and the choice of network."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.workloads.network import choose, is_transport, log_to_file, rdma_cards, read_nccl_log, taken_from
from muster.workloads.params import Params
from muster.workloads.rank import RankFailure


def log(*messages: str) -> str:
    return "".join(f"gpu-7:4242:4310 [3] NCCL INFO {message}\n" for message in messages)


IB = log(
    "NCCL version 2.27.3+cuda12.9",
    "NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_10:1/IB [RO]; OOB eth0:10.1.2.3<0>",
    "Using network IB",
    "Channel 00/0 : 0[0] -> 8[0] [send] via NET/IB/0/GDRDMA",
    "Channel 01/0 : 8[0] -> 0[0] [receive] via NET/IB/1/GDRDMA",
    "Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM/read",
)
ROCE = IB.replace("/IB [1]", "/RoCE [1]").replace(":1/IB [RO]", ":1/RoCE [RO]")
EFA = log(
    "NET/OFI Selected provider is efa, fabric is efa-direct (found 16 nics)",
    "Channel 00/0 : 0[0] -> 8[0] [send] via NET/AWS Libfabric/0/GDRDMA comm 0x9bb nRanks 16",
)
OLD_EFA = log("NET/OFI Selected Provider is efa*", "Channel 00 : 0[160] -> 1[160] [send] via NET/AWS Libfabric/0")
SOCKET = log("Using network Socket", "Channel 00/0 : 0[0] -> 1[2] [receive] via NET/Socket/0")
MNNVL = log("Using network Socket", "Channel 00/0 : 4[0] -> 3[3] via P2P/MNNVL comm 0x55 nRanks 08")
NO_CHANNELS = log("comm 0x5 rank 0 nRanks 16 nNodes 2 localRanks 8 localRank 0 MNNVL 0", "Using network IB")


@pytest.mark.parametrize(
    ("text", "between", "inside"),
    [
        (IB, "IB", "P2P"),
        (ROCE, "RoCE", "P2P"),
        (EFA, "EFA", ""),
        (OLD_EFA, "EFA", ""),
        (EFA.replace("is efa,", "is cxi,"), "cxi", ""),
        (SOCKET, "Socket", ""),
        (IB + SOCKET, "IB+Socket", "P2P"),
        (MNNVL, "MNNVL", ""),
        (NO_CHANNELS, "IB", ""),
        (NO_CHANNELS.replace("nNodes 2", "nNodes 1"), "", ""),
        (log("Channel 00/0 : 0[0] -> 1[1] via SHM/direct/direct"), "", "SHM"),
        (log("NVLS comm 0x5 headRank 3 nHeads 8 buffSize 4", "Channel 00/0 : 0[0] -> 1[1] via P2P/IPC"), "", "NVLS"),
        (log("NVLS multicast support is available on dev 0"), "", ""),
        ("", "", ""),
    ],
)
@pytest.mark.requirement("companion/BMAAS06")
def test_transport(text: str, between: str, inside: str) -> None:
    found = read_nccl_log(text)
    assert (found.between_nodes, found.inside_node) == (between, inside)


def test_what_a_rank_says_of_a_run_over_one_node_or_several() -> None:
    found = read_nccl_log(log("Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM"))
    assert found.transport(1) == "P2P"
    assert found.transport(2) == ""


def test_channels_and_version() -> None:
    found = read_nccl_log(IB)
    assert found.channels == (("NET/IB", 2), ("P2P/CUMEM", 1))
    assert found.version == "2.27.3"


@given(st.text(alphabet="NCLIFO Channel0/:[]->via IBP2\n", max_size=300))
def test_any_text_is_read(text: str) -> None:
    assert read_nccl_log(text).between_nodes.count("\n") == 0


def test_sockets_beside_the_wanted_transport_are_not_it() -> None:
    assert is_transport("efa", "EFA")
    assert not is_transport("IB", "IB+Socket")
    assert not is_transport("IB", "")


def test_the_log_goes_to_a_file_of_its_own_unless_the_user_wants_it_elsewhere() -> None:
    environ = {"NCCL_DEBUG": "TRACE"}
    path = log_to_file(environ)
    assert path is not None
    assert environ["NCCL_DEBUG_FILE"] == str(path)
    assert environ["NCCL_DEBUG"] == "TRACE"
    path.write_text(SOCKET)
    assert taken_from(path).between_nodes == "Socket"
    assert not path.exists()
    assert log_to_file({"NCCL_DEBUG_FILE": "/somewhere"}) is None
    assert taken_from(None).transport(2) == ""


def cards(root: Path, **states: str) -> Path:
    for name, state in states.items():
        port = root / name / "ports" / "1"
        port.mkdir(parents=True)
        (port / "state").write_text(state)
    return root


def test_rails_are_counted_as_people_count(tmp_path: Path) -> None:
    root = cards(tmp_path, mlx5_10="4: ACTIVE", mlx5_2="4: ACTIVE", mlx5_1="1: DOWN", mlx5_0="4: ACTIVE")
    assert rdma_cards(root) == ["mlx5_0", "mlx5_2", "mlx5_10"]
    environ: dict[str, str] = {}
    choose(Params({"rails": [2], "algo": "ring", "mnnvl": False}), environ, device="cuda", root=root)
    assert environ == {"NCCL_ALGO": "Ring", "NCCL_MNNVL_ENABLE": "0", "NCCL_IB_HCA": "=mlx5_10"}


def test_what_the_user_sets_wins(tmp_path: Path) -> None:
    environ = {"NCCL_IB_HCA": "mine", "NCCL_ALGO": "Tree"}
    choose(Params({"rails": [0], "algo": "ring"}), environ, device="cuda", root=cards(tmp_path, mlx5_0="4: ACTIVE"))
    assert environ == {"NCCL_IB_HCA": "mine", "NCCL_ALGO": "Tree"}


def test_a_rail_that_is_not_there_is_a_fault_of_the_hardware(tmp_path: Path) -> None:
    with pytest.raises(RankFailure, match="rail 1 has no NIC") as failure:
        choose(Params({"rails": [1]}), {}, device="cuda", root=cards(tmp_path, mlx5_0="4: ACTIVE", mlx5_1="1: DOWN"))
    assert failure.value.reason == "hardware"


def test_single_rails_of_efa_are_refused(tmp_path: Path) -> None:
    with pytest.raises(RankFailure, match="EFA") as failure:
        choose(Params({"rails": [0]}), {}, device="cuda", root=cards(tmp_path, rdmap0s6="4: ACTIVE"))
    assert failure.value.reason == "harness"


def test_there_is_nothing_to_choose_on_a_cpu() -> None:
    environ: dict[str, str] = {}
    choose(Params({"rails": [9], "algo": "ring"}), environ, device="cpu")
    assert environ == {}
