"""Writes the history while this process leads: it watches, and hands what is new to the database every few seconds.

The database may be away for hours: nothing waits for it. Rows are kept meanwhile, and when there are too many the
time counts as not known. Nothing that happens here ends the controller.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import NoReturn, TypeVar

import msgspec

from muster.clock import Clock
from muster.errors import BadInputError, MusterError, UnreachableError
from muster.kube.api import NODE_HEALTHS, NODES, PODS, REPAIRS, ApiError, KubeApi
from muster.kube.backoff import Backoff
from muster.kube.cache import WatchCache
from muster.operate.history.collect import Collector, HealthFacts, health_facts, repair_row
from muster.operate.history.facts import RepairRow, WatchedRow
from muster.operate.history.store import HistoryStore
from muster.operate.ledger import microseconds
from muster.operate.records import PodUse, pod_use
from muster.operate.together import run_together
from muster.resources.topology import pool_of
from muster.telemetry.observer import ControllerObserver

log = logging.getLogger(__name__)
T = TypeVar("T")

FLUSH_S = 10.0
"""How often new rows are written; a crash loses at most so much, and what a node was is then told by its history."""
BLIND_S = 60.0
"""After an outage of the API server a watch may still lag for so long; until then an end is not believed."""
PRUNE_S = 24 * 3600.0
RETENTION_DAYS = 400
DAY_US = 86_400_000_000


class _Labels(msgspec.Struct):
    labels: dict[str, str] = {}


class _Node(msgspec.Struct):
    metadata: _Labels


_nodes = msgspec.json.Decoder(_Node)


def pool_label(raw: bytes) -> str:
    """The pool of a node. Raises msgspec.MsgspecError."""
    return pool_of(_nodes.decode(raw).metadata.labels)


class HistoryKeeper:
    """`open_store` connects; it is called again after each failure. `retention_days` 0: nothing is ever deleted."""

    def __init__(
        self,
        api: KubeApi,
        clock: Clock,
        open_store: Callable[[], HistoryStore],
        *,
        retention_days: int = RETENTION_DAYS,
        observer: ControllerObserver | None = None,
        most_pending: int | None = None,
        inline: bool = False,
    ) -> None:
        """`inline`: call the database in this thread (tests on a virtual clock)."""
        self._api, self._clock, self._open = api, clock, open_store
        self._retention_days = retention_days
        self._observer = observer or ControllerObserver()
        self._inline = inline
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="history")
        self._store: HistoryStore | None = None
        self._watched: WatchedRow | None = None
        """What was watched without a break, and without a row that was lost."""
        self._blind_us: int | None = None
        """Until when the watch was sound, while it may not be."""
        self._sees_at_us: int | None = None
        """From when on it is sound again."""
        self._written_us: int | None = None
        kinds = {"most_pending": most_pending} if most_pending is not None else {}
        self._collector = Collector(lambda name: self.pools.get(name) or "default", **kinds)
        self.pools: WatchCache[str] = WatchCache(api, NODES, pool_label, clock=clock, on_change=self._pool)
        self.healths: WatchCache[HealthFacts] = WatchCache(
            api, NODE_HEALTHS, health_facts, clock=clock, on_change=self._health
        )
        self.pods: WatchCache[PodUse] = WatchCache(api, PODS, pod_use, clock=clock, on_change=self._pod)
        self.repairs: WatchCache[RepairRow | None] = WatchCache(
            api, REPAIRS, repair_row, clock=clock, on_change=self._repair
        )

    @property
    def _caches(
        self,
    ) -> tuple[WatchCache[str], WatchCache[HealthFacts], WatchCache[PodUse], WatchCache[RepairRow | None]]:
        return (self.pools, self.healths, self.pods, self.repairs)

    def lag_s(self) -> float | None:
        """Seconds since rows were written last; None before the first time."""
        if self._written_us is None:
            return None
        return max(0.0, (self._now_us() - self._written_us) / 1e6)

    async def run(self) -> None:
        """Keep the history for ever; cancel it to stop."""
        try:
            await run_together(*(cache.run() for cache in self._caches), self._keep())
        finally:
            store, self._store = self._store, None
            if store is not None:
                self._thread.submit(store.close)
            self._thread.shutdown(wait=False)

    async def _keep(self) -> NoReturn:
        for cache in self._caches:
            await cache.wait_synced()
        backoff = Backoff("history", base_s=2.0, cap_s=60.0)
        said = ""
        while True:
            try:
                await self._session()
            except BadInputError as error:
                # Somebody must act, and may: the address stays the same, the database may be mended.
                log.log(logging.DEBUG if str(error) == said else logging.ERROR, "%s No history until then.", error)
                said = str(error)
            except (MusterError, OSError) as error:
                level = logging.DEBUG if str(error) == said else logging.WARNING
                log.log(level, "%s. It is tried again; the controller goes on.", str(error).rstrip("."))
                said = str(error)
            except Exception:
                log.exception("the history cannot be written; it is tried again, the controller goes on")
            await self._drop()
            await self._clock.sleep(backoff.next_s())

    async def _session(self) -> NoReturn:
        """From one connection to its loss."""
        self._store = await self._offload(self._open)
        await self._offload(self._store.migrate)
        if self._collector.lost:
            self._tell_all()
        unfinished, last_us = await self._offload(self._store.unfinished)
        self._collector.settle(unfinished, last_us, self.healths.rejected)
        prune_at_us = self._now_us()
        while True:
            await self._look()
            await self._write(self._store)
            if self._collector.lost:
                raise UnreachableError("More happened than could be kept while the history was away")
            if self._retention_days and self._now_us() >= prune_at_us:
                prune_at_us = self._now_us() + int(PRUNE_S * 1e6)
                deleted = await self._offload(self._prune)
                log.info("history: %d rows older than %d days were deleted", deleted, self._retention_days)
            await self._clock.sleep(FLUSH_S)

    async def _write(self, store: HistoryStore) -> None:
        rows, now_us = self._collector.take(), self._now_us()
        if self._blind_us is not None or self._collector.lost:
            self._watched = None
        elif self._watched is None:
            self._watched = WatchedRow(uuid.uuid4().hex, now_us, now_us)
        else:
            self._watched = replace(self._watched, to_us=now_us)
        told = [*rows, self._watched] if self._watched is not None else rows
        try:
            await self._offload(lambda: store.write(told))
        except BaseException:
            self._collector.give_back(rows)
            raise
        self._written_us = self._now_us()
        self._observer.history("written", len(rows))

    def _prune(self) -> int:
        assert self._store is not None  # noqa: S101 - inside a session
        return self._store.prune(self._now_us() - self._retention_days * DAY_US)

    async def _look(self) -> None:
        """Ask whether the API server answers: without it a watch stands still and looks like peace."""
        try:
            await self._api.list_page(NODE_HEALTHS, limit=1)
        except (ApiError, UnreachableError):
            if self._blind_us is None:
                self._blind_us = self._now_us() - int(FLUSH_S * 1e6)
            self._sees_at_us = None
            return
        if self._blind_us is None:
            return
        if self._sees_at_us is None:
            self._sees_at_us = self._now_us() + int(BLIND_S * 1e6)
        elif self._now_us() >= self._sees_at_us:
            self._blind_us = self._sees_at_us = None

    def _tell_all(self) -> None:
        """After rows were lost: everything that is known now is told again."""
        self._observer.history("lost", self._collector.lost)
        self._watched = None
        log.warning("history: %d rows found no room while the database was away", self._collector.lost)
        self._collector.forget()
        for name in self.healths.items():
            self._health(name)
        for key in self.pods.items():
            self._pod(key)
        for name in self.repairs.items():
            self._repair(name)

    async def _drop(self) -> None:
        store, self._store = self._store, None
        if store is not None:
            try:
                await self._offload(store.close)
            except Exception as error:
                log.debug("history: closing the connection: %s", error)

    async def _offload(self, call: Callable[[], T]) -> T:
        if self._inline:
            return call()
        return await asyncio.get_running_loop().run_in_executor(self._thread, call)

    def _now_us(self) -> int:
        return microseconds(self._clock.now())

    def _pool(self, name: str) -> None:
        if self.healths.get(name) is not None:
            self._health(name)

    def _health(self, name: str) -> None:
        if name not in self.healths.rejected:  # what cannot be read is not gone
            self._told(lambda: self._collector.health(name, self.healths.get(name), self._now_us()))

    def _pod(self, key: str) -> None:
        use = self.pods.get(key)
        gone_us = self._blind_us if use is None and self._blind_us is not None else self._now_us()
        if key not in self.pods.rejected:
            self._told(lambda: self._collector.pod(key, use, gone_us))

    def _repair(self, name: str) -> None:
        self._told(lambda: self._collector.repair(self.repairs.get(name)))

    def _told(self, take_in: Callable[[], None]) -> None:
        try:
            take_in()
        except Exception:
            # A bug that one object brings out, perhaps by what others wrote in it, must not end the controller.
            log.exception("the history cannot take something in; the time counts as not known")
            self._collector.lost += 1
