"""One bounded HTTP request over asyncio streams: no redirect, no proxy, no compression, no endless answer.

Metadata services are a few lines of HTTP/1.1; a client library would double the memory of the agent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from urllib.parse import urlsplit

from muster.errors import DeadlineError, UnreachableError
from muster.plain_text import plain

MAX_BODY_BYTES = 64 * 1024
MAX_HEAD_BYTES = 16 * 1024


@dataclass(frozen=True)
class Answer:
    """Status, body and the server's own time (header `Date`), where it tells one."""

    status: int
    body: bytes
    at: datetime | None = None


async def fetch(
    url: str,
    headers: Mapping[str, str],
    timeout_s: float,
    *,
    method: str = "GET",
    ca_file: str = "",
) -> Answer:
    """Ask once. `url` and `headers` come from our own code and configuration, never from an answer.

    Raises UnreachableError for no connection, no HTTP, a redirect or more than 64 KiB, DeadlineError after
    `timeout_s` for all of it together.
    """
    try:
        async with asyncio.timeout(timeout_s):
            return await _exchange(url, headers, method, ca_file)
    except TimeoutError as error:
        raise DeadlineError(f"{_place(url)} gave no whole answer within {timeout_s:g} s.") from error
    except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError) as error:
        raise UnreachableError(f"{_place(url)} cannot be asked: {plain(str(error), 160)}.") from error


async def _exchange(url: str, headers: Mapping[str, str], method: str, ca_file: str) -> Answer:
    parts = urlsplit(url)
    host = parts.hostname or ""
    secure = parts.scheme == "https"
    port = parts.port or (443 if secure else 80)
    context = None
    if secure:
        import ssl

        context = ssl.create_default_context(cafile=ca_file or None)
    reader, writer = await asyncio.open_connection(host, port, ssl=context, limit=MAX_HEAD_BYTES)
    try:
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        lines = [f"{method} {target} HTTP/1.1", f"Host: {parts.netloc}", "Connection: close"]
        lines += ["Accept-Encoding: identity", "User-Agent: muster-agent"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        if method != "GET":
            lines.append("Content-Length: 0")
        writer.write(_as_bytes(lines))
        await writer.drain()
        return await _read(reader, _place(url))
    finally:
        writer.close()


def _as_bytes(lines: list[str]) -> bytes:
    if any("\r" in line or "\n" in line for line in lines):
        raise ValueError("a header or the path holds a line break")
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1", errors="strict")


async def _read(reader: asyncio.StreamReader, place: str) -> Answer:
    first, *rest = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    version, _, tail = first.partition(" ")
    code = tail[:3]
    if not version.startswith("HTTP/1.") or not (code.isascii() and code.isdecimal()):
        raise UnreachableError(f"{place} does not answer in HTTP.")
    status = int(code)
    if 300 <= status < 400:
        raise UnreachableError(f"{place} answers with a redirect ({status}), which is not followed.")
    fields = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in rest)}
    if "chunked" in fields.get("transfer-encoding", "").lower():
        body = await _chunks(reader, place)
    else:
        body = await _plain(reader, fields.get("content-length"), place)
    return Answer(status, body, _date(fields.get("date")))


async def _plain(reader: asyncio.StreamReader, length: str | None, place: str) -> bytes:
    if length is not None:
        if not (length.isascii() and length.isdecimal()):
            raise UnreachableError(f"{place} tells no usable length of its answer.")
        if len(length) > 9 or int(length) > MAX_BODY_BYTES:
            raise _too_long(place)
        return await reader.readexactly(int(length))
    parts: list[bytes] = []
    size = 0
    while chunk := await reader.read(MAX_BODY_BYTES + 1):
        parts.append(chunk)
        size += len(chunk)
        if size > MAX_BODY_BYTES:
            raise _too_long(place)
    return b"".join(parts)


async def _chunks(reader: asyncio.StreamReader, place: str) -> bytes:
    parts: list[bytes] = []
    size = 0
    while True:
        head = (await reader.readuntil(b"\r\n")).split(b";")[0].strip()
        length = int(head, 16) if 0 < len(head) <= 8 else -1
        if length < 0:
            raise UnreachableError(f"{place} sent a broken answer.")
        size += length
        if size > MAX_BODY_BYTES:
            raise _too_long(place)
        if length == 0:
            return b"".join(parts)
        parts.append(await reader.readexactly(length))
        await reader.readexactly(2)


def _too_long(place: str) -> UnreachableError:
    return UnreachableError(
        f"{place} answers with more than {MAX_BODY_BYTES // 1024} KiB, which is no list of notices."
    )


def _date(text: str | None) -> datetime | None:
    try:
        found = parsedate_to_datetime(text) if text else None
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    if found is None:
        return None
    return found.astimezone(UTC) if found.tzinfo is not None else found.replace(tzinfo=UTC)


def _place(url: str) -> str:
    """Host and path; a query may hold what is nobody's business."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{plain(parts.netloc, 100)}{plain(parts.path, 100)}"
