"""Storage: what is read is what was written, and the folder is left as it was found."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from muster.workloads.fio import JOBS, read_fio
from tests.workloads.cases import alone

SMALL = {"size": "2M", "block": "256K", "seconds": 0.02, "tool": "own"}


@pytest.mark.requirement("companion/BMAAS02")
def test_a_folder_that_keeps_what_it_is_given(tmp_path: Path) -> None:
    result = alone("storage", {"path": str(tmp_path), **SMALL})
    assert result.ok, result.message
    assert result.value is not None
    assert result.value > 0
    assert result.value == pytest.approx(
        min(result.facts["sequential_write_gb_per_s"], result.facts["sequential_read_gb_per_s"])
    )
    assert result.facts["random_read_iops"] > 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.requirement("companion/BMAAS01")
def test_a_spoiled_block_is_a_fault_of_the_hardware(tmp_path: Path) -> None:
    result = alone("storage", {"path": str(tmp_path), **SMALL}, inject={"corrupt": True})
    assert (result.ok, result.reason) == (False, "hardware")
    assert "read back wrong" in result.message
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("params", "told"),
    [
        ({"path": "/nowhere/at/all"}, "is no folder"),
        ({"size": "100T", "tool": "own"}, "size"),
        ({"size": "8T", "tool": "own"}, "make room"),
        ({"block": 10}, "block"),
        ({"tool": "dd"}, "tool"),
        ({"colour": "red"}, "unknown parameter 'colour'"),
    ],
)
def test_what_cannot_be_measured_is_no_fault_of_the_node(tmp_path: Path, params: dict[str, Any], told: str) -> None:
    result = alone("storage", {"path": str(tmp_path)} | params)
    assert (result.ok, result.reason, result.suspects) == (False, "harness", ())
    assert told in result.message


def fio_output(**changes: Any) -> str:
    jobs = []
    for name in JOBS:
        direction = "read" if "read" in name else "write"
        figures = {"bw_bytes": 3_000_000_000, "iops": 42_000.5, "clat_ns": {"percentile": {"99.000000": 250_000}}}
        jobs.append({"jobname": name, "error": 0, direction: figures} | changes.get(name, {}))
    return json.dumps({"fio version": "fio-3.36", "jobs": jobs})


def test_the_json_of_fio_after_a_warning() -> None:
    found = read_fio("fio: file is on a network file system\n" + fio_output())
    assert found.version == "fio-3.36"
    assert found.write_bytes_per_s == found.read_bytes_per_s == 3e9
    assert found.random_read_iops == found.random_write_iops == 42_000.5
    assert found.random_read_p99_s == pytest.approx(0.00025)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "fio: command not found",
        '{"jobs": []}',
        fio_output(write={"error": 5}),
        fio_output(read={"read": {"bw_bytes": 0}}),
        fio_output(read={"read": {"bw_bytes": float("nan")}}),
        fio_output(randread={"read": {"bw_bytes": 1}}),
        fio_output()[:-30],
    ],
)
def test_output_of_fio_that_says_nothing(text: str) -> None:
    with pytest.raises(ValueError):
        read_fio(text)


def test_fio_that_is_not_there_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    result = alone("storage", {"path": str(tmp_path), "tool": "fio"})
    assert result.reason == "harness"
    assert "fio is not installed" in result.message


@pytest.mark.requirement("v2.4/HSS02")
def test_figures_of_fio_are_taken_where_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    programs, volume = tmp_path / "bin", tmp_path / "volume"
    programs.mkdir()
    volume.mkdir()
    (programs / "fio").write_text(f"#!/bin/sh\nprintf '%s' '{fio_output()}'\n")
    (programs / "fio").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
    result = alone("storage", {"path": str(volume), **SMALL, "tool": "auto"})
    assert result.ok, result.message
    assert result.value == 3.0
    assert result.versions["storage"] == "fio-3.36"
    assert list(volume.iterdir()) == []


def test_fio_that_fails_is_no_fault_of_the_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "fio").write_text("#!/bin/sh\necho 'no such engine' >&2\nexit 1\n")
    (tmp_path / "fio").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    result = alone("storage", {"path": str(tmp_path), **SMALL, "tool": "auto"})
    assert result.reason == "harness"
    assert "no such engine" in result.message
