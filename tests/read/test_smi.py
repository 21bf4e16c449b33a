"""`nvidia-smi` in all its shapes: the same GPUs lead to the same conclusion, whichever command wrote them."""

from __future__ import annotations

import json
import random
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.errors import BadInputError
from muster.read import formats
from tests.read import smi_maker as maker
from tests.read.cases import as_input, read_text
from tests.read.smi_maker import FAMILIES, Card

CONDITIONS: dict[str, tuple[dict[str, Any], str, str, str, str]] = {
    # name: (what differs, code, severity, hint, verdict on the GPU)
    "remap pending": ({"pending": "Yes", "remapped": (1, 0)}, "row-remap-pending", "warning", "reset-gpu", "WARN"),
    "remap pending after a hit": (
        {"pending": "Yes", "remapped": (0, 1), "dram": (1, 1)},
        "row-remap-pending",
        "warning",
        "reset-gpu",
        "WARN",
    ),
    "remap failed": ({"failure": "Yes", "dram": (2, 9)}, "row-remap-failed", "fatal", "replace", "FAIL"),
    "ecc off": ({"ecc": "Disabled", "ecc_pending": "Disabled"}, "ecc-disabled", "warning", "inspect", "WARN"),
    "ecc waits": ({"ecc_pending": "Disabled"}, "ecc-mode-pending", "warning", "reset-gpu", "WARN"),
    "narrow link": ({"lanes": (4, 16)}, "pcie-width", "warning", "inspect", "WARN"),
    "hot": ({"active": ("HW Thermal Slowdown",)}, "hw-thermal-slowdown", "warning", "inspect", "WARN"),
    "uncorrected memory": ({"dram": (3, 3)}, "dram-uncorrectable", "warning", "inspect", "WARN"),
    "fabric": ({"fabric": ("In Progress", "N/A")}, "fabric-not-complete", "fatal", "inspect", "FAIL"),
    "mig waits": ({"mig": ("Disabled", "Enabled")}, "mig-mode-pending", "warning", "reset-gpu", "WARN"),
}
HARMLESS: dict[str, dict[str, Any]] = {
    "rows remapped long ago": {"remapped": (4, 2), "banks": (2550, 8, 2, 0, 0)},
    "corrected errors": {"dram_corrected": (12_345, 99_999)},
    "errors of an earlier life": {"dram": (0, 7)},
    "power cap": {"active": ("SW Power Cap",), "util": "100 %"},
    "idle link": {"generation": (1, 5), "state": "P8"},
    "gen 4 slot at rest": {"generation": (4, 5), "util": "0 %"},
    "three SRAM errors over life": {"sram": (0, 3)},
    "no reading": {"pending": "N/A", "failure": "N/A", "threshold": "N/A", "temperature": "N/A"},
    "not supported": {"fabric": ("N/A", "N/A"), "action": "N/A"},
}


def _writers(cards: list[Card]) -> dict[str, str]:
    texts = {f"query {family}": maker.query_text(cards, family) for family in FAMILIES}
    return {**texts, "xml": maker.xml(cards), "csv": maker.csv(cards)}


def _write(cards: list[Card], shape: str) -> str:
    """`xml`, `csv`, `table`, or the text of a driver family."""
    match shape:
        case "xml":
            return maker.xml(cards)
        case "csv":
            return maker.csv(cards)
        case "table":
            return maker.table(cards)
        case _:
            return maker.query_text(cards, shape)


def _fault_keys(report: dict[str, Any]) -> list[tuple[Any, ...]]:
    return sorted((f["code"], f["entity"]["pci"], f["severity"], f["hint"]) for f in report["faults"])


