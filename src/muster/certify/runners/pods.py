"""Runs as pods: one per rank, created at once, watched until all ended, deleted and seen to be gone.

Crash-only: names are deterministic, so a runner that starts in the middle of a round takes over what is there.
Waiting to start and running are separate clocks: a pod that does not start within START_LIMIT_S makes its run
INVALID, never a failure of a node.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial

from muster.certify.durable import first_news, in_parallel, persist
from muster.certify.isolation.plan import PlannedRun
from muster.certify.measure import HowEnded, RankEnd
from muster.certify.runners import Owner, Tell, Work
from muster.certify.runners.test_pod import DEFAULT_IMAGE, STOP_S, TestPod, build, end_of, pod_name, project
from muster.clock import Clock
from muster.errors import BadInputError
from muster.kube.api import (
    PODS,
    AlreadyExistsError,
    ApiError,
    ConflictError,
    KubeApi,
    NotFoundError,
)
from muster.kube.cache import WatchCache
from muster.resources.base import CERTIFICATION_LABEL, RUN_LABEL, SYSTEM_NAMESPACE

log = logging.getLogger(__name__)

MANAGER = "muster-certifier"
START_LIMIT_S = 300.0
"""Until all ranks run: images come down, other pods leave the GPUs."""
BLOCKED_AFTER_S = 45.0
"""A pod that has not started after this time is reported as what blocks the certification."""
OVERDUE_AFTER_S = 60.0
"""Time beyond a test's deadline in which the kubelet must have stopped the pod."""
FORCE_AFTER_S = 120.0
"""A pod on a node that is gone or not Ready is deleted by force after this time: nobody can confirm its end."""


@dataclass
class _Tracked:
    """A run in progress."""

    run: PlannedRun
    deadline_s: float
    since: datetime
    refused: dict[int, str] = field(default_factory=dict)
    """Ranks whose pods the API server does not accept."""
    seen: set[int] = field(default_factory=set)
    """Ranks whose pods were there."""
    started_at: datetime | None = None
    """When the last rank started."""


