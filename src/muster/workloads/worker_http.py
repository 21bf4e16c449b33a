"""What a worker answers over HTTP."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from muster.workloads.run_spec import SPEC_LIMIT_BYTES, RunSpec, SpecError
from muster.workloads.signing import (
    INCARNATION_HEADER,
    NODE_HEADER,
    NONCE_HEADER,
    SIGNATURE_HEADER,
    TIME_HEADER,
    Gate,
    RefusedError,
    asked_of,
    sign_answer,
)
from muster.workloads.worker_runs import ConflictError, Run, Runs

CONNECTIONS = 64
"""Connections that are served at the same time; more are closed at once."""
CONNECTIONS_PER_HOST = 16
"""Of them from one address, so that no single client keeps the coordinator out. That one needs one or two."""
READ_WITHIN_S = 10.0
"""A client must have sent its request by then."""
WAIT_LIMIT_S = 30.0
STOP_WAIT_S = 40.0
_RUN_PATH = re.compile(r"/runs/([^/?]{1,253})")
_HEADERS = (NODE_HEADER, INCARNATION_HEADER, TIME_HEADER, NONCE_HEADER, SIGNATURE_HEADER)

Answer = tuple[int, Mapping[str, Any]]


@dataclass
class Worker:
    """What answers need to know. `device` may be `auto` until the template has counted the GPUs."""

    runs: Runs
    gate: Gate
    token: str
    node: str
    incarnation: str
    wanted_device: str
    wanted_ranks: int
    allow_injection: bool

    def __post_init__(self) -> None:
        self.gate_lock = threading.Lock()

    @property
    def device(self) -> str:
        if self.wanted_device != "auto":
            return self.wanted_device
        return "cuda" if self.runs.gpus else "cpu"

    @property
    def ready(self) -> bool:
        """The device is known, and a run can start."""
        return self.runs.ready and (self.wanted_device == "cpu" or self.runs.gpus is not None)

    def answer(self, method: str, target: str, body: bytes) -> Answer:
        """The answer to a genuine request."""
        url = urlsplit(target)
        match = _RUN_PATH.fullmatch(url.path)
        if (method, url.path) == ("GET", "/state"):
            return 200, self._state()
        if (method, url.path) == ("POST", "/runs"):
            return self._start(body)
        if match is None or method not in ("GET", "DELETE"):
            return 404, {"message": "There is no such thing here."}
        run = unquote(match[1])
        if method == "DELETE":
            return _about(self.runs.stop(run, STOP_WAIT_S), run)
        return _about(self.runs.look(run, _wait_s(url.query)), run)

    def _state(self) -> Mapping[str, Any]:
        return {
            "node": self.node,
            "incarnation": self.incarnation,
            "ready": self.ready,
            "device": self.device,
            "ranks": self.wanted_ranks or (self.runs.gpus or 1 if self.device == "cuda" else 1),
            "runs": self.runs.phases(),
            "versions": dict(self.runs.versions),
            "skewS": round(self.gate.skew_s, 3),
        }

    def _start(self, body: bytes) -> Answer:
        try:
            spec = RunSpec.from_json(body)
        except SpecError as error:
            return 400, {"message": str(error)}
        if spec.node != self.node:
            return 400, {"message": f"The run is meant for {spec.node}, and this is the worker of {self.node}."}
        if spec.inject and not self.allow_injection:
            return 403, {"message": "The run asks for a fault to be acted out; this worker was not started for that."}
        if not self.ready:
            return 503, {"message": "The worker is not ready yet."}
        try:
            return (202 if self.runs.start(spec) else 200), {"run": spec.run}
        except ConflictError as error:
            return (409 if self.runs.ready else 503), {"message": str(error), "busy": error.busy}
        except OSError as error:
            return 503, {"message": f"The worker cannot put the run down: {error.strerror or error}."}


def _wait_s(query: str) -> float:
    text = parse_qs(query).get("wait_s", ["0"])[0]
    try:
        return min(WAIT_LIMIT_S, max(0.0, float(text)))
    except ValueError:
        return 0.0


def _about(found: Run | None, run: str) -> Answer:
    if found is None:
        return 404, {"message": f"The run {run} is not known here.", "unknown": True}
    report = json.loads(found.report) if found.report else None
    return 200, {"phase": found.phase, "how": found.how, "report": report, "message": found.message}


class Server(ThreadingHTTPServer):
    """Serves one worker. `address`: host and port, IPv4 or IPv6."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], worker: Worker) -> None:
        self.worker = worker
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        self._lock = threading.Lock()
        self._taken: Counter[str] = Counter()
        """Connections by address of the client."""
        super().__init__((address[0].strip("[]"), address[1]), _Handler)

    def server_bind(self) -> None:
        # That of HTTPServer asks the DNS for the name of this host, which may take minutes where there is none.
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._take(client_address[0]):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:
            # No thread could be started (a program may have taken all processes there are): the place is free again.
            self._give_back(client_address[0])
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._give_back(client_address[0])

    def _take(self, host: str) -> bool:
        with self._lock:
            if self._taken.total() >= CONNECTIONS or self._taken[host] >= CONNECTIONS_PER_HOST:
                return False
            self._taken[host] += 1
            return True

    def _give_back(self, host: str) -> None:
        with self._lock:
            self._taken[host] -= 1
            # Addresses that are not connected any more are not kept.
            self._taken = +self._taken

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away or sends nonsense is no event."""


class _Handler(BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"
    timeout = READ_WITHIN_S

    def setup(self) -> None:
        super().setup()
        # The limit of the socket is for each read; this one is for the whole request, however slowly it drips in.
        self._hurry = threading.Timer(READ_WITHIN_S, self._too_slow)
        self._hurry.daemon = True
        self._hurry.start()

    def finish(self) -> None:
        self._hurry.cancel()
        super().finish()

    def _too_slow(self) -> None:
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)

    def do_GET(self) -> None:
        self._serve()

    def do_POST(self) -> None:
        self._serve()

    def do_DELETE(self) -> None:
        self._serve()

    def _serve(self) -> None:
        worker = self.server.worker
        length = self.headers.get("Content-Length", "0")
        size = int(length) if length.isascii() and length.isdigit() and len(length) < 10 else -1
        if not 0 <= size <= SPEC_LIMIT_BYTES or "Transfer-Encoding" in self.headers:
            self._send(413, b"", "")
            return
        body = self.rfile.read(size)
        if len(body) < size:
            return
        self._hurry.cancel()
        headers = {name: self.headers.get(name, "") for name in _HEADERS}
        asked, signature = asked_of(self.command, self.path, headers, body)
        try:
            with worker.gate_lock:
                worker.gate.check(asked, signature)
        except RefusedError as error:
            # Who does not know the token learns nothing.
            text = json.dumps({"message": str(error)}).encode() if error.known else b""
            self._send(error.status, text, sign_answer(worker.token, error.status, asked.nonce, text) if text else "")
            return
        status, answer = worker.answer(self.command, self.path, body)
        text = json.dumps(answer).encode()
        self._send(status, text, sign_answer(worker.token, status, asked.nonce, text))

    def _send(self, status: int, body: bytes, signature: str) -> None:
        self.close_connection = True
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Connection", "close")
        if signature:
            self.send_header(SIGNATURE_HEADER, signature)
        self.end_headers()
        self.wfile.write(body)

    def version_string(self) -> str:
        return "muster-worker"

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name of the base class
        """Nothing: the coordinator tells what matters."""
