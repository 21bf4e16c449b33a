"""`dcgmi diag` in its layouts, and the state of NVLinks: what a pass proves and what it does not."""

from __future__ import annotations

import json
import textwrap
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.errors import BadInputError
from muster.read import formats
from muster.read.diagnostics.diag import parse_table
from muster.read.diagnostics.error_codes import code_of
from tests.read.bandwidth_maker import read, value, verdicts
from tests.read.cases import as_input

FRAME = "+---------------------------+------------------------------------------------+"
DEPLOYMENT = (
    "Denylist",
    "NVML Library",
    "CUDA Main Library",
    "Permissions and OS Blocks",
    "Persistence Mode",
    "Environment Variables",
    "Page Retirement/Row Remap",
    "Graphics Processes",
    "Inforom",
)
R2 = {"Integration": ["PCIe"], "Hardware": ["GPU Memory"]}
R3 = {
    **R2,
    "Hardware": ["GPU Memory", "Diagnostic"],
    "Stress": ["Targeted Stress", "Targeted Power", "Memory Bandwidth"],
}
R4 = {**R3, "Stress": [*R3["Stress"], "Memtest"]}
ALLOC = "Error: unable to allocate the least amount of GPU memory that the test needs: 12.0% could be allocated."


def row(name: str, text: str) -> str:
    return f"| {name:<25} | {text:<46} |"


def message(name: str, text: str) -> list[str]:
    parts = [text[i : i + 45] for i in range(0, len(text), 45)]
    return [row(name if i == 0 else "", part) for i, part in enumerate(parts)]


def old(sections: dict[str, list[str]], results: dict[str, list[str]] | None = None, gpus: int = 8) -> list[str]:
    """The table of release 3. `results` replaces the lines below a test."""
    results = results or {}
    lines = ["Successfully ran diagnostic for group.", FRAME, row("Diagnostic", "Result"), FRAME.replace("-", "=")]
    lines += ["|-----  Metadata  ----------+------------------------------------------------|"]
    lines += [row("DCGM Version", "3.3.5"), row("Driver Version Detected", "550.54.15")]
    lines += [row("GPU Device IDs Detected", ",".join(["2330"] * gpus))]
    lines += ["|-----  Deployment  --------+------------------------------------------------|"]
    for name in DEPLOYMENT:
        lines += results.get(name, [row(name, "Pass")])
    for section, tests in sections.items():
        lines.append(
            f"+-----  {section}  {'-' * (17 - len(section))}+------------------------------------------------+"
        )
        for name in tests:
            lines += results.get(name, [row(name, "Pass - All")])
    return [*lines, FRAME]


def new(
    results: dict[str, list[str]] | None = None, tests: tuple[str, ...] = ("pcie", "memory"), gpus: int = 2
) -> list[str]:
    """The table of release 4."""
    results = results or {}
    lines = old({}, gpus=gpus)[:7]
    lines[5] = row("DCGM Version", "4.2.3")
    lines += [row("GPU Device IDs Detected", ", ".join(["2901"] * gpus))]
    lines += ["|-----  Deployment  --------+------------------------------------------------|"]
    passed = [row("", f"GPU{gpu}: Pass") for gpu in range(gpus)]
    lines += results.get("software", [row("software", "Pass"), *passed])
    lines.append("+-----  Hardware  ----------+------------------------------------------------+")
    for name in tests:
        lines += results.get(name, [row(name, "Pass"), *passed])
    return [*lines, FRAME]


def text(lines: list[str], prefix: str = "") -> str:
    return "\n".join(prefix + line for line in lines) + "\n"


@pytest.mark.parametrize(("sections", "level", "passed"), [({}, 1, 9), (R2, 2, 11), (R3, 3, 15), (R4, 4, 16)])
@pytest.mark.parametrize("prefix", ["", "[pod/diag-x1/main] ", "2026-01-02T03:04:05.678Z "])
def test_a_clean_run_of_each_level(sections: dict[str, list[str]], level: int, passed: int, prefix: str) -> None:
    report = read(text(old(sections), prefix), {"expected_gpus": 8})
    assert verdicts(report) == {f"dcgm-diag-r{level}": ("PASS", "passed")}
    assert value(report, "tests_passed") == passed
    assert value(report, "dcgm_version") == "3.3.5"
    assert value(report, "gpu_device_ids") == ["2330"] * 8
    assert report["faults"] == []


