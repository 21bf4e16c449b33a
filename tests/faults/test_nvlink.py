"""Registers of NVLink errors."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from muster.faults import catalogue, nvlink
from muster.resources.fault import Hint, Severity

ROWS = catalogue.load().nvlink5


def _register(mask: str, noise: int) -> int:
    """A register that fits the mask, the free bits taken from `noise`."""
    free = int("".join("1" if bit == "-" else "0" for bit in mask), 2)
    return int(mask.replace("-", "0"), 2) | (noise & free)


@given(st.sampled_from(ROWS), st.sampled_from(["v1", "v2"]))
def test_every_row_decodes_itself(row: catalogue.Nvlink5Row, layout: str) -> None:
    register = _register(row.v1 if layout == "v1" else row.v2, 0)
    status = int(row.error_status[0], 16) if row.error_status else 0
    branch = 570 if layout == "v1" else 580
    decode = nvlink.decode_nvlink5(row.xid, row.units[0], register, status, branch)
    assert decode is not None
    same = [
        r for r in ROWS if r.xid == row.xid and set(r.units) & set(row.units) and r.error_status == row.error_status
    ]
    assert decode.immediate in {r.immediate for r in same}


@given(st.integers(144, 150), st.text(max_size=20), st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1))
def test_any_register_is_answered(code: int, unit: str, intr_info: int, status: int) -> None:
    decode = nvlink.decode_nvlink5(code, unit, intr_info, status)
    severity, hint = nvlink.nvlink5_judgement(decode, False, injected=False)
    assert severity is Severity.WARNING
    assert decode is not None or hint is Hint.INSPECT


def test_second_action_is_honoured() -> None:
    first = nvlink.decode_nvlink5(145, "RLW_RXPIPE", 0b00011000010, 1, 570)
    second = nvlink.decode_nvlink5(145, "RLW_RXPIPE", 0b10011000010, 1, 570)
    assert first is not None
    assert second is not None
    assert (first.immediate, second.immediate) == ("IGNORE", "RESET_GPU")


def test_an_injected_error_asks_for_nothing() -> None:
    decode = nvlink.decode_nvlink5(149, "NETIR", 0x000FE406, 0)
    assert nvlink.nvlink5_judgement(decode, True, injected=True) == (Severity.INFO, Hint.NONE)
    assert nvlink.nvlink5_judgement(decode, True, injected=False) == (Severity.FATAL, Hint.RESET_GPU)


def test_a_known_unit_must_agree_with_its_registers() -> None:
    assert nvlink.decode_nvlink5(149, "NETIR_BER_EVENT", 0x000FE406, 0) is None


@given(st.sampled_from(catalogue.load().nvlink_registers.classes), st.data())
def test_a_single_bit_gives_its_class(entry: catalogue.RegisterClass, data: st.DataObject) -> None:
    register, bits = data.draw(st.sampled_from(sorted(entry.bits.items())))
    bit = data.draw(st.sampled_from(bits))
    registers = [0] * 7
    registers[int(register)] = 1 << bit
    reading = nvlink.decode_xid74(registers)
    assert (reading.class_name, reading.role) == (entry.name, entry.role)
    assert reading.bits == {int(register): (bit,)}


@given(st.lists(st.integers(0, 2**32 - 1), max_size=7))
def test_bits_rebuild_the_registers(registers: list[int]) -> None:
    reading = nvlink.decode_xid74(registers)
    rebuilt = [sum(1 << bit for bit in reading.bits.get(number, ())) for number in range(len(registers))]
    assert rebuilt == registers
    assert (reading.class_name == "none") is (not any(registers))
