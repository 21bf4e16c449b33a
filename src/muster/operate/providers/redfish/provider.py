"""Carries out reboot and power-cycle through the node's BMC.

A BMC knows no idempotency key, so an order whose answer was lost is given again only when the node shows that it had
no effect (see `once.py`). `external_id` says which step was taken last: `<reset type>`, behind it the task if any.
"""

from __future__ import annotations

from muster.clock import Clock
from muster.moments import after
from muster.operate.providers.config import RedfishSettings
from muster.operate.providers.http import Answer, HttpClient, NotSentError, UnansweredError, same_origin
from muster.operate.providers.once import UNKNOWN, OnceGuard, Order
from muster.operate.providers.provider import (
    NodeFactsForRepair,
    PermanentProviderError,
    Progress,
    TransientProviderError,
    chosen,
)
from muster.operate.providers.redfish.address import bmc_address
from muster.operate.providers.redfish.client import Bmc, connected
from muster.operate.providers.redfish.schema import Plan, Power, TaskState, plan, task_state, words
from muster.resources.repair import Repair, RepairPhase, Rung

POLL_S = 10.0
SETTLE_S = 120.0
"""Without a boot ID to compare: how long after the order a system that is On counts as restarted."""
PATH_LIMIT = 300


class RedfishProvider:
    """See `RedfishSettings`."""

    def __init__(self, settings: RedfishSettings, clock: Clock) -> None:
        self.name = settings.name
        self.rungs = chosen(settings.rungs, frozenset({Rung.REBOOT, Rung.POWER_CYCLE}))
        self._settings = settings
        self._clock = clock
        self._once = OnceGuard()
        self._http = HttpClient(
            ca_file=settings.ca_file,
            insecure=settings.insecure_skip_verify,
            limit_s=settings.request_limit_s,
        )

    async def close(self) -> None:
        await self._http.close()

    async def begin(self, repair: Repair, node: NodeFactsForRepair) -> Progress:
        match self._once.may_give(repair, node, self._clock.now()):
            case Order.TAKEN:
                return self._over(repair, "The node has booted.")
            case Order.WAIT:
                # An order that cuts the power shows itself: the system is off, and only `On` is missing.
                async with connected(self._http, bmc_address(self._settings, node), self._settings) as bmc:
                    system = await bmc.system(self._settings.system)
                if system.power is Power.OFF:
                    return Progress(phase=RepairPhase.RUNNING, external_id=Plan.OFF_ON.value, message=UNKNOWN)
                return Progress(phase=RepairPhase.PENDING, message=UNKNOWN, retry_after_s=POLL_S)
            case Order.GIVE:
                pass
        async with connected(self._http, bmc_address(self._settings, node), self._settings) as bmc:
            system = await bmc.system(self._settings.system)
            chosen_plan = plan(repair.spec.rung, system.allowed, system.power, self._settings.graceful, bmc.host)
            return await self._order(bmc, repair, chosen_plan)

    async def look(self, repair: Repair, node: NodeFactsForRepair) -> Progress:
        step, _, task = repair.status.external_id.partition(" ")
        if node.booted_since(repair):
            return self._over(repair, f"{step}: the node has booted.")
        async with connected(self._http, bmc_address(self._settings, node), self._settings) as bmc:
            if task:
                return await self._task(bmc, step, task)
            system = await bmc.system(self._settings.system)
            if step == Plan.OFF_ON and system.power is Power.OFF:
                # Asking for `On` twice is harmless.
                return await self._order(bmc, repair, Plan.ON)
        began = repair.status.started_at or self._clock.now()
        settled = self._clock.now() >= after(began, SETTLE_S)
        if not repair.spec.boot_id_before and step != Plan.OFF_ON and system.power is Power.ON and settled:
            return self._over(repair, f"{step}: the system is on again.")
        text = f"{step} was accepted; power is {system.power.value}; waits until the node has booted."
        return Progress(phase=RepairPhase.RUNNING, message=text, retry_after_s=POLL_S)

    async def cancel(self, repair: Repair, node: NodeFactsForRepair) -> Progress:
        """An order that a BMC took cannot be taken back; a machine that is off is switched on in any case."""
        if repair.status.external_id or node.booted_since(repair):
            return await self.look(repair, node)
        if self._once.surely_not_given(repair):
            return Progress(phase=RepairPhase.CANCELLED, message="Stopped before the BMC was given an order.")
        async with connected(self._http, bmc_address(self._settings, node), self._settings) as bmc:
            system = await bmc.system(self._settings.system)
            if system.power is Power.OFF:
                return await self._order(bmc, repair, Plan.ON)
        return Progress(phase=RepairPhase.RUNNING, message=UNKNOWN, retry_after_s=POLL_S)

    async def _order(self, bmc: Bmc, repair: Repair, order: Plan) -> Progress:
        system = await bmc.system(self._settings.system)
        self._once.giving(repair, self._clock.now())
        try:
            answer = await bmc.reset(system, order.value)
        except UnansweredError:
            raise
        except (NotSentError, TransientProviderError):
            self._once.refused(repair)
            raise
        task = _task_path(answer, bmc)
        return Progress(
            phase=RepairPhase.RUNNING,
            external_id=f"{order.value} {task}".strip(),
            message=f"{bmc.host} accepted {order.value}.",
            retry_after_s=POLL_S,
        )

    async def _task(self, bmc: Bmc, step: str, task: str) -> Progress:
        answer = await bmc.get(task)
        if answer.status == 404:
            # Task monitors vanish once they were read; from here on the node itself is looked at.
            state, said = TaskState.DONE, ""
        elif answer.status == 202:
            state, said = TaskState.RUNNING, ""
        elif answer.status in (429, 503) or answer.status >= 500:
            raise TransientProviderError(f"{bmc.host} answered {answer.status} for the task", answer.retry_after_s)
        else:
            value = answer.json()
            state = task_state(value) if answer.status < 400 else TaskState.FAILED
            said = words(value)
        if state is TaskState.FAILED:
            return Progress(phase=RepairPhase.FAILED, message=f"{step} failed at {bmc.host}. {said}".strip())
        if state is TaskState.DONE:
            return Progress(
                phase=RepairPhase.RUNNING,
                external_id=step,
                message=f"The task of {bmc.host} has ended.",
                retry_after_s=0.5,
            )
        return Progress(phase=RepairPhase.RUNNING, message=f"{bmc.host} is at work on {step}.", retry_after_s=POLL_S)

    def _over(self, repair: Repair, message: str) -> Progress:
        self._once.forget(repair)
        return Progress(phase=RepairPhase.DONE, message=message)


def _task_path(answer: Answer, bmc: Bmc) -> str:
    """Where a 202 says that its task can be followed, as a path; empty for an order done at once."""
    if answer.status != 202:
        return ""
    named = answer.headers.get("location", "") or str(answer.json().get("@odata.id") or "")
    if not named:
        return ""
    url = same_origin(bmc.base, named)
    path = url.removeprefix(same_origin(bmc.base, "/").rstrip("/"))
    if len(path) > PATH_LIMIT or " " in path:
        raise PermanentProviderError(f"{bmc.host} names a task by a path of no use.")
    return path
