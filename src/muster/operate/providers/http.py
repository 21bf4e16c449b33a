"""HTTP as providers use it: bounded, without redirects, and with errors that say whether trying again may help."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any
from urllib.parse import urljoin, urlsplit

import aiohttp
import msgspec

from muster.operate.providers.provider import PermanentProviderError, TransientProviderError
from muster.plain_text import plain

BODY_LIMIT = 1024 * 1024
"""Bytes of an answer that are read; a longer one is refused."""
NOT_DONE = (425, 429, 503)
"""Answers that say: not now, and nothing was done."""
PERHAPS_DONE = (408, 500, 502, 504, 507, 509)
"""Answers after which nobody knows what was done."""


@dataclass(frozen=True)
class Answer:
    """One answer. Header names are lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> dict[str, Any]:
        """The body as a JSON object; an empty body is an empty one. Raises PermanentProviderError."""
        if not self.body.strip():
            return {}
        try:
            return msgspec.json.decode(self.body, type=dict[str, Any])
        except msgspec.MsgspecError as error:
            raise PermanentProviderError(f"The answer is no JSON object: {error}.") from error

    @property
    def retry_after_s(self) -> float | None:
        """What the header Retry-After asks for, in seconds, at most an hour."""
        text = self.headers.get("retry-after", "")
        return min(3600.0, float(text)) if text.isdecimal() else None


class UnansweredError(TransientProviderError):
    """The request was sent, or may have been, and no good answer came: what it did is unknown."""


class NotSentError(TransientProviderError):
    """No connection came about: nothing was done."""


class HttpClient:
    """One pool of connections. Certificates are checked against `ca_file`, else against the machine's own."""

    def __init__(self, *, ca_file: str = "", insecure: bool = False, limit_s: float = 30.0) -> None:
        self._ca_file = ca_file
        self._insecure = insecure
        self._limit_s = limit_s
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None or self._session.closed:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(ssl=self._trust(), limit=64, force_close=True),
                timeout=aiohttp.ClientTimeout(total=self._limit_s),
                cookie_jar=aiohttp.DummyCookieJar(),
            )
        return self._session

    def _trust(self) -> ssl.SSLContext:
        try:
            context = ssl.create_default_context(cafile=self._ca_file or None)
        except (OSError, ssl.SSLError) as error:
            raise PermanentProviderError(f"Cannot use the certificates in {self._ca_file}: {error}.") from error
        if self._insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context

    async def send(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
    ) -> Answer:
        """One request. Raises NotSentError, UnansweredError; PermanentProviderError for a certificate of no use."""
        host = urlsplit(url).hostname or url
        try:
            async with self._open().request(
                method, url, headers=dict(headers or {}), data=body, allow_redirects=False
            ) as response:
                content = await response.content.read(BODY_LIMIT + 1)
                while len(content) <= BODY_LIMIT and (more := await response.content.read(BODY_LIMIT)):
                    content += more
                if len(content) > BODY_LIMIT:
                    raise PermanentProviderError(f"{host} answered with more than {BODY_LIMIT} bytes.")
                return Answer(response.status, {k.lower(): v for k, v in response.headers.items()}, content)
        except aiohttp.ClientConnectorCertificateError as error:
            text = (
                f"The certificate of {host} is not trusted: {plain(str(error.certificate_error), 200)}; set caFile."
            )
            raise PermanentProviderError(text) from error
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            raise NotSentError(f"Cannot connect to {host}: {plain(str(error), 200)}") from error
        except TimeoutError as error:
            raise UnansweredError(f"{host} did not answer within {self._limit_s:g} s") from error
        except (aiohttp.ClientError, OSError) as error:
            raise UnansweredError(f"{host} broke the connection: {plain(str(error), 200)}") from error


def refuse(answer: Answer, what: str, said: str = "") -> None:
    """Return when the answer is a good one (2xx). Raises the error that fits it otherwise; `said` are its words."""
    if 200 <= answer.status < 300:
        return
    words = plain(said or answer.body[:2000].decode(errors="replace"), 300)
    text = f"{what} answered {answer.status}" + (f" ({words})" if words else f" {_phrase(answer.status)}")
    if answer.status in NOT_DONE:
        raise TransientProviderError(text, answer.retry_after_s)
    if answer.status in PERHAPS_DONE:
        raise UnansweredError(text, answer.retry_after_s)
    if answer.status in (401, 403):
        text += "; check the credentials and the rights"
    raise PermanentProviderError(f"{text}.")


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return ""


def same_origin(base: str, reference: str) -> str:
    """The URL that `reference` means beside `base`. Raises PermanentProviderError when it leads to another host.

    Answers are written by others: credentials and signatures go nowhere but where the configuration says.
    """
    url = urljoin(base, reference)
    ours, theirs = urlsplit(base), urlsplit(url)
    if (ours.scheme, ours.netloc) != (theirs.scheme, theirs.netloc):
        raise PermanentProviderError(f"{ours.netloc} refers to {plain(url, 120)}, which is another host.")
    return url
