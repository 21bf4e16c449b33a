"""Fixtures of the real deployer programs and a real OCI registry, and the summary line that says what ran."""

from __future__ import annotations

import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.programs.sources import SourceMissingError, crd_files, find

MARKER = "real_program"
FLUX_CONTROLLERS = ("source-controller", "helm-controller", "kustomize-controller")
FIXTURES = frozenset({"helm", "helmfile", "oci_registry", "deployer_crds", "flux_controllers"})
ABSENT = "no real program: "
START_LIMIT_S = 20.0


def _found(name: str) -> Path:
    try:
        return find(name)
    except SourceMissingError as error:
        pytest.skip(f"{ABSENT}{error}")


@pytest.fixture(scope="session")
def helm() -> Path:
    """The real helm."""
    return _found("helm")


@pytest.fixture(scope="session")
def helmfile() -> Path:
    """The real helmfile; it needs `helm` on its PATH."""
    return _found("helmfile")


@pytest.fixture(scope="session")
def flux_controllers() -> dict[str, Path]:
    """Name -> program of each controller of Flux that a bundle in Git needs."""
    return {name: _found(name) for name in FLUX_CONTROLLERS}


@pytest.fixture(scope="session")
def deployer_crds() -> list[Path]:
    """The CRD files of Argo CD and Flux."""
    try:
        return crd_files()
    except SourceMissingError as error:
        pytest.skip(f"{ABSENT}{error}")


@pytest.fixture(scope="session")
def oci_registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A real OCI registry of our own on loopback, plain HTTP, empty at first. Yields `127.0.0.1:<port>`."""
    program = _found("registry")
    folder = tmp_path_factory.mktemp("registry")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    (folder / "config.yml").write_text(
        f"version: 0.1\nlog: {{level: error}}\nstorage: {{filesystem: {{rootdirectory: {folder}/data}}}}\n"
        f"http: {{addr: '127.0.0.1:{port}'}}\n"
    )
    with (folder / "log").open("w") as log:
        process = subprocess.Popen([str(program), "serve", str(folder / "config.yml")], stdout=log, stderr=log)
        try:
            _wait(f"http://127.0.0.1:{port}/v2/", process, folder / "log")
            yield f"127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait(timeout=10)


def _wait(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_LIMIT_S
    while time.monotonic() < deadline and process.poll() is None:
        try:
            urllib.request.urlopen(url, timeout=2).close()
        except (urllib.error.URLError, OSError):
            time.sleep(0.05)
        else:
            return
    raise AssertionError(f"the registry did not start: {log.read_text()[-1000:]}")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What needs a real program belongs to the fuller suite."""
    for item in items:
        if FIXTURES & set(getattr(item, "fixturenames", ())):
            item.add_marker(MARKER)
            item.add_marker("full")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """One line: how many tests with the real programs ran, and how many could not."""
    stats = terminalreporter.stats
    counts = {
        outcome: sum(1 for r in stats.get(outcome, ()) if MARKER in getattr(r, "keywords", ()))
        for outcome in ("passed", "failed", "error")
    }
    skipped = [r for r in stats.get("skipped", ()) if MARKER in getattr(r, "keywords", ())]
    if skipped:
        reason = skipped[0].longrepr[2] if isinstance(skipped[0].longrepr, tuple) else ""
        terminalreporter.write_line(
            f"NOT RUN with real deployers: {len(skipped)} tests ({reason.removeprefix('Skipped: ')}).", yellow=True
        )
    if any(counts.values()):
        told = ", ".join(f"{count} {outcome}" for outcome, count in counts.items() if count)
        terminalreporter.write_line(f"With real Helm, Helmfile, Flux, registry and CRDs: {told}.")
