"""The audit log: every field there, one line an action, bounded files, and never in the way."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.operate.outputs.action import Action, Result
from muster.operate.outputs.audit import AuditLog, record
from muster.operate.outputs.config import AuditConfig

AT = datetime(2026, 11, 30, 12, tzinfo=UTC)


def action(**changes: str) -> Action:
    fields = {"actor": "muster-0", "action": "evict", "target": "Pod/ml/train-0", "node": "n1", "message": "ok"}
    return Action(at=AT, result=Result.DONE, **{**fields, **changes})


@given(st.text(max_size=300), st.text(max_size=300))
@pytest.mark.requirement("v2.4/OAL03", "v2.4/SEC08")
def test_a_line_is_one_json_object_whatever_people_write(by: str, message: str) -> None:
    line = json.dumps(record(action(on_behalf=by, message=message), "east"), ensure_ascii=False)
    assert "\n" not in line
    assert set(json.loads(line)) == {
        "at",
        "cluster",
        "actor",
        "onBehalf",
        "action",
        "target",
        "node",
        "episode",
        "result",
        "message",
    }


@pytest.mark.requirement("v2.4/SEC08")
def test_lines_are_appended_and_old_files_kept_to_a_number(tmp_path: Path) -> None:
    path = tmp_path / "log" / "audit.jsonl"
    log = AuditLog(AuditConfig(path=str(path), max_bytes=10_000, keep=2))
    for number in range(400):
        log.write(action(message=f"{number}"))
    files = sorted(p.name for p in path.parent.iterdir())
    assert files == ["audit.jsonl", "audit.jsonl.1", "audit.jsonl.2"]
    assert all(p.stat().st_size <= 10_000 for p in path.parent.iterdir())
    kept = [
        json.loads(line)["message"]
        for name in ("audit.jsonl.2", "audit.jsonl.1", "audit.jsonl")
        for line in (path.parent / name).read_text().splitlines()
    ]
    assert kept == [str(n) for n in range(400 - len(kept), 400)]
    assert log.lost == 0


def test_a_log_that_cannot_be_written_is_said_once_and_counted(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    said: list[str] = []
    log = AuditLog(AuditConfig(path=str(tmp_path / "file" / "audit")), failed=said.append)
    log.write(action())
    log.write(action())
    assert log.lost == 2
    assert len(said) == 1


def test_to_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    AuditLog(AuditConfig(path="-"), "east").write(action())
    assert json.loads(capsys.readouterr().out)["target"] == "Pod/ml/train-0"


@pytest.mark.parametrize("error", [BrokenPipeError(), ValueError("I/O operation on closed file.")])
def test_standard_output_that_is_gone_never_stops_the_work(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    class Gone:
        def write(self, _: str) -> int:
            raise error

        def flush(self) -> None:
            raise error

    said: list[str] = []
    log = AuditLog(AuditConfig(path="-"), failed=said.append)
    monkeypatch.setattr("sys.stdout", Gone())
    log.write(action())
    log.write(action())
    assert log.lost == 2
    assert len(said) == 1
    assert "audit log" in said[0]


def test_a_log_that_fails_again_later_is_said_again(tmp_path: Path) -> None:
    said: list[str] = []
    path = tmp_path / "dir" / "audit.jsonl"
    log = AuditLog(AuditConfig(path=str(path)), failed=said.append)
    (tmp_path / "dir").write_text("in the way")
    log.write(action())
    (tmp_path / "dir").unlink()
    log.write(action())
    path.unlink()
    (tmp_path / "dir").rmdir()
    (tmp_path / "dir").write_text("in the way")
    log.write(action())
    assert len(said) == 2
    assert log.lost == 2
