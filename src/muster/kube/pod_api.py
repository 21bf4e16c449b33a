"""The small client of a process that runs in a pod: single requests with the pod's service account, no watches.

`HttpApi` does all that this does and more; this one takes a tenth of its memory, on every node of a fleet.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final
from urllib.parse import urlencode

import msgspec

from muster import __version__
from muster.errors import UnreachableError
from muster.kube.api import ConnectionLostError, ResourceType, WatchEvent
from muster.kube.connection import Answer, BrokenError, Connection
from muster.kube.rate import RateLimiter
from muster.kube.rest import Rest
from muster.kube.service_account import ServiceAccount
from muster.kube.status import error_from_status
from muster.kube.wire import repeatable

CONNECTIONS: Final = 4
CONNECT_TIMEOUT_S: Final = 10.0
REQUEST_TIMEOUT_S: Final = 30.0
KEEPALIVE_S: Final = 90.0
"""Longer than the pause between heartbeats, so that what follows a fault does not begin with a TLS handshake."""
RATE_PER_S: Final = 50.0
BURST: Final = 100


class PodApi(Rest):
    """`KubeApi` but for `watch`, which it refuses. Close it, or use it as a context manager."""

    def __init__(self, account: ServiceAccount, *, request_timeout_s: float = REQUEST_TIMEOUT_S) -> None:
        """Raises BadInputError when the cluster's authority cannot be read."""
        self._account = account
        self._tls = account.tls()
        self._request_timeout_s = request_timeout_s
        self._limiter = RateLimiter(RATE_PER_S, BURST)
        self._slots = asyncio.Semaphore(CONNECTIONS)
        self._idle: list[Connection] = []

    @property
    def server(self) -> str:
        """The address of the API server."""
        return self._account.server

    async def close(self) -> None:
        while self._idle:
            self._idle.pop().close()

    async def __aenter__(self) -> PodApi:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def watch(
        self,
        res: ResourceType,
        resource_version: str,
        namespace: str = "",
        *,
        label_selector: str = "",
        field_selector: str = "",
        timeout_s: float = 300.0,
    ) -> AsyncIterator[WatchEvent]:
        """Raises NotImplementedError: what needs a watch needs `HttpApi`."""
        raise NotImplementedError("the client of a pod does not watch; use HttpApi")

    async def _request(
        self,
        method: str,
        path: str,
        parameters: Mapping[str, str] | None = None,
        body: Any = None,
        content_type: str = "application/json",
    ) -> bytes:
        await self._limiter.acquire()
        query = urlencode({key: value for key, value in (parameters or {}).items() if value})
        target = f"/{path}?{query}" if query else f"/{path}"
        content = msgspec.json.encode(body) if body is not None else b""
        headers = self._headers(content_type if body is not None else "")
        try:
            async with self._slots:
                try:
                    answer = await self._exchange(method, target, headers, content)
                except BrokenError:
                    if not repeatable(method, content_type, body):
                        raise
                    # Kept connections are closed by servers and load balancers at any time.
                    answer = await self._exchange(method, target, headers, content)
        except (BrokenError, OSError) as error:
            words = " ".join(str(error).split()).rstrip(".")[:300] or type(error).__name__
            raise ConnectionLostError(
                f"No answer from the API server {self.server} ({words}); check that it runs and is reachable."
            ) from error
        if answer.status >= 300:
            raise error_from_status(answer.status, answer.body, answer.headers.get("retry-after", ""))
        return answer.body

    def _headers(self, content_type: str) -> list[tuple[str, str]]:
        try:
            token = self._account.token()
        except OSError as error:
            raise UnreachableError(
                f"Cannot log in to {self.server} with the service account of this pod: {error.strerror or error}."
            ) from error
        headers = [
            ("Host", self._account.authority),
            ("Authorization", f"Bearer {token}"),
            ("User-Agent", f"muster/{__version__}"),
            ("Accept", "application/json"),
        ]
        return [*headers, ("Content-Type", content_type)] if content_type else headers

    async def _exchange(self, method: str, target: str, headers: list[tuple[str, str]], body: bytes) -> Answer:
        """On a kept connection, else on a new one. Raises BrokenError, OSError (TimeoutError is one)."""
        connection = self._kept()
        if connection is None:
            async with asyncio.timeout(min(CONNECT_TIMEOUT_S, self._request_timeout_s)):
                connection = await Connection.connect(self._account.host, self._account.port, self._tls)
        try:
            async with asyncio.timeout(self._request_timeout_s):
                answer = await connection.exchange(method, target, headers, body)
            if connection.usable:
                connection.idle_since = asyncio.get_running_loop().time()
                self._idle.append(connection)
                connection = None
        finally:
            if connection is not None:
                connection.close()
        return answer

    def _kept(self) -> Connection | None:
        """A kept connection that still is one; the others are closed."""
        oldest = asyncio.get_running_loop().time() - KEEPALIVE_S
        while self._idle:
            connection = self._idle.pop()
            if connection.usable and connection.idle_since >= oldest:
                return connection
            connection.close()
        return None
