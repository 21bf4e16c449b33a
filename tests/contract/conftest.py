"""`server` is each of the two servers in turn; the real one belongs to the fuller suite."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.contract.client import Client
from tests.contract.samples import Things, configs_of, define_things
from tests.contract.server import REAL, SIMULATOR, Server, real, simulated

SIDES = [pytest.param(SIMULATOR, id=SIMULATOR), pytest.param(REAL, id=REAL, marks=pytest.mark.real_api)]


@pytest.fixture(scope="session")
def _simulator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with simulated(tmp_path_factory.mktemp("simulator")) as server:
        yield server


@pytest.fixture(scope="session", params=SIDES)
def server(request: pytest.FixtureRequest) -> Server:
    """An API server of which every test on this side of the suite uses the same one."""
    if request.param == REAL:
        return real(request.getfixturevalue("real_cluster"))
    found: Server = request.getfixturevalue("_simulator")
    return found


@pytest.fixture
def admin(server: Server) -> Client:
    """A client that may do everything."""
    return server.admin


@pytest.fixture
def namespace(server: Server) -> str:
    """A namespace of this test alone."""
    return server.new_namespace()


@pytest.fixture
def controllers(server: Server) -> None:
    """For tests of what the controller manager does; skipped where the programs given hold no controller manager."""
    if not server.controllers:
        pytest.skip("no kube-controller-manager beside the real API server")


@pytest.fixture
def configs(namespace: str) -> str:
    """The path of the ConfigMaps of this test."""
    return configs_of(namespace)


@pytest.fixture
def things(server: Server, namespace: str) -> Things:
    """A custom resource of this test alone."""
    return define_things(server, namespace)


@pytest.fixture
def node(server: Server, admin: Client) -> Iterator[str]:
    """The path of a Node of this test alone."""
    name = server.unique("node")
    admin.create("/api/v1/nodes", {"metadata": {"name": name, "labels": {"muster.dev/test": "true"}}}).ok()
    yield f"/api/v1/nodes/{name}"
    admin.delete(f"/api/v1/nodes/{name}")
