"""Kubernetes Events (`events.k8s.io/v1`): deduplicated, at a bounded rate, never in the way of the work.

Events tell people what happened. Nothing is decided from them, so losing one is harmless: what cannot be sent is
counted and dropped.
"""

from __future__ import annotations

import hashlib
import logging
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from muster.clock import Clock
from muster.errors import UnreachableError
from muster.kube.api import EVENTS, AlreadyExistsError, ApiError, KubeApi, NotFoundError, Object, PatchType
from muster.kube.election import micro_time
from muster.kube.queue import WorkQueue

log = logging.getLogger(__name__)

SERIES_WINDOW = timedelta(minutes=6)
"""Repeats within this time after the last one count as one series (as in client-go)."""
SERIES_DELAY_S = 30.0
"""How long the counter of a series may lag behind."""
MAX_SERIES = 2000
MAX_NOTE = 1024
"""Characters of a note that the API server accepts (validation of events.k8s.io/v1)."""
ATTEMPTS = 3


class EventKind(StrEnum):
    NORMAL = "Normal"
    WARNING = "Warning"


@dataclass(frozen=True)
class Regarding:
    """The object that an event is about. `uid` of a Node is its name: so `kubectl describe node` finds the event."""

    api_version: str
    kind: str
    name: str
    namespace: str = ""
    uid: str = ""


def node_reference(name: str) -> Regarding:
    """What an event about a node refers to."""
    return Regarding("v1", "Node", name, uid=name)


@dataclass(frozen=True)
class _Key:
    regarding: Regarding
    kind: EventKind
    reason: str
    action: str
    note: str

    def name(self, first: datetime) -> str:
        parts = (repr(self), first.isoformat())
        return f"{self.regarding.name}.{hashlib.sha256('|'.join(parts).encode()).hexdigest()[:16]}"


@dataclass
class _Series:
    key: _Key
    first: datetime
    last: datetime
    count: int = 1
    created: bool = False
    sent: int = 0
    failures: int = 0


class EventRecorder:
    """`record` never waits and never fails; `run` sends. `dropped` counts what could not be told."""

    def __init__(
        self, api: KubeApi, *, clock: Clock, controller: str, instance: str, rate_per_s: float = 10.0
    ) -> None:
        """`controller` is the reporting component, `instance` its pod or host; `rate_per_s` bounds the requests."""
        self._api = api
        self._clock = clock
        self._controller = controller
        self._instance = instance[:128]
        self._pause_s = 1.0 / rate_per_s
        self._queue = WorkQueue(clock)
        self._series: dict[str, _Series] = {}
        self._latest: dict[_Key, str] = {}
        self.dropped = 0

    def record(
        self, regarding: Regarding, reason: str, action: str, note: str, kind: EventKind = EventKind.NORMAL
    ) -> None:
        """Tell that `reason` (a CamelCase word) happened to `regarding` during `action`; `note` is for people."""
        now = self._clock.now()
        key = _Key(regarding, kind, reason[:128], action[:128], note[:MAX_NOTE])
        series = self._series.get(self._latest.get(key, ""))
        if series is not None and now - series.last <= SERIES_WINDOW:
            series.count += 1
            series.last = now
            self._queue.add_after(key.name(series.first), SERIES_DELAY_S)
            return
        self._prune(now)
        if len(self._series) >= MAX_SERIES:
            self.dropped += 1
            log.warning("event dropped, %d are waiting: %s %s", MAX_SERIES, reason, key.note)
            return
        name = key.name(now)
        self._series[name] = _Series(key, now, now)
        self._latest[key] = name
        self._queue.add(name)

    async def run(self) -> None:
        """Send what was recorded, for ever."""
        while True:
            name = await self._queue.get()
            try:
                series = self._series.get(name)
                if series is not None and series.sent < series.count:
                    await self._send(name, series)
                    await self._clock.sleep(self._pause_s)
            finally:
                self._queue.done(name)

    async def _send(self, name: str, series: _Series) -> None:
        count = series.count
        try:
            if not series.created:
                await self._create(name, series)
            else:
                await self._update(name, series)
        except (ApiError, UnreachableError) as error:
            series.failures += 1
            if series.failures < ATTEMPTS:
                self._queue.retry(name)
                return
            self.dropped += count - series.sent
            log.warning("event not sent: %s %s: %s", series.key.reason, series.key.note, error)
        series.created = True
        series.sent = count
        series.failures = 0
        self._queue.forget(name)

    async def _create(self, name: str, series: _Series) -> None:
        key = series.key
        namespace = key.regarding.namespace or "default"
        event: Object = {
            "apiVersion": EVENTS.api_version,
            "kind": EVENTS.kind,
            "metadata": {"name": name, "namespace": namespace},
            "eventTime": micro_time(series.first),
            "reportingController": self._controller,
            "reportingInstance": self._instance,
            "action": key.action,
            "reason": key.reason,
            "regarding": _reference(key.regarding),
            "note": key.note,
            "type": key.kind.value,
        }
        if series.count > 1:
            event["series"] = _counter(series)
        try:
            await self._api.create(EVENTS, event, namespace)
        except AlreadyExistsError:
            # An earlier attempt took effect although its answer was lost.
            return

    async def _update(self, name: str, series: _Series) -> None:
        namespace = series.key.regarding.namespace or "default"
        try:
            await self._api.patch(EVENTS, name, {"series": _counter(series)}, PatchType.MERGE, namespace)
        except NotFoundError:
            # The server forgets events after a while (an hour by default); the series starts anew.
            await self._create(name, series)

    def _prune(self, now: datetime) -> None:
        """Forget series that ended and were sent."""
        for name in [n for n, s in self._series.items() if now - s.last > SERIES_WINDOW and s.sent >= s.count]:
            series = self._series.pop(name)
            if self._latest.get(series.key) == name:
                del self._latest[series.key]


def _counter(series: _Series) -> Object:
    return {"count": series.count, "lastObservedTime": micro_time(series.last)}


def _reference(regarding: Regarding) -> Object:
    fields = {
        "apiVersion": regarding.api_version,
        "kind": regarding.kind,
        "name": regarding.name,
        "namespace": regarding.namespace,
        "uid": regarding.uid,
    }
    return {key: value for key, value in fields.items() if value}
