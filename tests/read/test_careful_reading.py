"""What a careful reader concludes and what not: boots, several links, reset answers, cut headers, unusable input."""

from __future__ import annotations

import io
import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.cli.group import run
from muster.read import formats
from muster.read.moment import boot, unix
from tests.read.cases import as_input, read_text

FABRIC = (
    "[Feb 27 2025 15:10:02] [ERROR] [tid 10004] detected NVSwitch fatal error 20034 on fid 0"
    " on NVSwitch pci bus id 00000000:c3:00.0 physical id 2 port 14"
)


def xid(at_s: float, code: int, text: str = "", bus: str = "3b") -> str:
    return f"[{at_s:12.6f}] NVRM: Xid (PCI:0000:{bus}:00): {code}, pid=7, name=worker" + (f", {text}" if text else "")


def log(*lines: str) -> str:
    return "".join(line + "\n" for line in lines)


def node(report: dict[str, Any]) -> tuple[str, str]:
    return report["verdicts"][-1]["result"], report["verdicts"][-1]["reason"]


@pytest.mark.parametrize(
    "prefix",
    ["", "Feb 27 15:10:03 n1 nv-fabricmanager[77]: ", "2025-02-27T15:10:02.123456789Z stdout F ", "[ 1234.500000] "],
)
def test_the_fabric_manager_is_read_behind_another_prefix(prefix: str) -> None:
    (found,) = read_text(log(prefix + FABRIC), None)["faults"]
    assert (found["code"], found["entity"]["port"], found["severity"]) == (20034, 14, "fatal")


def test_the_fabric_manager_is_read_from_the_journal() -> None:
    record = {"MESSAGE": FABRIC, "__REALTIME_TIMESTAMP": "1740669002000000", "SYSLOG_IDENTIFIER": "nv-fabricmanager"}
    (found,) = read_text(log(json.dumps(record)), None)["faults"]
    assert (found["code"], found["first_seen"]) == (20034, "2025-02-27T15:10:02Z")


@pytest.mark.parametrize("stamp", ["\u00b2\u00b2", "9" * 40, "-5", "", None, 1.5, {"a": 1}])
def test_odd_journal_times_are_unknown(stamp: object) -> None:
    record = {"MESSAGE": xid(1, 79), "__REALTIME_TIMESTAMP": stamp, "_TRANSPORT": "kernel"}
    (found,) = read_text(log(json.dumps({**record, "MESSAGE": "NVRM: Xid (PCI:0000:3b:00): 79, x"})), None)["faults"]
    assert found["first_seen"] is None


def test_byte_arrays_of_other_writers_are_read() -> None:
    record = {"MESSAGE": list(b"NVRM: Xid (PCI:0000:3b:00): 79, x"), "_TRANSPORT": "kernel"}
    for separators in ((",", ":"), (", ", ": ")):
        assert len(read_text(log(json.dumps(record, separators=separators)), None)["faults"]) == 1


def test_seconds_of_different_boots_are_not_compared() -> None:
    start = "[    0.000000] Linux version 5.15.0-112-generic (build@host) (gcc 11) #122 SMP"
    assert len(read_text(log(xid(100, 31), xid(120, 62)))["incidents"]) == 1
    assert read_text(log(xid(100, 31), start, xid(120, 62)))["incidents"] == []
    files = [as_input("a", log(xid(100, 31)).encode()), as_input("b", log(xid(120, 62)).encode())]
    assert formats.read(files, {}).plain()["incidents"] == []


def test_a_time_beyond_the_calendar_is_no_time() -> None:
    booted = datetime(2025, 1, 1, tzinfo=UTC)
    assert boot(1e15).as_utc(booted) is None
    assert boot(60).as_utc(booted) == datetime(2025, 1, 1, 0, 1, tzinfo=UTC)
    assert unix(1e18).text == ""


def test_a_recovery_action_that_is_done_is_taken_back() -> None:
    wanted = xid(10, 154, "GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)")
    done = xid(90, 154, "GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)")
    assert node(read_text(log(wanted))) == ("FAIL", "xid-154")
    assert node(read_text(log(wanted, done))) == ("PASS", "no-faults")
    assert node(read_text(log(done, wanted))) == ("FAIL", "xid-154")
    assert node(read_text(log(wanted, done.replace("3b", "9b")))) == ("FAIL", "xid-154")


