"""The certification controller: starts, continues and ends certifications. Level-triggered and crash-only.

Certifications run side by side as long as they share no node; the others wait in the order of their creation. Pods of
certifications that are gone or over are removed, and their nodes are not used before that.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

import msgspec

from muster.certify.course import ENDED, Course
from muster.certify.durable import SupersededError, first_news
from muster.certify.grouping import selected
from muster.certify.picture import Picture
from muster.certify.runners import FleetRunner, Owner
from muster.certify.runners.pods import PodRunner
from muster.certify.runners.test_pod import DEFAULT_IMAGE
from muster.certify.writer import CertificationWriter
from muster.clock import Clock
from muster.kube.api import CERTIFICATIONS, ApiError, KubeApi, NotFoundError
from muster.kube.backoff import Backoff
from muster.kube.cache import WatchCache
from muster.resources.base import ObjectMeta
from muster.resources.certification import CertificationSpec, Phase
from muster.telemetry.observer import ControllerObserver

log = logging.getLogger(__name__)

LOOK_S = 600.0
"""Everything is looked at again after this time, whatever happened or not."""


@dataclass(frozen=True)
class Request:
    """What is kept of a Certification."""

    name: str
    uid: str
    created: datetime | None
    nodes: tuple[str, ...]
    partners: tuple[str, ...]
    selector: Mapping[str, str]
    phase: Phase
    deleting: bool

    @property
    def open(self) -> bool:
        return self.phase not in ENDED and not self.deleting

    @property
    def order(self) -> tuple[bool, str, str]:
        """Those that run come first, then by age."""
        return (self.phase is Phase.PENDING, self.created.isoformat() if self.created else "", self.name)


class _Status(msgspec.Struct, frozen=True):
    phase: Phase = Phase.PENDING


class _Certification(msgspec.Struct, frozen=True):
    metadata: ObjectMeta
    spec: CertificationSpec
    status: _Status = _Status()


_decoder = msgspec.json.Decoder(_Certification, strict=False)


def project(raw: bytes) -> Request:
    """Project a Certification. Raises msgspec.MsgspecError."""
    found = _decoder.decode(raw)
    return Request(
        name=found.metadata.name,
        uid=found.metadata.uid,
        created=found.metadata.creation_timestamp,
        nodes=found.spec.nodes,
        partners=found.spec.partners,
        selector=found.spec.node_selector,
        phase=found.status.phase,
        deleting=found.metadata.deletion_timestamp is not None,
    )


@dataclass
class _Running:
    """A certification in our hands. `claims`: the nodes that it may use."""

    uid: str
    claims: frozenset[str]
    task: asyncio.Task[None]
    news: asyncio.Event


MakeRunner = Callable[[KubeApi, Clock, Callable[[str], bool], Callable[[str], None]], FleetRunner]
"""(API, clock, whether a node is Ready, called with a certification when the last of its runs is gone) -> runner."""


class CertificationController:
    """Carries out the Certifications of one cluster. Exactly one may run at a time (see the election)."""

    def __init__(
        self,
        api: KubeApi,
        clock: Clock,
        *,
        image: str = DEFAULT_IMAGE,
        observer: ControllerObserver | None = None,
        make_runner: MakeRunner | None = None,
    ) -> None:
        """Runs are carried out by what `make_runner` gives, without it as pods of their own.

        `image` holds the programs of those pods; see docs/architecture.md, "Test pods", for what they must do.
        """
        self._observer = observer or ControllerObserver()
        self._api = api
        self._clock = clock
        self._picture = Picture(api, clock, self._node_changed)
        self._runner: FleetRunner
        if make_runner is not None:
            self._runner = make_runner(api, clock, self._picture.alive, lambda _: self._wake.set())
        else:
            self._runner = PodRunner(
                api, clock, image=image, alive=self._picture.alive, on_change=lambda _: self._wake.set()
            )
        self._requests: WatchCache[Request] = WatchCache(
            api, CERTIFICATIONS, project, clock=clock, on_change=lambda _: self._wake.set(), seed=1
        )
        self._wake = asyncio.Event()
        self._running: dict[str, _Running] = {}
        self._cleaning: dict[str, asyncio.Task[None]] = {}
        self._backoff: dict[str, Backoff] = {}
        self._retry_at: dict[str, datetime] = {}
        self._blocked: dict[str, str] = {}

    async def run(self) -> None:
        """Work for ever; cancel it to stop. What runs in the cluster then goes on and is taken over by the next."""
        watches = [
            asyncio.ensure_future(watch)
            for watch in (*self._picture.runs(), self._runner.run(), self._requests.run())
        ]
        steering = asyncio.ensure_future(self._steer())
        try:
            done, _ = await asyncio.wait((*watches, steering), return_when=asyncio.FIRST_COMPLETED)
            for task in (*watches, steering):
                if task in done:
                    task.result()
        finally:
            works = [r.task for r in self._running.values()] + list(self._cleaning.values())
            for task in (steering, *works, *watches):
                task.cancel()
            await asyncio.gather(steering, *works, *watches, return_exceptions=True)
            self._running.clear()
            self._cleaning.clear()

    def _node_changed(self, _: str) -> None:
        for running in self._running.values():
            running.news.set()

    async def _steer(self) -> None:
        await self._picture.wait_synced()
        await self._runner.wait_synced()
        await self._requests.wait_synced()
        while True:
            self._wake.clear()
            self._reap()
            self._stop_deleted()
            self._clean_leftovers()
            await self._start_waiting()
            now = self._clock.now()
            due = min(((at - now).total_seconds() for at in self._retry_at.values()), default=LOOK_S)
            await first_news(self._clock, self._wake, max(0.001, min(due, LOOK_S)))

    # One look

    def _reap(self) -> None:
        """Take note of tasks that ended; what failed is tried again."""
        for name, running in list(self._running.items()):
            if not running.task.done():
                continue
            del self._running[name]
            if running.task.cancelled():
                continue
            error = running.task.exception()
            if error is None:
                self._backoff.pop(name, None)
                self._runner.forget(name)
            elif isinstance(error, (ApiError, SupersededError, msgspec.ValidationError)):
                wait_s = self._backoff.setdefault(name, Backoff(name)).next_s()
                log.warning("certification %s: %s; again in %.1f s", name, error, wait_s)
                self._retry_at[name] = self._clock.now() + timedelta(seconds=wait_s)
            elif not isinstance(error, Exception):
                raise error
            else:
                # One certification that cannot be carried out must not stop those of other nodes.
                wait_s = self._backoff.setdefault(name, Backoff(name)).next_s()
                log.error("certification %s; again in %.1f s", name, wait_s, exc_info=error)
                self._retry_at[name] = self._clock.now() + timedelta(seconds=wait_s)
        for name, task in list(self._cleaning.items()):
            if task.done():
                del self._cleaning[name]
                self._runner.forget(name)
                if not task.cancelled():
                    task.result()

    def _stop_deleted(self) -> None:
        for name, running in sorted(self._running.items()):
            request = self._requests.get(name)
            if request is None or request.deleting or request.uid != running.uid:
                running.task.cancel()
        for name in [n for n in self._retry_at if self._requests.get(n) is None]:
            del self._retry_at[name]
            self._backoff.pop(name, None)
        for name in [n for n in self._blocked if self._requests.get(n) is None]:
            del self._blocked[name]

    def _clean_leftovers(self) -> None:
        """Remove pods of certifications that are gone, over, or of another incarnation."""
        for name in self._runner.certifications():
            request = self._requests.get(name)
            if name in self._running or name in self._cleaning or (request is not None and request.open):
                continue
            log.info("certification %s is gone or over: its pods are removed", name)
            self._cleaning[name] = asyncio.ensure_future(self._clean(name))

    async def _clean(self, name: str) -> None:
        try:
            await self._runner.clean(Owner(name, ""), frozenset(), _no_one)
        except ApiError as error:
            log.warning("pods of certification %s cannot be removed: %s", name, error)
            await self._clock.sleep(LOOK_S)
        finally:
            self._wake.set()

    async def _start_waiting(self) -> None:
        """Start what may start, oldest first; say of the others what they wait for."""
        now = self._clock.now()
        for request in sorted((r for r in self._requests.items().values() if r.open), key=lambda r: r.order):
            if request.name in self._running or request.name in self._cleaning:
                continue
            if self._retry_at.get(request.name, now) > now:
                continue
            self._retry_at.pop(request.name, None)
            claimed = self._claimed()
            why = self._waits_for(request, claimed)
            if why:
                await self._say_blocked(request, why)
            else:
                self._start(request, claimed)

    def _claimed(self) -> dict[str, str]:
        """Node -> certification that uses it, or whose pods are still on it."""
        claimed: dict[str, str] = {}
        for name in self._runner.certifications():
            if name not in self._running:
                claimed.update(dict.fromkeys(self._runner.nodes_of(name), name))
        for name, running in sorted(self._running.items()):
            claimed.update(dict.fromkeys(sorted(running.claims), name))
        return claimed

    def _targets(self, request: Request) -> tuple[str, ...]:
        """Nodes of the certification: named, with the labels it asks for, or in use by it already."""
        chosen = selected(request.selector, self._picture.nodes)
        begun = self._runner.nodes_of(request.name) if request.phase is not Phase.PENDING else ()
        return tuple(sorted({*request.nodes, *chosen, *begun}))

    def _waits_for(self, request: Request, claimed: Mapping[str, str]) -> str:
        if request.phase is not Phase.PENDING:
            return ""  # it has its nodes already; its own pods may be on them
        targets = self._targets(request)
        for node in targets:
            user = claimed.get(node, request.name)
            if user != request.name:
                return f"Waits for {node}, which certification {user} uses."
        partners = [p for p in request.partners if p not in targets]
        busy = [p for p in partners if claimed.get(p, request.name) != request.name]
        if busy and len(busy) == len(partners) and len(targets) == 1:
            return f"Waits for a partner: {busy[0]} is used by certification {claimed[busy[0]]}."
        return ""

    async def _say_blocked(self, request: Request, why: str) -> None:
        if self._blocked.get(request.name) == why:
            return
        self._blocked[request.name] = why
        try:
            writer = await CertificationWriter.load(self._api, self._clock, request.name)
            await writer.write(msgspec.structs.replace(writer.status, blocked=why))
        except (ApiError, SupersededError, msgspec.ValidationError) as error:
            log.warning("certification %s: %s", request.name, error)
            self._blocked.pop(request.name, None)

    def _start(self, request: Request, claimed: Mapping[str, str]) -> None:
        taken = {p: claimed[p] for p in request.partners if claimed.get(p, request.name) != request.name}
        if request.phase is not Phase.PENDING:
            taken = {}
        claims = frozenset(self._targets(request)) | (frozenset(request.partners) - taken.keys())
        news = asyncio.Event()
        self._blocked.pop(request.name, None)
        task = asyncio.ensure_future(self._carry_out(request, taken, news))
        task.add_done_callback(lambda _: self._wake.set())
        self._running[request.name] = _Running(request.uid, claims, task, news)

    async def _carry_out(self, request: Request, taken: Mapping[str, str], news: asyncio.Event) -> None:
        try:
            writer = await CertificationWriter.load(self._api, self._clock, request.name)
        except NotFoundError:
            return
        if writer.uid != request.uid:
            return
        await Course(self._clock, writer, self._runner, self._picture, taken, news, self._observer).run()


async def _no_one(_: str) -> None:
    return