def test_a_clean_run_of_the_new_layout() -> None:
    report = read(text(new()))
    assert verdicts(report) == {"dcgm-diag-r2": ("PASS", "passed")}
    assert value(report, "tests_passed") == 3
    assert value(report, "gpu_device_ids") == ["2901", "2901"]


@given(st.integers(1, 2000), st.sampled_from(["old", "new"]))
@settings(max_examples=150, deadline=None)
def test_a_cut_anywhere_never_passes(keep: int, layout: str) -> None:
    whole = text(old(R3) if layout == "old" else new())
    last = whole.rstrip().rindex("\n")
    cut = whole[: min(keep, last)]
    report = read(cut + "\n", {}, "dcgm-diag")
    assert "PASS" not in {result for result, _ in verdicts(report).values()}
    assert report["truncated"] is True


def test_a_cut_run_is_unknown_at_every_level_that_it_may_be_of() -> None:
    lines = old(R3)
    report = read(text(lines[:12]))
    assert verdicts(report) == {f"dcgm-diag-r{level}": ("UNKNOWN", "truncated-output") for level in (1, 2, 3, 4)}
    later = verdicts(read(text(lines[: lines.index(row("Diagnostic", "Pass - All")) + 1])))
    assert set(later) == {"dcgm-diag-r3", "dcgm-diag-r4"}
    assert set(verdicts(read(text(lines[:12]), {"diag_level": 3}))) == {"dcgm-diag-r3"}


def test_a_failed_gpu_is_named_with_its_lines() -> None:
    words = "GPU 3 Max power of 412.5 did not reach desired power minimum target_power_min_ratio of 560.0 for GPU 3"
    words += " Verify that the clock speeds and GPU utilization are high."
    failed = [
        row("Targeted Power", "Pass - GPUs: 0, 1, 2, 4, 5, 6, 7"),
        row("", "Fail - GPU: 3"),
        *message("Warning", words),
    ]
    report = read(text(old(R3, {"Targeted Power": failed})))
    assert verdicts(report)["dcgm-diag-r3"] == ("FAIL", "test-failed")
    (fault,) = report["faults"]
    assert (fault["entity"]["kind"], fault["entity"]["index"]) == ("gpu", 3)
    assert fault["messages"] == [words]
    assert fault["code"] == "DCGM_FR_TARGET_POWER"
    assert "node" not in verdicts(report)
    assert value(report, "tests_failed") == 1


def test_faulty_memory_fails_the_node_in_the_new_layout() -> None:
    words = "Detected 3 memory errors: a memory error was found while the pattern was read back on GPU 1."
    failed = [row("memory", "Fail"), row("", "GPU0: Pass"), row("", "GPU1: Fail"), *message("Warning: GPU1", words)]
    report = read(text(new({"memory": failed})))
    assert verdicts(report)["dcgm-diag-r2"] == ("FAIL", "test-failed")
    assert verdicts(report)["node"] == ("FAIL", "DCGM_FR_FAULTY_MEMORY")
    assert [fault["entity"]["index"] for fault in report["faults"]] == [1]


def test_a_cpu_is_no_gpu() -> None:
    lines = [row("software", "Fail"), row("", "GPU0: Pass"), row("", "CPU1: Fail")]
    report = read(text(new({"software": lines})))
    assert [fault["entity"]["kind"] for fault in report["faults"]] == ["node"]


def test_an_error_of_the_deployment() -> None:
    words = "GPU 3 has uncorrectable memory errors and row remappings are pending"
    lines = old({})
    at = lines.index(row("Denylist", "Pass"))
    report = read(text([*lines[:at], *message("Error", words), FRAME]))
    assert verdicts(report)["dcgm-diag-r1"] == ("FAIL", "test-failed")
    assert (report["faults"][0]["code"], report["faults"][0]["entity"]["index"]) == ("DCGM_FR_PENDING_ROW_REMAP", 3)


@pytest.mark.parametrize("layout", ["old", "new"])
def test_a_pass_with_an_allocation_error_is_no_pass(layout: str) -> None:
    if layout == "old":
        report = read(text(old(R2, {"GPU Memory": [row("GPU Memory", "Pass - All"), *message("Warning", ALLOC)]})))
    else:
        lines = [row("memory", "Pass"), row("", "GPU0: Pass"), *message("Warning: GPU0", ALLOC)]
        report = read(text(new({"memory": lines})))
    assert verdicts(report) == {"dcgm-diag-r2": ("INVALID", "check-not-carried-out")}


