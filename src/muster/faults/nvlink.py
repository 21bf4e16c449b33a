"""Decoding of the registers in NVLink error lines: XID 74 (NVLink 3 and 4) and XIDs 144 to 150 (NVLink 5)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from muster.faults import catalogue
from muster.faults.catalogue import Nvlink5Row
from muster.resources.fault import Hint, Severity

V2_FROM_DRIVER = 575
"""First driver branch that writes the second register layout."""
LINK_DOWN_UNITS = ("NETIR_LINK_EVT", "NETIR_LINK_DOWN")
LOCATED_AT_PEER = "INVESTIGATE_PEER_DEVICE"


@dataclass(frozen=True, slots=True)
class Nvlink5Decode:
    """What the decode table says about one line."""

    layout: str
    """`v1`, `v2`, or `v1-or-v2` where both layouts give the same row and no driver version decides."""
    immediate: str
    investigatory: str
    layer: str
    action2: bool
    """The row's second action applies instead of its first."""
    link_down_reason: int | None

    @property
    def suspect(self) -> str | None:
        return "peer" if self.investigatory == LOCATED_AT_PEER else None


@cache
def _mask(mask: str) -> tuple[int, int]:
    """(bits that matter, their values) of a mask of `0`, `1` and `-`."""
    care = int("".join("0" if bit == "-" else "1" for bit in mask), 2)
    return care, int(mask.replace("-", "0"), 2)


def _fits(mask: str, register: int) -> bool:
    care, value = _mask(mask)
    return register & care == value


@cache
def _rows(xid: int) -> tuple[Nvlink5Row, ...]:
    return tuple(row for row in catalogue.load().nvlink5 if row.xid == xid)


@cache
def _units(xid: int) -> frozenset[str]:
    return frozenset(unit for row in _rows(xid) for unit in row.units)


def _matches(row: Nvlink5Row, layout: str, intr_info: int, error_status: int) -> tuple[bool, bool]:
    """(the row holds, its second action applies) in one layout."""
    if row.error_status and error_status not in {int(value, 16) for value in row.error_status}:
        return False, False
    first, second = (row.v1, row.action2_v1) if layout == "v1" else (row.v2, row.action2_v2)
    if second and _fits(second, intr_info):
        return True, True
    return _fits(first, intr_info), False


def decode_nvlink5(
    xid: int, unit: str, intr_info: int, error_status: int, driver_branch: int | None = None
) -> Nvlink5Decode | None:
    """The decode row of one line, or None: undecoded.

    The layout is found by trying both, as a real line fits one of them only; `driver_branch` (575 of 575.51.03)
    decides where both fit. A unit name that no row of the code has is decoded by its registers alone, as driver
    versions spell units differently; a known name must agree with them.
    """
    named = unit in _units(xid)
    found: dict[str, tuple[Nvlink5Row, bool]] = {}
    for layout in ("v1", "v2"):
        for row in _rows(xid):
            if named and unit not in row.units:
                continue
            holds, second = _matches(row, layout, intr_info, error_status)
            if holds:
                found[layout] = (row, second)
                break
    if not found:
        return None
    layout = next(iter(found))
    if len(found) == 2:
        if driver_branch is not None:
            layout = "v2" if driver_branch >= V2_FROM_DRIVER else "v1"
        elif found["v1"][0] != found["v2"][0]:
            return None
    row, second = found[layout]
    both = len(found) == 2 and driver_branch is None
    reason = (intr_info >> 20) & 0x3F if set(row.units) & set(LINK_DOWN_UNITS) else None
    return Nvlink5Decode(
        layout="v1-or-v2" if both else layout,
        immediate=row.action2 if second else row.immediate,
        investigatory=row.investigatory,
        layer=row.layer,
        action2=second,
        link_down_reason=reason,
    )


def nvlink5_judgement(decode: Nvlink5Decode | None, fatal: bool | None, injected: bool) -> tuple[Severity, Hint]:
    """Severity by the word of the line (None: the line does not say), hint by the decode row.

    An injected error is a test and asks for nothing. `XID_154_EVAL` acts only if an XID 154 follows.
    """
    if injected:
        return Severity.INFO, Hint.NONE
    severity = Severity.UNKNOWN if fatal is None else Severity.FATAL if fatal else Severity.WARNING
    if decode is None:
        return severity, Hint.INSPECT
    if decode.immediate == "RESET_GPU":
        return severity, Hint.RESET_GPU
    if fatal or (decode.immediate != "XID_154_EVAL" and decode.investigatory.startswith("INVESTIGATE")):
        return severity, Hint.INSPECT
    return severity, Hint.NONE


@dataclass(frozen=True, slots=True)
class RegisterReading:
    """Class and role of the registers of an XID 74 line. `role`: `primary`, `secondary` or None (not told)."""

    bits: Mapping[int, tuple[int, ...]]
    class_name: str
    role: str | None


def decode_xid74(registers: Sequence[int]) -> RegisterReading:
    """Read the registers (as many as the line has, at most seven). The heaviest class with a bit set decides.

    `none`: no bit is set. `unknown`: bits are set that no class knows.
    """
    bits = {
        number: tuple(bit for bit in range(value.bit_length()) if value >> bit & 1)
        for number, value in enumerate(registers)
        if value
    }
    if not bits:
        return RegisterReading(bits={}, class_name="none", role=None)
    for entry in catalogue.load().nvlink_registers.classes:
        if any(bit in bits.get(int(register), ()) for register, wanted in entry.bits.items() for bit in wanted):
            return RegisterReading(bits=bits, class_name=entry.name, role=entry.role)
    return RegisterReading(bits=bits, class_name="unknown", role=None)
