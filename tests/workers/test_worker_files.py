"""What a program may leave behind for the worker that reads its report."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from muster.workloads import worker_runs
from muster.workloads.report import REPORT_LIMIT_BYTES
from muster.workloads.run_spec import RunSpec
from muster.workloads.worker_processes import read_regular
from muster.workloads.worker_runs import ConflictError, Runs

FORGED = '{"node": "n1", "ok": true, "value": 900.0, "unit": "GB/s"}'


def spec(run: str = "r1") -> RunSpec:
    return RunSpec(run=run, test="host", program="host", nodes=("n1",))


def with_template(scratch: Path) -> tuple[Runs, socket.socket]:
    """Runs with the other end of the socket on which a template would listen."""
    runs = Runs(scratch)
    runs._link, theirs = socket.socketpair()
    return runs, theirs


def folder_of(theirs: socket.socket) -> Path:
    return Path(json.loads(theirs.recv(65_536).splitlines()[0])["start"]["folder"])


def finished(runs: Runs, run: str, status: int = 0) -> worker_runs.Run:
    with runs._changed:
        runs._end(status, 0)
    found = runs.look(run, 0.0)
    assert found is not None
    return found


def test_a_pipe_a_link_and_a_folder_are_no_files(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("/dev/zero")
    (tmp_path / "file").write_text(FORGED)
    (tmp_path / "link-to-file").symlink_to("file")
    for name in ("pipe", "link", "link-to-file", ".", "absent"):
        with pytest.raises(OSError, match=r"."):
            read_regular(tmp_path / name, 10)


def test_no_more_is_read_of_a_file_than_is_wanted(tmp_path: Path) -> None:
    path = tmp_path / "report"
    with path.open("wb") as file:
        file.write(b"begin")
        file.truncate(1 << 40)
    assert read_regular(path, 7) == b"begin\0\0"
    assert read_regular(path, 7, last=True) == b"\0" * 7


@pytest.mark.parametrize("left", ["pipe", "link", "huge"])
def test_a_report_that_is_no_plain_file_is_none_and_the_worker_lives(tmp_path: Path, left: str) -> None:
    runs, theirs = with_template(tmp_path)
    runs.start(spec())
    path = folder_of(theirs) / "report.json"
    if left == "pipe":
        os.mkfifo(path)
    elif left == "link":
        path.symlink_to("/dev/zero")
    else:
        path.touch()
        os.truncate(path, REPORT_LIMIT_BYTES << 20)
    assert finished(runs, "r1").how == "mute"


def test_a_report_is_passed_on_in_words_that_everybody_reads(tmp_path: Path) -> None:
    runs, theirs = with_template(tmp_path)
    runs.start(spec())
    (folder_of(theirs) / "report.json").write_text('{"node": "n1", "ok": true, "value": null, "facts": {"x": NaN}}')
    found = finished(runs, "r1")
    assert (found.how, "NaN" in found.report, json.loads(found.report)["node"]) == ("reported", False, "n1")


def test_nothing_that_one_run_leaves_becomes_the_report_of_the_next(tmp_path: Path) -> None:
    runs, theirs = with_template(tmp_path)
    (tmp_path / "r2").mkdir()
    (tmp_path / "r2" / "report.json").write_text(FORGED)
    runs.start(spec("r2"))
    assert list(folder_of(theirs).iterdir()) != []
    assert finished(runs, "r2").how == "mute"


@pytest.mark.parametrize("status", [-9, 1])
def test_a_report_beside_a_bad_end_is_no_pass(tmp_path: Path, status: int) -> None:
    runs, theirs = with_template(tmp_path)
    runs.start(spec())
    (folder_of(theirs) / "report.json").write_text(FORGED)
    assert finished(runs, "r1", status).how == "crashed"


def test_what_was_reported_before_a_run_was_stopped_counts(tmp_path: Path) -> None:
    runs, theirs = with_template(tmp_path)
    runs.start(spec())
    runs.stop("r1", 0.0)
    (folder_of(theirs) / "report.json").write_text(FORGED)
    assert finished(runs, "r1", -9).how == "reported"


def test_a_disk_that_is_full_leaves_the_worker_free(tmp_path: Path) -> None:
    (tmp_path / "scratch").touch()
    runs, theirs = with_template(tmp_path / "scratch")
    with pytest.raises(OSError, match="exists"):
        runs.start(spec())
    (tmp_path / "scratch").unlink()
    assert runs.start(spec())
    assert folder_of(theirs).parent == tmp_path / "scratch"


class Killed:
    """A template that counts how often it is killed; its children are those of this process."""

    kills = 0
    pid = os.getpid()

    def kill(self) -> None:
        self.kills += 1


def test_no_run_starts_beside_processes_that_cannot_be_killed(tmp_path: Path) -> None:
    runs, theirs = with_template(tmp_path)
    runs._template = Killed()  # type: ignore[assignment]  # what of a process is used
    runs.start(spec())
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as stays:
        runs._heard(theirs, {"ended": "r1", "status": 0, "left": [stays.pid]}, count_gpus=False)
        with pytest.raises(ConflictError, match="earlier run") as caught:
            runs.start(spec("r2"))
        assert caught.value.busy == ""
        stays.kill()
    assert runs.start(spec("r2"))


def test_a_template_that_does_not_end_a_killed_run_is_killed_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs, _theirs = with_template(tmp_path)
    runs._template = template = Killed()  # type: ignore[assignment]  # what of a process is used
    runs.start(spec())
    runs.stop("r1", 0.0)
    runs._watch_deadline()
    assert template.kills == 0
    monkeypatch.setattr(worker_runs, "STUCK_AFTER_S", 0.0)
    runs._watch_deadline()
    assert template.kills == 1
