"""Where the programs come from, and what is said when there are none."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.controlplane.binaries import NEEDED, PACKAGES, BinariesMissingError, build, cache_folder, find

ROOT = Path(__file__).parents[2]


def programs(folder: Path, *names: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).write_text("#!/bin/sh\n")
        (folder / name).chmod(0o755)
    return folder


def test_given_programs_come_before_built_ones(tmp_path: Path) -> None:
    given = programs(tmp_path / "given", *NEEDED)
    environment = {"MUSTER_TEST_CACHE": str(tmp_path), "KUBEBUILDER_ASSETS": str(given)}
    programs(cache_folder(environment), *PACKAGES)
    found = find(environment)
    assert found.path("etcd") == given / "etcd"
    with pytest.raises(BinariesMissingError, match="has no kube-scheduler"):
        found.path("kube-scheduler")
    assert find({"MUSTER_TEST_CACHE": str(tmp_path)}).path("kube-scheduler").exists()


def test_given_programs_that_are_not_there_are_refused_and_not_replaced(tmp_path: Path) -> None:
    environment = {"MUSTER_TEST_CACHE": str(tmp_path), "KUBEBUILDER_ASSETS": str(tmp_path / "none")}
    programs(cache_folder(environment), *PACKAGES)
    with pytest.raises(BinariesMissingError, match="does not hold etcd and kube-apiserver"):
        find(environment)


def test_a_half_built_cache_is_none(tmp_path: Path) -> None:
    environment = {"MUSTER_TEST_CACHE": str(tmp_path)}
    programs(cache_folder(environment), "etcd")
    with pytest.raises(BinariesMissingError, match="no control plane was built yet"):
        find(environment)


def test_without_go_nothing_is_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BinariesMissingError, match="Go is not on this machine"):
        build(print, {"MUSTER_TEST_CACHE": str(tmp_path)})


def test_a_failing_build_tells_the_last_words_of_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    go = programs(tmp_path / "bin", "go") / "go"
    go.write_text("#!/bin/sh\necho 'go: downloading x' >&2\necho 'no such module: y' >&2\nexit 1\n")
    monkeypatch.setenv("PATH", f"{go.parent}:/usr/bin:/bin")
    monkeypatch.setattr("tests.controlplane.binaries.DEBIAN_ETCD", str(tmp_path / "no-etcd"))
    with pytest.raises(BinariesMissingError, match=r"etcd cannot be built: no such module: y$"):
        build(lambda line: None, {"MUSTER_TEST_CACHE": str(tmp_path), "PATH": str(go.parent)})


def test_what_is_built_is_not_built_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    environment = {"MUSTER_TEST_CACHE": str(tmp_path)}
    programs(cache_folder(environment), *PACKAGES)
    go = programs(tmp_path / "bin", "go") / "go"
    go.write_text("#!/bin/sh\nexit 1\n")
    monkeypatch.setenv("PATH", f"{go.parent}:/usr/bin:/bin")
    told: list[str] = []
    assert set(build(told.append, environment).paths) == set(PACKAGES)
    assert told == []


def test_a_run_without_a_control_plane_says_what_did_not_run(tmp_path: Path) -> None:
    """The line of the summary, from a run of its own on a machine without any of the sources."""
    command = [sys.executable, "-m", "pytest", "tests/contract/test_servers.py", "-k", "version"]
    environment = {"MUSTER_TEST_CACHE": str(tmp_path), "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    run = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stdout
    line = next(line for line in run.stdout.splitlines() if "real API server" in line)
    assert line == (
        "NOT RUN against a real API server: 1 tests (no real control plane: no control plane was built yet "
        "(make control-plane))."
    )
