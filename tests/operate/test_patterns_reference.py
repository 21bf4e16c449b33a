"""The analyzer rules of the reference as our patterns: each has histories that it concludes from and others."""

from __future__ import annotations

from datetime import timedelta
from importlib import resources
from typing import Any

import pytest

from muster import yamlio
from muster.operate.patterns.derive import derive
from muster.operate.patterns.history import History
from muster.operate.policy import FULL_AUTOMATION, SAFE_DEFAULT, effective_policy, judge, with_provider
from muster.resources.fault import EntityKind, Fault, Hint, Severity
from muster.resources.fault_policy import Disposition
from tests.operate.histories import (
    GPU0,
    GPU1,
    LINK,
    LINK2,
    NOW,
    PORT,
    ago,
    burst,
    closed,
    fault,
    past,
    repair_began,
)

REFERENCE: list[dict[str, Any]] = yamlio.loads(
    (resources.files("muster.operate") / "data" / "patterns-reference.yaml").read_text(), "patterns-reference.yaml"
)["rules"]
SHIPPED = effective_policy([], {})
ON = {p.name: p for p in SHIPPED.patterns}


def concluded(history: History, only: str) -> tuple[Fault, ...]:
    """The faults that the pattern `only` concludes, be it on or off as shipped."""
    from dataclasses import replace

    from msgspec.structs import replace as with_fields

    policy = replace(SHIPPED, patterns=(with_fields(ON[only], enabled=True),))
    return derive(policy, history, "n1", {}, (), NOW)[0]


def hexadecimal(*bits: int) -> str:
    return f"0x{sum(1 << bit for bit in bits):08x}"


def xid74(register: str, bit: int, *hours: float, entity: Any = LINK, **more: Any) -> Fault:
    seen = [burst(ago(h), **{register: hexadecimal(bit, 31 if bit != 31 else 30)}) for h in hours]
    return fault("74", *seen, entity=entity, severity=Severity.WARNING, **more)


def repeated(register: str, bits: tuple[int, ...], other_bit: int) -> list[tuple[str, History, bool]]:
    """Twice on the same thing: yes for every bit; once, another bit, or a day apart: no."""
    cases = [(f"bit {bit} twice", past(xid74(register, bit, 5, 1)), True) for bit in bits]
    return [
        *cases,
        ("once", past(xid74(register, bits[0], 1)), False),
        ("another bit", past(xid74(register, other_bit, 5, 1)), False),
        ("more than a day apart", past(xid74(register, bits[0], 25, 1)), False),
    ]


def solo(register: str, bits: tuple[int, ...], other_bit: int) -> list[tuple[str, History, bool]]:
    alone = [(f"bit {bit} alone", past(xid74(register, bit, 1)), True) for bit in bits]
    with_other = past(xid74(register, bits[0], 1), fault("48", burst(ago(1))))
    return [
        *alone,
        ("another error is open", with_other, False),
        ("another bit", past(xid74(register, other_bit, 1)), False),
        ("two days ago", past(xid74(register, bits[0], 48)), False),
    ]


def other_link(register: str, bit: int) -> tuple[str, History, bool]:
    return (
        "once on each of two links",
        past(xid74(register, bit, 5), xid74(register, bit, 1, entity=LINK2)),
        False,
    )


def same_gpu(register: str, bit: int) -> tuple[str, History, bool]:
    return ("two links of one GPU", past(xid74(register, bit, 5), xid74(register, bit, 1, entity=LINK2)), True)


def other_gpu(register: str, bit: int) -> tuple[str, History, bool]:
    return ("two GPUs", past(xid74(register, bit, 5), xid74(register, bit, 1, entity=GPU1)), False)


def app(code: str, *bursts: Any, entity: Any = GPU0) -> Fault:
    return fault(code, *bursts, entity=entity, severity=Severity.WARNING, hint=Hint.RESTART_APP)


def place(gpc: str, tpc: str, hours: float) -> Any:
    return burst(ago(hours), gpc=gpc, tpc=tpc)


def nic(code: str, *hours: float, check: str = "nic") -> Fault:
    seen = [burst(ago(h)) for h in hours]
    return fault(code, *seen, check=check, entity=PORT, severity=Severity.WARNING)


def began(*hours: float) -> History:
    return History(transitions=tuple(repair_began(ago(h)) for h in sorted(hours, reverse=True)))


