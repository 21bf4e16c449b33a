"""The Kubernetes client over HTTP: lightkube's configuration, TLS and login, and the few calls that Muster makes.

Requests go through the httpx client that lightkube configures. The watch is our own: it asks for bookmarks, has a
read deadline, and hands on the JSON of each object without decoding it.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator, Mapping
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import httpx2
import msgspec
from lightkube.config.client_adapter import AsyncClient, ConnectionParams
from lightkube.config.kubeconfig import SingleConfig
from lightkube.core.exceptions import ConfigError

from muster import __version__
from muster.errors import BadInputError, UnreachableError
from muster.kube.api import ConnectionLostError, ResourceType, WatchEvent
from muster.kube.config import Target, load_target
from muster.kube.rate import RateLimiter
from muster.kube.rest import Rest
from muster.kube.wire import error_of, lines_of, path_of, read_event, read_object, repeatable

CONNECT_TIMEOUT_S: Final = 10.0
REQUEST_TIMEOUT_S: Final = 30.0
WATCH_SILENCE_S: Final = 150.0
"""A watch this long without a byte is dead: a server that knows bookmarks sends one about every minute."""
RATE_PER_S: Final = 300.0
BURST: Final = 600
"""Default bound on a client's requests. 500 simultaneous faults of about 5 writes each are to be decided and held
within 10 s: 2,500 requests, of which the burst takes 600 and the rate the rest in 6.3 s."""

KEEPALIVE_S: Final = 90.0
"""How long an idle connection is kept (as in client-go): longer than the pause between an agent's heartbeats, so that
what follows a fault does not begin with a TLS handshake. The pool notices by itself what the server closed."""
MAX_CONNECTIONS: Final = 100
_BROKEN: Final = (httpx2.RemoteProtocolError, httpx2.ReadError, httpx2.WriteError)
"""The connection broke under the request, which may have been carried out or not."""


class _Parameters(ConnectionParams):
    """lightkube's parameters and the size of the connection pool, which it does not know."""

    def httpx_params(self, config: SingleConfig) -> dict[str, Any]:
        limits = httpx2.Limits(
            max_connections=MAX_CONNECTIONS,
            max_keepalive_connections=MAX_CONNECTIONS,
            keepalive_expiry=KEEPALIVE_S,
        )
        return {**super().httpx_params(config), "limits": limits}


