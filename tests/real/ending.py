"""What must be true of the end of every story, and what must be the same as on the simulator."""

from __future__ import annotations

import io
import json
from collections import Counter
from collections.abc import Iterable
from datetime import timedelta

from muster.demo.outcome import Outcome
from muster.demo.play import play_in_process
from muster.operate.history.address import parse
from muster.operate.history.facts import records_of
from muster.operate.history.store import open_store
from muster.operate.ledger import TimeClass, build, microseconds
from muster.resources.base import REQUESTS_ANNOTATION
from muster.resources.certification import Certification, NodeVerdict
from muster.sim.plant import Plant
from tests.invariants.checker import Snapshot

LATE_S = 120.0
"""The history may lag behind by so much of the story's time when everything is stopped."""
SLACK_US = 60_000_000


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


def kept(history_url: str, outcome: Outcome) -> None:
    """The history that the controllers kept tells of every node what the story recorded of it."""
    store = open_store(parse(history_url), create=False)
    try:
        facts = store.read(microseconds(outcome.start), microseconds(outcome.end))
    finally:
        store.close()
    records = {record.name: record for record in records_of(facts)}
    until = outcome.end - timedelta(seconds=LATE_S)
    for told in outcome.records:
        found = [(t.at, t.state, t.cause.name) for t in records[told.name].transitions if t.at < until]
        assert found == [(t.at, t.state, t.cause.name) for t in told.transitions if t.at < until], told.name
    mine = build(records.values(), outcome.start, until)
    theirs = build(outcome.records, outcome.start, until)
    assert mine.total_us == sum(mine.by_class().values())
    for time_class, length in theirs.by_class().items():
        if time_class in (TimeClass.IDLE, TimeClass.BUSY, TimeClass.UNKNOWN):
            continue  # those depend on who watched the pods since when
        assert abs(mine.by_class()[time_class] - length) < len(records) * SLACK_US, time_class
    busy, reference = mine.by_class()[TimeClass.BUSY], theirs.by_class()[TimeClass.BUSY]
    assert 0.9 * reference < busy < 1.1 * reference
