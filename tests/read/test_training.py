"""Step logs of training frameworks: lines, profiles, attempts, and where the time went."""

from __future__ import annotations

import copy
import json
from importlib import resources
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster import yamlio
from muster.errors import BadInputError
from muster.read import formats
from muster.read.training import FORMATS, STEP_WORDS
from muster.read.training.choice import best_profile, uses_outer_time
from muster.read.training.intervals import intervals_of
from muster.read.training.lines import lines_of, parse_line
from muster.read.training.log import TrainingLog
from muster.read.training.profiles import Event, profiles, read_profile
from muster.read.training.steps import StepReader
from tests.read.cases import as_input, read_text

TITAN = "step: {n:2d}  loss:  {loss}  memory:  9.46GiB(64.99%)  tps: 7,282  tflops: 100.00  mfu: 40.00%"


def titan(at_s: int, step: int, loss: str = "7.5", prefix: str = "") -> str:
    clock = f"{10 + at_s // 3600:02d}:{at_s // 60 % 60:02d}:{at_s % 60:02d}"
    return f"{prefix}[titan] 2025-07-01 {clock},000 - root - INFO - " + TITAN.format(n=step, loss=loss)


def start(at_s: int) -> str:
    clock = f"{10 + at_s // 3600:02d}:{at_s // 60 % 60:02d}:{at_s % 60:02d}"
    return f"[titan] 2025-07-01 {clock},000 - root - INFO - Starting job: x"


def read_log(text: str) -> TrainingLog:
    lines = list(lines_of(as_input("log", text.encode())))
    profile, _ = best_profile(lines, profiles())
    assert profile is not None
    reader = StepReader(profile, uses_outer_time(lines, profile))
    for line in lines:
        reader.feed(line)
    return reader.finish()


def values(text: str, context: dict[str, Any] | None = None, kind: str | None = None) -> dict[str, Any]:
    found = read_text(text, kind, context)["values"]
    return {name: value["value"] for name, value in found.items()}


@pytest.mark.parametrize(
    ("raw", "text", "rank", "moment"),
    [
        ("[rank3]:[titan] 2025-07-01 10:00:00,250 - root - INFO - step: 1", "step: 1", 3, "2025-07-01T10:00:00.25"),
        ("[2025-07-01 10:00:00,037] [INFO] [logging.py:96:log_dist] [Rank 0] step=3", "[Rank 0] step=3", None, None),
        (" [2025-07-01 10:00:00] iteration  1/ 2 |", "iteration  1/ 2 |", None, "2025-07-01T10:00:00"),
        ("[1,5]<stdout>: [2025-07-01 10:00:00] iteration  1/ 2 |", "iteration  1/ 2 |", 5, "2025-07-01T10:00:00"),
        (" 7: INFO:megatron.core.utils:[2025-07-01 10:00:00] | Mn", "| Mn", 7, "2025-07-01T10:00:00"),
        ("I0811 21:54:55.531340 138 metric_logger.py:226] completed step: 1", "completed step: 1", None, None),
        ("\x1b[32m06/18 11:20:18 - mmengine - INFO - Iter(train)\x1b[0m", "Iter(train)", None, "--06-18T11:20:18"),
        ("[NeMo I 2025-07-01 10:00:01 nemo_logging:349] Training", "Training", None, "2025-07-01T10:00:01"),
        ("[pod/job-0/main] iter 1: loss", "iter 1: loss", None, None),
        ("(RayTrainWorker pid=77, ip=10.0.0.1) iter 1: loss", "iter 1: loss", None, None),
    ],
)
def test_prefixes_of_launchers_and_loggers_come_off(
    raw: str, text: str, rank: int | None, moment: str | None
) -> None:
    line = parse_line(raw)
    assert (line.text.strip(), line.rank) == (text, rank)
    if moment is not None:
        assert line.inner is not None
        assert line.inner.text == moment


