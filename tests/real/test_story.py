"""The acceptance story with real processes on a real API server: it ends as it does on the simulator."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from muster.resources.node_health import State
from tests.controlplane.cluster import ControlPlane
from tests.real.bed import play
from tests.real.ending import ends, kept, on_the_simulator, passed, repairs
from tests.real.plants import ACCEPTANCE, BROKEN, DEGRADED

pytestmark = [pytest.mark.real_api, pytest.mark.timeout(900)]

UNREACHABLE = "node.kubernetes.io/unreachable"


@pytest.mark.requirement("v2.4/OFM05", "v2.4/OCR03")
def test_a_driver_update_ends_as_on_the_simulator(story_plane: ControlPlane, tmp_path: Path) -> None:
    expected = ends(on_the_simulator(ACCEPTANCE))
    outcome, bed = asyncio.run(play(story_plane, tmp_path, ACCEPTANCE))
    text = f"{bed.out.getvalue()}\n{bed.controllers.told()[-5000:]}"
    assert ends(outcome) == expected, text
    assert outcome.exact, text
    # It was the story: every node that works was certified twice, for what it was and for what the update made of it.
    works = {row.node for row in outcome.fleet if row.state == State.IN_SERVICE.value}
    assert passed(bed.last, "bringup") == {row.node for row in outcome.fleet}, text
    assert passed(bed.last, "stack") == works == {row.node for row in outcome.fleet} - {BROKEN}, text
    assert bed.broken == []
    assert bed.looks > 30
    # The node lifecycle controller had its say too, and both let the other's taints be.
    assert UNREACHABLE in bed.taints
    assert bed.controllers.ends == [], text
    kept(bed.controllers.history_url, outcome)
    assert bed.refused() == []
    done = [(node, rung) for node, rung, _, _ in repairs(bed.last)]
    assert done == sorted(
        [(DEGRADED, "reset-gpu"), (DEGRADED, "reboot")]
        + [(BROKEN, rung) for rung in ("reboot", "power-cycle", "replace", "ticket")]
    )