@pytest.mark.parametrize("name", CONDITIONS)
def test_a_condition_is_found_in_every_shape_that_tells_it(name: str) -> None:
    changed, code, severity, hint, verdict = CONDITIONS[name]
    cards = maker.node()
    cards[3] = cards[3].changed(**changed)
    for shape, text in _writers(cards).items():
        if name == "fabric" and shape.startswith("query 470"):
            continue  # this family has no such section
        report = read_text(text, None)
        assert _fault_keys(report) == [(code, "0000:33:00.0", severity, hint)], shape
        assert {"of": "gpu 0000:33:00.0", "result": verdict, "reason": code}.items() <= report["verdicts"][0].items()
        assert report["verdicts"][-1]["of"] == "node"
        assert report["verdicts"][-1]["result"] == verdict
        assert report["faults"][0]["evidence"], shape
        assert report["next"] == report["faults"][0]["next"]
        assert "{" not in report["next"]


@pytest.mark.parametrize("name", HARMLESS)
def test_what_is_no_fault_is_none_in_any_shape(name: str) -> None:
    cards = [card.changed(**HARMLESS[name]) for card in maker.node()]
    for shape, text in _writers(cards).items():
        report = read_text(text, None)
        assert report["faults"] == [], shape
        assert report["verdicts"][-1] == {
            "of": "node",
            "result": "PASS",
            "reason": "no-faults",
            "message": "These readings tell of no fault; they prove no more than that.",
        }


ACTIONS = {
    "Reset": ("fatal", "reset-gpu", "FAIL", "recovery-action-reset"),
    "Reboot": ("fatal", "reboot", "FAIL", "recovery-action-reboot"),
    "Drain P2P": ("warning", "inspect", "WARN", "recovery-action-drain-p2p"),
    "Drain and Reset": ("fatal", "reset-gpu", "FAIL", "recovery-action-drain-and-reset"),
    "Something New": ("unknown", "inspect", "UNKNOWN", "recovery-action-something-new"),
}


@pytest.mark.parametrize("action", ACTIONS)
def test_the_recovery_action_is_what_the_gpu_needs(action: str) -> None:
    severity, hint, result, reason = ACTIONS[action]
    cards = maker.node(4)
    cards[2] = cards[2].changed(action=action)
    for text in (maker.query_text(cards, "580.95.05"), maker.xml(cards), maker.csv(cards)):
        report = read_text(text, None)
        assert _fault_keys(report) == [("gpu-recovery-action", "0000:2a:00.0", severity, hint)]
        assert (report["verdicts"][-1]["result"], report["verdicts"][-1]["reason"]) == (result, reason)


@pytest.mark.parametrize(("action", "word"), [("Reset", "reset"), ("Drain and Reset", "drain-and-reset")])
def test_older_drivers_tell_it_as_a_reset_status(action: str, word: str) -> None:
    cards = maker.node(2)
    cards[1] = cards[1].changed(action=action)
    report = read_text(maker.query_text(cards, "550.90.07"), None)
    assert [(f["code"], f["recovery_action"], f["hint"]) for f in report["faults"]] == [
        ("gpu-recovery-action", word, "reset-gpu")
    ]


@pytest.mark.parametrize(
    ("threshold", "life", "found"),
    [("Yes", 0, "driver"), ("Yes", 900, "driver"), ("No", 900, None), ("N/A", 5, "limit"), ("N/A", 4, None)],
)
def test_the_drivers_word_on_sram_outranks_a_count(threshold: str, life: int, found: str | None) -> None:
    card = maker.node(1)[0].changed(sram=(0, life), threshold=threshold)
    report = read_text(maker.query_text([card], "570.124.06"), None)
    assert [f["told_by"] for f in report["faults"]] == ([found] if found else [])
    assert all(f["hint"] == "replace" and f["severity"] == "fatal" for f in report["faults"])
    assert [f.get("confidence") for f in report["faults"]] == (
        [None if found == "driver" else "low"] if found else []
    )


def test_the_sram_limit_is_a_policy_value() -> None:
    text = maker.query_text([maker.node(1)[0].changed(sram=(0, 9))], "535.161.08")
    assert read_text(text, None, {"sram_uncorrectable_limit": 9})["faults"] == []
    assert read_text(text, None, {"sram_uncorrectable_limit": 8})["faults"][0]["limit"] == 8
    with pytest.raises(BadInputError, match="sram_uncorrectable_limit"):
        read_text(text, None, {"sram_uncorrectable_limit": "many"})


