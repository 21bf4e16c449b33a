"""The two servers of the contract tests behind one face."""

from __future__ import annotations

import asyncio
import base64
import itertools
import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from muster import yamlio
from muster.clock import SystemClock
from muster.sim.server import ApiServer
from muster.sim.store import Store
from tests.contract.client import Client
from tests.controlplane.plugin import RealCluster

T = TypeVar("T")
SIMULATOR, REAL = "simulator", "real"
EVENTUALLY_S = 40.0
POLL_S = 0.05
_numbers = itertools.count(1)


@dataclass(frozen=True)
class Server:
    """An API server with us as administrators. `name` is SIMULATOR or REAL."""

    name: str
    kubeconfig: Path
    admin: Client
    ca_pem: str
    controllers: bool = True
    """Whether controllers run: garbage collection, budgets, namespaces, service accounts."""

    @property
    def url(self) -> str:
        return self.admin.url

    def client(self, token: str) -> Client:
        """A client with a token of its own (empty: anonymous)."""
        return Client(self.url, token, self.ca_pem)

    def unique(self, word: str) -> str:
        """A name that no other test uses, also not in another process on the same server."""
        return f"{word}-{os.getpid()}-{next(_numbers)}"

    def new_namespace(self) -> str:
        """A namespace in which pods can be created."""
        name = self.unique("t")
        self.admin.create("/api/v1/namespaces", {"metadata": {"name": name}}).ok()
        account = f"/api/v1/namespaces/{name}/serviceaccounts/default"
        if self.name == REAL and self.controllers:
            eventually(lambda: self.admin.get(account).status == 200)
        return name


def eventually(condition: Callable[[], T], limit_s: float = EVENTUALLY_S) -> T:
    """The first true value of `condition`; controllers of a real cluster take a moment. Fails after `limit_s`."""
    deadline = time.monotonic() + limit_s
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < deadline, f"not so after {limit_s} s (last: {value!r})"
        time.sleep(POLL_S)


def server_of(name: str, kubeconfig: Path) -> Server:
    """The server of a kubeconfig with a token in it."""
    config = yamlio.load(kubeconfig)
    cluster = config["clusters"][0]["cluster"]
    ca_pem = base64.b64decode(cluster["certificate-authority-data"]).decode()
    admin = Client(cluster["server"], config["users"][0]["user"]["token"], ca_pem)
    return Server(name, kubeconfig, admin, ca_pem)


@contextmanager
def simulated(folder: Path) -> Iterator[Server]:
    """The simulated server in a thread of its own, on the machine's clock."""
    ready: Future[str] = Future()
    loop = asyncio.new_event_loop()
    stop = asyncio.Event()

    async def main() -> None:
        async with ApiServer(Store(SystemClock(), seed=1)) as server:
            ready.set_result(server.kubeconfig())
            await stop.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(main()), daemon=True)
    thread.start()
    path = folder / "kubeconfig"
    path.write_text(ready.result(30))
    server = server_of(SIMULATOR, path)
    try:
        yield server
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(30)
        loop.close()


def real(cluster: RealCluster) -> Server:
    return replace(server_of(REAL, cluster.kubeconfig), controllers=cluster.controllers)
