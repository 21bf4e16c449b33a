"""Shapes of output beside the usual ones: what must be concluded, and above all what must not."""

from __future__ import annotations

import json
from typing import Any

import pytest

from muster.read import formats
from tests.read.cases import as_input, read_text

HEADER = """\
# nThread 1 nGpus 1 minBytes 8388608 maxBytes 67108864 step: 8(factor) warmup iters: 5 iters: 20 validation: {check}
#       size         count      type   redop    root     time   algbw   busbw {last} time   algbw   busbw {last}
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
"""


def _verdict(report: dict[str, Any], of: str) -> tuple[str, str]:
    return next((v["result"], v["reason"]) for v in report["verdicts"] if v["of"] == of)


def _faults(report: dict[str, Any], code: str) -> list[dict[str, Any]]:
    return [fault for fault in report["faults"] if fault["code"] == code]


@pytest.mark.parametrize("last", ["error", "#wrong"])
def test_values_that_nobody_checked_are_not_called_right(last: str) -> None:
    row = "67108864 16777216 float sum -1 2744.0 24.46 45.86 N/A 2741.0 24.48 45.90 N/A\n"
    text = HEADER.format(check=0, last=last) + row + "# Out of bounds values : 0 OK\n# Avg bus bandwidth : 45.88\n"
    report = read_text(text, None, {"floor_gb_s": 40, "collective": "all_reduce"})
    assert _verdict(report, "correctness") == ("UNKNOWN", "values-not-checked")
    assert _verdict(report, "run") == ("WARN", "values-not-checked")
    assert report["values"]["wrong_total"]["value"] is None


def test_one_rank_moves_nothing_over_any_link() -> None:
    rows = (
        "8 2 float sum -1 7.16 0.00 0.00 0 0.47 0.02 0.00 0\n"
        "16777216 4194304 float sum -1 82.11 204.33 0.00 0 0.47 35696.2 0.00 0\n"
    )
    text = HEADER.format(check=1, last="#wrong") + rows + "# Out of bounds values : 0 OK\n# Avg bus bandwidth : 0\n"
    report = read_text(text, None, {"floor_gb_s": 40})
    assert report["values"]["n_ranks"]["value"] == 1
    assert _verdict(report, "run") == ("INVALID", "one-rank")
    assert "smaller groups" not in report["next"]
    assert _verdict(report, "correctness") == ("PASS", "no-wrong-values")


def test_header_lines_without_their_sign_are_read() -> None:
    text = (
        " nThread 1 nGpus 1 minBytes 8 maxBytes 67108864 step: 2(factor) warmup iters: 5 iters: 5 validation: 1\n"
        " Using devices\n"
        "  Rank  0 Group  0 Pid    127 on w-0 device  0 [0x00] NVIDIA A10G\n"
        "  Rank  1 Group  0 Pid    131 on w-1 device  0 [0x00] NVIDIA A10G\n"
        "       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw"
        " #wrong\n"
        "    67108864      16777216     float     sum      -1  21440.0    3.13    3.13      0  21390.0    3.14"
        "    3.14      0\n"
        " Out of bounds values : 0 OK\n"
        " Avg bus bandwidth    : 3.135\n"
    )
    report = read_text(text, None)
    assert report["values"]["parameters"]["value"]["warmup"] == 5
    assert [rank["host"] for rank in report["values"]["ranks"]["value"]] == ["w-0", "w-1"]
    assert report["values"]["nodes"]["value"] == 2


def test_a_damaged_head_is_no_reason_to_fall_over() -> None:
    text = (
        HEADER.format(check=1, last="#wrong").replace("count      type   redop    root     ", "")
        + "67108864 16777216 float sum -1 21440.0 3.13 3.13 0 21390.0 3.14 3.14 0\n8 2\n"
        + "# Out of bounds values : 0 OK\n# Avg bus bandwidth : 3.135\n"
    )
    assert _verdict(read_text(text, None, {"floor_gb_s": 1}), "run")[0] != "PASS"


def test_one_adapter_per_node_limits_send_and_receive() -> None:
    row = "67108864 16777216 float sum -1 5300.0 {rate} {rate} 0 5300.0 {rate} {rate} N/A\n"
    context = {
        "collective": "sendrecv", "nodes": 2, "nics_per_node": 1, "nic_gbps": 400, "floor_share_of_wire": 0.8,
    }  # fmt: skip
    found = []
    for rate in ("12.66", "47.10"):
        text = HEADER.format(check=1, last="#wrong") + row.format(rate=rate)
        text += f"# Out of bounds values : 0 OK\n# Avg bus bandwidth : {rate}\n"
        found.append(_verdict(read_text(text, None, context), "run"))
    assert found == [("FAIL", "bandwidth"), ("PASS", "bandwidth")]