def test_generation_counts_only_under_load() -> None:
    busy = maker.node(1)[0].changed(generation=(2, 5), util="97 %", state="P0")
    assert [f["code"] for f in read_text(maker.query_text([busy]), None)["faults"]] == ["pcie-generation"]
    assert read_text(maker.query_text([busy.changed(util="0 %")]), None)["faults"] == []


def test_the_counters_of_slowdowns_are_no_present_state() -> None:
    text = maker.query_text(maker.node(1), "590.44.01")
    assert re.search(r"HW Thermal Slowdown +: 120 us", text)
    assert read_text(text, None)["values"]["slowdowns"]["value"] == {}


@pytest.mark.parametrize(
    ("bandwidth", "code", "severity"),
    [("Degraded", "fabric-degraded", "warning"), ("Full", None, None), ("N/A", None, None)],
)
def test_fabric_health(bandwidth: str, code: str | None, severity: str | None) -> None:
    cards = [card.changed(bandwidth=bandwidth) for card in maker.node()]
    faults = read_text(maker.query_text(cards), None)["faults"]
    assert [(f["code"], f["severity"]) for f in faults] == ([(code, severity)] if code else [])


# ---------------------------------------------------------------- messages

MESSAGES = {
    "mismatch": ("Failed to initialize NVML: Driver/library version mismatch", "driver-mismatch", "FAIL"),
    "unknown": ("Failed to initialize NVML: Unknown Error", "nvml-unknown-error", "WARN"),
    "permissions": ("Failed to initialize NVML: Insufficient Permissions", "nvml-access", "WARN"),
    "not loaded": ("Failed to initialize NVML: Driver Not Loaded", "driver-not-loaded", "FAIL"),
    "no driver": (
        "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest"
        " NVIDIA driver is installed and running.",
        "driver-not-loaded",
        "FAIL",
    ),
    "no library": (
        "NVIDIA-SMI couldn't find libnvidia-ml.so library in your system. Please make sure that the NVIDIA Display"
        " Driver is properly installed and present in your system.",
        "nvml-library-missing",
        "WARN",
    ),
    "nothing": ("No devices were found", "no-devices", "FAIL"),
    "power": (
        "Unable to determine the device handle for GPU 0000:65:00.0: Unable to communicate with GPU because it is"
        " insufficiently powered.",
        "power-cable",
        "FAIL",
    ),
    "lost": ("Unable to determine the device handle for gpu 0000:65:00.0: GPU is lost.", "gpu-lost", "FAIL"),
    "numbered": ("Unable to determine the device handle for GPU4: 0000:65:00.0: Unknown Error", "gpu-lost", "FAIL"),
    "without space": ("Unable to determine the device handle for GPU0000:65:00.0: Unknown Error", "gpu-lost", "FAIL"),
}


@pytest.mark.parametrize("name", MESSAGES)
def test_a_message_of_the_tool(name: str) -> None:
    text, code, result = MESSAGES[name]
    for shown in (text, f"$ nvidia-smi\n{text}\n", f"{text}\r\n\r\n"):
        report = read_text(shown, None)
        assert [f["code"] for f in report["faults"]] == [code]
        assert report["verdicts"][-1]["of"] == "node"
        assert report["verdicts"][-1]["result"] == result
        assert "replace" not in [f["hint"] for f in report["faults"]]
        if "0000:65" in text:
            assert report["faults"][0]["entity"]["pci"] == "0000:65:00.0"


@given(bus=st.integers(1, 254), device=st.integers(32, 255), digits=st.integers(3, 8))
def test_an_address_that_pci_has_not_is_matched_by_its_bus_alone(bus: int, device: int, digits: int) -> None:
    text = f"Unable to determine the device handle for GPU {0:0{digits}d}:{bus:02X}:{device:02X}.0: Unknown Error\n"
    here = f"0000:{bus:02x}:00.0"
    told = {"expected_pci": [here, "0000:ff:00.0"], "metrics_pci": ["0000:ff:00.0"]}
    fault = read_text(text, None, told)["faults"][0]
    assert (fault["entity"]["pci"], fault["confidence"]) == (here, "low")
    alone = read_text(text, None)
    assert alone["faults"][0]["entity"]["pci"] is None
    assert alone["values"]["address_plausible"]["value"] is False


