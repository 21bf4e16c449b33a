"""A local HTTP server for the SDKs of the clouds, which block and so need one in a thread of its own."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit


@dataclass(frozen=True)
class Asked:
    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes

    @property
    def form(self) -> dict[str, str]:
        return {key: values[0] for key, values in parse_qs(self.body.decode()).items()}

    def json(self) -> Any:
        return json.loads(self.body or b"{}")


@dataclass
class Told:
    status: int = 200
    body: Any = ""
    headers: dict[str, str] = field(default_factory=dict)
    cut: bool = False
    """The connection breaks instead of an answer."""


@dataclass
class CloudApi:
    answer: Callable[[Asked], Told]
    asked: list[Asked] = field(default_factory=list)
    url: str = ""

    def called(self, what: str) -> list[Asked]:
        return [a for a in self.asked if what in a.path or what in a.body.decode(errors="replace")]


@contextmanager
def cloud_api(answer: Callable[[Asked], Told]) -> Iterator[CloudApi]:
    api = CloudApi(answer)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def serve(self) -> None:
            split = urlsplit(self.path)
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            query = {k: v[0] for k, v in parse_qs(split.query).items()}
            headers = {k.lower(): v for k, v in self.headers.items()}
            asked = Asked(self.command, split.path, query, headers, body)
            api.asked.append(asked)
            told = api.answer(asked)
            if told.cut:
                self.connection.close()
                self.close_connection = True
                return
            text = told.body if isinstance(told.body, str) else json.dumps(told.body)
            data = text.encode()
            self.send_response(told.status)
            kind = "text/xml" if text.startswith("<") else "application/json"
            for key, value in {"Content-Type": kind, "Content-Length": str(len(data)), **told.headers}.items():
                self.send_header(key, value)
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = serve  # noqa: N815 - the names of the library

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the signature of the library
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    api.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield api
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
