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
    assert verdicts(report) == {"phase compute_ms": ("WARN", "straggler"), "phase wait_ms": ("PASS", "no-straggler")}
    assert "node-2" in report["next"]


def test_of_ranks_that_only_wait_the_one_that_waits_least_is_a_suspect() -> None:
    rows = "".join(f"- {{rank: {n}, allreduce_ms: {80 + n % 3}, backward_ms: {200 + n % 2}}}\n" for n in range(11))
    text = f"ranks:\n{rows}- {{rank: 11, allreduce_ms: 4.0, backward_ms: 201}}\n"
    report = formats.read([as_input("t.yaml", text.encode())], {}).plain()
    assert (stragglers(report), report["values"]["waits_least"]["value"]) == ([], [11])
    assert "rank 11" in report["next"]
    assert [v["result"] for v in report["verdicts"]] == ["PASS", "PASS"]


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
