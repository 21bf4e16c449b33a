"""Somebody else's program: its report decides, else its exit code."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.workloads.command import judge, last_report
from tests.workloads.cases import alone


def python(code: str) -> dict[str, Any]:
    return {"command": [sys.executable, "-c", code]}


@pytest.mark.parametrize(
    ("code", "output", "ok", "reason"),
    [
        (0, "", True, ""),
        (0, "all good\n", True, ""),
        (1, "", False, "crash"),
        (-11, "", False, "crash"),
        (0, '{"ok": true}', True, ""),
        (1, '{"ok": true}', False, "crash"),
        (0, '{"ok": false}', False, "hardware"),
        (0, '{"ok": false, "reason": "numeric"}', False, "numeric"),
        (0, '{"ok": false, "reason": "because"}', False, "hardware"),
        (0, '{"ok": true}\n{"ok": false, "reason": "bandwidth"}\ntail', False, "bandwidth"),
        (0, '{"ok": true, "value": NaN}', False, "numeric"),
        (0, '{"ok": 1}', True, ""),
        (3, "{not json", False, "crash"),
    ],
)
def test_verdict(code: int, output: str, ok: bool, reason: str) -> None:
    result = judge("check", code, output)
    assert (result.ok, result.reason) == (ok, reason)


def test_a_killed_program_is_told_by_its_signal() -> None:
    assert "SIGSEGV" in judge("check", -11, "last words").message
    assert "last words" in judge("check", -11, "last words").message


def test_the_numbers_of_a_report() -> None:
    found = last_report('{"ok": true, "value": 3.5, "unit": "GB/s", "message": "m", "suspects": ["b", 3]}')
    assert found is not None
    assert (found.value, found.unit, found.message, found.suspects) == (3.5, "GB/s", "m", ("b",))


@given(st.text(max_size=200), st.integers(-20, 200))
def test_only_exit_code_0_or_a_report_passes(output: str, code: int) -> None:
    result = judge("check", code, output)
    assert result.ok == (code == 0) or last_report(output) is not None


def test_a_program_that_reports() -> None:
    code = (
        "import json, os; print('noise'); "
        "print(json.dumps({'ok': True, 'value': 2, 'unit': 'x', 'message': os.environ['MUSTER_NODE']}))"
    )
    result = alone("command", python(code), nodes=("gpu-3",))
    assert (result.ok, result.value, result.unit, result.message) == (True, 2.0, "x", "gpu-3")


def test_a_program_that_does_not_end_is_ended() -> None:
    result = alone("command", python("import time; print('waiting', flush=True); time.sleep(600)"), timeout_s=1.6)
    assert (result.ok, result.reason) == (False, "timeout")
    assert "waiting" in result.message


def test_a_program_that_writes_without_end_fills_no_memory() -> None:
    result = alone("command", python("print('x' * 80 + '\\n' * 100_000 * 30); raise SystemExit(4)"))
    assert (result.ok, result.reason) == (False, "crash")
    assert len(result.message) < 1000


@pytest.mark.parametrize("command", [[], ["/no/such/program"], "ls", [1], ["a\0b"]])
def test_no_program_at_all(command: Any) -> None:
    result = alone("command", {"command": command})
    assert (result.ok, result.reason, result.suspects) == (False, "harness", ())
