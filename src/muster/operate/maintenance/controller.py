"""The maintenance controller: follows each Maintenance, writes its status, tells people. Level-triggered, crash-only.

It takes no node out: the node controller does, from the same facts. `status.handedBack` belongs to whoever does the
work; it is never written here, and server-side apply leaves it to its owner.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import NoReturn

import msgspec

from muster.clock import Clock
from muster.errors import UnreachableError
from muster.kube.api import (
    MAINTENANCES,
    NODE_HEALTHS,
    NODES,
    ApiError,
    ConflictError,
    KubeApi,
    NotFoundError,
    TooManyRequestsError,
)
from muster.kube.cache import WatchCache
from muster.kube.events import EventKind, EventRecorder, Regarding
from muster.kube.queue import WorkQueue
from muster.operate.carry_out import NotLeadingError, always_leading
from muster.operate.maintenance.progress import News, NewsKind, Progress, SeenNode, progress_of
from muster.operate.maintenance.scope import Scope
from muster.operate.maintenance.seen import SeenHealth, node_labels, seen_health, seen_node
from muster.operate.maintenance.window import utc
from muster.operate.outputs.action import Action, Result
from muster.operate.together import run_together
from muster.plain_text import printable
from muster.resources.base import API_VERSION, CONTROLLER_MANAGER, to_object
from muster.resources.maintenance import Maintenance, MaintenancePhase, MaintenanceStatus
from muster.telemetry.observer import ControllerObserver

log = logging.getLogger(__name__)

SETTLE_S = 2.0
"""Changes of many nodes within this time are written as one."""
RESYNC_S = 600.0
WORKERS = 2
_REASONS = {
    NewsKind.INVALID: "MaintenanceInvalid",
    NewsKind.ANNOUNCED: "MaintenanceAnnounced",
    NewsKind.OPENED: "MaintenanceOpened",
    NewsKind.NODE_READY: "MaintenanceNodeReady",
    NewsKind.OVERRUN: "MaintenanceOverrun",
    NewsKind.COMPLETED: "MaintenanceCompleted",
    NewsKind.CANCELLED: "MaintenanceCancelled",
}


@dataclass(frozen=True)
class _Followed:
    """Whose changes matter to a Maintenance, ready to be asked for each change of a node."""

    scope: Scope
    listed: frozenset[str]
    completed: bool
    closes_at: datetime


class MaintenanceController:
    """Follows all Maintenances of one cluster. Exactly one may run at a time (see the election)."""

    def __init__(
        self,
        api: KubeApi,
        clock: Clock,
        *,
        identity: str = CONTROLLER_MANAGER,
        still_leading: Callable[[], Awaitable[bool]] = always_leading,
        tell: Callable[[str], None] = log.info,
        on_action: Callable[[Action], None] | None = None,
        observer: ControllerObserver | None = None,
        resync_s: float = RESYNC_S,
    ) -> None:
        """`tell` receives one line for each piece of news, `on_action` an entry of the audit log."""
        self._api = api
        self._clock = clock
        self._identity = identity
        self._still_leading = still_leading
        self._tell = tell
        self._on_action = on_action
        self._observer = observer or ControllerObserver()
        self._resync_s = resync_s
        self._queue = WorkQueue(clock)
        self._events = EventRecorder(api, clock=clock, controller="muster-controller", instance=identity)
        decoder = msgspec.json.Decoder(Maintenance, strict=False)
        self.maintenances: WatchCache[Maintenance] = WatchCache(
            api, MAINTENANCES, decoder.decode, clock=clock, on_change=self._declared
        )
        self._nodes: WatchCache[Mapping[str, str]] = WatchCache(
            api, NODES, node_labels, clock=clock, on_change=self._node_changed
        )
        self._healths: WatchCache[SeenHealth | None] = WatchCache(
            api, NODE_HEALTHS, seen_health, clock=clock, on_change=self._node_changed
        )
        self._needed = asyncio.Event()
        self._followed: dict[str, _Followed] = {}
        self._synced = False

    async def run(self) -> None:
        """Work for ever; cancel it to stop. Raises NotLeadingError when another controller holds the lease."""
        await run_together(self.maintenances.run(), self._events.run(), self._pictures(), self._lead())

    def figures(self) -> dict[str, int]:
        """Phase -> number of Maintenances."""
        found: dict[str, int] = {}
        for maintenance in self.maintenances.items().values():
            phase = maintenance.status.phase.value
            found[phase] = found.get(phase, 0) + 1
        return dict(sorted(found.items()))

    async def _pictures(self) -> None:
        """A cluster without a Maintenance has no need for a second picture of all its nodes."""
        await self._needed.wait()
        await run_together(self._nodes.run(), self._healths.run())

    async def _lead(self) -> None:
        await self.maintenances.wait_synced()
        await self._needed.wait()
        await self._nodes.wait_synced()
        await self._healths.wait_synced()
        self._synced = True
        self._look_at_all()
        await run_together(self._resync(), *(self._work() for _ in range(WORKERS)))

    async def _resync(self) -> NoReturn:
        while True:
            await self._clock.sleep(self._resync_s)
            self._look_at_all()

    def _look_at_all(self) -> None:
        for name in sorted(self.maintenances.items()):
            self._queue.add(name)

    # News

    def _declared(self, name: str) -> None:
        self._needed.set()
        maintenance = self.maintenances.get(name)
        if maintenance is None:
            self._followed.pop(name, None)
        else:
            self._followed[name] = _Followed(
                scope=Scope(maintenance.spec),
                listed=frozenset(n.name for n in maintenance.status.nodes),
                completed=maintenance.status.phase is MaintenancePhase.COMPLETED,
                closes_at=utc(maintenance.spec.closes_at),
            )
        self._queue.add(name)

    def _node_changed(self, name: str) -> None:
        if not self._synced:
            return  # all are looked at once the picture is complete
        now = self._clock.now()
        node = SeenNode(name=name, labels=self._nodes.get(name) or {})
        for key in sorted(self._followed):
            followed = self._followed[key]
            settled = followed.completed and now >= followed.closes_at
            if not settled and (name in followed.listed or followed.scope.concerns(node)):
                self._queue.add_after(key, SETTLE_S)

    # Work

    async def _work(self) -> NoReturn:
        while True:
            name = await self._queue.get()
            try:
                await self._handle(name)
                self._queue.forget(name)
            except NotLeadingError:
                raise
            except ConflictError as error:
                log.debug("maintenance %s changed meanwhile: %s", name, error)
                self._queue.retry(name)
            except TooManyRequestsError as error:
                self._queue.add_after(name, error.retry_after_s or 1.0)
            except (ApiError, UnreachableError) as error:
                log.warning("maintenance %s: %s; it is tried again", name, error)
                self._queue.retry(name)
            except Exception:
                # What one declaration brings out must not stop the others.
                log.exception("maintenance %s cannot be handled; it is tried again", name)
                self._queue.retry(name)
            finally:
                self._queue.done(name)

    async def _handle(self, name: str) -> None:
        maintenance = self.maintenances.get(name)
        if maintenance is None:
            return
        now = self._clock.now()
        progress = progress_of(maintenance, self._seen(), now)
        if progress.status != maintenance.status:
            await self._write(maintenance, progress.status)
            self._tell_all(maintenance, progress)
        if progress.recheck_at is not None:
            self._queue.add_after(name, (progress.recheck_at - now).total_seconds())

    def _seen(self) -> list[SeenNode]:
        return [
            seen_node(name, labels, self._healths.get(name)) for name, labels in sorted(self._nodes.items().items())
        ]

    async def _write(self, maintenance: Maintenance, status: MaintenanceStatus) -> None:
        """Durable first, told afterwards, and only on the object that was looked at: so nothing is told twice."""
        if not await self._still_leading():
            raise NotLeadingError("This controller has lost its lease and stops; another one goes on.")
        written = to_object(status) | {"phase": status.phase.value}
        written.pop("handedBack", None)
        metadata = {"name": maintenance.metadata.name, "resourceVersion": maintenance.metadata.resource_version}
        body = {"apiVersion": API_VERSION, "kind": MAINTENANCES.kind, "metadata": metadata, "status": written}
        try:
            await self._api.apply(MAINTENANCES, body, manager=CONTROLLER_MANAGER, subresource="status")
        except NotFoundError as error:
            raise ConflictError(404, "NotFound", f"Maintenance {maintenance.metadata.name} is gone") from error

    def _tell_all(self, maintenance: Maintenance, progress: Progress) -> None:
        for news in progress.news:
            self._tell_one(maintenance, news)

    def _tell_one(self, maintenance: Maintenance, news: News) -> None:
        name, now = maintenance.metadata.name, self._clock.now()
        about = Regarding(API_VERSION, MAINTENANCES.kind, name, uid=maintenance.metadata.uid)
        kind = EventKind.WARNING if news.warning else EventKind.NORMAL
        message = printable(news.message)
        self._events.record(about, _REASONS[news.kind], "Maintenance", message, kind)
        self._tell(f"{now:%Y-%m-%dT%H:%M:%SZ} maintenance {name}: {news.kind.value}: {message}")
        if news.kind is NewsKind.OVERRUN:
            for _ in news.nodes:
                self._observer.overrun()
        if self._on_action is not None:
            by_person = news.kind in (NewsKind.ANNOUNCED, NewsKind.CANCELLED) and maintenance.spec.requested_by
            action = Action(
                at=now,
                actor=printable(maintenance.spec.requested_by) if by_person else self._identity,
                action=f"maintenance-{news.kind.value}",
                target=f"{MAINTENANCES.kind}/{name}",
                result=Result.REFUSED if news.kind is NewsKind.INVALID else Result.DONE,
                node=news.nodes[0] if len(news.nodes) == 1 else "",
                on_behalf=printable(maintenance.spec.requested_by),
                message=message,
            )
            self._on_action(action)
