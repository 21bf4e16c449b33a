"""Tables of figures about kernel-log events, and the general rules behind them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster import yamlio
from muster.errors import BadInputError
from muster.read import formats
from tests.read.cases import as_input


def read(text: str, context: dict[str, Any] | None = None) -> dict[str, Any]:
    return formats.read([as_input("table", text.encode())], context or {}).plain()


def counts(values: Mapping[str, object], column: str = "xid45_total") -> str:
    return f"node,{column}\n" + "".join(f"{node},{value}\n" for node, value in values.items())


def verdicts(report: dict[str, Any]) -> dict[str, tuple[str, str]]:
    return {v["of"]: (v["result"], v["reason"]) for v in report["verdicts"]}


def test_a_real_outlier_is_named_whoever_was_suspected() -> None:
    table = counts({f"n{i}": 100 + i for i in range(9)} | {"bad": 5000})
    assert verdicts(read(table, {"suspect": "n3"})) == {
        "n3": ("PASS", "within-peers"),
        "bad": ("WARN", "above-peers"),
    }


@pytest.mark.parametrize("value", ["", "N/A", "-"])
def test_no_reading_is_unknown(value: str) -> None:
    report = read(
        counts({f"n{i}": 10 + i for i in range(5)} | {"x": value}), {"suspect": "x", "expected_nodes": ["x"]}
    )
    assert verdicts(report) == {"x": ("UNKNOWN", "no-reading")}
    assert report["values"]["nodes_with_reading"]["value"] == 5


def test_other_jobs_and_few_nodes_cannot_be_compared() -> None:
    table = counts({f"n{i}": 10 for i in range(5)} | {"x": 900})
    assert verdicts(read(table, {"suspect": "x", "same_job": False}))["x"] == ("UNKNOWN", "not-comparable")
    assert verdicts(read(counts({"a": 1, "x": 900}), {"suspect": "x"}))["x"] == ("UNKNOWN", "not-comparable")


def test_equal_readings_have_no_outlier_and_one_far_off_is_one() -> None:
    same = read(counts({f"n{i}": 7 for i in range(6)}), {"suspect": "n1"})
    assert verdicts(same) == {"n1": ("PASS", "within-peers")}
    assert same["values"]["mad"]["value"] == 0
    assert verdicts(read(counts({f"n{i}": 7 for i in range(6)} | {"x": 8}))) == {}
    assert verdicts(read(counts({f"n{i}": 7 for i in range(6)} | {"x": 70})))["x"] == ("WARN", "above-peers")


def test_a_hardware_code_is_a_fault_at_any_count() -> None:
    report = read(counts({"a": 0, "b": 2, "c": 0, "d": 0}, "xid79_total"))
    assert [(f["entity"]["name"], f["count"], f["hint"]) for f in report["faults"]] == [("b", 2, "reboot")]


@given(st.dictionaries(st.from_regex(r"n[0-9]{1,4}", fullmatch=True), st.integers(0, 10**6), min_size=1, max_size=30))
def test_order_of_rows_does_not_matter(values: dict[str, int]) -> None:
    suspect = min(values)
    forward = read(counts(dict(values)), {"suspect": suspect})
    backward = read(counts(dict(reversed(list(values.items())))), {"suspect": suspect})
    assert forward["values"] == backward["values"]
    assert verdicts(forward) == verdicts(backward)


@pytest.mark.parametrize("text", ["node,a,b\nx,1,2\n", "node,a\nx,one\n", "node,a\nx,1\nx,2\n", "node,a,a\nx,1,2\n"])
def test_a_table_that_is_not_clear_is_refused(text: str) -> None:
    with pytest.raises(BadInputError):
        read(text)


def event(t: str, node: str, pci: str, xid: int, text: str = "") -> dict[str, Any]:
    return {"t": t, "node": node, "pci": pci, "xid": xid, "text": text}


def events(*rows: dict[str, Any], **more: Any) -> str:
    return yamlio.dumps({"events": list(rows), **more})


REFUSED = [event(f"12:00:00.{i}01", "n1", f"0000:{i}b:00", 137, "NVLink: TLC RX PRIV Error") for i in range(3)]
CONTAINED = event("12:00:01.500", "n2", "5d:00.0", 94, "Contained: SM (0x1). RST: No, D-RST: No")


def test_moved_counters_are_told() -> None:
    report = read(events(*REFUSED, CONTAINED, counter_change_over_5_min=[{"node": "n2", "ecc_uncorrectable": 2}]))
    assert verdicts(report)["gpu-memory"] == ("WARN", "ecc-or-remap-change")
    unknown = read(events(*REFUSED, CONTAINED, counter_change=[{"node": "n2", "ecc_uncorrectable": "N/A"}]))
    assert "gpu-memory" not in verdicts(unknown)


def test_containment_alone_or_first_has_no_other_root() -> None:
    assert read(events(CONTAINED))["incidents"] == []
    late = [{**row, "t": "12:10:00.000"} for row in REFUSED]
    incidents = read(events(CONTAINED, *late))["incidents"]
    assert [i["members"] for i in incidents] == [[137]]


@pytest.mark.parametrize("t", ["2025-02-23T16:24:18", "2025-02-23T16:24:18.5+01:00", 12.5, "16:24:18"])
def test_times_of_events(t: object) -> None:
    (fault,) = read(events({**CONTAINED, "t": t}))["faults"]
    assert fault.get("first_seen_s", fault.get("first_seen")) is not None
    assert fault["entity"]["node"] == "n2"


@pytest.mark.parametrize("change", [{"xid": "seventy"}, {"xid": None}, {"pci": "nowhere"}, {"pci": None}])
def test_an_event_that_cannot_be_read_is_named(change: dict[str, Any]) -> None:
    with pytest.raises(BadInputError, match="Event 2"):
        read(events(CONTAINED, {**CONTAINED, **change}))


def rollout(old: tuple[int, int], new: tuple[int, int], what: str = "driver", **more: Any) -> dict[str, Any]:
    groups = [
        {"environment": "a", what: "570.10", "nodes": old[0], "nodes_with_fault": old[1]},
        {"environment": "b", what: "575.2", "nodes": new[0], "nodes_with_fault": new[1]},
    ]
    return read(yamlio.dumps({"code": 31, "groups": groups, **more}))


def test_a_fault_that_follows_the_new_version_halts_the_roll_out() -> None:
    report = rollout((500, 1), (40, 30), "firmware")
    (incident,) = report["incidents"]
    assert (incident["root"], incident["action"]) == ("firmware-change", "halt-rollout")
    assert verdicts(report)["firmware 575.2"] == ("FAIL", "fault-rate-after-change")
    assert verdicts(report)["firmware 570.10"] == ("WARN", "some-faults")


def test_a_fault_of_the_old_version_halts_nothing() -> None:
    (incident,) = rollout((40, 30), (500, 1))["incidents"]
    assert (incident["root"], incident["action"]) == ("driver-version", "none")


@pytest.mark.parametrize(
    ("old", "new"), [((10, 0), (10, 1)), ((100, 50), (100, 50)), ((0, 0), (5, 5)), ((300, 0), (2, 1))]
)
def test_chance_is_not_blamed(old: tuple[int, int], new: tuple[int, int]) -> None:
    assert rollout(old, new)["incidents"] == []


def test_healthy_versions_pass() -> None:
    assert set(verdicts(rollout((10, 0), (10, 0))).values()) == {("PASS", "no-faults")}


@pytest.mark.parametrize("new", [(5, 9), (5, -1)])
def test_impossible_groups_are_refused(new: tuple[int, int]) -> None:
    with pytest.raises(BadInputError, match="Group 2"):
        rollout((5, 0), new)


def test_a_code_of_the_hardware_fails_the_node_that_counted_it() -> None:
    report = read(counts({f"n{i}": 0 for i in range(9)} | {"bad": 1}, "xid_79"))
    assert verdicts(report) == {"bad": ("FAIL", "xid-79")}
    assert "node bad" in report["next"]


@pytest.mark.parametrize("value", ["-1", "-0.5"])
def test_a_count_below_zero_is_refused(value: str) -> None:
    with pytest.raises(BadInputError, match="zero or more"):
        read(counts({f"n{i}": 1 for i in range(4)} | {"x": value}))


def test_a_byte_order_mark_does_not_hide_the_header() -> None:
    table = "\ufeff" + counts({f"n{i}": 5 + i for i in range(6)})
    assert read(table)["values"]["nodes_with_reading"]["value"] == 6


def test_events_may_be_a_csv_table() -> None:
    report = read("time,node,pci,xid\n1,a,0000:19:00,31\n20,a,00000000:19:00.0,62\n25,b,0000:19:00,13\n")
    assert [(f["code"], f["entity"]["node"]) for f in report["faults"]] == [(31, "a"), (62, "a"), (13, "b")]
    assert [i["members"] for i in report["incidents"]] == [[31, 62]]


@pytest.mark.parametrize("time", ["\u00b2\u00b2:\u00b2\u00b2:\u00b2\u00b2", "99:00:00", "1" + "0" * 400, "soon"])
def test_odd_times_of_events_are_unknown(time: str) -> None:
    quoted = time if time.isdecimal() else f'"{time}"'
    report = read(f"events:\n- {{t: {quoted}, pci: '0000:19:00', xid: 79}}\n")
    assert report["faults"][0]["first_seen"] is None


def versions(rows: list[tuple[str, int, int]], back: tuple[str, int, int] | None = None) -> str:
    row = "- {{env: e, driver: {}, nodes: {}, nodes_with_fault: {}}}\n"
    after = "after_rollback:\n" + row.format(*back) if back else ""
    return "code: 31\ngroups:\n" + "".join(row.format(*r) for r in rows) + after


def test_a_fault_that_stays_after_the_rollback_is_not_the_version_s() -> None:
    rows = [("'1.0.0'", 300, 0), ("'2.0.0'", 40, 38)]
    gone, stays = read(versions(rows, ("'1.0.0'", 40, 0))), read(versions(rows, ("'1.0.0'", 40, 36)))
    assert [i["action"] for i in gone["incidents"]] == ["halt-rollout"]
    assert stays["incidents"] == []
    assert verdicts(stays)["driver 2.0.0"] == ("UNKNOWN", "stays-after-rollback")


def test_the_way_back_is_the_newest_good_version() -> None:
    report = read(versions([("'1.0.0'", 300, 0), ("'2.0.0'", 40, 0), ("'3.0.0'", 40, 30)]))
    assert report["incidents"][0]["changed"] == {"what": "driver", "from": "2.0.0", "to": "3.0.0"}


def test_versions_that_yaml_takes_for_numbers_and_large_fleets() -> None:
    report = read(versions([("535.1", 300_000, 10), ("550.2", 400_000, 380_000)]))
    assert report["incidents"][0]["changed"] == {"what": "driver", "from": "535.1", "to": "550.2"}


def test_no_faulty_node_needs_nothing_and_no_node_is_refused() -> None:
    assert read(versions([("'1.0'", 30, 0), ("'2.0'", 40, 0)]))["next"].startswith("No node has the fault")
    with pytest.raises(BadInputError, match="no node"):
        read(versions([("'1.0'", 0, 0), ("'2.0'", 0, 0)]))
