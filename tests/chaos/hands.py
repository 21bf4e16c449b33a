"""The deeds of a play: what people, machines and bad luck do, one at a time."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from muster.kube.api import (
    CERTIFICATIONS,
    FAULT_POLICIES,
    MAINTENANCES,
    NODE_HEALTHS,
    NODES,
    POD_DISRUPTION_BUDGETS,
    REPAIRS,
    AlreadyExistsError,
    ApiError,
    NotFoundError,
    PatchType,
)
from muster.resources.base import CORDON_ANNOTATION, HOLD_TAINT, STATE_LABEL
from muster.resources.fault import Severity
from muster.resources.repair import Rung
from tests.chaos.machines import Defect, Machine
from tests.chaos.mix import Kind
from tests.operate.cluster import stamp

if TYPE_CHECKING:
    from tests.chaos.play import Play

DEFECTS = (
    Defect("79", Rung.REBOOT),
    Defect("79", Rung.POWER_CYCLE),
    Defect("79", Rung.REPLACE),
    Defect("48", Rung.RESET_GPU),
    Defect("94", None),
    Defect("79", Rung.REBOOT, fails_tests=False),
    Defect("48", Rung.RESET_GPU, fails_tests=False),
)
HIDDEN = (Defect("", Rung.REBOOT), Defect("", Rung.REPLACE), Defect("", None))


@dataclass
class Hands:
    """`deeds` lists what the mix allows."""

    play: Play
    number: int = 0
    cordons: set[str] = field(default_factory=set)
    """Nodes that a person cordoned and has not uncordoned."""
    foreign: dict[str, str] = field(default_factory=dict)
    """Node -> label of somebody else's on it."""
    words: dict[str, str] = field(default_factory=dict)
    """Node -> the last decision of a person."""

    @property
    def drawn(self) -> random.Random:
        return self.play.drawn

    def say(self, who: str, what: str) -> None:
        self.play.journal.deed(who, what)

    def machine(self) -> Machine:
        there = sorted(n for n, m in self.play.plant.machines.items() if not m.gone)
        return self.play.plant.machines[self.drawn.choice(there)]

    def deeds(self) -> list[Callable[[], Awaitable[None]]]:
        by_kind: dict[Kind, list[Callable[[], Awaitable[None]]]] = {
            Kind.FORGOTTEN_HISTORY: [self.compact],
            Kind.CUT_WATCHES: [self.cut],
            Kind.OUTAGES: [self.outage],
            Kind.KILLS: [self.kill, self.kill_between],
            Kind.FREEZES: [self.freeze],
            Kind.NODE_REBIRTH: [self.rebirth],
            Kind.GPU_SWAPS: [self.swap],
            Kind.REBOOTS: [self.reboot],
            Kind.FAULTS: [self.strike, self.strike, self.heal],
            Kind.HIDDEN_DEFECTS: [self.hidden],
            Kind.UNKNOWN_FAULTS: [self.unknown],
            Kind.ROLL_OUTS: [self.roll_out],
            Kind.AGENTS: [self.silence, self.wrong_clock, self.upgrade],
            Kind.CORDONS: [self.cordon, self.uncordon],
            Kind.WORDS: [self.hold, self.unhold, self.decide, self.decide, self.pause],
            Kind.EDITS: [self.edit_taints, self.edit_labels, self.edit_policy],
            Kind.DELETIONS: [self.delete_health, self.delete_repair, self.delete_certification],
            Kind.MAINTENANCE: [self.maintenance, self.hand_back],
            Kind.WORK: [self.work, self.guard],
            Kind.LEAPS: [self.leap],
        }
        return [deed for kind in Kind if kind in self.play.mix for deed in by_kind.get(kind, [])]

    async def one(self) -> None:
        """Somebody does something. What the API server refuses was not to be done."""
        able = self.deeds()
        if not able:
            return
        self.number += 1
        try:
            await self.drawn.choice(able)()
        except NotFoundError:
            return

    # Bad luck

    async def compact(self) -> None:
        self.say("luck", "the API server forgets its history")
        self.play.store.compact()

    async def cut(self) -> None:
        self.say("luck", "every watch breaks")
        self.play.store.drop_watches()

    async def outage(self) -> None:
        weather, takes_s = self.play.weather, self.drawn.choice([20.0, 120.0, 900.0])
        self.say("luck", f"the API server is away for {takes_s:.0f} s")
        weather.outage = True
        self.play.store.drop_watches()
        await self.play.clock.sleep(takes_s)
        weather.outage = False

    async def kill(self) -> None:
        process = self.play.some_process(self.drawn)
        if process is not None:
            self.say("luck", f"{process.identity} is killed")
            process.kill()

    async def kill_between(self) -> None:
        process = self.play.some_process(self.drawn)
        if process is not None:
            process.dies_in = self.drawn.choice([0, 1, 2, 3, 5, 8, 13, 40])
            self.say("luck", f"{process.identity} is killed after {process.dies_in} requests")

    async def freeze(self) -> None:
        process = self.play.some_process(self.drawn)
        if process is None or process.frozen:
            return
        takes_s = self.drawn.choice([2.0, 30.0, 300.0, 1200.0])
        self.say("luck", f"{process.identity} stands still for {takes_s:.0f} s")
        process.freeze()

        async def thaw() -> None:
            await self.play.clock.sleep(takes_s)
            self.say("luck", f"{process.identity} runs again")
            process.thaw()

        self.play.plant.spawn(thaw())

    async def leap(self) -> None:
        takes_s = self.drawn.choice([3600.0, 3600.0, 8 * 3600.0])
        self.say("luck", f"nothing happens for {takes_s / 3600:.0f} h")
        await self.play.clock.sleep(takes_s)

    # Machines

    async def rebirth(self) -> None:
        machine = self.machine()
        same, away_s = self.drawn.random() < 0.5, self.drawn.choice([0.0, 0.0, 10.0, 600.0])
        self.say(
            "cloud", f"deletes {machine.name}; {'the same' if same else 'another'} machine joins in {away_s:.0f} s"
        )
        machine.gone = True
        await self.play.person("cloud").delete(NODES, machine.name)
        self.cordons.discard(machine.name)
        self.foreign.pop(machine.name, None)

        async def join() -> None:
            await self.play.clock.sleep(away_s)
            if not same:
                machine.serial, machine.boot, machine.gpu = machine.serial + 1, 1, 1
                machine.defect, machine.faults, machine.down = None, (), False
                if self.drawn.random() < 0.2:
                    self.play.plant.strike(machine, self.drawn.choice(HIDDEN))
            await self.play.plant.join(machine)

        self.play.plant.spawn(join())

    async def swap(self) -> None:
        machine = self.machine()
        machine.gpu += 1
        self.say("hands", f"swap a GPU of {machine.name}")
        if self.drawn.random() < 0.7:
            self.play.plant.spawn(self.play.plant.reboot(machine, Rung.RESET_GPU, 200.0))

    async def reboot(self) -> None:
        machine = self.machine()
        self.say("machine", f"{machine.name} boots by itself")
        self.play.plant.spawn(self.play.plant.reboot(machine, Rung.REBOOT, self.drawn.uniform(40.0, 600.0)))

    async def strike(self) -> None:
        machine, defect = self.machine(), self.drawn.choice(DEFECTS)
        self.say("machine", f"{machine.name} breaks: {defect}")
        self.play.plant.strike(machine, defect)

    async def hidden(self) -> None:
        machine, defect = self.machine(), self.drawn.choice(HIDDEN)
        self.say("machine", f"{machine.name} breaks unseen: {defect}")
        self.play.plant.strike(machine, defect)

    async def heal(self) -> None:
        machine = self.machine()
        self.say("machine", f"{machine.name} is fine again")
        machine.defect, machine.faults = None, ()

    async def unknown(self) -> None:
        machine = self.machine()
        self.say("machine", f"{machine.name} says something that nobody knows")
        self.play.plant.strike(machine, Defect("999", None, fails_tests=False, severity=Severity.UNKNOWN))

    async def roll_out(self) -> None:
        driver = f"580.{self.drawn.randrange(70, 99)}"
        broken = self.drawn.random() < 0.4
        self.say("ada", f"rolls out driver {driver}{', which breaks some' if broken else ''}")
        for machine in list(self.play.plant.machines.values()):
            machine.driver = driver
            if broken and self.drawn.random() < 0.2:
                self.play.plant.strike(machine, self.drawn.choice(HIDDEN[:2]))
            await self.play.clock.sleep(self.drawn.uniform(0.0, 60.0))

    async def silence(self) -> None:
        machine, takes_s = self.machine(), self.drawn.choice([200.0, 1500.0, 5000.0])
        self.say("agent", f"of {machine.name} is silent for {takes_s:.0f} s")
        machine.agent_up = False

        async def back() -> None:
            await self.play.clock.sleep(takes_s)
            machine.agent_up = True

        self.play.plant.spawn(back())

    async def wrong_clock(self) -> None:
        machine = self.machine()
        machine.agent_ahead_s = self.drawn.choice([-7200.0, -300.0, 0.0, 300.0, 7200.0])
        self.say("machine", f"the clock of {machine.name} is off by {machine.agent_ahead_s:.0f} s")

    async def upgrade(self) -> None:
        version = f"1.{self.drawn.randrange(1, 9)}"
        self.say("ada", f"upgrades the agents to {version}")
        for machine in self.play.plant.machines.values():
            machine.agent_version = version

    # People

    async def cordon(self) -> None:
        machine = self.machine()
        node = await self.play.person("ada").get(NODES, machine.name)
        if node["spec"].get("unschedulable"):
            return
        self.say("ada", f"cordons {machine.name}")
        # As kubectl does: it knows nothing of our annotation.
        await self.play.person("ada").patch(NODES, machine.name, {"spec": {"unschedulable": True}}, PatchType.MERGE)
        self.cordons.add(machine.name)

    async def uncordon(self) -> None:
        machine = self.machine()
        self.say("ada", f"uncordons {machine.name}")
        await self.play.person("ada").patch(NODES, machine.name, {"spec": {"unschedulable": None}}, PatchType.MERGE)
        self.cordons.discard(machine.name)

    async def _spec(self, name: str, spec: dict[str, Any]) -> None:
        await self.play.person("ada").patch(NODE_HEALTHS, name, {"spec": spec}, PatchType.MERGE)

    async def hold(self) -> None:
        name = self.machine().name
        self.say("ada", f"holds {name}")
        await self._spec(name, {"hold": {"by": "ada", "reason": "look"}})

    async def unhold(self) -> None:
        name = self.machine().name
        self.say("ada", f"lets {name} go")
        await self._spec(name, {"hold": None})

    async def pause(self) -> None:
        name, paused = self.machine().name, self.drawn.random() < 0.5
        self.say("ada", f"{'pauses' if paused else 'resumes'} {name}")
        await self._spec(name, {"paused": paused})

    async def decide(self) -> None:
        name = self.machine().name
        verb = self.drawn.choice(["release", "retry", "approve", "release", "retry", "retire"])
        self.say("ada", f"says {verb} of {name}")
        await self.word(name, verb)

    async def word(self, name: str, verb: str) -> None:
        self.number += 1
        word = {"id": f"d{self.number}", "verb": verb, "by": "ada", "at": stamp(self.play.clock.now())}
        await self._spec(name, {"decision": word})
        self.words[name] = word["id"]

    async def edit_taints(self) -> None:
        name, person = self.machine().name, self.play.person("ada")
        node = await person.get(NODES, name)
        old = node["spec"].get("taints") or []
        kept = [t for t in old if t["key"] != HOLD_TAINT]
        if self.drawn.random() < 0.5:
            self.say("ada", f"removes our taint from {name}")
            wanted = kept
        else:
            self.say("ada", f"taints {name}")
            mine = {"key": "ada", "value": str(self.number), "effect": "PreferNoSchedule"}
            wanted = [mine, *[t for t in old if t["key"] != "ada"]]
        await person.patch(NODES, name, {"spec": {"taints": wanted or None}}, PatchType.MERGE)

    async def edit_labels(self) -> None:
        name = self.machine().name
        what = self.drawn.choice(["state", "annotation", "own"])
        self.say("ada", f"edits labels of {name}: {what}")
        metadata: dict[str, Any]
        if what == "state":
            metadata = {"labels": {STATE_LABEL: self.drawn.choice([None, "InService"])}}
        elif what == "annotation":
            metadata = {"annotations": {CORDON_ANNOTATION: None}}
        else:
            self.foreign[name] = f"v{self.number}"
            metadata = {"labels": {"ada": self.foreign[name]}}
        await self.play.person("ada").patch(NODES, name, {"metadata": metadata}, PatchType.MERGE)

    async def edit_policy(self) -> None:
        """Rules that nobody's budget depends on: how long to wait for a batch."""
        wait_s = self.drawn.choice([10, 120, 300])
        self.say("ada", f"edits the policy: batches wait {wait_s} s")
        spec = {"certification": {"maxBatch": 64, "batchWaitS": wait_s, "maxAttempts": 3}}
        await self.play.person("ada").patch(
            FAULT_POLICIES, self.play.policy.metadata.name, {"spec": spec}, PatchType.MERGE
        )

    async def delete_health(self) -> None:
        name = self.machine().name
        self.say("ada", f"deletes the NodeHealth of {name}")
        self.words.pop(name, None)
        await self.play.person("ada").delete(NODE_HEALTHS, name)

    async def _delete_one(self, res: Any, what: str) -> None:
        there = [o["metadata"]["name"] for o in await self.play.all(res)]
        if there:
            name = self.drawn.choice(there)
            self.say("ada", f"deletes {what} {name}")
            await self.play.person("ada").delete(res, name)

    async def delete_repair(self) -> None:
        await self._delete_one(REPAIRS, "Repair")

    async def delete_certification(self) -> None:
        await self._delete_one(CERTIFICATIONS, "Certification")

    async def maintenance(self) -> None:
        names = sorted({self.machine().name for _ in range(self.drawn.randint(1, 2))})
        opens = self.play.clock.now() + timedelta(seconds=self.drawn.uniform(0.0, 3600.0))
        spec: dict[str, Any] = {
            "reason": "power work",
            "requestedBy": "ada",
            "nodes": names,
            "opensAt": stamp(opens),
            "closesAt": stamp(opens + timedelta(hours=self.drawn.uniform(0.5, 4.0))),
        }
        self.say("ada", f"declares maintenance of {', '.join(names)}")
        body = {"apiVersion": "muster.dev/v1alpha1", "kind": "Maintenance", "metadata": {"name": f"m{self.number}"}}
        await self.play.person("ada").create(MAINTENANCES, {**body, "spec": spec})

    async def hand_back(self) -> None:
        for found in await self.play.all(MAINTENANCES):
            name = found["metadata"]["name"]
            self.say("ada", f"hands back what {name} took")
            back = {"status": {"handedBack": ["*"]}}
            await self.play.person("ada").patch(MAINTENANCES, name, back, PatchType.MERGE, subresource="status")

    async def work(self) -> None:
        plant = self.play.plant
        plant.works, plant.blocked_jobs = self.drawn.random() < 0.8, self.drawn.random() < 0.5
        self.say("ada", f"{'submits jobs' if plant.works else 'submits no more jobs'}")

    async def guard(self) -> None:
        """A PodDisruptionBudget comes or goes."""
        person = self.play.person("ada")
        body = {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": "guard", "namespace": "work"},
            "spec": {"maxUnavailable": 0, "selector": {"matchLabels": {"guarded": "true"}}},
        }
        try:
            await person.create(POD_DISRUPTION_BUDGETS, body, "work")
            self.say("ada", "guards her jobs")
        except AlreadyExistsError:
            await self.unguard()

    async def unguard(self) -> None:
        self.say("ada", "guards her jobs no more")
        try:
            await self.play.person("ada").delete(POD_DISRUPTION_BUDGETS, "guard", "work")
        except ApiError:
            return

    # The end

    async def make_peace(self) -> None:
        """Nobody does anything any more; what keeps nodes out by somebody's will is taken back."""
        play = self.play
        play.weather.calm, play.weather.outage = True, False
        for process in play.processes():
            process.thaw()
        play.plant.works = False
        await self.unguard()
        for found in await play.all(MAINTENANCES):
            back = {"status": {"handedBack": ["*"]}}
            await play.person("ada").patch(
                MAINTENANCES, found["metadata"]["name"], back, PatchType.MERGE, subresource="status"
            )
        keeps = set(sorted(self.cordons)[:1])
        for name in sorted(self.cordons - keeps):
            await play.person("ada").patch(NODES, name, {"spec": {"unschedulable": None}}, PatchType.MERGE)
        self.cordons = keeps
        for name, machine in play.plant.machines.items():
            machine.agent_up, machine.agent_ahead_s = True, 0.0
            try:
                await self._spec(name, {"hold": None, "paused": False})
            except NotFoundError:
                continue
