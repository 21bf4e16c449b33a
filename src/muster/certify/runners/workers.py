"""Runs inside long-lived workers on Kubernetes: one pod per node, started once, asked run after run.

Queueing, scheduling, pulling images, starting and running are separate clocks (`worker_phase.Limits`). A worker that
does not come up makes its runs INVALID with what the cluster says about it, never a failure of a node; the time it
was waited for is no part of any run. Crash-only: whoever leads next finds Jobs, token and runs by their names.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from muster.certify.durable import first_news
from muster.certify.isolation.plan import PlannedRun
from muster.certify.measure import HowEnded, RankEnd
from muster.certify.runners import Owner, Tell, Work, rounds
from muster.certify.runners.worker_link import WorkerAddress, WorkerLink
from muster.certify.runners.worker_objects import ForeignObjectError, WorkerObjects, Workers
from muster.certify.runners.worker_phase import Limits, Phase, Standing, WorkerPod, standings
from muster.certify.runners.worker_pods import PORT, Images
from muster.clock import Clock
from muster.errors import BadInputError
from muster.kube.api import ForbiddenError, InvalidError, KubeApi

log = logging.getLogger(__name__)

BLOCKED_AFTER_S = 45.0
"""A worker that has not come up after this time is reported as what blocks the certification."""


@dataclass(frozen=True)
class _Since:
    """Since when a worker has been in a phase. `pod`: for a worker that was started again the clock begins anew."""

    phase: Phase
    pod: str
    at: datetime


@dataclass(frozen=True)
class _Waits:
    """What outlives a round, so that what did not come up in one is neither waited for nor asked about anew."""

    since: dict[str, _Since] = field(default_factory=dict)
    """By node."""
    events: dict[str, str] = field(default_factory=dict)
    """Job -> why it has no pods, as the cluster last said."""


@dataclass
class _WaitClock:
    """How long nothing has run because workers are waited for: no part of the time of runs."""

    passed_s: float = 0.0
    since: datetime | None = None

    def look(self, now: datetime, idle: bool) -> None:
        """Take note of whether nothing runs now."""
        if idle and self.since is None:
            self.since = now
        elif not idle and self.since is not None:
            self.passed_s, self.since = self.at(now), None

    def at(self, now: datetime) -> float:
        """Seconds until `now`."""
        return self.passed_s + ((now - self.since).total_seconds() if self.since is not None else 0.0)


@dataclass(frozen=True)
class _Means:
    """What a round is carried out with."""

    clock: Clock
    link: WorkerLink
    objects: WorkerObjects
    alive: Callable[[str], bool]
    launch: rounds.Launch
    limits: Limits
    address: Callable[[WorkerPod], tuple[str, int]]


class WorkerRunner:
    """Carries out rounds in workers, for all certifications of the cluster. `run` must run beside everything else.

    `alive` tells whether a node exists and is Ready; `on_change` is called with a certification when nothing of it
    is left in the cluster. `address` tells where the worker in a pod listens.
    """

    def __init__(
        self,
        api: KubeApi,
        clock: Clock,
        link: WorkerLink,
        images: Images,
        *,
        alive: Callable[[str], bool] = lambda _: True,
        on_change: Callable[[str], None] = lambda _: None,
        random_bytes: Callable[[int], bytes] = secrets.token_bytes,
        launch: rounds.Launch | None = None,
        limits: Limits | None = None,
        address: Callable[[WorkerPod], tuple[str, int]] = lambda pod: (pod.ip, PORT),
    ) -> None:
        self._objects = WorkerObjects(api, clock, images, random_bytes=random_bytes, alive=alive, on_change=on_change)
        self._means = _Means(
            clock, link, self._objects, alive, launch or rounds.Launch(), limits or Limits(), address
        )
        self._waits: dict[str, _Waits] = {}

    async def run(self) -> None:
        """Watch Jobs and pods of workers for ever."""
        await self._objects.run()

    async def wait_synced(self) -> None:
        """Return when all of them are known."""
        await self._objects.wait_synced()

    def certifications(self) -> tuple[str, ...]:
        """Names of the certifications that have workers, sorted."""
        return self._objects.certifications()

    def nodes_of(self, certification: str) -> tuple[str, ...]:
        """Nodes with pods of the certification's workers, sorted."""
        return tuple(sorted({p.node for p in self._objects.pods(certification) if p.node}))

    def forget(self, certification: str) -> None:
        """Nothing of the certification is under way here any more."""
        self._objects.forget(certification)
        self._waits.pop(certification, None)

    async def clean(self, owner: Owner, keep: frozenset[str], blocked: Tell) -> None:
        """Remove workers of other certifications of this name; with nothing to `keep` those of `owner` too."""
        await self._objects.remove(owner, blocked, others_only=bool(keep))
        if not keep:
            self._waits.pop(owner.name, None)

    async def carry_out(self, work: Work, blocked: Tell) -> Mapping[str, tuple[RankEnd, ...]]:
        """Run everything in parallel, each run as soon as its workers are up; what runs already is adopted.

        Raises what `blocked` raises. May be cancelled at any time: a later call continues.
        """
        if not work.runs:
            return {}
        try:
            await self._objects.see_ended(work.owner, blocked)
            workers = await self._objects.ensure(work, blocked)
        except (ForeignObjectError, BadInputError, InvalidError, ForbiddenError) as error:
            log.warning("certification %s: its workers cannot be made: %s", work.owner.name, error)
            return {run.id: _all(run, HowEnded.REFUSED, f"no workers: {error}") for run in work.runs}
        waits = self._waits.setdefault(work.owner.name, _Waits())
        return await _Round(self._means, work, workers, blocked, waits).carry_out()