CASES: dict[str, list[tuple[str, History, bool]]] = {
    "MultipleRemediations": [
        ("five in a week", began(150, 100, 50, 20, 3), True),
        ("four in a week", began(100, 50, 20, 3), False),
        ("five in nine days", began(200, 100, 50, 20, 3), False),
    ],
    "RepeatedXIDErrorOnSameGPU": [
        ("five bursts", past(fault("48", *(burst(ago(h)) for h in (20, 15, 10, 5, 1)))), True),
        ("five of XID 74", past(xid74("reg0", 3, 20, 16, 12, 8, 4, entity=GPU0)), True),
        ("four bursts", past(fault("48", *(burst(ago(h)) for h in (15, 10, 5, 1)))), False),
        ("five lines of one storm", past(fault("48", *(burst(ago(minutes=m)) for m in (10, 8, 6, 4, 2)))), False),
        ("a sticky code every two hours", past(fault("79", *(burst(ago(h)) for h in (9, 7, 5, 3, 1)))), False),
        ("XID 31", past(fault("31", *(burst(ago(h)) for h in (20, 15, 10, 5, 1)))), False),
        ("an XID that is no fatal one", past(app("13", *(burst(ago(h)) for h in (20, 15, 10, 5, 1)))), False),
        (
            "different codes",
            past(
                *(fault(code, burst(ago(h))) for code, h in (("48", 9), ("62", 7), ("64", 5), ("95", 3), ("119", 1)))
            ),
            False,
        ),
    ],
    "RepeatedXID31OnSameGPU": [
        ("twice", past(app("31", burst(ago(5)), burst(ago(1)))), True),
        ("once", past(app("31", burst(ago(1)))), False),
        ("once on each of two GPUs", past(app("31", burst(ago(5))), app("31", burst(ago(1)), entity=GPU1)), False),
    ],
    "RepeatedXID31OnDifferentGPU": [
        ("two GPUs", past(app("31", burst(ago(5))), app("31", burst(ago(1)), entity=GPU1)), True),
        ("one GPU twice", past(app("31", burst(ago(5)), burst(ago(1)))), False),
    ],
    "RepeatedXID13OnSameGPCAndTPC": [
        ("same place", past(app("13", place("1", "2", 5), place("1", "2", 1))), True),
        ("30 seconds apart", past(app("13", place("1", "2", 1), place("1", "2", 1 - 30 / 3600))), True),
        ("10 seconds apart", past(app("13", place("1", "2", 1), place("1", "2", 1 - 10 / 3600))), False),
        ("another TPC", past(app("13", place("1", "2", 5), place("1", "3", 1))), False),
        ("no place told", past(app("13", burst(ago(5)), burst(ago(1)))), False),
    ],
    "RepeatedXID13OnDifferentGPCAndTPC": [
        ("two places", past(app("13", place("1", "2", 5), place("1", "3", 1))), True),
        ("one place", past(app("13", place("1", "2", 5), place("1", "2", 1))), False),
    ],
    "XIDErrorSoloNoBurst": [
        ("one alone", past(app("13", burst(ago(1)))), True),
        ("two", past(app("13", burst(ago(5)), burst(ago(1)))), False),
        ("a burst", past(app("13", burst(ago(1), count=40))), False),
    ],
    "XID74Reg0SoloNVLinkError": solo("reg0", (1, 20), 2),
    "XID74Reg0ECCParityError": [*repeated("reg0", (4, 5), 3), other_link("reg0", 4)],
    "RepeatedXID74Reg0HardwareIssue": [
        *repeated("reg0", (8, 9, 12, 16, 17, 24, 28), 10),
        same_gpu("reg0", 8),
        other_gpu("reg0", 8),
    ],
    "XID74Reg0SignalIntegrityError": solo("reg0", (21, 22), 23),
    "XID74Reg0Bit27Or29Set": [*repeated("reg0", (27, 29), 26), same_gpu("reg0", 27)],
    "RepeatedXID74Reg2HardwareIssue": [*repeated("reg2", (0, 1, 2, 6), 3), other_link("reg2", 0)],
    "XID74Reg2Bit13Set": [
        ("once", past(xid74("reg2", 13, 1)), True),
        ("another bit", past(xid74("reg2", 12, 1)), False),
        ("another register", past(xid74("reg0", 13, 1)), False),
    ],
    "RepeatedXID74Reg2Bit16Or19Set": [*repeated("reg2", (16, 19), 20), same_gpu("reg2", 16)],
    "RepeatedXID74Reg2Bit17Or18Set": [*repeated("reg2", (17, 18), 20), same_gpu("reg2", 17)],
    "XID74Reg3UnexpectedError": solo("reg3", (16, 17), 15),
    "XID74Reg3Bit18Set": solo("reg3", (18,), 19),
    "XID74Reg4HardwareIssue": [*repeated("reg4", (18, 19, 21, 22, 24, 25, 27, 28), 17), other_link("reg4", 18)],
    "XID74Reg4ECCError": [*repeated("reg4", (20, 23, 26, 29), 17), other_link("reg4", 20)],
    "RepeatedNICDriverError": [
        (
            "three kinds",
            past(*(nic(c, 0.5) for c in ("netdev-tx-timeout", "mlx5-slot-power", "mlx5-firmware-error"))),
            True,
        ),
        ("one kind three times", past(nic("netdev-tx-timeout", 0.9, 0.5, 0.1)), True),
        ("refused register queries", past(nic("mlx5-access-reg", 0.9, 0.5, 0.1)), False),
        ("two", past(nic("netdev-tx-timeout", 0.9, 0.5)), False),
        ("over two hours", past(nic("netdev-tx-timeout", 1.9, 0.5, 0.1)), False),
    ],
    "RepeatedNICDegradation": [
        ("three times", past(nic("port-link-errors", 0.9, 0.5, 0.1, check="nic-port")), True),
        ("twice", past(nic("port-link-errors", 0.5, 0.1, check="nic-port")), False),
        ("by the driver", past(nic("netdev-tx-timeout", 0.9, 0.5, 0.1)), False),
    ],
}
ROWS = [(row["rule"], row["pattern"]) for row in REFERENCE]


