"""A controller that dies between any two of its writes is continued by the next one; the verdicts are the same."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from muster.certify.controller import CertificationController
from muster.kube.api import CERTIFICATIONS, PatchType
from muster.resources.certification import Certification, CertificationStatus, Phase
from muster.sim.api_faults import Fault, Request, too_many_requests
from muster.sim.inprocess import InProcessApi
from muster.sim.virtual import VirtualClock, run_virtual
from tests.certify.bed import Bed, Faults, names, running
from tests.invariants.mortal import Supervisor

FLEET = names(5)
FAULTS = Faults(bad=("n01",), links=(("n02", "n04"),))
PROFILE = "bringup"
PARTS = 6
"""Of the long test: each part has a time limit of its own."""


async def _story(clock: VirtualClock, lives: Sequence[int], lost: bool) -> tuple[Supervisor, CertificationStatus]:
    b = Bed(clock, FLEET, FAULTS)
    await b.install()
    for name in FLEET:
        await b.publish(name)
    supervisor = Supervisor(
        b.store,
        clock,
        lambda api: CertificationController(api, clock).run(),  # type: ignore[arg-type]
        lives,
        lost=lost,
    )
    async with running(b.kubelets(), supervisor.run()):
        await b.certify("c", FLEET, PROFILE)
        status = (await b.ended("c")).status
        await clock.sleep(30)
        assert await b.pods() == []
    assert b.problems == []
    return supervisor, status


def story(lives: Sequence[int], lost: bool) -> tuple[Supervisor, CertificationStatus]:
    return run_virtual(lambda clock: _story(clock, lives, lost))


def essence(status: CertificationStatus) -> tuple[object, ...]:
    """What must not depend on deaths: everything but times."""
    cost = (status.cost.rounds, status.cost.runs, status.cost.node_minutes)
    return (status.phase, status.nodes, status.links, status.runs, status.message, cost)


def test_the_story_without_deaths_names_what_is_wrong() -> None:
    supervisor, status = story([], False)
    assert supervisor.deaths == 0
    assert supervisor.writes > 50
    assert status.phase is Phase.FAILED
    assert {r.name for r in status.nodes if r.verdict.value == "Failed"} == {"n01"}
    assert [(link.a, link.b) for link in status.links if link.verdict.value == "Failed"] == [("n02", "n04")]


@pytest.mark.parametrize("lost", [False, True])
def test_deaths_now_and_then_change_nothing(lost: bool) -> None:
    expected = essence(story([], lost)[1])
    drawn = random.Random(11)
    for _ in range(4):
        lives = [drawn.randint(1, 30) for _ in range(6)]
        supervisor, status = story(lives, lost)
        assert supervisor.deaths >= 3, lives
        assert essence(status) == expected, lives


@pytest.mark.full
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("lost", [False, True])
def test_death_between_any_two_writes_changes_nothing(lost: bool, part: int) -> None:
    supervisor, status = story([], lost)
    expected = essence(status)
    for k in range(1 + part, supervisor.writes + 1, PARTS):
        again, found = story([k], lost)
        assert again.deaths == 1, k
        assert essence(found) == expected, k


@pytest.mark.parametrize("kind", ["before", "after", "busy"])
def test_a_server_that_fails_every_third_write_changes_nothing(kind: str) -> None:
    count = 0

    def hook(request: Request) -> Fault | None:
        nonlocal count
        if request.user != "muster" or request.verb in ("get", "list", "watch"):
            return None
        count += 1
        if count % 3:
            return None
        if kind == "busy":
            return Fault(error=too_many_requests())
        return Fault(lost=True, after_write=kind == "after")

    async def main(clock: VirtualClock) -> Certification:
        b = Bed(clock, FLEET, FAULTS)
        await b.install()
        for name in FLEET:
            await b.publish(name)
        b.store.faults = hook
        controller = CertificationController(InProcessApi(b.store, user="muster"), clock)
        async with running(b.kubelets(), controller.run()):
            await b.certify("c", FLEET, PROFILE)
            return await b.ended("c")

    found = run_virtual(main)
    assert count > 50
    assert essence(found.status) == essence(story([], False)[1])


def test_a_status_that_another_controller_wrote_is_not_overwritten() -> None:
    """The loser of a split leadership begins anew from what is written."""

    async def main(clock: VirtualClock) -> Certification:
        b = Bed(clock, FLEET, FAULTS)
        await b.install()
        for name in FLEET:
            await b.publish(name)
        first = CertificationController(InProcessApi(b.store, user="one"), clock)
        second = CertificationController(InProcessApi(b.store, user="two"), clock)
        async with running(b.kubelets(), first.run(), second.run()):
            await b.certify("c", FLEET, PROFILE)
            return await b.ended("c")

    found = run_virtual(main)
    assert essence(found.status) == essence(story([], False)[1])


def test_labels_that_people_set_meanwhile_stay() -> None:
    async def main(clock: VirtualClock) -> Certification:
        b = Bed(clock, FLEET, Faults())
        await b.install()
        async with running(b.kubelets(), CertificationController(b.api, clock).run()):
            await b.certify("c", FLEET, "idle")
            for number in range(10):
                await clock.sleep(7)
                patch = {"metadata": {"labels": {f"seen-{number}": "yes"}}}
                await b.api.patch(CERTIFICATIONS, "c", patch, PatchType.MERGE)
            return await b.ended("c")

    found = run_virtual(main)
    assert found.status.phase is Phase.SUCCEEDED
    assert {f"seen-{i}" for i in range(10)} <= set(found.metadata.labels)
