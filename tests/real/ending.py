"""What must be true of the end of every story, and what must be the same as on the simulator."""

from __future__ import annotations

import io
import json
from collections import Counter
from collections.abc import Iterable

from muster.demo.outcome import Outcome
from muster.demo.play import play_in_process
from muster.resources.base import REQUESTS_ANNOTATION
from muster.resources.certification import Certification, NodeVerdict
from muster.sim.plant import Plant
from tests.invariants.checker import Snapshot


def ends(outcome: Outcome) -> tuple[object, ...]:
    """Who was named, and where every node ended, with its ticket."""
    named = sorted({n.nodes for n in outcome.named})
    return named, [(row.node, row.state, row.ticket) for row in outcome.fleet], outcome.stuck


def on_the_simulator(plant: Plant) -> Outcome:
    """The same plant with everything in one process, on virtual time."""
    return play_in_process(plant, io.StringIO(), live=False, speed=0.0)


def repairs(snapshot: Snapshot) -> list[tuple[str, str, int, str]]:
    """Node, rung, attempt and phase of every repair, sorted."""
    return sorted(
        (r.spec.node_name, r.spec.rung.value, r.spec.attempt, r.status.phase.value) for r in snapshot.repairs.values()
    )


def passed(snapshot: Snapshot, profile: str) -> set[str]:
    """Nodes that passed a certification with this profile."""
    return {
        result.name
        for certification in snapshot.certifications.values()
        for result in certification.status.nodes
        if certification.spec.profile == profile and result.verdict is NodeVerdict.PASSED
    }


def passes(certifications: Iterable[Certification]) -> dict[tuple[str, str], int]:
    """How often a node passed for one request (its episode, fingerprint and what it is tested for)."""
    counts: Counter[tuple[str, str]] = Counter()
    for certification in certifications:
        requests = json.loads(certification.metadata.annotations.get(REQUESTS_ANNOTATION, "{}"))
        for result in certification.status.nodes:
            if result.verdict is NodeVerdict.PASSED and result.name in requests:
                counts[result.name, json.dumps(requests[result.name], sort_keys=True)] += 1
    return dict(counts)
