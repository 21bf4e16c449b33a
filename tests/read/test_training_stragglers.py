"""Reports about slow ranks: who is named, who is not, and how often a healthy job is suspected."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.errors import BadInputError
from muster.read import formats
from muster.read.training import STRAGGLER_WORDS
from muster.read.training.peers import FALSE_POSITIVE_RATE, MIN_PEERS, Peers, limit
from muster.read.training.stragglers import readers
from muster.read.training.stragglers.reader import contains_waiting
from tests.read.cases import as_input, read_text


def sections(times: dict[str, list[float]], prefix: str = "", step: int = 10) -> str:
    rows = [f"=== Straggler Report at Step {step} ===", "No stragglers detected.", "Section Timings (ms):"]
    for name, figures in times.items():
        rows.append(f"  {name}:")
        rows.append(f"    Min: {min(figures):.2f}ms, Max: {max(figures):.2f}ms, Avg: 0ms")
        rows += [f"    Rank {rank}: {x:.2f}ms" for rank, x in enumerate(figures)]
    return "".join(f"{prefix}{row}\n" for row in rows)


def verdicts(report: dict[str, Any]) -> dict[str, tuple[str, str]]:
    return {v["of"]: (v["result"], v["reason"]) for v in report["verdicts"]}


def stragglers(report: dict[str, Any]) -> list[int]:
    found: list[int] = report["values"]["stragglers"]["value"]
    return found


HEALTHY = [10.0 + 0.03 * (n % 7) for n in range(16)]


@pytest.mark.parametrize(
    "prefix", ["", "[default0]:", "[rank0]:", "[1,0]<stdout>:", "2025-07-01T10:00:00Z stdout F "]
)
def test_a_slow_rank_is_named_whatever_stands_before_the_line(prefix: str) -> None:
    report = read_text(sections({"optimizer": [*HEALTHY, 14.0]}, prefix), None)
    assert (stragglers(report), verdicts(report)["step"]) == ([16], ("WARN", "straggler"))
    assert report["incidents"][0]["ranks"] == [16]
    assert "rank 16" in report["next"]


def test_a_slow_rank_in_a_phase_that_waits_is_nobody_s_fault() -> None:
    report = read_text(sections({"all_reduce": [*HEALTHY, 14.0]}), None)
    assert (stragglers(report), verdicts(report)["step"]) == ([], ("UNKNOWN", "phase-contains-waiting"))


def test_sections_are_judged_one_by_one() -> None:
    report = read_text(sections({"optimizer": HEALTHY, "data": [*HEALTHY[:-1], 99.0]}), None)
    assert verdicts(report) == {
        "section optimizer": ("PASS", "no-straggler"),
        "section data": ("WARN", "straggler"),
        "step": ("WARN", "straggler"),
    }
    assert report["values"]["robust_z_max"]["section"] == "data"


def test_a_report_that_leaves_ranks_out_is_no_pass() -> None:
    text = "=== Straggler Report at Step 5 ===\n  optimizer: Min: 9.00ms, Max: 30.00ms, Avg: 9.5ms\n"
    text += "".join(f"    Rank {n}: 9.0{n}ms\n" for n in range(5))
    assert verdicts(read_text(text, None))["step"] == ("UNKNOWN", "incomplete")


def test_a_report_of_extremes_alone_is_no_pass() -> None:
    text = "=== Straggler Report at step 5 ===\nNo stragglers detected.\nSection timings (ms):\n"
    text += "  optimizer: min=9.00, max=30.00, avg=9.50\n"
    report = read_text(text, None)
    assert verdicts(report)["step"] == ("UNKNOWN", "incomplete")
    assert report["values"]["step"]["value"] == 5


def test_timers_of_all_ranks_are_such_a_report() -> None:
    text = " iteration       20/     500 | elapsed time per iteration (ms): 250.0 | lm loss: 8.1E+00 |\n"
    text += "times across ranks (ms):\n  forward-compute:\n"
    text += "".join(f"     rank {n:2d}: {100 + n % 4 + 80 * (n == 6):.2f}\n" for n in range(16))
    text += "  all-grads-sync:\n" + "".join(f"     rank {n:2d}: {90 - n % 4:.2f}\n" for n in range(16))
    report = read_text(text, None)
    assert (stragglers(report), report["values"]["step"]["value"]) == ([6], 20)
    assert verdicts(report)["section forward-compute"] == ("WARN", "straggler")


def test_persistence_is_told_over_several_reports() -> None:
    text = sections({"optimizer": [*HEALTHY, 14.0]}, step=10) + sections({"optimizer": [*HEALTHY, 10.0]}, step=20)
    report = read_text(text, None)
    assert report["values"]["reports_slow_in"]["value"] == {16: 1}
    assert stragglers(report) == []


@pytest.mark.parametrize(("phase", "waits"), [
    ("optimizer", False), ("forward", False), ("data_loading", False), ("gemm", False), ("compute_s", False),
    ("all_reduce", True), ("allreduce", True), ("reduce-scatter", True), ("backward", True), ("grad_sync", True),
    ("step_time", True), ("wait_s", True), ("barrier", True), ("comm", True),
])  # fmt: skip
def test_phases_that_wait_for_peers_are_known(phase: str, waits: bool) -> None:
    assert contains_waiting(phase) is waits


def test_the_limit_rises_with_the_fleet_and_needs_four_peers() -> None:
    limits = [limit(n) for n in (128, 512, 1024, 4096, 20_000, 100_000)]
    assert limits == sorted(limits)
    assert limits[-1] > limits[0] + 0.5
    with pytest.raises(ValueError, match="too few"):
        limit(MIN_PEERS - 1)


@pytest.mark.parametrize("ranks", [4, 8, 64, 512])
def test_healthy_ranks_are_named_as_rarely_as_stated(ranks: int) -> None:
    chance = random.Random(ranks)
    trials = 1500 if ranks <= 64 else 200
    above = 0
    for _ in range(trials):
        peers = Peers({rank: chance.gauss(100, 10) for rank in range(ranks)})
        above += peers.z(peers.slowest()) > limit(ranks)
    # Three standard errors above the stated rate.
    assert above / trials <= FALSE_POSITIVE_RATE + 3 * (FALSE_POSITIVE_RATE / trials) ** 0.5


@settings(deadline=None)
@given(
    st.lists(st.floats(98, 102), min_size=12, max_size=80),
    st.floats(1.1, 1000),
    st.randoms(use_true_random=False),
)
def test_who_is_named_depends_on_no_order_and_no_unit(times: list[float], unit: float, chance: random.Random) -> None:
    values = dict(enumerate([*times, 400.0]))
    slow = Peers(values).slow()
    assert slow == (len(times),)
    shuffled = list(values.items())
    chance.shuffle(shuffled)
    assert Peers({rank: x * unit for rank, x in shuffled}).slow() == slow


@given(st.lists(st.floats(0, 1e9), min_size=1, max_size=3))
def test_fewer_than_four_peers_name_nobody(times: list[float]) -> None:
    assert Peers(dict(enumerate(times))).slow() == ()


def data_table(
    rows: dict[int, tuple[float, float]], step: int = 7, total: float = 100.0, usual: float = 0.003
) -> str:
    most = max(data for data, _ in rows.values())
    text = f"[step {step}] step_time={total:.2f}s  dt_med={usual:.4f}s  dt_max={most:.2f}s\n"
    text += f"  Top 5 slowest ranks by data_time (step_time_med={total:.2f}s):\n     rank   data_time   step_time\n"
    return text + "".join(f"    {r:5d}  {d:10.3f}  {s:10.3f}\n" for r, (d, s) in rows.items())


def test_small_data_times_are_no_stall() -> None:
    report = read_text(data_table({3: (0.04, 99.9), 4: (0.02, 99.9)}), None)
    assert verdicts(report)["job"] == ("PASS", "no-data-stall")
    assert report["values"]["culprits"]["value"] == {7: []}
    assert report["incidents"] == []


def test_when_everybody_waits_for_data_nobody_is_the_culprit() -> None:
    report = read_text(data_table({3: (61.0, 39.0), 4: (60.9, 39.1)}, usual=60.0), None)
    assert verdicts(report)["job"] == ("WARN", "data-stall")
    assert report["values"]["culprits"]["value"] == {7: []}
    assert report["incidents"][0]["suspect"] == "shared-storage"


def test_the_same_ranks_twice_point_at_their_node() -> None:
    rows = {8: (60.0, 40.0), 9: (59.0, 41.0), 20: (0.01, 99.9)}
    report = read_text(data_table(rows, 1) + "\n" + data_table(rows, 2), None, {"ranks_per_node": 8})
    assert report["values"]["same_group_twice"]["value"] is True
    assert report["values"]["culprit_nodes"]["value"] == {1: [1], 2: [1]}
    assert report["incidents"][0]["suspect"] == "node"
    assert "waiting_ranks" not in report["values"]


def test_a_table_cut_in_a_row_is_read_as_far_as_it_goes() -> None:
    text = data_table({8: (60.0, 40.0), 9: (59.0, 41.0), 20: (58.0, 42.0)})
    report = read_text(text[:-20], None)
    assert report["values"]["culprits"]["value"] == {7: [8, 9]}


def scores(relative: dict[int, str], individual: dict[int, str] | None = None) -> str:
    text = "GPU relative performance:\n" + "".join(
        f"  Rank={r} Node=n{r // 8} Score={s}\n" for r, s in relative.items()
    )
    if individual:
        text += "GPU individual performance:\n"
        text += "".join(f"  Rank={r} Node=n{r // 8} Score={s}\n" for r, s in individual.items())
    return text


def test_a_rank_far_below_its_peers_is_named_though_above_the_customary_limit() -> None:
    report = read_text(scores(dict.fromkeys(range(15), "0.99") | {15: "0.85"}), None)
    assert (stragglers(report), verdicts(report)["peer-comparison"]) == ([15], ("WARN", "straggler"))
    assert "15 (n1)" in report["next"]


def test_healthy_scores_pass() -> None:
    report = read_text(scores({n: f"0.9{n % 5 + 4}" for n in range(16)}, dict.fromkeys(range(16), "0.99")), None)
    assert verdicts(report) == {"peer-comparison": ("PASS", "no-straggler"), "own-history": ("PASS", "as-before")}


def test_a_rank_slower_than_its_past_is_named_even_alone() -> None:
    report = read_text(scores({0: "1.00", 1: "0.99"}, {0: "0.60", 1: "0.99"}), None)
    assert verdicts(report)["own-history"] == ("WARN", "slower-than-before")
    assert verdicts(report)["peer-comparison"] == ("UNKNOWN", "insufficient-peers")
    assert stragglers(report) == [0]


def test_one_score_that_is_no_number_keeps_the_others_from_passing() -> None:
    report = read_text(scores(dict.fromkeys(range(8), "0.99") | {8: "nan"}), None)
    assert verdicts(report)["peer-comparison"] == ("UNKNOWN", "not-a-number")


def test_node_checks_need_two_rounds() -> None:
    slow = {0: 10.1, 1: 10.2, 2: 10.0, 3: 10.3, 4: 10.1, 5: 10.2, 6: 10.0, 7: 10.1, 8: 10.0, 9: 30.0}
    partner = slow | {8: 30.0}
    line = "[2025-01-01 00:00:00,000] [INFO] [m.py:1:f] The node elapsed time of round {} are {}\n"
    once = read_text(line.format(0, partner), "straggler")
    twice = read_text(line.format(0, partner) + line.format(1, slow), "straggler")
    assert verdicts(once)["peer-comparison"] == ("UNKNOWN", "one-round")
    assert stragglers(twice) == [9]


def test_what_one_node_logs_of_its_check_blames_nobody() -> None:
    text = (
        "Network check time of round 0 is 204.5 and succeed is True.\nFault nodes are: []  and stragglers are: [1].\n"
    )
    report = read_text(text, None)
    assert report["values"]["reported_stragglers"]["value"] == [1]
    assert verdicts(report) == {"peer-comparison": ("UNKNOWN", "no-peers")}


def test_a_table_of_ranks_and_times() -> None:
    rows = "".join(f"{n},node-{n // 4},{100 + n % 3},{50 - n % 3}\n" for n in range(11)) + "11,node-2,160,1\n"
    report = formats.read([as_input("t.csv", f"rank,node,compute_ms,wait_ms\n{rows}".encode())], {}).plain()
    assert report["kind"] == "straggler"
    assert stragglers(report) == [11]
    word = ("WARN", "straggler")
    assert verdicts(report) == {"phase compute_ms": word, "phase wait_ms": word, "job": word}
    assert "node-2" in report["next"]


def test_of_ranks_that_only_wait_the_one_that_waits_least_is_the_slow_one() -> None:
    rows = "".join(f"- {{rank: {n}, allreduce_ms: {80 + n % 3}, backward_ms: {200 + n % 2}}}\n" for n in range(11))
    text = f"ranks:\n{rows}- {{rank: 11, allreduce_ms: 4.0, backward_ms: 201}}\n"
    report = formats.read([as_input("t.yaml", text.encode())], {}).plain()
    assert (stragglers(report), report["values"]["waits_least"]["value"]) == ([11], [11])
    assert "own work of rank 11" in report["next"]
    assert verdicts(report) == {
        "phase allreduce_ms": ("WARN", "straggler"),
        "phase backward_ms": ("UNKNOWN", "phase-contains-waiting"),
        "job": ("WARN", "straggler"),
    }


def table(text: str, name: str = "t.csv") -> dict[str, Any]:
    return formats.read([as_input(name, text.encode())], {}).plain()


def column(name: str, figures: list[float]) -> str:
    return f"rank,{name}\n" + "".join(f"{rank},{figure}\n" for rank, figure in enumerate(figures))


@pytest.mark.parametrize("name", ["backward_ms", "step_time_s", "total_ms", "tokens_per_s", "iteration_time_ms"])
def test_a_phase_with_a_barrier_in_it_passes_nobody(name: str) -> None:
    # The rank that works 200 ms longer shows the time of those who wait for it.
    report = table(column(name, [311.0, 310.3, 311.1, 310.9]))
    assert verdicts(report) == {"job": ("UNKNOWN", "phase-contains-waiting")}
    assert stragglers(report) == []
    assert "own work" in report["next"]


@given(st.integers(0, 15), st.sampled_from(["tokens_per_s", "tflops", "samples/s", "gemm_tflops", "busbw_gb_s"]))
def test_of_rates_the_low_one_is_slow(slow: int, name: str) -> None:
    figures = [1000.0 + rank % 5 for rank in range(16)]
    figures[slow] = 700.0
    report = table(column(name, figures))
    assert (stragglers(report), verdicts(report)["job"]) == ([slow], ("WARN", "straggler"))
    figures[slow] = 1400.0
    assert stragglers(table(column(name, figures))) == []


def test_a_rank_that_waits_for_its_data_is_a_stall_and_no_straggler() -> None:
    rows = ["10.4,44.0,260.1,80.2", "10.9,44.1,259.8,80.4", "201.7,43.8,71.2,2.0", "10.2,44.3,260.5,80.9"]
    text = "rank,input_wait_ms,forward_ms,backward_ms,all_reduce_ms\n"
    report = table(text + "".join(f"{rank},{row}\n" for rank, row in enumerate(rows)))
    assert verdicts(report)["job"] == ("WARN", "data-stall")
    assert (stragglers(report), report["values"]["culprits"]["value"]) == ([], [2])
    assert [(i["root"], i["ranks"]) for i in report["incidents"]] == [("data-loading", [2])]
    assert "no GPU" in report["next"]


def test_a_data_time_that_costs_nothing_is_no_stall() -> None:
    rows = "".join(f"{rank},{0.9 if rank == 3 else 0.1},{100 + rank % 3}\n" for rank in range(8))
    report = table("rank,data_ms,forward_ms\n" + rows)
    assert verdicts(report)["job"] == ("PASS", "no-straggler")
    assert "culprits" not in report["values"]


def test_a_collective_that_all_enter_together_lifts_the_doubt_about_a_mixed_phase() -> None:
    rows = "".join(f"{rank},{40 + rank % 3},{300 + rank % 2},{20 + rank % 2}\n" for rank in range(8))
    report = table("rank,forward_ms,backward_ms,all_reduce_ms\n" + rows)
    assert verdicts(report)["job"] == ("PASS", "no-straggler")


def test_times_may_stand_in_a_mapping_of_ranks() -> None:
    forward = ", ".join(f"{rank}: {160.0 if rank == 3 else 100.0 + rank % 2}" for rank in range(8))
    text = f"world_size: 8\nphases:\n  forward: {{{forward}}}\n  backward_ms: {{0: 1, 1: 1, 2: 1, 3: .nan}}\n"
    report = table(text, "t.yaml")
    assert (stragglers(report), report["values"]["ranks"]["value"]) == ([3], 8)
    assert verdicts(report)["phase backward_ms"] == ("UNKNOWN", "not-a-number")


def test_scores_may_stand_on_one_line() -> None:
    pairs = ", ".join(f"{rank}: {0.52 if rank == 2 else 0.98}" for rank in range(8))
    report = read_text(f"[rank0]: Rank 0 GPUs relative perf: {{{pairs}}}\n", None)
    assert (stragglers(report), verdicts(report)) == ([2], {"peer-comparison": ("WARN", "straggler")})
    cut = read_text(f"Rank 0 GPUs relative perf: {{{pairs}}}\nRank 0 GPUs relative perf: {{0: 0.1, 1: 0.", None)
    assert stragglers(cut) == [2]


@pytest.mark.parametrize("rates", [[480.0 * n for n in range(1, 8)], [147_000.0]])
def test_a_throughput_that_no_gpu_has_is_no_measurement(rates: list[float]) -> None:
    lines = [f"MnEtpt/Rnk: {rate * 0.9:.2f}TF/3 | MxEtpt/Rnk: {rate:.2f}TF/5\n" for rate in rates]
    report = read_text("".join(lines), None)
    assert verdicts(report)["peer-comparison"] == ("INVALID", "impossible-throughput")
    assert stragglers(report) == []


@pytest.mark.parametrize("rank", ["", "x", "-1", "9" * 12, "1.5"])
def test_a_row_without_a_rank_is_refused(rank: str) -> None:
    with pytest.raises(BadInputError, match="Row 2"):
        formats.read([as_input("t.csv", f"rank,time\n0,1\n{rank},2\n".encode())], {})


def test_a_stall_told_by_a_report_leaves_no_second_word_on_the_job() -> None:
    steps = "".join(f"iter {n}: loss 2.5, time: 500.0ms\n" for n in range(20))
    report = read_text(steps + data_table({8: (60.0, 40.0), 9: (59.0, 41.0)}), None)
    assert [v["result"] for v in report["verdicts"] if v["of"] == "job"] == ["WARN"]


def test_the_words_that_decide_on_reading_cover_every_reader() -> None:
    for reader in readers():
        covered = [mark for mark in reader.marks if STRAGGLER_WORDS.search(mark.encode())]
        # The iteration line tells the step of a report and is none itself.
        assert set(reader.marks) - set(covered) <= {"iteration "}
        assert covered


def test_a_report_inside_a_training_log_comes_with_its_goodput() -> None:
    steps = [f"iter {n}: loss 2.5, time: 500.0ms" for n in range(20)]
    report = read_text("\n".join(steps) + "\n" + sections({"optimizer": [*HEALTHY, 14.0]}), None)
    assert report["kind"] == "straggler"
    assert stragglers(report) == [16]
    assert report["values"]["goodput_time"]["value"] == 1.0


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2000), st.sampled_from(["sections", "scores", "data"]))
def test_a_cut_anywhere_names_nobody_else(cut: int, what: str) -> None:
    text = {
        "sections": sections({"optimizer": [*HEALTHY, 14.0]}),
        "scores": scores(dict.fromkeys(range(15), "0.99") | {15: "0.60"}),
        "data": data_table({8: (60.0, 40.0), 9: (59.0, 41.0), 20: (0.01, 99.9)}),
    }[what]
    part = text[: max(1, len(text) - cut)]
    try:
        report = read_text(part, "straggler")
    except BadInputError:
        return
    named = report["values"].get("stragglers", {}).get("value") or []
    blamed = [r for ranks in report["values"].get("culprits", {}).get("value", {}).values() for r in ranks]
    assert set(named) <= {16, 15}
    assert set(blamed) <= {8, 9}


def timers(figures: list[float]) -> str:
    rows = "".join(f"     rank {rank}: {figure:.2f}\n" for rank, figure in enumerate(figures))
    step = " iteration 20/ 100 | elapsed time per iteration (ms): 2000.0 |"
    return f"{step}\ntimes across ranks (ms):\n  forward-compute:\n{rows}"


def test_the_last_pipeline_stage_is_not_blamed_for_its_own_work() -> None:
    figures = [600.0 + rank % 3 for rank in range(24)] + [690.0 + rank % 3 for rank in range(8)]
    alone = read_text(timers(figures), None)
    assert (stragglers(alone), verdicts(alone)["step"]) == ([], ("UNKNOWN", "roles-may-differ"))
    told = read_text(timers(figures), None, {"pipeline_stages": 4})
    assert (stragglers(told), verdicts(told)["step"]) == ([], ("PASS", "no-straggler"))
    figures[27] = 900.0
    named = read_text(timers(figures), None, {"pipeline_stages": 4})
    assert (stragglers(named), verdicts(named)["step"]) == ([27], ("WARN", "straggler"))


def test_stages_hold_for_a_table_too() -> None:
    figures = [100.0 + rank % 3 for rank in range(12)] + [160.0 + rank % 3 for rank in range(4)]
    text = column("forward_ms", figures).encode()
    report = formats.read([as_input("t.csv", text)], {"pipeline_stages": 4}).plain()
    assert (stragglers(report), verdicts(report)) == ([], {"job": ("PASS", "no-straggler")})


FORMS = {
    "mapping.yaml": "ranks: 4\nbackward_ms: {0: 311.0, 1: 310.3, 2: 311.1, 3: 310.9}\n",
    "block.yaml": "ranks: 4\nbackward_ms:\n  0: 311.0\n  1: 310.3\n  2: 311.1\n  3: 310.9\n",
    "list.yaml": "world_size: 4\nbackward_ms: [311.0, 310.3, 311.1, 310.9]\n",
    "rows.yaml": "ranks:\n" + "".join(f"  - {{rank: {n}, backward_ms: {310 + n}}}\n" for n in range(4)),
    "one.json": '{"ranks": 4, "backward_ms": {"0": 311.0, "1": 310.3, "2": 311.1, "3": 310.9}}',
    "nested.json": '{"global_rank": true, "step_time": {"backward_ms": {"0": 311, "1": 310, "2": 311, "3": 311}}}',
    "bars.md": "| rank | backward_ms |\n|---|---|\n| 0 | 311 |\n| 1 (slow) | 310.3 |\n| 2 | 311.1 |\n| r3 | 311 |\n",
    "by_rank.yaml": "per_rank:\n" + "".join(f"  {n}: {{backward_ms: 31{n}.0}}\n" for n in range(4)),
    "by_rank.json": '{"ranks": {"0": {"step_ms": 1}, "1": {"step_ms": 1}, "2": {"step_ms": 1}, "3": {"step_ms": 1}}}',
    "runs.yaml": "runs:\n  - {name: ranks, backward_ms: {0: 311, 1: 310, 2: 311, 3: 310}}\n",
    "comma.csv": "rank,backward_ms\n0,311.0\n1,310.3\n2,311.1\n3,310.9\n",
}


@pytest.mark.parametrize("name", FORMS)
def test_figures_of_ranks_come_in_many_forms(name: str) -> None:
    report = table(FORMS[name], name)
    assert report["values"]["ranks"]["value"] == 4
    assert verdicts(report) == {"job": ("UNKNOWN", "phase-contains-waiting")}


def test_a_mapping_of_other_things_is_no_table_of_ranks() -> None:
    text = "rank_policy: strict\nlimits: {cpu: 4, memory: 8}\nports: [80, 443]\n"
    with pytest.raises(BadInputError, match="Cannot tell"):
        table(text, "t.yaml")
