"""Assembly of open faults: order does not matter, proof closes, memory is bounded."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from random import Random

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.faults import assembly, bursts
from muster.faults.assembly import Debounce, Grace, Limits, Sighting
from muster.resources.fault import Burst, Entity, EntityKind, Fault, Hint, Scope, Severity

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
    limits = Limits(grace=(Grace(check="service", seconds=300),))
    state = fresh(limits)
    state, changed = assembly.observe(state, [seen(check="service")], START + timedelta(seconds=10))
    assert not changed
    state, changed = assembly.observe(state, [seen(), seen(check="service")], START + timedelta(seconds=301))
    assert changed
    assert len(assembly.open_faults(state)) == 2


def test_a_clock_that_runs_ahead_is_held_back() -> None:
    state, _ = assembly.observe(fresh(), [seen(at_s=10**6)], START)
    assert assembly.open_faults(state)[0].last_seen == START


# Bursts


def burst_list(state: assembly.Assembly) -> list[tuple[float, float, int]]:
    (fault,) = assembly.open_faults(state)
    return [((b.at - START).total_seconds(), (b.until - START).total_seconds(), b.count) for b in fault.bursts]


@given(SIGHTINGS, st.randoms(use_true_random=False))
def test_bursts_hold_every_sighting_and_their_order_of_arrival_does_not_matter(
    sightings: list[Sighting], rng: Random
) -> None:
    counted = [msgspec.structs.replace(s, count=max(1, s.count)) for s in sightings]
    shuffled = list(counted)
    rng.shuffle(shuffled)
    whole, _ = assembly.observe(fresh(), counted, LATER)
    piecewise = fresh()
    for sighting in shuffled:
        piecewise, _ = assembly.observe(piecewise, [sighting], LATER)
    for fault in assembly.open_faults(whole):
        assert sum(burst.count for burst in fault.bursts) == fault.count
    assert [f.bursts for f in assembly.open_faults(whole)] == [f.bursts for f in assembly.open_faults(piecewise)]


BURSTS = st.lists(
    st.builds(
        lambda at, length, count, kind: Burst(
            at=START + timedelta(seconds=at),
            until=START + timedelta(seconds=at + length),
            count=count,
            details={"sm": kind} if kind else {},
        ),
        st.integers(0, 100_000),
        st.integers(0, 30),
        st.integers(1, 9),
        st.sampled_from(["", "1", "2", "3"]),
    ),
    max_size=60,
)


@given(BURSTS, st.integers(1, 16), st.integers(0, 60))
def test_bursts_are_bounded_ordered_and_keep_their_sum(found: list[Burst], limit: int, split: int) -> None:
    joined = bursts.join(found, 60.0, limit)
    assert len(joined) <= limit
    assert sum(b.count for b in joined) == sum(b.count for b in found)
    assert [b.at for b in joined] == sorted(b.at for b in joined)
    assert all(b.at <= b.until for b in joined)
    # In parts, one after the other, as batches come: the sum is kept, the bound holds, and so do begin and end.
    later = bursts.join((*bursts.join(found[:split], 60.0, limit), *found[split:]), 60.0, limit)
    assert len(later) <= limit
    assert sum(b.count for b in later) == sum(b.count for b in found)
    if found:
        assert min(b.at for b in later) == min(b.at for b in found)
        assert max(b.until for b in later) == max(b.until for b in found)
        if len(bursts.join(found, 60.0, 999)) <= limit:
            assert later == joined, "within the bound the order of batches does not matter"


def test_a_gap_begins_a_burst_and_details_keep_bursts_apart() -> None:
    times = (0, 50, 100, 400, 410)
    state, _ = assembly.observe(fresh(), [seen("95", at_s=at) for at in times], LATER)
    assert burst_list(state) == [(0, 100, 3), (400, 410, 2)]
    mixed = [seen("13", at_s=at, details={"sm": str(at % 2)}) for at in (0, 1, 2, 3)]
    state, _ = assembly.observe(fresh(), mixed, LATER)
    assert burst_list(state) == [(0, 2, 2), (1, 3, 2)]


def test_a_state_that_goes_on_is_one_burst_and_counts_once() -> None:
    state = fresh()
    for look in range(50):
        state, _ = assembly.observe(state, [seen("down", at_s=look * 300, standing=True)], LATER)
    (fault,) = assembly.open_faults(state)
    assert (fault.count, burst_list(state)) == (1, [(0, 49 * 300, 1)])


def test_details_from_a_log_are_bounded() -> None:
    many = {f"key{n:03d}": "x" * 5000 for n in range(100)}
    state, _ = assembly.observe(fresh(), [seen(details=many)], LATER)
    (burst,) = assembly.open_faults(state)[0].bursts
    assert len(burst.details) == 12
    assert {len(value) for value in burst.details.values()} == {64}


def test_many_faults_share_the_room_for_bursts() -> None:
    state = fresh()
    for hour in range(20):
        batch = [seen(str(code), at_s=hour * 3600) for code in range(250)]
        state, _ = assembly.observe(state, batch, LATER)
    faults = assembly.open_faults(state)
    assert sum(len(fault.bursts) for fault in faults) <= 1024
    assert {sum(burst.count for burst in fault.bursts) for fault in faults} == {20}


# History


def past(state: assembly.Assembly) -> list[tuple[str, str]]:
    return [(p.fault.code, p.closed_by) for p in state.recent]


def test_what_closes_is_remembered_with_its_proof() -> None:
    state, _ = assembly.observe(fresh(), [seen("1"), seen("2", bus=1), seen("3", bus=2)], LATER)
    state, _ = assembly.clear(state, "xid", None, LATER, "1")
    state, _ = assembly.gpu_reset(state, GPUS["0000:01:00.0"], LATER)
    state, _ = assembly.clean(state, "xid", None, LATER)
    state, _ = assembly.new_boot(state, "boot-2", LATER)
    state, _ = assembly.clean(state, "xid", None, LATER)
    assert past(state) == [("1", "healthy-reading"), ("2", "clean-after-reset"), ("3", "clean-after-boot")]


def test_a_fault_that_reopens_leaves_its_earlier_life_in_the_history() -> None:
    state, _ = assembly.observe(fresh(), [seen("79", count=3)], LATER)
    state, _ = assembly.clear(state, "xid", None, LATER)
    state, _ = assembly.observe(state, [seen("79", at_s=60)], LATER)
    assert assembly.open_faults(state)[0].count == 1
    assert [(p.fault.count, p.fault.first_seen) for p in state.recent] == [(3, START)]


def test_the_history_is_bounded_in_number_and_age() -> None:
    state = fresh()
    for hour in range(100):
        now = START + timedelta(hours=hour)
        state, _ = assembly.observe(state, [seen(str(hour), at_s=hour * 3600)], now)
        state, _ = assembly.clear(state, "xid", None, now)
    assert [p.fault.code for p in state.recent] == [str(n) for n in range(52, 100)]
    state, changed = assembly.settle(state, START + timedelta(days=7, hours=60))
    assert not changed
    assert [p.fault.code for p in state.recent] == [str(n) for n in range(60, 100)]


def test_nobody_stands_for_the_faults_of_a_monitor_that_was_turned_off() -> None:
    state, _ = assembly.observe(fresh(), [seen("1")], LATER)
    key = assembly.open_faults(state)[0].key()
    state, closed = assembly.take_back(state, key, LATER)
    assert closed
    assert (assembly.open_faults(state), past(state)) == ((), [("1", "taken-back")])
    assert assembly.take_back(state, key, LATER) == (state, False)


# Flapping


def flap(state: assembly.Assembly, times: int, step_s: float = 120.0) -> tuple[assembly.Assembly, int, float]:
    """Bad and well in turn. Returns the state, the changes that are worth a write, and the seconds that passed."""
    changes, at = 0, 0.0
    for _ in range(times):
        state, changed = assembly.observe(
            state, [seen("down", at_s=at, standing=True)], START + timedelta(seconds=at)
        )
        changes += changed
        at += step_s
        state, changed = assembly.clear(state, "xid", None, START + timedelta(seconds=at))
        changes += changed
        at += step_s
    return state, changes, at


def test_a_flapping_state_stays_open_until_it_is_quiet_and_causes_no_storm_of_writes() -> None:
    state, changes, at = flap(fresh(), 40)
    assert changes == 7 + 5, "opened and closed three times, opened once more and held; the count doubled five times"
    (fault,) = assembly.open_faults(state)
    assert fault.message.startswith(assembly.FLAPPING)
    assert fault.count == 37
    assert sum(burst.count for burst in fault.bursts) == 37
    last_bad = at - 240
    for quiet_s, still_open in ((300, True), (1700, True), (1921, False)):
        now = START + timedelta(seconds=last_bad + 120 + quiet_s)
        state, closed = assembly.clear(state, "xid", None, now)
        assert bool(assembly.open_faults(state)) is still_open
        assert closed is not still_open


def test_silence_does_not_end_a_flapping_state_and_it_does_end_a_flapping_event() -> None:
    state, _, at = flap(fresh(), 10)
    state, closed = assembly.settle(state, START + timedelta(seconds=at + 10_000))
    assert not closed, "nothing tells that the state is well"
    state = fresh()
    for n in range(5):
        down, up = n * 100.0, n * 100.0 + 50
        batch = [seen("163", at_s=down), seen("162", at_s=up, clears=("xid/163",), severity=Severity.INFO)]
        state, _ = assembly.observe(state, batch, LATER)
    assert "163" in [f.code for f in assembly.open_faults(state)]
    state, closed = assembly.settle(state, START + timedelta(seconds=450 + 1800))
    assert closed
    assert "163" not in [f.code for f in assembly.open_faults(state)]


def test_a_boot_ends_flapping() -> None:
    state, _, at = flap(fresh(), 10)
    state, _ = assembly.new_boot(state, "boot-2", START + timedelta(seconds=at))
    state, closed = assembly.clear(state, "xid", None, START + timedelta(seconds=at + 1))
    assert closed
    assert state.recent[-1].closed_by == "clean-after-boot"


# GPUs that move, go and come back


def test_a_gpu_that_moved_keeps_its_faults_under_its_uuid() -> None:
    state, _ = assembly.observe(fresh(), [seen(bus=1)], LATER)
    moved = {pci: uuid for pci, uuid in GPUS.items() if pci != "0000:01:00.0"} | {
        "0000:9a:00.0": GPUS["0000:01:00.0"]
    }
    state, _ = assembly.identify(state, moved)
    (fault,) = assembly.open_faults(state)
    assert (fault.entity.uuid, fault.entity.pci) == (GPUS["0000:01:00.0"], "0000:9a:00.0")
    state, closed = assembly.clean(state, "xid", None, LATER)
    assert not closed, "to move is no proof of health"
    state, _ = assembly.observe(state, [seen(entity=Entity(kind=EntityKind.GPU, pci="0000:9a:00.0"))], LATER)
    assert [f.count for f in assembly.open_faults(state)] == [2]


def test_a_swapped_gpu_takes_its_faults_along_once_a_fresh_reading_is_clean() -> None:
    state, _ = assembly.observe(fresh(), [seen(bus=1)], LATER)
    swapped = {**GPUS, "0000:01:00.0": "GPU-ffffffff-0000-0000-0000-000000000000"}
    state, _ = assembly.new_boot(state, "boot-2", LATER)
    state, _ = assembly.identify(state, swapped)
    assert len(assembly.open_faults(state)) == 1
    state, _ = assembly.clean(state, "xid", None, LATER)
    assert past(state) == [("119", "gpu-gone")]


def test_a_gpu_that_is_back_is_not_gone() -> None:
    state, _ = assembly.observe(fresh(), [seen(bus=1)], LATER)
    without = {pci: uuid for pci, uuid in GPUS.items() if pci != "0000:01:00.0"}
    state, _ = assembly.identify(state, without)
    assert len(assembly.stale_faults(state)) == 1
    state, _ = assembly.identify(state, GPUS)
    assert assembly.stale_faults(state) == ()


# Patience


def test_grace_begins_anew_with_a_driver_change_and_events_have_none() -> None:
    limits = Limits(grace=(Grace(check="gpu", code="gpu-missing", seconds=300),))
    state = assembly.start("boot-1", GPUS, limits)
    late = START + timedelta(hours=1)
    state = assembly.begin_grace(state, late)
    soon = late + timedelta(seconds=200)
    missing = seen("gpu-missing", at_s=3800, check="gpu")
    state, _ = assembly.observe(state, [missing, seen("79", at_s=3800)], soon)
    assert [f.code for f in assembly.open_faults(state)] == ["79"]
    state, _ = assembly.observe(state, [missing], late + timedelta(seconds=301))
    assert [f.code for f in assembly.open_faults(state)] == ["gpu-missing", "79"]


def test_a_healthy_look_between_two_bad_ones_begins_the_debounce_anew() -> None:
    limits = Limits(debounce=(Debounce(check="xid", times=2, window_s=300),))
    state = fresh(limits)
    for look in range(7):
        at = START + timedelta(seconds=30 * look)
        if look % 2:
            state, _ = assembly.clear(state, "xid", assembly.entity_key(state, gpu(0)), at, "down")
        else:
            state, _ = assembly.observe(state, [seen("down", at_s=30 * look, standing=True)], at)
    assert (assembly.open_faults(state), state.recent) == ((), ())


def test_a_state_of_an_earlier_version_is_read() -> None:
    state, _ = assembly.observe(fresh(), [seen("79")], LATER)
    document = msgspec.json.decode(msgspec.json.encode(state))
    for name in ("recent", "grace_from"):
        document.pop(name, None)
    for item in document["open"].values():
        item["fault"].pop("bursts")
        for name in ("why", "flaps", "calm_since", "calm_by"):
            item.pop(name)
    document["limits"] = {"maxOpen": 256, "graceS": 0.0}
    old = msgspec.json.decode(msgspec.json.encode(document), type=assembly.Assembly)
    assert [f.code for f in assembly.open_faults(old)] == ["79"]
    old, _ = assembly.observe(old, [seen("79", at_s=30)], LATER)
    assert [(f.count, len(f.bursts)) for f in assembly.open_faults(old)] == [(2, 1)]
