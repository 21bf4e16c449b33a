"""The node controller: watches, decides node by node, writes, projects. Level-triggered and crash-only.

Decisions are made one after another, so that each sees the budget that the ones before have left; they are written
side by side, and given back to the budget when a write fails. The order of writes of one node is fixed: first the
lifecycle (the only truth, durable), then its projections and what follows from it. A controller that dies in between
is continued by the next one, which decides the same from the same state.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import NoReturn

from muster.clock import Clock
from muster.errors import MusterError, UnreachableError
from muster.kube.api import ApiError, ConflictError, KubeApi, NotFoundError, TooManyRequestsError
from muster.kube.events import EventRecorder
from muster.kube.metered import MeteredQueue
from muster.operate.announce import Announcer, OnTransitions
from muster.operate.batch import Batch, BatchPlan
from muster.operate.budget import BEGINNING
from muster.operate.caches import Caches
from muster.operate.carry_out import NotLeadingError, Writer, always_leading
from muster.operate.checkpoint_webhook import CheckpointCalls, Post, post
from muster.operate.coverage import Standard
from muster.operate.decide import decide, decide_departed
from muster.operate.figures import CountedNode, fleet_figures
from muster.operate.fleet_plan import FleetPlan, news, plan_fleet, waiting_for_budget
from muster.operate.fleet_roles import PlannedNode
from muster.operate.fleet_tally import FleetTally
from muster.operate.fleet_usage import comes_back
from muster.operate.model import (
    BlockerKind,
    CallCheckpoint,
    CheckpointAnswer,
    Decision,
    NodeView,
    WavePlan,
)
from muster.operate.outputs.action import Action
from muster.operate.policy import conditions
from muster.operate.remedy import DRAIN_RETRY_S
from muster.operate.together import run_together
from muster.operate.views import CertificationRecord, NodeRecord
from muster.resources.base import CONTROLLER_MANAGER
from muster.resources.certification import Certification, Phase, ProfileTests
from muster.resources.node_health import NodeHealth, State
from muster.telemetry.observer import ControllerObserver, FleetFigures

log = logging.getLogger(__name__)

PLAN = "@plan"
POLICY = "@policy/"
PLAN_DELAY_S = 1.0
"""Changes of one burst are planned together."""
PLAN_DELAY_MOST_S = 30.0
PLAN_PAUSE = 5.0
"""And the pause before a plan is this many times what the last one took: a plan looks at every node and holds up
decisions meanwhile, about a tenth of a millisecond for each node."""

SERVER_ERRORS = 500
"""From this status code on the answer does not say whether the write took effect."""

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
        claims: bool = False,
        on_transitions: OnTransitions | None = None,
        on_action: Callable[[Action], None] | None = None,
        send: Post = post,
        providers: Collection[str] | None = None,
        profiles: Mapping[str, ProfileTests] | None = None,
        tests: Mapping[str, str] | None = None,
    ) -> None:
        """`tell` receives one line for each transition; `still_leading` asks whether the lease is still ours.

        `claims`: look at ResourceClaims for who holds which GPU. `on_transitions` is told of steps that were written
        (the node's record, None once it is gone; its name; the lifecycle; the new entries of its history),
        `on_action` of what was done. `send` calls the webhooks of checkpoints.
        `providers`: names of the repair providers that there are, to warn of a policy that names another; None: not
        known. `profiles`: what each test profile asks for and proves; `tests`: every test that a certification can
        run -> digest of its definition. Without them certificates are not compared test by test.
        """
        self._profiles, self._tests = dict(profiles or {}), dict(tests or {})
        self._providers = providers
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
            standard_changed=self._standard_changed,
            demand_changed=self._demand_changed,
            claims=claims,
        )
        self._writer = Writer(api, clock, still_leading, actor=identity, on_action=on_action)
        self._calls = CheckpointCalls(clock, self._answered, send)
        self._events = EventRecorder(api, clock=clock, controller="muster-controller", instance=identity)
        self._announcer = Announcer(tell, self._events, self._observer, self._writer, on_transitions)
        self._turn = asyncio.Lock()
        self._plan_delay_s = PLAN_DELAY_S
        self._writing: set[str] = set()
        """Nodes whose decision is on its way to the API server."""
        self._unsure: set[str] = set()
        """Nodes whose last decision may have been written or not: the answer got lost."""
        self._all_written = asyncio.Event()
        self._tally = FleetTally()
        self._plan = FleetPlan(WavePlan(), BatchPlan())
        self._compared_at = BEGINNING
        self._standard = Standard(self._profiles, self._tests)

    async def run(self) -> None:
        """Work for ever; cancel it to stop. Raises NotLeadingError when another controller holds the lease."""
        try:
            await run_together(*self._caches.runs(), self._events.run(), self._lead())
        finally:
            self._queue.close()
            await self._calls.close()

    async def _lead(self) -> None:
        await self._caches.wait_synced()
        self.synced = True
        self._count_all()
        self._look_at_all()
        await run_together(self._resync(), *(self._work() for _ in range(self._workers)))

    async def _resync(self) -> NoReturn:
        while True:
            await self._clock.sleep(self._resync_s)
            self._look_at_all()

    def _look_at_all(self) -> None:
        self._caches.prune()
        for name in self._caches.managed():
            self._queue.add(name)
        for policy in self._caches.all_policies():
            self._queue.add(POLICY + policy.metadata.name)
        self._queue.add_after(PLAN, self._plan_delay_s)

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
        if name in self._unsure:
            await self._make_sure(name)
        async with self._turn:
            record = self._caches.node(name)
            if record is None or name in self._caches.healths.rejected:
                self._tally.forget(name)
                await self._bury(name)
                return
            view, health = self._caches.view(record), self._caches.health(name)
            decision = self._decide(view)
            decided = decision.lifecycle != view.lifecycle
            if decided:
                self._writing.add(name)
        if decided:
            await self._make_durable(record, view, health, decision)
        for note in decision.notes:
            self._announcer.note(name, note)
        await self._writer.project(record, decision.lifecycle)
        await self._carry_out(record, decision)
        if decision.recheck_at is not None:
            self._queue.add_after(name, (decision.recheck_at - self._clock.now()).total_seconds())

    def _decide(self, view: NodeView) -> Decision:
        """Decide, and take what was decided out of the budget. The caller holds the turn: nobody else spends it.

        A node that comes back gives its place back only when that was written.
        """
        self._tally.count(view, view.lifecycle)
        fleet = self._tally.view(self._plan, self._compared_at, self._standard, demand=self._caches.demand)
        decision = decide(view, fleet, self._caches.policy(view.name, view.labels), self._clock.now())
        if decision.lifecycle != view.lifecycle and not comes_back(view.lifecycle, decision.lifecycle):
            self._tally.count(view, decision.lifecycle)
        return decision

    async def _make_sure(self, name: str) -> None:
        """Ask the API server what became of a write. Until it answers, the node counts as out of service."""
        health = await self._writer.node_health(name)
        if health is None:
            self._caches.latest.forget(name)
        else:
            self._caches.latest.put(health)
        self._unsure.discard(name)

    async def _make_durable(
        self, record: NodeRecord, view: NodeView, health: NodeHealth | None, decision: Decision
    ) -> None:
        """Write a decision. Many nodes do so at once: what each takes of the budget is already counted."""
        try:
            # Every time: a process that was suspended past its lease believes what was so before, of all nodes alike.
            await self._writer.fence()
            self._caches.latest.put(await self._writer.lifecycle(record.name, health, decision.lifecycle))
            self._tally.count(view, decision.lifecycle)
        except BaseException as error:
            if isinstance(error, ApiError) and error.code < SERVER_ERRORS:
                # It is as it was before: what the decision took of the budget is free again.
                self._tally.count(view, view.lifecycle)
            else:
                self._unsure.add(record.name)
            if not isinstance(error, NotFoundError):
                raise
            self._caches.latest.forget(record.name)
            raise ConflictError(404, "NotFound", f"NodeHealth {record.name} is gone") from error
        finally:
            self._writing.discard(record.name)
            if not self._writing:
                self._all_written.set()
        self._announcer.decided(record, view, decision)
        self._queue.add_after(PLAN, self._plan_delay_s)

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
        self._announcer.stepped(None, name, before, after, after.history[-1:])

    async def _carry_out(self, record: NodeRecord, decision: Decision) -> None:
        for intent in decision.intents:
            if isinstance(intent, CallCheckpoint):
                self._call(intent)
                continue
            refusal = await self._writer.intent(intent)
            if refusal is None:
                continue
            known = self._caches.refusals.get(refusal.pod_uid)
            if known is None or known.message != refusal.message:
                since = known.since if known is not None else refusal.since
                self._caches.refusals[refusal.pod_uid] = replace(refusal, since=since)
                self._queue.add(record.name)
            self._queue.add_after(record.name, DRAIN_RETRY_S)

    def _call(self, call: CallCheckpoint) -> None:
        """Tell the webhook of a checkpoint; its answer brings the node up again."""
        if self._calls.start(call):
            for pod in call.pods:
                message = "told by webhook to save its state"
                target = f"Pod/{pod.key}"
                self._writer.tell("checkpoint", target, node=call.node, episode=call.episode, message=message)

    def _answered(self, node: str, answers: Sequence[CheckpointAnswer]) -> None:
        """A webhook said what became of the pods that it was told of."""
        for answer in answers:
            self._caches.checkpoints[answer.pod_uid] = answer
        self._queue.add(node)

    def _count_all(self) -> None:
        """Before anything is decided: a budget that knows half of the fleet would let too many go."""
        for name in self._caches.managed():
            record = self._caches.node(name)
            if record is not None:
                view = self._caches.view(record)
                self._tally.count(view, view.lifecycle)

    # The fleet

    async def _plan_fleet(self) -> None:
        async with self._turn:
            while self._writing:  # nothing is planned on decisions that may come to nothing
                self._all_written.clear()
                await self._all_written.wait()
            now, began = self._clock.now(), asyncio.get_running_loop().time()
            nodes = []
            for name in self._caches.managed():
                record = self._caches.node(name)
                if record is None:
                    continue
                view = self._caches.view(record)
                if name not in self._unsure:
                    self._tally.count(view, view.lifecycle)
                policy = self._caches.policy(name, record.labels)
                standard = self._standard.of(record.labels, policy.certification)
                nodes.append(PlannedNode(view, policy, self._caches.in_test(name), standard))
            before = self._plan
            self._plan = plan_fleet(nodes, self._tally.usage, now, demand=self._caches.demand)
            self._compared_at = now
            took_s = asyncio.get_running_loop().time() - began
            self._plan_delay_s = min(max(PLAN_DELAY_S, PLAN_PAUSE * took_s), PLAN_DELAY_MOST_S)
            for batch in self._plan.batches.batches:
                await self._create(batch)
        # Who waits for room in the budget with an open fault comes before those whose turn it merely is.
        for name in (*waiting_for_budget(nodes), *self._plan.wave.turn):
            self._queue.add(name)
        for name in news(before, self._plan):
            self._queue.add(name)
        for at in (self._plan.wave.recheck_at, self._plan.batches.recheck_at):
            if at is not None:
                self._queue.add_after(PLAN, max(self._plan_delay_s, (at - now).total_seconds()))

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
        found = conditions(policy, self._clock.now(), self._providers)
        if found != policy.status.conditions:
            await self._writer.policy_conditions(policy, found)

    # News

    def _work_changed(self, node: str) -> None:
        self._queue.add(node)
        if self._plan.batches.waits or self._plan.wave.waits:
            # Whether a node is idle decides about waves and partners.
            self._queue.add_after(PLAN, self._plan_delay_s)

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

    def _standard_changed(self) -> None:
        """Another recipe is in force, or none: every certificate is compared anew."""
        self._standard = Standard(self._profiles, self._tests, self._caches.recipes.all())
        for node in self._caches.managed():
            self._queue.add(node)

    def _demand_changed(self) -> None:
        """Pods began to wait for GPUs, or none waits any more."""
        self._queue.add_after(PLAN, self._plan_delay_s)

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
        counted = fleet_figures(nodes, self._tally.usage, phases, len(self._queue))
        return replace(counted, correlations=len(self._plan.correlations.all()))


def _as_record(certification: Certification, batch: Batch) -> CertificationRecord:
    return CertificationRecord(
        name=certification.metadata.name,
        created=None,
        spec=certification.spec,
        phase=Phase.PENDING,
        requests=dict(batch.requests),
    )