def test_the_collector_s_time_and_the_program_s_are_both_kept() -> None:
    line = parse_line("2025-07-01T08:00:00.5Z stdout F [2025-07-01 10:00:00] iteration 1/ 2 |")
    assert line.outer is not None
    assert line.inner is not None
    assert (line.outer.text, line.inner.text) == ("2025-07-01T08:00:00.5Z", "2025-07-01T10:00:00")


@given(st.text(max_size=300))
def test_any_text_is_a_line(text: str) -> None:
    line = parse_line(text)
    assert len(line.text) <= max(len(text), 0)


@given(st.binary(min_size=1, max_size=2000), st.integers(1, 50))
def test_the_size_of_chunks_does_not_change_the_lines(data: bytes, size: int) -> None:
    whole = as_input("x", data)
    pieces = copy.copy(whole)
    object.__setattr__(pieces, "chunks", lambda: (data[i : i + size] for i in range(0, len(data), size)))
    assert [line.text for line in lines_of(pieces)] == [line.text for line in lines_of(whole)]


def test_every_profile_reads_steps_and_knows_its_examples() -> None:
    assert {profile.name for profile in profiles()} >= {"megatron", "nemo", "deepspeed", "torchtitan", "maxtext"}
    assert all(any(p.event is Event.STEP for p in profile.patterns) for profile in profiles())


def test_the_words_that_decide_on_reading_cover_every_step_line() -> None:
    folder = resources.files("muster.read.training").joinpath("data")
    for entry in folder.iterdir():
        for pattern in yamlio.loads(entry.read_text(), entry.name)["patterns"]:
            for example in pattern["examples"] if pattern["event"] == "step" else []:
                assert STEP_WORDS.search(example["line"].encode()), example["line"]


OWN = """
name: ours
patterns:
- event: step
  regex: 'tick (?P<step>\\d+) took (?P<step_time><num>)'
  units: {step_time: ms}
  examples:
  - line: 'tick 5 took 250.0'
    gives: {step: 5, step_time: 0.25}
"""


def test_a_profile_of_the_user_s_own() -> None:
    text = "".join(f"tick {n} took 500\n" for n in range(1, 6))
    found = values(text, {"log_profile": yamlio.loads(OWN, "own")}, "training-log")
    assert (found["format"], found["last_completed_step"], found["wall_time"]) == ("ours", 5, 2.5)
    assert found["clock"] == "step-times"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"gives": {"step": 6}}, "gives step"),
        ({"line": "tock 5"}, "does not fit"),
    ],
)
def test_a_profile_whose_example_is_wrong_is_refused(change: dict[str, Any], says: str) -> None:
    content = yamlio.loads(OWN, "own")
    content["patterns"][0]["examples"][0] |= change
    with pytest.raises(BadInputError, match=says):
        read_profile(content, "own")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("regex", "tick (?P<step>\\d+"),
        ("regex", "tick (?P<stride>\\d+) took"),
        ("regex", "x" * 700),
        ("regex", 5),
        ("event", "leap"),
        ("examples", []),
        ("units", {"step_time": "weeks"}),
        ("colour", "red"),
        ("fields", {"loss": "loss \\d+"}),
    ],
)
def test_a_profile_that_cannot_be_used_is_refused(key: str, value: object) -> None:
    content = yamlio.loads(OWN, "own")
    content["patterns"][0][key] = value
    with pytest.raises(BadInputError, match="own"):
        read_profile(content, "own")


@pytest.mark.parametrize("content", [None, [], {}, {"name": "x"}, {"name": "x", "patterns": []}])
def test_a_profile_that_is_none_is_refused(content: object) -> None:
    with pytest.raises(BadInputError, match="own"):
        read_profile(content, "own")


