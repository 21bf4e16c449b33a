"""What a server says about versions that it has forgotten: 410, in three forms.

On the real side this needs a control plane of our own, whose history is compacted and whose API server is restarted:
only then are the versions before its start gone from its caches too.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from muster.clock import SystemClock
from muster.sim.server import ApiServer
from muster.sim.store import Store
from tests.contract.client import Client
from tests.contract.conftest import SIDES
from tests.contract.server import REAL, SIMULATOR, Server, real, server_of
from tests.controlplane.plugin import RealCluster

TABLE = "application/json;as=Table;g=meta.k8s.io;v=v1"
NEWEST = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", "allowWatchBookmarks": "true"}


@dataclass
class Past:
    """Seven config maps, the version when the second was made, a continue token after the first; all forgotten."""

    admin: Client
    path: str
    version: str
    token: str

    def get(self, **parameters: Any) -> Any:
        return self.admin.get(self.path, labelSelector="mine", **parameters)


class _Simulator:
    """A simulated server of its own, in a thread, whose history can be forgotten."""

    def __init__(self, folder: Path) -> None:
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._store = Store(SystemClock(), seed=2)
        ready: Future[str] = Future()

        async def main() -> None:
            async with ApiServer(self._store) as server:
                ready.set_result(server.kubeconfig())
                await self._stop.wait()

        self._thread = threading.Thread(target=lambda: self._loop.run_until_complete(main()), daemon=True)
        self._thread.start()
        file = folder / "kubeconfig"
        file.write_text(ready.result(30))
        self.server = server_of(SIMULATOR, file)

    def forget(self) -> None:
        self._loop.call_soon_threadsafe(self._store.compact)
        self.server.admin.get("/version").ok()

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(30)
        self._loop.close()


@pytest.fixture(scope="module", params=SIDES)
def past(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Past]:
    if request.param == SIMULATOR:
        simulator = _Simulator(tmp_path_factory.mktemp("expired"))
        found = _lived(simulator.server)
        simulator.forget()
        yield found
        simulator.close()
        return
    assert request.param == REAL
    cluster: RealCluster = request.getfixturevalue("real_cluster")
    if cluster.own is None:
        pytest.skip("a cluster that is not ours is not restarted")
    found = _lived(real(cluster))
    cluster.own.compact()
    cluster.own.stop_api_server(kill=True)
    cluster.own.start_api_server()
    yield found


def _lived(server: Server) -> Past:
    path = f"/api/v1/namespaces/{server.new_namespace()}/configmaps"
    versions = []
    for number in range(7):
        body = {"metadata": {"name": f"c{number}", "labels": {"mine": ""}}}
        versions.append(server.admin.create(path, body).ok()["metadata"]["resourceVersion"])
    token = server.admin.get(path, limit=1, labelSelector="mine").ok()["metadata"]["continue"]
    server.admin.patch(f"{path}/c0", {"data": {"x": "1"}}).ok()
    return Past(server.admin, path, versions[1], token)


def names(answer: Any) -> list[str]:
    return [item["metadata"]["name"] for item in answer.ok()["items"]]


def test_a_watch_is_told_in_its_stream(past: Past) -> None:
    with past.admin.watch(past.path, resourceVersion=past.version) as watch:
        event = watch.next()
        assert watch.status == 200
        assert event is not None
        assert event["type"] == "ERROR"
        status = event["object"]
        assert (status["kind"], status["code"], status["reason"]) == ("Status", 410, "Expired")
        assert status["message"].startswith(f"too old resource version: {past.version} (")
        assert watch.next() is None


def test_a_watch_for_tables_is_told_by_a_status_too(past: Past) -> None:
    parameters = {"watch": "true", "resourceVersion": past.version}
    answer = past.admin.request("GET", past.path, params=parameters, accept=TABLE)
    assert (answer.status, answer.body["type"], answer.body["object"]["code"]) == (200, "ERROR", 410)


def test_initial_events_do_not_mind(past: Past) -> None:
    with past.admin.watch(past.path, resourceVersion=past.version, labelSelector="mine", **NEWEST) as watch:
        assert [obj["metadata"]["name"] for _, obj in watch.take(7)] == [f"c{number}" for number in range(7)]


def test_a_list_of_exactly_that_version_is_gone(past: Past) -> None:
    gone = "The resourceVersion for the provided list is too old."
    exact = past.get(resourceVersion=past.version, resourceVersionMatch="Exact")
    assert exact.refused(410, "Expired") == gone
    assert past.get(resourceVersion=past.version, limit=2).refused(410, "Expired") == gone


def test_a_list_that_is_at_least_that_new_is_not(past: Past) -> None:
    assert len(names(past.get(resourceVersion=past.version))) == 7
    newer = past.get(resourceVersion=past.version, resourceVersionMatch="NotOlderThan", limit=3)
    assert names(newer) == ["c0", "c1", "c2"]


def test_an_expired_page_offers_the_rest_of_the_present(past: Past) -> None:
    answer = past.get(limit=3, **{"continue": past.token})
    assert (answer.status, answer.body["reason"]) == (410, "Expired")
    assert answer.body["message"].startswith(
        "The provided continue parameter is too old to display a consistent list "
    )
    offered = answer.body["metadata"]["continue"]
    rest = past.get(limit=3, **{"continue": offered})
    assert names(rest) == ["c1", "c2", "c3"]
    last = past.get(**{"continue": rest.ok()["metadata"]["continue"]})
    assert names(last) == ["c4", "c5", "c6"]