def test_two_lost_gpus_are_two_faults_and_a_message_twice_is_one() -> None:
    line = "Unable to determine the device handle for GPU 0000:{}:00.0: Unknown Error\n"
    report = read_text(line.format("3B") * 2 + line.format("5E"), None, {"expected_gpus": 8, "observed_gpus": 6})
    assert [f["entity"]["pci"] for f in report["faults"]] == ["0000:3b:00.0", "0000:5e:00.0"]
    assert report["values"]["missing_gpus"] == {"value": 2, "of": 8}


def test_expected_gpus_that_nobody_lists_are_lost() -> None:
    cards = maker.node(4)
    gone = "0000:9f:00.0"
    told = {"expected_pci": [*(c.pci[4:].lower() for c in cards), gone]}
    report = read_text(maker.query_text(cards), None, told)
    assert [(f["code"], f["entity"]["pci"], f["detected_by"]) for f in report["faults"]] == [
        ("gpu-lost", gone, "inventory-difference")
    ]
    assert report["verdicts"][-1]["reason"] == "gpu-count"
    bad = {"expected_pci": ["slot 4"]}
    with pytest.raises(BadInputError, match="expected_pci"):
        read_text(maker.query_text(cards), None, bad)


# ---------------------------------------------------------------- little, or in another place


def test_one_of_eight_gpus_proves_nothing_about_the_others() -> None:
    report = read_text(maker.query_text(maker.node(1), attached=8), None)
    assert report["faults"] == []
    assert (report["verdicts"][-1]["result"], report["verdicts"][-1]["reason"]) == ("UNKNOWN", "not-all-gpus-listed")


def test_a_list_of_names_is_no_health() -> None:
    text = "".join(f"GPU {n}: {c.name} (UUID: {c.uuid})\n" for n, c in enumerate(maker.node(4)))
    report = read_text(text, None)
    assert report["values"]["gpus_listed"]["value"] == 4
    assert report["verdicts"][-1]["reason"] == "no-health-readings"


def test_columns_that_nobody_names_are_not_guessed() -> None:
    text = "0, None\n1, Reset\n"
    assert read_text(text, "nvidia-smi")["verdicts"][-1]["reason"] == "columns-not-named"
    report = read_text(text, "nvidia-smi", {"query": "index,gpu_recovery_action"})
    assert report["faults"][0]["entity"]["index"] == 1
    with pytest.raises(BadInputError):
        formats.read([as_input("log", text.encode())], {})


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(
    "prefix", ["node-17: ", "> ", "        ", "[1,0]<stdout>:", "2026-02-14T09:12:44.120000000Z "]
)
def test_prefixes_change_nothing(prefix: str, family: str) -> None:
    cards = maker.node(2)
    cards[1] = cards[1].changed(failure="Yes")
    text = maker.query_text(cards, family)
    marked = "".join(f"{prefix}{line}\n" for line in text.splitlines())
    assert _fault_keys(read_text(marked, None)) == _fault_keys(read_text(text, None))


@pytest.mark.parametrize("step", [2, 3, 8])
def test_other_indentation(step: int) -> None:
    cards = maker.node(3)
    cards[0] = cards[0].changed(pending="Yes", sram=(1, 7), threshold="Yes")
    report = read_text(maker.query_text(cards, step=step), None)
    assert sorted(f["code"] for f in report["faults"]) == ["row-remap-pending", "sram-uncorrectable"]


def test_a_copy_without_indentation() -> None:
    cards = maker.node(3)
    cards[2] = cards[2].changed(pending="Yes", dram=(1, 4), action="Reset")
    flat = "\n".join(line.strip() for line in maker.query_text(cards).splitlines())
    report = read_text(flat, None)
    assert sorted(f["code"] for f in report["faults"]) == ["gpu-recovery-action", "row-remap-pending"]
    assert all(f["entity"]["pci"] == "0000:2a:00.0" for f in report["faults"])


