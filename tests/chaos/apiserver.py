"""The API server of a play, seen through processes that may be slow, cut off, frozen or dead.

A process is whoever talks to the API server: a life of the controller, an agent, a person. Every request passes
through it, so it may be held up, fail, or fail after it took effect; and so may the events of its watches, which keep
the order that each watch promises.
"""

from __future__ import annotations

import asyncio
import hashlib
import random
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, TypeVar

from muster.kube.api import (
    ConflictError,
    ConnectionLostError,
    GoneError,
    ResourceType,
    ServerError,
    TooManyRequestsError,
    WatchEvent,
)
from muster.sim import api_reactions
from muster.sim.api_faults import Request
from muster.sim.api_kinds import Kind as ServedKind
from muster.sim.history import Change, Storage
from muster.sim.inprocess import InProcessApi
from muster.sim.store import Store
from muster.sim.virtual import VirtualClock
from tests.chaos.mix import Kind, Mix

T = TypeVar("T")
SERVER = "api-server"
"""Who acts when nobody asked: the controllers that come with Kubernetes."""
SLOWEST_S = 3.0
"""The longest that a request is held up on one way."""
WRITES = frozenset({"create", "update", "patch", "apply", "delete", "evict"})

Listener = Callable[[ServedKind, Change, str], None]


class WatchedStore(Store):
    """Tells of every change, with the process that made it, before anything reacts to it; and keeps a digest."""

    def __init__(self, clock: VirtualClock, seed: int, history_limit: int) -> None:
        self.actor = SERVER
        self.listeners: list[Listener] = []
        self.changes = 0
        self._digest = hashlib.sha256()
        super().__init__(clock, seed, history_limit=history_limit)

    @property
    def digest(self) -> str:
        return self._digest.hexdigest()[:16]

    def trace(self, text: str) -> None:
        self._digest.update(f"{self.clock.now().isoformat()} {text}\n".encode())

    def _record(self, kind: ServedKind, storage: Storage, change: Change) -> None:
        self.changes += 1
        self.trace(f"{self.actor} {change.type} {kind.plural} {change.key}")
        self._digest.update(self.raw(kind, change.current))
        storage.record(change)
        for listener in self.listeners:
            listener(kind, change, self.actor)
        actor, self.actor = self.actor, SERVER
        api_reactions.react(self, kind, change)
        self.actor = actor


@dataclass
class Weather:
    """What goes wrong between processes and the API server. Nothing does once `calm` is set."""

    mix: Mix
    drawn: random.Random
    outage: bool = False
    calm: bool = False

    def odds(self, kind: Kind, probability: float) -> bool:
        """For what is rare anyway: whatever the rate of the mix."""
        return not self.calm and kind in self.mix and self.drawn.random() < probability

    def hit(self, kind: Kind, factor: float = 1.0) -> bool:
        return not self.calm and kind in self.mix and self.drawn.random() < self.mix.rate * factor


class Process:
    """One process: alive or dead, running or frozen, with a clock of its own that may be off."""

    def __init__(self, identity: str, clock: VirtualClock, weather: Weather, *, fragile: bool = True) -> None:
        self.identity = identity
        self.weather = weather
        self.fragile = fragile
        """Whether its requests meet trouble."""
        self.dead = False
        self.die: Callable[[], None] = lambda: None
        self.dies_in: int | None = None
        """Requests until it is killed."""
        self.fenced_at_s = -1.0
        """When it was last told that it leads, in the time that it ran itself."""
        self.clock = ProcessClock(clock, self)
        self._virtual = clock
        self._thaw: asyncio.Event | None = None
        self._frozen_at_s = 0.0
        self._frozen_s = 0.0

    @property
    def frozen(self) -> bool:
        return self._thaw is not None

    @property
    def ran_s(self) -> float:
        """The virtual time that it has run, without the time that it was frozen."""
        now = self._frozen_at_s if self.frozen else self._virtual.elapsed_s
        return now - self._frozen_s

    def freeze(self) -> None:
        if self._thaw is None:
            self._thaw, self._frozen_at_s = asyncio.Event(), self._virtual.elapsed_s

    def thaw(self) -> None:
        if self._thaw is not None:
            self._frozen_s += self._virtual.elapsed_s - self._frozen_at_s
            self._thaw.set()
            self._thaw = None

    async def passage(self) -> None:
        """Go on unless the process is dead; later when it is frozen, and then in any order."""
        while self._thaw is not None and not self.dead:
            await self._thaw.wait()
            for _ in range(self.weather.drawn.randrange(3)):
                await asyncio.sleep(0)
        if self.dead:
            raise ConnectionLostError(f"{self.identity} is dead.")

    def count_down(self) -> bool:
        """Whether it dies at this request."""
        if self.dies_in is None:
            return False
        self.dies_in -= 1
        return self.dies_in < 0

    def kill(self) -> None:
        self.dead = True
        if self._thaw is not None:
            self._thaw.set()
        self.die()


@dataclass
class ProcessClock:
    """The clock of one process: `ahead_s` off, and it stands still while the process does."""

    virtual: VirtualClock
    process: Process
    ahead_s: float = 0.0

    def now(self) -> datetime:
        return self.virtual.now() + timedelta(seconds=self.ahead_s)

    async def sleep(self, seconds: float) -> None:
        await self.virtual.sleep(seconds)
        if self.process.frozen:
            await self.process.passage()


