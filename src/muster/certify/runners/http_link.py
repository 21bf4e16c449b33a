"""Workers over HTTP, signed both ways."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from urllib.parse import quote

import httpx2

from muster.certify.runners import worker_messages
from muster.certify.runners.worker_link import (
    RunAnswer,
    RunPhase,
    WorkerAddress,
    WorkerRefusedError,
    WorkerState,
    WorkerUnreachableError,
)
from muster.clock import Clock
from muster.workloads.run_spec import RunSpec
from muster.workloads.signing import (
    INCARNATION_HEADER,
    NODE_HEADER,
    NONCE_HEADER,
    SIGNATURE_HEADER,
    TIME_HEADER,
    Asked,
    same,
    sign_answer,
    sign_request,
)

ANSWER_LIMIT_BYTES = 8 * 1024 * 1024
CONNECT_WITHIN_S = 5.0
ANSWER_WITHIN_S = 10.0
STOP_WITHIN_S = 60.0
"""A worker kills the processes of a run and sees them gone; one in the kernel may take half a minute."""
BODY_WITHIN_S = 30.0
"""Beyond the time that a worker takes for its answer: from connecting to the last byte, however slow they are."""


class HttpWorkerLink:
    """`WorkerLink` over HTTP. Keeps in mind which process each worker is: a request is meant for one process.

    `nonce` gives a text that never comes twice. Close it with `aclose`.
    """

    def __init__(self, clock: Clock, nonce: Callable[[], str] = lambda: secrets.token_hex(16)) -> None:
        self._clock = clock
        self._nonce = nonce
        self._incarnations: dict[tuple[str, str, int], str] = {}
        timeout = httpx2.Timeout(ANSWER_WITHIN_S, connect=CONNECT_WITHIN_S)
        limits = httpx2.Limits(max_connections=None, max_keepalive_connections=0)
        # Proxies of the environment are for the world outside, not for the pod network.
        self._client = httpx2.AsyncClient(timeout=timeout, limits=limits, trust_env=False, follow_redirects=False)

    async def aclose(self) -> None:
        """Close all connections."""
        await self._client.aclose()

    async def state(self, worker: WorkerAddress) -> WorkerState:
        """See `WorkerLink`."""
        status, body = await self._ask(worker, "GET", "/state", "")
        self._refused(worker, status, body)
        try:
            state = worker_messages.read_state(body)
        except worker_messages.MessageError as error:
            raise WorkerUnreachableError(f"the worker of {worker.node}: {error}") from error
        self._incarnations[self._key(worker)] = state.incarnation
        return state

    async def start(self, worker: WorkerAddress, spec: RunSpec) -> bool:
        """See `WorkerLink`."""
        status, body = await self._meant_for_one(worker, "POST", "/runs", spec.to_json().encode())
        self._refused(worker, status, body)
        return status == 202

    async def result(self, worker: WorkerAddress, run: str, wait_s: float) -> RunAnswer:
        """See `WorkerLink`."""
        target = f"/runs/{quote(run, safe='')}?wait_s={max(0.0, wait_s):.3f}"
        status, body = await self._meant_for_one(worker, "GET", target, within_s=max(0.0, wait_s) + ANSWER_WITHIN_S)
        return self._about_run(worker, status, body)

    async def stop(self, worker: WorkerAddress, run: str) -> None:
        """See `WorkerLink`."""
        target = f"/runs/{quote(run, safe='')}"
        status, body = await self._meant_for_one(worker, "DELETE", target, within_s=STOP_WITHIN_S)
        answer = self._about_run(worker, status, body)
        if answer.phase is RunPhase.RUNNING:
            raise WorkerUnreachableError(f"the worker of {worker.node} has not ended {run} yet")

    def _about_run(self, worker: WorkerAddress, status: int, body: bytes) -> RunAnswer:
        if status == 404:
            return RunAnswer(RunPhase.UNKNOWN)
        self._refused(worker, status, body)
        try:
            return worker_messages.read_run(body)
        except worker_messages.MessageError as error:
            raise WorkerUnreachableError(f"the worker of {worker.node}: {error}") from error

    async def _meant_for_one(
        self, worker: WorkerAddress, method: str, target: str, body: bytes = b"", within_s: float = ANSWER_WITHIN_S
    ) -> tuple[int, bytes]:
        """Ask the process that the worker is; learn first which that is, and again when it is another one by now."""
        for _ in range(2):
            incarnation = self._incarnations.get(self._key(worker)) or (await self.state(worker)).incarnation
            status, answer = await self._ask(worker, method, target, incarnation, body, within_s)
            if status != 410:
                return status, answer
            self._incarnations.pop(self._key(worker), None)
        raise WorkerUnreachableError(f"the worker of {worker.node} is being started again and again")

    @staticmethod
    def _refused(worker: WorkerAddress, status: int, body: bytes) -> None:
        if status in (200, 202):
            return
        why, busy = worker_messages.read_refusal(body)
        if status in (421, 503):
            raise WorkerUnreachableError(f"the worker of {worker.node}: {why}")
        raise WorkerRefusedError(f"the worker of {worker.node}: {why}", busy=busy)

    @staticmethod
    def _key(worker: WorkerAddress) -> tuple[str, str, int]:
        return worker.node, worker.host, worker.port

    async def _ask(
        self,
        worker: WorkerAddress,
        method: str,
        target: str,
        incarnation: str,
        body: bytes = b"",
        within_s: float = ANSWER_WITHIN_S,
    ) -> tuple[int, bytes]:
        """Status and body of the genuine answer."""
        time_text = f"{self._clock.now().timestamp():.3f}"
        asked = Asked(method, target, worker.node, incarnation, time_text, self._nonce(), body)
        headers = {
            NODE_HEADER: worker.node,
            INCARNATION_HEADER: incarnation,
            TIME_HEADER: time_text,
            NONCE_HEADER: asked.nonce,
            SIGNATURE_HEADER: sign_request(worker.token, asked),
        }
        host = f"[{worker.host}]" if ":" in worker.host else worker.host
        timeout = httpx2.Timeout(within_s, connect=CONNECT_WITHIN_S)
        url = f"http://{host}:{worker.port}{target}"
        text = bytearray()
        try:
            async with (
                asyncio.timeout(within_s + BODY_WITHIN_S),
                self._client.stream(method, url, headers=headers, content=body, timeout=timeout) as answer,
            ):
                # As it came: workers do not compress, and what is unpacked here could be of any size.
                async for chunk in answer.aiter_raw():
                    text += chunk
                    if len(text) > ANSWER_LIMIT_BYTES:
                        raise WorkerUnreachableError(f"the worker of {worker.node} answers with too many bytes")
        except (httpx2.HTTPError, httpx2.InvalidURL, TimeoutError, UnicodeError) as error:
            words = str(error) or type(error).__name__
            raise WorkerUnreachableError(f"the worker of {worker.node} does not answer: {words}") from error
        given = answer.headers.get(SIGNATURE_HEADER, "")
        if not same(sign_answer(worker.token, answer.status_code, asked.nonce, bytes(text)), given):
            raise WorkerUnreachableError(f"what answers for the worker of {worker.node} does not know the token")
        return answer.status_code, bytes(text)
