"""Properties of whole readings: counts, order, cuts, spellings, storms, chains and their healthy counterparts."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.read import formats
from muster.read.kernel.prefilter import Tally, candidates
from muster.read.source import MAX_LINE_BYTES
from tests.read.cases import as_input, read_text

BORING = "[  100.000001] usb 1-1: new high-speed USB device number 2 using xhci_hcd"


def xid(at_s: float, code: int, text: str = "", bus: str = "3b", pid: int = 100) -> str:
    return f"[{at_s:12.6f}] NVRM: Xid (PCI:0000:{bus}:00): {code}, pid={pid}, name=python3" + (
        f", {text}" if text else ""
    )


def log(*lines: str) -> str:
    return "".join(line + "\n" for line in lines)


def fault(report: dict[str, Any], code: int | str) -> dict[str, Any]:
    found: list[dict[str, Any]] = [f for f in report["faults"] if f["code"] == code]
    assert len(found) == 1, f"{len(found)} faults {code}"
    return found[0]


@settings(max_examples=40)
@given(
    st.lists(
        st.tuples(st.sampled_from([13, 31, 43, 48, 79, 94, 119]), st.sampled_from(["01", "3b", "d8"])), max_size=30
    )
)
def test_counts_are_exact(events: list[tuple[int, str]]) -> None:
    report = read_text(log(BORING, *(xid(1000.0 * i, code, bus=bus) for i, (code, bus) in enumerate(events))))
    counted = {(f["code"], f["entity"]["pci"]): f["count"] for f in report["faults"]}
    wanted: dict[tuple[int, str], int] = {}
    for code, bus in events:
        key = (code, f"0000:{bus}:00.0")
        wanted[key] = wanted.get(key, 0) + 1
    assert counted == wanted
    assert report["values"]["xid_lines"]["value"] == len(events)
    assert report["values"]["log_records"]["value"] == len(events) + 1


@settings(max_examples=60)
@given(st.integers(0, 400))
def test_a_cut_never_invents(cut: int) -> None:
    mmu = (
        "Ch 00000010, intr 00000000. MMU Fault: ENGINE CE2 HUBCLIENT_CE0 faulted @ 0x7f_1000."
        " Fault is of type FAULT_PDE ACCESS_TYPE_VIRT_READ"
    )
    rpc = "Timeout after 6s of waiting for RPC response from GPU4 GSP! Expected function 76 (GSP_RM_CONTROL)."
    whole = log(xid(10, 31, mmu), xid(20, 119, rpc))
    report = read_text(whole[: max(1, cut)], context={})
    full = read_text(whole)
    for part in report["faults"]:
        (same,) = [f for f in full["faults"] if f["code"] == part["code"]]
        assert part["entity"]["pci"] == same["entity"]["pci"]
        for name in ("engine", "client", "fault_type", "access", "address", "process", "channel", "function", "hint"):
            assert part.get(name) in (None, same.get(name)), name
    assert len(report["faults"]) <= len(full["faults"])


def test_a_code_that_is_cut_is_not_read() -> None:
    report = read_text("[    1.000000] NVRM: Xid (PCI:0000:3b:00): 3")
    assert report["faults"] == []
    assert report["truncated"] is True
    assert read_text("[    1.000000] NVRM: Xid (PCI:0000:3b:00): 31\n")["faults"][0]["code"] == 31


def test_line_ends_nul_and_junk_do_not_matter() -> None:
    line = xid(5, 79, "GPU has fallen off the bus.").encode()
    plain = read_text(line + b"\n")["faults"]
    assert read_text(line + b"\r\n")["faults"] == plain
    noisy = read_text(b"\x00\x01\xff\xfe\x00\n" + line.replace(b"Xid", b"Xi\x00d") + b"\n" + b"\x80" * 50 + b"\n")[
        "faults"
    ]
    assert [(f["code"], f["entity"], f["count"]) for f in noisy] == [
        (f["code"], f["entity"], f["count"]) for f in plain
    ]


def test_a_line_of_megabytes_is_bounded() -> None:
    giant = b"[ 1.000000] x: " + b"A" * (3 * 1024 * 1024) + b"\n"
    report = read_text(giant + xid(5, 79).encode() + b"\n")
    assert fault(report, 79)["line"] == 2
    assert report["truncated"] is True
    assert report["values"]["oversized_lines"]["value"] == 1


@settings(max_examples=60)
@given(st.lists(st.text("ab []\r", max_size=60).map(str.encode), max_size=12), st.integers(1, 50))
def test_chunks_do_not_matter(lines: list[bytes], size: int) -> None:
    data = b"\n".join([*lines, b"NVRM: Xid", *lines, b"mlx5_core"])
    wanted = [i for i, line in enumerate(data.split(b"\n"), 1) if b"NVRM" in line or b"mlx5_core" in line]
    tally = Tally()
    found = [c.number for c in candidates((data[i : i + size] for i in range(0, len(data), size)), tally)]
    assert found == wanted
    assert tally.lines == data.count(b"\n") + 1


def test_storms_stay_small() -> None:
    report = read_text(
        log(*(xid(i * 0.01, 95, "Uncontained: LTC TAG (0x2,0x0). RST: Yes, D-RST: No", pid=i) for i in range(3000)))
    )
    storm = fault(report, 95)
    assert storm["count"] == 3000
    assert len(storm["pids"]) <= 64
    assert len(storm["evidence"][0]["lines"]) <= 20
    assert storm["evidence"][0]["lines_total"] == 3000


def test_evidence_is_safe_to_print() -> None:
    report = read_text("[ 1.000000] NVRM: Xid (PCI:0000:3b:00): 31, pid=1, name=\x1b[31mred\x07, text\n")
    text = report["faults"][0]["evidence"][0]["text"][0] + str(report["faults"][0]["process"])
    assert text.isprintable()


def test_off_bus_and_its_xid_are_one_fault_in_any_order() -> None:
    words = "[   10.000000] NVRM: GPU 0000:3b:00.0: GPU has fallen off the bus."
    code = xid(10.1, 79, "GPU has fallen off the bus.")
    for lines in ((words, code), (code, words)):
        report = read_text(log(*lines))
        assert len(report["faults"]) == 1
        assert fault(report, 79)["count"] == 1
        assert report["verdicts"][-1]["reason"] == "xid-79"


def test_two_gpus_off_the_bus_are_two_faults() -> None:
    report = read_text(
        log(xid(1, 79, bus="3b"), "[    2.000000] NVRM: GPU 0000:5e:00.0: GPU has fallen off the bus.")
    )
    assert [f["entity"]["pci"] for f in report["faults"]] == ["0000:3b:00.0", "0000:5e:00.0"]


def test_a_cut_off_bus_record_is_read_carefully() -> None:
    lines = (
        "[ 1843.308145] NVRM: The NVIDIA GPU 0000:b3:00.0",
        "     NVRM: (PCI ID: 10de:26b5) installed in this system has",
    )
    assert fault(read_text(log(*lines)), "gpu-off-bus")["confidence"] == "low"
    assert read_text(log(lines[0]))["faults"] == []
    other = log(lines[0], "     NVRM: (PCI ID: 10de:26b5) installed in this system is not supported by this driver.")
    assert read_text(other)["faults"] == []


def test_off_bus_in_one_line() -> None:
    line = (
        "[    9.000000] NVRM: The NVIDIA GPU 0000:b3:00.0 (PCI ID: 10de:26b5) installed in this system has"
        " fallen off the bus and is not responding to commands."
    )
    assert fault(read_text(log(line)), "gpu-off-bus")["entity"]["pci_id"] == "10de:26b5"


def test_a_failed_probe_alone_is_a_fault() -> None:
    report = read_text("[    9.000000] NVRM: The NVIDIA probe routine failed for 2 device(s).\n")
    assert fault(report, "gpu-probe-failed")["failed_devices"] == 2


@pytest.mark.parametrize("minor", [0, 3, 11])
@pytest.mark.parametrize("times", [1, 2, 5])
def test_init_failures_count_in_pairs(minor: int, times: int) -> None:
    pair = [
        "[   38.773115] NVRM: RmInitAdapter failed! (0x24:0x65:1423)",
        f"[   38.773764] NVRM: rm_init_adapter failed for device bearing minor number {minor}",
    ]
    found = fault(read_text(log(*pair * times)), "gpu-init-failed")
    assert (found["count"], found["entity"]["minor"], found["entity"]["pci"]) == (times, minor, None)


def test_newer_init_failures_name_the_gpu() -> None:
    report = read_text(
        log(
            "[   38.773115] NVRM: GPU 0000:17:00.0: RmInitAdapter failed! (0x62:0xffff:2351)",
            "[   38.773764] NVRM: GPU 0000:17:00.0: rm_init_adapter failed, device minor number 2",
            "[   39.773115] NVRM: GPU 0000:18:00.0: RmInitAdapter failed! (0x62:0xffff:2351)",
        )
    )
    assert [(f["entity"]["pci"], f["entity"]["minor"]) for f in report["faults"]] == [
        ("0000:17:00.0", 2),
        ("0000:18:00.0", None),
    ]


def test_gpu_count_is_judged_from_the_context() -> None:
    whole = {"expected_gpus": 8, "observed_gpus": 8}
    assert read_text(BORING + "\n", context=whole)["verdicts"][-1]["result"] == "PASS"
    short = read_text(BORING + "\n", context={"expected_gpus": 8, "observed_gpus": 5})
    assert short["verdicts"][-1]["reason"] == "gpu-count"
    assert short["values"]["missing_gpus"] == {"value": 3, "of": 8}


def test_rate_limit_joins_or_stands_alone() -> None:
    limit = (
        "[   20.000000] NVRM: Rate limiting GSP RPC error prints for GPU at PCI:0000:3b:00 (printing 1 of every 30)."
    )
    joined = fault(read_text(log(xid(10, 120), limit)), 120)
    assert (joined["count"], joined["count_is"], joined["rate_limit"]) == (1, "lower-bound", 30)
    alone = fault(read_text(log(limit)), 119)
    assert (alone["kind"], alone["count"], alone["count_is"]) == ("xid-companion", 1, "lower-bound")


@pytest.mark.parametrize("gap_s", [1, 30, 59])
def test_neighbours_on_one_gpu_are_one_incident(gap_s: int) -> None:
    report = read_text(log(xid(100, 31), xid(100 + gap_s, 62), xid(101 + gap_s, 45)))
    (incident,) = report["incidents"]
    assert (incident["root"], incident["worst"], incident["members"]) == (31, 62, [31, 62, 45])
    assert report["values"]["alerts"]["value"] == 1


def test_dates_without_a_year_wrap() -> None:
    prefix = "NVRM: Xid (PCI:0000:3b:00):"
    report = read_text(
        log(f"Dec 31 23:59:50 n kernel: {prefix} 31, pid=1", f"Jan  1 00:00:10 n kernel: {prefix} 62, x")
    )
    assert [(i["members"], i["window_s"]) for i in report["incidents"]] == [([31, 62], 20.0)]


def test_distance_in_time_or_gpu_separates() -> None:
    assert read_text(log(xid(100, 31), xid(500, 62)))["incidents"] == []
    assert read_text(log(xid(100, 31), xid(101, 62, bus="01")))["incidents"] == []
    assert read_text(log(xid(100, 31), xid(101, 31)))["incidents"] == []


def test_timeout_without_an_exception_is_the_gpu_s() -> None:
    assert read_text(log(xid(100, 109)))["verdicts"][-1]["result"] == "FAIL"
    owned = read_text(log(xid(100, 13), xid(105, 109)))
    assert owned["incidents"][0]["owner"] == "workload"
    assert owned["verdicts"][-1]["result"] == "WARN"


def test_recovery_action_decides_the_hint() -> None:
    action = "GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)"
    report = read_text(log(xid(100, 119), xid(101, 154, action)))
    assert fault(report, 154)["hint"] == "reboot"
    assert report["incidents"][0]["hint"] == "reboot"
    harmless = "GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)"
    assert fault(read_text(log(xid(101, 154, harmless))), 154)["severity"] == "info"


@pytest.mark.parametrize(("pids", "gaps_s", "escalates"), [
    ([1, 2], 1000, True),
    ([1, 2, 3, 4], 1000, True),
    ([1, 1, 1], 1000, False),
    ([1, 2, 3], 5, False),
    ([1], 1000, False),
    ([1, 2], 100_000, False),
])  # fmt: skip
def test_repeated_mmu_faults_escalate(pids: list[int], gaps_s: int, escalates: bool) -> None:
    report = read_text(log(*(xid(100.0 + i * gaps_s, 31, pid=pid) for i, pid in enumerate(pids))))
    found = fault(report, 31)
    assert (found["hint"] == "inspect") is escalates
    assert (report["verdicts"][0]["reason"] == "needs-diagnostic") is escalates
    assert found["hint"] != "replace"


def test_mmu_faults_on_many_gpus_are_the_program_s() -> None:
    lines = [xid(100.0 + i * 1000, 31, pid=i, bus=f"{i % 4:02x}") for i in range(16)]
    assert {f["hint"] for f in read_text(log(*lines))["faults"]} == {"restart-app"}


def nvlink(at_s: float, registers: str, bus: str = "d8") -> str:
    return f"[{at_s:12.6f}] NVRM: Xid (PCI:0000:{bus}:00): 74, NVLink: fatal error detected on link 3({registers})"


def test_a_victim_and_its_cause_are_one_incident() -> None:
    victim = nvlink(100, "0x100000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0")
    cause = nvlink(101, "0x100, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0", bus="01")
    report = read_text(log(victim, cause))
    assert [f["class"] for f in report["faults"]] == ["sympathetic-report-if-solo", "hw-reseat"]
    assert len(report["incidents"]) == 1
    reasons = {v["of"]: v["reason"] for v in report["verdicts"]}
    assert reasons["gpu 0000:d8:00.0"] == "caused-elsewhere"


@given(st.lists(st.sampled_from(["0x0", "0x10000", "0x100000", "0x8"]), min_size=7, max_size=7), st.integers(1, 90))
def test_registers_are_read_as_far_as_they_go(registers: list[str], cut: int) -> None:
    line = nvlink(100, ", ".join(registers))
    start = line.index("(0x") + 1
    found = read_text(line[: start + cut])["faults"]
    assert len(found) == 1
    read = found[0].get("registers", [])
    assert read == registers[: len(read)]


def test_a_switch_error_with_broken_channels_is_one_incident() -> None:
    switch = (
        "[  100.000000] nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 12028, Non-fatal, Link 32 egress error (First)"
    )
    companion = "[  100.000001] nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 12028, Severity 0 Engine instance 32"
    data = "[  100.000002] nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 12028, Data {0x00140004, 0x00000000}"
    report = read_text(log(switch, companion, data, xid(110, 45), xid(111, 45, bus="01")))
    assert fault(report, 12028)["count"] == 1
    assert [(i["root"], i["members"]) for i in report["incidents"]] == [(12028, [12028, 45])]
    assert fault(report, 12028)["confirmed_by"] == [45]


def test_both_logs_of_one_switch_error_are_one_fault() -> None:
    kernel = "nvidia-nvswitch0: SXid (PCI:0000:86:00.0): 20034, Fatal, Link 33 LTSSM Fault Up"
    service = (
        "[Jul 23 2024 07:53:55] [ERROR] [tid 1001] detected NVSwitch fatal error 20034 on fid 0"
        " on NVSwitch pci bus id 00000000:86:00.0 physical id 3 port 33"
    )
    report = formats.read([as_input("a", log(kernel).encode()), as_input("b", log(service).encode())], {}).plain()
    assert fault(report, 20034)["count"] == 1
    assert [e["file"] for e in fault(report, 20034)["evidence"]] == ["a", "b"]


def test_unknown_codes_are_reported_and_never_acted_on() -> None:
    report = read_text(log(xid(5, 999), "nvidia-nvswitch0: SXid (PCI:0000:05:00.0): 77777, Fatal, Link 1 something"))
    assert [(f["severity"], f["hint"]) for f in report["faults"]] == [("unknown", "inspect")] * 2
    assert report["verdicts"][-1]["result"] == "UNKNOWN"


def test_a_plugged_cable_takes_back_the_unplugged_one() -> None:
    down = "mlx5_core 0000:41:00.1: Port module event: module 1, Cable unplugged"
    up = "mlx5_core 0000:41:00.1 eth2: Link up"
    assert fault(read_text(log(down, up)), "mlx5-cable-unplugged")["cleared"] is True
    assert "cleared" not in fault(read_text(log(up, down)), "mlx5-cable-unplugged")


def test_an_injected_nvlink_error_is_a_test() -> None:
    line = "NVRM: Xid (PCI:0008:01:00): 149, NETIR Fatal XC0 i1 Link -1 (0x000fe406 0x00000000 0x0 0x0 0x0 0x0)"
    assert [(f["severity"], f["hint"]) for f in read_text(log(line))["faults"]] == [("info", "none")]


def test_the_order_of_gpus_does_not_change_what_is_found() -> None:
    lines = [xid(100, 31, bus="01"), xid(130, 62, bus="01"), xid(200, 79, bus="3b"), xid(300, 48, bus="d8")]
    forward, backward = read_text(log(*lines)), read_text(log(*lines[2:], *lines[:2]))
    key = lambda f: (f["code"], f["entity"]["pci"], f["count"], f["hint"])  # noqa: E731
    assert sorted(map(key, forward["faults"])) == sorted(map(key, backward["faults"]))
    assert [i["members"] for i in forward["incidents"]] == [i["members"] for i in backward["incidents"]]


def test_a_healthy_log_has_no_fault_and_says_how_little_that_proves() -> None:
    report = read_text(log(*[BORING] * 20), kind=None)
    assert (report["kind"], report["faults"], report["incidents"]) == ("kernel-log", [], [])
    assert report["verdicts"] == [
        {"of": "node", "result": "PASS", "reason": "no-faults", "message": report["verdicts"][0]["message"]}
    ]
    assert report["next"] == "Nothing has to be done."


def bandwidth(bus: str, at: str, gbps: float = 252.048) -> str:
    return (
        f"[   10.735323] pci 0000:{bus}:00.0: {gbps} Gb/s available PCIe bandwidth, limited by 16.0 GT/s"
        f" PCIe x16 link at 0000:{at}:00.0 (capable of 504.112 Gb/s with 32.0 GT/s PCIe x16 link)"
    )


def pcie(*lines: str, gpus: int = 4) -> dict[str, Any]:
    context = {"gpus": [f"0000:{bus:02x}:00.0" for bus in range(gpus)]}
    return read_text(log(*lines), kind=None, context=context)


def test_some_gpus_below_a_shared_switch() -> None:
    report = pcie(bandwidth("00", "40"), bandwidth("01", "40"))
    found = fault(report, "pcie-path-below-peers")
    assert (found["entity"]["pci"], found["devices"]) == ("0000:40:00.0", ["0000:00:00.0", "0000:01:00.0"])
    assert report["values"]["limited_gpus"] == {"value": 2, "of_expected": 4}


def test_one_gpu_below_limited_peers_is_found() -> None:
    lines = [bandwidth(f"{bus:02x}", "40") for bus in range(3)]
    report = pcie(*lines, bandwidth("03", "03", 63.012))
    assert fault(report, "pcie-link-below-peers")["entity"]["pci"] == "0000:03:00.0"


def test_other_devices_are_no_gpus() -> None:
    assert pcie(bandwidth("99", "99"))["faults"] == []
    assert pcie(bandwidth("99", "99"))["verdicts"][0]["reason"] == "full-bandwidth"


def test_full_bandwidth_passes_and_one_device_without_peers_is_unknown() -> None:
    healthy = "pci 0000:00:00.0: 504.112 Gb/s available PCIe bandwidth (32.0 GT/s PCIe x16 link)"
    report = pcie(healthy)
    assert (report["kind"], report["verdicts"][0]["result"]) == ("pcie", "PASS")
    alone = read_text(log(bandwidth("00", "00")), kind=None)
    assert (alone["faults"], alone["verdicts"][0]["reason"]) == ([], "peers-unknown")


def test_a_healthy_fabric_manager_log() -> None:
    line = "[Feb 27 2025 14:08:27] [INFO] [tid 1002] multicast group 0 is allocated."
    report = read_text(log(line, "payload: Number of GPUs:8", "", line), kind=None)
    assert (report["kind"], report["faults"], report["verdicts"][0]["result"]) == ("fabric-manager", [], "PASS")
    assert report["values"]["log_records"]["value"] == 2


def test_an_unknown_fabric_manager_error_is_reported() -> None:
    line = "[Feb 27 2025 14:08:27] [ERROR] [tid 1002] something that nobody has seen before"
    found = fault(read_text(log(line), kind=None), "fm-error")
    assert (found["severity"], found["hint"]) == ("unknown", "inspect")


@pytest.mark.full
def test_the_report_does_not_depend_on_the_hash_seed() -> None:
    program = (
        "import sys; from muster.cli.group import run; from tests.read.cases import DATA;"
        "sys.exit(max(run(['read', str(f), '-o', 'json']) for f in sorted(DATA.glob('cases/*/input*'))))"
    )
    outputs = []
    for seed in ("0", "1", "4242"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, check=True)
        outputs.append(done.stdout)
    assert len(outputs[0]) > 1000
    assert outputs[0] == outputs[1] == outputs[2]


@pytest.mark.parametrize(("line", "code", "severity"), [
    ("Out of memory: Killed process 4711 (python3) total-vm:1kB", "oom-kill", "warning"),
    ("Memory cgroup out of memory: Killed process 4711 (python3) total-vm:1kB", "oom-kill-cgroup", "info"),
    ("watchdog: BUG: soft lockup - CPU#17 stuck for 22s! [kworker/17:1:99]", "soft-lockup", "warning"),
    ("NMI watchdog: BUG: soft lockup - CPU#12 stuck for 23s! [python3:4242]", "soft-lockup", "warning"),
    ("NMI watchdog: Watchdog detected hard LOCKUP on cpu 3", "hard-lockup", "fatal"),
    ("INFO: task python3:4711 blocked for more than 120 seconds.", "hung-task", "warning"),
    ("rcu: INFO: rcu_sched self-detected stall on CPU", "rcu-stall", "warning"),
    ("BUG: unable to handle page fault for address: ffff", "kernel-oops", "fatal"),
    ("nvme nvme3: controller is down; will reset: CSTS=0xffffffff, PCI_STATUS=0x10", "nvme-controller-down", "fatal"),
    ("nvme nvme0: I/O 5 QID 3 timeout, aborting", "nvme-timeout", "warning"),
    ("blk_update_request: I/O error, dev nvme0n1, sector 12345 op 0x0:(READ) flags 0x0", "disk-io-error", "warning"),
    ("critical medium error, dev sda, sector 12345 op 0x0:(READ) flags 0x0 phys_seg 1", "disk-io-error", "warning"),
    ("EXT4-fs (sda1): Remounting filesystem read-only", "fs-readonly", "fatal"),
    ("XFS (dm-0): Metadata corruption detected at xfs_agf_read_verify, xfs_agf block 0x1", "fs-error", "fatal"),
    ("EDAC MC1: 3 CE memory error on CPU_SrcID#1_MC#0_Chan#0_DIMM#1 (channel:0 slot:1)", "edac-ce", "info"),
    ("{7}[Hardware Error]: event severity: recoverable", "ghes-recoverable", "warning"),
    ("pcieport 0000:00:1c.0: AER: Corrected error received: 0000:17:00.0", "pcie-aer", "info"),
    ("pcieport 0000:00:1c.0: AER: Uncorrected (Non-Fatal) error received: 0000:17:00.0", "pcie-aer", "warning"),
    ("nvidia 0000:17:00.0: PCIe Bus Error: severity=Uncorrected (Fatal), type=x", "pcie-aer", "fatal"),
    ("mce: [Hardware Error]: CPU 3: Machine Check Exception: 5 Bank 4: be00000000800400", "mce-exception", "fatal"),
    ("eth1 (mlx5_core): NETDEV WATCHDOG: CPU: 4: transmit queue 2 timed out 5000 ms", "netdev-tx-timeout", "warning"),
    ("NVRM: API mismatch: the client has the version 570.1.2, but", "driver-mismatch", "warning"),
])  # fmt: skip
def test_host_lines(line: str, code: str, severity: str) -> None:
    found = fault(read_text(log(f"[   12.000000] {line}")), code)
    assert (found["severity"], found["count"]) == (severity, 3 if code == "edac-ce" else 1)


def test_candidates_are_bounded_to_their_line_limit() -> None:
    line = b"NVRM: " + b"x" * (MAX_LINE_BYTES + 1000)
    assert all(len(c.line) <= MAX_LINE_BYTES for c in candidates([line + b"\n", line], Tally()))
