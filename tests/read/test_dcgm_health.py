"""What DCGM says, and what it does not: health watch, monitors, scrapes, and pools whose monitor changed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster import yamlio
from muster.errors import BadInputError
from muster.read import formats
from tests.read import smi_maker as maker
from tests.read.cases import as_input, read_text


def _table(overall: str, rows: list[tuple[str, int, str, str, str]]) -> str:
    """The table of `dcgmi health -c`: (group, entity, system, word, message)."""

    def row(left: str, right: str) -> str:
        return f"| {left:<25} | {right:<56} |"

    rule = f"+{'-' * 27}+{'-' * 58}+"
    lines = [rule, f"| {'Health Monitor Report':<84} |", rule.replace("-", "="), row("Overall Health", overall)]
    group = ""
    for own, entity, system, word, message in rows:
        if own != group:
            lines.append(row(own, ""))
            group = own
        lines += [row(f"-> {entity}", word), row("   -> Errors", ""), row(f"      -> {system}", word)]
        words, line = message.split(), ""
        for part in words:
            if len(line) + len(part) > 54:
                lines.append(row("", line))
                line = ""
            line = f"{line} {part}".strip()
        lines.append(row("", line))
    return "\n".join([*lines, rule, ""])


def _json(overall: str, rows: list[tuple[str, int, str, str, str]]) -> str:
    body: dict[str, Any] = {"Overall Health": {"value": overall}}
    for group, entity, system, word, message in rows:
        node = body.setdefault(group, {"children": {}})["children"].setdefault(
            str(entity), {"children": {"Errors": {"children": {}}}, "value": word}
        )
        node["children"]["Errors"]["children"][system] = {"value": word, "overflow": [message[:40], message[40:]]}
    return json.dumps({"body": body, "header": ["Health Monitor Report"]}, indent=8)


ROWS: dict[str, tuple[tuple[str, int, str, str, str], str, str, str, str]] = {
    "link": (
        ("GPU", 3, "NVLINK system", "Failure", "GPU 3's NvLink link 7 is currently down Run a field diagnostic."),
        "DCGM_FR_NVLINK_DOWN",
        "fatal",
        "reboot",
        "FAIL",
    ),
    "remap": (
        ("GPU", 1, "Memory system", "Warning", "GPU 1 has row remappings are pending Reset the GPU when it is idle."),
        "DCGM_FR_PENDING_ROW_REMAP",
        "warning",
        "reset-gpu",
        "WARN",
    ),
    "failed": (
        ("GPU", 0, "Memory system", "Failure", "GPU 0 had a row remap failure. Run a field diagnostic on the GPU."),
        "DCGM_FR_ROW_REMAP_FAILURE",
        "fatal",
        "replace",
        "FAIL",
    ),
    "replays": (
        ("GPU", 6, "PCIe system", "Warning", "Detected more than 8 PCIe replays per minute for GPU 6 : 13"),
        "DCGM_FR_PCI_REPLAY_RATE",
        "warning",
        "inspect",
        "WARN",
    ),
    "inforom": (
        ("GPU", 2, "InfoROM system", "Warning", "A corrupt InfoROM has been detected in GPU 2. Flash the InfoROM."),
        "DCGM_FR_CORRUPT_INFOROM",
        "warning",
        "reset-gpu",
        "WARN",
    ),
}


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("write", [_table, _json])
def test_an_error_behind_the_word_decides(name: str, write: Any) -> None:
    row, code, severity, hint, result = ROWS[name]
    report = read_text(write(row[3], [row]), None)
    assert report["kind"] == "dcgm-health"
    assert [(f["code"], f["severity"], f["hint"]) for f in report["faults"]] == [(code, severity, hint)]
    assert report["faults"][0]["entity"]["index"] == row[1]
    assert report["verdicts"][-1]["result"] == result
    assert report["values"]["dcgm_overall_health"]["value"] == row[3]
    assert not report["truncated"]


def test_several_entities_keep_their_own_errors() -> None:
    rows = [row for row, *_ in ROWS.values()]
    for text in (_table("Failure", rows), _json("Failure", rows)):
        report = read_text(text, None)
        assert {(f["code"], f["entity"]["index"]) for f in report["faults"]} == {
            (code, row[1]) for row, code, *_ in ROWS.values()
        }


@settings(max_examples=60, deadline=None)
@given(share=st.floats(0.0, 1.0), as_json=st.booleans())
def test_a_report_that_breaks_off_is_no_clean_bill(share: float, as_json: bool) -> None:
    rows = [row for row, *_ in ROWS.values()]
    text = _json("Failure", rows) if as_json else _table("Failure", rows)
    cut = text[: int(len(text) * share)]
    try:
        report = read_text(cut, None)
    except BadInputError:
        return
    whole = {f["code"] for f in read_text(text, None)["faults"]}
    assert {v["result"] for v in report["verdicts"] if v["of"] == "node"} != {"PASS"}
    known = {code for code in whole if isinstance(code, str)}
    assert all(f["code"] in known or f["code"].endswith("-watch") for f in report["faults"])


def test_a_table_cut_after_the_overall_word_is_unknown() -> None:
    text = _table("Healthy", [])
    cut = text[: text.index("Healthy") + 9]
    report = read_text(cut, None)
    assert report["truncated"]
    assert (report["verdicts"][-1]["result"], report["verdicts"][-1]["reason"]) == ("UNKNOWN", "truncated-output")


def test_a_failure_that_names_nothing_is_unknown() -> None:
    report = read_text(_table("Failure", []), None)
    assert report["faults"] == []
    assert (report["verdicts"][-1]["result"], report["verdicts"][-1]["reason"]) == ("UNKNOWN", "health-without-cause")


def test_a_word_that_nobody_explains_is_a_warning_at_most() -> None:
    row = ("GPU", 4, "SM system", "Failure", "Something that no release has said before.")
    fault = read_text(_table("Failure", [row]), None)["faults"][0]
    assert (fault["code"], fault["severity"], fault["hint"]) == ("sm-watch", "warning", "inspect")


def test_the_watch_calls_it_a_warning_so_it_is_no_failure() -> None:
    row = ("GPU", 4, "NVLINK system", "Warning", "GPU 4's NvLink link 2 is currently down")
    assert read_text(_table("Warning", [row]), None)["faults"][0]["severity"] == "warning"


@pytest.mark.parametrize(
    ("told", "severity", "result"), [(None, "unknown", "UNKNOWN"), (True, "warning", "WARN"), (False, "info", "PASS")]
)
def test_a_missing_imex_daemon_matters_where_there_is_a_domain(told: bool | None, severity: str, result: str) -> None:
    row = ("GPU", 0, "NVLINK system", "Failure", "IMEX daemon status is -3 (not READY) Check IMEX installation.")
    report = read_text(_table("Failure", [row]), None, {} if told is None else {"multi_node_nvlink": told})
    assert report["faults"][0]["severity"] == severity
    assert next(v for v in report["verdicts"] if v["of"] == "node")["result"] == result


def test_links_that_the_machine_has_not_are_not_down() -> None:
    rows = [("GPU", n, "NVLINK system", "Failure", f"GPU {n}'s NvLink link 0 is currently down") for n in range(4)]
    report = read_text(_table("Failure", rows), None, {"nvlink_expected": False})
    assert {f["severity"] for f in report["faults"]} == {"info"}
    assert report["next"] == "Nothing has to be done."


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("Error: Health watches not enabled. Please enable watches. \n", "dcgm-watches-off"),
        ("Error: unable to establish a connection to the specified host: localhost\n", "dcgm-unreachable"),
        (
            "Error: Unable to connect to host engine. Host engine connection invalid/disconnected.\n",
            "dcgm-unreachable",
        ),
    ],
)
def test_a_watch_that_does_not_watch_is_unknown(text: str, code: str) -> None:
    report = read_text(text, None)
    assert [f["code"] for f in report["faults"]] == [code]
    assert report["verdicts"][-1]["result"] == "UNKNOWN"


def test_a_node_condition_carries_the_code_itself() -> None:
    text = (
        "GpuMemWatch=True ErrorCode:DCGM_FR_ROW_REMAP_FAILURE GPU:4 PCI:0000:9d:00.0 GPU_UUID:GPU-77 a remap failed"
        " Recommended Action=CONTACT_SUPPORT; ErrorCode:DCGM_FR_PENDING_ROW_REMAP GPU:1 PCI:0000:18:00.0 pending;\n"
    )
    report = read_text(text, None)
    assert [(f["code"], f["entity"]["pci"], f["hint"]) for f in report["faults"]] == [
        ("DCGM_FR_ROW_REMAP_FAILURE", "0000:9d:00.0", "replace"),
        ("DCGM_FR_PENDING_ROW_REMAP", "0000:18:00.0", "reset-gpu"),
    ]
    assert "CONTACT_SUPPORT" not in report["faults"][0]["message"]


# ---------------------------------------------------------------- with the driver's own readings


@pytest.mark.parametrize("action", ["Reset", "Reboot", "Drain and Reset"])
def test_the_recovery_action_beats_healthy(action: str) -> None:
    cards = maker.node(8)
    cards[5] = cards[5].changed(action=action)
    inputs = [
        as_input("health.json", _json("Healthy", []).encode()),
        as_input("q.txt", maker.query_text(cards).encode()),
    ]
    report = formats.read(inputs, {}).plain()
    assert report["kind"] == "dcgm-health"
    assert [(f["code"], f["entity"]["index"]) for f in report["faults"]] == [("gpu-recovery-action", 5)]
    assert report["verdicts"][-1]["result"] == "FAIL"


def test_the_watch_and_the_driver_tell_one_fault() -> None:
    cards = maker.node(2)
    cards[1] = cards[1].changed(pending="Yes")
    inputs = [
        as_input("health.txt", _table("Warning", [ROWS["remap"][0]]).encode()),
        as_input("q.txt", maker.query_text(cards).encode()),
    ]
    for order in (inputs, inputs[::-1]):
        report = formats.read(order, {}).plain()
        assert [(f["code"], f["entity"]["pci"]) for f in report["faults"]] == [("row-remap-pending", "0000:21:00.0")]


def test_the_last_xid_without_an_action_may_be_old() -> None:
    text = (
        "#Entity   XIDER  TMPTR\nID               C\nGPU 0     0      41\nGPU 1     79     N/A\nGPU 2     13     40\n"
    )
    report = read_text(text, None)
    assert [(f["code"], f["entity"]["index"], f["confidence"]) for f in report["faults"]] == [
        (79, 1, "low"),
        (13, 2, "low"),
    ]
    assert report["values"]["last_xid"]["value"] == {0: 0, 1: 79, 2: 13}
    assert report["verdicts"][-1]["result"] == "FAIL"


def test_the_last_sample_of_a_monitor_counts() -> None:
    text = "# dcgmi dmon -e 230,396\n#Entity   XIDER  RRP\nID\nGPU 0  0  0\nGPU 1  0  0\nGPU 0  0  0\nGPU 1  0  1\n"
    assert [(f["code"], f["entity"]["index"]) for f in read_text(text, None)["faults"]] == [("row-remap-pending", 1)]


def _scrape(**metrics: Mapping[int, float]) -> str:
    lines = []
    for name, values in metrics.items():
        lines += [f"# HELP {name} text", f"# TYPE {name} gauge"]
        for gpu, value in values.items():
            labels = f'gpu="{gpu}",UUID="GPU-{gpu}",pci_bus_id="00000000:{gpu + 16:02X}:00.0",Hostname="n1"'
            lines.append(f"{name}{{{labels}}} {value}")
    return "\n".join(lines) + "\n"


def test_a_scrape_tells_the_same_conditions() -> None:
    text = _scrape(
        DCGM_FI_DEV_ROW_REMAP_PENDING={0: 0, 1: 1},
        DCGM_FI_DEV_ROW_REMAP_FAILURE={0: 1, 1: 0},
        DCGM_FI_DEV_GPU_RECOVERY_ACTION={0: 0, 1: 2},
        DCGM_FI_DEV_XID_ERRORS={0: 0, 1: 0},
        DCGM_FI_DEV_MEMORY_TEMP={0: 9223372036854775794, 1: 40},
    )
    report = read_text(text, None)
    assert {(f["code"], f["entity"]["pci"]) for f in report["faults"]} == {
        ("row-remap-failed", "0000:10:00.0"),
        ("gpu-recovery-action", "0000:11:00.0"),
        ("row-remap-pending", "0000:11:00.0"),
    }


def test_lifetime_counters_of_links_count_by_their_change() -> None:
    name = "DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL"
    before, after = _scrape(**{name: {0: 900, 1: 0, 2: 7}}), _scrape(**{name: {0: 900, 1: 12, 2: 3}})
    assert read_text(before, None)["faults"] == []
    inputs = [as_input("1.txt", before.encode()), as_input("2.txt", after.encode())]
    report = formats.read(inputs, {}).plain()
    assert report["values"]["nvlink_errors_change"]["value"] == {0: 0, 1: 12, 2: 3}
    assert [(f["code"], f["entity"]["index"]) for f in report["faults"]] == [
        ("nvlink-errors-rising", 1),
        ("nvlink-errors-rising", 2),
    ]
    same = [as_input("1.txt", before.encode()), as_input("2.txt", before.encode())]
    assert formats.read(same, {}).plain()["faults"] == []


@pytest.mark.parametrize(("status", "result"), [(0, "PASS"), (10, "WARN"), (20, "WARN")])
def test_the_health_status_metric(status: int, result: str) -> None:
    line = 'DCGM_EXP_GPU_HEALTH_STATUS{{gpu="{}",UUID="GPU-{}",health_watch="{}"}} {}\n'
    text = "".join(
        line.format(gpu, gpu, watch, status if gpu == 1 and watch == "Mem" else 0)
        for gpu in (0, 1)
        for watch in ("PCIe", "Mem")
    )
    assert read_text(text, None)["verdicts"][-1]["result"] == result


# ---------------------------------------------------------------- a pool whose monitor changed


def _pool(before: list[int], after: list[int], bad: set[int], change: bool = True) -> str:
    def sample(time: str, values: list[int], turned: set[int]) -> dict[str, Any]:
        rows = []
        for n, value in enumerate(values):
            status, reason = ("False", "DCGMHealthCode71") if n in turned else ("True", "Fine")
            condition = {"type": "AcceleratedHardwareReady", "status": status, "reason": reason}
            rows.append({"name": f"n{n}", "nvlink_crc_lifetime": value, "conditions": [condition]})
        return {"time": time, "nodes": rows}

    told: dict[str, Any] = {"pool": {"name": "p", "nodes": len(before)}}
    if change:
        told["change"] = {"component": "watcher", "from": "1.0.0", "to": "1.1.0"}
    told["samples"] = [sample("2026-01-01T00:00:00Z", before, set()), sample("2026-01-01T00:09:00Z", after, bad)]
    return yamlio.dumps(told) if hasattr(yamlio, "dumps") else json.dumps(told)


@settings(max_examples=40, deadline=None)
@given(totals=st.lists(st.integers(1, 10**9), min_size=4, max_size=30), seed=st.integers(0, 10**6))
def test_most_nodes_at_once_after_a_change_is_the_change(totals: list[int], seed: int) -> None:
    quiet = seed % max(1, len(totals) // 2 - 1)
    bad = set(range(quiet, len(totals)))
    report = read_text(_pool(totals, totals, bad), None)
    assert report["faults"] == []
    assert [(i["root"], i["action"], i["code"]) for i in report["incidents"]] == [
        ("monitor-change", "hold-automation", "DCGMHealthCode71")
    ]
    assert report["incidents"][0]["changed"] == {"what": "watcher", "from": "1.0.0", "to": "1.1.0"}
    assert report["values"]["nodes_flipped"] == {"value": len(bad), "of": len(totals)}
    assert {v["result"] for v in report["verdicts"]} == {"PASS"}


def test_few_nodes_are_no_matter_of_the_fleet() -> None:
    report = read_text(_pool([3] * 12, [3] * 12, {4}), None)
    assert report["incidents"] == []
    assert [(f["code"], f["severity"], f["entity"]["name"]) for f in report["faults"]] == [
        ("DCGMHealthCode71", "unknown", "n4")
    ]
    assert {v["of"]: v["result"] for v in report["verdicts"]}["n4"] == "UNKNOWN"


def test_counters_that_move_are_errors_of_now() -> None:
    report = read_text(_pool([3] * 6, [3, 3, 3, 3, 3, 90], {1, 2, 3, 4, 5}), None)
    assert report["incidents"] == []
    rising = [f for f in report["faults"] if f["code"] == "nvlink-crc-rising"]
    assert [(f["entity"]["name"], f["change"]) for f in rising] == [("n5", {"nvlink_crc": 87})]
    assert {v["of"]: v["result"] for v in report["verdicts"]}["n5"] == "WARN"


def test_without_a_change_nothing_is_blamed_on_one() -> None:
    report = read_text(_pool([3] * 6, [3] * 6, {0, 1, 2, 3, 4}, change=False), None)
    assert report["incidents"] == []
    assert len(report["faults"]) == 5


def test_one_sample_of_a_lifetime_total_says_nothing() -> None:
    told = json.loads(_pool([900] * 4, [900] * 4, set())) if _pool([1], [1], set()).startswith("{") else None
    told = told or yamlio.loads(_pool([900] * 4, [900] * 4, set()), "pool")
    told["samples"] = told["samples"][:1]
    report = read_text(json.dumps(told), None)
    assert {v["reason"] for v in report["verdicts"]} == {"single-sample"}


@pytest.mark.parametrize("text", ["samples:\n  - {nodes: 5, conditions: x}\n", "samples: 3 # nodes conditions\n"])
def test_samples_of_another_shape_are_refused(text: str) -> None:
    with pytest.raises(BadInputError):
        read_text(text, None)


@settings(max_examples=60, deadline=None)
@given(data=st.binary(max_size=300), at=st.floats(0.0, 1.0), seed=st.integers(0, 99))
def test_junk_in_the_middle_never_raises(data: bytes, at: float, seed: int) -> None:
    rows = [row for row, *_ in ROWS.values()]
    texts = [_table("Failure", rows), _json("Failure", rows), _scrape(DCGM_FI_DEV_XID_ERRORS={0: 79, 1: 0})]
    text = texts[seed % 3].encode()
    middle = int(len(text) * at)
    try:
        report = read_text(text[:middle] + data + text[middle:], None)
    except BadInputError:
        return
    assert report["verdicts"]
