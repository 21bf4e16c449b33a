"""The judgement of one GPU's readings, as plain values."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.read.smi import fabric
from muster.read.smi.fabric import FabricFault
from muster.read.smi.judge import Limits, judge
from muster.read.smi.state import Counts, GpuReading
from muster.resources.fault import Hint, Scope, Severity

_MAYBE = st.sampled_from([None, True, False])
_COUNT = st.one_of(st.none(), st.integers(0, 200))
_COUNTS = st.builds(Counts, volatile=_COUNT, aggregate=_COUNT)
_READINGS = st.builds(
    GpuReading,
    ecc_enabled=_MAYBE,
    ecc_pending=_MAYBE,
    sram_uncorrectable=_COUNTS,
    dram_uncorrectable=_COUNTS,
    sram_threshold_exceeded=_MAYBE,
    unrepairable_memory=_MAYBE,
    channel_repair_pending=_MAYBE,
    remap_pending=_MAYBE,
    remap_failure=_MAYBE,
    banks=st.dictionaries(st.sampled_from(["max", "high", "partial", "low", "none"]), st.integers(0, 700)),
    retired_single_bit=_COUNT,
    retired_double_bit=_COUNT,
    retired_pending=_MAYBE,
    recovery_action=st.sampled_from([None, "None", "Reset", "Reboot", "Drain P2P", "Drain and Reset"]),
    slowdowns=st.sampled_from([(), ("hw",), ("hw-thermal",), ("sw-power-cap",), ("hw", "hw-power-brake")]),
)


def _codes(**values: Any) -> list[str]:
    return [finding.code for finding in judge(GpuReading(**values))]


def test_nothing_told_is_no_finding() -> None:
    assert judge(GpuReading()) == ()
    assert not GpuReading(index=3, pci="0000:18:00.0", temperature_c=40.0).told
    assert GpuReading(remap_pending=False).told


@given(gpu=_READINGS)
def test_replacement_needs_a_reason_that_no_reset_removes(gpu: GpuReading) -> None:
    replaces = [finding for finding in judge(gpu) if finding.hint is Hint.REPLACE]
    life = gpu.sram_uncorrectable.aggregate
    reasons = (
        gpu.remap_failure,
        gpu.unrepairable_memory,
        gpu.banks.get("none", 0) > 0,
        gpu.sram_threshold_exceeded,
        gpu.sram_threshold_exceeded is None and life is not None and life > 4,
        (gpu.retired_single_bit or 0) + (gpu.retired_double_bit or 0) >= 60,
    )
    assert bool(replaces) == any(reasons)


@given(gpu=_READINGS)
def test_what_the_driver_asks_for_comes_first(gpu: GpuReading) -> None:
    found = judge(gpu)
    asked = gpu.recovery_action not in (None, "None")
    assert [f.code == "gpu-recovery-action" for f in found] == [asked and n == 0 for n in range(len(found))]


@given(gpu=_READINGS)
def test_findings_are_complete_sentences_about_known_fields(gpu: GpuReading) -> None:
    for finding in judge(gpu):
        assert finding.name
        assert not finding.name.endswith(".")
        assert not finding.next or finding.next.endswith(".")
        assert finding.reason
        assert finding.fields


@given(gpu=_READINGS)
def test_a_pending_repair_is_not_told_beside_a_failed_one(gpu: GpuReading) -> None:
    codes = [finding.code for finding in judge(gpu)]
    assert not {"row-remap-failed", "row-remap-pending"} <= set(codes)
    assert len(codes) == len(set(codes))


@pytest.mark.parametrize(
    ("values", "code", "severity", "scope", "hint"),
    [
        ({"remap_pending": True}, "row-remap-pending", Severity.WARNING, Scope.GPU, Hint.RESET_GPU),
        ({"tpc_repair_pending": True}, "repair-pending", Severity.WARNING, Scope.GPU, Hint.RESET_GPU),
        ({"remap_failure": True}, "row-remap-failed", Severity.FATAL, Scope.GPU, Hint.REPLACE),
        ({"banks": {"max": 600, "none": 1}}, "row-remap-exhausted", Severity.WARNING, Scope.GPU, Hint.REPLACE),
        ({"retired_double_bit": 60}, "retired-pages-limit", Severity.FATAL, Scope.GPU, Hint.REPLACE),
        ({"retired_pending": True}, "page-retirement-pending", Severity.WARNING, Scope.GPU, Hint.RESET_GPU),
        ({"recovery_action": "Reboot"}, "gpu-recovery-action", Severity.FATAL, Scope.NODE, Hint.REBOOT),
        ({"reset_required": True}, "gpu-recovery-action", Severity.FATAL, Scope.GPU, Hint.RESET_GPU),
        ({"trouble": {"temperature": "lost"}}, "gpu-lost", Severity.FATAL, Scope.GPU, Hint.REBOOT),
        ({"trouble": {"power": "failed"}}, "gpu-unreadable", Severity.WARNING, Scope.GPU, Hint.INSPECT),
        ({"slowdowns": ("hw-power-brake",)}, "hw-power-brake", Severity.WARNING, Scope.GPU, Hint.INSPECT),
        ({"ecc_enabled": False, "ecc_pending": False}, "ecc-disabled", Severity.WARNING, Scope.CONFIG, Hint.INSPECT),
    ],
)
def test_one_reading_one_finding(
    values: dict[str, Any], code: str, severity: Severity, scope: Scope, hint: Hint
) -> None:
    (finding,) = judge(GpuReading(**values))
    assert (finding.code, finding.severity, finding.scope, finding.hint) == (code, severity, scope, hint)


def test_a_hot_gpu_that_slows_down_is_a_matter_of_cooling() -> None:
    assert _codes(slowdowns=("hw",), temperature_c=91.0, slowdown_temperature_c=90.0) == ["hw-thermal-slowdown"]
    assert _codes(slowdowns=("hw",), temperature_c=50.0, slowdown_temperature_c=90.0) == ["hw-slowdown"]
    assert _codes(slowdowns=("sw-power-cap",)) == []


@given(life=st.integers(0, 50), limit=st.integers(0, 50))
def test_the_limit_of_sram_errors(life: int, limit: int) -> None:
    gpu = GpuReading(sram_uncorrectable=Counts(volatile=0, aggregate=life))
    found = judge(gpu, Limits(sram_uncorrectable=limit))
    assert [f.reason for f in found] == (["sram-uncorrectable-limit"] if life > limit else [])


@given(
    states=st.lists(st.sampled_from(["Completed", "In Progress", "Not Started", "Not Supported", None]), max_size=12)
)
def test_every_gpu_of_the_fabric_is_counted_once(states: list[str | None]) -> None:
    state = fabric.judge([GpuReading(fabric_state=word) for word in states])
    waiting = tuple(n for n, word in enumerate(states) if word in ("In Progress", "Not Started"))
    assert state.wrong.get(FabricFault.NOT_COMPLETE, ()) == waiting
    assert state.supported == sum(1 for word in states if word not in (None, "Not Supported"))
    assert sum(state.states.values()) == sum(1 for word in states if word is not None)


@pytest.mark.parametrize(
    ("health", "fault"),
    [
        ({"summary": "Healthy", "bandwidth": "Full", "route_unhealthy": "False"}, None),
        ({"summary": "Limited Capacity"}, FabricFault.DEGRADED),
        ({"bandwidth": "Degraded"}, FabricFault.DEGRADED),
        ({"summary": "Unhealthy", "route_unhealthy": "True"}, FabricFault.UNHEALTHY),
        ({"incorrect_configuration": "Incompatible GPU Firmware"}, FabricFault.UNHEALTHY),
        ({"summary": "Not Supported", "incorrect_configuration": "None"}, None),
    ],
)
def test_health_of_a_complete_fabric(health: dict[str, str], fault: FabricFault | None) -> None:
    state = fabric.judge([GpuReading(fabric_state="Completed", fabric_status="Success", fabric_health=health)])
    assert list(state.wrong) == ([fault] if fault else [])
