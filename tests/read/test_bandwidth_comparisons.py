"""Pairs of nodes, versions of a library, and copies inside a machine: who is named, and who must not be."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.errors import BadInputError
from muster.read.bandwidth.pairs import judge
from muster.read.bandwidth.versions import order
from muster.read.report import Result
from tests.read.bandwidth_maker import read, value, verdicts

FLOOR = {"algo": "ring", "reference_gb_s": 95, "floor_gb_s": 88}


def table(pairs: Mapping[tuple[str, str], float | str]) -> str:
    return "node_a,node_b,busbw_gb_s\n" + "".join(f"{a},{b},{rate}\n" for (a, b), rate in pairs.items())


def test_one_slow_pair_alone_says_nothing_about_its_ends() -> None:
    found = verdicts(read(table({("n1", "n2"): 40}), FLOOR))
    assert {result for result, _ in found.values()} == {"UNKNOWN"}


def test_a_good_end_leaves_node_or_link() -> None:
    report = read(table({("n1", "n2"): 40, ("n1", "n3"): 94}), FLOOR)
    found = verdicts(report)
    assert found["n1"][0] == found["n3"][0] == "PASS"
    assert found["n2"] == found["link n1--n2"] == ("UNKNOWN", "node-or-link")
    assert value(report, "next_test") == ["n2", "any-node-not-tested-with-it"]
    assert report["faults"] == []
    assert "n2" in report["next"]


def test_two_good_ends_leave_the_link() -> None:
    report = read(table({("n2", "n1"): 40, ("n1", "n3"): 94, ("n2", "n4"): 95}), FLOOR)
    assert verdicts(report)["link n1--n2"] == ("FAIL", "bandwidth")
    (fault,) = report["faults"]
    assert fault["code"] == "slow-pair"
    assert fault["entity"]["between"] == ["n1", "n2"]
    assert fault["measured"] == {"value": 40, "unit": "GB/s"}
    assert fault["reference"] == {"value": 95, "unit": "GB/s"}
    assert "next_test" not in report["values"]


def test_a_node_slow_with_two_good_partners_is_named() -> None:
    pairs = {("bad", "n1"): 40, ("bad", "n2"): 41, ("n1", "n2"): 94}
    report = read(table(pairs), FLOOR)
    assert verdicts(report)["bad"] == ("FAIL", "bandwidth")
    assert verdicts(report)["link bad--n1"] == ("UNKNOWN", "node-explains-it")
    assert [fault["entity"]["name"] for fault in report["faults"]] == ["bad"]


def test_all_good_needs_nothing() -> None:
    report = read(table({("n1", "n2"): 94, ("n3", "n4"): 95}), FLOOR)
    assert {result for result, _ in verdicts(report).values()} == {"PASS"}
    assert report["next"] == "Nothing has to be done."


@pytest.mark.parametrize("word", ["", "N/A", "nan", "0", "inf"])
def test_a_pair_without_a_reading_blames_nobody(word: str) -> None:
    found = verdicts(read(table({("n1", "n2"): word, ("n1", "n3"): 94, ("n2", "n4"): 95}), FLOOR))
    assert found["link n1--n2"] == ("UNKNOWN", "no-reading")


def test_a_pair_that_is_slow_once_and_fast_once_is_unknown() -> None:
    text = table({("n1", "n2"): 40, ("n1", "n3"): 94, ("n2", "n4"): 95}) + "n2,n1,93\n"
    assert verdicts(read(text, FLOOR))["link n1--n2"] == ("UNKNOWN", "not-repeatable")


def test_without_a_floor_peers_decide_when_there_are_enough() -> None:
    pairs: dict[tuple[str, str], float | str] = {("a", "b"): 40, ("a", "c"): 94, ("b", "d"): 95, ("c", "d"): 93}
    assert verdicts(read(table(pairs)))["link a--b"] == ("FAIL", "bandwidth")
    few = verdicts(read(table({("a", "b"): 40, ("a", "c"): 94})))
    assert set(few.values()) == {("UNKNOWN", "no-floor")}


@pytest.mark.parametrize("row", ["n1,n1,90", "n1,,90", "n1,n2,-4"])
def test_a_row_that_cannot_be_read_is_named(row: str) -> None:
    with pytest.raises(BadInputError, match="Row 1"):
        read(f"node_a,node_b,busbw_gb_s\n{row}\n", FLOOR, "link")


@given(st.integers(0, 10_000), st.integers(4, 12), st.integers(4, 40))
@settings(max_examples=150, deadline=None)
def test_no_good_node_or_link_is_ever_named(seed: int, nodes: int, tests: int) -> None:
    """One bad node and one bad link are planted; whatever was tested, no other node and no other link fails."""
    draw = random.Random(seed)
    names = [f"node-{i}" for i in range(nodes)]
    bad, link = names[0], (names[1], names[2])
    measured: dict[tuple[str, str], list[float]] = {}
    for _ in range(tests):
        a, b = sorted(draw.sample(names, 2))
        slow = bad in (a, b) or (a, b) == link
        measured.setdefault((a, b), []).append(40.0 if slow else 95.0)
    picture = judge(measured, 88.0)
    assert {node for node, (result, _) in picture.nodes.items() if result is Result.FAIL} <= {bad}
    assert {pair for pair, (result, _) in picture.links.items() if result is Result.FAIL} <= {link}
    backward = judge(dict(reversed(list(measured.items()))), 88.0)
    assert dict(backward.nodes) == dict(picture.nodes)
    assert dict(backward.links) == dict(picture.links)


def csv(rates: dict[str, float], what: str = "nccl") -> str:
    return f"{what}_version,busbw_gb_s\n" + "".join(f"{version},{rate}\n" for version, rate in rates.items())


GOOD_THEN_BAD = {"2.18.5-1": 181.0, "2.9.8-1": 179.0, "2.19.3-1": 22.4, "2.20.5-1": 22.5, "2.21.5-1": 22.4}


def test_a_break_that_stays_is_the_software_s() -> None:
    report = read(csv(GOOD_THEN_BAD), {"nodes": ["a", "b"], "same_hosts": True})
    assert value(report, "versions_in_order") == ["2.9.8", "2.18.5", "2.19.3", "2.20.5", "2.21.5"]
    assert value(report, "change_point") == {"from": "2.18.5", "to": "2.19.3"}
    assert value(report, "drop_factor") == pytest.approx(181 / 22.4, abs=0.01)
    (incident,) = report["incidents"]
    assert (incident["root"], incident["scope"]) == ("library-version-change", "software")
    assert verdicts(report) == {"nccl 2.19.3 and later": ("FAIL", "bandwidth")}
    assert report["faults"] == []


def test_order_of_rows_does_not_matter() -> None:
    forward = read(csv(GOOD_THEN_BAD))
    backward = read(csv(dict(reversed(list(GOOD_THEN_BAD.items())))))
    assert forward["values"] == backward["values"]
    assert forward["verdicts"] == backward["verdicts"]


def test_one_bad_release_and_a_late_cure() -> None:
    one = verdicts(read(csv({"2.18.1": 90, "2.19.1": 12, "2.20.1": 91})))
    assert one == {"nccl 2.19.1": ("FAIL", "bandwidth")}
    some = verdicts(read(csv({"2.18.1": 90, "2.19.1": 12, "2.19.3": 12.5, "2.20.1": 91})))
    assert some == {"nccl 2.19.1 to 2.19.3": ("FAIL", "bandwidth")}
    old = read(csv({"2.18.1": 12, "2.19.1": 90, "2.20.1": 91}))
    assert verdicts(old) == {"nccl 2.18.1": ("FAIL", "bandwidth")}
    assert old["incidents"] == []


def test_scatter_is_no_break() -> None:
    assert verdicts(read(csv({"2.18.1": 90, "2.19.1": 92, "2.20.1": 89}))) == {"nccl": ("PASS", "no-change")}
    mixed = read(csv({"2.18.1": 90, "2.19.1": 40, "2.20.1": 91, "2.21.1": 41}))
    assert verdicts(mixed) == {"nccl": ("UNKNOWN", "no-clear-break")}
    assert mixed["incidents"] == []


def test_other_hosts_cannot_be_compared() -> None:
    report = read(csv(GOOD_THEN_BAD), {"same_hosts": False})
    assert verdicts(report) == {"nccl 2.19.3 and later": ("UNKNOWN", "not-comparable")}
    assert report["incidents"] == []


def test_a_version_without_a_reading_is_unknown() -> None:
    report = read("driver_version,busbw_gb_s\n535.1,90\n550.2,N/A\n570.3,20\n")
    assert verdicts(report)["driver 550.2"] == ("UNKNOWN", "no-reading")
    assert verdicts(report)["driver 570.3 and later"] == ("FAIL", "bandwidth")
    assert report["incidents"][0]["root"] == "driver-version-change"
    with pytest.raises(BadInputError, match="Row 1"):
        read("nccl_version,busbw_gb_s\nnewest,90\n")


@given(st.lists(st.integers(0, 40), min_size=2, max_size=5), st.lists(st.integers(0, 40), min_size=2, max_size=5))
def test_versions_sort_by_number(a: list[int], b: list[int]) -> None:
    assert (order(".".join(map(str, a))) < order(".".join(map(str, b)))) is (a < b)


def matrix(rows: list[list[str]], name: str = "device_to_device_memcpy_read_ce", end: bool = True) -> str:
    text = (
        "nvbandwidth Version: v0.8\nBuilt from Git version: v0.8\n\nCUDA Runtime Version: 12080\n"
        f"CUDA Driver Version: 12080\nDriver Version: 570.86.10\n\nRunning {name}.\n"
        "memcpy CE GPU(row) <- GPU(column) bandwidth (GB/s)\n"
    )
    text += "".join(f"{column:>10}" for column in range(len(rows[0]))) + "\n"
    text += "".join(f"{number:>2}" + "".join(f"{cell:>10}" for cell in row) + "\n" for number, row in enumerate(rows))
    total = sum(float(cell) for row in rows for cell in row if cell != "N/A")
    return text + (f"\nSUM {name} {total:.2f}\n" if end else "")


def square(count: int, slow: int | None = None) -> list[list[str]]:
    def cell(a: int, b: int) -> str:
        return "N/A" if a == b else "180.00" if slow in (a, b) else "275.31"

    return [[cell(a, b) for b in range(count)] for a in range(count)]


def test_a_gpu_slow_with_all_its_peers_is_named() -> None:
    report = read(matrix(square(8, slow=5)))
    (fault,) = report["faults"]
    assert fault["entity"] == {"kind": "gpu", "index": 5, "pci": None}
    assert verdicts(report)["device_to_device_memcpy_read_ce"] == ("WARN", "below-peers")
    assert value(report, "driver_version") == "570.86.10"


def test_alike_devices_need_a_floor() -> None:
    name = "device_to_device_memcpy_read_ce"
    assert verdicts(read(matrix(square(8))))[name] == ("UNKNOWN", "no-floor")
    assert verdicts(read(matrix(square(8)), {"floors": {name: 250}}))[name] == ("PASS", "bandwidth")
    assert verdicts(read(matrix(square(8)), {"floors": {name: 290}}))[name] == ("FAIL", "bandwidth")


def test_host_copies_compare_the_gpus() -> None:
    row = ["55.1", "55.3", "27.2", "55.2"]
    report = read(matrix([row], "host_to_device_memcpy_ce"))
    assert [fault["entity"]["index"] for fault in report["faults"]] == [2]
    text = report["values"]["host_to_device_memcpy_ce"]
    assert (text["min"], text["max"], text["unit"]) == (27.2, 55.3, "GB/s")


def test_a_matrix_that_breaks_off_is_unknown() -> None:
    report = read(matrix(square(8), end=False))
    assert verdicts(report)["device_to_device_memcpy_read_ce"] == ("UNKNOWN", "truncated-output")
    assert report["truncated"] is True


def test_waived_and_failed_test_cases() -> None:
    text = (
        matrix(square(4))
        + "\nRunning device_local_copy.\nWaived: not supported\n\nRunning x_sm.\nERROR: CUDA_ERROR_OUT_OF_MEMORY\n"
    )
    found = verdicts(read(text))
    assert found["device_local_copy"] == ("UNKNOWN", "waived")
    assert found["x_sm"] == ("INVALID", "harness")


def test_nvbandwidth_json() -> None:
    case = {"name": "host_to_device_memcpy_ce", "status": "Passed", "sum": 220.0}
    case["bandwidth_matrix"] = [["55.1", "55.3", "27.2", "55.2"]]
    root = {"version": "v0.8", "Driver Version": "570.86.10", "testcases": [case, {"name": "y", "status": "Waived"}]}
    report = read(json.dumps({"nvbandwidth": root}))
    assert [fault["entity"]["index"] for fault in report["faults"]] == [2]
    assert verdicts(report)["y"] == ("UNKNOWN", "waived")
    cut = read(json.dumps({"nvbandwidth": root})[:-30] + "\n")
    assert verdicts(cut)["run"] == ("INVALID", "truncated-output")


@pytest.mark.parametrize("context", [{"floors": 3}, {"floors": {"a": -1}}, {"floors": {"a": True}}])
def test_floors_that_cannot_be_used_are_refused(context: dict[str, Any]) -> None:
    with pytest.raises(BadInputError, match="floor"):
        read(matrix(square(4)), context)
