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
from urllib.parse import quote, urlsplit

import httpx2
import msgspec
from lightkube.config.client_adapter import AsyncClient, ConnectionParams
from lightkube.core.exceptions import ConfigError

from muster import __version__
from muster.errors import BadInputError, UnreachableError
from muster.kube.api import (
    PODS,
    ConnectionLostError,
    EventType,
    ListPage,
    Object,
    PatchType,
    ResourceType,
    WatchEvent,
)
from muster.kube.config import Target, load_target
from muster.kube.rate import RateLimiter
from muster.kube.status import error_from_status

CONNECT_TIMEOUT_S: Final = 10.0
REQUEST_TIMEOUT_S: Final = 30.0
WATCH_SILENCE_S: Final = 150.0
"""A watch this long without a byte is dead: a server that knows bookmarks sends one about every minute."""
MAX_LINE_BYTES: Final = 32 * 1024 * 1024
"""Longest event accepted; etcd's own limit for an object is 1.5 MiB by default."""
APPLY: Final = "application/apply-patch+yaml"


class _ListMeta(msgspec.Struct):
    resource_version: str = msgspec.field(name="resourceVersion", default="")
    continue_token: str = msgspec.field(name="continue", default="")


class _List(msgspec.Struct):
    metadata: _ListMeta
    items: list[msgspec.Raw] | None = None


class _Event(msgspec.Struct):
    type: str
    object: msgspec.Raw


_list_decoder = msgspec.json.Decoder(_List)
_event_decoder = msgspec.json.Decoder(_Event)
_object_decoder = msgspec.json.Decoder(dict[str, Any])


class HttpApi:
    """`KubeApi` on a real API server. Use `from_kubeconfig`, and close it (or use it as a context manager)."""

    def __init__(self, target: Target, *, rate_per_s: float = 50.0, burst: int = 100) -> None:
        """`rate_per_s` and `burst` bound the requests of this client; a started watch counts as one request."""
        self._target = target
        self._rate_per_s = rate_per_s
        self._burst = burst
        self._limiter = RateLimiter(rate_per_s, burst)
        self._extensions = {"sni_hostname": target.tls_server_name} if target.tls_server_name else None
        timeout = httpx2.Timeout(REQUEST_TIMEOUT_S, connect=CONNECT_TIMEOUT_S)
        parameters = ConnectionParams(
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
        cls, path: Path | str | None = None, context: str | None = None, *, rate_per_s: float = 50.0, burst: int = 100
    ) -> HttpApi:
        """A client for `path` (or what `load_target` finds). Raises BadInputError in one sentence."""
        target = load_target(Path(path) if path is not None else None, context)
        return cls(target, rate_per_s=rate_per_s, burst=burst)

    def separate(self) -> HttpApi:
        """A second client for the same server with connections and a request rate of its own (for the election)."""
        return HttpApi(self._target, rate_per_s=self._rate_per_s, burst=self._burst)

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
        answer = _object_decoder.decode(await self._request("GET", "version"))
        return str(answer.get("gitVersion", ""))

    # Reading

    async def get(self, res: ResourceType, name: str, namespace: str = "") -> Object:
        return _object(await self._request("GET", _path(res, namespace, name)))

    async def list_page(
        self,
        res: ResourceType,
        namespace: str = "",
        *,
        label_selector: str = "",
        field_selector: str = "",
        limit: int = 0,
        continue_token: str = "",
        resource_version: str = "",
    ) -> ListPage:
        parameters = {
            "labelSelector": label_selector,
            "fieldSelector": field_selector,
            "limit": str(limit) if limit else "",
            "continue": continue_token,
            "resourceVersion": resource_version,
        }
        body = await self._request("GET", _path(res, namespace), parameters)
        try:
            answer = _list_decoder.decode(body)
        except msgspec.MsgspecError as error:
            raise ConnectionLostError(f"The API server's list of {res.plural} is not readable: {error}.") from error
        items = tuple(bytes(item) for item in answer.items or ())
        return ListPage(items, answer.metadata.resource_version, answer.metadata.continue_token)

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
            _path(res, namespace),
            params={key: value for key, value in parameters.items() if value},
            timeout=httpx2.Timeout(REQUEST_TIMEOUT_S, connect=CONNECT_TIMEOUT_S, read=WATCH_SILENCE_S),
            extensions=self._extensions,
        )
        response = await self._send(request, stream=True)
        try:
            with self._translated():
                if response.is_error:
                    raise _error(response, await response.aread())
                async for line in _lines(response):
                    yield _event(line)
        finally:
            # Closing is what ends the request on the server; it must not fail the caller.
            with contextlib.suppress(httpx2.HTTPError, OSError):
                await response.aclose()

    # Writing

    async def create(self, res: ResourceType, obj: Object, namespace: str = "", *, manager: str = "") -> Object:
        namespace = namespace or _namespace(obj)
        body = await self._request("POST", _path(res, namespace), {"fieldManager": manager}, obj)
        return _object(body)

    async def replace(self, res: ResourceType, obj: Object, *, subresource: str = "", manager: str = "") -> Object:
        path = _path(res, _namespace(obj), obj["metadata"]["name"], subresource)
        return _object(await self._request("PUT", path, {"fieldManager": manager}, obj))

    async def patch(
        self,
        res: ResourceType,
        name: str,
        patch: Mapping[str, Any] | list[Any],
        patch_type: PatchType,
        namespace: str = "",
        *,
        subresource: str = "",
        manager: str = "",
    ) -> Object:
        path = _path(res, namespace, name, subresource)
        return _object(await self._request("PATCH", path, {"fieldManager": manager}, patch, patch_type.value))

    async def apply(
        self,
        res: ResourceType,
        obj: Object,
        *,
        manager: str,
        force: bool = True,
        subresource: str = "",
    ) -> Object:
        path = _path(res, _namespace(obj), obj["metadata"]["name"], subresource)
        parameters = {"fieldManager": manager, "force": "true" if force else "false"}
        return _object(await self._request("PATCH", path, parameters, obj, APPLY))

    async def delete(
        self,
        res: ResourceType,
        name: str,
        namespace: str = "",
        *,
        grace_period_s: int | None = None,
        uid: str = "",
        resource_version: str = "",
    ) -> None:
        options = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            **_delete_options(grace_period_s, uid, resource_version),
        }
        await self._request("DELETE", _path(res, namespace, name), {}, options)

    async def evict(self, pod: str, namespace: str, *, uid: str = "", grace_period_s: int | None = None) -> None:
        eviction = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod, "namespace": namespace},
            "deleteOptions": _delete_options(grace_period_s, uid, ""),
        }
        await self._request("POST", _path(PODS, namespace, pod, "eviction"), {}, eviction)

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
        response = await self._send(request)
        if response.is_error:
            raise _error(response, response.content)
        return response.content

    async def _send(self, request: httpx2.Request, *, stream: bool = False) -> httpx2.Response:
        with self._translated():
            try:
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


