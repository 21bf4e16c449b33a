"""A network link that tests can break: a TCP proxy on loopback between clients and a server."""

from __future__ import annotations

import contextlib
import re
import socket
import struct
import threading
from enum import Enum
from types import TracebackType

CHUNK_BYTES = 65536
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


class _State(Enum):
    OPEN = "open"
    CUT = "cut"
    FROZEN = "frozen"


class Link:
    """Forwards connections to `127.0.0.1:<target_port>` from `port`, by threads of its own, until `close`.

    `cut`: connections are reset, and new ones too. `freeze`: nothing is forwarded and nothing is closed, as when a
    cable is pulled; `heal` lets what was sent meanwhile through. It may also be used as a context manager.
    """

    def __init__(self, target_port: int) -> None:
        self._target_port = target_port
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.port = int(self._listener.getsockname()[1])
        self._state = _State.OPEN
        self._changed = threading.Condition()
        self._sockets: list[socket.socket] = []
        self._closed = False
        self.accepted = 0
        """Connections that clients made so far."""
        threading.Thread(target=self._accept, daemon=True, name=f"link-{self.port}").start()

    def __enter__(self) -> Link:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def through(self, kubeconfig: str) -> str:
        """The kubeconfig (YAML text of a server on loopback) with this link in the way."""
        return re.sub(r"(server: ['\"]?https?://127\.0\.0\.1:)\d+", rf"\g<1>{self.port}", kubeconfig)

    def cut(self) -> None:
        """Reset every connection, and new ones as soon as they are made."""
        self._become(_State.CUT)
        self._reset_all()

    def freeze(self) -> None:
        """Forward nothing any more, in either direction, without a word to either side."""
        self._become(_State.FROZEN)

    def heal(self) -> None:
        """Forward again. What was cut stays cut; clients connect anew."""
        self._become(_State.OPEN)

    def close(self) -> None:
        """End everything; the port is free again."""
        self._closed = True
        self._become(_State.CUT)
        # A blocked accept() ends only by a connection or a shutdown.
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._reset_all()

    def _become(self, state: _State) -> None:
        with self._changed:
            self._state = state
            self._changed.notify_all()

    def _reset_all(self) -> None:
        with self._changed:
            sockets, self._sockets = self._sockets, []
        for each in sockets:
            _reset(each)

    def _accept(self) -> None:
        while not self._closed:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self.accepted += 1
            threading.Thread(target=self._connect, args=(client,), daemon=True).start()

    def _connect(self, client: socket.socket) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._state is not _State.FROZEN)
            refused = self._state is _State.CUT
        if refused:
            _reset(client)
            return
        try:
            server = socket.create_connection(("127.0.0.1", self._target_port), timeout=10)
        except OSError:
            _reset(client)
            return
        server.settimeout(None)
        for each in (client, server):
            each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with self._changed:
            self._sockets += [client, server]
            cut_meanwhile = self._state is _State.CUT
        if cut_meanwhile:
            self._reset_all()
            return
        threading.Thread(target=self._pump, args=(client, server), daemon=True).start()
        threading.Thread(target=self._pump, args=(server, client), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        """Carry bytes one way until either side ends; an end is passed on as such, a reset as a reset."""
        try:
            while chunk := source.recv(CHUNK_BYTES):
                with self._changed:
                    self._changed.wait_for(lambda: self._state is not _State.FROZEN)
                sink.sendall(chunk)
            with self._changed:
                self._changed.wait_for(lambda: self._state is not _State.FROZEN)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            _reset(source)
            _reset(sink)


def _reset(each: socket.socket) -> None:
    """Close with RST, whoever is blocked on it meanwhile."""
    with contextlib.suppress(OSError):
        each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
    with contextlib.suppress(OSError):
        each.shutdown(socket.SHUT_RDWR)
    with contextlib.suppress(OSError):
        each.close()