@dataclass
class Trouble:
    """What becomes of one request."""

    before_s: float = 0.0
    after_s: float = 0.0
    error: Exception | None = None
    takes_effect: bool = False


class ChaosApi(InProcessApi):
    """The API server as `process` reaches it. `asked` is told of each request that is put."""

    def __init__(
        self, store: WatchedStore, process: Process, asked: Callable[[Process, Request], None] | None = None
    ) -> None:
        super().__init__(store, user=process.identity)
        self._traced = store
        self._process = process
        self._asked = asked

    async def _serve(self, request: Request, act: Callable[[], T]) -> T:
        process = self._process
        await asyncio.sleep(0)
        await process.passage()
        if self._asked is not None:
            self._asked(process, request)
        trouble = self._trouble(request)
        if trouble.before_s:
            await self._traced.clock.sleep(trouble.before_s)
            await process.passage()
        dies = process.count_down()
        if dies and process.weather.drawn.random() < 0.5:
            process.kill()
            raise self._lost(request)
        if trouble.error is not None and not trouble.takes_effect:
            raise trouble.error
        self._traced.actor = process.identity
        try:
            result = self._typed(act)
        finally:
            self._traced.actor = SERVER
        if request.plural == "leases" and request.verb == "get":
            self._note_fence(result)
        if dies:
            process.kill()
            raise self._lost(request)
        if trouble.after_s:
            await self._traced.clock.sleep(trouble.after_s)
        await process.passage()
        if trouble.error is not None:
            raise trouble.error
        return result

    def _note_fence(self, lease: Any) -> None:
        if (lease.get("spec") or {}).get("holderIdentity") == self._process.identity:
            self._process.fenced_at_s = self._process.ran_s

    def _trouble(self, request: Request) -> Trouble:
        weather = self._process.weather
        if weather.outage:
            return Trouble(error=self._lost(request))
        if not self._process.fragile or weather.calm:
            return Trouble()
        drawn, found = weather.drawn, Trouble()
        if weather.hit(Kind.LATE_EVENTS, 2.0):
            found.before_s = drawn.uniform(0.0, SLOWEST_S)
        if weather.hit(Kind.LATE_EVENTS, 2.0):
            found.after_s = drawn.uniform(0.0, SLOWEST_S)
        if request.verb in WRITES and weather.hit(Kind.LOST_ANSWERS):
            found.error, found.takes_effect = self._lost(request), True
        elif weather.hit(Kind.ERRORS):
            found.error = self._error(request, drawn)
        return found

    def _error(self, request: Request, drawn: random.Random) -> Exception:
        kinds: list[Exception] = [
            TooManyRequestsError(429, "TooManyRequests", "Too many requests, please try again later.", 1.0),
            ServerError(500, "InternalError", "Internal error occurred"),
            ServerError(503, "ServiceUnavailable", "the server is currently unable to handle the request"),
            self._lost(request),
        ]
        if request.verb in ("update", "patch", "apply"):
            kinds.append(ConflictError(409, "Conflict", "the object has been modified"))
        if request.verb == "list":
            kinds.append(GoneError(410, "Expired", "The provided continue parameter is too old"))
        return drawn.choice(kinds)

    async def watch(
        self,
        res: ResourceType,
        resource_version: str,
        namespace: str = "",
        *,
        label_selector: str = "",
        field_selector: str = "",
        timeout_s: float = 300.0,
    ) -> AsyncIterator[WatchEvent]:
        process, weather = self._process, self._process.weather
        await process.passage()
        if weather.outage:
            raise ConnectionLostError("no route to the API server")
        stream = super().watch(
            res,
            resource_version,
            namespace,
            label_selector=label_selector,
            field_selector=field_selector,
            timeout_s=timeout_s,
        )
        try:
            async for event in stream:
                await process.passage()
                if process.fragile and weather.hit(Kind.LATE_EVENTS):
                    await self._traced.clock.sleep(weather.drawn.choice([0.2, 5.0, 40.0]) * weather.drawn.random())
                    await process.passage()
                if process.fragile and weather.hit(Kind.CUT_WATCHES, 0.5):
                    raise ConnectionLostError("the watch broke")
                if process.fragile and weather.hit(Kind.FORGOTTEN_HISTORY, 0.3):
                    raise GoneError(410, "Expired", "too old resource version")
                yield event
                if process.fragile and weather.hit(Kind.DOUBLE_EVENTS):
                    yield event
        finally:
            await stream.aclose()  # type: ignore[attr-defined]


@dataclass
class Journal:
    """The last events of a play, for whoever has to understand a failure."""

    store: WatchedStore
    lines: list[str] = field(default_factory=list)
    keep: int = 30
    steps: int = 0
    out: Callable[[str], None] | None = None

    def deed(self, who: str, what: str) -> None:
        """Somebody did something; it counts as a step and is part of the trace."""
        self.store.trace(f"{who}: {what}")
        self.note(who, what)

    def note(self, who: str, what: str) -> None:
        self.steps += 1
        line = f"{self.steps:6d} {self.store.clock.now():%d %H:%M:%S} {who:<14} {what}"
        if self.out is not None:
            self.out(line)
        self.lines.append(line)
        del self.lines[: -self.keep]
