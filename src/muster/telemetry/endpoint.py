"""`/healthz`, `/readyz` and `/metrics` over HTTP: three fixed paths, nothing that a request says is used or repeated.

A server of its own in a page of code, since a web framework would cost the agent a quarter of its memory. One request
per connection; size, time and number of connections are bounded. Who comes when all places are taken gets that of
the one who has had its place longest: idle connections of a stranger must not keep the kubelet from its probes.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import socket
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

from muster.errors import BadInputError
from muster.telemetry.exposition import CONTENT_TYPE
from muster.telemetry.health import Health

log = logging.getLogger(__name__)

HEAD_LIMIT_BYTES = 8192
EXCHANGE_LIMIT_S = 5.0
"""Of the event loop's time: the other side is a real kubelet or scraper, whatever time is simulated."""
CONNECTION_LIMIT = 32
TEXT = "text/plain; charset=utf-8"
_WORDS = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    503: "Service Unavailable",
}


@dataclass(frozen=True)
class Address:
    """Where to listen. An empty host means every address of the machine, IPv4 and IPv6."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Address:
        """`127.0.0.1:80`, `[::1]:80`, `localhost:80` or `:80`; port 0 takes a free one. Raises BadInputError."""
        host, colon, port = text.rpartition(":")
        bracketed = host.startswith("[") and host.endswith("]")
        plain = host[1:-1] if bracketed else host
        if not colon or not (port.isascii() and port.isdigit()) or len(port) > 5 or int(port) > 65535:
            raise BadInputError(f"{_shown(text)} is not ADDRESS:PORT; give for example 127.0.0.1:8080 or :8080.")
        if bracketed != (":" in plain) or not plain.isprintable() or " " in plain or len(plain) > 253:
            raise BadInputError(f"{_shown(text)} is not ADDRESS:PORT; write an IPv6 address as in [::1]:8080.")
        return cls(plain, int(port))

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True)
class _Answer:
    code: int
    body: bytes
    content_type: str = TEXT


class Endpoint:
    """Serves one process. `serving` listens while its block runs."""

    def __init__(self, address: Address, health: Health, exposition: Callable[[], bytes]) -> None:
        self._wanted = address
        self._health = health
        self._exposition = exposition
        self._exchanges: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
        self.address = address
        """Where it listens; with the real port once it does."""

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[Endpoint]:
        """Listen, and measure the health. Raises BadInputError when the address cannot be used."""
        listening = _listen(self._wanted)
        self.address = Address(self._wanted.host, listening.getsockname()[1])
        server = await asyncio.start_server(self._accepted, sock=listening, limit=HEAD_LIMIT_BYTES)
        measuring = asyncio.ensure_future(self._health.run())
        try:
            yield self
        finally:
            server.close()
            works = [measuring, *self._exchanges]
            for task in works:
                task.cancel()
            await asyncio.gather(*works, return_exceptions=True)
            await server.wait_closed()

    def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Not a coroutine: asyncio reports the handlers that it starts itself as broken when they are cancelled."""
        if len(self._exchanges) >= CONNECTION_LIMIT:
            oldest = next(iter(self._exchanges))
            # At once: a cancelled task that has not even begun would never close it.
            self._exchanges.pop(oldest).transport.abort()
            oldest.cancel()
        task = asyncio.get_running_loop().create_task(self._bounded(reader, writer))
        self._exchanges[task] = writer
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        writer = self._exchanges.pop(task, None)
        if writer is not None:
            # Not `close`: that waits for as long as the other side likes until it has read what is still unsent.
            writer.transport.abort()

    async def _bounded(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(EXCHANGE_LIMIT_S):
                await self._exchange(reader, writer)
        except (OSError, TimeoutError, asyncio.IncompleteReadError):
            pass  # the other side went away, or sends or reads too slowly

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            answer, method = _Answer(431, b"The request is too large.\n"), b"GET"
        else:
            method, _, rest = head.partition(b"\r\n")[0].partition(b" ")
            answer = self._answer(method, rest)
        writer.write(_written(answer, with_body=method != b"HEAD"))
        await writer.drain()
        writer.write_eof()
        # Closing with unread bytes would reset the connection before the answer is read.
        while await reader.read(HEAD_LIMIT_BYTES):
            pass

    def _answer(self, method: bytes, rest: bytes) -> _Answer:
        target, _, version = rest.partition(b" ")
        if not version.startswith(b"HTTP/1."):
            return _Answer(400, b"This is not an HTTP/1.1 request.\n")
        if method not in (b"GET", b"HEAD"):
            return _Answer(405, b"Only GET and HEAD are answered.\n")
        match target.partition(b"?")[0]:
            case b"/healthz":
                return _verdict("alive", self._health.not_alive())
            case b"/readyz":
                return _verdict("ready", self._health.not_ready())
            case b"/metrics":
                return self._metrics()
            case _:
                return _Answer(404, b"Paths: /healthz, /readyz, /metrics.\n")

    def _metrics(self) -> _Answer:
        try:
            return _Answer(200, self._exposition(), CONTENT_TYPE)
        except Exception:  # a bug in what is counted must not look like a dead process
            log.exception("the metrics cannot be collected")
            return _Answer(500, b"The metrics cannot be collected; the log says why.\n")


def _verdict(word: str, why_not: str) -> _Answer:
    text = f"not {word}: {why_not}" if why_not else word
    return _Answer(503 if why_not else 200, f"{text}\n".encode())


def _written(answer: _Answer, *, with_body: bool) -> bytes:
    head = (
        f"HTTP/1.1 {answer.code} {_WORDS[answer.code]}\r\n"
        f"Content-Type: {answer.content_type}\r\n"
        f"Content-Length: {len(answer.body)}\r\n"
        "X-Content-Type-Options: nosniff\r\n"
        "Cache-Control: no-store\r\n"
        f"{'Allow: GET, HEAD' + chr(13) + chr(10) if answer.code == 405 else ''}"
        "Connection: close\r\n\r\n"
    )
    return head.encode() + (answer.body if with_body else b"")


def _listen(address: Address) -> socket.socket:
    try:
        if not address.host:
            return _everywhere(address.port)
        found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
        family, _, _, _, name = found[0]
        return socket.create_server(name[:2], family=family, backlog=CONNECTION_LIMIT)
    except (OSError, UnicodeError) as error:
        raise BadInputError(f"Cannot listen on {address} ({_reason(error)}); give another --listen.") from error


def _reason(error: OSError | UnicodeError) -> str:
    """What is wrong in a few words, without the details that the socket module adds to some messages."""
    if isinstance(error, OSError) and error.errno is not None and error.errno in errno.errorcode:
        words = os.strerror(error.errno)
    else:
        words = getattr(error, "strerror", None) or str(error)
    return words[:1].lower() + words[1:]


def _everywhere(port: int) -> socket.socket:
    """One socket for both families where the machine has them."""
    if socket.has_dualstack_ipv6():
        try:
            return socket.create_server(
                ("::", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=CONNECTION_LIMIT
            )
        except OSError as error:
            if not _without_ipv6(error):
                raise
    return socket.create_server(("0.0.0.0", port), backlog=CONNECTION_LIMIT)  # noqa: S104 - asked for by ":PORT"


def _without_ipv6(error: OSError) -> bool:
    return error.errno in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)


def _shown(text: str) -> str:
    return repr(text[:80])
