"""nccl-tests output: every layout, prefix, cut and odd number, and what must be concluded from it."""

from __future__ import annotations

import json
import math
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.errors import BadInputError
from muster.read.bandwidth import FORMATS
from muster.read.bandwidth.launcher import strip
from muster.read.bandwidth.nccl_tests import parse_tables, version_text
from tests.read.bandwidth_maker import PROGRAMS, Made, factor, read, value, verdicts

GIB = 2**30
RING = {"collective": "all_reduce", "algo": "ring", "nodes": 2, "nics_per_node": 8, "nic_gbps": 400}
FAST = ((8, 0.0, 0.0), (2**20, 31.5, 30.9), (GIB, 371.2, 369.8), (8 * GIB, 388.0, 386.5))
PREFIXES = (
    "",
    "[1,0]<stdout>:",
    "[1,0]<stdout>: ",
    "[prterun-node-1-77@1,0]<stdout>: ",
    "0: ",
    " 3: ",
    "[default0]:",
    "[rank0]: ",
    "[pod/launcher-x7k2p/main] ",
    "2026-03-01T10:11:12.123456789Z ",
    "2026-03-01T10:11:12.123456789Z stdout F ",
    "2026-03-01 10:11:12,123 ",
    "[2026-03-01 10:11:12] ",
    "[pod/launcher-0/main] 2026-03-01T10:11:12Z [1,0]<stdout>:",
    "Mar  1 10:11:12 node-7 slurm[812]: ",
    "launcher-1  | ",
    "    [1,0]<stdout>:",
    "(head, rank=0, pid=3808) [1,0]<stdout>:",
    "\x1b[32m[1,0]<stdout>:\x1b[0m",
)


@pytest.mark.parametrize("prefix", PREFIXES)
@pytest.mark.parametrize("layout", ["new", "middle", "old"])
def test_the_same_figures_under_every_prefix_and_layout(prefix: str, layout: str) -> None:
    report = read(Made(FAST, layout=layout).text(prefix), RING)
    assert value(report, "busbw_out_of_place") == [row[1] for row in FAST]
    assert value(report, "busbw_in_place") == [row[2] for row in FAST]
    assert value(report, "n_ranks") == 16
    assert value(report, "wire_limit") == 400
    assert verdicts(report)["run"] == ("PASS", "bandwidth")
    assert report["faults"] == []


def test_the_tag_is_told() -> None:
    report = read(Made(FAST).text("[4,12]<stdout>:"))
    assert value(report, "prefix") == {"job": 4, "rank": 12, "stream": "stdout"}


def test_a_tag_right_before_a_twelve_digit_size() -> None:
    made = Made(((137_438_953_472, 120.0, 119.0),))
    assert value(read(made.text("[1,0]<stdout>:")), "sizes") == [137_438_953_472]


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("ranks", [2, 3, 8, 16, 72])
def test_ranks_follow_from_the_ratio(program: str, ranks: int) -> None:
    report = read(Made(FAST, ranks=ranks, collective=program).text())
    certain = program not in ("sendrecv", "broadcast", "reduce")
    assert value(report, "n_ranks") == (ranks if certain else None)
    assert value(report, "busbw_factor") == pytest.approx(factor(program, ranks), abs=1e-3)
    assert value(report, "program") == f"{program}_perf"


def test_ranks_that_rounding_hides_are_not_invented() -> None:
    report = read(Made(((2**16, 1.23, 1.22),), ranks=1024).text())
    assert value(report, "n_ranks") is None
    hosts = [f"n{i}" for i in range(128)]
    assert value(read(Made(((2**16, 1.23, 1.22),), ranks=1024, hosts=hosts).text()), "n_ranks") == 1024


