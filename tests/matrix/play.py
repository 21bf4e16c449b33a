"""One case of the matrix, played on the in-process store with the real controllers, and its verdict."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from msgspec.structs import replace as with_fields

from muster.kube.api import (
    CRDS,
    FAULT_POLICIES,
    LEASES,
    NAMESPACES,
    NODE_HEALTHS,
    NODES,
    PODS,
    REPAIRS,
    NotFoundError,
    PatchType,
)
from muster.operate.node_controller import NodeController
from muster.operate.repair_controller import RepairController
from muster.resources import crd
from muster.resources.base import API_VERSION, CORDON_ANNOTATION, SYSTEM_NAMESPACE, to_object
from muster.resources.node_health import State
from muster.sim.api_faults import Fault as ApiFault
from muster.sim.api_faults import Request, unavailable
from muster.sim.inprocess import InProcessApi
from muster.sim.virtual import VirtualClock, run_virtual
from tests.invariants.checker import violations
from tests.matrix.axes import Case
from tests.matrix.machine import Eyes, Hardware
from tests.matrix.outlet import Outlet
from tests.matrix.setting import (
    APPROVED_S,
    BEAT_S,
    DELAY_S,
    HOLD_ENDS_S,
    LIMIT_S,
    LOOK_S,
    LOST_EVERY,
    OPERATOR,
    OTHER,
    REST_S,
    ROOM_AGAIN_S,
    START,
    STRIKE_S,
    TARGET,
    only_hold,
    policy_of,
    serving_life,
)
from tests.matrix.verdict import ends_well, marks
from tests.matrix.watch import Watchman, merged
from tests.operate.cluster import Machine, TestCluster, running, stamp


@dataclass
class Play:
    """The stage of one case. `verdict` has what went wrong, after `run`."""

    case: Case
    clock: VirtualClock
    verdict: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.cluster = TestCluster(
            self.clock, [Machine(n, domain=f"d{i}") for i, n in enumerate(("n00", TARGET, OTHER))]
        )
        self.cluster.policy = policy_of(self.case.budget)
        self.watch = Watchman(self.cluster.store, self.clock, merged(self.cluster.policy), TARGET)
        self.hardware = Hardware(changes=self.case.gpu)
        self.eyes = Eyes(self.hardware, self.case.finding)
        self.machine = self.cluster.machines[TARGET]
        self.outlet = Outlet(self.clock, self.hardware, self.case.repair, self._begins, self._booted)
        self.cordoned_by_person = False
        self.node_gone = False
        self.struck = False
        self.acted = False
        self.replaced = False
        self.held = False
        self.deleted = False
        self.broken_api_until: dict[str, datetime] = {}
        self._reports: list[dict[str, Any]] = []
        self._queue: list[tuple[datetime, dict[str, Any]]] = []
        self._writes = 0
        self._beat_at = self.clock.now()
        self._booting = False
        self._brains: list[asyncio.Task[None]] = []

    # The stage

    async def install(self) -> None:
        c = self.cluster
        for manifest in crd.manifests():
            await c.api.create(CRDS, dict(manifest))
        for namespace in (SYSTEM_NAMESPACE, "work"):
            body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
            await c.api.create(NAMESPACES, body)
        policy = to_object(c.policy) | {"apiVersion": API_VERSION, "kind": "FaultPolicy"}
        await c.api.create(FAULT_POLICIES, policy)
        for machine in c.machines.values():
            await c.add_node(machine)
        for machine in c.machines.values():
            machine.fingerprint = self.hardware.fingerprint()
            await self._boot_id(machine.name, self.hardware.boot_id)
            base = {"apiVersion": API_VERSION, "kind": "NodeHealth", "metadata": {"name": machine.name}}
            await c.api.create(NODE_HEALTHS, {**base, "spec": {}})
            life = to_object(serving_life(machine.uid)) | {"held": False}
            body = {**base, "status": {"lifecycle": life}}
            await c.api.apply(NODE_HEALTHS, body, manager="muster-controller", subresource="status")
            await c.publish(machine)
        await c.add_pod("train-0", TARGET)
        c.store.faults = self._fault

    async def _boot_id(self, name: str, boot_id: str) -> None:
        status = {"nodeInfo": {"bootID": boot_id}}
        with suppress(NotFoundError):
            await self.cluster.api.patch(NODES, name, {"status": status}, PatchType.MERGE, subresource="status")

    def _fault(self, request: Request) -> ApiFault | None:
        """What the API server does wrong: answers that are lost, and times in which reading one object fails."""
        if request.user == "test":
            return None
        reads_one = request.verb == "get" and request.plural in ("nodes", "repairs")
        if reads_one and self.clock.now() < self.broken_api_until.get(request.user, self.clock.start):
            return ApiFault(error=unavailable())
        writes = request.verb in ("create", "update", "patch", "apply", "delete", "evict")
        if self.case.delivery == "lostack" and writes and request.plural not in ("events", "leases"):
            self._writes += 1
            if self._writes % LOST_EVERY == 0:
                return ApiFault(lost=True, after_write=True)
        return None

    def _begins(self, repair: Any) -> None:
        self.watch.begins(repair)

    def _booted(self) -> None:
        self._booting = True

    # The agent

    async def agent(self) -> None:
        while True:
            now = self.clock.now()
            if self._booting:
                self._booting = False
                await self._boot_id(TARGET, self.hardware.boot_id)
            faults = self.eyes.look(now)
            self.machine.fails = bool(self.hardware.broken)
            content = {
                "nodeUid": self.machine.uid,
                "bootId": self.hardware.boot_id,
                "fingerprint": to_object(self.hardware.fingerprint()),
                "faults": [to_object(f) for f in faults],
            }
            if not self._reports or content != self._reports[-1]:
                self._reports.append(content)
                self._queue.append((now + timedelta(seconds=DELAY_S * (self.case.delivery == "delayed")), content))
            while self._queue and self._queue[0][0] <= now:
                await self._deliver(self._queue.pop(0)[1])
            if now >= self._beat_at:
                self._beat_at = now + timedelta(seconds=BEAT_S)
                await self._beat()
            await self.clock.sleep(LOOK_S)

    async def _deliver(self, content: dict[str, Any]) -> None:
        await self._apply(content)
        if self.case.delivery == "duplicate":
            await self.clock.sleep(1)
            await self._apply(content)
        elif self.case.delivery == "reordered" and len(self._reports) > 1:
            # An older report overtakes: it arrives after the newer one, which comes again later.
            await self.clock.sleep(3)
            await self._apply(self._reports[-2])
            await self.clock.sleep(7)
            await self._apply(content)

    async def _apply(self, content: dict[str, Any]) -> None:
        base = {"apiVersion": API_VERSION, "kind": "NodeHealth", "metadata": {"name": TARGET}}
        observed = {"observedAt": stamp(self.clock.now()), **content}
        body = {**base, "status": {"observed": observed}}
        await self.cluster.api.apply(NODE_HEALTHS, body, manager="muster-agent", subresource="status")

    async def _beat(self) -> None:
        for machine in self.cluster.machines.values():
            if machine.name != TARGET:
                await self.cluster.publish(machine)
            elif not self.node_gone:
                lease = {
                    "apiVersion": "coordination.k8s.io/v1",
                    "kind": "Lease",
                    "metadata": {"name": f"agent-{TARGET}", "namespace": SYSTEM_NAMESPACE},
                    "spec": {"holderIdentity": TARGET, "renewTime": stamp(self.clock.now())},
                }
                await self.cluster.api.apply(LEASES, lease, manager="muster-agent")

    # The controllers

    async def brains(self) -> None:
        """Node controller and repair controller; killed and started anew where the case says so."""
        store, clock = self.cluster.store, self.clock
        for life_s in (STRIKE_S + 45.0, 240.0, 600.0, None):
            nodes = NodeController(InProcessApi(store, user="muster"), clock, tell=self.cluster.lines.append)
            repairs = RepairController(
                InProcessApi(store, user="muster-repairs"),
                clock,
                [self.outlet],
                tell=self.cluster.lines.append,
            )
            tasks = [asyncio.ensure_future(nodes.run()), asyncio.ensure_future(repairs.run())]
            self._brains = tasks
            try:
                if self.case.delivery != "replayed" or life_s is None:
                    await asyncio.gather(*tasks)
                    return
                await clock.sleep(life_s)
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
            self.eyes.restart()
            self._reports.clear()
            await clock.sleep(3.0)

    async def kubelet(self) -> None:
        while True:
            for pod in await self.cluster.all(PODS):
                if pod["metadata"].get("deletionTimestamp"):
                    with suppress(NotFoundError):
                        await self.cluster.api.delete(PODS, pod["metadata"]["name"], "work", grace_period_s=0)
            await self.clock.sleep(30.0)

    # People, and what happens to objects

    async def world(self) -> None:
        """Follows the stages of the node and does what the case says there."""
        api, case = self.cluster.api, self.case
        first_repair = ""
        while True:
            await self.watch.news.wait()
            self.watch.news.clear()
            life = self.watch.life(TARGET)
            if life is None or not self.struck:
                continue
            stage = life.state.value
            verb, _, at = case.act.partition(".")
            if not self.acted and at == stage and self.struck:
                self.acted = True
                await self._act(verb)
            fate, _, at = case.node.partition(".")
            if not self.replaced and at == stage:
                self.replaced = True
                await self._replace(back=fate == "recreated")
            if case.holder == "both" and stage == "Quarantined" and not self.held:
                self.held = True
                await self._hold(True)
            if not first_repair and self.watch.snapshot.repairs:
                first_repair = min(self.watch.snapshot.repairs)
                if case.repair == "geterror":
                    # One of the two controllers reads again before the other.
                    for user, seconds in (("muster", 60), ("muster-repairs", 200)):
                        self.broken_api_until[user] = self.clock.now() + timedelta(seconds=seconds)
            if case.repair == "deleted" and first_repair in self.outlet.begun and not self.deleted:
                self.deleted = True
                with suppress(NotFoundError):
                    await api.delete(REPAIRS, first_repair)

    async def times(self) -> None:
        """What happens at fixed times."""
        case = self.case
        if case.budget == "spent":
            other = self.cluster.machines[OTHER]
            other.faults = (only_hold(self.clock.now()),)
        if case.budget == "closed":
            self.watch.closed_until = START + timedelta(seconds=STRIKE_S + ROOM_AGAIN_S)
        await self.clock.sleep(STRIKE_S / 2)
        if case.holder in ("cordon", "both"):
            await self._cordon(True)
        if case.holder == "hold":
            await self._hold(True)
        await self.clock.sleep(STRIKE_S / 2)
        self.eyes.strike(self.clock.now())
        self.machine.fails = bool(self.hardware.broken)
        self.struck = True
        await self.clock.sleep(APPROVED_S)
        if case.budget == "approval" and not self.acted:
            await self._decide("approve", "a1")
        await self.clock.sleep(HOLD_ENDS_S - APPROVED_S)
        if case.holder in ("hold", "both"):
            await self._hold(False)
        await self.clock.sleep(ROOM_AGAIN_S - HOLD_ENDS_S)
        self.cluster.machines[OTHER].faults = ()
        with suppress(NotFoundError):  # the work on the node ends by itself some day
            await self.cluster.api.delete(PODS, "train-0", "work", grace_period_s=0)
        await self.clock.sleep(LIMIT_S)

    async def _act(self, verb: str) -> None:
        if verb == "uncordon":
            self.watch.was_uncordoned = True
            await self._cordon(False)
        else:
            await self._decide(verb, "d1")

    async def _decide(self, verb: str, name: str) -> None:
        decision = {"id": name, "verb": verb, "by": OPERATOR, "at": stamp(self.clock.now()), "reason": "matrix"}
        spec = {"spec": {"decision": decision}}
        await self.cluster.api.patch(NODE_HEALTHS, TARGET, spec, PatchType.MERGE)

    async def _hold(self, held: bool) -> None:
        hold = {"by": OPERATOR, "reason": "looking", "at": stamp(self.clock.now())} if held else None
        await self.cluster.api.patch(NODE_HEALTHS, TARGET, {"spec": {"hold": hold}}, PatchType.MERGE)

    async def _cordon(self, cordoned: bool) -> None:
        """As `kubectl cordon` and `kubectl uncordon` do."""
        self.watch.uncordoned.add(TARGET)
        with suppress(NotFoundError):
            body = {"spec": {"unschedulable": cordoned or None}}
            await self.cluster.api.patch(NODES, TARGET, body, PatchType.MERGE)
        self.cordoned_by_person = cordoned
        self.watch.uncordoned.discard(TARGET)

    async def _replace(self, *, back: bool) -> None:
        """The Node object goes, with the pods that were on it; `back`: another one of its name joins."""
        api = self.cluster.api
        self.node_gone = True
        await api.delete(NODES, TARGET)
        with suppress(NotFoundError):
            await api.delete(PODS, "train-0", "work", grace_period_s=0)
        self.cordoned_by_person = False
        await self.clock.sleep(20)
        if back:
            await self.cluster.add_node(self.machine)
            await self._boot_id(TARGET, self.hardware.boot_id)
            self.node_gone = False

    # The verdict

    async def run(self) -> list[str]:
        await self.install()
        works = [self.agent(), self.brains(), self.kubelet(), self.world(), self.times(), self.cluster.certifier()]
        try:
            async with running(*works):
                ended = await self._until_rest()
                await self.clock.sleep(5)
        finally:
            self.outlet.stop()
        self.verdict = [*self.watch.found, *self._judge(ended)]
        return self.verdict

    async def _until_rest(self) -> bool:
        """Until nothing changed for a while. False: it never came to rest."""
        await self.clock.sleep(STRIKE_S + ROOM_AGAIN_S + 60)
        deadline = self.clock.now() + timedelta(seconds=LIMIT_S)
        seen: Any = None
        since = self.clock.now()
        while self.clock.now() < deadline:
            picture = {n: with_fields(life, blockers=(), next="") for n, life in self.watch.snapshot.lives()}
            if picture != seen:
                seen, since = picture, self.clock.now()
            if self.clock.now() - since >= timedelta(seconds=REST_S):
                return True
            await self.clock.sleep(50)
        return False

    def _judge(self, ended: bool) -> list[str]:
        found = [] if ended else ["it does not come to rest"]
        shot = self.watch.snapshot
        found += [f"[{v.invariant}] settled: {v.message}" for v in violations(shot, settled=True)]
        found += [f"{key} was worked on {n} times" for key, n in self.outlet.attempts.items() if n > 1]
        found += [line for name, life in shot.lives() for line in marks(name, shot.nodes[name], life)]
        node, life = shot.nodes.get(TARGET), self.watch.life(TARGET)
        if node is not None and self.cordoned_by_person and not node.get("spec", {}).get("unschedulable"):
            found.append("the cordon of a person is gone")
        if node is not None and life is not None and life.state is State.IN_SERVICE and not self.cordoned_by_person:
            ours = node["metadata"].get("annotations", {}).get(CORDON_ANNOTATION)
            if node["spec"].get("unschedulable") or ours is not None:
                found.append(f"it serves and is still cordoned (for {ours})")
        if self.case.finding == "unknown" and self.case.holder in ("us", "cordon") and self.outlet.order:
            found.append(f"a fault of unknown severity was repaired: {self.outlet.order}")
        return found + ends_well(self.case, self.hardware.broken, node, life)


def play(case: Case) -> list[str]:
    """What is wrong in `case`: one line each, empty when all is well."""

    async def story(clock: VirtualClock) -> list[str]:
        return await Play(case, clock).run()

    return run_virtual(story, start=START)