def _path(res: ResourceType, namespace: str = "", name: str = "", subresource: str = "") -> str:
    parts = ["apis", res.group, res.version] if res.group else ["api", res.version]
    if res.namespaced and namespace:
        parts += ["namespaces", namespace]
    parts.append(res.plural)
    if name:
        parts.append(name)
    if subresource:
        parts.append(subresource)
    return "/".join(quote(part, safe="") for part in parts)


def _namespace(obj: Object) -> str:
    return str(obj.get("metadata", {}).get("namespace") or "")


def _delete_options(grace_period_s: int | None, uid: str, resource_version: str) -> Object:
    options: Object = {}
    if grace_period_s is not None:
        options["gracePeriodSeconds"] = grace_period_s
    preconditions = {key: value for key, value in (("uid", uid), ("resourceVersion", resource_version)) if value}
    if preconditions:
        options["preconditions"] = preconditions
    return options


def _object(body: bytes) -> Object:
    try:
        return _object_decoder.decode(body)
    except msgspec.MsgspecError as error:
        raise ConnectionLostError(f"The API server's answer is not readable: {error}.") from error


def _event(line: bytes) -> WatchEvent:
    try:
        event = _event_decoder.decode(line)
        if event.type == "ERROR":
            raise error_from_status(0, bytes(event.object))
        return WatchEvent(EventType(event.type), bytes(event.object))
    except (msgspec.MsgspecError, ValueError) as error:
        raise ConnectionLostError(f"The API server sent a watch event that is not readable: {error}.") from error


async def _lines(response: httpx2.Response) -> AsyncIterator[bytes]:
    """The lines of a streamed body. A last line that is cut off is dropped: its event comes again on resume."""
    rest: list[bytes] = []
    size = 0
    async for chunk in response.aiter_bytes():
        *complete, tail = chunk.split(b"\n")
        if complete:
            complete[0] = b"".join(rest) + complete[0]
            rest, size = [], 0
            for line in complete:
                if line.strip():
                    yield line
        if tail:
            rest.append(tail)
            size += len(tail)
            if size > MAX_LINE_BYTES:
                raise ConnectionLostError(f"The API server sent a watch event of more than {MAX_LINE_BYTES} bytes.")


def _error(response: httpx2.Response, body: bytes) -> Exception:
    return error_from_status(response.status_code, body, response.headers.get("Retry-After", ""))


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