def test_header_lines_are_read() -> None:
    report = read(Made(FAST, ranks=4, hosts=("a", "b")).text())
    assert value(report, "nccl_version") == {"headers": "2.28.7", "library": "2.29.3"}
    assert value(report, "nccl_tests_version") == "2.17.6"
    assert value(report, "parameters")["warmup"] == 5
    ranks = value(report, "ranks")
    assert [rank["host"] for rank in ranks] == ["a", "a", "b", "b"]
    assert ranks[3] == {
        "rank": 3, "group": 0, "pid": 5003, "host": "b", "device": 1, "pci": "0000:11:00.0", "gpu": "GPU X",
    }  # fmt: skip


def test_an_old_rank_line_tells_the_bus_alone() -> None:
    (rank, *_) = value(read(Made(FAST, ranks=2, hosts=("a",), layout="old").text()), "ranks")
    assert rank["pci"] is None
    assert rank["bus"] == "10"
    assert "group" not in rank


@pytest.mark.parametrize(("code", "text"), [(23102, "2.31.2"), (21805, "2.18.5"), (2708, "2.7.8"), (20909, "2.9.9")])
def test_version_codes(code: int, text: str) -> None:
    assert version_text(code) == text


def test_the_error_column_is_no_corruption() -> None:
    report = read(Made(FAST, layout="old").text(), RING)
    assert report["values"]["last_column"] == {"value": "error", "type": "float"}
    assert value(report, "wrong_total") is None
    assert report["faults"] == []


def test_wrong_values_fail_the_run_however_fast_it_is() -> None:
    report = read(Made(FAST, wrong=3).text(), RING)
    assert verdicts(report)["run"] == ("FAIL", "numeric-corruption")
    assert verdicts(report)["correctness"] == ("FAIL", "numeric-corruption")
    (fault,) = report["faults"]
    assert (fault["code"], fault["entity"]["kind"], fault["count"]) == ("numeric-corruption", "job", 12)
    assert all(str(size) in text for size, text in zip([8, 2**20], fault["evidence"][0]["text"], strict=False))
    one = read(Made(FAST, wrong=3, ranks=8, hosts=("node-5",)).text())
    assert one["faults"][0]["entity"] == {"kind": "node", "name": "node-5", "pci": None}


def test_wrong_values_in_scientific_notation_and_before_a_cut() -> None:
    text = Made(FAST, wrong="1.5e+06", summary=False).text()
    report = read(text, RING)
    assert value(report, "wrong_total") == 8 * 1_500_000
    assert verdicts(report)["run"] == ("FAIL", "numeric-corruption")


def test_out_of_bounds_alone_fails() -> None:
    text = Made(FAST).text().replace("values : 0 OK", "values : 7 FAILED")
    assert verdicts(read(text, RING))["run"] == ("FAIL", "numeric-corruption")


def test_unchecked_values_never_pass() -> None:
    report = read(Made(FAST, wrong="N/A").text(), RING)
    assert value(report, "wrong_total") is None
    assert verdicts(report)["correctness"] == ("UNKNOWN", "values-not-checked")
    assert verdicts(report)["run"] == ("WARN", "values-not-checked")


@given(st.data())
@settings(max_examples=120, deadline=None)
def test_a_cut_anywhere_never_passes(data: st.DataObject) -> None:
    text = Made(FAST).text(data.draw(st.sampled_from(PREFIXES)))
    end = text.index("# Avg bus bandwidth")
    cut = text[: data.draw(st.integers(1, end))]
    tables = parse_tables(cut)
    assert all(not table.complete for table in tables)
    report = read(cut + "\nsome other line of text\n", RING, "nccl-tests")
    assert verdicts(report)["run"] == ("INVALID", "no-summary-line")
    assert report["truncated"] is True


