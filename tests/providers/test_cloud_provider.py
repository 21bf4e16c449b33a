"""The steps that all clouds share, against a cloud in memory; and the names of machines."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime
from typing import Any, ClassVar, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.errors import BadInputError
from muster.operate.providers.cloud.gateway import Machine, MachineState, Operation, OperationState, require
from muster.operate.providers.cloud.machine_ids import aws_id, azure_id, gcp_id, oci_id
from muster.operate.providers.cloud.provider import CloudProvider
from muster.operate.providers.config import AwsSettings, CloudReplace, LocalDisks
from muster.operate.providers.http import UnansweredError
from muster.operate.providers.provider import PermanentProviderError, TransientProviderError
from muster.resources.repair import RepairPhase, Rung
from muster.sim.virtual import VirtualClock, run_virtual
from tests.providers.bed import bed, running
from tests.providers.contract import Bench, ProviderContract

T = TypeVar("T")
WORK_S = 60.0


async def at_once(act: Callable[[], T]) -> T:
    """In place of a thread: virtual time does not wait for threads."""
    return act()


class MemoryCloud(Bench):
    """A cloud with one machine. `idempotent`: it knows tokens and has operations."""

    node: ClassVar[dict[str, Any]] = {"providerID": "mem:///machine-1"}
    idempotent: ClassVar[bool] = False
    replace_by: ClassVar[CloudReplace] = CloudReplace.INSTANCE
    title = "Memory"

    async def start(self) -> None:
        self.state = MachineState.RUNNING
        self.started_at: datetime | None = None
        self.boots = 1
        self.left, self.how = 0, ""
        self.tokens: dict[str, str] = {}
        self.operations: dict[str, OperationState] = {}
        self.tasks: list[asyncio.Task[None]] = []
        self.erases = self.cannot = ""
        self.settings = AwsSettings(name="p", replace=self.replace_by)

    async def close(self) -> None:
        for task in self.tasks:
            task.cancel()

    def provider(self) -> CloudProvider:
        return CloudProvider(self.settings, self.gateway(), self.bed.clock, at_once)

    def gateway(self) -> Any:
        return _Gateway(self)

    def break_next(self, times: int, how: str) -> None:
        self.left, self.how = times, how

    def due(self, *kinds: str) -> bool:
        if self.left > 0 and self.how in kinds:
            self.left -= 1
            return True
        return False

    def order(self, kind: str, token: str) -> str:
        if self.due("transient"):
            raise TransientProviderError("RequestLimitExceeded")
        if self.due("permanent"):
            raise PermanentProviderError("UnauthorizedOperation: this role may not do it.")
        if not (self.idempotent and token in self.tokens):
            if kind != "start":
                self.works.append(kind)
            operation = f"op-{kind}-{len(self.tokens)}"
            self.tokens[token] = operation
            self.operations[operation] = OperationState.RUNNING
            self.tasks.append(asyncio.ensure_future(self.carry_out(kind, operation)))
        if self.due("lost"):
            raise UnansweredError("read timed out")
        return self.tokens[token] if self.idempotent else ""

    async def carry_out(self, kind: str, operation: str) -> None:
        if kind == "stop":
            self.state = MachineState.STOPPING
        while True:
            await self.bed.clock.sleep(WORK_S)
            if self.ok is None:
                continue
            if not self.ok:
                self.operations[operation] = OperationState.FAILED
                return
            if kind == "stop":
                self.state = MachineState.STOPPED
            elif kind == "replace":
                self.state = MachineState.GONE
            else:
                self.state, self.started_at = MachineState.RUNNING, self.bed.clock.now()
                self.boots += 1
                await self.bed.boot(f"boot-{self.boots}")
            self.operations[operation] = OperationState.DONE
            return


class _Gateway:
    title = "Memory"

    def __init__(self, cloud: MemoryCloud) -> None:
        self._cloud = cloud
        self.idempotent = cloud.idempotent

    def target_of(self, provider_id: str) -> str:
        return provider_id

    def machine(self, target: str) -> Machine:
        cloud = self._cloud
        if cloud.due("transient"):
            raise TransientProviderError("RequestLimitExceeded")
        return Machine(
            state=cloud.state, started_at=cloud.started_at, cannot_stop=cloud.cannot, stop_erases=cloud.erases
        )

    def reboot(self, target: str, token: str) -> str:
        return self._cloud.order("reboot", token)

    def stop(self, target: str, token: str, erase: bool) -> str:
        return self._cloud.order("stop", token)

    def start(self, target: str, token: str) -> str:
        return self._cloud.order("start", token)

    def replace(self, target: str, token: str, how: CloudReplace) -> str:
        return self._cloud.order("replace", token)

    def operation(self, target: str, operation: str) -> Operation:
        return Operation(self._cloud.operations[operation], "no capacity")


class TestRebootWithoutTokens(ProviderContract):
    bench = MemoryCloud


class _Tokens(MemoryCloud):
    idempotent = True


class TestRebootWithTokens(ProviderContract):
    bench = _Tokens


class _PowerCycle(MemoryCloud):
    rung = Rung.POWER_CYCLE


class TestPowerCycleWithoutTokens(ProviderContract):
    bench = _PowerCycle


class _PowerCycleTokens(_Tokens):
    rung = Rung.POWER_CYCLE


class TestPowerCycleWithTokens(ProviderContract):
    bench = _PowerCycleTokens


def play(kind: type[MemoryCloud], act: Any) -> None:
    async def main(clock: VirtualClock) -> None:
        behind = kind(await bed(clock, kind.node))
        await behind.start()
        try:
            await act(behind)
        finally:
            await behind.close()

    run_virtual(main)


def test_a_replaced_machine_may_take_its_node_with_it() -> None:
    async def act(b: MemoryCloud) -> None:
        from muster.kube.api import NODES

        await b.bed.ask("r1", "p", Rung.REPLACE, timeout_s=3600)
        async with running(b.bed.controller([b.provider()]).run()):
            await b.bed.clock.sleep(30)
            await b.bed.api.delete(NODES, "gpu-001")
            done = await b.bed.ended("r1")
        assert (done.status.phase, b.works) == (RepairPhase.DONE, ["replace"]), done.status

    play(MemoryCloud, act)


def test_replace_is_refused_unless_it_was_chosen() -> None:
    async def act(b: MemoryCloud) -> None:
        b.settings = AwsSettings(name="p")
        await b.bed.ask("r1", "p", Rung.REPLACE)
        async with running(b.bed.controller([b.provider()]).run()):
            done = await b.bed.ended("r1", 60)
        assert (done.status.phase, b.works) == (RepairPhase.FAILED, [])
        assert "does not do replace" in done.status.message

    play(MemoryCloud, act)


@pytest.mark.parametrize(
    ("erases", "cannot", "disks", "works"),
    [
        ("the local disks of p5.48xlarge", "", LocalDisks.KEEP, []),
        ("the local disks of p5.48xlarge", "", LocalDisks.MAY_BE_LOST, ["stop"]),
        ("", "it is a spot instance", LocalDisks.MAY_BE_LOST, []),
    ],
)
def test_disks_are_erased_only_when_that_is_allowed(
    erases: str, cannot: str, disks: LocalDisks, works: list[str]
) -> None:
    async def act(b: MemoryCloud) -> None:
        b.erases, b.cannot = erases, cannot
        b.settings = AwsSettings(name="p", local_disks=disks)
        await b.bed.ask("r1", "p", Rung.POWER_CYCLE)
        async with running(b.bed.controller([b.provider()]).run()):
            done = await b.bed.ended("r1")
        assert b.works == works
        assert works or (erases or cannot) in done.status.message

    play(MemoryCloud, act)


# Names of machines

AZURE = "azure:///subscriptions/0b1f6471-1bf0-4dda-aec3-cb9272f09590/resourceGroups/mc_rg/providers/Microsoft.Compute"
OCID = "ocid1.instance.oc1.iad.anuwcljtexampleexampleexampleexampleexampleexampleexampleexa"


def test_names_of_machines() -> None:
    aws = aws_id("aws:///us-east-1a/i-0123456789abcdef0")
    assert (aws.region, aws.instance) == ("us-east-1", "i-0123456789abcdef0")
    assert aws_id("aws:///us-west-2-lax-1a/i-0123456789abcdef0").region == "us-west-2"
    assert aws_id("aws:///us-gov-west-1b/i-01234567").region == "us-gov-west-1"
    gcp = gcp_id("gce://my-project/us-central1-a/gke-pool-1-abcd")
    assert (gcp.project, gcp.zone, gcp.name) == ("my-project", "us-central1-a", "gke-pool-1-abcd")
    vmss = azure_id(f"{AZURE}/virtualMachineScaleSets/aks-gpu-vmss/virtualMachines/12")
    assert (vmss.group, vmss.scale_set, vmss.name) == ("mc_rg", "aks-gpu-vmss", "12")
    assert azure_id(f"{AZURE}/virtualMachines/vm-1").scale_set == ""
    assert oci_id(OCID) == oci_id(f"oci://{OCID}")
    assert oci_id(OCID).region == "iad"


@pytest.mark.parametrize("read", [aws_id, gcp_id, azure_id, oci_id])
@given(
    text=st.text(max_size=60)
    | st.sampled_from(["aws:///us-east-1a/i-0123456789abcdef0/../x", "gce://p/z", f"{AZURE}/x"])
)
def test_anything_else_is_refused_with_what_is_needed(read: Callable[[str], Any], text: str) -> None:
    with pytest.raises(PermanentProviderError, match="this provider needs"):
        read(text)


def test_a_missing_sdk_is_told_with_the_command() -> None:
    with pytest.raises(BadInputError, match=r"pip install 'muster-gpu\[aws\]'"):
        require(("surely_no.such.module",), "aws", "ec2")