def test_a_busy_gpu_and_an_internal_error_say_nothing_about_the_hardware() -> None:
    words = "GPU 0 Error using CUDA API cuCtxCreate: 'CUDA-capable device(s) is/are busy or unavailable'."
    failed = [row("PCIe", "Pass - GPU: 1"), row("", "Fail - GPU: 0"), *message("Warning", words)]
    report = read(text(old(R2, {"PCIe": failed})))
    assert verdicts(report)["dcgm-diag-r2"] == ("INVALID", "check-not-carried-out")
    assert "node" not in verdicts(report)
    internal = [row("pcie", "Fail"), *message("Warning", "There was an internal error during the test: 'child died'")]
    assert verdicts(read(text(new({"pcie": internal}))))["dcgm-diag-r2"] == ("INVALID", "check-not-carried-out")


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("API call cudaMemcpy failed for GPU 2: 'uncorrectable ECC error encountered'", "DBE_VIOLATION"),
        ("GPU 2's NvLink link 7 is currently down", "NVLINK_DOWN"),
        ("Detected 12 nvlink error counts on GPU 2 which exceeds threshold of 1", "NVLINK_ERROR_THRESHOLD"),
        ("Thermal violations totaling 13.3 seconds. Verify that the cooling is functional.", "THERMAL_VIOLATIONS"),
        ("Out of memory while the memory bandwidth was measured", "MEMORY_ALLOC"),
        ("words that nobody has written yet", None),
    ],
)
def test_what_a_message_speaks_of(words: str, code: str | None) -> None:
    assert code_of(None, words) == (f"DCGM_FR_{code}" if code else None)
    failed = [row("PCIe", "Pass - GPUs: 0, 1, 3"), row("", "Fail - GPU: 2"), *message("Warning", "GPU 2 " + words)]
    found = verdicts(read(text(old(R2, {"PCIe": failed}))))
    assert found["dcgm-diag-r2"][0] == ("INVALID" if code == "MEMORY_ALLOC" else "FAIL")


def test_a_setting_is_a_warning_not_broken_hardware() -> None:
    failed = [row("Persistence Mode", "Fail"), *message("Warning", "Persistence mode for GPU 0 is disabled.")]
    report = read(text(old({}, {"Persistence Mode": failed})))
    assert verdicts(report) == {"dcgm-diag-r1": ("WARN", "configuration")}


def test_skipped_tests_are_unknown() -> None:
    skipped = {"GPU Memory": [row("GPU Memory", "Skip - All")]}
    assert verdicts(read(text(old(R2, skipped)))) == {"dcgm-diag-r2": ("UNKNOWN", "tests-skipped")}
    eud = {**R3, "Hardware": ["GPU Memory", "Diagnostic", "EUD Test"]}
    optional = read(text(old(eud, {"EUD Test": [row("EUD Test", "Skip - All")]})))
    assert verdicts(optional) == {"dcgm-diag-r3": ("PASS", "passed")}


def test_a_diagnostic_that_did_not_run() -> None:
    words = (
        "Error: Unable to complete diagnostic for group 0. Return: (-30) : DCGM GPU Diagnostic returned an error\n"
    )
    assert verdicts(read(words)) == {f"dcgm-diag-r{n}": ("INVALID", "diag-not-run") for n in (1, 2, 3, 4)}


def test_missing_gpus_fail_the_node_although_the_rest_passes() -> None:
    assert verdicts(read(text(old(R2, gpus=7)), {"expected_gpus": 8}))["node"] == ("FAIL", "gpu-count")


def result(gpu: int, status: str = "Pass", **more: Any) -> dict[str, Any]:
    return {"entity_group": "GPU", "entity_group_id": 1, "entity_id": gpu, "status": status, **more}


def document(memory: list[dict[str, Any]], name: str = "memory") -> str:
    categories = [
        {"category": "Deployment", "tests": [{"name": "software", "results": [result(0), result(1)]}]},
        {"category": "Hardware", "tests": [{"name": name, "results": memory}]},
    ]
    entities = [{"device_id": "2901", "entity_id": gpu} for gpu in range(2)]
    return json.dumps(
        {
            "DCGM Diagnostic": {"test_categories": categories},
            "entity_groups": [{"entity_group": "GPU", "entities": entities}],
            "metadata": {"version": "4.2.3", "Driver Version Detected": "570.86.10"},
        }
    )


