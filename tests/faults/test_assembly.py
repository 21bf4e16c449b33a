"""Assembly of open faults: order does not matter, proof closes, memory is bounded."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from muster.faults import assembly
from muster.faults.assembly import Debounce, Limits, Sighting
from muster.resources.fault import Entity, EntityKind, Fault, Hint, Scope, Severity

START = datetime(2026, 1, 5, 8, 0, tzinfo=UTC)
LATER = START + timedelta(days=1)
GPUS = {f"0000:{bus:02x}:00.0": f"GPU-0000000{bus}-0000-0000-0000-000000000000" for bus in range(4)}


def gpu(bus: int) -> Entity:
    return Entity(kind=EntityKind.GPU, pci=f"0000:{bus:02x}:00.0")


def seen(code: str = "119", bus: int = 0, at_s: float = 0.0, **more: object) -> Sighting:
    fields: dict[str, object] = {
        "source": "kernel-log",
        "check": "xid",
        "code": code,
        "entity": gpu(bus),
        "severity": Severity.FATAL,
        "scope": Scope.GPU,
        "hint": Hint.RESET_GPU,
        "at": START + timedelta(seconds=at_s),
    }
    return Sighting(**{**fields, **more})  # type: ignore[arg-type]  # the fields are those of a sighting


SIGHTINGS = st.lists(
    st.builds(
        seen,
        code=st.sampled_from(["13", "45", "79", "119"]),
        bus=st.integers(0, 5),
        at_s=st.floats(0, 3600).map(lambda s: round(s, 3)),
        count=st.integers(0, 5),
        severity=st.sampled_from(list(Severity)),
        hint=st.sampled_from(list(Hint)),
        scope=st.sampled_from(list(Scope)),
        message=st.sampled_from(["", "a", "b"]),
    ),
    max_size=25,
)


def fresh(limits: Limits | None = None) -> assembly.Assembly:
    return assembly.start("boot-1", GPUS, limits, START)


@given(SIGHTINGS, st.randoms(use_true_random=False))
def test_order_does_not_matter(sightings: list[Sighting], rng: Random) -> None:
    shuffled = list(sightings)
    rng.shuffle(shuffled)
    whole, _ = assembly.observe(fresh(), sightings, LATER)
    piecewise = fresh()
    for sighting in shuffled:
        piecewise, _ = assembly.observe(piecewise, [sighting], LATER)
    assert [_gist(f) for f in assembly.open_faults(whole)] == [_gist(f) for f in assembly.open_faults(piecewise)]


def _gist(fault: Fault) -> tuple[object, ...]:
    return (fault.key(), fault.severity, fault.hint, fault.scope, fault.message, fault.first_seen, fault.last_seen)


@given(SIGHTINGS)
def test_keys_are_unique_and_sorted_and_counts_add_up(sightings: list[Sighting]) -> None:
    state, _ = assembly.observe(fresh(), sightings, LATER)
    faults = assembly.open_faults(state)
    keys = [fault.key() for fault in faults]
    assert keys == sorted(set(keys))
    assert sum(f.count for f in faults) >= max(len(faults), sum(s.count for s in sightings))
    assert all(f.first_seen <= f.last_seen for f in faults)


@given(SIGHTINGS)
def test_nothing_new_changes_nothing(sightings: list[Sighting]) -> None:
    state, _ = assembly.observe(fresh(), sightings, LATER)
    again, changed = assembly.observe(state, [], LATER)
    assert not changed
    assert assembly.open_faults(again) == assembly.open_faults(state)
    same, changed = assembly.new_boot(state, "boot-1", LATER)
    assert same is state
    assert not changed


@settings(max_examples=50)
@given(st.lists(st.tuples(st.integers(0, 60), st.sampled_from(list(Severity))), min_size=1, max_size=80))
def test_open_faults_are_bounded_and_the_heaviest_stay(rows: list[tuple[int, Severity]]) -> None:
    limits = Limits(max_open=10)
    sightings = [seen(code=str(code), severity=severity) for code, severity in rows]
    state, _ = assembly.observe(fresh(limits), sightings, LATER)
    faults = assembly.open_faults(state)
    assert len(faults) <= 11
    codes = {s.code for s in sightings}
    overflow = [f for f in faults if f.code == assembly.OVERFLOW_CODE]
    assert bool(overflow) is (len(codes) > 10)
    fatal = {s.code for s in sightings if s.severity is Severity.FATAL}
    listed = {f.code for f in faults if f.severity is Severity.FATAL and f not in overflow}
    assert len(listed) == min(10, len(fatal))
    if len(fatal) > 10:
        assert overflow[0].severity is Severity.FATAL


def test_a_storm_is_one_fault_and_a_few_publications() -> None:
    state, changes = fresh(), 0
    for number in range(5000):
        state, changed = assembly.observe(state, [seen("95", at_s=number * 0.001)], LATER)
        changes += changed
    (fault,) = assembly.open_faults(state)
    assert fault.count == 5000
    assert changes <= 14


def test_uuid_is_the_identity_of_a_gpu() -> None:
    state, _ = assembly.observe(fresh(), [seen(bus=1)], LATER)
    assert assembly.open_faults(state)[0].entity.uuid == GPUS["0000:01:00.0"]


def test_identify_renames_and_makes_stale_what_is_gone() -> None:
    state = assembly.start("boot-1", {}, now=START)
    state, _ = assembly.observe(state, [seen(bus=1)], LATER)
    state, changed = assembly.identify(state, GPUS)
    assert changed
    assert assembly.open_faults(state)[0].entity.uuid == GPUS["0000:01:00.0"]
    swapped = {**GPUS, "0000:01:00.0": "GPU-ffffffff-0000-0000-0000-000000000000"}
    state, _ = assembly.identify(state, swapped)
    state, closed = assembly.clean(state, "xid", None, LATER)
    assert closed
    assert assembly.open_faults(state) == ()


def test_a_boot_alone_closes_nothing_a_clean_reading_does() -> None:
    state, _ = assembly.observe(fresh(), [seen("79")], LATER)
    early, closed = assembly.clean(state, "xid", None, LATER)
    assert not closed
    assert assembly.open_faults(early) == assembly.open_faults(state)
    state, _ = assembly.new_boot(state, "boot-2", LATER)
    assert len(assembly.open_faults(state)) == 1
    state, closed = assembly.clean(state, "gpu-count", None, LATER)
    assert not closed
    state, closed = assembly.clean(state, "xid", None, LATER)
    assert closed
    assert assembly.open_faults(state) == ()


def test_what_comes_back_after_the_boot_stays() -> None:
    state, _ = assembly.observe(fresh(), [seen("79")], LATER)
    state, _ = assembly.new_boot(state, "boot-2", LATER)
    state, changed = assembly.observe(state, [seen("79", at_s=100, boot_id="boot-2")], LATER)
    assert changed
    state, closed = assembly.clean(state, "xid", None, LATER)
    assert not closed
    assert assembly.open_faults(state)[0].boot_id == "boot-2"


def test_a_healthy_reading_closes_only_what_it_saw() -> None:
    state, _ = assembly.observe(fresh(), [seen("1", bus=0), seen("2", bus=1)], LATER)
    key = assembly.open_faults(state)[0].entity.key()
    state, closed = assembly.clear(state, "xid", key, LATER)
    assert closed
    assert len(assembly.open_faults(state)) == 1
    state, closed = assembly.clear(state, "xid", None, START - timedelta(seconds=1))
    assert not closed, "a reading from before the sighting proves nothing"


def test_reset_and_clean_reading_close_the_faults_of_that_gpu() -> None:
    state, _ = assembly.observe(fresh(), [seen(bus=0), seen(bus=1)], LATER)
    state, _ = assembly.gpu_reset(state, GPUS["0000:00:00.0"], LATER)
    state, closed = assembly.clean(state, "xid", None, LATER)
    assert closed
    assert [f.entity.pci for f in assembly.open_faults(state)] == ["0000:01:00.0"]


def test_a_recovery_takes_back_on_its_own_device_only() -> None:
    state, _ = assembly.observe(fresh(), [seen("163", bus=0), seen("163", bus=1)], LATER)
    notice = seen("162", bus=0, at_s=5, severity=Severity.INFO, hint=Hint.NONE, clears=("xid/163",))
    state, changed = assembly.observe(state, [notice], LATER)
    assert changed
    left = [(f.code, f.entity.pci) for f in assembly.open_faults(state)]
    assert left == [("162", "0000:00:00.0"), ("163", "0000:01:00.0")]


def test_debounce_waits_for_repetition_within_its_window() -> None:
    limits = Limits(debounce=(Debounce(check="xid", code="31", times=3, window_s=60),))
    state, changed = assembly.observe(fresh(limits), [seen("31", at_s=0), seen("31", at_s=100)], LATER)
    assert not changed
    assert assembly.open_faults(state) == ()
    state, changed = assembly.observe(state, [seen("31", at_s=110), seen("31", at_s=120)], LATER)
    assert changed
    (fault,) = assembly.open_faults(state)
    assert (fault.count, fault.first_seen) == (3, START + timedelta(seconds=100))


def test_pending_is_bounded() -> None:
    limits = Limits(debounce=(Debounce(check="xid", times=2),), max_pending=5)
    state, _ = assembly.observe(fresh(limits), [seen(str(code)) for code in range(100)], LATER)
    assert len(state.pending) == 5


def test_grace_after_start_and_boot() -> None:
    limits = Limits(grace_s=300, grace_checks=("service",))
    state = fresh(limits)
    state, changed = assembly.observe(state, [seen(check="service")], START + timedelta(seconds=10))
    assert not changed
    state, changed = assembly.observe(state, [seen(), seen(check="service")], START + timedelta(seconds=301))
    assert changed
    assert len(assembly.open_faults(state)) == 2


def test_a_clock_that_runs_ahead_is_held_back() -> None:
    state, _ = assembly.observe(fresh(), [seen(at_s=10**6)], START)
    assert assembly.open_faults(state)[0].last_seen == START