def test_each_rule_of_the_reference_has_a_pattern_and_cases() -> None:
    assert len(ROWS) == len({rule for rule, _ in ROWS}) == 22
    assert sorted(CASES) == sorted(rule for rule, _ in ROWS)
    assert all(name in ON for _, name in ROWS)


@pytest.mark.parametrize(
    ("rule", "what", "history", "holds"),
    [(rule, what, history, holds) for rule, cases in CASES.items() for what, history, holds in cases],
    ids=[f"{rule}: {what}" for rule, cases in CASES.items() for what, _, _ in cases],
)
def test_rule(rule: str, what: str, history: History, holds: bool) -> None:
    name = dict(ROWS)[rule]
    found = concluded(history, name)
    assert bool(found) is holds, what
    assert all(f.code == name and f.message for f in found)


@pytest.mark.parametrize("row", REFERENCE, ids=lambda row: row["rule"])
def test_a_different_verdict_has_its_reason(row: dict[str, Any]) -> None:
    """The reference takes every finding that is not NONE for fatal; where ours is milder the row says why."""
    ours = ON[row["pattern"]]
    theirs = Severity.INFO if row["action"] == "NONE" else Severity.FATAL
    assert row["differs"] or (ours.severity is theirs and ours.enabled)
    assert not row["differs"] or row["differs"].endswith(".")


@pytest.mark.parametrize("hint", [Hint.RESET_GPU, Hint.REBOOT])
def test_what_comes_back_after_a_repair_begins_higher_on_the_ladder(hint: Hint) -> None:
    code = "48" if hint is Hint.RESET_GPU else "79"
    again = fault(code, burst(ago(1)), hint=hint)
    history = History(
        open=(again,),
        past=(closed(fault(code, burst(ago(9)), hint=hint), ago(7)),),
        boundary=ago(7),
        repaired=ago(7),
    )
    policy = effective_policy([with_provider(FULL_AUTOMATION, "cloud")], {})
    derived, recheck = derive(policy, history, "n1", {}, (), NOW)
    (one,) = derived
    assert recheck == ago(1) + timedelta(days=1)
    plain, heavier = judge(policy, again, {}, NOW), judge(policy, one, {}, NOW)
    assert heavier.disposition is Disposition.REPAIR
    rungs = [s.rung for s in plain.ladder]
    assert [s.rung for s in heavier.ladder] == rungs[1:]


def test_derived_faults_are_shown_and_hold_nothing_by_default() -> None:
    history = past(fault("48", *(burst(ago(h)) for h in (20, 15, 10, 5, 1))))
    (one,) = derive(effective_policy([SAFE_DEFAULT], {}), history, "n1", {}, (), NOW)[0]
    assert one.entity.kind is EntityKind.GPU
    assert judge(SHIPPED, one, {}, NOW).disposition is Disposition.CONDITION
