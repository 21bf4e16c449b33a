"""The catalogue is complete, agrees with the public mapping, and says why where it does not follow it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster import yamlio
from muster.faults import catalogue, generate
from muster.resources.fault import Hint, Severity

PUBLIC: dict[str, Any] = yamlio.load(Path(__file__).parent / "data" / "public_mapping.yaml")
HINTS = {
    "NONE": (Hint.NONE, Hint.RESTART_APP),
    "COMPONENT_RESET": (Hint.RESET_GPU,),
    "RESTART_VM": (Hint.REBOOT,),
    "RESTART_BM": (Hint.REBOOT,),
    "CONTACT_SUPPORT": (Hint.INSPECT,),
}


def test_the_generated_file_is_up_to_date() -> None:
    assert generate.TARGET.read_bytes() == generate.encoded(), "run python -m muster.faults.generate"


def test_counts() -> None:
    stored = catalogue.load()
    assert (len(stored.xids), len(stored.sxids), len(stored.nvlink5)) == (172, 93, 95)
    assert len(stored.dcgm) == 135


@pytest.mark.parametrize("code", sorted(PUBLIC["xids"]))
def test_xid_has_the_public_values(code: int) -> None:
    mnemonic, immediate, action, fatal = PUBLIC["xids"][code]
    entry = catalogue.xid(code)
    assert entry.reference is not None
    assert (entry.mnemonic, entry.reference.immediate, entry.reference.action, entry.reference.fatal) == (
        mnemonic,
        immediate,
        action,
        fatal,
    )


@pytest.mark.parametrize("code", sorted(PUBLIC["xids"]))
def test_a_different_mapping_has_its_reason(code: int) -> None:
    entry = catalogue.xid(code)
    assert entry.reference is not None
    if entry.reference.action not in HINTS:
        return
    same_hint = entry.hint in HINTS[entry.reference.action]
    same_weight = entry.reference.fatal is (entry.severity is Severity.FATAL)
    assert bool(entry.differs) or (same_hint and same_weight)
    if entry.differs:
        assert entry.differs.endswith(".")


def test_reserved_codes_are_unknown_and_ask_for_nothing() -> None:
    reserved = [entry for entry in catalogue.load().xids if entry.category == "reserved"]
    assert len(reserved) == 63
    assert {(entry.severity, entry.hint) for entry in reserved} == {(Severity.UNKNOWN, Hint.NONE)}


@pytest.mark.parametrize(
    ("code", "severity", "hint"),
    [
        (45, Severity.INFO, Hint.NONE),
        (79, Severity.FATAL, Hint.REBOOT),
        (94, Severity.WARNING, Hint.RESTART_APP),
        (95, Severity.FATAL, Hint.RESET_GPU),
        (162, Severity.INFO, Hint.NONE),
        (163, Severity.WARNING, Hint.NONE),
    ],
)
def test_codes_that_others_got_wrong(code: int, severity: Severity, hint: Hint) -> None:
    entry = catalogue.xid(code)
    assert (entry.severity, entry.hint) == (severity, hint)


def test_recovery_clears_what_it_recovers() -> None:
    assert catalogue.xid(162).clears == (163,)


@given(st.integers())
def test_every_number_is_answered(code: int) -> None:
    entry = catalogue.xid(code)
    assert entry.code == code
    if code not in PUBLIC["xids"]:
        assert (entry.severity, entry.hint) == (Severity.UNKNOWN, Hint.INSPECT)
        assert catalogue.sxid(code) is None or code in PUBLIC["sxids"]


@given(st.text())
def test_every_dcgm_text_is_answered(code: str) -> None:
    entry = catalogue.dcgm(code)
    assert entry.code == code
    assert entry.severity in Severity


@pytest.mark.parametrize("code", sorted(PUBLIC["sxids"]))
def test_sxid_has_the_public_class(code: int) -> None:
    entry = catalogue.sxid(code)
    assert entry is not None
    assert [entry.class_name, entry.logged_as] == PUBLIC["sxids"][code]
    assert catalogue.sxid_class(entry.class_name).meaning


@pytest.mark.parametrize("action", sorted(PUBLIC["dcgm"]))
def test_dcgm_codes_are_all_there(action: str) -> None:
    stored = sorted(entry.code for entry in catalogue.load().dcgm if entry.reference_action == action)
    assert set(PUBLIC["dcgm"][action]) <= set(stored)
    assert len(set(stored) - set(PUBLIC["dcgm"][action])) <= 1


def test_a_different_dcgm_mapping_has_its_reason() -> None:
    silent = [
        entry.code
        for entry in catalogue.load().dcgm
        if not entry.differs and entry.hint not in HINTS[entry.reference_action]
    ]
    assert silent == []


def test_nvlink5_rows_are_the_public_ones() -> None:
    stored = [
        [
            row.xid,
            "/".join(row.units),
            row.v1,
            row.v2,
            "/".join(row.error_status).lower() or None,
            row.immediate,
            row.investigatory,
            row.action2 or None,
        ]
        for row in catalogue.load().nvlink5
    ]
    public = [[*row[:4], row[4].lower() if row[4] else None, *row[5:]] for row in PUBLIC["nvlink5"]]
    assert stored == public


def test_masks_are_well_formed() -> None:
    for row in catalogue.load().nvlink5:
        masks = [row.v1, row.v2, *((row.action2_v1, row.action2_v2) if row.action2 else ())]
        assert all(len(mask) == 32 and not set(mask) - set("01-") for mask in masks), row


def test_register_classes_are_the_public_ones() -> None:
    stored: dict[str, dict[str, list[int]]] = {}
    for entry in catalogue.load().nvlink_registers.classes:
        for register, bits in entry.bits.items():
            stored.setdefault(register, {})[entry.name] = list(bits)
    assert stored == PUBLIC["nvlink_registers"]


@pytest.mark.parametrize(
    ("text", "severity", "hint"),
    [
        ("None", Severity.INFO, Hint.NONE),
        ("GPU Reset Required", Severity.FATAL, Hint.RESET_GPU),
        ("0x2", Severity.FATAL, Hint.REBOOT),
        ("drain p2p", Severity.WARNING, Hint.INSPECT),
        ("Drain and Reset", Severity.FATAL, Hint.RESET_GPU),
        ("Recover IMEX domain required", Severity.INFO, Hint.NONE),
        ("something new", Severity.UNKNOWN, Hint.INSPECT),
    ],
)
def test_recovery_actions(text: str, severity: Severity, hint: Hint) -> None:
    action = catalogue.recovery_action(text)
    assert (action.severity, action.hint) == (severity, hint)