def test_json_of_release_4() -> None:
    report = read("some banner\n" + document([result(0), result(1)]) + "\nrc=0\n")
    assert verdicts(report) == {"dcgm-diag-r2": ("PASS", "passed")}
    assert value(report, "gpu_device_ids") == ["2901", "2901"]
    assert value(report, "driver_version") == "570.86.10"
    broken = result(1, "Fail", warnings=[{"warning": "bad", "error_id": 58, "error_category": 1}])
    report = read(document([result(0), broken]))
    assert report["faults"][0]["code"] == "DCGM_FR_MEMORY_MISMATCH"
    assert verdicts(report)["node"] == ("FAIL", "DCGM_FR_MEMORY_MISMATCH")
    unmade = result(1, warnings=[{"warning": "could not get memory", "error_id": 56}])
    assert verdicts(read(document([result(0), unmade])))["dcgm-diag-r2"] == ("INVALID", "check-not-carried-out")


def test_json_of_release_3() -> None:
    tests = [
        {"name": "GPU Memory", "results": [{"gpu_ids": "0,2", "status": "PASS"}, {"gpu_id": "1", "status": "Fail"}]}
    ]
    root = {
        "DCGM GPU Diagnostic": {"test_categories": [{"category": "Hardware", "tests": tests}], "version": "3.1.8"}
    }
    report = read(json.dumps(root, indent=2))
    assert verdicts(report) == {"dcgm-diag-r2": ("FAIL", "test-failed"), "gpu 1": ("FAIL", "test-failed")}
    assert [fault["entity"]["index"] for fault in report["faults"]] == [1]
    assert value(report, "dcgm_version") == "3.1.8"


@given(st.integers(70, 900))
@settings(max_examples=60, deadline=None)
def test_json_that_breaks_off_never_passes(keep: int) -> None:
    whole = document([result(0), result(1)])
    cut = whole[: min(keep, len(whole) - 1)]
    assert "PASS" not in {found for found, _ in verdicts(read(cut + "\n", {}, "dcgm-diag")).values()}


NUMBERS = [(29, "PERSISTENCE_MODE"), (46, "PCIE_WIDTH"), (56, "MEMORY_ALLOC"), (99, "GPU_EXPECTED_NVLINKS_UP")]


@pytest.mark.parametrize(("number", "code"), [*NUMBERS, (109, "SXID_ERROR")])
def test_error_numbers(number: int, code: str) -> None:
    assert code_of(number, "") == f"DCGM_FR_{code}"
    assert code_of(5000, "") is None


def links(states: list[str], key: bool = True, switches: str = "    No NvSwitches found.") -> str:
    lines = ["+----------------------+", "|  NvLink Link Status  |", "+----------------------+", "GPUs:"]
    for gpu, letters in enumerate(states):
        lines += [f"    gpuId {gpu}:", "        " + " ".join(letters)]
    lines += ["NvSwitches:", switches, ""]
    return "\n".join([*lines, "Key: Up=U, Down=D, Disabled=X, Not Supported=_"] if key else lines[:-3]) + "\n"


def smi(states: list[list[str]]) -> str:
    lines = []
    for gpu, found in enumerate(states):
        lines.append(f"GPU {gpu}: NVIDIA H200 (UUID: GPU-0000000{gpu}-1111-2222-3333-444444444444)")
        lines += [f"\t Link {n}: {state}" for n, state in enumerate(found)]
    return "\n".join(lines) + "\n"


EXPECTED = {"nvlink_expected": True}


def test_all_links_up() -> None:
    report = read(links(["U" * 18] * 8), EXPECTED)
    assert verdicts(report) == {"nvlink": ("PASS", "links-up")}
    assert value(report, "nvlinks") == {"up": 144, "down": 0, "disabled": 0, "not_supported": 0}
    assert verdicts(read(links(["UUUUUUUUUUUU______"] * 8))) == {"nvlink": ("PASS", "links-up")}


def test_down_on_every_gpu_is_one_fault_of_the_node() -> None:
    report = read(links(["D" * 12] * 4), EXPECTED)
    (fault,) = report["faults"]
    assert (fault["code"], fault["entity"]["kind"], fault["scope"]) == ("nvlink-down", "node", "node")
    assert [item["index"] for item in fault["affected"]] == [0, 1, 2, 3]
    assert value(report, "nvlinks_down_by_gpu") == dict.fromkeys(range(4), 12)
    assert verdicts(report)["node"] == ("FAIL", "nvlink-down")


def test_one_link_of_one_gpu() -> None:
    (fault,) = read(links(["U" * 18, "U" * 7 + "D" + "U" * 10]), EXPECTED)["faults"]
    assert fault["entity"] == {"kind": "nvlink", "index": 1, "pci": None, "link": 7}
    assert fault["scope"] == "link"


