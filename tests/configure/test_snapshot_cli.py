"""`muster snapshot` as a user meets it: on this machine, and on servers that are not there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from muster import yamlio
from muster.cli.group import run
from muster.configure.snapshot.file import content_of
from muster.inventory.machine import Findings
from muster.inventory.record import NodeSnapshot, snapshot_of
from muster.resources.base import from_object

LISTEN = "import socket; socket.create_server(('127.0.0.1', 0)).close()"
DRIVER_GPUS = Path("/proc/driver/nvidia/gpus")
Capture = pytest.CaptureFixture[str]


def invoke(*args: str) -> int:
    return run(["snapshot", *args])


# This machine


def test_this_machine_twice_with_activity_between_shows_no_drift(tmp_path: Path, capsys: Capture) -> None:
    first, second = tmp_path / "first.yaml", tmp_path / "second.json"
    assert invoke("--node", "--file", str(first)) == 0
    work = [threading.Thread(target=sum, args=(range(10**6),)) for _ in range(4)]
    for thread in work:
        thread.start()
    for number in range(200):
        (tmp_path / f"file{number}").write_bytes(os.urandom(1024))
    for _ in range(5):
        subprocess.run([sys.executable, "-c", LISTEN], check=True)
    for thread in work:
        thread.join()
    assert invoke("--node", "--file", str(second)) == 0
    capsys.readouterr()
    assert invoke("diff", str(first), str(second)) == 0
    assert capsys.readouterr().out in ("Nothing changed.\n",)


@pytest.mark.parametrize(
    ("args", "kind"),
    [
        (("-o", "s.yaml"), "yaml"),
        (("-o", "s.json"), "json"),
        (("--file", "s.json"), "json"),
        (("--file", "s.yaml"), "yaml"),
        (("-o", "json", "--file", "s.yaml"), "json"),
        (("-o", "yaml", "--file", "s.json"), "json"),
    ],
)
def test_files_are_named_with_either_option(
    tmp_path: Path, args: tuple[str, ...], kind: str, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.chdir(tmp_path)
    assert invoke("--node", *args) == 0
    assert capsys.readouterr().out == ""
    (written,) = tmp_path.iterdir()
    assert written.read_text().startswith(
        "{" if kind == "json" else "apiVersion: muster.dev/v1alpha1\nkind: Snapshot\n"
    )


@pytest.mark.parametrize(
    ("form", "start"), [("-", "apiVersion:"), ("yaml", "apiVersion:"), ("json", "{"), ("table", "boot.id")]
)
def test_formats_are_printed(form: str, start: str, capsys: Capture) -> None:
    assert invoke("--node", "-o", form) == 0
    assert capsys.readouterr().out.startswith(start)


def test_a_change_is_shown_with_its_class_and_exit_code_3(tmp_path: Path, capsys: Capture) -> None:
    before, after = tmp_path / "a.json", tmp_path / "b.json"
    assert invoke("--node", "--file", str(before)) == 0
    content = json.loads(before.read_text())
    reading = next(r for r in content["readings"] if r["name"] == "sysctl.vm.swappiness")
    reading["value"] = "1"
    after.write_text(json.dumps(content))
    assert invoke("diff", str(before), str(after)) == 2
    assert "was changed after it was recorded" in capsys.readouterr().err
    edited = from_object(NodeSnapshot, content)
    again = snapshot_of(Findings(list(edited.readings), []), edited.node, edited.taken_at)
    after.write_text(json.dumps(content_of(again) | {"unknown": content.get("unknown", [])}))
    assert invoke("diff", str(before), str(after), "-o", "json") == 3
    told = json.loads(capsys.readouterr().out)
    assert told["changed"] is True
    assert [(c["name"], c["readingClass"]) for c in told["changes"]] == [("sysctl.vm.swappiness", "config")]


def test_gpus_that_were_expected_and_are_not_there(tmp_path: Path, capsys: Capture) -> None:
    file = tmp_path / "s.yaml"
    found = len(list(DRIVER_GPUS.iterdir())) if DRIVER_GPUS.exists() else 0
    assert invoke("--node", "--expect-gpus", str(found + 1), "--file", str(file)) == 3
    sentence = capsys.readouterr().err
    assert f"expected to have {found + 1} GPU(s)" in sentence
    assert f"and {found or 'none'} " in sentence
    assert sentence.count("\n") == 1
    assert yamlio.load(file)["kind"] == "Snapshot"


@pytest.mark.parametrize(
    "args",
    [
        (),
        ("--node", "--cluster"),
        ("--node", "x", "--all-nodes"),
        ("--cluster", "--expect-gpus", "8"),
        ("--node", "--expect-gpus", "0"),
        ("--node", "-o", "a.yaml", "--file", "b.yaml"),
        ("-o", "a.yaml", "diff", "a", "b"),
        ("--cluster", "diff", "a", "b"),
    ],
)
def test_requests_that_make_no_sense_are_bad_input(args: tuple[str, ...], capsys: Capture) -> None:
    assert invoke(*args) == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.yaml", "kind: Recipe\n"),
        ("a.yaml", "a: &x [1]\nb: *x\n"),
        ("a.yaml", "kind: Snapshot\nkind: Snapshot\n"),
        ("a.json", "{"),
        ("a.json", "[" * 100_000),
        ("a.yaml", "apiVersion: muster.dev/v1alpha1\nkind: Snapshot\nnode: n\n"),
        ("a.yaml", "apiVersion: muster.dev/v1alpha1\nkind: [1]\n"),
        ("a.yaml", ""),
    ],
)
def test_files_that_are_no_snapshots(tmp_path: Path, capsys: Capture, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    assert invoke("diff", str(tmp_path / name), str(tmp_path / name)) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert str(tmp_path / name) in error
    assert invoke("diff", str(tmp_path / "missing"), str(tmp_path / name)) == 2


# Clusters that are not there


def test_a_kubeconfig_that_points_nowhere_leaves_no_file(tmp_path: Path, capsys: Capture) -> None:
    config = {
        "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:9"}}],
        "users": [{"name": "u", "user": {}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "c",
    }
    (tmp_path / "kubeconfig").write_text(yamlio.dumps(config))
    file = tmp_path / "s.yaml"
    for what in (("--cluster",), ("--all-nodes",), ("--node", "gpu-1")):
        assert invoke(*what, "--kubeconfig", str(tmp_path / "kubeconfig"), "--file", str(file)) == 4
        assert capsys.readouterr().err.count("\n") == 1
        assert not file.exists()
    assert invoke("--cluster", "--kubeconfig", str(tmp_path / "nowhere"), "--file", str(file)) == 2
