"""`muster read`: what it prints, and one sentence with exit code 2 for what it cannot read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from muster import yamlio
from muster.cli.group import run
from muster.read import formats
from tests.read.cases import DATA

LOG = DATA / "cases" / "gsp-rpc-timeout" / "input.log"


def test_json_and_yaml_hold_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["read", str(LOG), "-o", "json"]) == 0
    as_json = json.loads(capsys.readouterr().out)
    assert run(["read", str(LOG), "-o", "yaml"]) == 0
    assert yamlio.loads(capsys.readouterr().out, "output") == as_json
    assert list(as_json) == ["kind", "files", "truncated", "faults", "incidents", "verdicts", "values", "next"]
    evidence = as_json["faults"][0]["evidence"][0]
    assert evidence["file"] == str(LOG)
    assert evidence["lines"][0] == 3


def test_the_table_tells_fault_evidence_and_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["read", str(LOG)]) == 0
    out = capsys.readouterr().out
    assert "FATAL    xid 119  GPU 0000:9b:00.0" in out
    assert "at least 5 times" in out
    assert "verdict on node: FAIL (xid-119)" in out
    assert "next: Drain the work off GPU 0000:9b:00.0" in out


def test_a_time_without_a_year_is_shown_as_people_write_it(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    log = tmp_path / "syslog"
    log.write_text("Dec  1 02:11:41 gpu-017 kernel: NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.\n")
    assert run(["read", str(log)]) == 0
    assert "at 12-01T02:11:41" in capsys.readouterr().out


def test_the_table_shows_the_readings_with_their_units(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    waits = DATA / "cases" / "data-loading-two-groups"
    context = ["--context", str(waits / "context.yaml")] if (waits / "context.yaml").exists() else []
    assert run(["read", *context, str(next(waits.glob("input.*")))]) == 0
    out = capsys.readouterr().out
    (line,) = [line for line in out.splitlines() if line.startswith("culprits ")]
    assert "[" in line
    (line,) = [line for line in out.splitlines() if line.startswith("step_time ")]
    assert line.endswith(" s")


def test_several_files_are_taken_together(capsys: pytest.CaptureFixture[str]) -> None:
    files = [str(DATA / "cases" / name / "input.log") for name in ("gsp-rpc-timeout", "chain-of-three")]
    assert run(["read", *files, "-o", "json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["files"] == files
    assert {fault["code"] for fault in report["faults"]} == {119, 31, 62, 45}


def _one_sentence(err: str) -> bool:
    return err.startswith("muster: ") and err.count("\n") == 1 and "Traceback" not in err


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "No such file"),
        (b"", "is empty"),
        (b"\x00\x01\x02\xff\xfe" * 500, "no line of text"),
        (b"Product Name : something\nFan Speed : 3\n", "--kind"),
        (b"2025-08-20 18:45:43,123 - INFO - step 17 loss 1.25\n" * 5, "--kind"),
    ],
)
def test_bad_files(content: bytes | None, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "input"
    if content is not None:
        path.write_bytes(content)
    assert run(["read", str(path)]) == 2
    err = capsys.readouterr().err
    assert _one_sentence(err)
    assert words in err
    assert str(path) in err


def test_bad_arguments(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    context = tmp_path / "context.yaml"
    context.write_text("- a\n")
    for args in (
        ["read"],
        ["read", str(tmp_path)],
        ["read", "--kind", "tea-leaves", str(LOG)],
        ["read", "--colour", str(LOG)],
        ["read", "-o", "xml", str(LOG)],
        ["read", "--context", str(context), str(LOG)],
        ["read", "--context", str(tmp_path / "none"), str(LOG)],
        ["read", "-", "-"],
        ["read", str(LOG), str(DATA / "cases" / "count-per-node" / "input.csv")],
    ):
        assert run(args) == 2, args
        assert _one_sentence(capsys.readouterr().err), args


def test_the_refusal_names_the_kinds(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["read", "--kind", "nccl-tests-of-tomorrow", str(LOG)]) == 2
    err = capsys.readouterr().err
    assert all(kind in err for kind in formats.kinds())


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.binary(min_size=1, max_size=400))
def test_any_file_ends_in_a_report_or_one_sentence(
    data: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "any"
    path.write_bytes(data)
    code = run(["read", "--kind", "kernel-log", str(path), "-o", "json"])
    captured = capsys.readouterr()
    assert code in (0, 2)
    assert json.loads(captured.out)["files"] if code == 0 else _one_sentence(captured.err)
