"""The watchdog of torch: who is silent, within one process group only; and the launcher's failure summaries."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.read.collectives.elastic import Summaries
from muster.read.collectives.watchdog import silent_ranks
from muster.read.collectives.watchdog_lines import Absent, Progress, Stuck, Timeout, said
from tests.read.cases import read_text

DEFAULT = "PG ID 0 PG GUID 0(default_pg)"
OP = "ALLREDUCE"
ENDED = "Process group watchdog thread terminated with exception:"


def timeout(
    rank: int,
    seq: int = 9,
    op: str = OP,
    group: str | None = DEFAULT,
    stamp: str = "E706 14:02:11.118204513",
    own: int = -1,
) -> str:
    """What a rank prints when a collective times out; with a group in the line after it."""
    inside = rank if own < 0 else own
    head = f"[rank{rank}]:[{stamp} ProcessGroupNCCL.cpp:616] "
    text = (
        f"{head}[Rank {inside}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum={seq}, OpType={op},"
        " NumelIn=8, NumelOut=8, Timeout(ms)=600000) ran for 600021 milliseconds before timing out.\n"
    )
    if group is None:
        return text
    return (
        text
        + f"{head}[{group} Rank {inside}] Exception (either an error or timeout) detected by watchdog at work: {seq},"
        f" last enqueued NCCL work: {seq}, last completed NCCL work: {seq - 1}.\n"
    )


def read(*texts: str, **context: Any) -> dict[str, Any]:
    return read_text("".join(texts), "torch-watchdog", context)


def suspicion(report: dict[str, Any]) -> tuple[str, str, list[int]]:
    (verdict,) = [v for v in report["verdicts"] if v["of"] == "suspect-rank"]
    ranks = report["values"].get("suspect_ranks", {"value": []})["value"]
    return verdict["result"], verdict["reason"], ranks


@given(
    world=st.integers(3, 40),
    data=st.data(),
    named=st.booleans(),
    order=st.randoms(use_true_random=False),
)
def test_the_silent_minority_of_a_group_is_suspected_and_nobody_else(
    world: int, data: st.DataObject, named: bool, order: Any
) -> None:
    silent = data.draw(st.sets(st.integers(0, world - 1), max_size=world - 1))
    texts = [timeout(rank, group=DEFAULT if named else None) for rank in range(world) if rank not in silent]
    order.shuffle(texts)
    wanted = tuple(sorted(silent)) if 2 * len(silent) < world else ()
    assert silent_ranks("".join(texts).splitlines(), world) == wanted
    report = read(*texts, world_size=world)
    assert suspicion(report)[2] == list(wanted)
    assert report["values"]["timeouts"]["value"] == world - len(silent)
    assert all(fault["entity"] == {"kind": "job"} for fault in report["faults"])


@given(st.integers(2, 16), st.integers(0, 15), st.integers(1, 500))
def test_sequence_numbers_of_unnamed_groups_are_not_compared(world: int, odd: int, distance: int) -> None:
    odd %= world
    texts = [timeout(rank, 1000 - (distance if rank == odd else 0), group=None) for rank in range(world)]
    result, reason, ranks = suspicion(read(*texts, world_size=world))
    assert (result, reason, ranks) == ("UNKNOWN", "seqnum-not-comparable", [])


@given(st.integers(3, 16), st.integers(0, 15), st.integers(1, 500))
def test_a_rank_behind_in_its_own_group_is_suspected(world: int, late: int, distance: int) -> None:
    late %= world
    texts = [timeout(rank, 1000 - (distance if rank == late else 0)) for rank in range(world)]
    assert suspicion(read(*texts)) == ("WARN", "rank-behind", [late])


def test_groups_with_numbers_far_apart_are_no_evidence() -> None:
    first, second = "PG ID 2 PG GUID 7", "PG ID 5 PG GUID 11(dp)"
    texts = [timeout(rank, 100, group=first, own=rank) for rank in range(4)]
    texts += [timeout(rank, 70_000, group=second, own=rank - 4) for rank in range(4, 8)]
    report = read(*texts, world_size=8)
    assert suspicion(report) == ("UNKNOWN", "group-members-unknown", [])
    assert report["values"]["process_group"]["value"] == [{"id": 2, "guid": 7}, {"id": 5, "guid": 11, "name": "dp"}]


def test_who_waits_in_another_group_is_not_suspected() -> None:
    texts = [timeout(rank) for rank in range(6)]
    texts += [timeout(rank, 5000, group="PG ID 3 PG GUID 9", own=rank - 6) for rank in (6, 7)]
    assert suspicion(read(*texts, world_size=8)) == ("UNKNOWN", "waits-in-another-group", [])
    assert suspicion(read(*texts[:7], world_size=8)) == ("WARN", "silent-rank", [7])


def test_different_collectives_at_one_number_are_a_defect_of_the_program() -> None:
    report = read(*(timeout(rank, op=OP if rank else "BROADCAST") for rank in range(4)), world_size=4)
    assert suspicion(report) == ("UNKNOWN", "collective-mismatch", [])


def test_all_waiting_and_a_wrong_world_size_blame_nobody() -> None:
    texts = [timeout(rank) for rank in range(4)]
    assert suspicion(read(*texts, world_size=4)) == ("UNKNOWN", "all-ranks-waiting", [])
    assert suspicion(read(*texts, world_size=3)) == ("UNKNOWN", "world-size-contradicted", [])
    assert suspicion(read(*texts)) == ("UNKNOWN", "group-members-unknown", [])
    assert suspicion(read(*texts, nodes=2, ranks_per_node=4))[:2] == ("UNKNOWN", "too-few-reports")


def test_a_dump_signal_tells_where_a_rank_stands() -> None:
    dump = (
        f"[rank3]:[E706 14:02:12.2 ProcessGroupNCCL.cpp:1700] [{DEFAULT} Rank 3] Received a dump signal due to"
        " a collective timeout from rank 0 and we will try our best to dump the debug info."
        " Last enqueued NCCL work: {}, last completed NCCL work: 8.This is most likely"
        " caused by incorrect usages of collectives.\n"
    )
    texts = [timeout(rank) for rank in range(3)]
    assert suspicion(read(*texts, dump.format(8), world_size=4)) == ("WARN", "rank-behind", [3])
    assert suspicion(read(*texts, dump.format(9), world_size=4)) == ("UNKNOWN", "all-ranks-waiting", [])


def test_the_repeated_line_of_a_dying_process_counts_once() -> None:
    text = timeout(0, group=None)
    again = text.replace("[Rank 0] Watchdog", f"[{DEFAULT} Rank 0] {ENDED} [Rank 0] Watchdog")
    report = read(text, again)
    assert report["values"]["timeouts"]["value"] == 1
    assert report["faults"][0]["count"] == 1
    assert report["values"]["process_group"]["value"] == {"id": 0, "guid": 0, "name": "default_pg"}


@pytest.mark.parametrize(
    ("line", "ranks", "reason"),
    [
        ("[Rank 0]: Ranks 3, 5 failed to pass monitoredBarrier in 30000 ms", [3, 5], "barrier-not-reached"),
        ("[Rank 0]: Rank 7 failed to pass monitoredBarrier in 30000 ms", [7], "barrier-not-reached"),
        (
            "\t - To our best knowledge, ranks [2, 47] are the lagging ranks that caused this timeout."
            " They never joined any collectives",
            [2, 47],
            "named-by-desync-report",
        ),
        (
            "\t   - [1] finished collective #8, but didn't join collective #9 (count from 1)",
            [1],
            "named-by-desync-report",
        ),
    ],
)
def test_ranks_that_others_name(line: str, ranks: list[int], reason: str) -> None:
    report = read(line + "\n")
    assert suspicion(report) == ("WARN", reason, ranks)
    assert report["incidents"][0]["ranks"] == ranks


@pytest.mark.parametrize(("delay_s", "root"), [(486, "collective-timeout"), (60, "host-hang")])
def test_a_watchdog_stuck_in_the_clean_up_is_not_the_root(delay_s: int, root: str) -> None:
    minutes, seconds = divmod(delay_s, 60)
    stuck = (
        f"[rank7]:[E626 05:{6 + minutes:02d}:{seconds:02d}.0 ProcessGroupNCCL.cpp:1743] [{DEFAULT} Rank 7]"
        " ProcessGroupNCCL's watchdog got stuck for 480 seconds without making progress in monitoring enqueued"
        " collectives.\n"
    )
    report = read(timeout(2, stamp="E626 05:06:00.0"), stuck)
    assert [incident["root"] for incident in report["incidents"]] == [root]


@pytest.mark.parametrize(
    ("stamp", "date"),
    [
        ("E419 10:53:25.421620797", "04-19"),
        ("E0419 10:53:25.421620", "04-19"),
        ("E1206 18:44:12.7", "12-06"),
        ("E", None),
    ],
)
def test_stamps(stamp: str, date: str | None) -> None:
    report = read(timeout(4, stamp=stamp))
    assert report["values"].get("date", {"value": None})["value"] == date
    assert (report["incidents"][0].get("first_seen") or "--" + "x")[2:7] == (date or "x")


@given(st.integers(0, 700))
def test_a_cut_line_gives_what_is_whole(keep: int) -> None:
    text = timeout(5, 123_456)
    report = read_text("[rank1]: training\n" + text[:keep], "torch-watchdog")
    values = report["values"]
    assert values.get("seqnum", {"value": {5: 123_456}})["value"] in ({5: 123_456}, {5: None})
    assert values.get("timeout", {"value": None})["value"] in (600_000, None)
    assert values.get("ran_for", {"value": {5: None}})["value"] in ({5: 600_021}, {5: None})


def test_what_lines_say() -> None:
    assert isinstance(said(timeout(1, group=None)), Timeout)
    assert isinstance(said(timeout(1).splitlines()[1]), Progress)
    new = (
        f"[rank8]:[E603 17:48:01.0 ProcessGroupNCCL.cpp:2268] [{DEFAULT} Rank 8]  failure detected by watchdog"
        " at work sequence id: 59 PG status: last enqueued work: 78, last completed work: 58"
    )
    found = said(new)
    assert isinstance(found, Progress)
    assert (found.at, found.enqueued, found.completed, found.source.rank) == (59, 78, 58, 8)
    old = said("[E ProcessGroupNCCL.cpp:1316] [Rank 1] Heartbeat monitor timed out! Process will be terminated")
    assert isinstance(old, Stuck)
    assert old.seconds is None
    assert isinstance(said("[Rank 0]: Ranks 1, 2 failed to pass monitoredBarrier in 5 ms"), Absent)
    assert said("nothing of interest") is None
    old_group = said(
        "[rank3]:[E909 09:55:46.9 ProcessGroupNCCL.cpp:1709] [PG 0 (default_pg) Rank 3] Timeout at NCCL work: 2070,"
        " last enqueued NCCL work: 2082, last completed NCCL work: 2069."
    )
    assert isinstance(old_group, Progress)
    assert old_group.source.group is not None
    assert old_group.source.group.plain() == {"id": 0, "name": "default_pg"}


def test_victims_of_a_store_that_is_gone_are_no_cause() -> None:
    line = (
        "[rank{}]:[W706 14:02:11.1 ProcessGroupNCCL.cpp:1659] [PG ID 0 PG GUID 0 Rank {}] Failed to check"
        ' the "should dump"'
        " flag on TCPStore, (maybe TCPStore server has shut down too early), with error: Broken pipe\n"
    )
    report = read(line.format(1, 1), line.format(2, 2))
    assert report["values"]["store_victims"]["value"] == [1, 2]
    assert report["incidents"] == []
    assert [v["result"] for v in report["verdicts"]] == ["UNKNOWN"]


def summary(host: str, rank: int, code: int, clock: str, prefix: str = "") -> str:
    lines = (
        "train.py FAILED",
        "Failures:",
        "  <NO_OTHER_FAILURES>",
        "------------------------------",
        "Root Cause (first observed failure):",
        "[0]:",
        f"  time      : 2026-02-11_{clock}",
        f"  host      : {host}",
        f"  rank      : {rank} (local_rank: {rank % 8})",
        f"  exitcode  : {code} (pid: 900)",
        "  error_file: <N/A>",
        "  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html",
        "==============================",
    )
    return "".join(f"{prefix}{line}\n" for line in lines)


def test_the_earliest_of_several_summaries_is_the_first_to_end() -> None:
    texts = [summary("b", 9, 1, "05:40:19"), summary("a", 3, -9, "05:40:17"), summary("c", 17, -6, "05:40:11")]
    report = read(*texts)
    assert report["values"]["root_failure"]["value"]["rank"] == 3
    assert report["values"]["root_failure"]["value"]["signal"] == "SIGKILL"
    same = read(summary("b", 9, 1, "05:40:17"), summary("a", 3, -9, "05:40:17"))
    assert "root_failure" not in same["values"]
    assert [v["reason"] for v in same["verdicts"]] == ["no-cause-told"]


def test_a_process_that_a_watchdog_ended_is_not_the_cause() -> None:
    report = read(timeout(3), summary("a", 3, -6, "05:40:17"))
    assert "root_failure" not in report["values"]
    assert [i["root"] for i in report["incidents"]] == ["collective-timeout"]


def test_a_summary_ends_where_other_lines_begin() -> None:
    summaries = Summaries()
    taken = [summaries.take("log", n, text) for n, text in enumerate(summary("a", 3, 1, "05:40:17").splitlines(), 1)]
    assert taken == [False] + [True] * 12
    assert summaries.take("log", 20, "Epoch 3 starts") is False
    assert summaries.take("log", 21, "  rank      : 5 (local_rank: 5)") is False
    assert [failure.rank for failure in summaries.failures] == [3]
