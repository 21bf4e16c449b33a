"""Fixtures of the real control plane, and the line of the summary that says whether it was there."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from muster.kube.config import load_target
from tests.controlplane.binaries import Binaries, BinariesMissingError, find
from tests.controlplane.cluster import ControlPlane
from tests.controlplane.guard import refuse_foreign_nodes

MARKER = "real_api"
ABSENT = "no real control plane: "


@dataclass(frozen=True)
class RealCluster:
    """A real API server with us as administrators. `own` is the control plane when it is ours to stop and restart.

    `controllers`: whether the controller manager runs.
    """

    kubeconfig: Path
    own: ControlPlane | None
    controllers: bool


def _binaries() -> Binaries:
    try:
        return find()
    except BinariesMissingError as error:
        pytest.skip(f"{ABSENT}{error}")


@pytest.fixture(scope="session")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane of our own, shared by the tests of one process; they may restart its API server."""
    plane = ControlPlane(_binaries(), tmp_path_factory.mktemp("control-plane"))
    try:
        plane.start()
        yield plane
    finally:
        plane.stop()


@pytest.fixture(scope="session")
def real_cluster(request: pytest.FixtureRequest) -> RealCluster:
    """The cluster of KUBECONFIG, else a control plane of our own."""
    given = os.environ.get("KUBECONFIG", "")
    if given:
        refuse_foreign_nodes(load_target(Path(given), None))
        return RealCluster(Path(given), None, controllers=True)
    plane: ControlPlane = request.getfixturevalue("control_plane")
    return RealCluster(plane.kubeconfig_file(), plane, controllers=plane.controllers)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What needs the real control plane belongs to the fuller suite."""
    for item in items:
        fixtures = getattr(item, "fixturenames", ())
        if {"control_plane", "real_cluster"} & set(fixtures):
            item.add_marker(MARKER)
        if item.get_closest_marker(MARKER) is not None:
            item.add_marker("full")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """One line: whether the tests against a real API server ran, or why not."""
    ran = dict.fromkeys(("passed", "failed", "error"), 0)
    for outcome in ran:
        ran[outcome] = sum(1 for r in terminalreporter.stats.get(outcome, ()) if MARKER in getattr(r, "keywords", ()))
    skipped = [r for r in terminalreporter.stats.get("skipped", ()) if MARKER in getattr(r, "keywords", ())]
    if any(ran.values()):
        told = ", ".join(f"{count} {outcome}" for outcome, count in ran.items() if count)
        extra = f", {len(skipped)} skipped" if skipped else ""
        line = f"Against a real API server: {told}{extra} ({_source()})."
    elif skipped:
        reason = skipped[0].longrepr[2] if isinstance(skipped[0].longrepr, tuple) else ""
        line = f"NOT RUN against a real API server: {len(skipped)} tests ({reason.removeprefix('Skipped: ')})."
    else:
        line = (
            f"NOT RUN against a real API server: make test-full selects those tests, this run does not ({_source()})."
        )
    terminalreporter.write_line(line, yellow=not any(ran.values()))


def _source() -> str:
    if os.environ.get("KUBECONFIG"):
        return "KUBECONFIG"
    try:
        return find().source
    except BinariesMissingError as error:
        return str(error)
