"""`muster goodput --history`: the window, the rows, the jobs, the picture, and what is said about bad input."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from muster.cli.group import run
from muster.operate.history.address import parse
from muster.operate.history.facts import DelayRow, NodeRow, RepairRow, Row, StepRow, WatchedRow, WorkRow
from muster.operate.history.store import open_store
from muster.operate.ledger import microseconds

T0 = datetime(2026, 3, 4, 8, tzinfo=UTC)
HOUR_US = 3_600_000_000
WINDOW = ["--from", "2026-03-04T08:00Z", "--to", "2026-03-04T18:00Z"]


def at(hours: float) -> int:
    return microseconds(T0 + timedelta(hours=hours))


ROWS: tuple[Row, ...] = (
    NodeRow("n1", "u1", "gold", at(0)),
    NodeRow("n2", "u2", "iron", at(0)),
    StepRow("n1", at(0), "InService", "", "certification", "bringup"),
    StepRow("n2", at(0), "InService", "", "certification", "bringup"),
    WorkRow("p1", "n1", "team/train", at(1), at(5)),
    WorkRow("p2", "n2", "team/train", at(1), at(9)),
    StepRow("n1", at(5), "Quarantined", "e1", "fault", "xid/119/gpu/GPU-1"),
    StepRow("n1", at(6), "Repairing", "e1", "repair", "reboot"),
    RepairRow("r1", "n1", at(6), "reboot", 1),
    StepRow("n1", at(7), "Uncertified", "e1", "repair", "reboot"),
    StepRow("n1", at(8), "InService", "e1", "certification", "repair-1"),
    DelayRow("n1", "budget", at(4), at(5)),
    WatchedRow("s1", at(0), at(9)),
)


@pytest.fixture
def url(tmp_path: Path) -> str:
    text = f"sqlite://{tmp_path}/h.db"
    store = open_store(parse(text), create=True)
    store.migrate()
    store.write(ROWS)
    store.close()
    return text


def values(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert run(["goodput", *arguments, "-o", "json"]) == 0
    return json.loads(capsys.readouterr().out)


def hours(values: dict[str, Any]) -> dict[str, float]:
    return {name: part["us"] / HOUR_US for name, part in values["classes"].items() if part["us"]}


@pytest.mark.requirement("v2.4/OCA03")
def test_the_time_of_a_window_closes(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = values(capsys, "--history", url, *WINDOW)
    assert hours(found) == {
        "in-service-busy": 4 + 8,
        "in-service-idle": 1 + 1 + 1,
        "held": 1,
        "quarantined": 1,
        "repairing": 1,
        "unknown": 2,
    }
    assert sum(part["us"] for part in found["classes"].values()) == found["total"]["us"] == 20 * HOUR_US
    assert found["recovery"]["meanTimeToReturnS"] == 3 * 3600
    assert found["recovery"]["meanTimeToValidatedReturnS"] == 3600
    assert found["recovery"]["meanTimeBetweenFaultsS"] == 15 * 3600
    (job,) = found["jobs"]
    assert (job["job"], job["nodes"], job["us"], job["interruptions"]) == ("team/train", 2, 12 * HOUR_US, 0)
    assert found["waits"] == [{"for": "budget", "nodes": 1, "us": HOUR_US, "nodeHours": 1.0, "longestS": 3600.0}]


@pytest.mark.parametrize(
    ("by", "lost"),
    [
        ("fault", {"xid/119/gpu/GPU-1": 3}),
        ("node", {"n1": 3}),
        ("pool", {"gold": 3}),
        ("rung", {"no repair": 2, "reboot": 1}),
        ("class", {"held": 1, "quarantined": 1, "repairing": 1}),
        ("cause", {"faults": 3}),
    ],
)
def test_rows_by(url: str, capsys: pytest.CaptureFixture[str], by: str, lost: dict[str, int]) -> None:
    found = values(capsys, "--history", url, *WINDOW, "--by", by)
    assert {row["key"]: row["lostUs"] / HOUR_US for row in found["rows"] if row["lostUs"]} == lost
    assert sum(row["us"] for row in found["rows"]) == found["total"]["us"]
    assert run(["goodput", "--history", url, *WINDOW, "--by", by]) == 0
    text = capsys.readouterr().out
    assert f"By {by}:" in text
    assert next(iter(lost)) in text


def test_one_pool_and_one_node(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert values(capsys, "--history", url, *WINDOW, "--pool", "iron")["total"]["us"] == 10 * HOUR_US
    assert hours(values(capsys, "--history", url, *WINDOW, "--node", "n2"))["in-service-busy"] == 8
    (job,) = values(capsys, "--history", url, *WINDOW, "--node", "n2")["jobs"]
    assert (job["nodes"], job["us"]) == (1, 8 * HOUR_US)


def test_a_picture_that_stands_alone(url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = tmp_path / "a.svg", tmp_path / "b.svg"
    for path in (first, second):
        assert run(["goodput", "--history", url, *WINDOW, "--svg", str(path)]) == 0
    capsys.readouterr()
    assert first.read_bytes() == second.read_bytes()
    root = ElementTree.fromstring(first.read_text())
    space = "{http://www.w3.org/2000/svg}"
    assert root.tag == f"{space}svg"
    assert "60.0%" in (root.findtext(f"{space}title") or "")
    assert "lost: faults: 3.0 node-hours" in (root.findtext(f"{space}desc") or "")
    widths = [float(r.attrib["width"]) for r in root.iter(f"{space}rect")]
    assert abs(widths[0] - sum(widths[1:])) <= len(widths)


def training_log(tmp_path: Path, steps: int) -> Path:
    """A log of Megatron-LM in which each step takes ten minutes."""
    path = tmp_path / "train.log"
    lines = []
    for number in range(1, steps + 1):
        when = T0 + timedelta(hours=1, minutes=10 * number)
        lines.append(
            f" [{when:%Y-%m-%d %H:%M:%S}] iteration {number:8d}/ 1000 | consumed samples: {number * 64:12d} | "
            "elapsed time per iteration (ms): 600000.0 | learning rate: 1.0E-04 | global batch size: 64 | "
            "lm loss: 2.5E+00 | loss scale: 1.0 | grad norm: 1.000 | number of skipped iterations: 0 | "
            "number of nan iterations: 0 |\n"
        )
    path.write_text("".join(lines))
    return path


def test_a_log_says_what_a_job_made_of_its_time(url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = training_log(tmp_path, 19)
    found = values(capsys, "--history", url, *WINDOW, "--job-log", f"team/train={log}")
    (job,) = found["jobs"]
    parts = {name: part["us"] for name, part in job["parts"].items()}
    assert sum(parts.values()) + job["unread"]["us"] == job["us"] == 12 * HOUR_US
    assert parts["productive"] == 2 * 3 * HOUR_US
    assert job["goodput"]["time"] == 1.0
    assert run(["goodput", "--history", url, *WINDOW, "--job-log", f"team/train={log}"]) == 0
    assert "team/train" in capsys.readouterr().out


def test_what_was_deleted_is_said(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    store = open_store(parse(url), create=True)
    store.prune(at(4))
    store.close()
    assert run(["goodput", "--history", url, *WINDOW]) == 0
    assert "What was before 2026-03-04 12:00 UTC has been deleted" in capsys.readouterr().err


def test_the_address_may_come_from_the_environment(
    url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MUSTER_HISTORY_URL", url)
    assert values(capsys, *WINDOW)["nodes"] == 2


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--since", "7d", "--from", "2026-03-04"], 2, "--since ends now"),
        (["--to", "2026-03-04"], 2, "--to needs --from"),
        (["--from", "yesterday"], 2, "is not a time"),
        (["--from", "2026-03-05", "--to", "2026-03-04"], 2, "begin before it ends"),
        (["--from", "2926-03-05"], 2, "begin before it ends"),
        (["--from", "0001-01-01"], 2, "longer than ten years"),
        (["--since", "999999d"], 2, "longer than ten years"),
        ([*WINDOW, "--pool", "lead"], 2, "pools with nodes: gold, iron"),
        ([*WINDOW, "--node", "n9"], 2, "nothing about node n9"),
        ([*WINDOW, "--job-log", "train.log"], 2, "is not JOB=FILE"),
        ([*WINDOW, "--job-log", "team/train=/nowhere"], 2, "Cannot read /nowhere"),
        ([*WINDOW, "--job-log", "team/train=/etc/passwd"], 2, "tells no times of training steps"),
        ([*WINDOW, "--svg", "/nowhere/x.svg"], 2, "Cannot write /nowhere/x.svg"),
    ],
)
def test_bad_input(url: str, capsys: pytest.CaptureFixture[str], arguments: list[str], code: int, words: str) -> None:
    assert run(["goodput", "--history", url, *arguments]) == code
    said = capsys.readouterr().err
    assert words in said
    assert "Traceback" not in said


def test_a_log_of_another_job(url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = training_log(tmp_path, 19)
    assert run(["goodput", "--history", url, *WINDOW, "--job-log", f"team/other={log}"]) == 2
    assert "those that did: team/train" in capsys.readouterr().err


def test_a_log_needs_a_history(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["goodput", "--job-log", f"a/b={training_log(tmp_path, 3)}"]) == 2
    assert "--job-log needs --history" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("url", "code", "words"),
    [
        ("sqlite:///nowhere/h.db", 2, "There is no file"),
        ("mysql://muster:s3cret@db/ops", 2, "is no kind of history"),
        # The driver is an extra, which only the fuller suite installs.
        pytest.param("postgresql://muster:s3cret@127.0.0.1:1/ops", 4, "cannot be used", marks=pytest.mark.full),
    ],
)
def test_a_history_that_cannot_be_read(url: str, code: int, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["goodput", "--history", url]) == code
    said = capsys.readouterr().err
    assert words in said
    assert "s3cret" not in said


def test_without_the_driver_the_extra_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    assert run(["goodput", "--history", "postgresql://muster:s3cret@db/ops"]) == 2
    said = capsys.readouterr().err
    assert "pip install 'muster-gpu[postgres]'" in said
    assert "s3cret" not in said
