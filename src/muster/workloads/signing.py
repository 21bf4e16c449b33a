"""Requests between coordinator and worker that prove who sent them.

Both know the token of the certification; it never travels. A request is signed over its method, target, body, the
node and the process it is meant for, the time and a nonce; an answer over its status, its body and the nonce of the
request. So nobody without the token can start or stop a run, forge a result, or play an old request again.

Standard library only: the worker runs in any image.
"""

from __future__ import annotations

import hashlib
import hmac
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

NODE_HEADER = "X-Muster-Node"
INCARNATION_HEADER = "X-Muster-Incarnation"
TIME_HEADER = "X-Muster-Time"
NONCE_HEADER = "X-Muster-Nonce"
SIGNATURE_HEADER = "X-Muster-Signature"

WINDOW_S = 300.0
"""How far the clocks of coordinator and worker may differ, either way."""
NONCES_LIMIT = 20_000
"""Nonces that are remembered. A round needs a few per run; beyond the limit requests are refused, never forgotten."""
LEAST_TOKEN = 16
NONCE_LIMIT = 64


@dataclass(frozen=True)
class Asked:
    """What of a request is signed. `incarnation` is empty where the process does not matter (`GET /state`)."""

    method: str
    target: str
    node: str
    incarnation: str
    time_text: str
    nonce: str
    body: bytes = b""


def sign_request(token: str, asked: Asked) -> str:
    """The signature of a request, in hexadecimal."""
    parts = (asked.method, asked.target, asked.node, asked.incarnation, asked.time_text, asked.nonce)
    return _sign(token, "muster-request-1", *parts, hashlib.sha256(asked.body).hexdigest())


def sign_answer(token: str, status: int, nonce: str, body: bytes) -> str:
    """The signature of an answer to the request with `nonce`."""
    return _sign(token, "muster-answer-1", str(status), nonce, hashlib.sha256(body).hexdigest())


def same(expected: str, given: str) -> bool:
    """Compare two signatures in a time that tells nothing about them."""
    return hmac.compare_digest(expected.encode(), given.encode("utf-8", "replace"))


def _sign(token: str, *parts: str) -> str:
    # Lengths keep two different lists of parts from giving the same text.
    text = "".join(f"{len(p.encode('utf-8', 'replace'))}:{p}\n" for p in parts)
    return hmac.new(token.encode(), text.encode("utf-8", "replace"), hashlib.sha256).hexdigest()


class RefusedError(Exception):
    """The request is not answered. `known`: it bore the right signature, so the asker may learn why."""

    def __init__(self, status: int, why: str, *, known: bool) -> None:
        super().__init__(why)
        self.status = status
        self.known = known


class Gate:
    """Decides whether a request comes from the coordinator. Not thread-safe: hold a lock around `check`.

    `now` gives the time in seconds since 1970; `elapsed_s` a time that is never set.
    """

    def __init__(
        self,
        token: str,
        node: str,
        incarnation: str,
        now: Callable[[], float],
        elapsed_s: Callable[[], float] = time.monotonic,
    ) -> None:
        if len(token) < LEAST_TOKEN:
            raise ValueError(f"the token must have at least {LEAST_TOKEN} characters")
        self._token = token
        self._node = node
        self._incarnation = incarnation
        self._now = now
        self._elapsed_s = elapsed_s
        self._seen: dict[str, tuple[float, float]] = {}
        """Nonce -> until when its request is fresh on the clock, and on the time that is never set."""
        self.skew_s = 0.0
        """This clock minus that of the coordinator, as the last genuine request showed it."""

    def check(self, asked: Asked, signature: str) -> None:
        """Return when the request is genuine, meant for this process and new. Raises RefusedError."""
        if not same(sign_request(self._token, asked), signature):
            raise RefusedError(401, "The signature of the request is wrong.", known=False)
        if asked.node != self._node:
            raise RefusedError(421, f"This is the worker of {self._node}.", known=True)
        self._check_time(asked)
        if asked.incarnation != self._incarnation and (asked.method, asked.target) != ("GET", "/state"):
            raise RefusedError(410, "The worker was started again since.", known=True)

    def _check_time(self, asked: Asked) -> None:
        try:
            sent = float(asked.time_text)
        except ValueError:
            sent = math.nan
        now = self._now()
        if not math.isfinite(sent) or not 0 < len(asked.nonce) <= NONCE_LIMIT:
            raise RefusedError(400, "The request bears no time or no nonce.", known=True)
        self.skew_s = now - sent
        if abs(self.skew_s) > WINDOW_S:
            words = (
                f"The clocks of coordinator and worker differ by {self.skew_s:.0f} s ({WINDOW_S:.0f} s are allowed)."
            )
            raise RefusedError(401, words, known=True)
        # By both: a clock that is set ahead and back again would make requests fresh that were forgotten.
        elapsed_s = self._elapsed_s()
        for nonce in [n for n, (until, until_s) in self._seen.items() if until < now and until_s < elapsed_s]:
            del self._seen[nonce]
        if asked.nonce in self._seen:
            raise RefusedError(401, "The request was sent before.", known=True)
        if len(self._seen) >= NONCES_LIMIT:
            raise RefusedError(503, "Too many requests came within minutes.", known=True)
        # A request is fresh until its own time leaves the window.
        self._seen[asked.nonce] = (sent + WINDOW_S, elapsed_s + 2 * WINDOW_S)


def asked_of(method: str, target: str, headers: Mapping[str, str], body: bytes) -> tuple[Asked, str]:
    """The request and its signature, from its headers."""
    asked = Asked(
        method=method,
        target=target,
        node=headers.get(NODE_HEADER, ""),
        incarnation=headers.get(INCARNATION_HEADER, ""),
        time_text=headers.get(TIME_HEADER, ""),
        nonce=headers.get(NONCE_HEADER, ""),
        body=body,
    )
    return asked, headers.get(SIGNATURE_HEADER, "")