def test_tabs_and_carriage_returns() -> None:
    cards = maker.node(2)
    cards[1] = cards[1].changed(failure="Yes")
    text = maker.query_text(cards).replace("    ", "\t").replace("\n", "\r\n")
    assert [f["code"] for f in read_text(text, None)["faults"]] == ["row-remap-failed"]


def test_xml_entities_and_documents_from_outside_are_not_followed() -> None:
    bomb = '<!DOCTYPE x [<!ENTITY a "boo"><!ENTITY b "&a;&a;&a;"><!ENTITY c SYSTEM "file:///etc/passwd">]>'
    text = maker.xml(maker.node(1)).replace('<?xml version="1.0" ?>', bomb)
    text = text.replace("NVIDIA H100 80GB HBM3", "&b;&c;")
    shown = repr(read_text(text, None))
    assert "boo" not in shown
    assert "root:" not in shown


NARROW = """Tue Nov  4 11:02:10 2025
+-----------------------------------------------------------------------------+
| NVIDIA-SMI 470.182.03   Driver Version: 470.182.03   CUDA Version: 11.4     |
|-------------------------------+----------------------+----------------------+
| GPU  Name        Persistence-M| Bus-Id        Disp.A | Volatile Uncorr. ECC |
| Fan  Temp  Perf  Pwr:Usage/Cap|         Memory-Usage | GPU-Util  Compute M. |
|                               |                      |               MIG M. |
|===============================+======================+======================|
|   0  NVIDIA A100-SXM...  On   | 00000000:07:00.0 Off |                    2 |
| N/A   28C    P0    61W / 400W |      0MiB / 40536MiB |      0%      Default |
|                               |                      |            Disabled* |
+-------------------------------+----------------------+----------------------+
|   1  NVIDIA A100-SXM...  On   | 00000000:0F:00.0 Off |                  Off |
|ERR!   ERR! ERR!   ERR! / 400W |      0MiB / 40536MiB |    ERR!      Default |
|                               |                      |             Disabled |
+-------------------------------+----------------------+----------------------+

+-----------------------------------------------------------------------------+
| Processes:                                                                  |
|  No running processes found                                                 |
+-----------------------------------------------------------------------------+
"""


def test_the_narrow_table_of_older_drivers() -> None:
    report = read_text(NARROW, None)
    assert {(f["code"], f["entity"]["index"], f["severity"]) for f in report["faults"]} == {
        ("ecc-uncorrectable", 0, "warning"),
        ("mig-mode-pending", 0, "warning"),
        ("gpu-unreadable", 1, "fatal"),
        ("ecc-disabled", 1, "warning"),
    }
    assert report["values"]["driver_version"]["value"] == "470.182.03"
    assert not report["truncated"]


def test_a_gpu_that_is_lost_between_the_others() -> None:
    text = maker.query_text(maker.node(8))
    start = text.index("GPU 00000000:33:00.0")
    end = text.index("GPU 00000000:3C:00.0")
    message = "Unable to determine the device handle for GPU 0000:33:00.0: Unknown Error\n"
    report = read_text(text[:start] + message + text[end:], None)
    assert [(f["code"], f["entity"]["pci"]) for f in report["faults"]] == [("gpu-lost", "0000:33:00.0")]
    assert report["verdicts"][-1]["reason"] == "gpu-lost"


def test_readings_of_a_lost_gpu_are_no_readings() -> None:
    lost = "GPU is lost"
    cards = maker.node(2)
    cards[1] = cards[1].changed(temperature=lost, state=lost, util=lost, pending=lost, failure=lost, action=lost)
    report = read_text(maker.query_text(cards), None)
    assert [(f["code"], f["entity"]["pci"], f["hint"]) for f in report["faults"]] == [
        ("gpu-lost", "0000:21:00.0", "reboot")
    ]
    assert report["values"]["remap_pending"]["value"] == {"0000:18:00.0": False, "0000:21:00.0": None}


