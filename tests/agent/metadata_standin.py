"""A metadata service on loopback: a real HTTP server whose answers a test sets, and which misbehaves on demand."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import format_datetime

NOW = datetime(2026, 3, 1, 8, 0, tzinfo=UTC)


@dataclass(frozen=True)
class Request:
    method: str
    target: str
    headers: dict[str, str]


@dataclass
class Standin:
    """`answers` maps `METHOD target` to status and body; anything else is 404."""

    answers: dict[str, tuple[int, bytes]] = field(default_factory=dict)
    guard: Callable[[Request], int | None] = lambda _: None
    """Called first; a status instead of None is the answer."""
    raw: bytes | None = None
    """Sent as it is instead of any answer."""
    drip_s: float = 0.0
    """Pause after each byte of the answer."""
    chunked: bool = False
    date: datetime | None = NOW
    requests: list[Request] = field(default_factory=list)
    port: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def get(self, target: str, body: bytes | str, status: int = 200) -> None:
        self.answers[f"GET {target}"] = (status, body.encode() if isinstance(body, str) else body)

    def asked(self, target: str) -> int:
        return sum(r.target == target for r in self.requests)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            method, target, _ = head[0].split(" ")
            pairs = (line.partition(":") for line in head[1:] if line)
            request = Request(method, target, {k.strip().lower(): v.strip() for k, _, v in pairs})
            self.requests.append(request)
            content = self.raw if self.raw is not None else self._answer(request)
            for piece in [content[i : i + 1] for i in range(len(content))] if self.drip_s else [content]:
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(self.drip_s)
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    def _answer(self, request: Request) -> bytes:
        refused = self.guard(request)
        status, body = self.answers.get(f"{request.method} {request.target}", (404, b"not found"))
        if refused is not None:
            status, body = refused, b"refused"
        head = f"HTTP/1.1 {status} Because\r\n"
        if self.date is not None:
            head += f"Date: {format_datetime(self.date, usegmt=True)}\r\n"
        if not self.chunked:
            return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body
        parts = [body[i : i + 7] for i in range(0, len(body), 7)]
        chunks = b"".join(f"{len(p):x}\r\n".encode() + p + b"\r\n" for p in parts)
        return f"{head}Transfer-Encoding: chunked\r\n\r\n".encode() + chunks + b"0\r\n\r\n"


@asynccontextmanager
async def standin() -> AsyncIterator[Standin]:
    made = Standin()
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    made.port = server.sockets[0].getsockname()[1]
    try:
        yield made
    finally:
        server.close()