MAXTEXT = "completed step: {}, seconds: 5.5, TFLOP/s/device: 130.0, loss: 10.3"
NANO = "iter {}: loss 4.08, time 500.00ms, mfu 12.3%"
NEMO = "Training epoch 0, iteration {}/249 | lr: 1e-06 | reduced_train_loss: 1.2 | train_step_timing in s: 2.5"
MMENGINE = "06/18 11:20:1{0} - mmengine - INFO - Iter(train) [ {0}0/2000]  time: 0.1000  data_time: 0.01  loss: 1.2"
MEGATRON = (
    " samples/sec: 7.8 | iteration {:8d}/   10000 | elapsed time per iteration (ms): 4000.0 | lm_loss: 1.1E+01 |"
)
BAR = "  8%|█ | {0}0/240 [01:{0}0<20:27,  3.00s/it]"


@pytest.mark.parametrize(
    ("line", "profile", "step_s"),
    [
        (MAXTEXT, "maxtext", 5.5),
        (NANO, "plain-steps", 0.5),
        (NEMO, "nemo", 2.5),
        (MMENGINE, "mmengine", 0.1),
        (MEGATRON, "megatron", 4.0),
        (BAR, "huggingface-trainer", 3.0),
    ],
)
def test_step_lines_of_a_framework(line: str, profile: str, step_s: float) -> None:
    log = read_log("".join(line.format(n) + "\n" for n in range(1, 5)))
    assert (log.profile, len(log.steps)) == (profile, 4)
    assert log.median_step_s() == pytest.approx(step_s)
    assert log.restarts == 0


def test_figures_on_a_line_before_the_step_belong_to_it() -> None:
    step = " [2025-10-02 22:5{m}:07] iteration       {n}/      50 | consumed samples: 5120 | learning rate: 3.0E-04 |"
    lines = ["Step Time : 14.26s GPU utilization: 58.2TFLOP/s/GPU", step.format(m=2, n=10)]
    lines += ["Step Time : 6.00s GPU utilization: 60.0TFLOP/s/GPU", step.format(m=3, n=20)]
    log = read_log("\n".join(lines) + "\n")
    assert [(s.step_time_s, s.tflops_per_gpu) for s in log.steps] == [(14.26, 58.2), (6.0, 60.0)]


def test_epochs_of_a_progress_bar_are_one_count_of_steps() -> None:
    bars = [
        f"Epoch {e}:  45%|█ | {n}/100 [00:{n:02d}<04:35,  1.00it/s, v_num=0, train_loss=0.3]"
        for e in (0, 1)
        for n in (20, 50)
    ]
    log = read_log("\r".join(bars) + "\n")
    assert [step.number for step in log.steps] == [20, 50, 120, 150]
    assert log.restarts == 0
    assert [step.at_s for step in log.steps] == [20, 50, 70, 100]


def test_mixed_lines_of_several_ranks_are_no_restart() -> None:
    rows = [titan(n, n) for n in (1, 1, 1, 2, 1, 2, 2, 3, 3, 2, 3, 4)]
    log = read_log("\n".join(rows) + "\n")
    assert [step.number for step in log.steps] == [1, 2, 3, 4]
    assert log.restarts == 0


def test_a_step_that_goes_back_is_a_restart() -> None:
    rows = [titan(n, n) for n in range(1, 9)] + [titan(100 + n, n) for n in range(4, 10)]
    log = read_log("\n".join(rows) + "\n")
    assert log.restarts == 1
    found = values("\n".join(rows) + "\n")
    assert (found["repeated_steps"], found["highest_step"]) == (5, 9)
    assert found["parts"]["recomputed"] == pytest.approx(5.0)


def test_nan_losses_fail_the_loss_and_nothing_else() -> None:
    report = read_text("\n".join(titan(n, n, "nan" if n > 3 else "2.0") for n in range(1, 7)) + "\n", None)
    verdicts = {v["of"]: (v["result"], v["reason"]) for v in report["verdicts"]}
    assert verdicts == {"loss": ("FAIL", "not-a-number")}
    assert report["values"]["nan_steps"]["value"] == 3