@pytest.mark.parametrize("family", FAMILIES)
def test_a_listing_that_ends_within_its_last_gpu_is_cut(family: str) -> None:
    text = maker.query_text(maker.node(8), family)
    start = text.rindex("GPU 00000000:57:00.0")
    for end in [
        text.index(word, start) for word in ("Product Name", "MIG Mode", "Performance State", "Remapped Rows")
    ]:
        report = read_text(text[:end], None)
        assert report["truncated"]
        assert (report["verdicts"][-1]["result"], report["verdicts"][-1]["reason"]) == ("UNKNOWN", "truncated-output")


def test_lines_picked_out_of_a_listing_belong_to_the_gpus_in_order() -> None:
    words = ["None", "None", "Drain and Reset", "None"]
    text = "".join(f"    GPU Recovery Action                   : {word}\n" for word in words)
    report = read_text(text, None)
    assert [(f["code"], f["entity"]["index"]) for f in report["faults"]] == [("gpu-recovery-action", 2)]
    assert report["values"]["recovery_action"]["value"] == dict(enumerate(words))


@pytest.mark.parametrize(
    ("mask", "code"),
    [
        ("0x0000000000000001", None),
        ("0x0000000000000004", None),
        ("0x0000000000000048", "hw-thermal-slowdown"),
        ("0x0000000000000088", "hw-power-brake"),
        ("0x0000000000000020", "sw-thermal-slowdown"),
        ("[N/A]", None),
    ],
)
@pytest.mark.parametrize("stem", ["clocks_throttle_reasons", "clocks_event_reasons"])
def test_reasons_as_a_mask(stem: str, mask: str, code: str | None) -> None:
    report = read_text(f"index, {stem}.active, ecc.mode.current\n0, 0x0, Enabled\n1, {mask}, Enabled\n", None)
    assert [(f["code"], f["entity"]["index"]) for f in report["faults"]] == ([(code, 1)] if code else [])


# ---------------------------------------------------------------- together


def test_a_kernel_line_and_the_state_are_one_fault() -> None:
    cards = maker.node(2)
    cards[0] = cards[0].changed(action="Reset")
    log = "NVRM: Xid (PCI:0000:18:00): 119, pid=77, name=python, Timeout after 6s of waiting for RPC response\n"
    inputs = [as_input("a.txt", maker.query_text(cards).encode()), as_input("b.log", log.encode())]
    for order in (inputs, inputs[::-1]):
        report = formats.read(order, {}).plain()
        assert [(f["code"], f.get("with_xid"), f["hint"]) for f in report["faults"]] == [
            ("gpu-recovery-action", 119, "reset-gpu")
        ]
        assert {e["file"] for e in report["faults"][0]["evidence"]} == {"a.txt", "b.log"}


def test_a_kernel_line_of_another_gpu_stays_a_fault_of_its_own() -> None:
    cards = maker.node(2)
    cards[0] = cards[0].changed(pending="Yes")
    log = (
        "NVRM: Xid (PCI:0000:21:00): 63, pid=1, Row Remapper: New row marked for remapping, reset gpu to activate.\n"
    )
    inputs = [as_input("a.txt", maker.query_text(cards).encode()), as_input("b.log", log.encode())]
    report = formats.read(inputs, {}).plain()
    assert sorted(str(f["code"]) for f in report["faults"]) == ["63", "row-remap-pending"]


def test_two_outputs_of_one_node_are_one_picture() -> None:
    cards = maker.node(4)
    cards[3] = cards[3].changed(failure="Yes", action="Reset")
    inputs = [
        as_input("q.txt", maker.query_text(cards, "550.90.07").encode()),
        as_input("c.csv", maker.csv(cards).encode()),
    ]
    report = formats.read(inputs, {}).plain()
    assert sorted(f["code"] for f in report["faults"]) == ["gpu-recovery-action", "row-remap-failed"]
    assert report["values"]["gpus_listed"]["value"] == 4


FIGURES = """
driver_version: 550.54.15
gpus:
  - {index: 0, ecc_errors: {aggregate: {sram_uncorrectable: 7}}, remapped_rows: {pending: false, failure: false}}
  - {index: 1, remapped_rows: {pending: true, failure: false}, recovery_action: None}
  - {index: 2, remapped_rows.failure: true}
"""


