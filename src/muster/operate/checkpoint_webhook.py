"""Telling a webhook which pods must save their state. One POST, one answer, bounded in time and size."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from urllib.parse import urlsplit

from muster.clock import Clock
from muster.operate.model import CallCheckpoint, CheckpointAnswer, SavePhase

CALL_LIMIT_S = 15.0
"""How long one call may take. The policy's own limit is kept by asking again or not."""

CALL_EVERY_S = 10.0
"""How soon the same is asked again at the earliest."""

log = logging.getLogger(__name__)

Post = Callable[[str, bytes, float], Awaitable[int]]
"""POST of a JSON body to a URL within so many seconds; returns the HTTP status. Raises OSError or TimeoutError."""


async def post(url: str, body: bytes, within_s: float) -> int:
    """The real one. Redirects are not followed: the policy names who is told."""
    import aiohttp

    timeout = aiohttp.ClientTimeout(total=within_s)
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.post(
                url, data=body, headers={"Content-Type": "application/json"}, allow_redirects=False
            ) as answer,
        ):
            return answer.status
    except aiohttp.ClientError as error:
        # The words of the client may hold the address, and an address may hold a secret.
        raise OSError(f"no answer ({type(error).__name__})") from error


async def ask(call: CallCheckpoint, send: Post = post) -> tuple[CheckpointAnswer, ...]:
    """Tell the webhook, and what that means for each pod: 200 and 204 saved, 202 not yet, all else failed."""
    phase, message = await _answer(call, send)
    return tuple(CheckpointAnswer(pod.uid, call.episode, phase, message) for pod in call.pods)


async def _answer(call: CallCheckpoint, send: Post) -> tuple[SavePhase, str]:
    if urlsplit(call.url).scheme not in ("http", "https"):
        return SavePhase.FAILED, "the address is neither http nor https"
    try:
        status = await send(call.url, body_of(call), CALL_LIMIT_S)
    except TimeoutError:
        return SavePhase.FAILED, f"no answer within {CALL_LIMIT_S:g} s"
    except (OSError, ValueError) as error:
        return SavePhase.FAILED, str(error)[:120]
    match status:
        case 200 | 204:
            return SavePhase.SAVED, ""
        case 202:
            return SavePhase.SAVING, "it is saving"
        case _:
            return SavePhase.FAILED, f"it answered {status}"


def body_of(call: CallCheckpoint) -> bytes:
    """The same for the same pods of the same episode: a receiver can tell that it is asked again."""
    pods = [{"namespace": p.namespace, "name": p.name, "uid": p.uid} for p in call.pods]
    told = {"episode": call.episode, "node": call.node, "pods": pods, "deadline": call.deadline.isoformat()}
    return json.dumps(told, separators=(",", ":")).encode()


class CheckpointCalls:
    """Calls under way, one at a time for a node: a receiver that hangs must not keep anybody's decision waiting."""

    def __init__(
        self, clock: Clock, done: Callable[[str, Sequence[CheckpointAnswer]], None], send: Post = post
    ) -> None:
        """`done(node, answers)` is told each answer."""
        self._clock = clock
        self._done = done
        self._send = send
        self._under_way: dict[str, asyncio.Task[None]] = {}
        self._last: dict[str, tuple[CallCheckpoint, datetime]] = {}

    def start(self, call: CallCheckpoint) -> bool:
        """Whether the call is made: not while one for the node is under way, nor the same again at once."""
        now = self._clock.now()
        last = self._last.get(call.node)
        again = last is not None and last[0] == call and now - last[1] < timedelta(seconds=CALL_EVERY_S)
        if again or call.node in self._under_way:
            return False
        self._last[call.node] = (call, now)
        task = asyncio.ensure_future(self._call(call))
        self._under_way[call.node] = task
        task.add_done_callback(lambda _: self._under_way.pop(call.node, None))
        return True

    async def _call(self, call: CallCheckpoint) -> None:
        try:
            answers = await ask(call, self._send)
        except Exception:
            log.exception("the webhook of the checkpoint on %s cannot be asked", call.node)
            return
        self._done(call.node, answers)

    async def close(self) -> None:
        """End what is under way."""
        tasks = list(self._under_way.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