class PodRunner:
    """Carries out rounds as pods in the system namespace. One watch serves all certifications.

    `alive` tells whether a node exists and is Ready. `run` keeps the watch and must run beside everything else.
    """

    def __init__(
        self,
        api: KubeApi,
        clock: Clock,
        *,
        image: str = DEFAULT_IMAGE,
        alive: Callable[[str], bool] = lambda _: True,
        on_change: Callable[[str], None] | None = None,
    ) -> None:
        self._api = api
        self._clock = clock
        self._image = image
        self._alive = alive
        self._on_change = on_change
        self._pods_of: dict[str, dict[str, TestPod]] = {}
        self._certification_of: dict[str, str] = {}
        self._news: dict[str, asyncio.Event] = {}
        self._cache: WatchCache[TestPod] = WatchCache(
            api,
            PODS,
            project,
            clock=clock,
            namespace=SYSTEM_NAMESPACE,
            label_selector=f"{CERTIFICATION_LABEL},{RUN_LABEL}",
            on_change=self._changed,
        )

    async def run(self) -> None:
        """Watch test pods for ever."""
        await self._cache.run()

    async def wait_synced(self) -> None:
        """Return when all test pods are known."""
        await self._cache.wait_synced()

    def certifications(self) -> tuple[str, ...]:
        """Names of the certifications that have pods, sorted."""
        return tuple(sorted(self._pods_of))

    def nodes_of(self, certification: str) -> tuple[str, ...]:
        """Nodes with pods of the certification, sorted."""
        return tuple(sorted({p.node for p in self._pods_of.get(certification, {}).values()}))

    def _changed(self, key: str) -> None:
        name = key.partition("/")[2]
        pod = self._cache.get(key)
        before = self._certification_of.pop(name, "")
        if before:
            mine = self._pods_of[before]
            del mine[name]
            if not mine:
                del self._pods_of[before]
        if pod is not None:
            self._pods_of.setdefault(pod.certification, {})[name] = pod
            self._certification_of[name] = pod.certification
        concerned = pod.certification if pod is not None else before
        if concerned in self._news:
            self._news[concerned].set()
        # What goes on inside a round interests nobody outside; that the last pod is gone does.
        if self._on_change is not None and concerned not in self._pods_of:
            self._on_change(concerned)

    def _news_of(self, certification: str) -> asyncio.Event:
        return self._news.setdefault(certification, asyncio.Event())

    # A round

    async def carry_out(self, work: Work, blocked: Tell) -> Mapping[str, tuple[RankEnd, ...]]:
        """Run everything in parallel; how each run ended, its ranks in rank order. What runs already is adopted.

        Raises what `blocked` raises. May be cancelled at any time: a later call continues.
        """
        news = self._news_of(work.owner.name)
        await self._start_over(work)
        now = self._clock.now()
        tracked = [_Tracked(run, float(work.tests[run.test].deadline_s), now) for run in work.runs]
        present = self._pods_of.get(work.owner.name, {})
        await in_parallel(
            partial(self._create, work, one, rank)
            for one in tracked
            for rank in range(len(one.run.nodes))
            if pod_name(work.owner.name, one.run.id, rank) not in present
        )
        ended: dict[str, tuple[RankEnd, ...]] = {}
        said = ""
        while True:
            news.clear()
            now = self._clock.now()
            waits = []
            for one in tracked:
                if one.run.id in ended:
                    continue
                ends = self._ends(work, one, now)
                if ends is not None:
                    ended[one.run.id] = ends
                else:
                    waits.append(self._next_look_s(work, one, now))
            if not waits:
                break
            trouble = self._trouble(work, [one for one in tracked if one.run.id not in ended], now)
            if trouble != said:
                said = trouble
                await blocked(trouble)
            await first_news(self._clock, news, max(0.001, min(waits)))
        if said:
            await blocked("")
        return ended

    async def _start_over(self, work: Work) -> None:
        """Remove runs of which a part ended while another part was never created: the ranks cannot meet any more."""
        mine = self._pods_of.get(work.owner.name, {})
        broken = []
        for run in work.runs:
            names = [pod_name(work.owner.name, run.id, rank) for rank in range(len(run.nodes))]
            there = [mine[name] for name in names if name in mine]
            if any(p.deleting for p in there) or (len(there) < len(names) and any(p.ended for p in there)):
                broken += there
        if broken:
            await self._remove(work.owner.name, lambda p: any(p.uid == b.uid for b in broken), _quiet)

    async def _create(self, work: Work, one: _Tracked, rank: int) -> None:
        run = one.run
        test, gpus = work.tests[run.test], work.gpus[run.nodes[rank]]
        try:
            body = build(work.owner, run, rank, test, gpus, self._image, work.pods)
        except BadInputError as error:
            one.refused[rank] = str(error)
            return
        name = body["metadata"]["name"]

        async def act() -> None:
            await self._api.create(PODS, body, SYSTEM_NAMESPACE, manager=MANAGER)

        try:
            await persist(self._clock, f"creation of pod {name}", act)
        except AlreadyExistsError:
            return  # a request that seemed to fail had taken effect; the watch shows the pod
        except ApiError as error:
            log.warning("pod %s is not accepted: %s", name, error)
            one.refused[rank] = str(error)

    def _ends(self, work: Work, one: _Tracked, now: datetime) -> tuple[RankEnd, ...] | None:
        """How the ranks ended; None while the run goes on."""
        run = one.run
        mine = self._pods_of.get(work.owner.name, {})
        pods = [mine.get(pod_name(work.owner.name, run.id, rank)) for rank in range(len(run.nodes))]
        ends = [self._end(work, one, rank, pod) for rank, pod in enumerate(pods)]
        over = [e for e in ends if e is not None]
        if len(over) == len(ends):
            return tuple(over)
        # Ranks that wait for one that will never come are not waited for.
        hopeless = any(e.how in (HowEnded.REFUSED, HowEnded.DISTURBED) for e in over) and len(over) < len(ends)
        complete = all(p is not None and (p.started or p.ended) for p in pods)
        if complete and one.started_at is None:
            one.started_at = now
        if hopeless:
            return self._rest(run, ends, HowEnded.MUTE, "waited for a rank that did not come")
        if now >= work.until:
            return self._rest(run, ends, HowEnded.OVERDUE, "the time of the certification was up")
        if one.started_at is None:
            if now < one.since + timedelta(seconds=START_LIMIT_S):
                return None
            missing = [p is None or not (p.started or p.ended) for p in pods]
            return tuple(
                e or RankEnd(node, HowEnded.REFUSED if late else HowEnded.MUTE, message=_not_started(pod))
                for e, node, late, pod in zip(ends, run.nodes, missing, pods, strict=True)
            )
        if now >= one.started_at + timedelta(seconds=one.deadline_s + OVERDUE_AFTER_S):
            return self._rest(run, ends, HowEnded.OVERDUE, "the pod did not end at its deadline")
        return None

    @staticmethod
    def _rest(run: PlannedRun, ends: Sequence[RankEnd | None], how: HowEnded, why: str) -> tuple[RankEnd, ...]:
        """The ends with every rank that has not ended put down as `how`."""
        return tuple(e or RankEnd(node, how, message=why) for e, node in zip(ends, run.nodes, strict=True))

    @staticmethod
    def _end(work: Work, one: _Tracked, rank: int, pod: TestPod | None) -> RankEnd | None:
        node = one.run.nodes[rank]
        if rank in one.refused:
            return RankEnd(node, HowEnded.REFUSED, message=one.refused[rank])
        if pod is None:
            gone = rank in one.seen
            return RankEnd(node, HowEnded.DISTURBED, message="the pod went away") if gone else None
        if pod.owner_uid != work.owner.uid or pod.node != node:
            return RankEnd(node, HowEnded.DISTURBED, message=f"the pod {pod.name} is not of this certification")
        one.seen.add(rank)
        return end_of(pod, work.tests[one.run.test])

    def _next_look_s(self, work: Work, one: _Tracked, now: datetime) -> float:
        """Seconds until something about the run changes without an event."""
        moments = [work.until]
        if one.started_at is None:
            age = [one.since + timedelta(seconds=s) for s in (BLOCKED_AFTER_S, START_LIMIT_S)]
            moments += [moment for moment in age if moment > now]
        else:
            moments.append(one.started_at + timedelta(seconds=one.deadline_s + OVERDUE_AFTER_S))
        return (min(moments) - now).total_seconds()

    def _trouble(self, work: Work, tracked: Sequence[_Tracked], now: datetime) -> str:
        """What keeps runs from starting, in a sentence; nothing while they are on time."""
        mine = self._pods_of.get(work.owner.name, {})
        for one in tracked:
            if one.started_at is not None or now < one.since + timedelta(seconds=BLOCKED_AFTER_S):
                continue
            for rank, node in enumerate(one.run.nodes):
                pod = mine.get(pod_name(work.owner.name, one.run.id, rank))
                if pod is None or not (pod.started or pod.ended):
                    return f"Run {one.run.id} waits for its pod on {node}: {_not_started(pod)}."
        return ""

    # Cleaning up

    async def clean(self, owner: Owner, keep: frozenset[str], blocked: Tell) -> None:
        """End all pods of certifications of this name but those of the runs `keep` of `owner`; see them gone."""
        await self._remove(owner.name, lambda p: p.owner_uid != owner.uid or p.run not in keep, blocked)

    async def _remove(self, certification: str, chosen: Callable[[TestPod], bool], blocked: Tell) -> None:
        news = self._news_of(certification)
        started = self._clock.now()
        asked: dict[str, bool] = {}
        said = ""
        while True:
            news.clear()
            left = [p for _, p in sorted(self._pods_of.get(certification, {}).items()) if chosen(p)]
            if not left:
                break
            waited_s = (self._clock.now() - started).total_seconds()
            doomed = [(p, waited_s >= FORCE_AFTER_S and not self._alive(p.node)) for p in left]
            todo = [(p, force) for p, force in doomed if p.uid not in asked or (force and not asked[p.uid])]
            asked.update({p.uid: force for p, force in todo})
            await in_parallel(partial(self._delete, p, force) for p, force in todo)
            if waited_s >= BLOCKED_AFTER_S:
                text = f"Waits until the pod {left[0].name} on {left[0].node} is gone."
                if text != said:
                    said = text
                    await blocked(text)
            # A node may fall silent without a word about the pod: look again after a while.
            await first_news(self._clock, news, BLOCKED_AFTER_S)
        if said:
            await blocked("")

    async def _delete(self, pod: TestPod, force: bool) -> None:
        act = partial(
            self._api.delete,
            PODS,
            pod.name,
            SYSTEM_NAMESPACE,
            grace_period_s=0 if force else STOP_S,
            uid=pod.uid,
        )
        try:
            await persist(self._clock, f"deletion of pod {pod.name}", act)
        except (NotFoundError, ConflictError):
            return  # gone, or another pod has the name

    def forget(self, certification: str) -> None:
        """Nothing of the certification is under way here any more."""
        self._news.pop(certification, None)


def _not_started(pod: TestPod | None) -> str:
    if pod is None:
        return "the pod did not appear"
    return pod.trouble or f"the pod is {pod.phase} and has not started"


async def _quiet(_: str) -> None:
    return
