"""Mapping errors that others made in the field: each is a test, down to what a policy does with the line."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.errors import BadInputError
from muster.faults import catalogue, generate, nvlink
from muster.faults.page import page
from muster.operate.policy import FULL_AUTOMATION, SAFE_DEFAULT, effective_policy, judge, with_provider
from muster.resources.fault import Entity, EntityKind, Fault, Hint, Severity
from muster.resources.fault_policy import Disposition
from muster.resources.repair import Rung

NOW = datetime(2026, 1, 5, 8, 0, tzinfo=UTC)
ACTING = (Disposition.HOLD, Disposition.DRAIN, Disposition.REPAIR)
POLICIES = [effective_policy([SAFE_DEFAULT], {}), effective_policy([with_provider(FULL_AUTOMATION, "cloud")], {})]


def seen(code: int | str, check: str = "xid") -> Fault:
    entry = catalogue.xid(int(code)) if check == "xid" else catalogue.dcgm(str(code))
    return Fault(
        source="kernel-log",
        check=check,
        code=str(code),
        entity=Entity(kind=EntityKind.GPU, uuid="GPU-0"),
        severity=entry.severity,
        scope=entry.scope,
        hint=entry.hint,
        first_seen=NOW,
        last_seen=NOW,
    )


def acts(code: int | str, check: str = "xid") -> bool:
    return any(judge(policy, seen(code, check), {}, NOW).disposition in ACTING for policy in POLICIES)


def test_a_torn_down_channel_takes_no_node_out() -> None:
    """XID 45 follows ctrl-C: taken for fatal, it cordoned 77 nodes."""
    assert not acts(45)


@pytest.mark.parametrize("code", range(162, 173))
def test_blank_rows_are_no_default(code: int) -> None:
    """The rows 162 to 172 of the reference table were blank and fell to the default for unknown codes, fatal."""
    entry = catalogue.xid(code)
    assert entry.reference is not None
    assert (entry.reference.action, entry.reference.fatal) == ("CONTACT_SUPPORT", True)
    assert "blank" in entry.differs
    assert entry.mnemonic


@pytest.mark.parametrize("code", [162, 163, 164, 165])
def test_power_smoothing_takes_no_node_out(code: int) -> None:
    assert not acts(code)


@pytest.mark.parametrize("code", [0, 122, 999, 10**6])
def test_an_unknown_or_reserved_code_is_reported_and_never_acted_on(code: int) -> None:
    assert catalogue.xid(code).severity is Severity.UNKNOWN
    assert not acts(code)


@given(st.text(max_size=40))
def test_an_unknown_dcgm_code_is_never_acted_on(code: str) -> None:
    if code not in {entry.code for entry in catalogue.load().dcgm}:
        assert not acts(code, "dcgm")


def test_a_remapped_row_is_told_by_its_state_and_not_by_the_line() -> None:
    """63 says that a row was remapped: the state (pending, failed) decides what is to be done."""
    assert not acts(63)
    pending, failed = catalogue.condition("gpu-remap-pending"), catalogue.condition("gpu-remap-failed")
    assert (pending.severity, pending.hint) == (Severity.WARNING, Hint.RESET_GPU)
    assert (failed.severity, failed.hint) == (Severity.FATAL, Hint.REPLACE)
    assert catalogue.dcgm("DCGM_FR_ROW_REMAP_FAILURE").hint is Hint.REPLACE


def test_a_failed_remap_goes_to_replacement_and_wastes_no_reboot() -> None:
    """64: no spare row is left. Cloud operators return such GPUs; a reboot adds nothing to a reset."""
    judged = judge(POLICIES[1], seen(64), {}, NOW)
    assert [s.rung for s in judged.ladder] == [Rung.RESET_GPU, Rung.REPLACE, Rung.TICKET]


def test_an_nvlink_error_alone_holds_nothing_and_an_uncontained_memory_error_does() -> None:
    assert not acts(74)
    assert acts(95)
    assert not acts(94)


@pytest.mark.parametrize(("word", "severity"), [("Fatal", Severity.FATAL), ("Nonfatal", Severity.WARNING)])
def test_the_word_of_the_line_decides_xid_145(word: str, severity: Severity) -> None:
    """A diagnostic table calls 145 fatal while the kernel says Nonfatal: the kernel is right."""
    assert catalogue.xid(145).severity is Severity.UNKNOWN
    found, _ = nvlink.nvlink5_judgement(None, word == "Fatal", injected=False)
    assert found is severity


@given(st.sampled_from(catalogue.load().nvlink5), st.sampled_from(["v1", "v2"]))
def test_the_layout_of_nvlink5_is_found_without_the_drivers_version(row: catalogue.Nvlink5Row, layout: str) -> None:
    """A driver version that was cached empty decoded lines by the wrong layout."""
    mask = row.v1 if layout == "v1" else row.v2
    register = int(mask.replace("-", "0"), 2)
    status = int(row.error_status[0], 16) if row.error_status else 0
    alone = nvlink.decode_nvlink5(row.xid, row.units[0], register, status)
    told = nvlink.decode_nvlink5(row.xid, row.units[0], register, status, 570 if layout == "v1" else 580)
    assert told is not None
    # Without the version the answer is that of the layout, or none where the two layouts disagree: never another.
    other = nvlink.decode_nvlink5(row.xid, row.units[0], register, status, 580 if layout == "v1" else 570)
    if alone is None:
        assert other is not None
        assert other != told
    else:
        assert alone.immediate in {told.immediate, other.immediate if other is not None else told.immediate}


def test_imex_without_a_domain_and_a_flapping_power_cap_are_no_faults() -> None:
    assert not acts("DCGM_FR_IMEX_UNHEALTHY", "dcgm")
    assert not acts("DCGM_FR_CLOCK_THROTTLE_POWER", "dcgm")


def test_a_dcgm_check_that_could_not_be_made_is_unknown() -> None:
    for code in ("DCGM_FR_FIELD_QUERY", "DCGM_FR_CANNOT_SET_WATCHES", "DCGM_FR_POWER_UNREADABLE"):
        assert catalogue.dcgm(code).severity is Severity.UNKNOWN


def test_nothing_that_acts_is_a_dead_end() -> None:
    """The reference cordons for CONTACT_SUPPORT and then can do nothing. Here every ladder ends with a person."""
    for entry in catalogue.load().xids:
        judged = judge(POLICIES[1], seen(entry.code), {}, NOW)
        if judged.disposition is Disposition.REPAIR:
            assert judged.ladder[-1].rung is Rung.TICKET


def test_sticky_codes_are_those_of_the_field() -> None:
    assert [entry.code for entry in catalogue.load().xids if entry.sticky] == [74, 79, 95, 109, 119]


def test_the_page_is_current_and_lists_every_code() -> None:
    stored = (Path(__file__).parents[2] / "docs/reference/faults.md").read_text()
    assert stored == page(), "run python -m muster.faults.page docs/reference/faults.md"
    known = catalogue.load()
    assert all(f"`{entry.code}`" in stored for entry in (*known.dcgm, *known.conditions))
    assert all(entry.differs in stored for entry in known.xids if entry.category != "reserved")


def test_a_code_that_is_listed_twice_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for source in generate.DATA.glob("*.yaml"):
        (tmp_path / source.name).write_text(source.read_text())
    again = (generate.DATA / "host.yaml").read_text()
    (tmp_path / "maintenance.yaml").write_text(again)
    monkeypatch.setattr(generate, "DATA", tmp_path)
    with pytest.raises(BadInputError, match=r"lists condition .*edac-ce.* twice"):
        generate.catalogue()