def test_a_log_without_times_has_no_goodput() -> None:
    report = read_text("\n".join(f"step {n} loss: 2.{n}" for n in range(1, 5)) + "\n", None)
    assert ("goodput", "UNKNOWN", "no-times") in [(v["of"], v["result"], v["reason"]) for v in report["verdicts"]]
    assert "goodput_time" not in report["values"]


def test_queue_and_cause_come_from_the_context() -> None:
    rows = [titan(n, n) for n in range(1, 9)] + [start(60)] + [titan(70 + n, n) for n in range(6, 10)]
    found = values("\n".join(rows) + "\n", {"queued_s": 30, "interrupt_cause": "node node-7"})
    assert found["parts"]["queued"] == 30
    assert found["lost_by_cause"]["restart/node node-7"] == pytest.approx(52)
    assert found["goodput_ettr"] < found["goodput_ettr_without_queue"]


@pytest.mark.parametrize(
    "context", [{"queued_s": -1}, {"queued_s": "long"}, {"peak_tflops": True}, {"stall_factor": float("nan")}]
)
def test_figures_that_cannot_be_used_are_refused(context: dict[str, Any]) -> None:
    with pytest.raises(BadInputError, match="context"):
        values("\n".join(titan(n, n) for n in range(1, 5)) + "\n", context)


def test_a_hang_at_the_end_is_a_stall() -> None:
    rows = [titan(n, n) for n in range(1, 9)] + ["[titan] 2025-07-01 10:30:00,000 - root - ERROR - no progress"]
    found = values("\n".join(rows) + "\n")
    assert found["parts"]["stalled"] == pytest.approx(1792)


def test_parts_of_one_job_in_several_files_are_put_in_order() -> None:
    first = "\n".join([start(0), *(titan(10 + n, n) for n in range(1, 9))]) + "\n"
    second = "\n".join([start(100), *(titan(110 + n, n) for n in range(6, 12))]) + "\n"
    one = formats.read([as_input("a", first.encode()), as_input("b", second.encode())], {}).plain()
    two = formats.read([as_input("b", second.encode()), as_input("a", first.encode())], {}).plain()
    assert one["values"] == two["values"]
    assert one["values"]["restarts"]["value"] == 1


def test_logs_of_two_ranks_of_one_job_are_not_two_attempts() -> None:
    rank = "\n".join(titan(n, n) for n in range(1, 9)) + "\n"
    report = formats.read([as_input("rank0", rank.encode()), as_input("rank1", rank.encode())], {}).plain()
    assert (report["values"]["restarts"]["value"], report["values"]["step_lines"]["value"]) == (0, 8)


def test_times_over_midnight_without_a_date_go_on() -> None:
    rows = [
        f"[{clock}] step {n} loss: 2.0" for n, clock in enumerate(("23:59:58", "23:59:59", "00:00:00", "00:00:01"))
    ]
    log = read_log("\n".join(rows) + "\n")
    assert [step.at_s for step in log.steps] == [0, 1, 2, 3]


def test_a_clock_that_goes_back_is_counted_and_costs_nothing() -> None:
    rows = [titan(at, n) for n, at in enumerate((10, 11, 5, 12, 13), start=1)]
    found = values("\n".join(rows) + "\n")
    assert found["clock_went_back"] == 1
    assert sum(found["parts"].values()) == pytest.approx(found["wall_time"], abs=0.001)


@pytest.mark.parametrize(
    "text",
    [
        "[    1.000000] NVRM: Xid (PCI:0000:3b:00): 79, pid=7, name=worker\n" * 3,
        "#       size         count      type   redop    root     time   algbw   busbw #wrong\n",
    ],
)
def test_other_logs_are_left_to_their_readers(text: str) -> None:
    assert max(entry.detect(text.encode()) for entry in FORMATS) < 0.3


