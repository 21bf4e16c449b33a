"""Carries out reboot, power-cycle and replace at a cloud. The same steps for all clouds; gateways know the APIs.

`external_id` is `<step> <target> <operation>`: it says which step was taken last and on which machine, also when the
node has gone meanwhile.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar, assert_never

from muster.clock import Clock
from muster.moments import after
from muster.operate.providers.cloud.gateway import Gateway, Machine, MachineState, OperationState
from muster.operate.providers.config import CloudReplace, CloudSettings, LocalDisks
from muster.operate.providers.http import UnansweredError
from muster.operate.providers.once import UNKNOWN, OnceGuard, Order
from muster.operate.providers.provider import (
    NodeFactsForRepair,
    PermanentProviderError,
    Progress,
    TransientProviderError,
    chosen,
)
from muster.resources.repair import Repair, RepairPhase, Rung

T = TypeVar("T")

POLL_S = 10.0
SETTLE_S = 120.0
"""Without a boot ID to compare: how long after an order that has no operation it counts as carried out."""
REBOOT, STOP, START, REPLACE = "reboot", "stop", "start", "replace"
_NAMESPACE = uuid.UUID("6f0b7d0e-7c6a-5d0a-9a52-3f1f0f6b9f11")
"""Ours alone: tokens of two tools never meet."""


class InThread(Protocol):
    """Runs something that blocks, beside the event loop."""

    def __call__(self, act: Callable[[], T]) -> Awaitable[T]: ...


async def in_thread(act: Callable[[], T]) -> T:
    """The result of `act`, from a thread of the default pool."""
    return await asyncio.to_thread(act)


class CloudProvider:
    """See `CloudSettings`."""

    def __init__(self, settings: CloudSettings, gateway: Gateway, clock: Clock, run: InThread = in_thread) -> None:
        able = {Rung.REBOOT, Rung.POWER_CYCLE}
        if settings.replace is not CloudReplace.NONE:
            able.add(Rung.REPLACE)
        self.name = settings.name
        self.rungs = chosen(settings.rungs, frozenset(able))
        self._settings = settings
        self._gateway = gateway
        self._clock = clock
        self._in_thread = run
        self._once = OnceGuard()

    async def close(self) -> None:
        return

    async def begin(self, repair: Repair, node: NodeFactsForRepair) -> Progress:
        target = self._gateway.target_of(node.provider_id)
        order = self._once.may_give(repair, node, self._clock.now())
        if order is Order.TAKEN:
            return self._over(repair, "The node has booted.")
        machine = await self._machine(target)
        resumed = repair.status.phase is not RepairPhase.PENDING
        step = _step_of(repair.spec.rung)
        if resumed and _shows(step, machine, repair):
            return self._running(step, target, "", UNKNOWN)
        if order is Order.WAIT and not self._gateway.idempotent:
            return Progress(phase=RepairPhase.PENDING, message=UNKNOWN, retry_after_s=POLL_S)
        self._check(repair, target, machine)
        return await self._order(repair, step, target)

    async def look(self, repair: Repair, node: NodeFactsForRepair) -> Progress:
        step, target, operation = _parts(repair.status.external_id)
        if node.booted_since(repair):
            return self._over(repair, f"{step}: the node has booted.")
        ended = OperationState.RUNNING
        if operation:
            found = await self._in_thread(lambda: self._gateway.operation(target, operation))
            if found.state is OperationState.FAILED:
                text = f"{self._gateway.title}: {step} failed: {found.message or 'no reason given'}"
                return Progress(phase=RepairPhase.FAILED, message=text)
            ended = found.state
        machine = await self._machine(target)
        done = ended is OperationState.DONE
        settled = done or (not operation and self._settled(repair))
        if step == REPLACE:
            if _shows(REPLACE, machine, repair):
                return self._over(repair, "The machine was handed back; its group or the autoscaler makes another.")
        elif machine.state is MachineState.GONE:
            return Progress(
                phase=RepairPhase.FAILED, message=f"{self._gateway.title} has no machine {target} any more."
            )
        elif step == STOP and _shows(START, machine, repair):
            return self._running(START, target, "", "It was started again.")
        elif machine.state is MachineState.STOPPED and step in (STOP, START):
            return await self._order(repair, START, target)
        elif machine.state is MachineState.RUNNING and step != STOP and settled and not repair.spec.boot_id_before:
            return self._over(repair, f"{step}: the machine runs again.")
        text = f"{self._gateway.title}: {step} was accepted, the machine is {machine.state.value}."
        return Progress(phase=RepairPhase.RUNNING, message=text, retry_after_s=POLL_S)

    async def cancel(self, repair: Repair, node: NodeFactsForRepair) -> Progress:
        """Clouds take no order back. What was stopped is started again in any case."""
        if repair.status.external_id:
            return await self.look(repair, node)
        if self._once.surely_not_given(repair):
            return Progress(phase=RepairPhase.CANCELLED, message="Stopped before the cloud was given an order.")
        target = self._gateway.target_of(node.provider_id)
        if (await self._machine(target)).state is MachineState.STOPPED:
            return await self._order(repair, START, target)
        if node.booted_since(repair):
            return self._over(repair, "The node has booted.")
        return Progress(phase=RepairPhase.RUNNING, message=UNKNOWN, retry_after_s=POLL_S)

    async def _machine(self, target: str) -> Machine:
        return await self._in_thread(lambda: self._gateway.machine(target))

    def _check(self, repair: Repair, target: str, machine: Machine) -> None:
        """Refuse what would do harm or cannot work. Raises PermanentProviderError."""
        if machine.state is MachineState.GONE:
            raise PermanentProviderError(f"{self._gateway.title} has no machine {target}.")
        if repair.spec.rung is Rung.POWER_CYCLE:
            if machine.cannot_stop:
                raise PermanentProviderError(f"A power-cycle would stop {target}, but {machine.cannot_stop}.")
            if machine.stop_erases and self._settings.local_disks is LocalDisks.KEEP:
                raise PermanentProviderError(
                    f"A power-cycle would erase {machine.stop_erases}; allow it with localDisks: may-be-lost."
                )
        if repair.spec.rung is Rung.REBOOT and machine.state is MachineState.STOPPED:
            raise PermanentProviderError(f"{target} is stopped; a reboot does not start it, a power-cycle does.")

    async def _order(self, repair: Repair, step: str, target: str) -> Progress:
        token = str(uuid.uuid5(_NAMESPACE, f"{repair.metadata.uid}/{step}"))
        erase = self._settings.local_disks is LocalDisks.MAY_BE_LOST
        gateway, how = self._gateway, self._settings.replace

        def give() -> str:
            match step:
                case "reboot":
                    return gateway.reboot(target, token)
                case "stop":
                    return gateway.stop(target, token, erase)
                case "start":
                    return gateway.start(target, token)
                case _:
                    return gateway.replace(target, token, how)

        self._once.giving(repair, self._clock.now())
        try:
            operation = await self._in_thread(give)
        except UnansweredError:
            raise
        except TransientProviderError:
            self._once.refused(repair)
            raise
        return self._running(step, target, operation, f"{gateway.title} accepted: {step}.")

    def _running(self, step: str, target: str, operation: str, message: str) -> Progress:
        return Progress(
            phase=RepairPhase.RUNNING,
            external_id=f"{step} {target} {operation}".strip(),
            message=message,
            retry_after_s=POLL_S,
        )

    def _settled(self, repair: Repair) -> bool:
        began = repair.status.started_at or self._clock.now()
        return self._clock.now() >= after(began, SETTLE_S)

    def _over(self, repair: Repair, message: str) -> Progress:
        self._once.forget(repair)
        return Progress(phase=RepairPhase.DONE, message=message)


def _step_of(rung: Rung) -> str:
    match rung:
        case Rung.REBOOT:
            return REBOOT
        case Rung.POWER_CYCLE:
            return STOP
        case Rung.REPLACE:
            return REPLACE
        case Rung.RESET_GPU | Rung.RESTART_DRIVER | Rung.TICKET:
            raise PermanentProviderError(f"A cloud cannot do {rung.value}.")
        case _ as never:
            assert_never(never)


def _shows(step: str, machine: Machine, repair: Repair) -> bool:
    """Whether the machine shows that the order of `step` was taken, by whomever it was given."""
    began = repair.status.started_at
    started = began is not None and machine.started_at is not None and machine.started_at > began
    match step:
        case "stop":
            return machine.state in (MachineState.STOPPING, MachineState.STOPPED) or started
        case "start":
            return machine.state is MachineState.STARTING or (started and machine.state is MachineState.RUNNING)
        case "replace":
            # A group may make the new one under the old name.
            return machine.state is MachineState.GONE or started
        case _:
            return False


def _parts(external_id: str) -> tuple[str, str, str]:
    step, _, rest = external_id.partition(" ")
    target, _, operation = rest.partition(" ")
    if step not in (REBOOT, STOP, START, REPLACE) or not target:
        raise PermanentProviderError("status.externalId is not what this provider wrote there; it cannot go on.")
    return step, target, operation
