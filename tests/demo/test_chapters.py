"""When a chapter begins and when the story is over."""

from __future__ import annotations

from datetime import timedelta

import msgspec

from muster.demo import chapters
from muster.resources.certification import Phase
from muster.resources.node_health import Standing, State
from muster.sim.plant import Plant, default_plant
from tests.demo.samples import T0, certificate, failed_certification, in_service, out_of_service, repairing

PLANT = default_plant(1, 8)
QUIET = Plant(nodes=2, domains=1)
LATE = T0 + timedelta(hours=12)


def test_chapters_follow_the_plant() -> None:
    assert PLANT.update is not None
    fault_s = min(d.after_s for d in PLANT.defects if d.after_s)
    served = {f"n{i}": in_service(f"n{i}") for i in range(6)}
    cases = [
        (60.0, {}, chapters.BRING_UP),
        (60.0, served, chapters.SERVICE),
        (fault_s, served, chapters.FAULT),
        (PLANT.update.at_s, served, chapters.UPDATE),
    ]
    for seconds, healths, expected in cases:
        assert chapters.chapter(PLANT, T0, T0 + timedelta(seconds=seconds), healths) == expected


def test_the_last_chapter_begins_when_all_have_settled() -> None:
    settled = {f"n{i}": in_service(f"n{i}") for i in range(8)}
    assert chapters.chapter(PLANT, T0, LATE, settled) == chapters.SETTLED
    assert chapters.chapter(PLANT, T0, LATE, {**settled, "n0": repairing("n0")}) == chapters.UPDATE


def test_in_service_and_out_of_service_are_settled_and_nothing_else() -> None:
    assert chapters.unsettled({"a": in_service("a"), "b": out_of_service("b")}, 2) == []
    (sentence,) = chapters.unsettled({"a": in_service("a"), "b": repairing("b")}, 2)
    assert sentence.startswith("b: Repairing.")
    (sentence,) = chapters.unsettled({"a": in_service("a")}, 2)
    assert sentence == "1 nodes have no NodeHealth."


def test_a_node_under_grace_or_with_another_fingerprint_has_not_settled() -> None:
    health = in_service("a")
    life = health.status.lifecycle
    assert life is not None
    assert life.state is State.IN_SERVICE
    for standing in (Standing.GRACE, Standing.VOID):
        changed = msgspec.structs.replace(life, certificate=certificate(standing, "driver changed"))
        status = msgspec.structs.replace(health.status, lifecycle=changed)
        found = chapters.unsettled({"a": msgspec.structs.replace(health, status=status)}, 1)
        assert "without a valid certificate" in found[0]


def test_the_story_is_not_over_before_the_plant_or_with_an_open_certification() -> None:
    settled = {"a": in_service("a"), "b": out_of_service("b")}
    done = failed_certification()
    status = msgspec.structs.replace(done.status, phase=Phase.RUNNING)
    running = msgspec.structs.replace(done, status=status)
    assert chapters.over(QUIET, T0, LATE, settled, [done])
    assert not chapters.over(QUIET, T0, LATE, settled, [running])
    assert not chapters.over(QUIET, T0, T0 + timedelta(seconds=60), settled, [done])