class HttpApi(Rest):
    """`KubeApi` on a real API server. Use `from_kubeconfig`, and close it (or use it as a context manager)."""

    def __init__(
        self,
        target: Target,
        *,
        rate_per_s: float = RATE_PER_S,
        burst: int = BURST,
        request_timeout_s: float = REQUEST_TIMEOUT_S,
        watch_silence_s: float = WATCH_SILENCE_S,
    ) -> None:
        """`rate_per_s` and `burst` bound the requests of this client; a started watch counts as one request.

        A request is given up when nothing comes for `request_timeout_s`, a watch after `watch_silence_s`.
        """
        self._target = target
        self._request_timeout_s = request_timeout_s
        self._watch_silence_s = watch_silence_s
        self._rate_per_s = rate_per_s
        self._burst = burst
        self._limiter = RateLimiter(rate_per_s, burst)
        self._extensions = {"sni_hostname": target.tls_server_name} if target.tls_server_name else None
        timeout = httpx2.Timeout(request_timeout_s, connect=min(CONNECT_TIMEOUT_S, request_timeout_s))
        parameters = _Parameters(
            # Proxies of the environment never apply to this machine itself (as in kubectl).
            timeout=timeout,
            trust_env=not _is_loopback(target.server),
            proxy=target.proxy or None,
        )
        try:
            self._client = AsyncClient(target.single, parameters)
        except (ConfigError, OSError, ValueError, httpx2.InvalidURL) as error:
            raise BadInputError(f"The credentials in {target.source} cannot be used: {_words(error)}.") from error
        self._client.headers["User-Agent"] = f"muster/{__version__}"
        self._client.headers["Accept"] = "application/json"

    @classmethod
    def from_kubeconfig(
        cls,
        path: Path | str | None = None,
        context: str | None = None,
        *,
        rate_per_s: float = RATE_PER_S,
        burst: int = BURST,
        request_timeout_s: float = REQUEST_TIMEOUT_S,
        watch_silence_s: float = WATCH_SILENCE_S,
    ) -> HttpApi:
        """A client for `path` (or what `load_target` finds). Raises BadInputError in one sentence."""
        target = load_target(Path(path) if path is not None else None, context)
        return cls(
            target,
            rate_per_s=rate_per_s,
            burst=burst,
            request_timeout_s=request_timeout_s,
            watch_silence_s=watch_silence_s,
        )

    def separate(self) -> HttpApi:
        """A second client for the same server with connections and a request rate of its own (for the election)."""
        return HttpApi(
            self._target,
            rate_per_s=self._rate_per_s,
            burst=self._burst,
            request_timeout_s=self._request_timeout_s,
            watch_silence_s=self._watch_silence_s,
        )

    @property
    def server(self) -> str:
        """The address of the API server."""
        return self._target.server

    async def close(self) -> None:
        await self._client.aclose()

    async def __aenter__(self) -> HttpApi:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def server_version(self) -> str:
        """The server's `gitVersion`, for example `v1.34.1`; the cheapest proof that it answers."""
        answer = read_object(await self._request("GET", "version"))
        return str(answer.get("gitVersion", ""))

    async def watch(
        self,
        res: ResourceType,
        resource_version: str,
        namespace: str = "",
        *,
        label_selector: str = "",
        field_selector: str = "",
        timeout_s: float = 300.0,
    ) -> AsyncIterator[WatchEvent]:
        parameters = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": resource_version,
            "labelSelector": label_selector,
            "fieldSelector": field_selector,
            "timeoutSeconds": str(max(1, round(timeout_s))),
        }
        await self._limiter.acquire()
        request = self._client.build_request(
            "GET",
            path_of(res, namespace),
            params={key: value for key, value in parameters.items() if value},
            # Real servers compress some watches as one gzip member after the other, of which httpx reads the first.
            headers={"Accept-Encoding": "identity"},
            timeout=httpx2.Timeout(
                self._request_timeout_s,
                connect=min(CONNECT_TIMEOUT_S, self._request_timeout_s),
                read=self._watch_silence_s,
            ),
            extensions=self._extensions,
        )
        response = await self._send(request, stream=True, again=True)
        try:
            with self._translated():
                if response.is_error:
                    raise error_of(response, await response.aread())
                async for line in lines_of(response):
                    yield read_event(line)
        finally:
            # Closing is what ends the request on the server; it must not fail the caller.
            with contextlib.suppress(httpx2.HTTPError, OSError):
                await response.aclose()

    # The wire

    async def _request(
        self,
        method: str,
        path: str,
        parameters: Mapping[str, str] | None = None,
        body: Any = None,
        content_type: str = "application/json",
    ) -> bytes:
        await self._limiter.acquire()
        request = self._client.build_request(
            method,
            path,
            params={key: value for key, value in (parameters or {}).items() if value},
            content=msgspec.json.encode(body) if body is not None else None,
            headers={"Content-Type": content_type} if body is not None else None,
            extensions=self._extensions,
        )
        response = await self._send(request, again=repeatable(method, content_type, body))
        if response.is_error:
            raise error_of(response, response.content)
        return response.content

    async def _send(self, request: httpx2.Request, *, stream: bool = False, again: bool = False) -> httpx2.Response:
        """`again`: once more, on another connection, when the first breaks before the answer has begun."""
        with self._translated():
            try:
                try:
                    return await self._client.send(request, stream=stream)
                except _BROKEN:
                    if not again:
                        raise
                    return await self._client.send(request, stream=stream)
            except (ConfigError, KeyError, ValueError, OSError) as error:
                # lightkube reads tokens and runs credential plugins inside the request.
                raise UnreachableError(
                    f"Cannot log in to {self.server} with {self._target.source}: {_words(error)}."
                ) from error

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except (httpx2.HTTPError, httpx2.StreamError) as error:
            raise ConnectionLostError(
                f"No answer from the API server {self.server} ({_words(error)}); check that it runs and is reachable."
            ) from error


def _is_loopback(server: str) -> bool:
    host = urlsplit(server).hostname or ""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _words(error: BaseException) -> str:
    """The error in a few words for a sentence; many network errors have no text of their own."""
    return " ".join(str(error).split()).rstrip(".")[:300] or type(error).__name__