def test_figures_of_gpus_read_like_the_tools_own_output() -> None:
    report = read_text(FIGURES, None)
    assert [(f["code"], f["entity"]["index"]) for f in report["faults"]] == [
        ("sram-uncorrectable", 0),
        ("row-remap-pending", 1),
        ("row-remap-failed", 2),
    ]
    assert report["values"]["recovery_action"]["value"] == {1: "None"}


def test_json_made_of_the_xml_reads_the_same() -> None:
    gpu = {
        "@id": "00000000:4F:00.0",
        "uuid": "GPU-9",
        "gpu_recovery_action": "Reset",
        "remapped_rows": {"remapped_row_pending": "Yes"},
        "pci": {"pci_bus_id": "00000000:4F:00.0"},
    }
    text = json.dumps({"nvidia_smi_log": {"attached_gpus": "1", "gpu": gpu}})
    assert _fault_keys(read_text(text, None)) == [
        ("gpu-recovery-action", "0000:4f:00.0", "fatal", "reset-gpu"),
        ("row-remap-pending", "0000:4f:00.0", "warning", "reset-gpu"),
    ]


# ---------------------------------------------------------------- properties


@st.composite
def _nodes(draw: st.DrawFn) -> list[Card]:
    cards = maker.node(draw(st.integers(1, 9)))
    for position in range(len(cards)):
        name = draw(st.sampled_from([None, *CONDITIONS, *HARMLESS]))
        if name is not None and name != "fabric":
            changed = CONDITIONS[name][0] if name in CONDITIONS else HARMLESS[name]
            cards[position] = cards[position].changed(**changed)
    return cards


@settings(max_examples=30, deadline=None)
@given(cards=_nodes(), seed=st.integers(0, 2**16))
def test_the_order_of_the_gpus_does_not_matter(cards: list[Card], seed: int) -> None:
    mixed = random.Random(seed).sample(cards, len(cards))
    one, other = (read_text(maker.query_text(listed), None) for listed in (cards, mixed))
    assert _fault_keys(one) == _fault_keys(other)
    assert one["verdicts"][-1]["result"] == other["verdicts"][-1]["result"]


@settings(max_examples=60, deadline=None)
@given(cards=_nodes(), family=st.sampled_from([*FAMILIES, "xml", "csv", "table"]), share=st.floats(0.0, 1.0))
def test_a_cut_never_raises_and_invents_nothing(cards: list[Card], family: str, share: float) -> None:
    text = _write(cards, family)
    cut = text[: int(len(text) * share)]
    try:
        report = read_text(cut, None)
    except BadInputError:
        return  # too little to be told apart
    known = set(_fault_keys(read_text(text, None)))
    codes = {key[0] for key in known}
    assert all(f["code"] in codes for f in report["faults"]), (report["faults"], known)
    if len(cut) < len(text) - 1 and not report["faults"] and family != "csv":
        assert report["truncated"] or report["verdicts"][-1]["result"] != "PASS" or _only_the_end_is_gone(text, cut)


def _only_the_end_is_gone(text: str, cut: str) -> bool:
    """What is missing holds no reading that is judged: the list of processes, white space, a closing rule."""
    rest = text[len(cut) :]
    return not any(
        word in rest for word in ("Pending", "Uncorrectable", "State", "gpu", "GPU", "Slowdown", "Failure")
    )


@settings(max_examples=60, deadline=None)
@given(data=st.binary(max_size=400), at=st.floats(0.0, 1.0), seed=st.integers(0, 99))
def test_junk_in_the_middle_never_raises(data: bytes, at: float, seed: int) -> None:
    cards = maker.node(2)
    text = _write(cards, ["580.95.05", "xml", "csv", "table"][seed % 4]).encode()
    middle = int(len(text) * at)
    report = read_text(text[:middle] + data + text[middle:], "nvidia-smi")
    assert report["kind"] == "nvidia-smi"