@given(st.integers(0, 200))
@settings(max_examples=60, deadline=None)
def test_a_cut_row_is_dropped_not_misread(keep: int) -> None:
    text = Made(FAST, summary=False).text()
    start = text.rindex(str(8 * GIB)) - 2
    cut = text[: start + keep]
    (table,) = parse_tables(cut)
    assert [row.size for row in table.rows[:3]] == [8, 2**20, GIB]
    assert all(row.in_place is not None for row in table.rows)
    if len(table.rows) == 4:
        assert table.rows[3].size == 8 * GIB
        assert table.rows[3].out_of_place is not None
        assert table.rows[3].out_of_place.busbw.value == 388.0


def test_a_headerless_table_is_read_by_its_words() -> None:
    rows = Made(FAST, header=False, summary=False).lines()
    report = read("\n".join(rows[1:]) + "\n", RING, "nccl-tests")
    assert value(report, "busbw_out_of_place") == [row[1] for row in FAST[1:]]
    assert verdicts(report)["run"] == ("INVALID", "no-summary-line")


@pytest.mark.parametrize("word", ["nan", "-nan", "inf", "-inf"])
def test_no_number_is_invalid(word: str) -> None:
    lines = Made(FAST).lines()
    row = next(i for i, line in enumerate(lines) if line.strip().startswith(str(GIB)))
    lines[row] = lines[row].replace("371.20", word)
    report = read("\n".join(lines), RING)
    assert verdicts(report)["run"] == ("INVALID", "not-a-number")
    json.dumps(report, allow_nan=False)


def test_zero_bandwidth_of_a_large_message_is_invalid_and_of_a_small_one_is_rounding() -> None:
    assert verdicts(read(Made(((8, 0.0, 0.0), (GIB, 380.0, 380.0))).text(), RING))["run"] == ("PASS", "bandwidth")
    stuck = read(Made(((8, 0.0, 0.0), (GIB, 0.0, 0.0))).text(), RING)
    assert verdicts(stuck)["run"] == ("INVALID", "zero-bandwidth")


def test_messages_of_size_zero_prove_nothing() -> None:
    assert verdicts(read(Made(((0, 0.0, 0.0),)).text(), RING))["run"] == ("INVALID", "zero-size")


def test_no_row_at_all() -> None:
    assert verdicts(read(Made(()).text(), RING))["run"] == ("INVALID", "no-rows")
    assert verdicts(read("hello\nworld, nothing here\n", {}, "nccl-tests"))["run"][0] == "INVALID"


@pytest.mark.parametrize(
    ("line", "verdict"),
    [
        ("node-3: Test NCCL failure common.cu:958 'remote process exited or there was a network error / '", "crash"),
        ("node-3: Test CUDA failure all_reduce.cu:44 'an illegal memory access was encountered'", "crash"),
        ("node-3: Test NCCL failure common.cu:958 'invalid usage (run with NCCL_DEBUG=WARN for details)'", "harness"),
    ],
)
def test_a_program_that_gave_up(line: str, verdict: str) -> None:
    text = Made(FAST, summary=False).text("[1,0]<stdout>:") + f"[1,9]<stdout>:{line}\n"
    text += "[1,9]<stdout>: .. node-3 pid 771: Test failure common.cu:1161\n"
    report = read(text, RING)
    assert verdicts(report)["run"] == ("FAIL" if verdict == "crash" else "INVALID", verdict)
    assert value(report, "failures")[0]["host"] == "node-3"
    assert report["faults"] == []


def test_below_the_floor_fails_without_blame() -> None:
    slow = read(Made(((GIB, 190.0, 191.0),)).text(), RING)
    assert verdicts(slow)["run"] == ("FAIL", "bandwidth")
    assert slow["faults"] == []
    between = read(Made(((GIB, 300.0, 301.0),)).text(), RING)
    assert verdicts(between)["run"] == ("WARN", "bandwidth-low")
    told = read(Made(((GIB, 300.0, 301.0),)).text(), {**RING, "floor_share_of_wire": 0.7})
    assert verdicts(told)["run"] == ("PASS", "bandwidth")
    one_half = read(Made(((GIB, 390.0, 150.0),)).text(), RING)
    assert verdicts(one_half)["run"] == ("FAIL", "bandwidth")


