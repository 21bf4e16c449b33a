"""The node controller: watches, decides node by node, writes, projects. Level-triggered and crash-only.

Decisions are made one after another, so that each sees the budget that the ones before have left. The order of writes
is fixed: first the lifecycle (the only truth, durable), then its projections and what follows from it. A controller
that dies in between is continued by the next one, which decides the same from the same state.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import NoReturn

from muster.clock import Clock
from muster.errors import MusterError, UnreachableError
from muster.kube.api import ApiError, ConflictError, KubeApi, NotFoundError, TooManyRequestsError
from muster.kube.events import EventKind, EventRecorder, node_reference
from muster.kube.metered import MeteredQueue
from muster.operate.batch import Batch, BatchPlan
from muster.operate.budget import Disruption, Member, Usage
from muster.operate.caches import Caches
from muster.operate.carry_out import NotLeadingError, Writer, always_leading
from muster.operate.decide import decide, decide_departed
from muster.operate.figures import CountedNode, ended_attempts, fleet_figures
from muster.operate.fleet_plan import FleetPlan, PlannedNode, plan_fleet
from muster.operate.fleet_usage import disruptions_of
from muster.operate.model import BlockerKind, Decision, FleetView, NodeView, Note, WavePlan
from muster.operate.policy import conditions
from muster.operate.remedy import DRAIN_RETRY_S
from muster.operate.together import run_together
from muster.operate.views import CertificationRecord, NodeRecord
from muster.plain_text import printable
from muster.resources.base import CONTROLLER_MANAGER
from muster.resources.certification import Certification, Phase
from muster.resources.node_health import Lifecycle, State, Transition
from muster.telemetry.observer import NEW, ControllerObserver, FleetFigures

log = logging.getLogger(__name__)

PLAN = "@plan"
POLICY = "@policy/"
PLAN_DELAY_S = 1.0
"""Changes of one burst are planned together."""

WORKERS = 8
RESYNC_S = 600.0
"""Every node is looked at again after this time, whatever happened or not."""


class NodeController:
    """Runs the lifecycle of every GPU node of one cluster. Exactly one may run at a time (see the election)."""

    def __init__(
        self,
        api: KubeApi,
        clock: Clock,
        *,
        identity: str = CONTROLLER_MANAGER,
        still_leading: Callable[[], Awaitable[bool]] = always_leading,
        tell: Callable[[str], None] = log.info,
        observer: ControllerObserver | None = None,
        resync_s: float = RESYNC_S,
        workers: int = WORKERS,
    ) -> None:
        """`tell` receives one line for each transition; `still_leading` asks whether the lease is still ours."""
        self._observer = observer or ControllerObserver()
        self.synced = False
        """Whether the picture of the cluster was complete once."""
        self._clock = clock
        self._tell = tell
        self._resync_s = resync_s
        self._workers = workers
        self._queue = MeteredQueue(clock, self._observer)
        self._caches = Caches(
            api,
            clock,
            changed=self._queue.add,
            work_changed=self._work_changed,
            heartbeat=self._heartbeat,
            policies_changed=self._policies_changed,
        )
        self._writer = Writer(api, clock, still_leading)
        self._events = EventRecorder(api, clock=clock, controller="muster-controller", instance=identity)
        self._turn = asyncio.Lock()
        self._disruptions: dict[str, tuple[Disruption, ...]] = {}
        self._members: dict[str, Member] = {}
        self._labels: dict[str, Mapping[str, str]] = {}
        self._usage: Usage | None = None
        self._plan = FleetPlan(WavePlan(), BatchPlan())

    async def run(self) -> None:
        """Work for ever; cancel it to stop. Raises NotLeadingError when another controller holds the lease."""
        try:
            await run_together(*self._caches.runs(), self._events.run(), self._lead())
        finally:
            self._queue.close()

    async def _lead(self) -> None:
        await self._caches.wait_synced()
        self.synced = True
        self._look_at_all()
        await run_together(self._resync(), *(self._work() for _ in range(self._workers)))

    async def _resync(self) -> NoReturn:
        while True:
            await self._clock.sleep(self._resync_s)
            self._look_at_all()

    def _look_at_all(self) -> None:
        for name in self._caches.managed():
            self._queue.add(name)
        for policy in self._caches.all_policies():
            self._queue.add(POLICY + policy.metadata.name)
        self._queue.add_after(PLAN, PLAN_DELAY_S)

    async def _work(self) -> NoReturn:
        loop = asyncio.get_running_loop()
        while True:
            key = await self._queue.get()
            started = loop.time()
            result = "failed"
            try:
                await self._handle(key)
                self._queue.forget(key)
                result = "done"
            except NotLeadingError:
                raise
            except ConflictError as error:
                result = "conflict"
                log.debug("%s changed meanwhile: %s", key, error)
                self._queue.retry(key)
            except TooManyRequestsError as error:
                result = "busy"
                self._queue.add_after(key, error.retry_after_s or 1.0)
            except (ApiError, UnreachableError) as error:
                log.warning("%s: %s; it is tried again", key, error)
                self._queue.retry(key)
            except MusterError as error:
                # A policy that cannot be used, for example: this node waits, the others go on.
                result = "refused"
                log.error("%s: %s", key, error)
                self._queue.retry(key)
            except Exception:
                # A bug that one node brings out, perhaps by what its agent says, must not stop all the others.
                log.exception("%s cannot be handled; it is tried again", key)
                self._queue.retry(key)
            finally:
                self._queue.done(key)
            if not key.startswith("@"):
                self._observer.decided(result, loop.time() - started)

    async def _handle(self, key: str) -> None:
        if key == PLAN:
            await self._plan_fleet()
        elif key.startswith(POLICY):
            await self._publish_policy(key.removeprefix(POLICY))
        else:
            await self._handle_node(key)

    # One node

    async def _handle_node(self, name: str) -> None:
        async with self._turn:
            record = self._caches.node(name)
            if record is None or name in self._caches.healths.rejected:
                self._forget(name)
                await self._bury(name)
                return
            decision = await self._decide(record)
        for note in decision.notes:
            self._record(name, note)
        await self._writer.project(record, decision.lifecycle)
        await self._carry_out(record, decision)
        if decision.recheck_at is not None:
            self._queue.add_after(name, (decision.recheck_at - self._clock.now()).total_seconds())

    async def _decide(self, record: NodeRecord) -> Decision:
        """Decide and make it durable. The caller holds the turn: nobody else spends the budget meanwhile."""
        view = self._caches.view(record)
        self._count(view, view.lifecycle)
        policy = self._caches.policy(record.name, record.labels)
        decision = decide(view, self._fleet(), policy, self._clock.now())
        if decision.lifecycle == view.lifecycle:
            return decision
        # Every time: a process that was suspended past its lease believes what was so before, of every node alike.
        await self._writer.fence()
        try:
            written = await self._writer.lifecycle(record.name, self._caches.health(record.name), decision.lifecycle)
        except NotFoundError as error:
            self._caches.latest.forget(record.name)
            raise ConflictError(404, "NotFound", f"NodeHealth {record.name} is gone") from error
        self._caches.latest.put(written)
        self._count(view, decision.lifecycle)
        self._say(view.name, view.lifecycle, decision.transitions)
        for attempt in ended_attempts(view.lifecycle, decision.lifecycle):
            self._observer.repair_ended(attempt.rung, attempt.outcome)
        self._queue.add_after(PLAN, PLAN_DELAY_S)
        return decision

    async def _bury(self, name: str) -> None:
        """Say in the NodeHealth of a node that left the cluster that it serves nobody. The caller holds the turn."""
        health = self._caches.health(name) if self._caches.nodes.get(name) is None else None
        before = health.status.lifecycle if health is not None else None
        if before is None or name in self._caches.healths.rejected:
            return
        after = decide_departed(before, name, self._clock.now())
        if after == before or not await self._writer.node_is_gone(name):
            return
        await self._writer.fence()
        try:
            self._caches.latest.put(await self._writer.lifecycle(name, health, after))
        except NotFoundError:
            self._caches.latest.forget(name)  # the NodeHealth is gone too
            return
        self._say(name, before, after.history[-1:])

    async def _carry_out(self, record: NodeRecord, decision: Decision) -> None:
        for intent in decision.intents:
            refusal = await self._writer.intent(intent)
            if refusal is not None and self._caches.refusals.get(refusal.pod_uid) != refusal:
                self._caches.refusals[refusal.pod_uid] = refusal
                self._queue.add(record.name)
            if refusal is not None:
                self._queue.add_after(record.name, DRAIN_RETRY_S)

    def _fleet(self) -> FleetView:
        if self._usage is None:
            self._usage = Usage(
                members=tuple(self._members[name] for name in sorted(self._members)),
                disruptions=tuple(d for name in sorted(self._disruptions) for d in self._disruptions[name]),
            )
        return FleetView(
            usage=self._usage,
            wave=self._plan.wave,
            batch_waits=self._plan.batches.waits,
            labels=self._labels,
        )

    def _count(self, view: NodeView, life: Lifecycle | None) -> None:
        """Keep the usage of the budget up to date with what is known about one node."""
        disruptions = disruptions_of(view.member, life) if life is not None else ()
        self._labels[view.name] = view.labels
        if self._members.get(view.name) != view.member or self._disruptions.get(view.name, ()) != disruptions:
            self._members[view.name] = view.member
            self._disruptions.pop(view.name, None)
            if disruptions:
                self._disruptions[view.name] = disruptions
            self._usage = None

    def _forget(self, name: str) -> None:
        self._labels.pop(name, None)
        if self._members.pop(name, None) is not None:
            self._disruptions.pop(name, None)
            self._usage = None

    # The fleet

    async def _plan_fleet(self) -> None:
        async with self._turn:
            now = self._clock.now()
            nodes = []
            for name in self._caches.managed():
                record = self._caches.node(name)
                if record is None:
                    continue
                view = self._caches.view(record)
                self._count(view, view.lifecycle)
                nodes.append(PlannedNode(view, self._caches.policy(name, record.labels), self._caches.in_test(name)))
            before = self._plan
            self._plan = plan_fleet(nodes, self._fleet().usage, now)
            for batch in self._plan.batches.batches:
                await self._create(batch)
        # Who waits for room in the budget with an open fault comes before those whose turn it merely is.
        for name in (*_waiting_for_budget(nodes), *self._plan.wave.turn):
            self._queue.add(name)
        for name in _news(before, self._plan):
            self._queue.add(name)
        for at in (self._plan.wave.recheck_at, self._plan.batches.recheck_at):
            if at is not None:
                self._queue.add_after(PLAN, max(PLAN_DELAY_S, (at - now).total_seconds()))

    async def _create(self, batch: Batch) -> None:
        certification = await self._writer.certification(batch)
        self._tell(
            f"{self._clock.now():%Y-%m-%dT%H:%M:%SZ} certification {batch.name}: {len(batch.spec.nodes)} node(s), "
            f"{len(batch.spec.partners)} partner(s), profile {batch.spec.profile}"
        )
        self._caches.created(_as_record(certification, batch))

    async def _publish_policy(self, name: str) -> None:
        policy = self._caches.policies.get(name)
        if policy is None:
            return
        found = conditions(policy, self._clock.now())
        if found != policy.status.conditions:
            await self._writer.policy_conditions(policy, found)

    # News

    def _work_changed(self, node: str) -> None:
        self._queue.add(node)
        if self._plan.batches.waits or self._plan.wave.waits:
            # Whether a node is idle decides about waves and partners.
            self._queue.add_after(PLAN, PLAN_DELAY_S)

    def _heartbeat(self, node: str) -> None:
        """A heartbeat matters only to a node that waits for one."""
        health = self._caches.health(node)
        life = health.status.lifecycle if health is not None else None
        if life is None or life.state is State.REPAIRING or any(b.kind == BlockerKind.AGENT for b in life.blockers):
            self._queue.add(node)

    def _policies_changed(self, name: str) -> None:
        self._queue.add(POLICY + name)
        for node in self._caches.managed():
            self._queue.add(node)

    # Telling

    def figures(self) -> FleetFigures | None:
        """The fleet in counts; None until the picture is complete."""
        if not self.synced:
            return None
        nodes = []
        for name in self._caches.managed():
            record = self._caches.node(name)
            if record is not None:
                policy = self._caches.policy(name, record.labels)
                nodes.append(CountedNode(name, record.labels, self._caches.health(name), policy))
        phases = [c.phase for c in self._caches.certifications.items().values()]
        return fleet_figures(nodes, self._fleet().usage, phases, len(self._queue))

    def _say(self, name: str, before: Lifecycle | None, transitions: tuple[Transition, ...]) -> None:
        state = before.state.value if before is not None else "(new)"
        for entry in transitions:
            known = NEW if before is None and entry is transitions[0] else state
            self._observer.transition(known, entry.state.value, entry.cause.kind.value)
            self._tell(
                f"{entry.at:%Y-%m-%dT%H:%M:%SZ} node {name}: {state} -> {entry.state.value} "
                f"({entry.cause.kind.value}: {printable(entry.cause.message or entry.cause.name)})"
            )
            state = entry.state.value

    def _record(self, name: str, note: Note) -> None:
        kind = EventKind.WARNING if note.warning else EventKind.NORMAL
        self._events.record(node_reference(name), note.reason, "Lifecycle", printable(note.message), kind)


def _as_record(certification: Certification, batch: Batch) -> CertificationRecord:
    return CertificationRecord(
        name=certification.metadata.name,
        created=None,
        spec=certification.spec,
        phase=Phase.PENDING,
        requests=dict(batch.requests),
    )


def _waiting_for_budget(nodes: Sequence[PlannedNode]) -> list[str]:
    """Nodes that would be held if the budget had room, longest waiting first."""
    waiting = []
    for node in nodes:
        life = node.view.lifecycle
        since = next((b.since for b in life.blockers if b.kind == BlockerKind.BUDGET), None) if life else None
        if since is not None:
            waiting.append((since, node.view.name))
    return [name for _, name in sorted(waiting)]


def _news(before: FleetPlan, after: FleetPlan) -> list[str]:
    """Nodes that are told something else now, sorted."""
    changed: set[str] = set()
    for old, new in ((before.wave.waits, after.wave.waits), (before.batches.waits, after.batches.waits)):
        changed.update(name for name in (*old, *new) if old.get(name) != new.get(name))
    return sorted(changed)