def test_too_little_memory_for_multicast_is_no_fault_of_the_fabric() -> None:
    report = read_text("n1:5:7 [1] transport/nvls.cc:201 NCCL WARN Cuda failure 2 'out of memory'\n", None)
    (fault,) = report["faults"]
    assert (fault["code"], fault["hint"], fault["entity"]["kind"]) == ("nvls-out-of-memory", "restart-app", "process")
    assert all(v["result"] != "FAIL" for v in report["verdicts"])


@pytest.mark.parametrize(
    "said", ["802 'system not yet initialized'", "'system not yet initialized'", "802"], ids=["both", "words", "code"]
)
def test_a_fabric_that_is_not_ready_concerns_the_node(said: str) -> None:
    text = "".join(f"n1:{pid}:7 [{pid}] init.cc:1634 NCCL WARN Cuda failure {said}\n" for pid in range(1, 9))
    report = read_text(text, None)
    (fault,) = report["faults"]
    assert fault["code"] == "cuda-system-not-ready"
    assert (fault["entity"]["kind"], fault["entity"]["name"], fault["processes"]) == ("node", "n1", 8)
    assert fault["hint"] == "inspect"
    assert _verdict(report, "n1") == ("WARN", "fabric-not-ready")


def test_a_wrong_number_of_ranks_is_a_fault_of_the_launch() -> None:
    line = "n1:5:6 [0] bootstrap.cc:301 NCCL WARN Bootstrap Root : mismatch in rank count from procs 16 : 15\n"
    (fault,) = read_text(line, None)["faults"]
    assert (fault["code"], fault["scope"], fault["hint"]) == ("rank-count-mismatch", "config", "restart-app")


def test_a_backtrace_with_functions_in_place_of_modules() -> None:
    text = (
        "[gpu07:41234:2:41301] Caught signal 11 (Segmentation fault: address not mapped to object at address (nil))\n"
        "==== backtrace (tid:  41301) ====\n"
        " 0 0x0000000000042520 __sigaction()  ???:0\n"
        " 1 0x00000000000a1b2c ncclProxyProgress()  /build/nccl/src/proxy.cc:880\n"
        " 3 0x0000000000094ac3 pthread_condattr_setpshared()  ???:0\n"
        "=================================\n"
    )
    report = read_text(text, "nccl-log")
    assert report["values"]["frames"]["value"] == [0, 1, 3]
    (fault,) = report["faults"]
    assert (fault["code"], fault["first_frame_outside_handler"], fault["address"]) == ("segfault", 1, "0x0")
    assert fault["module"] is None


RAS = """\
NCCL version 2.28.3 compiled with CUDA 13.0
CUDA runtime version 13000, driver version 13000

Job summary
===========

  Nodes  Processes         GPUs  Processes     GPUs
(total)   per node  per process    (total)  (total)
      2          8            1         16       16

Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
    0         1         2         8        16        16   RUNNING  INCOMPLETE
"""


@pytest.mark.parametrize(("count", "rank"), [("2", "-1"), ("4294967280", "3"), ("-16", "3"), ("1", "18446744073709")])
def test_numbers_that_no_job_can_have_discard_their_section(count: str, rank: str) -> None:
    text = (
        f"{RAS}\n#0-0 (27a079b828ff1a75) INCOMPLETE\n  Missing communicator data from {count} ranks\n"
        f"  Rank {rank} -- GPU 7 managed by process 30007 on node 10.0.9.2\n"
    )
    report = read_text(text, None)
    assert report["values"]["section_discarded"]["value"]["id"] == "#0-0"
    assert report["values"]["evidence"]["value"] == "PARTIAL"
    assert _verdict(report, "job") == ("UNKNOWN", "partial-evidence")
    assert "missing_ranks" not in report["values"]


def test_a_dead_process_is_told_once() -> None:
    peer = "  Process 7003 on node 10.0.1.4 managing GPU 3\n"
    text = f"{RAS}\nINCOMPLETE\n  Missing communicator data from 1 job process\n{peer}\nDEAD\n"
    text += f"  1 job process is considered dead (unreachable via the RAS network)\n{peer}"
    report = read_text(text, None)
    assert [fault["code"] for fault in report["faults"]] == ["process-dead"]