def test_the_largest_size_decides_not_the_average() -> None:
    many_small = [(2**i, 0.01, 0.01) for i in range(3, 24)]
    report = read(Made([*many_small, (8 * GIB, 390.0, 389.0)]).text(), RING)
    assert verdicts(report)["run"] == ("PASS", "bandwidth")


@pytest.mark.parametrize("algo", [None, "auto", ""])
def test_two_nodes_without_a_ring_are_not_comparable(algo: str | None) -> None:
    above = read(Made(((GIB, 480.0, 481.0),)).text(), {**RING, "algo": algo})
    run = next(v for v in above["verdicts"] if v["of"] == "run")
    assert (run["result"], run["reason"], run["comparable_to"]) == ("INVALID", "algorithm-not-pinned", "none")
    assert value(above, "busbw_exceeds_wire") is True
    within = read(Made(((GIB, 380.0, 381.0),)).text(), {**RING, "algo": algo})
    assert verdicts(within)["run"] == ("INVALID", "algorithm-not-pinned")
    slow = read(Made(((GIB, 90.0, 91.0),)).text(), {**RING, "algo": algo})
    assert verdicts(slow)["run"] == ("FAIL", "bandwidth")


def test_more_than_the_wire_on_a_ring_is_no_measurement_of_it() -> None:
    assert verdicts(read(Made(((GIB, 480.0, 481.0),)).text(), RING))["run"] == ("INVALID", "above-wire")
    tree = read(Made(((GIB, 480.0, 481.0),)).text(), {**RING, "algo": "tree"})
    assert verdicts(tree)["run"] == ("INVALID", "algorithm-not-limited-by-wire")
    joined = read(Made(((GIB, 880.0, 881.0),)).text(), {**RING, "transport": "mnnvl", "floor_gb_s": 500})
    assert verdicts(joined)["run"] == ("PASS", "bandwidth")


def test_all_to_all_counts_only_what_leaves_the_node() -> None:
    context = {**RING, "collective": "alltoall", "gpus_per_node": 8}
    report = read(Made(((GIB, 90.0, 89.0),), collective="alltoall").text(), context)
    assert value(report, "wire_limit") == pytest.approx(50 * 15 / 8)
    assert verdicts(report)["run"] == ("PASS", "bandwidth")


def test_fewer_ranks_than_expected() -> None:
    report = read(Made(FAST, ranks=15).text(), {**RING, "gpus_per_node": 8})
    assert verdicts(report)["run"] == ("INVALID", "wrong-rank-count")


def test_all_ranks_on_one_node_is_not_the_test_that_was_asked_for() -> None:
    report = read(Made(FAST, ranks=8, hosts=("a",)).text(), RING)
    assert verdicts(report)["run"] == ("INVALID", "wrong-node-count")


def test_a_cut_list_of_ranks_does_not_tell_the_nodes() -> None:
    lines = [line for line in Made(FAST, hosts=("a", "b")).lines() if " on          b " not in line]
    assert verdicts(read("\n".join(lines), RING))["run"] == ("PASS", "bandwidth")


def test_one_node_has_no_wire() -> None:
    report = read(Made(((GIB, 480.0, 481.0),), ranks=8, hosts=("a",)).text(), {"nics_per_node": 8, "nic_gbps": 400})
    assert verdicts(report)["run"] == ("UNKNOWN", "no-floor")
    assert "wire_limit" not in report["values"]


def test_the_program_s_own_check_counts() -> None:
    text = "\n".join(line + "FAILED" if "Avg bus" in line else line for line in Made(FAST).lines())
    assert verdicts(read(text, RING))["run"] == ("FAIL", "bandwidth")


