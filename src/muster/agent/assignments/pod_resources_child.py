"""Asks the kubelet's PodResources API once and writes the answer to standard output: `pod_resources_child.py SOCKET`.

A process of its own: the HTTP/2 library takes as much memory as a good part of the agent, and is needed for a moment.
Exit code 0: the whole answer was written; 1: the reason is in the last line of standard output instead.
"""

from __future__ import annotations

import socket
import struct
import sys
from collections.abc import Iterable

METHOD = "/v1.PodResourcesLister/List"
MAX_MESSAGE_BYTES = 16 * 1024 * 1024
_WAIT_S = 8.0
_WINDOW = 2**24


def ask(path: str) -> bytes:
    """The message that answers List. Raises OSError or ValueError with the reason."""
    import h2.config
    import h2.connection
    import h2.settings

    connection = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True, header_encoding="utf-8"))
    connection.local_settings = h2.settings.Settings(
        client=True,
        initial_values={
            h2.settings.SettingCodes.ENABLE_PUSH: 0,
            h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: _WINDOW,
        },
    )
    headers = (
        (":method", "POST"),
        (":scheme", "http"),
        (":path", METHOD),
        (":authority", "localhost"),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
    )
    with socket.socket(socket.AF_UNIX) as link:
        link.settimeout(_WAIT_S)
        link.connect(path)
        connection.initiate_connection()
        connection.increment_flow_control_window(_WINDOW)
        connection.send_headers(1, headers)
        # A frame of gRPC: not compressed, and a message of no bytes.
        connection.send_data(1, struct.pack(">BI", 0, 0), end_stream=True)
        link.sendall(connection.data_to_send())
        return _message(_answer(connection, link))


def _answer(connection: object, link: socket.socket) -> bytearray:
    import h2.connection
    import h2.events

    assert isinstance(connection, h2.connection.H2Connection)  # noqa: S101 - made above
    body = bytearray()
    while True:
        data = link.recv(65536)
        if not data:
            raise ValueError("the kubelet closed the connection")
        for event in connection.receive_data(data):
            if isinstance(event, h2.events.ResponseReceived | h2.events.TrailersReceived):
                _check(event.headers)
            elif isinstance(event, h2.events.DataReceived):
                body += event.data
                if len(body) > MAX_MESSAGE_BYTES:
                    raise ValueError("the answer is too large")
                connection.acknowledge_received_data(event.flow_controlled_length or 0, 1)
            elif isinstance(event, h2.events.StreamReset | h2.events.ConnectionTerminated):
                raise ValueError(f"the kubelet ended the call with HTTP/2 error {event.error_code}")
            elif isinstance(event, h2.events.StreamEnded):
                return body
        link.sendall(connection.data_to_send())


def _check(headers: Iterable[tuple[object, object]]) -> None:
    found = {str(name): str(value) for name, value in headers}
    if found.get(":status", "200") != "200":
        raise ValueError(f"the kubelet answered with HTTP status {found[':status']}")
    if found.get("grpc-status", "0") != "0":
        raise ValueError(f"the kubelet answered with status {found['grpc-status']}: {found.get('grpc-message', '')}")


def _message(body: bytes | bytearray) -> bytes:
    if len(body) < 5:
        raise ValueError("the kubelet answered with no message")
    compressed, size = struct.unpack(">BI", body[:5])
    if compressed or len(body) != 5 + size:
        raise ValueError("the kubelet's answer is compressed or cut off")
    return bytes(body[5:])


def main() -> int:
    try:
        answer = ask(sys.argv[1])
    except Exception as error:  # whatever it is, the agent tells it
        sys.stdout.write(f"{type(error).__name__}: {error}"[:400].replace("\n", " ") + "\n")
        return 1
    sys.stdout.buffer.write(answer)
    return 0


if __name__ == "__main__":
    sys.exit(main())
