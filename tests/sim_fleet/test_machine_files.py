"""Machines as files: what a real agent reads there is what the simulated one is told."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest

from muster.agent.agent import Agent
from muster.agent.inventory import LinuxInventory
from muster.agent.kernel_log import open_kernel_log
from muster.agent.sources import NodeReadings
from muster.agent.state import DirectoryStateStore
from muster.kube.api import NODE_HEALTHS, NODES
from muster.resources.base import SYSTEM_NAMESPACE, from_object
from muster.resources.node_health import NodeHealth, Observed
from muster.resources.repair import Rung
from muster.sim.agent_sources import readings_of
from muster.sim.defects import Appears, CuredBy, Defect, DefectKind
from muster.sim.inprocess import InProcessApi
from muster.sim.machine_files import MachineFiles
from muster.sim.nodes import ensure_namespace
from muster.sim.store import Store
from muster.sim.tasks import run_until
from muster.sim.virtual import DEFAULT_START, VirtualClock, run_virtual
from muster.sim.world import World

NODE = "gpu-001"


def world() -> World:
    return World(seed=3, nodes=2, domains=1, started=DEFAULT_START, driver="580.65.06")


def read(files: MachineFiles) -> NodeReadings:
    return asyncio.run(LinuxInventory(files.root(NODE)).read())


def xid(code: int, cured_by: CuredBy) -> Defect:
    return Defect(
        kind=DefectKind.XID, node=NODE, gpu=2, xid=code, cured_by=cured_by, appears=Appears.TIME, after_s=60.0
    )


BROKEN = Defect(kind=DefectKind.NEEDS_REPLACEMENT, node=NODE, gpu=4, cured_by=CuredBy.REPLACE)


def test_the_files_tell_what_the_simulated_inventory_tells(tmp_path: Path) -> None:
    machines = world()
    found = read(MachineFiles(machines, tmp_path))
    node = machines.nodes[NODE]
    assert found.readings == readings_of(node)
    assert found.boot_id == node.boot_id
    assert found.booted_at == node.booted_at
    assert [(g.uuid, g.pci) for g in found.gpus] == [(g.uuid, g.pci) for g in node.gpus]
    assert found.unread == ()


def test_a_driver_that_is_loaded_shows_at_once(tmp_path: Path) -> None:
    machines = world()
    files = MachineFiles(machines, tmp_path)
    machines.install_driver(NODE, "580.95.05", DEFAULT_START)
    values = {r.name: r.value for r in read(files).readings}
    assert values["driver.version"] == values["gpu.0.gsp_firmware"] == values["module.nvidia"] == "580.95.05"


def test_a_boot_changes_the_identity_of_the_boot_and_empties_the_kernel_log(tmp_path: Path) -> None:
    machines = world()
    files = MachineFiles(machines, tmp_path)
    machines.appear(xid(79, CuredBy.REBOOT), DEFAULT_START)
    assert b"fallen off the bus" in files.kernel_log(NODE).read_bytes()
    machines.go_down(NODE)
    machines.swap_gpus(NODE)
    machines.come_up(NODE, DEFAULT_START + timedelta(minutes=6))
    found = read(files)
    assert found.boot_id == machines.nodes[NODE].boot_id
    assert found.booted_at == DEFAULT_START + timedelta(minutes=6)
    assert [g.uuid for g in found.gpus] == [g.uuid for g in machines.nodes[NODE].gpus]
    assert files.kernel_log(NODE).read_bytes() == b"".join(machines.nodes[NODE].log)


def test_a_gpu_that_does_not_initialise_shows_no_uuid(tmp_path: Path) -> None:
    machines = world()
    files = MachineFiles(machines, tmp_path)
    machines.appear(BROKEN, DEFAULT_START)
    assert read(files).unread == ("gpu.4.uuid", "gpu.4.vbios")


def test_a_machine_that_is_down_and_a_closed_mirror_change_nothing(tmp_path: Path) -> None:
    machines = world()
    files = MachineFiles(machines, tmp_path)
    before = files.kernel_log(NODE).read_bytes()
    files.close()
    machines.install_driver(NODE, "580.95.05", DEFAULT_START)
    assert files.kernel_log(NODE).read_bytes() == before
    assert machines.on_log == []
    assert machines.on_power == []


class OneNode:
    """The agent of one machine on its files, on virtual time; it dies and comes back with the machine."""

    def __init__(self, clock: VirtualClock, folder: Path) -> None:
        self.clock = clock
        self.world = world()
        self.api = InProcessApi(Store(clock, seed=1))
        self._files = MachineFiles(self.world, folder)
        self._down = asyncio.Event()

    async def live(self) -> None:
        from muster.kube.api import CRDS
        from muster.resources import crd

        for manifest in crd.manifests():
            await self.api.create(CRDS, dict(manifest))
        await ensure_namespace(self.api, SYSTEM_NAMESPACE)
        await self.api.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}})
        while True:
            self._down.clear()
            boot_id = self.world.nodes[NODE].boot_id
            agent = Agent(
                self.api,
                NODE,
                open_kernel_log(self._files.kernel_log(NODE), boot_id, self.clock),
                LinuxInventory(self._files.root(NODE)),
                self.clock,
                state=DirectoryStateStore(self._files.state(NODE)),
                version="0",
            )
            await run_until(agent.run(), self._down)

    async def boot(self) -> None:
        self.world.go_down(NODE)
        self.world.come_up(NODE, self.clock.now())
        self._down.set()
        await self.clock.sleep(60)

    async def observed(self) -> Observed:
        health = from_object(NodeHealth, await self.api.get(NODE_HEALTHS, NODE))
        assert health.status.observed is not None
        return health.status.observed

    async def codes(self) -> list[str]:
        """Codes of the open faults, after a while in which everything can be read."""
        await self.clock.sleep(60)
        return sorted({f.code for f in (await self.observed()).faults})


@pytest.mark.parametrize(("rung", "opens"), [(Rung.RESET_GPU, "95"), (Rung.REBOOT, "79")])
def test_a_repair_that_helps_closes_the_fault_and_one_that_does_not_leaves_it(
    tmp_path: Path, rung: Rung, opens: str
) -> None:
    async def main(clock: VirtualClock) -> None:
        node = OneNode(clock, tmp_path)
        task = asyncio.ensure_future(node.live())
        await clock.sleep(60)
        assert await node.codes() == []
        defect = xid(int(opens), CuredBy(rung.value))
        node.world.appear(defect, clock.now())
        assert opens in await node.codes()
        if rung is Rung.RESET_GPU:
            node.world.reset_gpus(NODE, clock.now(), [2])
        else:
            await node.boot()
        assert await node.codes() == []
        node.world.raise_xid(defect, clock.now())
        assert opens in await node.codes()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    run_virtual(main)


def test_a_gpu_that_fails_at_every_boot_stays_known_by_its_uuid(tmp_path: Path) -> None:
    async def main(clock: VirtualClock) -> None:
        node = OneNode(clock, tmp_path)
        task = asyncio.ensure_future(node.live())
        await clock.sleep(60)
        before = await node.observed()
        node.world.appear(BROKEN, clock.now())
        for _ in range(2):
            assert await node.codes() == ["gpu-init-failed"]
            now = await node.observed()
            assert [g.uuid for g in now.gpus] == [g.uuid for g in before.gpus]
            assert {f.entity.uuid for f in now.faults} == {before.gpus[4].uuid}
            await node.boot()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    run_virtual(main)
