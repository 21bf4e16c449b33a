"""One play: a cluster, the real controller processes, and everything that goes wrong, from one seed.

It ends when an invariant breaks, or when, after the chaos, every node works, is out for good, or waits for a person.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace as with_fields

from muster.controller.process import ControllerProcess
from muster.kube.api import CRDS, FAULT_POLICIES, NAMESPACES, NODES, KubeApi
from muster.operate.policy import FULL_AUTOMATION, effective_policy, with_provider
from muster.operate.providers.assembly import Surroundings
from muster.operate.providers.provider import Provider
from muster.resources import crd
from muster.resources.base import CORDON_ANNOTATION, SYSTEM_NAMESPACE, to_object
from muster.resources.fault_policy import Budget, FaultPolicy
from muster.resources.node_health import State
from muster.sim.inprocess import InProcessApi
from muster.sim.virtual import VirtualClock, run_virtual
from tests.chaos.apiserver import SERVER, ChaosApi, Journal, Process, WatchedStore, Weather
from tests.chaos.benches import Bench, BenchRunner, StandIn
from tests.chaos.cloud import NAME, Cloud, CloudProvider
from tests.chaos.complaints import listening
from tests.chaos.hands import Hands
from tests.chaos.machines import BEAT_S, Machine, Plant
from tests.chaos.mix import Kind, Mix, draw
from tests.chaos.watch import MUSTER, Violation, Watch
from tests.invariants.checker import schedulable, take, violations

LEASE_S = 300.0
"""Longer than in production: over days, renewals would be most of the work of a play."""
SAMPLE_S = 60.0
SETTLE_S = 2 * 24 * 3600.0
"""After the chaos every node must have come to rest within this time."""
QUIET_S = 1800.0
"""So long nothing may change before the projections are compared: late news, backoffs and resyncs are over."""
GOOD_BUDGET = "30%"
AGENT_SILENT_S = 3 * int(BEAT_S)
RESTING = (State.IN_SERVICE, State.OUT_OF_SERVICE)
RETRY_LOOKS = 36
"""After so many looks, each ten minutes after the one before, people try again what waits for them."""


def policy_of(drawn: random.Random) -> FaultPolicy:
    shipped = with_provider(FULL_AUTOMATION, NAME)
    budget = Budget(
        max_disrupted=drawn.choice(["1", GOOD_BUDGET]),
        max_disrupted_per_domain="50%",
        max_new_per_window=50,
        window_s=3600,
    )
    return with_fields(shipped, spec=with_fields(shipped.spec, budget=budget, agent_silent_s=AGENT_SILENT_S))


def without_cordon(node: dict[str, Any]) -> dict[str, Any]:
    return {**node, "spec": {**node["spec"], "unschedulable": False}}


def _without_cel(value: Any) -> Any:
    """The schemas decide here; their rules in CEL, most of the cost of a write, have tests of their own."""
    if isinstance(value, dict):
        return {k: _without_cel(v) for k, v in value.items() if k != "x-kubernetes-validations"}
    return [_without_cel(v) for v in value] if isinstance(value, list) else value


@dataclass(frozen=True)
class Outcome:
    """What became of one play."""

    mix: Mix
    violations: tuple[Violation, ...]
    steps: int
    virtual_s: float
    digest: str
    journal: tuple[str, ...]

    @property
    def node_years(self) -> float:
        return self.mix.nodes * self.virtual_s / (365.25 * 24 * 3600)


class Person(InProcessApi):
    """The API server as somebody reaches it to whom nothing ever happens."""

    def __init__(self, store: WatchedStore, name: str) -> None:
        super().__init__(store, user=name)
        self._traced, self._name = store, name

    async def _serve(self, request: Any, act: Callable[[], Any]) -> Any:
        await asyncio.sleep(0)
        self._traced.actor = self._name
        try:
            return self._typed(act)
        finally:
            self._traced.actor = SERVER


@dataclass
class Replica:
    """One of the replicas of the controller: lives, dies, lives again."""

    play: Play
    name: str
    skew_s: float
    process: Process | None = None
    controller: ControllerProcess | None = None
    lives: int = 0

    async def run(self) -> None:
        while True:
            await self._live()
            await self.play.clock.sleep(self.play.drawn.uniform(1.0, 30.0))

    async def _live(self) -> None:
        play = self.play
        self.lives += 1
        process = Process(f"{MUSTER}{self.name}{self.lives}", play.clock, play.weather)
        process.clock.ahead_s = self.skew_s
        self.controller = ControllerProcess(
            lambda: ChaosApi(play.store, process, play.watch.asked),
            process.clock,
            process.identity,
            tell=lambda line: play.journal.note(process.identity, line),
            certifications=None if play.mix.real_tests else lambda api, clock: StandIn(play.plant, api, clock),
            make_runner=lambda api, clock, alive, gone: BenchRunner(play.bench, clock),
            providers=lambda around: self._providers(around, process),
            lease_s=LEASE_S,
        )
        work = asyncio.ensure_future(self.controller.run())
        process.die = work.cancel
        self.process = process
        try:
            await asyncio.wait({work})
        finally:
            process.dead = True
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)
        if not work.cancelled() and (error := work.exception()) is not None and not play.over:
            play.watch.break_("alive", f"{process.identity} ended by itself: {type(error).__name__}: {error}")

    def _providers(self, around: Surroundings, process: Process) -> list[Provider]:
        return [CloudProvider(self.play.cloud, process)]

    @property
    def able(self) -> bool:
        process, controller = self.process, self.controller
        if process is None or controller is None or process.dead or process.frozen:
            return False
        # Its figures would tell too; they cost as much as a plan.
        return controller._nodes is not None and controller._nodes.synced


@dataclass
class Play:
    """Everything of one seed. `out` is told each line of the journal."""

    clock: VirtualClock
    mix: Mix
    out: Callable[[str], None] | None = None
    over: bool = False
    replicas: list[Replica] = field(default_factory=list)

    def __post_init__(self) -> None:
        seed = self.mix.seed
        self.drawn = random.Random(f"deeds/{seed}")
        limit = 300 if Kind.FORGOTTEN_HISTORY in self.mix else 10_000
        self.store = WatchedStore(self.clock, seed, limit)
        self.weather = Weather(self.mix, random.Random(f"weather/{seed}"))
        self.journal = Journal(self.store, out=self.out)
        self.policy = policy_of(self.drawn)
        self.plant = Plant(self.clock, random.Random(f"plant/{seed}"), self.person)
        self.bench = Bench(self.plant)
        budget = self.policy.spec.budget
        self.watch = Watch(
            self.journal,
            self.plant.machines,
            lambda: self.clock.elapsed_s,
            max_disrupted=budget.max_disrupted if budget is not None else "10%",
        )
        self.cloud = Cloud(self.plant, self.weather, self.watch.order_begun)
        self.hands = Hands(self)
        self.store.listeners.append(self.watch.changed)

    def person(self, name: str) -> KubeApi:
        return Person(self.store, name)

    def processes(self) -> list[Process]:
        return [r.process for r in self.replicas if r.process is not None and not r.process.dead]

    def some_process(self, drawn: random.Random) -> Process | None:
        """A process of the controller, mostly the one that leads."""
        there = self.processes()
        leading = [r.process for r in self.replicas if r.able and r.process is not None]
        if leading and drawn.random() < 0.8:
            return leading[0]
        return drawn.choice(there) if there else None

    async def all(self, res: Any) -> list[dict[str, Any]]:
        return [json.loads(raw) for raw in (await self.person("ada").list_page(res)).items]

    # The play

    async def run(self) -> Outcome:
        await self._install()
        agents = Process("agents", self.clock, self.weather)
        skew = random.Random(f"skew/{self.mix.seed}")
        for name in "ab"[: self.mix.replicas]:
            self.replicas.append(Replica(self, name, skew.uniform(-self.mix.skew_s, self.mix.skew_s)))
        works = [replica.run() for replica in self.replicas]
        works += [self._agent(name, agents) for name in list(self.plant.machines)]
        works += [self.plant.kubelets(self.watch.open_nodes), self._sample()]
        tasks = [asyncio.ensure_future(work) for work in works]
        story = asyncio.ensure_future(self._story())
        try:
            while not story.done() and not self.watch.found:
                await asyncio.wait({story, *tasks}, timeout=SAMPLE_S, return_when=asyncio.FIRST_COMPLETED)
                for task in tasks:
                    if task.done():
                        task.result()
            if story.done():
                story.result()
        finally:
            self.over = True
            for task in (story, *tasks):
                task.cancel()
            await asyncio.gather(story, *tasks, return_exceptions=True)
            await self.plant.close()
        return Outcome(
            mix=self.mix,
            violations=tuple(self.watch.found[:5]),
            steps=self.journal.steps,
            virtual_s=self.clock.elapsed_s,
            digest=self.store.digest,
            journal=tuple(self.journal.lines),
        )

    async def _install(self) -> None:
        person = self.person("admin")
        for manifest in crd.manifests():
            await person.create(CRDS, _without_cel(dict(manifest)))
        for namespace in (SYSTEM_NAMESPACE, "work"):
            body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
            await person.create(NAMESPACES, body)
        await person.create(FAULT_POLICIES, to_object(self.policy))
        for number in range(self.mix.nodes):
            await self.plant.join(Machine(f"n{number:02}", domain=f"d{number % 3}"))

    async def _agent(self, name: str, agents: Process) -> None:
        process = Process(f"agent-{name}", self.clock, self.weather)
        del agents
        await self.plant.agent(name, process, ChaosApi(self.store, process))

    async def _sample(self) -> None:
        """Count the time in which a controller could do something about what it sees."""
        able = False
        while True:
            await self.clock.sleep(SAMPLE_S)
            before, able = able, not self.weather.outage and any(r.able for r in self.replicas)
            self.watch.tick(before and able, SAMPLE_S)

    async def _story(self) -> None:
        drawn = self.drawn
        # Sometimes the fleet is not yet in service when things begin to go wrong.
        await self.clock.sleep(drawn.choice([10.0, 3600.0, 4 * 3600.0]))
        for _ in range(self.mix.deeds):
            await self.hands.one()
            await self.clock.sleep(drawn.expovariate(1.0 / self.mix.pause_s))
        self.journal.deed("play", "peace")
        await self.hands.make_peace()
        await self._settle()
        await self._compare()

    # The end

    async def _settle(self) -> None:
        """Every node works, is out for good, or waits for a person, and says so."""
        ends_s = self.clock.elapsed_s + SETTLE_S
        helped, looks = False, 0
        while True:
            await self.clock.sleep(600.0)
            restless = self._restless()
            if not restless:
                return
            looks += 1
            if looks % RETRY_LOOKS == 0:
                await self._say_retry()
            if not helped and self.clock.elapsed_s > ends_s - SETTLE_S * 0.7:
                # What many nodes have at once is for people to find out; they did.
                helped = True
                self.journal.deed("ada", "mends what is broken")
                for machine in self.plant.machines.values():
                    machine.defect, machine.faults = None, ()
            if self.clock.elapsed_s > ends_s:
                self.watch.break_("liveness", f"days after the chaos: {'; '.join(restless)}")
                return

    async def _say_retry(self) -> None:
        """Tests that found nothing out are asked for again, as the nodes say that a person can."""
        for name in sorted(self.plant.machines):
            life = self.watch.of(name).life
            if (
                life is not None
                and life.state is State.UNCERTIFIED
                and any(b.kind == "person" for b in life.blockers)
            ):
                self.journal.deed("ada", f"says retry of {name}")
                await self.hands.word(name, "retry")

    def _restless(self) -> list[str]:
        found = []
        for name, machine in sorted(self.plant.machines.items()):
            if machine.gone:
                found.append(f"{name} has not joined")
                continue
            life = self.watch.of(name).life
            if life is None:
                found.append(f"{name} has no status")
            elif life.state not in RESTING and not any(b.kind == "person" for b in life.blockers):
                found.append(f"{name} is {life.state.value} ({life.next[:160]})")
        return found

    async def _compare(self) -> None:
        """Everything that is shown follows from the status, and people find what they did as they left it."""
        await self.clock.sleep(QUIET_S)
        now = self.clock.now()
        for violation in violations(await take(self.person("ada"), now, self._effective()), settled=True):
            self.watch.break_(f"settled-{violation.invariant}", violation.message)
        nodes = {node["metadata"]["name"]: node for node in await self.all(NODES)}
        for name, node in sorted(nodes.items()):
            # Not by the functions that made it so.
            life = self.watch.of(name).life
            ours = (node["metadata"].get("annotations") or {}).get(CORDON_ANNOTATION)
            if life is not None and not life.held and (ours or not schedulable(without_cordon(node))):
                self.watch.break_("released", f"{name} is in service and still held: {node['spec']}")
        for name in sorted(self.hands.cordons):
            if not nodes[name]["spec"].get("unschedulable"):
                self.watch.break_("people-win", f"{name} was cordoned by a person and is not any more")
        for name, value in sorted(self.hands.foreign.items()):
            if nodes[name]["metadata"].get("labels", {}).get("ada") != value:
                self.watch.break_("people-win", f"a person's label on {name} is gone")
        for name, word in sorted(self.hands.words.items()):
            health = self.watch.of(name).health
            if health is None or health.spec.decision is None or health.spec.decision.id != word:
                continue
            life = health.status.lifecycle
            if life is None or life.decision_seen != word:
                self.watch.break_(
                    "people-win", f"{health.spec.decision.verb.value} ({word}) of {name} was never heard"
                )

    def _effective(self) -> Any:
        return effective_policy([self.policy], {})


def play(
    seed: int,
    *,
    deeds: int = 0,
    nodes: int = 0,
    kinds: tuple[Kind, ...] = (),
    out: Callable[[str], None] | None = None,
) -> Outcome:
    """Play `seed` to its end."""

    async def main(clock: VirtualClock) -> Outcome:
        played = Play(clock, draw(seed, deeds, nodes, kinds), out)
        with listening(lambda text: played.watch.break_("no-errors", text)):
            return await played.run()

    return run_virtual(main)
