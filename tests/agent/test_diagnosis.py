"""Storms in fewer steps: thinning of lines and condensing of sightings change no count."""

from __future__ import annotations

from datetime import timedelta

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from muster.agent import diagnosis
from muster.agent.diagnosis import Diagnosis, condense, thin
from muster.agent.sources import Probe
from muster.faults import assembly
from muster.faults.assembly import Sighting
from muster.resources.fault import Entity, EntityKind, Hint, Scope, Severity
from muster.resources.node_health import Gpu
from muster.sim.virtual import DEFAULT_START
from tests.agent.node import PCI, UUID, xid

NOW = DEFAULT_START + timedelta(hours=1)
LINES = [xid(94), xid(79, PCI[1]), xid(119), "boring", "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  580.65.06  x"]


def records(choices: list[int]) -> list[bytes]:
    """One record each 20 s, so that a text that pauses for some records begins another burst."""
    return [
        b"3,%d,%d,-;%s" % (number, number * 20_000_000, LINES[choice].encode())
        for number, choice in enumerate(choices)
    ]


def counts(found: Diagnosis) -> dict[str, int]:
    return {fault.key(): fault.count for fault in found.faults}


@given(st.lists(st.integers(0, len(LINES) - 1), max_size=60))
def test_a_thinned_log_gives_the_same_faults_and_counts(choices: list[int]) -> None:
    original = diagnosis.STORM_RECORDS
    found = []
    for storm in (0, 10_000):
        diagnosis.STORM_RECORDS = storm
        try:
            one = Diagnosis("boot")
            one.know_node("boot", DEFAULT_START, (), NOW)
            one.read(records(choices), NOW)
            found.append(one.faults)
        finally:
            diagnosis.STORM_RECORDS = original
    assert found[0] == found[1]


@given(st.lists(st.sampled_from([b"a;x", b"b;x", b"c;y", b"z", b""]), max_size=80))
def test_thinning_keeps_the_number_of_records(lines: list[bytes]) -> None:
    runs = thin(lines)
    assert sum(len(run) * times for run, times in runs) == len(lines)
    assert all(len(run) == 1 for run, times in runs if times > 1)


def sighting(code: str, second: int, count: int) -> Sighting:
    return Sighting(
        source="kernel-log",
        check="xid",
        code=code,
        entity=Entity(kind=EntityKind.GPU, pci=PCI[0]),
        severity=Severity.FATAL,
        scope=Scope.GPU,
        hint=Hint.REBOOT,
        message=f"at {second}",
        at=DEFAULT_START + timedelta(seconds=second),
        count=count,
    )


@given(st.lists(st.tuples(st.sampled_from(["79", "94"]), st.integers(0, 50), st.integers(0, 3)), max_size=40))
def test_condensed_sightings_open_the_same_faults(events: list[tuple[str, int, int]]) -> None:
    sightings = [sighting(*event) for event in sorted(events, key=lambda event: event[1])]
    plain, _ = assembly.observe(assembly.start("boot", {}), sightings, NOW)
    short, _ = assembly.observe(assembly.start("boot", {}), condense(sightings), NOW)
    assert len(condense(sightings)) <= 4

    def told(state: assembly.Assembly) -> list[tuple[object, ...]]:
        return [
            (f.key(), f.count, f.first_seen, f.last_seen, f.severity, f.bursts) for f in assembly.open_faults(state)
        ]

    # The first sighting of a fault counts at least once, so it must be the same one in both.
    if all(count > 0 for _, _, count in events):
        assert told(plain) == told(short)
    else:
        assert [entry[0] for entry in told(plain)] == [entry[0] for entry in told(short)]


def test_the_document_brings_everything_back() -> None:
    first = Diagnosis("boot")
    first.read(records([0, 1, 2, 0]), NOW)
    second = Diagnosis("other", first.document())
    assert second.faults == first.faults
    second.read(records([0]), NOW)
    assert sum(counts(second).values()) == 5


def test_a_document_that_is_none_starts_empty() -> None:
    for document in (b"", b"{}", b"[1]", b"\xff"):
        assert Diagnosis("boot", document).faults == ()


def test_gpus_are_named_by_their_uuid_whenever_it_becomes_known() -> None:
    found = Diagnosis("boot")
    found.read(records([0]), NOW)
    assert found.faults[0].entity.uuid is None
    found.know_node("boot", None, [Gpu(index=0, uuid=UUID[0], pci=PCI[0])], NOW)
    assert [fault.entity.uuid for fault in found.faults] == [UUID[0]]


def test_a_parser_that_breaks_on_a_record_skips_that_record_only() -> None:
    found = Diagnosis("boot")

    class Fragile:
        def __init__(self) -> None:
            self.inner = found._parser

        def feed(self, lines: list[bytes]) -> list[object]:
            if any(b"poison" in line for line in lines):
                raise ValueError("a bug of the parser")
            return list(self.inner.feed(lines))

    found._parser = Fragile()  # type: ignore[assignment]
    found.read([b"3,1,1,-;" + xid(79).encode(), b"3,2,2,-;poison", b"3,3,3,-;" + xid(94, PCI[1]).encode()], NOW)
    assert [fault.code for fault in found.faults] == ["79", "94"]
    assert found.unreadable == 1


@given(st.lists(st.tuples(st.integers(0, 99), st.integers(0, 50)), max_size=300))
def test_a_storm_with_other_details_each_time_stays_few_sightings(
    events: list[tuple[int, int]],
) -> None:
    sightings = [
        msgspec.structs.replace(sighting("31", second, 1), details={"pid": str(pid)}) for pid, second in events
    ]
    short = condense(sightings)
    assert len(short) <= diagnosis.MAX_DETAILED + 1
    assert sum(s.count for s in short) == len(events)
    if len({pid for pid, _ in events}) <= diagnosis.MAX_DETAILED:
        assert {s.details["pid"] for s in short} == {str(pid) for pid, _ in events}


def test_a_probe_that_names_a_gpu_by_its_address_closes_what_it_opened() -> None:
    found = Diagnosis("boot")
    found.know_node("boot", None, [Gpu(index=0, uuid=UUID[0], pci=PCI[0])], NOW)
    told = {"source": "x", "check": "x", "code": "x", "entity": Entity(kind=EntityKind.GPU, pci=PCI[0])}
    found.probe(Probe(healthy=False, severity=Severity.WARNING, **told), NOW)  # type: ignore[arg-type]
    assert [fault.entity.uuid for fault in found.faults] == [UUID[0]]
    found.probe(Probe(healthy=True, **told), NOW)  # type: ignore[arg-type]
    assert found.faults == ()