def _timeout(rank: int, seq: int, elements: int) -> str:
    return (
        f"[rank{rank}]:[E1103 02:07:08.4 ProcessGroupNCCL.cpp:632] [Rank {rank}] Watchdog caught collective operation"
        f" timeout: WorkNCCL(SeqNum={seq}, OpType=ALLREDUCE, NumelIn={elements}, NumelOut={elements},"
        " Timeout(ms)=600000) ran for 600010 milliseconds before timing out.\n"
        f"[rank{rank}]:[E1103 02:07:08.5 ProcessGroupNCCL.cpp:2268] [PG ID 0 PG GUID 0(default_pg) Rank {rank}]"
        f"  failure detected by watchdog at work sequence id: {seq} PG status: last enqueued work: {seq},"
        f" last completed work: {seq - 1}\n"
    )


def test_ranks_that_bring_different_sizes_to_one_collective_do_not_match() -> None:
    text = "".join(_timeout(rank, 77, 100 if rank else 200) for rank in range(4))
    report = read_text(text, None, {"world_size": 4})
    assert _verdict(report, "suspect-rank") == ("UNKNOWN", "collective-mismatch")
    same = read_text("".join(_timeout(rank, 77, 100) for rank in range(4)), None, {"world_size": 4})
    assert _verdict(same, "suspect-rank") == ("UNKNOWN", "all-ranks-waiting")


def test_a_dump_signal_tells_of_a_timeout_elsewhere() -> None:
    line = (
        "[rank3]:[E203 12:00:01.100 ProcessGroupNCCL.cpp:1484] [PG ID 0 PG GUID 0(default_pg) Rank 3] Received a dump"
        " signal due to a collective timeout from  rank 6 and we will try our best to dump the debug info. Last"
        " enqueued NCCL work: 1402, last completed NCCL work: 1401.This is most likely caused by incorrect usages"
    )
    report = read_text(line + "\n", None, {"world_size": 8})
    (fault,) = report["faults"]
    assert (fault["code"], fault["ranks"]) == ("collective-timeout", [6])
    assert _verdict(report, "job") == ("FAIL", "collective-timeout")
    assert _verdict(report, "suspect-rank")[0] == "UNKNOWN"
    assert report["values"]["last_completed"]["value"] == {3: 1401}


def test_lines_of_a_healthy_watchdog_are_recognised() -> None:
    text = "I1028 12:13:38.405081 632355 ProcessGroupNCCL.cpp:843] [Rank 0] NCCL watchdog thread started!\n"
    report = read_text(text, None)
    assert (report["kind"], report["faults"], report["incidents"]) == ("torch-watchdog", [], [])
    assert _verdict(report, "job") == ("UNKNOWN", "no-evidence")


def test_a_warning_written_as_a_string_counts_as_one() -> None:
    tests = [{"name": "PCIe", "results": [{"gpu_ids": "1", "status": "FAIL", "warnings": "PCIe link width of 8"}]}]
    text = json.dumps({"DCGM GPU Diagnostic": {"test_categories": [{"category": "Integration", "tests": tests}]}})
    (fault,) = read_text(text, None)["faults"]
    assert fault["code"] == "DCGM_FR_PCIE_WIDTH"


def test_a_failed_test_is_never_answered_with_nothing_to_do() -> None:
    warning = {"warning": "Max power of 510.2 did not reach desired power minimum", "error_id": 63}
    tests = [{"name": "targeted_power", "results": [{"entity_id": 1, "status": "Fail", "warnings": [warning]}]}]
    text = json.dumps({"DCGM Diagnostic": {"test_categories": [{"category": "Stress", "tests": tests}]}})
    report = read_text(text, None)
    assert any(verdict["result"] == "FAIL" for verdict in report["verdicts"])
    assert report["next"] != "Nothing has to be done."


def test_link_states_of_several_files_do_not_contradict_each_other() -> None:
    table = "NvLink Link Status\nGPUs:\n    gpuId 0:\n        {}\n\nKey: Up=U, Down=D, Disabled=X, Not Supported=_\n"
    inputs = [as_input("a.txt", table.format("U U").encode()), as_input("b.txt", table.format("U D").encode())]
    report = formats.read(inputs, {"nvlink_expected": True}).plain()
    assert _verdict(report, "nvlink of a.txt") == ("PASS", "links-up")
    assert _verdict(report, "nvlink of b.txt") == ("FAIL", "nvlink-down")
    assert report["values"]["nvlinks of a.txt"]["value"]["down"] == 0


def test_a_pair_that_changes_its_mind_is_run_again() -> None:
    head = "node_a,node_b,busbw_gb_s\na,c,46\nb,d,46\n"
    inputs = [as_input("1.csv", f"{head}a,b,20\n".encode()), as_input("2.csv", f"{head}a,b,46\n".encode())]
    report = formats.read(inputs, {"floor_gb_s": 42}).plain()
    assert _verdict(report, "link a--b") == ("UNKNOWN", "not-repeatable")
    assert report["next"].startswith("Run a--b again")