def test_rows_that_are_missing_show_in_the_average() -> None:
    lines = [line for line in Made(FAST).lines() if not line.strip().startswith(str(GIB))]
    report = read("\n".join(lines), RING)
    assert value(report, "avg_busbw_agrees") is False
    assert value(read(Made(FAST).text(), RING), "avg_busbw_agrees") is True


def test_several_tables_are_several_runs() -> None:
    text = Made(FAST).text() + Made(FAST, collective="all_gather").text() + Made(FAST, collective="sendrecv").text()
    found = verdicts(read(text))
    assert {of for of in found if of.startswith("run")} == {
        "run all_reduce_perf",
        "run all_gather_perf",
        "run sendrecv_perf",
    }


def test_tables_of_several_pods_in_one_log_are_told_apart() -> None:
    a = Made(FAST, ranks=8).text("[pod/a-0/main] ").splitlines()
    b = Made(((GIB, 10.0, 11.0),), ranks=4).text("[pod/b-0/main] ").splitlines()
    mixed = [line for pair in zip(a, b, strict=False) for line in pair] + a[len(b) :] + b[len(a) :]
    first, second = parse_tables("\n".join(mixed))
    assert [row.size for row in first.rows] == [row[0] for row in FAST]
    assert [row.size for row in second.rows] == [GIB]
    assert first.complete
    assert second.complete


def test_debug_lines_between_rows_do_no_harm() -> None:
    lines = Made(FAST).lines()
    noise = "node-1:77:99 [3] NCCL INFO Channel 00/0 : 3[3] -> 11[3] [send] via NET/IB/3/GDRDMA"
    text = "\n".join(line for pair in ((line, noise) for line in lines) for line in pair)
    assert verdicts(read(text, RING))["run"] == ("PASS", "bandwidth")


@pytest.mark.parametrize("glued", [True, False])
def test_a_row_that_debug_lines_tear_apart_is_put_together(glued: bool) -> None:
    noise = "node-1:77:99 [3] NCCL INFO Connected all rings"
    lines: list[str] = []
    for line in Made(FAST).lines():
        if line.strip()[:1].isdigit():
            lines += [line[:52] + noise if glued else line[:52], noise, line[52:]]
        else:
            lines.append(line)
    report = read("\n".join("[1,0]<stdout>:" + line for line in lines), RING)
    assert value(report, "busbw_out_of_place") == [row[1] for row in FAST]
    assert verdicts(report)["run"] == ("PASS", "bandwidth")


def test_a_hang_leaves_the_first_columns_of_its_size() -> None:
    lines = Made(FAST, summary=False).lines()
    report = read("\n".join([*lines, f"{16 * GIB:12}  {4 * GIB:12}     float     sum      -1"]), RING)
    assert value(report, "rows") == len(FAST)
    assert verdicts(report)["run"] == ("INVALID", "no-summary-line")


def test_a_broken_row_in_the_middle_is_told() -> None:
    lines = Made(FAST).lines()
    row = next(i for i, line in enumerate(lines) if line.strip().startswith(str(GIB)))
    lines[row] = lines[row][:60]
    report = read("\n".join(lines), RING)
    assert verdicts(report)["run"] == ("INVALID", "malformed-row")


def test_in_place_only() -> None:
    made = Made(FAST)
    lines = [line if not line.strip()[:1].isdigit() else line[:52] + " " * 34 + line[86:] for line in made.lines()]
    (table,) = parse_tables("\n".join(lines))
    assert [row.out_of_place for row in table.rows] == [None] * 4
    assert [row.in_place.busbw.value for row in table.rows if row.in_place] == [row[2] for row in FAST]