def test_a_retired_page_waits_like_a_row() -> None:
    report = read_text(log(xid(10, 63, "Dynamic Page Retirement: New page retired, reboot to activate (0x00a1234).")))
    (found,) = report["faults"]
    assert (found["hint"], found["urgency"], found["page"]) == ("reset-gpu", "when-idle", "0x00a1234")
    assert node(report) == ("WARN", "page-retirement-pending")


@given(st.sets(st.integers(0, 17), min_size=2), st.integers(0, 20))
def test_one_code_on_several_links_of_a_gpu_is_one_alert(links: set[int], gap_s: int) -> None:
    unit = "NETIR_LINK_EVT Fatal XC0 i0 Link {:02d} (0x025001c6 0x00000000 0x00000000 0x0 0x0 0x0)"
    lines = [
        f"[{100.0 + i * gap_s:12.6f}] NVRM: Xid (PCI:0008:01:00): 149, " + unit.format(link)
        for i, link in enumerate(sorted(links))
    ]
    report = read_text(log(*lines))
    assert len(report["faults"]) == len(links)
    assert [incident["links"] for incident in report["incidents"]] == [sorted(links)]
    assert report["values"]["alerts"]["value"] == 1


def test_a_victim_whose_own_gpu_has_the_cause_is_no_riddle() -> None:
    lines = [
        xid(10, 74, "NVLink: fatal error detected on link 1(0x100000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)"),
        xid(11, 74, "NVLink: fatal error detected on link 2(0x100, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)"),
    ]
    assert node(read_text(log(lines[0]))) == ("UNKNOWN", "primary-not-seen")
    assert node(read_text(log(*lines))) == ("WARN", "xid-74")


def test_a_contained_error_is_not_blamed_on_the_code_of_the_application() -> None:
    (found,) = read_text(log(xid(10, 94, "Contained: SM (0x1). RST: No, D-RST: No")))["faults"]
    assert "code" not in found["next"]
    assert "ECC" in found["next"]


def test_an_unknown_code_is_never_all_well() -> None:
    for code in (61, 999):
        report = read_text(log(xid(10, code)))
        assert node(report) == ("UNKNOWN", "unknown-code")
        assert "not known" in report["next"]


@pytest.mark.parametrize(
    "cut", ["NVRM: Xid (PCI:0000:db", "NVRM: Xid (PCI:0000:db:00): 7", "NVRM: Xid (PCI:0000:db:00)"]
)
def test_a_header_that_is_cut_before_its_code_proves_nothing(cut: str) -> None:
    report = read_text("[  100.000001] usb 1-1: new device\n[  100.000002] " + cut)
    assert report["faults"] == []
    assert node(report) == ("UNKNOWN", "cut-line")


def test_text_that_is_no_log_proves_nothing() -> None:
    assert node(read_text("Dear all,\nthe cluster will be down on Monday.\n")) == ("UNKNOWN", "no-log-lines")


def test_a_failed_reset_is_named_as_such() -> None:
    uuid = "GPU-00000000-002a-1111-2222-333333333333"
    assert node(read_text(f"GPU reset executed: {uuid}, success: false\n")) == ("WARN", "gpu-reset-failed")


@pytest.mark.parametrize(("context", "word"), [
    ("expected_gpus: 'eight'", "expected_gpus"),
    ("expected_gpus: -1", "expected_gpus"),
    ("gpus: 8", "gpus"),
    ("gpus: ['banana']", "banana"),
    ("expected_nodes: n1", "expected_nodes"),
    ("suspect: 3", "suspect"),
    ("same_job: maybe", "same_job"),
    ("code: true", "code"),
])  # fmt: skip
def test_a_context_that_cannot_be_used_is_refused(
    context: str, word: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "c.yaml").write_text(context + "\n")
    (tmp_path / "log").write_text(log(xid(1, 79)))
    assert run(["read", "--context", str(tmp_path / "c.yaml"), str(tmp_path / "log")]) == 2
    error = capsys.readouterr().err
    assert word in error
    assert error.count("\n") == 1


def test_a_closed_standard_input_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    assert run(["read", "-"]) == 2
    assert "Standard input is closed" in capsys.readouterr().err


def test_short_junk_is_no_text(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    junk = bytes(range(128, 256)) * 4 + b"\nb\n" + bytes(range(128, 256)) + b"\n\xff\xfe\n"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(junk)))
    assert run(["read", "--kind", "kernel-log", "-"]) == 2
    assert "no line of text" in capsys.readouterr().err
