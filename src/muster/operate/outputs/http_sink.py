"""One receiver over HTTP: how a chunk of events is posted, and what its answers mean."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from muster.clock import Clock
from muster.errors import BadInputError
from muster.operate.outputs import encode
from muster.operate.outputs.config import SinkConfig, SinkKind, check_url
from muster.operate.outputs.event import FleetEvent

PARALLEL = 8
"""Requests at once to a receiver that takes one event a request."""
MAX_FILE_BYTES = 65536
_AGAIN = (401, 403, 404, 408, 425, 429)
"""Answers of the 400s after which the same events are sent again: the receiver or the access to it can be mended."""


class Answer(StrEnum):
    DELIVERED = "delivered"
    AGAIN = "again"
    """Nothing was taken, or nobody knows; the same events have to be sent again."""
    REFUSED = "refused"
    """The receiver understood the request and will never take these events."""


class Sink(Protocol):
    """A receiver of events. `config.only` says which ones."""

    @property
    def config(self) -> SinkConfig: ...

    async def deliver(self, events: Sequence[FleetEvent]) -> tuple[Answer, str]:
        """Hand over `events`, in order. Returns what came of it, and why in a clause unless they were taken."""
        ...

    async def close(self) -> None: ...


class HttpSink:
    """Posts events. Redirects are not followed: where events go stands in the configuration."""

    def __init__(self, config: SinkConfig, clock: Clock, cluster: str = "") -> None:
        self.config = config
        self._clock = clock
        self._cluster = cluster
        self._session: object | None = None
        self._trusted = b""
        """Content of the CA file with which the session was opened."""

    async def deliver(self, events: Sequence[FleetEvent]) -> tuple[Answer, str]:
        try:
            bodies, headers = self._bodies(events)
            url = self._url()
            await self._open()
        except (OSError, BadInputError, UnicodeDecodeError) as error:
            return Answer.AGAIN, str(error)
        places = asyncio.Semaphore(PARALLEL)

        async def one(body: bytes) -> tuple[Answer, str]:
            async with places:
                return await self._post(url, body, headers(body))

        answers = await asyncio.gather(*(one(body) for body in bodies))
        for wanted in (Answer.AGAIN, Answer.REFUSED):
            found = next((answer for answer in answers if answer[0] is wanted), None)
            if found is not None:
                return found
        return Answer.DELIVERED, ""

    async def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()  # type: ignore[attr-defined]  # an aiohttp.ClientSession, imported where it is made

    def _bodies(self, events: Sequence[FleetEvent]) -> tuple[list[bytes], _Headers]:
        config, cluster = self.config, self._cluster
        secret = _content(config.secret_file).encode() if config.secret_file else b""
        token = _content(config.token_file) if config.token_file else ""
        match config.kind:
            case SinkKind.CLOUDEVENTS if config.batch:
                bodies, kind = [encode.batch_body(events, cluster)], encode.BATCH_CONTENT_TYPE
            case SinkKind.CLOUDEVENTS:
                bodies, kind = [encode.event_body(event, cluster) for event in events], encode.EVENT_CONTENT_TYPE
            case SinkKind.WEBHOOK:
                bodies, kind = [encode.webhook_body(events, cluster)], "application/json"
            case SinkKind.SLACK:
                bodies, kind = [encode.chat_body(events, cluster)], "application/json"
        return bodies, _Headers(kind, token, secret, self._clock)

    def _url(self) -> str:
        if self.config.url:
            return self.config.url
        url = _content(self.config.url_file)
        check_url(url, f"{self.config.url_file} of sink {self.config.name}")
        return url

    async def _open(self) -> None:
        """Have a session that trusts the CA file as it is now. Raises OSError or BadInputError."""
        import aiohttp

        path = self.config.ca_file
        trusted = Path(path).read_bytes() if path else b""
        if self._session is not None and trusted == self._trusted:
            return
        try:
            context = ssl.create_default_context(cadata=trusted.decode() if path else None)
        except (ssl.SSLError, ValueError) as error:
            raise BadInputError(
                f"{path} holds no certificates in PEM format; the CA of the receiver belongs there."
            ) from error
        await self.close()
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=PARALLEL, ssl=context),
            timeout=aiohttp.ClientTimeout(total=self.config.timeout_s),
        )
        self._trusted = trusted

    async def _post(self, url: str, body: bytes, headers: Mapping[str, str]) -> tuple[Answer, str]:
        import aiohttp

        assert isinstance(self._session, aiohttp.ClientSession)  # noqa: S101 - opened before
        try:
            async with self._session.post(url, data=body, headers=headers, allow_redirects=False) as answer:
                return _judged(answer.status)
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            # The words of the client may hold the address, which may be a secret. A ValueError is an address that it
            # cannot use: a host name that is none, a password beside a token.
            return Answer.AGAIN, f"no answer ({type(error).__name__})"


class _Headers:
    def __init__(self, content_type: str, token: str, secret: bytes, clock: Clock) -> None:
        self._content_type = content_type
        self._token = token
        self._secret = secret
        self._clock = clock

    def __call__(self, body: bytes) -> dict[str, str]:
        found = {"Content-Type": self._content_type, "User-Agent": "muster"}
        if self._token:
            found["Authorization"] = f"Bearer {self._token}"
        if self._secret:
            found[encode.SIGNATURE_HEADER] = encode.signature(self._secret, body, self._clock.now())
        return found


def _judged(status: int) -> tuple[Answer, str]:
    if 200 <= status < 300:
        return Answer.DELIVERED, ""
    if status >= 500 or status in _AGAIN or status < 400:
        return Answer.AGAIN, f"the receiver answered {status}"
    return Answer.REFUSED, f"the receiver answered {status} and would do so again"


def _content(path: str) -> str:
    """The only line of a small file. Raises OSError or BadInputError."""
    with Path(path).open("rb") as file:
        text = file.read(MAX_FILE_BYTES + 1)
    if len(text) > MAX_FILE_BYTES:
        raise BadInputError(f"{path} is larger than {MAX_FILE_BYTES} bytes; it should hold one secret.")
    line = text.decode().strip()
    if not line or not line.isprintable():
        raise BadInputError(f"{path} is empty or holds more than one line; it should hold one secret.")
    return line
