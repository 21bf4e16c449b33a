"""The judgement of GPU samples: growth and not totals, load and not idleness, unknown and not faulty."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.agent.gpu import state as states
from muster.agent.gpu.config import GpuConfig
from muster.agent.gpu.judge import fabric_troubles, hang, judge
from muster.agent.gpu.sample import GpuSample, LinkSample, Sample
from muster.agent.gpu.state import GpuState
from muster.agent.monitor import Look
from muster.faults import catalogue
from muster.resources.fault import Hint, Severity

START = datetime(2026, 1, 5, 8, 0, tzinfo=UTC)
CONFIG = GpuConfig()


def gpu(index: int = 0, **fields: Any) -> GpuSample:
    base: dict[str, Any] = {"index": index, "uuid": f"GPU-{index}", "pci": f"0000:{16 + index:02x}:00.0"}
    return GpuSample(**{**base, **fields})


def whole(*gpus: GpuSample) -> Sample:
    return Sample(gpus=gpus, complete=True)


class Node:
    """Looks one after the other, 30 s apart."""

    def __init__(self, config: GpuConfig = CONFIG, state: GpuState | None = None) -> None:
        self.config, self.state, self.now, self.boot = config, state or GpuState(), START, "boot-1"

    def look(self, *gpus: GpuSample) -> Look:
        return self.take(whole(*gpus))

    def take(self, sample: Sample, bus: int = 8) -> Look:
        self.now += timedelta(seconds=30)
        self.state, look = judge(self.config, self.state, sample, self.boot, bus, self.now)
        return look


def bad(look: Look) -> list[str]:
    return [probe.code for probe in look.probes if probe.healthy is False]


def good(look: Look) -> list[str]:
    return sorted({probe.code for probe in look.probes if probe.healthy})


def events(look: Look) -> list[tuple[str, int]]:
    return [(seen.code, seen.count) for seen in look.sightings]


def test_every_code_that_can_be_told_is_in_the_catalogue() -> None:
    known = {row.code for row in catalogue.load().conditions if row.check == "gpu"}
    assert {"gpu-missing", "nvlink-down", "nvml-hang"} <= known


@given(
    st.lists(
        st.tuples(st.integers(0, 10**9), st.integers(0, 10**9), st.integers(0, 10**6)),
        min_size=1,
        max_size=4,
    )
)
def test_lifetime_totals_alone_are_never_a_fault(totals: list[tuple[int, int, int]]) -> None:
    """A new agent, or an upgraded one without its memory, on nodes with old counters that do not move."""
    gpus = [
        gpu(
            n,
            ecc_uncorrected=unc,
            sram_uncorrected=unc,
            ecc_corrected=cor,
            pcie_replays=cor,
            links=(LinkSample(link=0, up=True, crc=crc, replay=crc, recovery=crc, effective_errors=crc),),
        )
        for n, (unc, cor, crc) in enumerate(totals)
    ]
    node = Node()
    for _ in range(6):
        look = node.look(*gpus)
        assert bad(look) == []
        assert look.sightings == ()
    fresh = Node()  # the agent after an upgrade that cannot read what was kept
    look = fresh.look(*gpus)
    assert (bad(look), look.sightings) == ([], ())


def test_new_uncorrected_errors_are_events_with_their_number() -> None:
    node = Node()
    node.look(gpu(ecc_uncorrected=5))
    assert events(node.look(gpu(ecc_uncorrected=5))) == []
    assert events(node.look(gpu(ecc_uncorrected=8))) == [("gpu-ecc-uncorrected", 3)]
    look = node.look(gpu(ecc_uncorrected=0))
    assert "gpu-ecc-uncorrected" in good(look), "the reset GPU begins at nought"
    node.look(gpu(ecc_uncorrected=9))
    assert events(node.look(gpu(ecc_uncorrected=2))) == [("gpu-ecc-uncorrected", 2)], "reset, and two new ones since"


def test_growth_over_a_restart_of_the_agent_is_seen() -> None:
    node = Node()
    node.look(gpu(sram_uncorrected=1))
    again = Node(state=states.decode(states.encode(node.state)))
    assert again.state == node.state
    again.now = node.now
    assert events(again.look(gpu(sram_uncorrected=4))) == [("gpu-sram-uncorrected", 3)]


def test_a_boot_begins_all_counters_anew() -> None:
    node = Node()
    node.look(gpu(ecc_uncorrected=5, links=(LinkSample(link=0, up=True),)))
    node.boot = "boot-2"
    look = node.look(gpu(ecc_uncorrected=7, links=(LinkSample(link=0, up=False),)))
    assert (bad(look), events(look)) == ([], [])


@pytest.mark.parametrize(
    ("field", "code", "severity", "hint"),
    [
        ("sram_threshold", "gpu-sram-threshold", Severity.FATAL, Hint.REPLACE),
        ("remap_pending", "gpu-remap-pending", Severity.WARNING, Hint.RESET_GPU),
        ("remap_failed", "gpu-remap-failed", Severity.FATAL, Hint.REPLACE),
        ("pages_pending", "gpu-pages-pending", Severity.WARNING, Hint.RESET_GPU),
        ("inforom_corrupted", "gpu-inforom-corrupted", Severity.WARNING, Hint.INSPECT),
    ],
)
def test_flags_open_and_close(field: str, code: str, severity: Severity, hint: Hint) -> None:
    node = Node()
    look = node.look(gpu(**{field: True}))
    (probe,) = (p for p in look.probes if p.code == code)
    assert (probe.healthy, probe.severity, probe.hint, probe.entity.uuid) == (False, severity, hint, "GPU-0")
    assert code in good(node.look(gpu(**{field: False})))
    assert code not in [p.code for p in node.look(gpu()).probes], "a GPU that has no such flag"


@pytest.mark.parametrize(
    ("bits", "code"),
    [(0x40, "gpu-thermal-throttle"), (0x80, "gpu-power-brake"), (0x08, "gpu-hw-slowdown")],
)
def test_throttling_counts_after_looks_in_a_row(bits: int, code: str) -> None:
    node = Node()
    assert [bad(node.look(gpu(throttle=bits | 0x4))) for _ in range(4)] == [[], [], [code], [code]]
    node.look(gpu(throttle=0))
    assert bad(node.look(gpu(throttle=bits))) == []


def test_power_cap_software_heat_and_idleness_are_normal_work() -> None:
    node = Node()
    assert [bad(node.look(gpu(throttle=0x1 | 0x4 | 0x20))) for _ in range(5)] == [[]] * 5


def test_heat_by_margin_or_by_threshold() -> None:
    node = Node()
    hot = gpu(temperature_c=92.0, slowdown_c=92.0)
    assert [bad(node.look(hot)) for _ in range(3)][-1] == ["gpu-temperature"]
    node = Node()
    assert [bad(node.look(gpu(margin_c=-1.0, temperature_c=40.0))) for _ in range(3)][-1] == ["gpu-temperature"]
    assert bad(node.look(gpu(margin_c=12.0))) == []


def test_the_generation_of_an_idle_gpu_says_nothing_and_its_width_does() -> None:
    node = Node()
    idle = gpu(pcie_generation=1, pcie_max_generation=5, pcie_width=16, pcie_max_width=16, busy_percent=0.0)
    for _ in range(5):
        look = node.look(idle)
        assert "gpu-pcie-generation" not in [p.code for p in look.probes]
    busy = msgspec.structs.replace(idle, busy_percent=90.0, pcie_generation=4)
    assert [bad(node.look(busy)) for _ in range(3)][-1] == ["gpu-pcie-generation"]
    assert bad(node.look(msgspec.structs.replace(idle, pcie_width=8))) == ["gpu-pcie-width"]
    assert "gpu-pcie-generation" in good(node.look(msgspec.structs.replace(idle, pcie_generation=5)))


def test_rates_are_told_after_looks_in_a_row() -> None:
    node = Node()
    looks = [node.look(gpu(pcie_replays=n * 5, ecc_corrected=n * 100)) for n in range(5)]
    assert [bad(look) for look in looks] == [[], [], []] + [["gpu-ecc-corrected-storm", "gpu-pcie-replays"]] * 2
    assert bad(node.look(gpu(pcie_replays=20, ecc_corrected=400))) == []


def links(*up: bool, **more: Any) -> tuple[LinkSample, ...]:
    return tuple(LinkSample(link=n, up=is_up, **more) for n, is_up in enumerate(up))


def test_a_link_is_down_only_if_it_was_up_in_this_boot() -> None:
    node = Node()
    assert bad(node.look(gpu(links=links(True, True, False)))) == []
    look = node.look(gpu(links=links(True, False, False)))
    (probe,) = (p for p in look.probes if p.healthy is False)
    assert (probe.code, probe.entity.key()) == ("nvlink-down", "nvlink/GPU-0/link1")
    assert bad(node.look(gpu(links=links(True, True, True)))) == []
    expecting = Node(GpuConfig(expected_links=3))
    assert bad(expecting.look(gpu(links=links(True, True, False)))) == ["nvlink-down"]


@pytest.mark.parametrize(
    ("counter", "step"), [("crc", 3001), ("replay", 31), ("recovery", 1)], ids=["crc", "replay", "recovery"]
)
def test_errors_of_a_link_by_their_rate(counter: str, step: int) -> None:
    node = Node()
    looks = [node.look(gpu(links=links(True, **{counter: n * step}))) for n in range(5)]
    assert [bad(look) for look in looks][-1] == ["nvlink-errors"]
    assert bad(node.look(gpu(links=links(True, **{counter: 4 * step})))) == []


def test_a_bad_error_rate_of_nvlink_5_counts_only_while_errors_come() -> None:
    node = Node()
    still = [node.look(gpu(links=links(True, effective_errors=9, effective_ber=1e-9))) for _ in range(5)]
    assert all(bad(look) == [] for look in still)
    moving = [node.look(gpu(links=links(True, effective_errors=9 + n, effective_ber=1e-9))) for n in range(1, 4)]
    assert bad(moving[-1]) == ["nvlink-errors"]


@pytest.mark.parametrize(
    ("action", "severity", "hint"),
    [
        (1, Severity.FATAL, Hint.RESET_GPU),
        (2, Severity.FATAL, Hint.REBOOT),
        (3, Severity.WARNING, Hint.INSPECT),
        (4, Severity.FATAL, Hint.RESET_GPU),
        (5, Severity.INFO, Hint.NONE),
        (6, Severity.FATAL, Hint.RESET_GPU),
        (7, Severity.FATAL, Hint.REBOOT),
        (99, Severity.UNKNOWN, Hint.INSPECT),
    ],
)
def test_the_recovery_action_of_the_driver(action: int, severity: Severity, hint: Hint) -> None:
    node = Node()
    (probe,) = (p for p in node.look(gpu(recovery_action=action)).probes if p.code == "gpu-recovery-action")
    assert (probe.healthy, probe.severity, probe.hint) == (False, severity, hint)
    assert "gpu-recovery-action" in good(node.look(gpu(recovery_action=0)))


def test_a_fabric_that_is_never_completed_and_one_that_does_not_exist() -> None:
    node = Node()
    in_progress = [bad(node.look(gpu(fabric_state=2, fabric_status=0))) for _ in range(3)]
    assert in_progress == [[], [], ["gpu-fabric-state"]]
    assert bad(node.look(gpu(fabric_state=3, fabric_status=0, fabric_health=0x2))) == []
    assert [bad(Node().look(gpu(fabric_state=0))) for _ in range(5)] == [[]] * 5


def test_the_health_of_the_fabric_without_alarm_for_idle_gpus() -> None:
    no_partition = 2 << 12 | 4 << 8 | 2
    assert fabric_troubles(no_partition) == []
    assert fabric_troubles(2 << 14 | no_partition) == [], "no fabric manager connected: nothing runs over it"
    assert fabric_troubles(0) == []
    assert fabric_troubles(0x1 | 1 << 4 | 5 << 8) == ["degraded bandwidth", "unhealthy route", "too few NVLinks"]


def test_a_gpu_that_is_not_listed_is_missing_and_named() -> None:
    node = Node()
    node.look(*(gpu(n) for n in range(8)))
    look = node.look(*(gpu(n) for n in range(7)))
    (probe,) = (p for p in look.probes if p.healthy is False)
    assert (probe.code, probe.severity) == ("gpu-missing", Severity.FATAL)
    assert "7 of 8 GPUs answer; missing: GPU-7 at 0000:17:00.0" in probe.message
    assert bad(node.look(*(gpu(n) for n in range(8)))) == []
    assert bad(Node(GpuConfig(expected_count=8)).look(gpu(0))) == ["gpu-missing"]


def test_a_lost_gpu_keeps_its_name_and_is_not_missing_as_well() -> None:
    node = Node()
    node.look(gpu(0), gpu(1, ecc_uncorrected=1))
    look = node.look(gpu(0), GpuSample(index=1, lost=True))
    (probe,) = (p for p in look.probes if p.healthy is False)
    assert (probe.code, probe.entity.uuid, probe.entity.pci) == ("gpu-lost", "GPU-1", "0000:11:00.0")
    look = node.look(gpu(0), gpu(1, ecc_uncorrected=3))
    assert (bad(look), events(look)) == ([], [("gpu-ecc-uncorrected", 2)])


def test_a_swapped_gpu_is_news_and_no_fault() -> None:
    node = Node()
    node.look(gpu(0), gpu(1))
    look = node.look(gpu(0), gpu(1, uuid="GPU-new"))
    assert bad(look) == []
    (seen,) = look.sightings
    assert (seen.code, seen.severity, seen.details) == ("gpu-swapped", Severity.INFO, {"before": "GPU-1"})
    assert node.look(gpu(0), gpu(1, uuid="GPU-new")).sightings == ()


@pytest.mark.requirement("v2.4/CNP08")
def test_a_gpu_that_moved_is_the_same_gpu() -> None:
    node = Node()
    node.look(gpu(0, ecc_uncorrected=1))
    look = node.look(gpu(0, pci="0000:99:00.0", ecc_uncorrected=2))
    assert (bad(look), events(look)) == ([], [("gpu-ecc-uncorrected", 1)])


@pytest.mark.parametrize("absent", [True, False])
def test_a_driver_that_is_away_is_unknown(absent: bool) -> None:
    node = Node()
    node.look(gpu(0), gpu(1))
    before = node.state
    look = node.take(Sample(failure="Driver Not Loaded (9)", absent=absent))
    assert (look.probes, look.sightings, look.unknown) == ((), (), ("Driver Not Loaded (9)",))
    assert node.state.known == before.known
    assert bad(node.look(gpu(0), gpu(1))) == []


def test_a_node_without_gpus_has_nothing_to_wonder_about() -> None:
    assert Node().take(Sample(failure="no library", absent=True), bus=0) == Look()


def test_a_failing_query_is_unknown_and_the_rest_goes_on() -> None:
    look = Node().look(gpu(errors={"sram": "Unknown Error (999)"}, remap_failed=True))
    assert look.unknown == ("sram of GPU 0: Unknown Error (999)",)
    assert bad(look) == ["gpu-remap-failed"]
    many = Node().look(*(gpu(n, errors={"sram": "x"}) for n in range(20)))
    assert (len(many.unknown), many.unknown[-1]) == (9, "and 12 more")


@pytest.mark.parametrize(
    ("misses", "stuck", "severity"),
    [
        (1, 0, None),
        (2, 1, None),
        (3, 0, Severity.WARNING),
        (90, 0, Severity.WARNING),
        (8, 2, Severity.WARNING),
        (9, 1, Severity.FATAL),
    ],
)
def test_a_hang_is_fatal_only_when_the_kernel_proves_it(misses: int, stuck: int, severity: Severity | None) -> None:
    sample = Sample(failure="NVML did not answer within 20 s in nvmlX", hung=True, stuck=stuck)
    look = hang(CONFIG, GpuState(), sample, misses, "boot-1", START)
    assert look.unknown == (sample.failure,)
    assert [probe.severity for probe in look.probes] == ([] if severity is None else [severity])


def test_what_was_kept_by_another_version_is_nothing() -> None:
    for text in ("", "{", "[]", '{"format": 99}', '{"counters": {"a": 1}}', "\x00", '{"format":1,"most":"x"}'):
        assert states.decode(text) is None


OPTIONAL = {
    "ecc_uncorrected": st.integers(0, 50),
    "ecc_corrected": st.integers(0, 10**6),
    "remap_failed": st.booleans(),
    "throttle": st.integers(0, 0x1FF),
    "pcie_width": st.integers(0, 16),
    "pcie_max_width": st.integers(0, 16),
    "busy_percent": st.floats(0, 100),
    "recovery_action": st.integers(0, 9),
    "fabric_state": st.integers(0, 3),
    "fabric_health": st.integers(0, 2**16),
    "lost": st.booleans(),
    "links": st.builds(lambda up, n: links(*up, crc=n), st.lists(st.booleans(), max_size=4), st.integers(0, 9999)),
}
GPUS = st.lists(
    st.builds(lambda n, more: gpu(n, **more), st.integers(0, 3), st.fixed_dictionaries({}, optional=OPTIONAL)),
    max_size=4,
    unique_by=lambda g: g.index,
)


@settings(max_examples=60)
@given(st.lists(GPUS, min_size=1, max_size=5))
def test_any_samples_are_judged_alike_every_time(samples: list[list[GpuSample]]) -> None:
    one, two = Node(), Node()
    for sample in samples:
        assert one.look(*sample) == two.look(*sample)
        assert states.decode(states.encode(one.state)) == two.state
    keys = [(p.code, p.entity.key()) for p in one.look(*samples[-1]).probes]
    assert len(keys) == len(set(keys)), "one word about each state"