@pytest.mark.parametrize("letters", ["D" * 18, "U" * 17 + "D", "X" * 18, "_" * 18])
def test_without_an_expectation_bad_links_stay_unknown(letters: str) -> None:
    report = read(links([letters] * 2))
    assert verdicts(report) == {"nvlink": ("UNKNOWN", "expectation-missing")}
    assert report["faults"] == []
    assert verdicts(read(links([letters] * 2), {"nvlink_expected": False})) == {"nvlink": ("PASS", "not-expected")}


def test_disabled_and_missing_links() -> None:
    assert verdicts(read(links(["X" * 18] * 2), EXPECTED))["nvlink"] == ("FAIL", "nvlink-disabled")
    assert verdicts(read(links(["_" * 18] * 2), EXPECTED))["nvlink"] == ("FAIL", "nvlink-missing")
    assert verdicts(read(links(["U" * 12 + "_" * 6] * 2), {"nvlinks_per_gpu": 18}))["node"] == (
        "FAIL",
        "nvlink-missing",
    )


def test_a_list_that_breaks_off_is_unknown_unless_a_link_is_down() -> None:
    assert verdicts(read(links(["U" * 18] * 2, key=False), EXPECTED))["nvlink"] == ("UNKNOWN", "truncated-output")
    assert verdicts(read(links(["D" * 18] * 2, key=False), EXPECTED))["nvlink"] == ("FAIL", "nvlink-down")


def test_switches_are_counted() -> None:
    report = read(links(["U" * 18] * 2, switches="    physicalId 9:\n        U U D X"))
    assert value(report, "nvswitches") == 1
    assert value(report, "nvswitch_links") == {"up": 2, "down": 1, "disabled": 1, "not_supported": 0}


def test_nvidia_smi_says_the_same_in_its_own_words() -> None:
    good = [["26.562 GB/s"] * 18] * 2
    assert verdicts(read(smi(good), EXPECTED)) == {"nvlink": ("PASS", "links-up")}
    report = read(smi([["26.562 GB/s"] * 18, ["26.562 GB/s"] * 17 + ["<inactive>"]]), EXPECTED)
    assert report["faults"][0]["entity"]["link"] == 17
    assert value(report, "nvlinks")["down"] == 1
    new_word = read(smi([["26.562 GB/s", "some new state"]]), EXPECTED)
    assert verdicts(new_word) == {"nvlink": ("UNKNOWN", "no-reading")}
    silent = (
        "GPU 0: NVIDIA H100 (UUID: GPU-1)\nNVML: Unable to retrieve NVLink information as all links are inActive\n"
    )
    assert verdicts(read(silent, EXPECTED))["node"] == ("FAIL", "nvlink-down")


def test_the_diagnostic_and_the_links_are_read_together() -> None:
    inputs = [as_input("diag", text(old(R2)).encode()), as_input("links", links(["D" * 18] * 8).encode())]
    report = formats.read(inputs, EXPECTED).plain()
    found = verdicts(report)
    assert found["dcgm-diag-r2"] == ("PASS", "passed")
    assert found["node"] == ("FAIL", "nvlink-down")


@pytest.mark.parametrize("context", [{"nvlink_expected": "yes"}, {"nvlinks_per_gpu": -1}, {"diag_level": 7}])
def test_a_context_that_cannot_be_used_is_refused(context: dict[str, Any]) -> None:
    with pytest.raises(BadInputError, match=next(iter(context))):
        read(text(old(R2)), context)


@given(st.text(max_size=200))
@settings(max_examples=120, deadline=None)
def test_any_text_is_read_without_harm(noise: str) -> None:
    lines = old(R2)
    report = read(text([*lines[:8], noise, *lines[8:-1]]), EXPECTED, "dcgm-diag")
    assert ("dcgm-diag-r2", ("PASS", "passed")) not in verdicts(report).items()


@pytest.mark.parametrize(
    "line",
    [
        "|" + " " * 4000,
        "|-----  " + "a " * 2000,
        "+" + "-" * 4000,
        "| a | " + "GPU" * 1300,
        "gpuId 0: " + "U " * 2000,
    ],
)
def test_no_line_takes_time_out_of_proportion(line: str) -> None:
    def seconds(count: int) -> float:
        whole = (line + "\n") * count
        started = time.perf_counter()
        parse_table(whole)
        return time.perf_counter() - started

    seconds(2)
    few, many = min(seconds(20) for _ in range(3)), min(seconds(200) for _ in range(2))
    assert many < 40 * few + 0.05
    assert textwrap.shorten(line, 10)
