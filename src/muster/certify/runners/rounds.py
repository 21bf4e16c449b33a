"""The coordinator's part of a round inside long-lived workers.

Crash-only: starting a run twice is a no-op, so a coordinator that begins in the middle of a round takes over what
runs. What answers mean is decided in `worker_messages`; here is when to ask, when to give up, and what to stop.
"""

from __future__ import annotations

import asyncio
import logging
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from muster.certify.catalogue import CatalogueTest
from muster.certify.isolation.plan import PlannedRun
from muster.certify.measure import HowEnded, RankEnd
from muster.certify.runners import Work
from muster.certify.runners.worker_link import (
    RunAnswer,
    RunPhase,
    WorkerAddress,
    WorkerLink,
    WorkerRefusedError,
    WorkerUnreachableError,
)
from muster.certify.runners.worker_messages import (
    apart,
    end_of,
    end_of_stopped,
    is_bad,
    lost_end,
    name_the_silent,
)
from muster.clock import Clock
from muster.workloads.run_spec import RunSpec

log = logging.getLogger(__name__)

START_LIMIT_S = 60.0
"""Until every worker of a run has taken it. They are up already when a round begins."""
START_SPREAD_S = 10.0
"""Ranks that began further apart than this may have given each other up. The first one waits at the rendezvous for
half of its time, and programs start within seconds of each other."""
POLL_S = 10.0
RETRY_S = 1.0
LOST_AFTER_S = 60.0
"""A worker on a node that is well may be out of reach this long (network, API of the node, restart of its pod)."""
PEER_GRACE_S = 30.0
"""When a run has failed on one node, the others get this long to say what they saw: the ranks of the node get 20 s,
and the roll call of the survivors takes five."""
OVERDUE_AFTER_S = 60.0
"""Time beyond the deadline of a run in which its worker must have ended it."""


@dataclass(frozen=True)
class Launch:
    """How the runs of a round are described to the workers."""

    device: str = "cuda"
    """`cuda` or `cpu`."""
    first_port: int = 29_500
    ports: int = 400
    """Rendezvous ports: runs of one round on one machine take different ones."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Environment of the programs beside that of the test and of `work.pods`; wins over both."""
    inject: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    """Faults to act out, by node: local runner and tests only."""
    timeout_s: float | None = None
    """Deadline of every run; None: that of its test."""
    prefix: str = ""
    """Goes before the ID of each run where workers outlive a certification, whose IDs begin anew."""

    def name(self, run: PlannedRun) -> str:
        """The run as the workers know it."""
        return self.prefix + run.id

    def spec(
        self,
        work: Work,
        run: PlannedRun,
        test: CatalogueTest,
        node_index: int,
        workers: Mapping[str, WorkerAddress],
    ) -> RunSpec:
        """What the node `run.nodes[node_index]` is asked to do. The same for the same run, whoever asks."""
        node, first = run.nodes[node_index], workers[run.nodes[0]].host
        ranks = min((work.gpus.get(n, 1) for n in run.nodes), default=1) if self.device == "cuda" else 1
        host = f"[{first}]" if ":" in first else first
        return RunSpec(
            run=self.name(run),
            test=run.test,
            program=test.program,
            params={**test.params, **_params_of(run.variant)},
            nodes=run.nodes,
            node_index=node_index,
            ranks_per_node=max(1, ranks),
            device=self.device,
            rendezvous=f"{host}:{self._port(run)}" if len(run.nodes) > 1 else "",
            timeout_s=self.timeout_s or float(test.deadline_s),
            env={**test.env, **work.pods.env, **self.env},
            inject=self.inject.get(node, {}),
        )

    def _port(self, run: PlannedRun) -> int:
        # From the ID alone: a run that another coordinator began must be described in the same words.
        last = run.id.rpartition("-")[2]
        number = int(last) if last.isascii() and last.isdigit() else zlib.crc32(run.id.encode())
        return self.first_port + (37 * run.round + number) % self.ports


