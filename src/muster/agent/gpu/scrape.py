"""Fetches the page of dcgm-exporter: one request, one bounded answer."""

from __future__ import annotations

import asyncio
from urllib.parse import urlsplit

from muster.agent.gpu.dcgm import read_page
from muster.agent.gpu.sample import Sample
from muster.errors import BadInputError

MAX_BYTES = 8 * 1024 * 1024
_CHUNK = 64 * 1024


class DcgmExporter:
    """Samples come from `url`, for example `http://localhost:9400/metrics`."""

    def __init__(self, url: str) -> None:
        """Raises BadInputError for anything but a plain http URL."""
        parts = urlsplit(url)
        try:
            port = parts.port or 80
        except ValueError as error:
            raise BadInputError(f"gpu.url {url!r} has no valid port; give http://HOST:PORT/metrics.") from error
        if parts.scheme != "http" or not parts.hostname or any(c.isspace() for c in url):
            raise BadInputError(f"gpu.url {url!r} is no http URL; give http://HOST:PORT/metrics.")
        self._url = url
        self._host, self._port = parts.hostname, port
        self._path = parts.path or "/"
        if parts.query:
            self._path += f"?{parts.query}"

    async def sample(self, deadline_s: float, *, deep: bool) -> Sample:  # noqa: ARG002 - the monitor keeps the time
        """One sample. Raises OSError when the page cannot be had."""
        return read_page(await self._page())

    async def _page(self) -> str:
        reader, writer = await asyncio.open_connection(self._host, self._port)
        try:
            # HTTP/1.0: the answer ends with the connection, and its body is not in chunks.
            request = f"GET {self._path} HTTP/1.0\r\nHost: {self._host}:{self._port}\r\nAccept: text/plain\r\n\r\n"
            writer.write(request.encode("ascii", "replace"))
            await writer.drain()
            answer = bytearray()
            while chunk := await reader.read(_CHUNK):
                answer += chunk
                if len(answer) > MAX_BYTES:
                    raise OSError(f"{self._url} answers with more than {MAX_BYTES // 1024 // 1024} MiB")
        finally:
            writer.close()
        head, separator, body = bytes(answer).partition(b"\r\n\r\n")
        status = head.split(b"\r\n", 1)[0].split(b" ")
        if not separator or len(status) < 2 or status[1] != b"200":
            words = head[:80].split(b"\r\n", 1)[0].decode("ascii", "replace")
            raise OSError(f"{self._url} answers {words!r} instead of a page of metrics")
        return body.decode("utf-8", "replace")

    async def close(self) -> None:
        """Nothing is kept open between samples."""
