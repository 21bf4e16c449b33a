"""Snapshots of a simulated fleet that works: no drift by itself, and what changes shows on its nodes."""

from __future__ import annotations

from collections import Counter

from muster.configure.snapshot.difference import changes
from muster.configure.snapshot.model import ClusterSnapshot
from muster.configure.snapshot.read import take_nodes
from muster.sim.plant import DriverUpdate, JobMix, Plant
from tests.sim_fleet.cluster import Cluster, play


def test_a_fleet_that_works_shows_no_drift() -> None:
    async def scenario(cluster: Cluster) -> tuple[ClusterSnapshot, ClusterSnapshot]:
        await cluster.clock.sleep(300)
        before = await take_nodes(cluster.api, cluster.clock.now())
        await cluster.clock.sleep(3600)
        return before, await take_nodes(cluster.api, cluster.clock.now())

    plant = Plant(seed=1, nodes=4, domains=2, jobs=JobMix(count=1, nodes=2, duration_s=600))
    before, after = play(plant, scenario)
    assert [entry.unknown for entry in before.nodes] == [()] * 4
    assert [change for change in changes(before, after) if change.counts()] == []


def test_a_driver_update_and_a_dead_machine_show_on_their_nodes() -> None:
    async def scenario(cluster: Cluster) -> tuple[ClusterSnapshot, ClusterSnapshot]:
        await cluster.clock.sleep(300)
        before = await take_nodes(cluster.api, cluster.clock.now())
        await cluster.clock.sleep(1800)
        cluster.fleet.world.go_down("gpu-002")
        await cluster.clock.sleep(600)
        return before, await take_nodes(cluster.api, cluster.clock.now())

    plant = Plant(seed=1, nodes=3, domains=1, update=DriverUpdate(at_s=600, driver="590.1.2"))
    before, after = play(plant, scenario)
    found = [change for change in changes(before, after) if change.counts()]
    lost = {change.not_compared for change in found if change.subject == "node gpu-002" and change.after is None}
    assert len(lost) == 1
    assert "silent since" in lost.pop()
    seen = Counter(
        (change.name, change.reading_class.value)
        for change in found
        if change.subject in ("node gpu-001", "node gpu-003") and not change.name.startswith("gpu.")
    )
    label = "label:nvidia.com/cuda.driver-version.full"
    assert seen == {(name, "stack"): 2 for name in ("driver.version", "module.nvidia", label)}
