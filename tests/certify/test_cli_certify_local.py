"""`muster certify local` with real workers: the worker that was made to fail is named, and nobody else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from muster.certify import catalogue
from muster.cli.group import run
from muster.read import formats
from tests.torch_python import torch_python


@pytest.mark.full
def test_the_worker_that_exits_is_named_and_nobody_else(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    to = tmp_path / "report.json"
    args = [
        "--workers",
        "3",
        "--tests",
        "gpu-burn,pair",
        "--inject",
        "node=1,fault=exit",
        "-o",
        "json",
        "--to",
        str(to),
    ]
    assert run(["certify", "local", *args, "--python", str(torch_python())]) == 3
    assert "1 failed (local-1)" in capsys.readouterr().out
    report = json.loads(to.read_text())
    verdicts = {node["name"]: node["verdict"] for node in report["nodes"]}
    assert verdicts["local-1"] == "Failed"
    assert [name for name, verdict in sorted(verdicts.items()) if verdict == "Failed"] == ["local-1"]
    assert report["problems"] == []


def test_a_python_that_is_not_there_is_bad_input(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["certify", "local", "--workers", "2", "--python", str(tmp_path / "none")]) == 2
    assert "There is no Python" in capsys.readouterr().err


def test_what_reads_the_output_of_a_test_exists() -> None:
    for test in catalogue.tests().values():
        assert not test.parser or test.parser in formats.kinds()
