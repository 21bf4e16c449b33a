"""One fault, repaired while everything around it breaks: nothing is lost, nothing is done twice."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest

from muster.resources.certification import Phase
from muster.resources.node_health import State
from muster.resources.repair import RepairPhase, Rung
from tests.controlplane import audit
from tests.controlplane.cluster import ControlPlane
from tests.invariants.checker import Snapshot
from tests.real.bed import Bed, play
from tests.real.deeds import NAMESPACE, NOTEBOOK, Cut, Deeds, state_of
from tests.real.ending import ends, on_the_simulator, passes, repairs
from tests.real.plants import DISTURBED, FAULTY, GOOD
from tests.real.rights import AGENT, CONTROLLER, WHEN_ASKED, WITH_WORKERS

pytestmark = [pytest.mark.real_api, pytest.mark.timeout(900)]

SPEED = 45.0
"""Slower than other stories, so that time limits outlast what is done to everybody here."""
STALE_S = 3.0
"""Real seconds for which a controller that was cut off is watched after its connection is back."""


def running_certification(snapshot: Snapshot) -> bool:
    """A certification is in the middle of its rounds."""
    return any(c.status.phase is Phase.RUNNING and c.status.runs for c in snapshot.certifications.values())


def repair_running(snapshot: Snapshot, rung: Rung) -> bool:
    return any(
        r.spec.rung is rung and r.status.phase in (RepairPhase.PENDING, RepairPhase.RUNNING)
        for r in snapshot.repairs.values()
    )


class Disturbance:
    """Everything that is done while the story goes on. `late` are writes of controllers that no longer led."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.late: list[audit.Request] = []

    async def __call__(self, bed: Bed) -> None:
        deeds = Deeds(bed, self.done)
        await self._before_the_fault(deeds)
        await self._while_draining(deeds)
        await self._while_repairing(deeds)

    async def _before_the_fault(self, deeds: Deeds) -> None:
        await deeds.until("a certification that runs", running_certification)
        await deeds.kill_leader("certifying")
        await deeds.until(
            "every node in service",
            lambda s: (
                len(list(s.lives())) == DISTURBED.nodes
                and all(life.state is State.IN_SERVICE for _, life in s.lives())
            ),
        )
        await deeds.place_notebook(FAULTY)
        await deeds.release_twice(GOOD)
        await deeds.restart_api_server("nothing goes on", kill=False)
        await self._cut(deeds, "nothing goes on", silently=False)

    async def _while_draining(self, deeds: Deeds) -> None:
        await deeds.until_state(FAULTY, State.DRAINING)
        await deeds.kill_leader("draining")
        await self._cut(deeds, "draining", silently=True)
        await deeds.allow_eviction()
        await deeds.kill_leader("a pod leaves")
        await deeds.let_go()

    async def _while_repairing(self, deeds: Deeds) -> None:
        await deeds.until("a reboot that goes on", lambda s: repair_running(s, Rung.REBOOT))
        await deeds.kill_leader("rebooting")
        await deeds.until("recertification", lambda s: state_of(s, FAULTY) is State.CERTIFYING)
        await deeds.kill_leader("recertifying")
        await deeds.restart_api_server("recertifying", kill=True, compact=True)

    async def _cut(self, deeds: Deeds, when: str, *, silently: bool) -> None:
        """Cut the leader off, let another one lead, connect it again: what it had in mind must come to nothing."""
        cut: Cut = await deeds.cut_off_leader(when, silently=silently)
        path = deeds.bed.plane.audit_log
        before = len(audit.read(path))
        cut.heal()
        await asyncio.sleep(STALE_S)
        late = [r for r in audit.writes(audit.read(path)[before:]) if r.credential == cut.credential]
        self.late += late


@pytest.mark.requirement("v2.4/OAL01", "v2.4/SEC04", "sla/management-api")
def test_nothing_is_lost_or_done_twice_whatever_breaks(story_plane: ControlPlane, tmp_path: Path) -> None:
    disturbance = Disturbance()
    expected = ends(on_the_simulator(DISTURBED))
    outcome, bed = asyncio.run(play(story_plane, tmp_path, DISTURBED, disturbance, speed=SPEED))
    text = "\n".join([bed.out.getvalue(), *disturbance.done, bed.controllers.told()[-5000:]])
    assert ends(outcome) == expected, text
    assert outcome.exact, text
    assert bed.broken == [], text
    # Who was killed was started again; nobody else went away.
    assert [code for _, code in bed.controllers.ends] == [-signal.SIGKILL] * 5, text
    assert bed.controllers.killed == 5
    assert disturbance.late == [], text
    # Nothing twice.
    assert repairs(bed.last) == [(FAULTY, "reboot", 1, "Done"), (FAULTY, "reset-gpu", 1, "Done")], text
    assert {name: node.boots for name, node in bed.fleet.world.nodes.items() if node.boots > 1} == {FAULTY: 2}
    assert set(passes(bed.last.certifications.values()).values()) == {1}
    asked = bed.rights.requests(CONTROLLER)
    evictions = [r for r in audit.writes(asked) if r.right.resource == "pods/eviction"]
    assert [(r.namespace, r.name) for r in evictions] == [(NAMESPACE, NOTEBOOK)]
    # Least privilege: nothing was refused, and nothing that is granted was never used.
    assert bed.refused() == []
    assert bed.rights.unused(AGENT, []) == []
    # Its tests are pods of their own; what workers need has a test of its own.
    assert [right for right in bed.rights.unused(CONTROLLER, []) if right not in (*WITH_WORKERS, *WHEN_ASKED)] == []