class _Round:
    """One round: waits for workers, hands runs over to them, and says what blocks."""

    def __init__(self, means: _Means, work: Work, workers: Workers, blocked: Tell, waits: _Waits) -> None:
        self._means = means
        self._work = work
        self._workers = workers
        self._blocked = blocked
        self._clocks, self._events = waits.since, waits.events
        self._wait = _WaitClock()
        self._found: Mapping[str, Standing] = {}

    async def carry_out(self) -> Mapping[str, tuple[RankEnd, ...]]:
        """The ends of all runs."""
        ended: dict[str, tuple[RankEnd, ...]] = {}
        tasks: dict[str, asyncio.Task[tuple[RankEnd, ...]]] = {}
        try:
            await self._start_all(ended, tasks)
            for run_id, task in tasks.items():
                ended[run_id] = await task
        finally:
            for task in tasks.values():
                task.cancel()
            await asyncio.gather(*tasks.values(), return_exceptions=True)
        return {run.id: ended[run.id] for run in self._work.runs}

    async def _start_all(
        self, ended: dict[str, tuple[RankEnd, ...]], tasks: dict[str, asyncio.Task[tuple[RankEnd, ...]]]
    ) -> None:
        """Return when every run has ended for want of workers, or is in their hands."""
        news = self._means.objects.news(self._work.owner.name)
        waiting = list(self._work.runs)
        said = ""
        told: datetime | None = None
        while True:
            news.clear()
            self._look()
            for run in waiting:
                ends = self._hopeless(run)
                if ends is not None:
                    ended[run.id] = ends
                elif all(self._found[node].phase is Phase.UP for node in run.nodes):
                    tasks[run.id] = asyncio.ensure_future(self._hand_over(run))
                    tasks[run.id].add_done_callback(lambda _: news.set())
            waiting = [run for run in waiting if run.id not in ended and run.id not in tasks]
            self._wait.look(self._means.clock.now(), bool(waiting) and all(t.done() for t in tasks.values()))
            trouble = await self._trouble(waiting)
            if trouble != said:
                said = trouble
                await self._blocked(trouble)
            since = self._wait.since if trouble or self._wait.since == told else None
            if since != told:
                told = since
                await self._work.waiting(since)
            if not waiting:
                return
            await first_news(self._means.clock, news, self._next_look_s(waiting))

    async def _hand_over(self, run: PlannedRun) -> tuple[RankEnd, ...]:
        """Let the workers carry out the run; how it ended on each node."""
        means = self._means
        pods = {node: pod for node in run.nodes if (pod := self._found[node].pod) is not None}
        addresses = {
            node: WorkerAddress(node, *means.address(pod), self._workers.token) for node, pod in pods.items()
        }

        def well(node: str) -> bool:
            pod = means.objects.pod(pods[node].name) if node in pods else None
            return (
                means.alive(node)
                and pod is not None
                and pod.uid == pods[node].uid
                and not pod.ended
                and not pod.disturbed
            )

        one = replace(self._work, runs=(run,), until=self._until())
        ends = await rounds.carry_out(means.clock, means.link, addresses, one, means.launch, well)
        return tuple(self._explained(end, pods[end.node]) for end in ends[run.id])

    def _explained(self, end: RankEnd, pod: WorkerPod) -> RankEnd:
        """A worker that is out of reach because it ended by itself has crashed: its own doing, and evidence."""
        now = self._means.objects.pod(pod.name)
        silent = end.how in (HowEnded.OVERDUE, HowEnded.REFUSED, HowEnded.DISTURBED)
        if not silent or now is None or now.uid != pod.uid or not now.ended or now.disturbed:
            return end
        return RankEnd(end.node, HowEnded.CRASHED, message=f"the worker ended ({now.words})")

    # Waiting

    def _look(self) -> None:
        """Take note of how far the workers are."""
        name, uid = self._work.owner.name, self._work.owner.uid
        jobs = {j.name: j for j in self._means.objects.jobs(name) if j.owner_uid == uid}
        nodes = sorted({*self._workers.job_of, *(n for run in self._work.runs for n in run.nodes)})
        self._found = standings(nodes, jobs, self._means.objects.pods(name), self._workers.job_of)
        for node, standing in self._found.items():
            pod, since = standing.pod.uid if standing.pod is not None else "", self._clocks.get(node)
            if since is None or (since.phase, since.pod) != (standing.phase, pod):
                self._clocks[node] = _Since(standing.phase, pod, self._means.clock.now())

    def _waited_s(self, node: str) -> float:
        return (self._means.clock.now() - self._clocks[node].at).total_seconds()

    def _hopeless(self, run: PlannedRun) -> tuple[RankEnd, ...] | None:
        """How a run ends whose workers do not come up; None while they may."""
        over = self._left_s() <= 0
        late: dict[str, str] = {}
        for node in run.nodes:
            phase = self._found[node].phase
            limit_s = self._means.limits.of(phase)
            if phase is not Phase.UP and (over or (limit_s is not None and self._waited_s(node) >= limit_s)):
                late[node] = f"the worker {self._words(node)}"
        if not late:
            return None
        return tuple(
            RankEnd(node, HowEnded.REFUSED, message=late[node])
            if node in late
            else RankEnd(node, HowEnded.MUTE, message="waited for a worker that did not come")
            for node in run.nodes
        )

    def _until(self) -> datetime:
        """When the time of the runs is up: what nothing ran for is not counted."""
        if self._work.wait_s is None:
            return self._work.until
        return self._work.until + timedelta(seconds=min(self._wait.at(self._means.clock.now()), self._work.wait_s))

    def _left_s(self) -> float:
        """Seconds until nobody is waited for any more, as long as nothing runs."""
        now = self._means.clock.now()
        if self._work.wait_s is not None and self._wait.since is not None:
            return self._work.wait_s - self._wait.at(now)
        return (self._until() - now).total_seconds()

    def _words(self, node: str) -> str:
        standing = self._found[node]
        words = standing.words
        if standing.phase is Phase.ABSENT:
            words = self._events.get(self._workers.job_of.get(node, ""), "") or words
        return f"{_DOING[standing.phase]}: {words}"

    async def _trouble(self, waiting: Sequence[PlannedRun]) -> str:
        """What keeps runs from starting, in a sentence; nothing while they are on time."""
        late = [
            node
            for run in waiting
            for node in run.nodes
            if self._found[node].phase is not Phase.UP and self._waited_s(node) >= BLOCKED_AFTER_S
        ]
        if not late:
            return ""
        if self._found[late[0]].phase is Phase.ABSENT:
            job = self._workers.job_of.get(late[0], "")
            self._events[job] = await self._means.objects.why_no_pods(job)
        more = f" ({len(late) - 1} more node(s) wait too)" if len(late) > 1 else ""
        return f"Waits for {late[0]}: the worker {self._words(late[0])}{more}."

    def _next_look_s(self, waiting: Sequence[PlannedRun]) -> float:
        """Seconds until something changes without news."""
        moments = [self._left_s()]
        for node in (n for run in waiting for n in run.nodes if self._found[n].phase is not Phase.UP):
            waited_s = self._waited_s(node)
            limits = (BLOCKED_AFTER_S, self._means.limits.of(self._found[node].phase))
            moments += [s - waited_s for s in limits if s is not None and s > waited_s]
        return max(0.001, min(moments))


_DOING = {
    Phase.ABSENT: "has no pod",
    Phase.QUEUED: "is queued",
    Phase.SCHEDULING: "is not scheduled",
    Phase.PULLING: "gets no image",
    Phase.STARTING: "is starting",
    Phase.UP: "is up",
    Phase.LOST: "does not come back",
}


def _all(run: PlannedRun, how: HowEnded, why: str) -> tuple[RankEnd, ...]:
    return tuple(RankEnd(node, how, message=why) for node in run.nodes)
