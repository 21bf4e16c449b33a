"""Optical modules: a reading is judged against its own printed limits; copper is never judged as glass."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from muster.read.optics.module import CableType, cable_type, rate_gbps
from tests.read.cases import read_text

FLAGS = {
    "Rx LOS": ("rx-los", "FAIL"),
    "Tx Fault": ("tx-fault", "FAIL"),
    "Tx CDR LOL": ("tx-cdr-lol", "WARN"),
    "Rx CDR LOL": ("rx-cdr-lol", "WARN"),
    "Tx Adaptive EQ Fault": ("tx-adaptive-eq-fault", "WARN"),
}


def module(rx: list[float], limits: tuple[float, float], flags: dict[str, list[int]], cable: str = "") -> str:
    lines = [
        "Operational Info",
        "----------------",
        "State                 : Active",
        "",
        "Module Info",
        "-----------",
    ]
    lines.append(f"Rx Power Current [dBm] : {','.join(map(str, rx))} [{limits[0]}..{limits[1]}]")
    if cable:
        lines.append(f"Cable Type             : {cable}")
    lines += [f"{name} [per lane]      : {','.join(map(str, lanes))}" for name, lanes in flags.items()]
    return "\n".join(lines) + "\n"


def reasons(text: str) -> set[tuple[Any, ...]]:
    return {
        (row["reason"], row["result"], row.get("lane"))
        for row in read_text(text, "optics")["verdicts"]
        if row["of"] == "module"
    }


@given(st.lists(st.floats(-20, 10).map(lambda x: round(x, 2)), min_size=1, max_size=8))
def test_each_lane_against_the_printed_range(powers: list[float]) -> None:
    low, high = -5.0, 3.5
    wanted: set[tuple[Any, ...]] = {
        ("rx-power-out-of-range", "WARN", lane) for lane, power in enumerate(powers) if not low <= power <= high
    }
    assert reasons(module(powers, (low, high), {})) == (wanted or {("within-limits", "PASS", None)})


@given(st.sampled_from(sorted(FLAGS)), st.integers(2, 8), st.data())
def test_a_flag_names_its_lane(name: str, lanes: int, data: st.DataObject) -> None:
    lane = data.draw(st.integers(0, lanes - 1))
    flags = {other: [0] * lanes for other in FLAGS} | {name: [int(n == lane) for n in range(lanes)]}
    reason, result = FLAGS[name]
    assert reasons(module([0.0] * lanes, (-5, 3), flags)) == {(reason, result, lane)}


@given(st.integers(1, 8), st.data())
def test_passive_copper_is_never_judged_as_glass(lanes: int, data: st.DataObject) -> None:
    bits = st.lists(st.integers(0, 1), min_size=lanes, max_size=lanes)
    flags = {name: data.draw(bits) for name in FLAGS}
    report = read_text(module([0] * lanes, (0, 0), flags, "Passive copper cable"), "optics")
    assert report["faults"] == []
    assert {(row["of"], row["result"]) for row in report["verdicts"]} == {("link", "PASS")}


def test_several_links_are_told_apart() -> None:
    good, bad = (module([0.0, power], (-5, 3), {}) for power in (0.0, -9.0))
    report = read_text(f"# mlxlink -d mlx5_0 -m\n{good}# mlxlink -d mlx5_1 -m\n{bad}", "optics")
    results = {row["of"]: row["result"] for row in report["verdicts"]}
    assert results["module of mlx5_0"] == "PASS"
    assert results["module of mlx5_1"] == "WARN"
    assert report["faults"][0]["entity"]["device"] == "mlx5_1"


def test_words_for_cables() -> None:
    assert cable_type("Passive copper cable") is CableType.PASSIVE_COPPER
    assert cable_type("Copper cable, unequalized") is CableType.PASSIVE_COPPER
    assert cable_type("Copper cable, linear active equalizers") is CableType.ACTIVE_COPPER
    assert cable_type("Active optical cable") is CableType.OPTICAL
    assert cable_type("850 nm VCSEL") is CableType.OPTICAL
    assert cable_type("something else") is None


def test_rates() -> None:
    assert rate_gbps("IB-NDR", 4) == 400
    assert rate_gbps("IB-HDR", 2) == 100
    assert rate_gbps("100G_4X", None) == 100
    assert rate_gbps("400G", 8) == 400
    assert rate_gbps("N/A", 4) is None
    assert rate_gbps("IB-NDR", None) is None