def test_per_iteration_columns_and_timestamps_are_skipped() -> None:
    names = "size count type redop root time algbw busbw #wrong i_min i_max i_p99 i_cv%"
    names += " time algbw busbw #wrong i_min i_max i_p99 i_cv% timestamp"
    half = "100.0 10.48 19.65 0 98.0 103.0 102.0 1.10"
    row = f"1048576 262144 float sum -1 {half} {half} 2026-03-01 10:11:12"
    (table,) = parse_tables(f"# {names}\n  {row}\n# Out of bounds values : 0 OK\n# Avg bus bandwidth : 19.65\n")
    assert table.complete
    assert table.rows[0].in_place is not None
    assert table.rows[0].in_place.busbw.value == 19.65


HALF = "     time   algbw   busbw  error"
SCALE = f" node        size         count      type   redop{HALF}{HALF}\n"


def scaling(speeds: dict[int, float], per_node: int = 8) -> str:
    text = SCALE
    for nodes, busbw in speeds.items():
        algbw = busbw / factor("all_reduce", nodes * per_node)
        half = f"{2**30 / algbw / 1e3:9.1f} {algbw:7.2f} {busbw:7.2f}  3e-07"
        text += f"  {nodes:2} {2**30:12} {2**28:12} float sum {half} {half}\n"
    return text


def test_bandwidth_over_node_counts() -> None:
    context = {"collective": "all_reduce", "algo": None, "gpus_per_node": 8, "nics_per_node": 8, "nic_gbps": 200}
    report = read(scaling({1: 235.0, 2: 241.0, 4: 120.0, 8: 88.0}), context)
    found = verdicts(report)
    assert value(report, "nodes") == [1, 2, 4, 8]
    assert value(report, "n_ranks") == [8, 16, 32, 64]
    assert value(report, "wire_limit") == 200
    assert found["1 node"] == ("UNKNOWN", "no-floor")
    assert found["2 nodes"] == ("INVALID", "above-wire-without-pinned-algorithm")
    assert found["4 nodes"] == found["8 nodes"] == ("FAIL", "bandwidth")
    assert found["cause"] == ("UNKNOWN", "software-or-transport-suspected")
    assert report["faults"] == []
    healthy = read(scaling({2: 190.0, 4: 188.0, 8: 185.0}), {**context, "algo": "ring"})
    assert set(verdicts(healthy).values()) == {("PASS", "bandwidth")}


def test_scaling_over_several_tables() -> None:
    def table(nodes: int, busbw: float) -> str:
        hosts = [f"n{i}" for i in range(nodes)]
        return Made(((GIB, busbw, busbw),), ranks=8 * nodes, hosts=hosts).text()

    context = {"algo": "ring", "nics_per_node": 4, "nic_gbps": 200}
    found = verdicts(read(table(2, 96.0) + table(4, 60.0) + table(8, 41.0), context))
    assert found["2 nodes"] == ("PASS", "bandwidth")
    assert found["8 nodes"] == ("FAIL", "bandwidth")
    assert found["cause"][0] == "UNKNOWN"


