"""NCCL logs: whatever the prefix, the order or the cut, the same conclusion; and nobody is blamed for telling."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.errors import BadInputError
from muster.read import collectives, formats
from muster.read.collectives.communicators import Communicators, address
from muster.read.collectives.kinds import STATUS
from muster.read.collectives.lines import nccl_line, numbered
from muster.read.collectives.nccl_log import transport_used
from muster.read.collectives.transports import is_expected
from tests.read.cases import DATA, as_input, holds, read_text

PREFIXES = (
    "",
    "[1,3]<stdout>:",
    "[0] ",
    "3: ",
    "[rank3]:",
    "[pod/trainer-3/main] ",
    "2026-01-02T03:04:05.123456789Z stdout F ",
    "[2026-01-02 03:04:05] ",
    " 2026-01-02 03:04 ",
    "worker-3 | [default3]:",
)
prefixes = st.sampled_from(PREFIXES)


def completion(
    here: str = "node-1", peer: str = "10.1.0.2<4000>", status: int = 12, style: str = "new", vendor: int = 129
) -> str:
    head = f"{here}:11:12 [3] transport/net_ib.cc:99 NCCL WARN NET/IB : Got completion from peer {peer} with "
    gids = "localGid fd00:1:2:3:4:5:6:aa01 remoteGid"
    match style:
        case "old":
            return f"{head}error {status}, opcode 1, len 0, vendor err {vendor}"
        case "side":
            return f"{head}error {status}, opcode 1, len 0, vendor err {vendor} (Send) {gids} fd00:1:2:3:4:5:6:bb01"
        case "named":
            name = STATUS[status][0]
            head += f"status={name}({status}) opcode=IBV_WC_SEND(0) vendor_err={vendor} req_type=Send "
            return f"{head}{gids} fd00:1:2:3:4:5:6:bb01 hca mlx5_4"
        case _:
            return f"{head}status={status} opcode=1 len=0 vendor err {vendor} (Recv) {gids}sfd00:1:2:3:4:5:6:bb01"


def event(here: str = "node-2", said: str = "port error", device: str = "", pid: int = 21) -> str:
    return f"{here}:{pid}:22 [0] transport/net_ib.cc:93 NCCL WARN NET/IB : {device}Got async event : {said}"


def info(message: str, here: str = "node-1") -> str:
    return f"{here}:11:12 [3] NCCL INFO {message}"


def read(*lines: str, end: str = "\n", **context: Any) -> dict[str, Any]:
    return read_text("\n".join(lines) + end, None, context)


def results(report: dict[str, Any], of: str) -> list[str]:
    return [verdict["result"] for verdict in report["verdicts"] if verdict["of"] == of]


def faults(report: dict[str, Any], code: str) -> list[dict[str, Any]]:
    return [fault for fault in report["faults"] if fault["code"] == code]


@given(
    prefix=prefixes, style=st.sampled_from(("old", "side", "new", "named")), status=st.sampled_from(sorted(STATUS))
)
def test_every_generation_of_a_failed_completion_says_the_same(prefix: str, style: str, status: int) -> None:
    report = read(prefix + completion(status=status, style=style))
    (fault,) = report["faults"]
    assert (fault["code"], fault["status"], fault["vendor_error"]) == (STATUS[status][1].code, status, 129)
    assert fault["reported_by"] == {"node": "node-1", "pid": 11, "tid": 12, "local_gpu": 3}
    assert report["values"]["peer_port"]["value"] == 4000
    assert "FAIL" not in [verdict["result"] for verdict in report["verdicts"]]
    assert "opcode" not in fault


@given(
    prefix=prefixes,
    processes=st.integers(1, 5),
    victims=st.lists(st.sampled_from(("node-1", "node-3", "node-4")), min_size=1, max_size=3, unique=True),
    events_first=st.booleans(),
)
def test_the_port_is_the_root_and_its_peers_are_victims(
    prefix: str, processes: int, victims: list[str], events_first: bool
) -> None:
    events = [prefix + event(pid=30 + number) for number in range(processes)]
    told = [prefix + completion(here=victim, peer="node-2<4000>") for victim in victims]
    report = read(*(events + told if events_first else told + events))
    (incident,) = report["incidents"]
    assert incident["root"] == "ib-port-error"
    assert incident["culprit"] == {"kind": "nic-port", "node": "node-2", "device": None}
    assert incident["victims"] == sorted(victims)
    assert holds({"count": processes, "processes": processes}, faults(report, "ib-port-error")[0])
    assert results(report, "node-2") == ["FAIL"]
    assert all(results(report, victim) == ["UNKNOWN"] for victim in victims)
    follows = {fault.get("follows") for fault in faults(report, "ib-retry-exceeded")}
    assert follows == ({"ib-port-error"} if events_first else {None})


@given(cut=st.integers(1, 400), prefix=prefixes, style=st.sampled_from(("old", "side", "new", "named")))
def test_a_cut_line_invents_nothing(cut: int, prefix: str, style: str) -> None:
    whole = prefix + completion(style=style)
    text = whole[: max(1, len(whole) - cut)] if cut < len(whole) else whole
    report = read_text(info("Using network IB") + "\n" + text, "nccl-log")
    for fault in faults(report, "ib-retry-exceeded"):
        assert fault["status"] in (12, None)
        assert fault["vendor_error"] in (129, None)
        for pair in fault.get("gid_pairs", ()):
            assert pair["local"] in ("fd00:1:2:3:4:5:6:aa01", None)
            assert pair["remote"] in ("fd00:1:2:3:4:5:6:bb01", None)
    if faults(report, "ib-retry-exceeded") and len(text) < len(whole) - 60:
        assert report["values"]["truncated_lines"]["value"] == 1
        assert report["truncated"]


def test_a_flap_without_victims_is_a_warning() -> None:
    down, up = event(device="mlx5_1:1 "), event(said="port active", device="mlx5_1:1 ")
    report = read(down, up)
    assert (report["faults"][0]["cleared"], report["faults"][0]["device"]) == (True, "mlx5_1")
    assert report["incidents"] == []
    assert results(report, "node-2") == ["WARN"]
    assert results(read(down, event(said="port active", device="mlx5_2:1 ")), "node-2") == ["FAIL"]
    assert results(read(down, up, down), "node-2") == ["FAIL"]
    assert results(read(down, up, completion(peer="node-2<1>")), "node-2") == ["FAIL"]


@pytest.mark.parametrize(
    ("said", "code", "severity"),
    [
        ("local catastrophic error", "ib-device-fatal", "fatal"),
        ("GID table change", "ib-gid-change", "warning"),
        ("LID change", "ib-fabric-event", "info"),
        ("client reregistration", "ib-fabric-event", "info"),
        ("CQ error", "ib-queue-error", "warning"),
        ("something new", "nccl-warning", "unknown"),
    ],
)
def test_events_of_an_adapter(said: str, code: str, severity: str) -> None:
    (fault,) = read(event(said=said))["faults"]
    assert (fault["code"], fault["severity"]) == (code, severity)


def test_a_node_has_one_name_however_it_is_spelled() -> None:
    lines = (
        completion(peer="10.1.0.2<1>"),
        completion(peer="node-2.cluster.local<2>"),
        completion(peer="n2<3>"),
        info("NET/IB : Using [0]mlx5_0:1/RoCE [RO]; OOB eth0:10.1.0.2<0>", "node-2"),
    )
    report = read(*lines, aliases={"node-2": ["n2"]})
    (fault,) = faults(report, "ib-retry-exceeded")
    assert (fault["entity"]["between"], fault["count"]) == (["node-1", "node-2"], 3)
    assert report["values"]["link_layer"]["value"] == "RoCE"


def test_the_node_where_many_failing_paths_meet_is_named_and_not_failed() -> None:
    report = read(*(completion(here=f"node-{n}", peer="bad-9<1>") for n in range(4)))
    (incident,) = report["incidents"]
    assert (incident["common_end"], incident["confidence"]) == ("bad-9", "low")
    assert results(report, "bad-9") == ["UNKNOWN"]
    apart = read(completion(here="a", peer="b<1>"), completion(here="c", peer="d<1>"))
    assert [incident["common_end"] for incident in apart["incidents"]] == [None, None]


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("socketProgress: Connection closed by remote peer node-2.x<55693>", "socket-peer-closed"),
        ("Net : Call to recv from 10.0.0.2<45> failed : Connection reset by peer", "socket-reset"),
        ("socketStartConnect: Connect to 10.0.0.2<45> failed : Connection refused", "socket-refused"),
        ("socketPollConnect: Connect to 10.0.0.2<45> returned 110(Connection timed out) errno 110", "socket-timeout"),
        ("Call to connect to 10.0.0.2<45> failed : No route to host", "socket-unreachable"),
        ("Call to ibv_create_qp failed with error Cannot allocate memory", "ib-call-failed"),
        ("Bootstrap : no socket interface found", "no-socket-interface"),
        ("Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 65000", "duplicate-gpu"),
        ("Error while creating shared memory segment /dev/shm/nccl-XX (size 9637888)", "shared-memory"),
        ("Cuda failure 700 'an illegal memory access was encountered'", "cuda-failure"),
        ("Cuda failure 'uncorrectable ECC error encountered'", "cuda-hardware-error"),
        ("NET/OFI Request 0x7f completed with error. RC: 15. Error: unresponsive receiver", "ofi-request-failed"),
    ],
)
def test_warnings_have_codes(text: str, code: str) -> None:
    report = read(f"node-1:11:12 [3] misc/any.cc:4 NCCL WARN {text}")
    assert [fault["code"] for fault in report["faults"]] == [code]
    assert "FAIL" not in [verdict["result"] for verdict in report["verdicts"]]


def test_lines_that_pass_an_error_on_are_no_faults() -> None:
    report = read(
        completion(),
        info("proxy.cc:698 -> 6"),
        "node-1:11:12 [3] proxy.cc:1519 NCCL WARN [Proxy Service 11] Failed to execute operation Connect, retcode 2",
    )
    assert [fault["code"] for fault in report["faults"]] == ["ib-retry-exceeded"]
    assert report["values"]["nccl_result"] == {"value": 6, "meaning": "remote-error"}
    assert report["values"]["lines_passing_on"]["value"] == 1


@pytest.mark.parametrize(
    ("via", "used"),
    [
        ("NET/IB/3/GDRDMA", "NET/IB"),
        ("NET/IBext_v8/0(8)/GDRDMA", "NET/IB"),
        ("NET/Socket/0", "NET/Socket"),
        ("NET/AWS Libfabric/2/GDRDMA", "NET/AWS Libfabric"),
        ("NET/FasTrak/0(8)/GDRDMA", "NET/FasTrak"),
        ("NET/gIB/1/GDRDMA", "NET/gIB"),
        ("P2P/MNNVL", "P2P/MNNVL"),
        ("P2P/CUMEM/read", ""),
        ("P2P/IPC", ""),
        ("SHM/direct/direct", ""),
    ],
)
@given(prefix=prefixes)
def test_the_transport_between_nodes(via: str, used: str, prefix: str) -> None:
    lines = [prefix + info("Using network Whatever"), prefix + info(f"Channel 02/0 : 0[0] -> 8[0] [send] via {via}")]
    assert transport_used(lines) == used
    assert transport_used([prefix + info("Channel 02 : 0[1b000] -> 8[1b000] [receive] via " + via)]) == used


def test_without_channels_the_chosen_network_is_the_transport() -> None:
    assert transport_used([info("Using network IBext_v8")]) == "NET/IB"
    assert transport_used(["nothing of the kind"]) == ""
    lines = [info("NET/OFI Selected Provider is tcp (found 2 nics)"), info("Using network AWS Libfabric")]
    assert not is_expected("EFA", transport_used(lines))


def test_two_transports_are_both_named_and_sockets_beside_ib_are_a_fallback() -> None:
    lines = [
        info(f"Channel 0{n}/0 : 0[0] -> 8[0] [send] via {via}") for n, via in enumerate(("NET/Socket/0", "NET/IB/0"))
    ]
    assert transport_used(lines) == "NET/IB+NET/Socket"
    report = read(*lines, expected_transport="IB")
    assert results(report, "transport") == ["FAIL"]
    assert [fault["code"] for fault in report["faults"]] == ["transport-fallback"]
    assert results(read(*lines, expected_transport="Socket"), "transport") == ["PASS"]
    assert results(read(info("nothing"), expected_transport="IB"), "transport") == ["UNKNOWN"]


def test_a_healthy_start_passes_and_an_unfinished_one_does_not() -> None:
    def init(rank: int, what: str) -> str:
        return info(f"ncclCommInitRank comm 0x55 rank {rank} nranks 2 cudaDev 0 busId 53000 commId 0x1 - Init {what}")

    whole = [init(rank, what) for what in ("START", "COMPLETE") for rank in (0, 1)]
    assert results(read(*whole), "job") == ["PASS"]
    assert results(read(*whole[:-1]), "job") == ["UNKNOWN"]
    assert read(*whole[:1])["values"]["ranks_not_seen"]["value"] == [1]


def test_where_ranks_sit_and_which_of_them_came_up() -> None:
    def init(rank: int, nranks: int, bus: str, what: str) -> str:
        return info(
            f"comm 0x55 rank {rank} nranks {nranks} cudaDev {rank % 8} nvmlDev 0 busId {bus} commId 0x1 - {what}"
        )

    lines = [init(n, 3, f"{n + 1}b000", "Init COMPLETE") for n in range(2)] + [init(0, 2, "aa000", "Abort COMPLETE")]
    found = Communicators()
    for line in lines:
        parsed = nccl_line(line)
        assert parsed is not None
        assert found.take(parsed.host, parsed.message)
    assert found.place(1) == {"rank": 1, "node": "node-1", "local_gpu": 1, "pci": "0000:2b:00.0"}
    assert (found.place(2), found.up, found.aborted) == (None, False, set())
    assert read(*lines)["values"]["ranks_not_seen"]["value"] == [2]
    assert [address(bus) for bus in ("101c000", "1", "0123456789")] == ["0010:1c:00.0", "0000:00:00.1", None]


def test_the_node_of_a_suspected_rank_is_told() -> None:
    lines = [
        info(f"comm 0x55 rank {n} nranks 4 cudaDev 0 nvmlDev 0 busId 9b000 commId 0x1 - Init COMPLETE", f"node-{n}")
        for n in range(4)
    ]
    waits = "[Rank {}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=9, OpType=ALLREDUCE)"
    report = read(*lines, *(waits.format(n) for n in (0, 1, 3)), world_size=4)
    assert report["values"]["suspect_ranks"]["value"] == [2]
    assert report["values"]["suspects_at"]["value"][0]["node"] == "node-2"
    assert "FAIL" not in results(report, "node-2")


def test_multicast_without_a_bind_and_a_plugin_that_is_merely_absent() -> None:
    failed = "node-1:1:2 [0] transport/nvls.cc:157 NCCL WARN Cuda failure 801 'operation not supported'"
    assert results(read(failed), "intra-node-all-gpu") == ["FAIL"]
    absent = info(
        "NET/Plugin: Plugin load (libnccl-net.so) returned 2 : libnccl-net.so: cannot open shared object file"
    )
    assert read_text(absent + "\n", "nccl-log")["faults"] == []


def test_a_crash_that_is_not_in_the_library_is_not_the_known_one() -> None:
    frames = " 0  /x/libucs.so.0(ucs_handle_error+0x1) [0x7f01]\n 1  /x/{}(+0x12) [0x7f02]\n"
    head = "[node-1:7:0:8] Caught signal {} (Segmentation fault: address not mapped to object at address 0x48)\n"
    ours = read_text(head.format(11) + frames.format("libnccl.so.2"), None, {"nccl": "2.27.7"})
    assert ours["values"]["known_issue"]["value"]["nccl"] == "2.27.7"
    for library, context in (
        ("libtorch.so", {"nccl": "2.27.7"}),
        ("libnccl.so.2", {"nccl": "2.27.8"}),
        ("libnccl.so.2", {}),
    ):
        report = read_text(head.format(11) + frames.format(library), "nccl-log", context)
        assert report["values"]["known_issue"]["value"] is None
        assert report["faults"][0]["module"] == library
    (fault,) = read_text(head.format(7) + frames.format("libnccl.so.2"), None)["faults"]
    assert (fault["signal"], ours["faults"][0]["signal"]) == (7, 11)
    later = read_text(head.format(11) + frames.format("libnccl.so.2"), None, {"kernel_log_faults": 2})
    assert holds({"result": "UNKNOWN", "reason": "kernel-log-has-faults"}, later["verdicts"][0])


@given(
    layouts=st.lists(
        st.tuples(st.lists(st.integers(1, 8), min_size=2, max_size=2), st.sampled_from(("completed", "timeout"))),
        min_size=1,
        max_size=8,
    )
)
def test_an_uneven_run_is_never_evidence(layouts: list[tuple[list[int], str]]) -> None:
    rows = "".join(
        f"  - {{id: {n}, ranks_per_node: {layout}, phase_reached: ncclCommInitRank, result: {result}}}\n"
        for n, (layout, result) in enumerate(layouts)
    )
    report = read_text("nodes: [a, b]\nruns:\n" + rows, None)
    assert report["faults"] == []
    for number, (layout, result) in enumerate(layouts):
        even = layout[0] == layout[1]
        wanted = "PASS" if result == "completed" else "FAIL" if even else "INVALID"
        assert results(report, f"run {number}") == [wanted]
    assert all("FAIL" not in results(report, node) for node in ("a", "b"))
    bad = any(result == "timeout" and layout[0] == layout[1] for layout, result in layouts)
    good = any(result == "completed" for _, result in layouts)
    assert results(report, "a") == ["PASS" if good and not bad else "UNKNOWN"]


def test_the_last_error_that_torch_repeats_counts_where_the_warning_is_missing() -> None:
    lines = ("RuntimeError: NCCL error: remote process exited, NCCL version 2.14.3", "Last error:")
    text = "NET/IB : Got completion from peer 10.1.0.2<4000> with error 12, opcode 0, len 0, vendor err 129"
    (fault,) = read(*lines, text)["faults"]
    assert (fault["code"], fault["entity"]["between"], fault["count"]) == ("ib-retry-exceeded", [None, "10.1.0.2"], 1)
    (fault,) = read(completion(), *lines, text)["faults"]
    assert (fault["entity"]["between"], fault["count"]) == (["node-1", "10.1.0.2"], 1)


def test_addresses_in_ipv4_form_are_kept() -> None:
    text = (
        completion()
        .replace("fd00:1:2:3:4:5:6:aa01", "::ffff:10.0.0.1")
        .replace("fd00:1:2:3:4:5:6:bb01", "::ffff:10.0.0.2")
    )
    (fault,) = read(text)["faults"]
    assert fault["gid_pairs"] == [{"local": "::ffff:10.0.0.1", "remote": "::ffff:10.0.0.2"}]


def test_runs_and_logs_are_not_mixed() -> None:
    runs = as_input("runs.yaml", b"runs:\n  - {id: 1, ranks_per_node: [1, 1], result: ok}\n")
    log = as_input("node.log", completion().encode())
    with pytest.raises(BadInputError, match=r"runs\.yaml"):
        formats.read([log, runs], {})


def test_multicast_without_memory_is_no_fault_of_the_fabric() -> None:
    report = read("n:1:2 [0] transport/nvls.cc:9 NCCL WARN NVLS Multicast : CUDA error 2 'out of memory'")
    assert [(fault["code"], fault["severity"]) for fault in report["faults"]] == [("nvls-out-of-memory", "warning")]
    assert results(report, "intra-node-all-gpu") == []


def test_the_step_of_a_number_with_an_exponent_is_not_told() -> None:
    assert "last_step" not in read("loss 3 global_step=3.2e+4, time: 3 s", completion())["values"]
    values = read("iteration     100/   5000 | elapsed time per iteration (ms): 512.5 | lm loss: 1.0", completion())[
        "values"
    ]
    assert (values["last_completed_step"]["value"], values["total_steps"]["value"]) == (100, 5000)
    assert values["step_time"] == {"value": [512.5], "unit": "ms"}


@pytest.mark.parametrize(
    "text",
    [
        "runs:\n  - {id: 1, ranks_per_node: x, result: completed}\n",
        "runs:\n  - {id: 1, ranks_per_node: [1, 2], result: soon}\n",
        "runs:\n  - {id: [1], ranks_per_node: [1, 2], result: ok}\n",
        "runs: 3 # ranks_per_node\n",
    ],
)
def test_runs_that_cannot_be_read_are_named(text: str) -> None:
    with pytest.raises(BadInputError, match="log"):
        read_text(text, None)


def test_a_context_that_cannot_be_used_is_refused() -> None:
    for context in ({"aliases": 3}, {"aliases": {"a": "b"}}, {"world_size": "many"}, {"world_size": 0}):
        with pytest.raises(BadInputError, match="context"):
            read_text(completion() + "\n", "nccl-log", context)


@given(st.binary(max_size=2000))
def test_any_bytes_are_read_to_the_end(data: bytes) -> None:
    for mine in collectives.FORMATS:
        assert 0.0 <= mine.detect(data) <= 1.0
        try:
            report = mine.parse([as_input("x", data)], {})
        except BadInputError:
            continue
        assert "FAIL" not in [verdict.result.value for verdict in report.verdicts]


CASES = [
    path
    for path in sorted((DATA / "cases").glob("*/input*"))
    if any(mine.detect(path.read_bytes()) == 1.0 for mine in collectives.FORMATS)
]


@given(
    path=st.sampled_from(CASES),
    at=st.integers(0, 3000),
    gone=st.integers(0, 60),
    put=st.text(max_size=12) | st.sampled_from(("²", "٣", "-1", "99999999999999999999", "\x00", "NaN", "[", "\n")),
)
@settings(max_examples=400)
def test_damaged_text_is_read_or_refused(path: Path, at: int, gone: int, put: str) -> None:
    text = path.read_text()
    at %= len(text)
    damaged = (text[:at] + put + text[at + gone :]).encode("utf-8", "replace")
    for mine in collectives.FORMATS:
        try:
            report = mine.parse([as_input("x", damaged)], {})
        except BadInputError:
            continue
        assert json.loads(json.dumps(report.plain(), allow_nan=False))["kind"] == mine.kinds[0]


@given(noise=st.lists(st.text(max_size=40), max_size=5), at=st.integers(0, 5))
def test_lines_of_others_change_nothing(noise: list[str], at: int) -> None:
    clean = [line.replace("\n", " ").replace("NCCL", "") for line in noise]
    lines = [*clean[:at], completion(), *clean[at:]]
    alone, among = read(completion()), read_text("\n".join(lines) + "\n", "nccl-log")
    assert [fault["code"] for fault in among["faults"]] == [fault["code"] for fault in alone["faults"]]
    assert among["incidents"] == alone["incidents"]


@given(st.lists(st.binary(max_size=50), max_size=20), st.integers(1, 30))
def test_lines_do_not_depend_on_the_chunks(lines: list[bytes], size: int) -> None:
    data = b"\n".join(line.replace(b"\n", b"").replace(b"\x1b", b"") for line in lines)
    whole = list(numbered([data]))
    assert list(numbered(data[at : at + size] for at in range(0, len(data), size))) == whole
    assert [line.number for line in whole] == list(range(1, len(whole) + 1))


def test_a_line_without_an_end_is_bounded() -> None:
    lines = list(numbered([b"a" * 70_000, b"b" * 70_000, b"\n", b"next\n"]))
    assert [line.number for line in lines] == [1, 2]
    assert lines[1].text == "next"


def test_a_prefix_may_speak_of_nccl_too() -> None:
    line = nccl_line("NCCL run 7 | h:1:2 [0] NCCL INFO Using network IB")
    assert line is not None
    assert (line.host, line.level, line.message) == ("h", "INFO", "Using network IB")
    assert nccl_line("the NCCL library") is None


def test_kernel_lines_stay_with_the_kernel() -> None:
    text = "[  10.0] NVRM: Xid (PCI:0000:9b:00): 79, GPU has fallen off the bus.\n" + completion() + "\n"
    assert formats.detect(as_input("log", text.encode())).name == "log"
    segfault = b"pt_main[77]: segfault at 7f ip 7f sp 7f error 4 in libnccl.so.2[7f+d3d3000]\n"
    assert formats.detect(as_input("log", segfault)).name == "log"
