"""Answers of NCCL's state query, as text and as JSON, alone and two in a row."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.read.collectives import ras
from tests.read.cases import read_text

HASH = "4be10c77d2a9f035"


def answer(counts: dict[int, list[int]], size: int, op: str = "AllReduce", detail: int = 10) -> str:
    """An answer as the tool prints it. `counts`: operation number -> ranks; it lists sets of at most `detail`."""
    error = "MISMATCH" if len(counts) > 1 else "OK"
    lines = [
        "NCCL version 2.27.3 compiled with CUDA 12.9",
        "CUDA runtime version 12090, driver version 12090",
        "",
        "Job summary",
        "===========",
        "",
        "  Nodes  Processes         GPUs  Processes     GPUs",
        "(total)   per node  per process    (total)  (total)",
        f"{size:7d}  {1:9d}  {1:11d}  {size:9d}  {size:7d}",
        "",
        "Communicators... (0.00s)",
        "=============",
        "",
        "Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors",
        "    #  in group  per comm  per node  per comm  in group",
        f"{0:5d}  {1:8d}  {size:8d}  {1:8d}  {size:8d}  {size:8d}  {'RUNNING':>8}  {error:>6}",
        "",
        "Errors",
        "======",
        "",
        "Warnings",
        "========",
        "",
    ]
    if len(counts) > 1:
        lines += [f"#0-0 ({HASH}) MISMATCH", f"  Communicator ranks have different {op} operation counts"]
        for count, ranks in sorted(counts.items(), key=lambda item: -len(item[1])):
            lines += _counted(count, ranks, size, detail)
        lines.append("")
    return "\n".join(lines) + "\n"


def _counted(count: int, ranks: list[int], size: int, detail: int) -> list[str]:
    where = [f"-- GPU 0 managed by process {100 + rank} on node 10.0.0.{rank}" for rank in ranks]
    launched = f"launched up to operation {count}" if count else "not launched any operations"
    if len(ranks) == 1:
        return [f"  Rank {ranks[0]} has {launched} {where[0]}"]
    lines = [f"  {len(ranks)} ranks have {launched}"]
    if len(ranks) <= detail and 2 * len(ranks) < size:
        lines += [f"  Rank {rank} {text}" for rank, text in zip(ranks, where, strict=True)]
    return lines


def document(counts: list[int], missing: dict[int, bool] | None = None, **status: Any) -> str:
    """The same as JSON: operation number of each rank; `missing`: rank -> considered dead."""

    def rank(number: int) -> dict[str, Any]:
        return {"rank": number, "host": f"10.0.0.{number}", "pid": 100 + number, "cuda_dev": 0, "nvml_dev": 0}

    fine = {"init_state": 0, "async_error": 0, "finalize_called": False, "destroy_flag": False, "abort_flag": False}
    ranks = [
        {**rank(n), "status": fine | status, "collective_counts": {"AllReduce": c}} for n, c in enumerate(counts)
    ]
    lost = [{**rank(n), "status": {"unresponsive": True, "considered_dead": d}} for n, d in (missing or {}).items()]
    communicator = {
        "hash": f"0x{HASH}",
        "secondary_hash": "0x1:0x2",
        "size": len(counts) + len(lost),
        "ranks_count": len(counts),
        "missing_ranks_count": len(lost),
        "ranks": ranks,
        "missing_ranks": lost,
    }
    whole = {
        "nccl_version": "2.28.9",
        "cuda_runtime_version": 12090,
        "communicators_count": 1,
        "communicators": [communicator],
        "ras": {"collection_time_sec": 0.0, "timeouts_count": 0},
    }
    return json.dumps(whole, indent=2) + "\n"


def read(text: str) -> dict[str, Any]:
    return read_text(text, "nccl-ras")


def job(report: dict[str, Any]) -> tuple[str, str]:
    (verdict,) = [v for v in report["verdicts"] if v["of"] == "job"]
    return verdict["result"], verdict["reason"]


def value(report: dict[str, Any], name: str) -> Any:
    return report["values"][name]["value"] if name in report["values"] else None


splits = st.integers(3, 30).flatmap(
    lambda size: st.tuples(
        st.just(size), st.integers(1, size - 1), st.booleans(), st.integers(0, 10**6), st.integers(1, 99)
    )
)


@given(splits, st.sampled_from(("", "[pod/a/b] ", "  ")))
def test_the_listed_set_is_ahead_or_behind_and_one_answer_blames_nobody(split: Any, prefix: str) -> None:
    size, few, ahead, base, step = split
    listed, others = list(range(few)), list(range(few, size))
    counts = {base + step: listed, base: others} if ahead else {base: listed, base + step: others}
    text = "".join(f"{prefix}{line}\n" for line in answer(counts, size).splitlines())
    report = read(text)
    assert value(report, "op_counts") == {count: len(ranks) for count, ranks in sorted(counts.items())}
    assert value(report, "behind") == len(counts[base])
    assert job(report) == ("UNKNOWN", "one-snapshot")
    assert value(report, "next_action") == "resample"
    assert report["faults"] == []
    told = [member["rank"] for member in value(report, "listed_ranks")]
    if told and set(told) <= set(listed):
        assert value(report, "listed_ranks_are") == ("ahead" if ahead else "behind")
    assert value(report, "communicator")["hash"] == HASH


@given(splits)
def test_two_answers_tell_a_hang_from_a_busy_job(split: Any) -> None:
    size, few, _, base, step = split
    ranks = list(range(size))
    counts = {base: ranks[:few], base + step: ranks[few:]}
    moved = {base + 7: ranks[:few], base + step + 7: ranks[few:]}
    stuck = read(answer(counts, size) + answer(counts, size))
    assert job(stuck) == ("FAIL", "no-progress")
    assert set(value(stuck, "suspect_ranks") or ()) <= set(ranks[:few])
    busy = read(answer(counts, size) + answer(moved, size))
    assert job(busy) == ("PASS", "progressing")
    assert value(busy, "suspect_ranks") is None


@given(st.lists(st.integers(0, 50), min_size=2, max_size=12))
def test_json_says_what_text_says(counts: list[int]) -> None:
    by_count: dict[int, list[int]] = {}
    for rank, count in enumerate(counts):
        by_count.setdefault(count, []).append(rank)
    as_json, as_text = read(document(counts)), read(answer(by_count, len(counts)))
    for name in ("op", "op_counts", "behind", "next_action", "spread"):
        assert value(as_json, name) == value(as_text, name)
    assert value(as_json, "communicator")["error"] == value(as_text, "communicator")["error"]
    assert job(as_json) == job(as_text)
    assert value(as_json, "job") == value(as_text, "job")


def test_json_of_processes_that_do_not_answer() -> None:
    silent = document([5, 5], {2: False})
    assert job(read(silent)) == ("WARN", "process-not-responding")
    assert value(read(silent), "missing_process") == {"pid": 102, "node": "10.0.0.2", "gpu": 0}
    # NCCL 2.28 leaves out a comma here.
    broken = silent.replace(
        '"nvml_dev": 0,\n          "status": {\n            "unresponsive"',
        '"nvml_dev": 0\n          "status": {\n            "unresponsive"',
    )
    assert broken != silent
    assert read(broken) == read(silent)
    dead = read(document([5, 5], {2: True}))
    assert job(dead) == ("FAIL", "process-dead")
    assert [fault["code"] for fault in dead["faults"]] == ["process-dead"]
    assert job(read(document([5, 5], async_error=6))) == ("FAIL", "communicator-error")
    assert job(read(document([5, 5], async_error=7))) == ("UNKNOWN", "one-snapshot")


@given(st.integers(2, 900))
def test_json_that_breaks_off_is_partial(keep: int) -> None:
    report = read(document([5, 5, 4])[:keep])
    assert job(report) == ("UNKNOWN", "partial-evidence")
    assert value(report, "evidence") == "PARTIAL"


def test_several_json_answers_with_acknowledgements() -> None:
    stuck = read("OK\n" + document([5, 4]) + "OK\n" + document([5, 4]))
    assert job(stuck) == ("FAIL", "no-progress")
    assert value(stuck, "suspect_ranks") == [1]
    assert job(read(document([5, 4]) + document([6, 6]))) == ("PASS", "progressing")
    assert job(read(document([5, 5]) + document([5, 5]))) == ("WARN", "no-progress")


@given(splits, st.integers(1, 400))
def test_an_answer_that_breaks_off_blames_nobody(split: Any, cut: int) -> None:
    size, few, _, base, step = split
    text = answer({base: list(range(few)), base + step: list(range(few, size))}, size).rstrip("\n")
    report = read_text(text[: len(text) - cut], "nccl-ras")
    assert job(report)[0] == "UNKNOWN"
    for member in value(report, "listed_ranks") or ():
        assert member["rank"] < size
        assert member["node"] in (None, f"10.0.0.{member['rank']}")


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (
            "  Missing communicator data from 1 rank\n  Rank 99 -- GPU 0 managed by process 7 on node 10.0.0.7\n",
            "rank-out-of-range",
        ),
        ("  Missing communicator data from 255 ranks\n", "count-out-of-range"),
    ],
)
def test_what_the_job_cannot_have_is_dropped(line: str, reason: str) -> None:
    text = answer({4: [0]}, 4).replace("Errors\n======\n", f"Errors\n======\n\n#0-0 ({HASH}) INCOMPLETE\n{line}\n")
    report = read(text)
    assert value(report, "section_discarded") == {"id": "#0-0", "reason": reason}
    assert value(report, "missing_ranks") is None
    assert job(report) == ("UNKNOWN", "partial-evidence")


def test_dead_errors_and_timeouts_of_the_query() -> None:
    errors = (
        "Errors\n======\n\nDEAD\n  1 job process is considered dead (unreachable via the RAS network)\n"
        "  Process 5 on node 10.0.0.9 managing GPUs 1,2 (NVML 3,4)\n\n"
        f"#0-0 ({HASH}) ERROR\n  Asynchronous error on 1 rank\n"
        "  Rank 3 reported Remote process error -- GPU 3 (NVML 4) managed by process 9 on node 10.0.0.8\n"
    )
    report = read(answer({4: [0]}, 4).replace("Errors\n======\n", errors))
    assert job(report) == ("FAIL", "process-dead")
    assert value(report, "dead_process") == {"pid": 5, "node": "10.0.0.9", "gpu": [1, 2]}
    (error,) = [fault for fault in report["faults"] if fault["code"] == "communicator-error"]
    assert (error["errors"], error["ranks"]) == ({"Remote process error": 1}, [3])
    slow = "Warnings\n========\n\nTIMEOUT\n  Encountered 2 communication timeouts while gathering communicator data\n"
    partial = read(answer({4: [0]}, 4).replace("Warnings\n========\n", slow))
    assert (value(partial, "query_timeouts"), value(partial, "evidence")) == (2, "PARTIAL")
    assert job(partial) == ("UNKNOWN", "partial-evidence")


def test_ranks_in_different_states() -> None:
    text = answer({4: [0]}, 4).replace(
        "Warnings\n========\n",
        f"Warnings\n========\n\n#0-0 ({HASH}) MISMATCH\n  Communicator ranks have different status\n"
        "  3 ranks have status RUNNING\n"
        "  Rank 2 has status FINALIZE -- GPU 0 managed by process 9 on node 10.0.0.2\n",
    )
    assert job(read(text)) == ("UNKNOWN", "one-snapshot")


def test_formats_are_told_apart() -> None:
    assert ras.score(answer({1: [0]}, 2).encode()) == 1.0
    assert ras.score(document([1, 2]).encode()) == 1.0
    assert ras.score(b"# out-of-place in-place\n") == 0.0
    assert ras.score(b'{"other": 1}') == 0.0


def test_deeply_nested_json_is_refused_calmly() -> None:
    report = read("{" + '"a":{' * 100_000)
    assert job(report) == ("UNKNOWN", "partial-evidence")
