"""What differs between two snapshots, and what never counts."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.configure.snapshot.difference import changes
from muster.configure.snapshot.model import ClusterSnapshot, Item
from muster.errors import BadInputError
from muster.inventory.machine import Findings
from muster.inventory.record import NodeSnapshot, UnknownReading, snapshot_of
from muster.resources.fingerprint import Reading, ReadingClass

NOW = datetime(2026, 1, 5, 8, 0, tzinfo=UTC)
VALUES = {"driver.version": "580", "gpu.0.uuid": "GPU-1", "sysctl.vm.swappiness": "60", "boot.id": "b1"}


def machine(values: dict[str, str], unknown: dict[str, str] | None = None) -> NodeSnapshot:
    found = Findings()
    for name, value in values.items():
        found.add(name, value)
    for name, reason in (unknown or {}).items():
        found.miss(name, reason)
    return snapshot_of(found, "n", NOW)


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("driver.version", "590", ReadingClass.STACK),
        ("gpu.0.uuid", "GPU-2", ReadingClass.IDENTITY),
        ("sysctl.vm.swappiness", "1", ReadingClass.CONFIG),
        ("boot.id", "b2", ReadingClass.VOLATILE),
    ],
)
def test_each_class(name: str, value: str, expected: ReadingClass) -> None:
    (change,) = changes(machine(VALUES), machine({**VALUES, name: value}))
    assert (change.name, change.reading_class, change.after) == (name, expected, value)
    assert change.counts() == (expected is not ReadingClass.VOLATILE)


@pytest.mark.parametrize("group", ["gpu.0.uuid", "gpu.0", "gpu"])
def test_what_one_side_could_not_read_is_not_compared_and_counts(group: str) -> None:
    values = {k: v for k, v in VALUES.items() if k != "gpu.0.uuid"}
    (change,) = changes(machine(VALUES), machine(values, {group: "GPU is lost"}))
    assert (change.not_compared, change.after) == ("GPU is lost", None)
    assert change.counts()


def test_what_neither_side_could_read_says_nothing() -> None:
    both = machine(VALUES, {"system.serial": "Permission denied"})
    assert changes(both, both) == ()


def test_a_reading_that_is_volatile_on_one_side_never_counts() -> None:
    """A module that a program loads, or a device that a pod network attaches."""
    loaded = Findings()
    loaded.add("module.nvidia_uvm", "580", ReadingClass.VOLATILE)
    (change,) = changes(machine({}), snapshot_of(loaded, "n", NOW))
    assert not change.counts()


def test_a_machine_and_a_cluster_cannot_be_compared() -> None:
    with pytest.raises(BadInputError, match="compare two of the same kind"):
        changes(machine(VALUES), ClusterSnapshot(taken_at=NOW))


def test_an_image_that_only_a_job_used_does_not_count_and_one_of_a_service_does() -> None:
    def image(kind: ReadingClass) -> ClusterSnapshot:
        reading = Reading(name="tag.1", value="", reading_class=kind)
        return ClusterSnapshot(taken_at=NOW, images=(Item(name="a", readings=(reading,)),))

    empty = ClusterSnapshot(taken_at=NOW)
    assert [c.counts() for c in changes(empty, image(ReadingClass.VOLATILE))] == [False]
    assert [c.counts() for c in changes(image(ReadingClass.STACK), empty)] == [True]


def test_a_list_that_could_not_be_read_loses_nothing() -> None:
    item = Item(name="r", readings=(Reading(name="chart", value="c", reading_class=ReadingClass.STACK),))
    whole = ClusterSnapshot(taken_at=NOW, releases=(item,))
    gap = ClusterSnapshot(taken_at=NOW, unknown=(UnknownReading(name="releases", reason="not allowed"),))
    (change,) = changes(whole, gap)
    assert (change.subject, change.not_compared) == ("release r", "not allowed")


READINGS = st.dictionaries(st.sampled_from(sorted(VALUES)), st.sampled_from(["1", "2"]))


@given(READINGS, READINGS)
def test_both_directions_find_the_same(first: dict[str, str], second: dict[str, str]) -> None:
    there, back = changes(machine(first), machine(second)), changes(machine(second), machine(first))
    assert [(c.name, c.before, c.after) for c in there] == [(c.name, c.after, c.before) for c in back]
    differing = {n for n in {*first, *second} if first.get(n) != second.get(n)}
    assert {c.name for c in there} == differing
    assert (machine(first).fingerprint == machine(second).fingerprint) == (not any(c.counts() for c in there))
