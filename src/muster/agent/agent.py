"""The node agent: one asyncio process that watches its node and publishes what it sees.

Log, inventory and monitors feed one picture of the node. When the picture changes, it is first kept on disk, then
offered to the publisher. A monitor that fails or hangs shows as degraded; the others go on.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta

from muster.agent import memory
from muster.agent.monitor import Look, Monitor
from muster.agent.monitor_task import MonitorTask
from muster.agent.monitors import Monitors
from muster.agent.picture import KERNEL_LOG, Picture, differs
from muster.agent.publish import Heartbeat, Publisher, PublishResult
from muster.agent.sources import Inventory, LogBatch, LogSource, NodeReadings, probe_failures
from muster.agent.state import StateStore
from muster.clock import Clock
from muster.errors import BadInputError, MusterError
from muster.faults.sighting import Limits
from muster.kube.api import KubeApi, NotFoundError
from muster.kube.backoff import Backoff
from muster.moments import is_recent
from muster.resources.fault import Severity
from muster.resources.node_health import MonitorState, Observed
from muster.telemetry.observer import AgentFigures, AgentObserver

log = logging.getLogger(__name__)

INVENTORY = "inventory"
STATE = "state"
RECORD_GAP_S = 0.2
"""A record of several lines gets its next line within this time, or is complete."""
QUIET_S = 5.0
"""A log that was silent this long has been read to its end."""
COUNT_REFRESH = timedelta(minutes=5)
"""How long published counts and times of known faults may lag behind."""
UID_REFRESH = timedelta(minutes=10)
ONCE_LIMIT = timedelta(minutes=1)
BASELINES_KEPT = timedelta(minutes=5)
"""How old the baselines of monitors on disk may get."""
LOSS_SHOWN = timedelta(hours=1)
"""How long a loss of log records keeps the monitor degraded."""


class Agent:
    """Watches one node. `run` never returns; everything that must survive it is in `state`."""

    def __init__(
        self,
        api: KubeApi,
        node_name: str,
        log_source: LogSource,
        inventory: Inventory,
        clock: Clock,
        *,
        state: StateStore,
        interval_s: float = 30.0,
        heartbeat_s: float = 60.0,
        version: str,
        observer: AgentObserver | None = None,
        monitors: Sequence[Monitor] = (),
        limits: Limits | None = None,
    ) -> None:
        self._node = node_name
        self._source = log_source
        self._inventory = inventory
        self._clock = clock
        self._state = state
        self._interval_s = interval_s
        self._version = version
        self._observer = observer or AgentObserver()
        self._publisher = Publisher(api, node_name, clock, observer=self._observer)
        self._heartbeat = Heartbeat(api, node_name, clock, heartbeat_s=heartbeat_s)
        self._monitors = Monitors(INVENTORY, KERNEL_LOG, STATE)
        self._limits = limits
        self._tasks = tuple(
            MonitorTask(monitor, clock, lambda: self._known().facts, self._take_look, self._look_failed)
            for monitor in monitors
        )
        self._picture: Picture | None = None
        self._cursor: str | None = None
        self._caught_up = False
        self._unfinished = False
        self._offered = False
        self._uid = ""
        self._uid_asked: datetime | None = None
        self._lost = 0
        self._lost_at: datetime | None = None
        self._unsaved = False
        self._saved_at: datetime | None = None
        self._ready = asyncio.Event()

    async def run(self) -> None:
        """Watch and publish for ever."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._heartbeat.run())
                tasks.create_task(self._publisher.run())
                tasks.create_task(self._watch_inventory())
                tasks.create_task(self._watch_log())
                for number, task in enumerate(self._tasks):
                    tasks.create_task(self._watch_monitor(task, number))
        finally:
            await self._close_monitors()
            if self._picture is not None and self._unfinished:
                self._picture.log_is_quiet(self._clock.now())
            self._save()

    async def run_once(self) -> Observed:
        """Read everything once, publish it, and return it. Raises MusterError or OSError."""
        readings = await self._inventory.read()
        try:
            uid = readings.node_uid or await self._publisher.node_uid()
        except NotFoundError as error:
            raise BadInputError(
                f"The cluster has no Node {self._node!r}; give --node the name that 'kubectl get nodes' shows."
            ) from error
        self._take_readings(readings, uid)
        until = self._clock.now() + ONCE_LIMIT
        while not self._caught_up and self._monitors.is_ok(KERNEL_LOG) and self._clock.now() < until:
            await self._follow_log()
        # One after the other: a look at everything is no reason for a peak of memory.
        for task in self._tasks:
            await task.once()
        await self._close_monitors()
        observed = self._compose()
        assert observed is not None  # noqa: S101 - the readings were taken above
        await self._heartbeat.send()
        await self._publisher.send(observed)
        self._keep(observed)
        return observed

    # Inventory

    async def _watch_inventory(self) -> None:
        backoff = Backoff(f"inventory/{self._node}", base_s=1.0, cap_s=self._interval_s)
        while True:
            if await self._look():
                backoff.reset()
                await self._clock.sleep(self._interval_s)
            else:
                await self._clock.sleep(backoff.next_s())

    async def _look(self) -> bool:
        """One reading of the inventory. Returns whether it succeeded."""
        try:
            readings = await self._inventory.read()
            uid = readings.node_uid or await self._uid_from_api()
        except Exception as error:  # a failing monitor degrades alone, whatever its bug is
            self._monitors.degraded(INVENTORY, f"the inventory cannot be read: {_words(error)}")
            log.warning("%s: inventory: %s", self._node, _words(error))
            self._show()
            return False
        self._take_readings(readings, uid)
        self._show()
        fresh = self._saved_at is not None and is_recent(self._saved_at, self._clock.now(), BASELINES_KEPT)
        if self._unsaved or (self._tasks and not fresh):
            self._save()
        return True

    def _take_readings(self, readings: NodeReadings, uid: str) -> None:
        now = self._clock.now()
        self._uid = uid
        if readings.unread:
            self._monitors.degraded(INVENTORY, f"not readable now: {', '.join(readings.unread)}")
        else:
            self._monitors.ok(INVENTORY)
        if self._picture is None:
            kept = memory.decode(self._state.load())
            try:
                self._picture = Picture(readings, kept, now, self._limits)
            except Exception as error:  # a document that breaks this agent would break every next one
                log.warning("%s: what was kept cannot be used: %s", self._node, _words(error))
                kept = None
                self._picture = Picture(readings, kept, now, self._limits)
            self._cursor = kept.cursor if kept is not None else None
            self._restore_monitors(now)
            self._ready.set()
        elif self._picture.update(readings, now):
            self._caught_up = False
        elif self._caught_up:
            self._picture.log_is_clean(now)
        self._picture.settle(now)
        for source, message in probe_failures(readings.probes).items():
            self._monitors.degraded(source, message) if message else self._monitors.ok(source)

    async def _uid_from_api(self) -> str:
        """The UID of the Node object, asked for now and then: a node may be recreated under its name."""
        now = self._clock.now()
        if self._uid and self._uid_asked is not None and is_recent(self._uid_asked, now, UID_REFRESH):
            return self._uid
        try:
            uid = await self._publisher.node_uid()
        except MusterError:
            if self._uid:
                return self._uid
            kept = memory.decode(self._state.load())
            if kept is None or kept.observed is None:
                raise
            return kept.observed.node_uid
        self._uid_asked = now
        return uid

    # Monitors

    async def _watch_monitor(self, task: MonitorTask, number: int) -> None:
        await self._ready.wait()
        await task.run(number)

    def _restore_monitors(self, now: datetime) -> None:
        picture = self._known()
        kept = picture.know_monitors([task.monitor.name for task in self._tasks], now)
        said = {m.name: m.message for m in picture.observed.monitors} if picture.observed is not None else {}
        for task in self._tasks:
            name = task.monitor.name
            if kept[name]:
                task.monitor.restore(kept[name])
            # What the agent before said of it stands until the first look: a restart is no news.
            message = said.get(name, "it has not looked yet")
            self._monitors.degraded(name, message) if message else self._monitors.ok(name)

    def _take_look(self, monitor: Monitor, look: Look) -> None:
        self._known().take_look(monitor.name, look, self._clock.now())
        unread = [*look.unknown, *(message for message in probe_failures(look.probes).values() if message)]
        if unread:
            self._monitors.degraded(monitor.name, f"not readable now: {'; '.join(unread)}")
        else:
            self._monitors.ok(monitor.name)
        self._show()

    def _look_failed(self, monitor: Monitor, words: str) -> None:
        self._known().missed_look(monitor.name)
        self._monitors.degraded(monitor.name, words)
        self._show()

    async def _close_monitors(self) -> None:
        for task in self._tasks:
            await task.close()

    # Kernel log

    async def _watch_log(self) -> None:
        await self._ready.wait()
        backoff = Backoff(f"log/{self._node}", base_s=1.0, cap_s=60.0)
        while True:
            if await self._follow_log():
                backoff.reset()
            else:
                await self._clock.sleep(backoff.next_s())

    async def _follow_log(self) -> bool:
        """Read one batch, or notice that the log is quiet. Returns whether that succeeded."""
        reading = asyncio.create_task(self._read_source())
        try:
            if self._unfinished and not await self._answers_within(reading, RECORD_GAP_S):
                self._unfinished = False
                self._known().log_is_quiet(self._clock.now())
                self._show()
            if not self._caught_up and not await self._answers_within(reading, QUIET_S):
                self._caught_up = True
                self._known().log_is_clean(self._clock.now())
                self._show()
                return True
            batch = await reading
        except Exception as error:  # a failing monitor degrades alone, whatever its bug is
            self._monitors.degraded(KERNEL_LOG, f"the kernel log cannot be read: {_words(error)}")
            log.warning("%s: kernel log: %s", self._node, _words(error))
            self._show()
            return False
        finally:
            reading.cancel()
        try:
            self._take_batch(batch)
        except Exception as error:  # as above; the same records would break the next agent as well
            log.warning("%s: kernel log: %d records are skipped: %s", self._node, len(batch.records), _words(error))
            self._skip_batch(batch)
        # A storm must not keep heartbeat and inventory from running.
        await asyncio.sleep(0)
        return True

    async def _read_source(self) -> LogBatch:
        return await self._source.read(self._cursor)

    async def _answers_within(self, reading: asyncio.Task[LogBatch], seconds: float) -> bool:
        quiet = asyncio.create_task(self._clock.sleep(seconds))
        await asyncio.wait((reading, quiet), return_when=asyncio.FIRST_COMPLETED)
        quiet.cancel()
        return reading.done()

    def _take_batch(self, batch: LogBatch) -> None:
        now = self._clock.now()
        self._observer.log_read(len(batch.records), batch.lost)
        picture = self._known()
        if picture.read_log(batch.records, now):
            # What was wrong with the GPU is over unless the log says it again.
            self._caught_up = False
        self._cursor = batch.cursor
        self._unsaved = self._unfinished = True
        if batch.lost:
            self._lost += batch.lost
            self._lost_at = now
        elif self._lost_at is not None and not is_recent(self._lost_at, now, LOSS_SHOWN):
            self._lost, self._lost_at = 0, None
        self._monitors.ok(KERNEL_LOG)
        if self._lost:
            self._monitors.degraded(KERNEL_LOG, f"{self._lost} records were lost before they could be read")
        elif picture.unreadable:
            self._monitors.degraded(KERNEL_LOG, f"{picture.unreadable} records could not be understood")
        self._show()

    def _skip_batch(self, batch: LogBatch) -> None:
        self._cursor = batch.cursor
        self._unsaved = True
        self._lost += len(batch.records)
        self._lost_at = self._clock.now()
        self._monitors.degraded(KERNEL_LOG, f"{self._lost} records could not be judged")
        self._show()

    # Telling

    def figures(self) -> AgentFigures:
        """Monitors and open faults in counts."""
        faults = Counter({severity.value: 0 for severity in Severity})
        faults.update(f.severity.value for f in (self._picture.faults if self._picture is not None else ()))
        monitors = {m.name: m.state is MonitorState.OK for m in self._monitors.statuses()}
        return AgentFigures(monitors=monitors, open_faults=faults)

    def not_ready(self) -> str:
        """Why a roll-out of agents should wait for this one; empty when it need not.

        An API server that is away for a while is no fault of the agent: it goes on watching and publishes later.
        """
        result = self._publisher.result
        if result is None:
            return "nothing has been published yet"
        if result is PublishResult.REFUSED:
            return "the API server refuses what the agent publishes; its log says why"
        return ""

    # The picture

    def _known(self) -> Picture:
        assert self._picture is not None  # noqa: S101 - nothing is followed before the first readings
        return self._picture

    def _compose(self) -> Observed | None:
        if self._picture is None:
            return None
        return self._picture.compose(self._uid, self._version, self._monitors.statuses(), self._clock.now())

    def _show(self) -> None:
        """Publish the picture if it says something new, or if its counts have been out of date for a while."""
        observed = self._compose()
        if observed is None or self._picture is None:
            return
        before = self._picture.observed if self._offered else None
        stale = before is not None and not is_recent(before.observed_at, observed.observed_at, COUNT_REFRESH)
        if differs(before, observed, self._clock.now()) or (stale and observed != before):
            self._keep(observed)
            self._publisher.offer(observed)
            self._offered = True

    def _keep(self, observed: Observed) -> None:
        """On disk first: what was published must not be forgotten by the next agent."""
        self._known().observed = observed
        self._save()

    def _save(self) -> None:
        if self._picture is None:
            return
        for task in self._tasks:
            self._picture.keep_for(task.monitor.name, task.kept())
        try:
            self._state.save(memory.encode(self._picture.memory(self._cursor)))
        except (OSError, ValueError) as error:  # ValueError: text that is none
            # Without a disk the agent goes on; only a restart would then read the log again.
            log.warning("%s: cannot keep state: %s", self._node, _words(error))
            self._monitors.degraded(STATE, f"state cannot be kept on the node: {_words(error)}")
        else:
            self._unsaved = False
            self._saved_at = self._clock.now()
            if not self._monitors.is_ok(STATE):
                self._monitors.ok(STATE)


def _words(error: BaseException) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__
