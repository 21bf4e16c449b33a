"""A kubelet's PodResources API on a Unix socket: HTTP/2 and gRPC frames as a real server sends them."""

from __future__ import annotations

import socket
import struct
import threading
from pathlib import Path
from typing import Any

import h2.config
import h2.connection
import h2.events


def field(number: int, value: bytes | str) -> bytes:
    """A length-delimited field of protobuf."""
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def varint(value: int) -> bytes:
    out = b""
    while value > 0x7F:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def pod(name: str, namespace: str, devices: dict[str, list[str]], claimed: tuple[tuple[str, str], ...] = ()) -> bytes:
    """A PodResources message with one container, and fields beside those that matter."""
    container = field(1, "main")
    for resource, ids in devices.items():
        topology = field(1, varint(1 << 3) + varint(1))
        container += field(2, field(1, resource) + b"".join(field(2, one) for one in ids) + field(3, topology))
    container += varint(3 << 3) + varint(17)
    for driver, device in claimed:
        claim = (
            field(1, field(1, f"k8s.{driver}/claim={device}")) + field(2, driver) + field(3, "n1") + field(4, device)
        )
        container += field(5, field(2, "claim") + field(3, namespace) + field(4, claim))
    return field(1, name) + field(2, namespace) + field(3, container)


def response(*pods: bytes) -> bytes:
    return b"".join(field(1, one) for one in pods)


class PodResourcesServer:
    """Answers one method. `status` is the gRPC status; `message` the answer; `silent` never answers."""

    def __init__(self, path: Path, message: bytes = b"", *, status: int = 0, silent: bool = False) -> None:
        self.requests: list[dict[str, str]] = []
        self._message, self._status, self._silent = message, status, silent
        self._listener = socket.socket(socket.AF_UNIX)
        path.parent.mkdir(parents=True, exist_ok=True)
        self._listener.bind(str(path))
        self._listener.listen()
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                link, _ = self._listener.accept()
            except OSError:
                return
            try:
                self._serve(link)
            except OSError:
                pass
            finally:
                link.close()

    def _serve(self, link: socket.socket) -> None:
        connection = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False, header_encoding="utf-8"))
        connection.initiate_connection()
        connection.ping(b"12345678")
        link.sendall(connection.data_to_send())
        waiting: tuple[int, bytes] | None = None
        while data := link.recv(65536):
            for event in connection.receive_data(data):
                if isinstance(event, h2.events.RequestReceived):
                    self.requests.append({str(name): str(value) for name, value in event.headers})
                elif isinstance(event, h2.events.StreamEnded) and not self._silent:
                    waiting = (event.stream_id or 0, self._begin(connection, event.stream_id or 0))
            if waiting is not None:
                waiting = self._send(connection, *waiting)
            link.sendall(connection.data_to_send())

    def _begin(self, connection: Any, stream: int) -> bytes:
        headers = [(":status", "200"), ("content-type", "application/grpc")]
        if self._status:
            headers += [("grpc-status", str(self._status)), ("grpc-message", "not allowed")]
            connection.send_headers(stream, headers, end_stream=True)
            return b""
        connection.send_headers(stream, headers)
        return struct.pack(">BI", 0, len(self._message)) + self._message

    def _send(self, connection: Any, stream: int, rest: bytes) -> tuple[int, bytes] | None:
        """As much as the client's windows take; the rest when they open again."""
        if self._status:
            return None
        while rest:
            size = min(len(rest), connection.local_flow_control_window(stream), connection.max_outbound_frame_size)
            if size == 0:
                return stream, rest
            connection.send_data(stream, rest[:size])
            rest = rest[size:]
        connection.send_headers(stream, [("grpc-status", "0")], end_stream=True)
        return None
