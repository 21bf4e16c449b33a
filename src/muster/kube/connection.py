"""One HTTP/1.1 connection: a request goes out, its whole answer comes back. h11 speaks, asyncio carries the bytes.

For a process that must stay small: a full HTTP client takes ten megabytes of memory before it has sent anything.
"""

from __future__ import annotations

import asyncio
import ssl
from dataclasses import dataclass
from typing import Final

import h11

MAX_BODY_BYTES: Final = 32 * 1024 * 1024
"""Longest answer accepted; etcd's own limit for an object is 1.5 MiB by default."""
_READ_BYTES = 64 * 1024


class BrokenError(Exception):
    """The connection is of no use any more. The request may have been carried out or not."""


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    """Names in lower case."""
    body: bytes


class Connection:
    """Made by `connect`. One exchange at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._protocol = h11.Connection(h11.CLIENT)
        self.idle_since = 0.0
        """Of the event loop's time; whoever keeps the connection sets it."""

    @classmethod
    async def connect(cls, host: str, port: int, tls: ssl.SSLContext | None) -> Connection:
        """Raises OSError (ssl.SSLError is one)."""
        return cls(*await asyncio.open_connection(host, port, ssl=tls, server_hostname=host if tls else None))

    @property
    def usable(self) -> bool:
        """Whether another request may be sent: the last one has ended well, and the server has not hung up."""
        states = (self._protocol.our_state, self._protocol.their_state)
        return states == (h11.IDLE, h11.IDLE) and not self._reader.at_eof() and not self._writer.is_closing()

    async def exchange(self, method: str, target: str, headers: list[tuple[str, str]], body: bytes) -> Answer:
        """Raises BrokenError."""
        protocol = self._protocol
        if body:
            headers = [*headers, ("Content-Length", str(len(body)))]
        try:
            sent = [protocol.send(h11.Request(method=method, target=target, headers=headers))]
            if body:
                sent.append(protocol.send(h11.Data(data=body)))
            sent.append(protocol.send(h11.EndOfMessage()))
            self._writer.write(b"".join(part for part in sent if part))
            await self._writer.drain()
            answer = await self._answer()
        except (h11.RemoteProtocolError, OSError) as error:
            raise BrokenError(str(error) or type(error).__name__) from error
        if protocol.our_state is h11.DONE and protocol.their_state is h11.DONE:
            protocol.start_next_cycle()
        return answer

    async def _answer(self) -> Answer:
        status, headers, size = 0, {}, 0
        parts: list[bytes] = []
        while True:
            event = self._protocol.next_event()
            if event is h11.NEED_DATA:
                self._protocol.receive_data(await self._reader.read(_READ_BYTES))
            elif isinstance(event, h11.Response):
                status = event.status_code
                headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in event.headers}
            elif isinstance(event, h11.Data):
                size += len(event.data)
                if size > MAX_BODY_BYTES:
                    raise BrokenError(f"an answer of more than {MAX_BODY_BYTES} bytes")
                parts.append(bytes(event.data))
            elif isinstance(event, h11.EndOfMessage):
                return Answer(status, headers, b"".join(parts))
            elif not isinstance(event, h11.InformationalResponse):
                raise BrokenError("the server hung up")

    def close(self) -> None:
        """End the connection, whatever it is doing."""
        self._writer.transport.abort()
