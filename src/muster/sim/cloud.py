"""The simulated cloud: it carries out `Repair` objects whose provider is `simulated-cloud`, on the truth.

Each Repair is carried out once, however often it is seen or asked for: its name is the key. Repairs of one node wait
for each other. `Done` says that the work was done; whether it helped only the node itself can show.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import assert_never

import msgspec

from muster.clock import Clock
from muster.kube.api import REPAIRS, KubeApi, NotFoundError, PatchType
from muster.resources.base import to_object
from muster.resources.repair import Repair, RepairPhase, RepairStatus, Rung
from muster.sim.defects import DefectKind
from muster.sim.kubelet import Kubelets
from muster.sim.plant import Refusal
from muster.sim.retry import persist
from muster.sim.tasks import TaskSet
from muster.sim.world import World

PROVIDER = "simulated-cloud"
ACCEPT_S = 5.0
"""From seeing a Repair to starting on it."""
DURATION_S: Mapping[Rung, float] = {
    Rung.RESET_GPU: 90.0,
    Rung.RESTART_DRIVER: 180.0,
    Rung.REBOOT: 360.0,
    Rung.POWER_CYCLE: 540.0,
    Rung.REPLACE: 7200.0,
    Rung.TICKET: 0.0,
}
RECURRENCE_S = 20.0
"""After a reset that did not help, the driver trips over an XID again this soon."""
FIRST_TICKET = 10_001

_decode = msgspec.json.Decoder(Repair, strict=False).decode


def project_repair(raw: bytes) -> Repair:
    """Decode one Repair. Raises msgspec.MsgspecError."""
    return _decode(raw)


@dataclass
class _Operation:
    """What was made of the Repair of one name. The name is its key: it says node, episode, rung and attempt."""

    uid: str
    status: RepairStatus | None = None


class _RefusedError(Exception):
    """The work cannot be done; the text says why."""


class SimulatedCloud:
    """Cloud and BMC of the fleet. `changed` is the callback of the fleet's cache of Repairs."""

    def __init__(
        self,
        api: KubeApi,
        clock: Clock,
        world: World,
        kubelets: Kubelets,
        node_uids: Mapping[str, str],
        refusals: Sequence[Refusal],
        get_repair: Callable[[str], Repair | None],
        say: Callable[[str, str, str], None],
        tasks: TaskSet,
    ) -> None:
        self._api = api
        self._clock = clock
        self._world = world
        self._kubelets = kubelets
        self._node_uids = node_uids
        self._refusals = {(refusal.node, refusal.rung): refusal.message for refusal in refusals}
        self._get_repair = get_repair
        self._say = say
        self._tasks = tasks
        self._operations: dict[str, _Operation] = {}
        self._busy: dict[str, asyncio.Lock] = {}
        self._tickets = 0

    def changed(self, key: str) -> None:
        """The Repair `key` appeared or changed."""
        repair = self._get_repair(key)
        if repair is None or repair.spec.provider != PROVIDER:
            return
        if repair.status.phase not in (RepairPhase.PENDING, RepairPhase.RUNNING):
            return
        known = self._operations.get(key)
        if known is None:
            self._operations[key] = _Operation(repair.metadata.uid)
            self._tasks.start(self._carry_out(repair))
        elif known.uid != repair.metadata.uid:
            # Deleted and asked for again under the same name: the same attempt, which is not made a second time.
            known.uid = repair.metadata.uid
            if known.status is not None:
                self._tasks.start(self._report(repair, known.status))

    async def _carry_out(self, repair: Repair) -> None:
        name = repair.spec.node_name
        async with self._busy.setdefault(name, asyncio.Lock()):
            await self._clock.sleep(ACCEPT_S)
            now = self._get_repair(repair.metadata.name)
            if now is not None and now.spec.cancel:
                message = "Nobody wants it any more."
                await self._report(repair, RepairStatus(phase=RepairPhase.CANCELLED, message=message))
                return
            started = self._clock.now()
            operation = self._operation(repair)
            await self._report(
                repair, RepairStatus(phase=RepairPhase.RUNNING, started_at=started, external_id=operation)
            )
            try:
                message = await self._work(repair)
                phase = RepairPhase.DONE
            except _RefusedError as refused:
                message, phase = str(refused), RepairPhase.FAILED
            self._say("repair", name, f"{repair.spec.rung.value} of {name}: {message}.")
            await self._report(
                repair,
                RepairStatus(
                    phase=phase,
                    started_at=started,
                    finished_at=self._clock.now(),
                    message=message,
                    external_id=operation,
                ),
            )

    def _operation(self, repair: Repair) -> str:
        if repair.spec.rung is not Rung.TICKET:
            return f"op-{repair.metadata.uid[:8]}"
        self._tickets += 1
        return f"INC-{FIRST_TICKET + self._tickets - 1}"

    async def _work(self, repair: Repair) -> str:
        """Do it, and say what was done. Raises _RefusedError."""
        name, rung = repair.spec.node_name, repair.spec.rung
        if name not in self._world.nodes:
            raise _RefusedError(f"there is no machine {name}")
        if repair.spec.node_uid and repair.spec.node_uid != self._node_uids.get(name):
            raise _RefusedError(f"the node {name} is another one than the Repair is for")
        if (name, rung) in self._refusals:
            raise _RefusedError(self._refusals[name, rung])
        match rung:
            case Rung.RESET_GPU | Rung.RESTART_DRIVER:
                return await self._reset(repair)
            case Rung.REBOOT | Rung.POWER_CYCLE | Rung.REPLACE:
                return await self._restart(name, rung)
            case Rung.TICKET:
                return "ticket filed with the provider's support"
            case _ as never:
                assert_never(never)

    async def _reset(self, repair: Repair) -> str:
        name, rung = repair.spec.node_name, repair.spec.rung
        node = self._world.nodes[name]
        await self._clock.sleep(DURATION_S[rung])
        users = self._kubelets.gpu_pods(name)
        if users:
            raise _RefusedError(f"GPUs are in use by {', '.join(pod.key for pod in users[:4])}")
        if not node.up:
            raise _RefusedError(f"{name} is down")
        known = [gpu.index for gpu in node.gpus if not repair.spec.gpu_uuids or gpu.uuid in repair.spec.gpu_uuids]
        if not known:
            raise _RefusedError(f"{name} has none of the GPUs that the Repair names")
        self._world.reset_gpus(name, self._clock.now(), known)
        self._cure(name, rung, known)
        self._tasks.start(self._recur(name, node.boot_id))
        return "driver restarted" if rung is Rung.RESTART_DRIVER else f"{len(known)} GPU(s) reset"

    async def _recur(self, name: str, boot_id: str) -> None:
        """What a reset did not cure shows again."""
        await self._clock.sleep(RECURRENCE_S)
        if self._world.nodes[name].boot_id == boot_id and self._world.nodes[name].up:
            for defect in self._world.defects_of(name):
                # A silent firmware logs nothing by itself; the next real work on the GPU meets it.
                if defect.kind is DefectKind.XID and not defect.hangs():
                    self._world.raise_xid(defect, self._clock.now())

    async def _restart(self, name: str, rung: Rung) -> str:
        self._world.go_down(name)
        await self._clock.sleep(DURATION_S[rung])
        if rung is Rung.REPLACE:
            self._world.swap_gpus(name)
        self._cure(name, rung, range(len(self._world.nodes[name].gpus)))
        self._world.come_up(name, self._clock.now())
        await self._clock.sleep(ACCEPT_S)
        return {Rung.REBOOT: "rebooted", Rung.POWER_CYCLE: "power-cycled"}.get(rung, "GPU board replaced")

    def _cure(self, name: str, rung: Rung, gpus: Sequence[int]) -> None:
        for defect in self._world.cure(name, rung, gpus):
            self._say("cure", name, f"{rung.value} cured it: {defect.sentence()}.")

    async def _report(self, repair: Repair, status: RepairStatus) -> None:
        self._operations[repair.metadata.name].status = status
        patch = {"status": to_object(status)}
        try:
            await persist(
                self._clock,
                lambda: self._api.patch(
                    REPAIRS, repair.metadata.name, patch, PatchType.MERGE, subresource="status", manager=PROVIDER
                ),
            )
        except NotFoundError:
            return  # deleted meanwhile: nobody waits for the answer
