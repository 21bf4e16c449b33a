"""Kubernetes texts: alignment, order, counts and cuts change no conclusion; Ready is no word on GPUs."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from muster.errors import BadInputError
from muster.faults import catalogue
from muster.read import formats
from muster.read.kubernetes.describe import seconds_of
from tests.read.cases import DATA, as_input, read_text

FAMILIES = ("node-condition", "node-descriptions", "drains", "cluster-log", "pods-and", "kubernetes-")
INPUTS = sorted(path for path in (DATA / "cases").glob("*/input.*") if path.parent.name.startswith(FAMILIES))
DATE = "Mon, 09 Mar 2026 11:02:31 +0000"


def read_path(path: Path, data: bytes | None = None) -> dict[str, Any]:
    content = path.read_bytes() if data is None else data
    return formats.read([as_input(path.name, content)], {}).plain()


def said(report: dict[str, Any]) -> tuple[set[Any], set[Any]]:
    verdicts = {(row["of"], row["result"], row["reason"]) for row in report["verdicts"]}
    return verdicts, {(fault["code"], str(fault["entity"]), fault["count"]) for fault in report["faults"]}


@pytest.mark.parametrize("path", INPUTS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_a_cut_text_is_read_as_far_as_it_goes(path: Path) -> None:
    data = path.read_bytes()
    for at in random.Random(path.name).sample(range(1, len(data)), k=min(25, len(data) - 1)):
        try:
            cut = read_path(path, data[:at])
        except BadInputError:
            continue  # too short to be recognised
        if cut["kind"] != "kubernetes":
            continue  # the first lines of a journal may be a kernel log as well
        passed = [row for row in cut["verdicts"] if row["result"] == "PASS"]
        assert all(row["of"] == "drain" or not cut["truncated"] for row in passed), f"cut at byte {at}"
        if b"\n" in data[:at] and not data[:at].endswith(b"\n") and path.suffix in (".txt", ".log"):
            assert cut["truncated"], f"cut at byte {at}"


@pytest.mark.parametrize("path", INPUTS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_line_ends_change_nothing(path: Path) -> None:
    assert said(read_path(path, path.read_bytes().replace(b"\n", b"\r\n"))) == said(read_path(path))


def table(rows: list[tuple[str, str, str, str]], gap: str = "   ") -> str:
    lines = [gap.join(("  Type", "Status", "LastHeartbeatTime", "LastTransitionTime", "Reason", "Message"))]
    lines += [gap.join((f"  {name}", status, DATE, DATE, reason, text)) for name, status, reason, text in rows]
    return "Conditions:\n" + "\n".join(lines) + "\n"


STANDARD = [
    ("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    ("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    ("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
]


@given(
    st.lists(st.integers(1, 170), min_size=1, max_size=4, unique=True),
    st.sampled_from(["  ", "\t", "      "]),
    st.permutations(range(4)),
)
def test_xids_of_a_condition_however_it_is_laid_out(codes: list[int], gap: str, order: list[int]) -> None:
    reason = json.dumps({str(code): True for code in codes}, separators=(",", ":"))
    rows = [*STANDARD, ("XidCriticalError", "True", reason, "00000000-0000-4000-8000-000000000009")]
    report = read_text(table([rows[n] for n in order], gap), "kubernetes")
    assert report["values"]["xid_condition_codes"]["value"] == codes
    assert report["values"]["conditions"]["value"] == 4
    assert [fault["code"] for fault in report["faults"]] == sorted(
        codes, key=lambda code: (catalogue.xid(code).severity.value != "fatal", codes.index(code))
    )
    for fault in report["faults"]:
        known = catalogue.xid(fault["code"])
        assert (fault["severity"], fault["hint"]) == (known.severity.value, known.hint.value)
    assert not any(row["of"] == "node" and row["result"] == "PASS" for row in report["verdicts"])


@pytest.mark.parametrize(
    ("kind", "status", "reason", "message", "code"),
    [
        ("AcceleratedHardwareReady", "False", "NvidiaXID119Error", "see the log", 119),
        ("GpuXidError", "True", "GpuXidErrorIsNotHealthy", "ErrorCode:79 GPU:0 Recommended Action=RESTART_BM", 79),
        ("GPUProblem", "True", "HardwareFault", "NVRM: Xid (79) seen on the first GPU", 79),
        ("GPUProblem", "True", "XID74", "link error", 74),
        ("GPUProblem", "True", "KernelLine", "NVRM: Xid (PCI:0000:9b:00): 48, pid=7, DBE", 48),
    ],
)
def test_writers_spell_xids_in_their_ways(kind: str, status: str, reason: str, message: str, code: int) -> None:
    report = read_text(table([*STANDARD, (kind, status, reason, message)]), "kubernetes")
    assert [fault["code"] for fault in report["faults"]] == [code]


@given(st.integers(0, 16), st.integers(0, 16), st.one_of(st.none(), st.integers(0, 16)))
def test_counts_of_gpus(capacity: int, allocatable: int, expected: int | None) -> None:
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "n1"},
        "status": {
            "capacity": {"nvidia.com/gpu": str(capacity)},
            "allocatable": {"nvidia.com/gpu": str(allocatable)},
        },
    }
    context = {"expected_gpus": expected} if expected is not None else {}
    report = read_text(json.dumps(node), "kubernetes", context)
    codes = {fault["code"]: fault["count"] for fault in report["faults"]}
    assert codes.pop("gpu-not-allocatable", 0) == max(capacity - allocatable, 0)
    missing = max((expected or 0) - capacity, 0)
    if not capacity and expected is None:
        missing = 1  # the resource is there without a single device
    assert codes.get("gpus-missing" if capacity else "device-plugin-missing", 0) == missing


@given(st.integers(1, 12), st.booleans(), st.booleans())
def test_a_drain_that_is_blocked_until_it_is_not(attempts: int, freed: bool, namespace_first: bool) -> None:
    pod = "ns/web-0" if namespace_first else '"web-0"'
    text = (
        f"evicting pod {pod}\n"
        + (
            'error when evicting pods/"web-0" -n "ns" (will retry after 5s): Cannot evict pod as it'
            " would violate the "
            "pod's disruption budget.\n"
        )
        * attempts
    )
    text += "pod/web-0 evicted\nnode/n1 drained\n" if freed else ""
    report = read_text(text, "kubernetes")
    assert report["faults"] == []
    (verdict,) = report["verdicts"]
    if freed:
        assert (verdict["result"], verdict["reason"]) == ("PASS", "drained")
        assert "blocked_pod" not in report["values"]
    else:
        assert (verdict["result"], verdict["state"]) == ("WARN", "DRAIN_BLOCKED")
        assert report["values"]["attempts"]["value"] == attempts
        assert report["values"]["blocked_pod"]["value"] == "ns/web-0"


def test_a_cut_list_of_objects_keeps_what_is_whole() -> None:
    nodes = [
        {
            "kind": "Node",
            "metadata": {"name": f"n{n}"},
            "status": {"conditions": [{"type": "Ready", "status": "False"}]},
        }
        for n in range(5)
    ]
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": nodes})
    at = text.index('"n3"')
    report = read_text(text[:at], "kubernetes")
    assert report["truncated"]
    assert {fault["entity"]["name"] for fault in report["faults"]} == {"n0", "n1", "n2"}


def test_yaml_and_json_say_the_same() -> None:
    from muster import yamlio

    path = DATA / "cases" / "pods-and-events" / "input.pods.json"
    text = yamlio.dumps(json.loads(path.read_text()))
    assert said(read_text(text, "kubernetes")) == said(read_path(path))


@pytest.mark.parametrize("context", [{"boot_id": 5}, {"expected_gpus": -1}])
def test_a_context_that_cannot_be_used_is_refused(context: dict[str, Any]) -> None:
    with pytest.raises(BadInputError):
        read_text(table(STANDARD), "kubernetes", context)


@settings(suppress_health_check=[HealthCheck.too_slow], max_examples=60)
@given(st.binary(max_size=300), st.sampled_from([path.read_bytes() for path in INPUTS[::3]]), st.integers(0, 3000))
def test_junk_never_breaks_the_reader(junk: bytes, text: bytes, at: int) -> None:
    try:
        report = read_text(text[:at] + junk + text[at:], "kubernetes")
    except BadInputError:
        return
    assert report["kind"] == "kubernetes"


def test_a_kernel_log_stays_a_kernel_log() -> None:
    log = (
        "Mar 09 11:00:00 n1 kernel: NVRM: Xid (PCI:0000:9b:00): 79, pid=1, GPU has fallen off the bus.\n"
        "Mar 09 11:00:01 n1 kubelet[9]: E0309 11:00:01.000001 9 kubelet.go:1] PLEG is not healthy\n"
    ) * 3
    assert read_text(log, None)["kind"] == "kernel-log"


@pytest.mark.parametrize(("text", "seconds"), [("3h12m)", 11520), ("2m10s", 130), ("5d", 432000), ("never", None)])
def test_durations(text: str, seconds: float | None) -> None:
    assert seconds_of(text) == seconds


def test_what_to_do_is_one_sentence_or_two() -> None:
    for path in INPUTS:
        told = read_path(path)["next"]
        assert 10 < len(told) < 400, path
        assert not re.search(r"[\n\x00-\x08]", told)
