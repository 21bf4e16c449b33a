"""The certification controller against the simulated fleet: exactly what was planted is named."""

from __future__ import annotations

import asyncio

import pytest

from muster.certify.controller import CertificationController
from muster.kube.api import CERTIFICATIONS
from muster.resources.base import API_VERSION, from_object
from muster.resources.certification import Certification, NodeVerdict, Phase
from muster.sim.defects import DefectKind
from muster.sim.inprocess import InProcessApi
from muster.sim.plant import Plant, default_plant, healthy_plant
from tests.sim_fleet.cluster import Cluster, play

SETTLE_S = 120.0
"""Until the agents of all nodes have reported."""


def bring_up(plant: Plant) -> Certification:
    """Certify the whole fleet of `plant` with the profile bringup."""

    async def scenario(cluster: Cluster) -> Certification:
        await cluster.clock.sleep(SETTLE_S)
        controller = CertificationController(InProcessApi(cluster.store, "controller"), cluster.clock)
        work = asyncio.ensure_future(controller.run())
        spec = {"nodes": sorted(cluster.fleet.world.nodes), "profile": "bringup", "purpose": "bringup"}
        body = {
            "apiVersion": API_VERSION,
            "kind": "Certification",
            "metadata": {"name": "bringup-all"},
            "spec": spec,
        }
        await cluster.api.create(CERTIFICATIONS, body)

        async def over() -> Certification | None:
            if work.done():
                work.result()
            found = from_object(Certification, await cluster.api.get(CERTIFICATIONS, "bringup-all"))
            return found if found.status.finished_at is not None else None

        result: Certification = await cluster.until(over, 4 * 3600.0, 10.0)
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)
        return result

    certification: Certification = play(plant, scenario, register_held=True)
    return certification


def check(plant: Plant) -> None:
    found = bring_up(plant)
    planted = {d.kind: d for d in plant.defects}
    failed = {r.name for r in found.status.nodes if r.verdict is NodeVerdict.FAILED}
    passed = {r.name for r in found.status.nodes if r.verdict is NodeVerdict.PASSED}
    assert failed == {planted[DefectKind.BAD_NODE].node, planted[DefectKind.SLOW_NODE].node}
    assert len(passed) == plant.nodes - 2
    link = planted[DefectKind.BAD_LINK]
    assert [(x.a, x.b) for x in found.status.links] == [tuple(sorted((link.node, link.peer)))]
    bounds = [r.error_bound for r in found.status.nodes if r.name in failed]
    assert all(bound is not None and bound <= 0.001 for bound in bounds)
    assert found.status.phase is Phase.FAILED


@pytest.mark.parametrize("seed", [1, 2])
def test_a_small_fleet_names_exactly_what_was_planted(seed: int) -> None:
    check(default_plant(seed, nodes=12))


def test_a_healthy_fleet_passes() -> None:
    found = bring_up(healthy_plant(3, nodes=10))
    assert found.status.phase is Phase.SUCCEEDED
    assert {r.verdict for r in found.status.nodes} == {NodeVerdict.PASSED}


@pytest.mark.full
@pytest.mark.parametrize("seed", range(1, 6))
@pytest.mark.requirement("v2.4/BM01")
def test_the_fleet_of_the_story_names_exactly_what_was_planted(seed: int) -> None:
    check(default_plant(seed, nodes=64))