def test_a_log_that_holds_no_step_is_refused_when_forced() -> None:
    with pytest.raises(BadInputError, match="log_profile"):
        read_text("hello world, this is text\n" * 3, "training-log")


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(["step", "step", "step", "save", "start", "noise", "back"]), st.integers(0, 400)),
        min_size=2,
        max_size=40,
    ),
    st.integers(0, 60),
)
def test_the_parts_add_up_to_the_wall_time(events: list[tuple[str, int]], cut: int) -> None:
    at_s, step, rows = 0, 0, []
    for what, gap in events:
        at_s += gap
        step = max(0, step - 3) if what == "back" else step + 1
        stamp = f"2025-07-01 {10 + at_s // 3600:02d}:{at_s // 60 % 60:02d}:{at_s % 60:02d},000 - root - INFO - "
        match what:
            case "save":
                rows.append(f"[titan] {stamp}Finished saving the checkpoint in {gap / 2:.2f} seconds.")
            case "start":
                rows.append(start(at_s))
            case "noise":
                rows.append(f"[titan] {stamp}hello")
            case _:
                rows.append(titan(at_s, step))
    text = "\n".join([titan(0, 0), *rows])
    log = read_log(text[: len(text) - cut] if cut < len(text) - 150 else text)
    made = intervals_of(log)
    if made is None:
        # Without a duration of any step (one moment, or times cut away) there is nothing to add up.
        assert log.clock.value == "none" or log.median_step_s() is None
        return
    assert abs(sum(made.parts_us().values()) - made.wall_us) <= 1000
    assert all(length >= 0 for length in made.parts_us().values())
    assert made.wall_us <= (at_s + 1) * 1_000_000


NUMBERS = st.one_of(
    st.integers(0, 200).map(str),
    st.sampled_from(
        ["nan", "inf", "-inf", "-", "1e308", "-1e308", "1e-320", "9" * 30, "", "0", "0.0", "1,000", "\u00b2"]
    ),
)
LINES = st.sampled_from(
    [
        "[2025-07-01 10:00:{0}] iteration {0}/ {1} | elapsed time per iteration (ms): {2} | lm loss: {3} |",
        "[titan] 2025-07-0{0} 10:00:00,000 - root - INFO - step: {0}  loss: {1}  memory: 1GiB  tps: {2}  mfu: {3}%",
        "Finished saving the checkpoint in {0} seconds.",
        "successfully loaded checkpoint from /x at iteration {0}",
        "iter {0}: loss {1}, time {2}ms, mfu {3}%",
        "  8%|x | {0}/{1} [{2}:{3}<1:00,  {0}it/s]",
        "Epoch {0}:  1%|x | {1}/{2} [00:{3}<04:35,  {1}it/s, loss={2}]",
        "completed step: {0}, seconds: {1}, TFLOP/s/device: {2}, loss: {3}",
        "[Rank 0] step={0}, skipped={1}, lr=[{2}]",
        "[step {0}] step_time={1}s  dt_med={2}s  dt_max={3}s",
        "  Top 5 slowest ranks by data_time",
        "   {0}   {1}   {2}",
        "=== Straggler Report at Step {0} ===",
        "  optimizer: Min: {0}ms, Max: {1}ms, Slowdown: {2}x",
        "    Rank {0}: {1}ms",
        "GPU relative performance:",
        "  Rank={0} Node=n{1} Score={2}",
        "| MnRtt/Rnk: {0}ms/{1} | MxDRtt/Rnk: {2}ms/{3} | MnEtpt/Rnk: {0}TF/{1} | MxEtpt/Rnk: {2}TF/{3}",
        "node elapsed time {{{0}: {1}, {2}: {3}}}",
    ]
)