def as_json(made: Made, **more: Any) -> str:
    def half(size: int, rate: float) -> dict[str, Any]:
        algbw = rate / factor(made.collective, made.ranks)
        return {"time": size / algbw / 1e3 if algbw else 9.0, "alg_bw": algbw, "bus_bw": rate, "nwrong": 0.0}

    lead = {"type": "float", "redop": "sum", "root": "    -1"}
    rows = [
        {"size": s, "count": s // 4, **lead, "out_of_place": half(s, a), "in_place": half(s, b)}
        for s, a, b in made.rows
    ]
    devices = [
        {
            "rank": 0,
            "group": 0,
            "pid": 5,
            "hostname": "a",
            "device": 0,
            "device_hex": "0000:1b:00",
            "device_info": "X",
        }
    ]
    report = {
        "version": 2,
        "args": ["/opt/all_reduce_perf", "-b", "8"],
        "nccl_version": 22903,
        "config": {"nthreads": 1, "ngpus": 1, "minimum_bytes": 8, "devices": devices},
        "results": rows,
        "out_of_bounds": {"count": 0, "okay": "true"},
        "average_bus_bandwidth": {"bandwidth": made.average, "okay": "unchecked"},
        "errors": [""],
        "end_time": "2026-03-01 10:00:00",
    }
    return json.dumps(report | more)


def test_the_json_report_says_the_same() -> None:
    report = read(as_json(Made(FAST)), RING)
    text = read(Made(FAST).text(), RING)
    for name in ("busbw_out_of_place", "n_ranks", "wrong_total", "out_of_bounds", "program", "wire_limit"):
        assert value(report, name) == value(text, name), name
    assert verdicts(report)["run"] == ("PASS", "bandwidth")
    assert value(report, "nccl_version") == {"library": "2.29.3"}


@given(st.integers(60, 1500))
@settings(max_examples=40, deadline=None)
def test_a_json_report_that_breaks_off_never_passes(keep: int) -> None:
    report = read(as_json(Made(FAST))[:keep] + "\n", RING, "nccl-tests")
    assert verdicts(report)["run"][0] == "INVALID"


def test_json_with_odd_values() -> None:
    rows = [
        {"size": GIB, "count": 1, "out_of_place": {"time": "nan", "alg_bw": "nan", "bus_bw": "nan", "nwrong": None}}
    ]
    assert verdicts(read(as_json(Made(FAST), results=rows)))["run"] == ("INVALID", "not-a-number")
    assert verdicts(read(as_json(Made(FAST), results=[7, None])))["run"] == ("INVALID", "malformed-row")
    assert verdicts(read(as_json(Made(FAST), errors=["unhandled cuda error"])))["run"] == ("FAIL", "crash")


@pytest.mark.parametrize(
    "context", [{"nodes": "two"}, {"nic_gbps": -1}, {"nic_gbps": math.nan}, {"algo": 3}, {"floor_gb_s": True}]
)
def test_a_context_that_cannot_be_used_is_refused(context: dict[str, Any]) -> None:
    with pytest.raises(BadInputError, match=next(iter(context))):
        read(Made(FAST).text(), context)


@given(st.text(max_size=300), st.sampled_from(["", "[1,0]<stdout>:", "  8 2 float sum -1 "]))
@settings(max_examples=150, deadline=None)
def test_any_text_is_read_without_harm(text: str, lead: str) -> None:
    for table in parse_tables("# size count type redop root time algbw busbw #wrong\n" + lead + text):
        assert not table.complete or table.avg is not None
    assert strip(lead + text).text is not None


HOSTILE = (
    "[" + "1," * 2000,
    "2026-03-01T10:11:12Z " * 200,
    "# Rank " + "9 " * 2000,
    "# nThread " + "a " * 2000,
    "Test NCCL failure " + " " * 3000,
    "1" * 4000,
    " ".join(["8"] * 2000),
    "a" * 4000 + " |",
    "nccl-headers=" * 300,
    "# Avg bus bandwidth" + " " * 4000 + ":",
)


@pytest.mark.parametrize("line", HOSTILE)
def test_no_line_takes_time_out_of_proportion(line: str) -> None:
    def seconds(count: int) -> float:
        text = (line + "\n") * count
        started = time.perf_counter()
        parse_tables(text)
        return time.perf_counter() - started

    seconds(2)
    few, many = min(seconds(20) for _ in range(3)), min(seconds(200) for _ in range(2))
    assert many < 40 * few + 0.05


def test_too_many_rows_are_refused() -> None:
    row = Made(FAST, header=False, summary=False).lines()[-1]
    with pytest.raises(BadInputError, match="rows"):
        parse_tables((row + "\n") * 100_001)


def test_other_tools_that_write_json_are_left_alone() -> None:
    query = {
        "nccl_version": "2.28.3",
        "communicators": [{"hash": "0x1", "ranks": []}],
        "ras": {"collective_counts": {}},
    }
    assert [entry.detect(json.dumps(query).encode()) for entry in FORMATS] == [0.0] * len(FORMATS)
