"""The rendered chart, and a control plane for it alone: what it installs would meet other tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.contract.client import Client
from tests.contract.server import server_of
from tests.controlplane.binaries import BinariesMissingError, find
from tests.controlplane.cluster import ControlPlane
from tests.controlplane.plugin import ABSENT
from tests.deploy.chart import render
from tests.deploy.values import VALUES


@pytest.fixture(params=sorted(VALUES))
def objects(request: pytest.FixtureRequest) -> list[dict[str, Any]]:
    return render(VALUES[request.param])


@pytest.fixture(scope="package")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A real control plane of our own with all its controllers."""
    try:
        binaries = find()
    except BinariesMissingError as error:
        pytest.skip(f"{ABSENT}{error}")
    own = ControlPlane(binaries, tmp_path_factory.mktemp("deploy"))
    if not own.controllers:
        pytest.skip(f"{ABSENT}{binaries.source} has no kube-controller-manager")
    try:
        own.start()
        yield own
    finally:
        own.stop()


@pytest.fixture(scope="package")
def kubeconfig(plane: ControlPlane) -> Path:
    return plane.kubeconfig_file()


@pytest.fixture(scope="package")
def admin(kubeconfig: Path) -> Client:
    return server_of("real", kubeconfig).admin