@settings(max_examples=80, deadline=None)
@given(
    st.lists(st.tuples(LINES, st.tuples(NUMBERS, NUMBERS, NUMBERS, NUMBERS)), min_size=1, max_size=25),
    st.sampled_from(["training-log", "straggler"]),
)
def test_whatever_a_log_holds_it_is_read_or_refused(rows: list[tuple[str, tuple[str, ...]]], kind: str) -> None:
    text = "\n".join(line.format(*numbers) for line, numbers in rows) + "\n"
    try:
        report = read_text(text, kind)
    except BadInputError:
        return
    assert json.loads(json.dumps(report, allow_nan=False))["kind"] == kind
    for name in ("goodput_time", "goodput_ettr", "goodput_useful_progress", "goodput_flop"):
        share = report["values"].get(name, {}).get("value")
        assert share is None or 0 <= share <= 1


def stepped(numbers: list[int], source: str = "") -> str:
    return "".join(
        f"{source}2025-07-01T10:{n // 60:02d}:{n % 60:02d}Z step {s} | loss: 2.5\n" for n, s in enumerate(numbers)
    )


@pytest.mark.parametrize("tagged", [False, True])
@pytest.mark.parametrize(("stride", "gap"), [(1, 700), (10, 5000), (100, 9000)])
@pytest.mark.parametrize("burst", [1, 3])
def test_two_jobs_in_one_log_are_no_measurement(tagged: bool, stride: int, gap: int, burst: int) -> None:
    text = ""
    for at in range(0, 30, burst):
        for job in (0, 1):
            rows = [stride * (n + 1) + gap * job for n in range(at, at + burst)]
            text += stepped(rows, f"[pod/job-{job}/train] " if tagged else "")
    report = read_text(text, None)
    assert [(v["of"], v["result"], v["reason"]) for v in report["verdicts"]] == [("job", "INVALID", "several-jobs")]
    assert "goodput_time" not in report["values"]
    assert "each job" in report["next"]


@given(st.lists(st.integers(1, 120), min_size=1, max_size=6), st.sampled_from([1, 10, 100]))
def test_restarts_are_not_taken_for_several_jobs(lengths: list[int], stride: int) -> None:
    numbers, at = list[int](), 0
    for length in lengths:
        numbers += [stride * (at + n + 1) for n in range(length)]
        at += length // 2
    assert not read_log(stepped(numbers)).mixed


def test_ranks_of_one_job_that_write_by_turns_are_one_job() -> None:
    text = "".join(stepped([step - (rank == 2)], f"[rank{rank}]: ") for step in range(2, 60) for rank in range(4))
    assert not read_log(text).mixed


def test_a_cut_line_does_not_change_the_profile() -> None:
    text = "\n".join(titan(2 * n, n) for n in range(1, 20))
    assert read_log(text + "\n" + titan(40, 20)[:80]).profile == "torchtitan"


def test_after_a_loss_that_is_no_number_the_job_should_not_go_on() -> None:
    save = "2025-07-01 10:00:01 saving checkpoint at iteration       2 to /data/run in torch_dist format\n"
    row = " iteration {n:8d}/ 100 | elapsed time per iteration (ms): 1000.0 | lm loss: {loss} | x |\n"
    good = [row.format(n=n, loss="2.5E+00") for n in range(1, 6)]
    lost = [row.format(n=n, loss="nan") for n in range(6, 9)]
    text = "".join([*good[:2], save, *good[2:], *lost])
    assert read_text(text, None)["next"].startswith(
        "Stop the job: its loss is no number from step 6 on; go back to the ch"
    )
    assert "step 2." in read_text(text, None)["next"]
    assert "is one again" in read_text(text + row.format(n=9, loss="2.5"), None)["next"]


def test_steps_as_json() -> None:
    rows = [json.dumps({"step": n, "loss": 2.5, "step_time_s": 4.0, "tokens_per_s": 51200}) for n in range(1, 9)]
    found = values("\n".join(rows) + "\n")
    assert (found["last_completed_step"], found["step_time_median"], found["wall_time"]) == (8, 4.0, 32)