def _params_of(variant: str) -> dict[str, object]:
    """Parameters of a part of a test: `rail=3` asks for the NIC 3 alone."""
    name, _, number = variant.partition("=")
    return {"rails": [int(number)]} if name == "rail" and number.isdigit() else {}


async def carry_out(
    clock: Clock,
    link: WorkerLink,
    workers: Mapping[str, WorkerAddress],
    work: Work,
    launch: Launch,
    alive: Callable[[str], bool],
) -> Mapping[str, tuple[RankEnd, ...]]:
    """Carry out all runs of `work` in parallel; run -> one end for each of its nodes, in rank order.

    `workers`: by node; a node without one makes its runs REFUSED. `alive` tells whether a node exists and is Ready.
    What runs already is adopted. When it is cancelled, runs go on in the workers. Every run is bounded by its
    deadline and by `work.until`; a run that failed on one node is stopped on all of them.
    """
    async with asyncio.TaskGroup() as group:
        conducts = {run.id: _Conduct(clock, link, workers, work, run, launch, alive) for run in work.runs}
        tasks = {run: group.create_task(conduct.run()) for run, conduct in conducts.items()}
    return {run: task.result() for run, task in tasks.items()}


class _Conduct:
    """One run on all its nodes."""

    def __init__(
        self,
        clock: Clock,
        link: WorkerLink,
        workers: Mapping[str, WorkerAddress],
        work: Work,
        run: PlannedRun,
        launch: Launch,
        alive: Callable[[str], bool],
    ) -> None:
        self._clock = clock
        self._link = link
        self._workers = workers
        self._work = work
        self._run = run
        self._name = launch.name(run)
        self._test = work.tests[run.test]
        self._launch = launch
        self._alive = alive
        self._cause: RankEnd | None = None
        """The first end that spoils the run."""
        self._cause_at = clock.now()
        self._deadline = work.until
        self._began: dict[str, datetime] = {}
        """When each worker took the run; the earliest time there is for one that had it already."""

    async def run(self) -> tuple[RankEnd, ...]:
        """All ends in rank order."""
        absent = [n for n in self._run.nodes if n not in self._workers]
        if absent:
            return self._not_begun({n: RankEnd(n, HowEnded.REFUSED, message="no worker came up") for n in absent})
        begun = self._clock.now()
        async with asyncio.TaskGroup() as group:
            starts = [group.create_task(self._start(i)) for i in range(len(self._run.nodes))]
        refused = {end.node: end for task in starts if (end := task.result()) is not None}
        if refused:
            async with asyncio.TaskGroup() as group:
                for node in self._run.nodes:
                    group.create_task(self._stop(node))
            return self._not_begun(refused)
        limit_s = self._launch.timeout_s or float(self._test.deadline_s)
        self._deadline = min(self._work.until, self._clock.now() + timedelta(seconds=limit_s + OVERDUE_AFTER_S))
        async with asyncio.TaskGroup() as group:
            ends = [group.create_task(self._follow(node, begun)) for node in self._run.nodes]
        found = [task.result() for task in ends]
        return apart(found) if self._spread_s() > START_SPREAD_S else name_the_silent(found)

    def _spread_s(self) -> float:
        """How far apart the ranks began, as far as can be told."""
        return (max(self._began.values()) - min(self._began.values())).total_seconds()

    def _not_begun(self, refused: Mapping[str, RankEnd]) -> tuple[RankEnd, ...]:
        words = "waited for a rank that did not come"
        return tuple(refused.get(n) or RankEnd(n, HowEnded.MUTE, message=words) for n in self._run.nodes)

    # Beginning

    async def _start(self, index: int) -> RankEnd | None:
        """Hand the run to one worker; the end when it does not take it."""
        node = self._run.nodes[index]
        worker = self._workers[node]
        spec = self._launch.spec(self._work, self._run, self._test, index, self._workers)
        limit = min(self._work.until, self._clock.now() + timedelta(seconds=START_LIMIT_S))
        while True:
            try:
                began = await self._link.start(worker, spec)
                # It began when a coordinator that is gone, or a request whose answer was lost, asked for it.
                self._began[node] = self._clock.now() if began else datetime.min.replace(tzinfo=UTC)
                return None
            except WorkerRefusedError as error:
                why, busy = str(error), error.busy
                if not busy:
                    return RankEnd(node, HowEnded.REFUSED, message=why)
                # Left behind by a round that was given up.
                await self._stop(node, busy)
            except WorkerUnreachableError as error:
                why = str(error)
                if not self._alive(node):
                    return RankEnd(node, HowEnded.DISTURBED, message="the node is gone or not Ready")
            if self._clock.now() >= limit:
                return RankEnd(node, HowEnded.REFUSED, message=f"the worker does not take the run: {why}")
            await self._clock.sleep(RETRY_S)

    # Going on

    async def _follow(self, node: str, begun: datetime) -> RankEnd:
        end = await self._until_end(node, begun)
        if is_bad(end) and self._cause is None:
            self._cause, self._cause_at = end, self._clock.now()
        return end

    async def _until_end(self, node: str, begun: datetime) -> RankEnd:
        worker = self._workers[node]
        lost_since: datetime | None = None
        while True:
            now = self._clock.now()
            if now >= self._deadline:
                return await self._give_up(node)
            cause = self._cause
            if cause is not None and now >= self._cause_at + timedelta(seconds=PEER_GRACE_S):
                return await self._stop_for(node, cause, begun)
            try:
                answer = await self._link.result(worker, self._name, self._wait_s(now))
            except WorkerUnreachableError as error:
                if not self._alive(node):
                    return lost_end(node, alive=False)
                now = self._clock.now()
                lost_since = lost_since or now
                if now >= lost_since + timedelta(seconds=LOST_AFTER_S):
                    return RankEnd(node, HowEnded.OVERDUE, message=f"the worker cannot be reached: {error}")
                await self._clock.sleep(RETRY_S)
                continue
            except WorkerRefusedError as error:
                return RankEnd(node, HowEnded.DISTURBED, message=str(error))
            lost_since = None
            match answer.phase:
                case RunPhase.ENDED:
                    return end_of(node, answer, begun, self._clock.now())
                case RunPhase.UNKNOWN:
                    return lost_end(node, alive=self._alive(node))
                case RunPhase.RUNNING:
                    continue

    def _wait_s(self, now: datetime) -> float:
        """How long the worker may take to answer: not beyond the moment at which something else is due."""
        moments = [self._deadline]
        if self._cause is not None:
            moments.append(self._cause_at + timedelta(seconds=PEER_GRACE_S))
        return min([POLL_S, *((moment - now).total_seconds() for moment in moments)])

    # Stopping

    async def _give_up(self, node: str) -> RankEnd:
        await self._stop(node)
        up = self._clock.now() >= self._work.until
        words = "the time of the certification was up" if up else "the worker did not end the run at its deadline"
        return RankEnd(node, HowEnded.OVERDUE, message=words)

    async def _stop_for(self, node: str, cause: RankEnd, begun: datetime) -> RankEnd:
        """Stop the run, which has failed elsewhere; what the node had to say at the last moment counts."""
        await self._stop(node)
        try:
            answer = await self._link.result(self._workers[node], self._name, 0.0)
        except (WorkerUnreachableError, WorkerRefusedError):
            answer = RunAnswer(RunPhase.RUNNING)
        if answer.phase is RunPhase.ENDED and answer.report:
            return end_of(node, answer, begun, self._clock.now())
        return end_of_stopped(node, cause)

    async def _stop(self, node: str, run: str = "") -> None:
        """End a run where that can be done; what cannot be reached is stopped when the node is used again."""
        worker = self._workers[node]
        try:
            await self._link.stop(worker, run or self._name)
        except (WorkerUnreachableError, WorkerRefusedError) as error:
            log.warning("run %s on %s is not known to be stopped: %s", run or self._name, node, error)
