"""Leader election on a Lease, with a fencing token.

Safety rests on durations alone, never on agreeing clocks: a leader gives up `renew_s` after the *start* of its last
successful renewal; a candidate takes over no earlier than the lease duration after it *saw* that renewal. Both count
their own sleeps, so stepping the machine's clock changes nothing. `renew_s` is shorter than the duration by the time
that the leader's work has to stop in.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from datetime import datetime
from typing import Any

from muster.clock import Clock
from muster.errors import UnreachableError
from muster.kube.api import LEASES, ApiError, ConflictError, KubeApi, NotFoundError, Object
from muster.resources.base import SYSTEM_NAMESPACE

log = logging.getLogger(__name__)


def micro_time(at: datetime) -> str:
    """A time as Kubernetes writes `MicroTime`: RFC 3339 in UTC with six decimals."""
    return at.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


class Election:
    """Lease election. While leading, `token` is the fencing token (lease transitions, at least 1); None otherwise.

    Every term has a new token, also when the same candidate leads again. Give it a connection of its own, so that a
    busy client cannot delay the renewal. A lease that a person deletes while somebody leads starts again at 1.
    """

    def __init__(
        self,
        api: KubeApi,
        lease: str,
        identity: str,
        *,
        clock: Clock,
        duration_s: float = 15,
        renew_s: float = 10,
        retry_s: float = 2,
        namespace: str = SYSTEM_NAMESPACE,
    ) -> None:
        if not 0 < retry_s < renew_s < duration_s:
            raise ValueError("an election needs 0 < retry_s < renew_s < duration_s")
        self._api = api
        self._lease = lease
        self.identity = identity
        self._clock = clock
        self._duration_s = duration_s
        self._renew_s = renew_s
        self._retry_s = retry_s
        self._namespace = namespace
        self._attempt: Object = {}
        self.token: int | None = None

    async def run(self, lead: Callable[[int], Awaitable[None]]) -> None:
        """Acquire, run `lead(token)` while the lease is held, cancel it when the lease is lost, try again: for ever.

        Ends when `lead` ends by itself, raising what it raised; the lease is then released, as it is when `run` is
        cancelled. `lead` must stop within `duration_s - renew_s` after it was cancelled.
        """
        while True:
            held, watchdog = await self._acquire()
            self.token = int(held["spec"]["leaseTransitions"])
            log.info("%s leads (%s, token %d)", self.identity, self._lease, self.token)
            work = asyncio.ensure_future(lead(self.token))
            lost = False
            try:
                lost = await self._hold(held, work, watchdog)
            finally:
                self.token = None
                work.cancel()
                await asyncio.wait({work})
                if not lost:
                    await self._release()
            if not work.cancelled() and (error := work.exception()) is not None:
                raise error
            if not lost:
                return
            log.warning("%s no longer leads (%s)", self.identity, self._lease)

    async def _acquire(self) -> tuple[Object, asyncio.Task[None]]:
        """Wait until the lease is ours. Returns it with the watchdog that started before the winning request."""
        seen: Object | None = None
        unchanged_s = 0.0
        while True:
            watchdog = self._spawn(self._clock.sleep(self._renew_s))
            try:
                current = await self._bounded(self._read())
                if current is not None and current.get("spec") != (seen or {}).get("spec"):
                    seen, unchanged_s = current, 0.0
                if current is None or self._free(current, unchanged_s):
                    held = await self._bounded(self._take(current))
                    return held, watchdog
            except (ApiError, UnreachableError) as error:
                log.debug("election %s: %s", self._lease, error)
            except BaseException:
                watchdog.cancel()
                raise
            watchdog.cancel()
            await self._clock.sleep(self._retry_s)
            unchanged_s += self._retry_s

    def _free(self, lease: Object, unchanged_s: float) -> bool:
        spec = lease.get("spec") or {}
        holder = spec.get("holderIdentity") or ""
        if not holder or (holder == self.identity and spec == self._attempt):
            # The second: our own write, whose answer was lost.
            return True
        promised_s = spec.get("leaseDurationSeconds") or 0
        return unchanged_s > max(self._duration_s, promised_s)

    async def _hold(self, held: Object, work: asyncio.Future[None], watchdog: asyncio.Task[None]) -> bool:
        """Renew until the lease is lost (True) or the work ended by itself (False)."""
        fresh = pause = renewal = None
        try:
            while True:
                pause = self._spawn(self._clock.sleep(self._retry_s))
                await asyncio.wait({work, watchdog, pause}, return_when=asyncio.FIRST_COMPLETED)
                if work.done() or watchdog.done():
                    return not work.done()
                fresh = self._spawn(self._clock.sleep(self._renew_s))
                renewal = self._spawn(self._renew(held))
                await asyncio.wait({work, watchdog, renewal}, return_when=asyncio.FIRST_COMPLETED)
                if work.done() or watchdog.done():
                    return not work.done()
                try:
                    renewed = renewal.result()
                except (ApiError, UnreachableError) as error:
                    log.warning("%s could not renew %s: %s", self.identity, self._lease, error)
                    fresh.cancel()
                    continue
                if renewed is None:
                    return True
                held = renewed
                watchdog.cancel()
                watchdog, fresh = fresh, None
        finally:
            for task in (fresh, pause, renewal, watchdog):
                if task is not None:
                    task.cancel()

    async def _renew(self, held: Object) -> Object | None:
        """One renewal; None when the lease is not ours any more."""
        try:
            return await self._write(held, held["spec"]["leaseTransitions"], held["spec"]["acquireTime"])
        except NotFoundError:
            return None
        except ConflictError:
            current = await self._read()
            spec = (current or {}).get("spec") or {}
            ours = (spec.get("holderIdentity"), spec.get("leaseTransitions"), spec.get("acquireTime"))
            if current is None or ours != (
                self.identity,
                held["spec"]["leaseTransitions"],
                held["spec"]["acquireTime"],
            ):
                return None
            return await self._write(current, spec["leaseTransitions"], spec["acquireTime"])

    async def _read(self) -> Object | None:
        try:
            return await self._api.get(LEASES, self._lease, self._namespace)
        except NotFoundError:
            return None

    async def _take(self, current: Object | None) -> Object:
        """Become the holder. Raises ConflictError or AlreadyExistsError when somebody was faster."""
        now = micro_time(self._clock.now())
        if current is not None:
            transitions = int((current.get("spec") or {}).get("leaseTransitions") or 0) + 1
            return await self._write(current, transitions, now)
        self._attempt = self._spec(1, now)
        return await self._api.create(
            LEASES,
            {
                "apiVersion": LEASES.api_version,
                "kind": LEASES.kind,
                "metadata": {"name": self._lease, "namespace": self._namespace},
                "spec": self._attempt,
            },
            self._namespace,
        )

    async def _write(self, current: Object, transitions: int, acquired: str) -> Object:
        self._attempt = self._spec(transitions, acquired)
        return await self._api.replace(LEASES, {**current, "spec": self._attempt})

    def _spec(self, transitions: int, acquired: str) -> Object:
        return {
            "holderIdentity": self.identity,
            "leaseDurationSeconds": round(self._duration_s),
            "acquireTime": acquired,
            "renewTime": micro_time(self._clock.now()),
            "leaseTransitions": transitions,
        }

    async def _release(self) -> None:
        """Give the lease back so that a successor need not wait; best effort."""
        try:
            current = await self._bounded(self._read())
            spec = (current or {}).get("spec")
            if current is None or spec != self._attempt:
                return
            released = {**spec, "holderIdentity": "", "renewTime": micro_time(self._clock.now())}
            await self._bounded(self._api.replace(LEASES, {**current, "spec": released}))
        except (ApiError, UnreachableError) as error:
            log.debug("release of %s: %s", self._lease, error)

    async def _bounded(self, request: Coroutine[Any, Any, Any]) -> Any:
        """The answer of `request`, which is given up after `renew_s` of the clock's time."""
        task = self._spawn(request)
        limit = self._spawn(self._clock.sleep(self._renew_s))
        try:
            await asyncio.wait({task, limit}, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                raise UnreachableError(f"The API server did not answer within {self._renew_s:g} s.")
            return task.result()
        finally:
            limit.cancel()
            task.cancel()

    @staticmethod
    def _spawn(work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        return asyncio.get_running_loop().create_task(work)
