"""A plain HTTP client for the contract tests: it shows what a server really answers, and hides nothing."""

from __future__ import annotations

import json
import queue
import socket
import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import httpx2

MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"
APPLY = "application/apply-patch+yaml"
JSON = "application/json"
TIMEOUT_S = 30.0


@dataclass(frozen=True)
class Answer:
    """What came back. `body` is the decoded JSON, or None when it is not JSON."""

    status: int
    headers: Mapping[str, str]
    content: bytes
    body: Any = field(default=None)

    def ok(self) -> dict[str, Any]:
        """The object of a 2xx answer."""
        assert 200 <= self.status < 300, f"{self.status}: {self.content[:2000]!r}"
        assert isinstance(self.body, dict)
        return self.body

    def refused(self, code: int, reason: str) -> str:
        """The message of a failure that has this code and reason, and the shape of every Status."""
        assert self.status == code, f"{self.status}: {self.content[:2000]!r}"
        assert self.body["kind"] == "Status"
        assert self.body["apiVersion"] == "v1"
        assert self.body["metadata"] == {}
        assert self.body["status"] == "Failure"
        assert self.body["code"] == code
        assert self.body.get("reason") == reason
        return str(self.body["message"])


class Watch:
    """Events of a watch, read by a thread so that a test can say how long it is willing to wait."""

    def __init__(self, response: httpx2.Response) -> None:
        self.status = response.status_code
        self._response = response
        self._events: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        try:
            for line in self._response.iter_lines():
                if line.strip():
                    self._events.put(json.loads(line))
        except (httpx2.HTTPError, httpx2.StreamError, OSError, RuntimeError):
            pass  # closed by the test, or by the server
        finally:
            self._events.put(None)

    def close(self) -> None:
        """End the connection and the thread that reads it.

        The thread must be done with the socket before it is closed: its number is given to the next connection, whose
        bytes the thread would take.
        """
        stream = self._response.extensions.get("network_stream")
        connection = stream.get_extra_info("socket") if stream is not None else None
        if connection is not None and self._thread.is_alive():
            with suppress(OSError):
                socket.socket.shutdown(connection, socket.SHUT_RDWR)
        self._thread.join(TIMEOUT_S)

    def next(self, timeout_s: float = TIMEOUT_S) -> dict[str, Any] | None:
        """The next event, or None when the watch has ended. Raises AssertionError when none comes in time."""
        try:
            return self._events.get(timeout=timeout_s)
        except queue.Empty:
            raise AssertionError(f"no event within {timeout_s} s") from None

    def take(self, count: int, timeout_s: float = TIMEOUT_S) -> list[tuple[str, dict[str, Any]]]:
        """The next `count` events as (type, object), bookmarks left out."""
        found: list[tuple[str, dict[str, Any]]] = []
        while len(found) < count:
            event = self.next(timeout_s)
            assert event is not None, f"the watch ended after {found}"
            if event["type"] != "BOOKMARK":
                found.append((event["type"], event["object"]))
        return found

    def quiet(self, seconds: float) -> bool:
        """Whether nothing comes for so long (an end counts as nothing)."""
        try:
            return self._events.get(timeout=seconds) is None
        except queue.Empty:
            return True


class Client:
    """Requests as one user. Close it, or use it as a context manager."""

    def __init__(self, url: str, token: str, ca_pem: str) -> None:
        self.url = url
        self.token = token
        context = ssl.create_default_context(cadata=ca_pem)
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._http = httpx2.Client(base_url=url, headers=headers, verify=context, timeout=TIMEOUT_S, trust_env=False)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        params: Mapping[str, Any] | None = None,
        content_type: str = JSON,
        accept: str = JSON,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """One request. `body` is sent as JSON unless it is bytes already."""
        content = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        sent = {
            "Accept": accept,
            **({"Content-Type": content_type} if content is not None else {}),
            **(headers or {}),
        }
        response = self._http.request(method, path, content=content, params=params, headers=sent)
        try:
            decoded = json.loads(response.content)
        except ValueError:
            decoded = None
        return Answer(response.status_code, response.headers, response.content, decoded)

    def get(self, path: str, **params: Any) -> Answer:
        return self.request("GET", path, params=params)

    def create(self, path: str, body: Any, **params: Any) -> Answer:
        return self.request("POST", path, body, params=params)

    def replace(self, path: str, body: Any, **params: Any) -> Answer:
        return self.request("PUT", path, body, params=params)

    def patch(self, path: str, body: Any, content_type: str = MERGE, **params: Any) -> Answer:
        return self.request("PATCH", path, body, params=params, content_type=content_type)

    def apply(self, path: str, body: Any, *, manager: str, **params: Any) -> Answer:
        """Server-side apply (`force="true"` to take what others own)."""
        return self.patch(path, body, APPLY, fieldManager=manager, **params)

    def delete(self, path: str, options: Any = None, **params: Any) -> Answer:
        return self.request("DELETE", path, options, params=params)

    @contextmanager
    def watch(self, path: str, **params: Any) -> Iterator[Watch]:
        """A watch of `path` (a list's path); `params` as in the query string."""
        timeout = httpx2.Timeout(TIMEOUT_S, read=None)
        # A real server compresses some watches, one gzip member for each event; the client reads only the first.
        headers = {"Accept": JSON, "Accept-Encoding": "identity"}
        query = {"watch": "true", **params}
        with self._http.stream("GET", path, params=query, headers=headers, timeout=timeout) as response:
            watch = Watch(response)
            try:
                yield watch
            finally:
                watch.close()
