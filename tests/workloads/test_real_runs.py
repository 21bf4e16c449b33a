"""Real collectives over gloo: what healthy ranks measure, and who is named when a fault is made for real."""

from __future__ import annotations

import json
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from muster.workloads.archive import build_pyz
from muster.workloads.bandwidth import COLLECTIVES, bus_factor
from tests.torch_python import torch_python
from tests.workloads.cases import Crew, environment, free_port, spec_of

pytestmark = pytest.mark.full

QUICK = {"min_bytes": "64K", "max_bytes": "256K", "iterations": 3, "warmup": 1, "size_s": 0.2}


@pytest.fixture(scope="module")
def crew(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Crew]:
    made = Crew(torch_python(), tmp_path_factory.mktemp("crew"))
    yield made
    made.close()


@pytest.mark.parametrize("collective", COLLECTIVES)
@pytest.mark.requirement("companion/BMAAS11")
def test_a_collective_measures_every_size_and_finds_nothing_wrong(crew: Crew, collective: str) -> None:
    reports = crew.run("collective", QUICK | {"collective": collective}, nodes=3)
    assert [report.ok for report in reports] == [True] * 3, [report.message for report in reports]
    sizes = reports[0].sizes
    in_place = {"all-reduce": ["in"], "all-to-all": ["out"]}.get(collective, ["in", "out"])
    assert sorted({size["placement"] for size in sizes}) == in_place
    assert [size["sizeBytes"] for size in sizes if size["placement"] == in_place[0]] == [65532, 131064, 262140]
    for size in sizes:
        assert size["wrong"] == 0
        assert size["busbwGbPerS"] == pytest.approx(size["algbwGbPerS"] * bus_factor(collective, 3))
        assert size["algbwGbPerS"] == pytest.approx(size["sizeBytes"] / size["timeUs"] / 1e3)
    peak = max(size["busbwGbPerS"] for size in sizes)
    assert min(report.value for report in reports) == pytest.approx(peak)
    assert {report.transport for report in reports} == {"gloo-tcp"}


LACKING = """
import sys, torch.distributed as dist
from muster.workloads import rank_process
def lacking(*_, **__):
    raise RuntimeError("ProcessGroupGloo does not support this")
dist.all_to_all_single = dist.reduce_scatter_tensor = dist.all_gather_into_tensor = lacking
folder, rank = sys.argv[1:]
for name in ("all-to-all", "reduce-scatter", "all-gather"):
    rank_process.main(["--spec", f"{folder}/{name}.json", "--result", f"{folder}/{name}-{rank}.json"])
"""


def test_operations_that_the_library_lacks_are_made_of_sends(tmp_path: Path) -> None:
    names = ("all-to-all", "reduce-scatter", "all-gather")
    for name in names:
        others: dict[str, Any] = {"nodes": ("a", "b", "c"), "rendezvous": f"127.0.0.1:{free_port()}"}
        (tmp_path / f"{name}.json").write_text(
            spec_of("collective", QUICK | {"collective": name}, **others).to_json()
        )
    started = []
    for rank in range(3):
        ranked = environment() | {"RANK": str(rank), "WORLD_SIZE": "3", "LOCAL_RANK": "0"}
        argv = [str(torch_python()), "-c", LACKING, str(tmp_path), str(rank)]
        started.append(subprocess.Popen(argv, env=ranked))
    assert [process.wait(200) for process in started] == [0, 0, 0]
    for name in names:
        for rank in range(3):
            result = json.loads((tmp_path / f"{name}-{rank}.json").read_text())
            assert result["ok"], result["message"]
            assert result["versions"]["collective"] == "send/recv"
            assert all(size["wrong"] == 0 for size in result["sizes"])


@pytest.mark.parametrize("collective", ["all-gather", "all-reduce"])
def test_a_corrupt_element_names_who_sent_it(crew: Crew, collective: str) -> None:
    inject = {"node": "n1", "corrupt": True}
    reports = crew.run("collective", QUICK | {"collective": collective}, nodes=3, inject=inject)
    for report in reports:
        assert (report.ok, report.reason, report.suspects) == (False, "numeric", ("n1",))
        assert "wrong values" in report.message
    assert all(size["wrong"] > 0 for size in reports[0].sizes)


@pytest.mark.parametrize("culprit", ["n0", "n2"])
def test_who_dies_is_named_and_nobody_else(crew: Crew, culprit: str) -> None:
    reports = crew.run("collective", QUICK, nodes=4, inject={"node": culprit, "exit_at": 1})
    assert {report.reason for report in reports} == {"crash"}
    named = {name for report in reports for name in report.suspects}
    assert named == {culprit}
    assert not any(report.ok for report in reports)


def test_who_hangs_is_named_by_all_others(crew: Crew) -> None:
    params = QUICK | {"op_timeout_s": 4}
    reports = crew.run("collective", params, nodes=4, inject={"node": "n2", "hang_at": 1}, timeout_s=45.0)
    assert {report.reason for report in reports} == {"hang"}
    for report in reports:
        assert report.suspects == (() if report.node == "n2" else ("n2",))


def test_between_two_nodes_nobody_knows_who_was_lost(crew: Crew) -> None:
    params = QUICK | {"op_timeout_s": 4}
    reports = crew.run("collective", params, nodes=2, inject={"node": "n1", "hang_at": 1}, timeout_s=40.0)
    assert [report.suspects for report in reports] == [(), ()]
    assert reports[0].reason == "hang"


@pytest.mark.requirement("companion/BMAAS12")
def test_training_follows_the_expected_losses(crew: Crew, tmp_path: Path) -> None:
    params = {"steps": 12, "checkpoint": str(tmp_path), "checkpoint_every": 5}
    reports = crew.run("train", params, nodes=3)
    assert [report.ok for report in reports] == [True] * 3, [report.message for report in reports]
    assert reports[0].facts["steps"] == 12
    assert reports[0].facts["loss_last"] < reports[0].facts["loss_first"]
    assert reports[0].facts["checkpoint_s"] > 0
    assert 0 < reports[0].facts["goodput_ratio"] <= 1
    assert not list(tmp_path.glob("muster-checkpoint-*"))


@pytest.mark.requirement("companion/BMAAS12")
def test_a_wrong_gradient_leaves_the_curve(crew: Crew) -> None:
    reports = crew.run("train", {"steps": 8}, nodes=3, inject={"node": "n1", "corrupt": True})
    assert {report.reason for report in reports} == {"numeric"}
    assert "at step" in reports[0].message


def test_the_slow_rank_works_longest_and_waits_least(crew: Crew) -> None:
    reports = crew.run("train", {"steps": 10}, nodes=3, inject={"node": "n2", "sleep_s": 0.3})
    assert all(report.ok for report in reports)
    figures = [report.ranks[0] for report in reports]
    assert max(figures, key=lambda rank: rank["computeS"])["node"] == "n2"
    assert min(figures, key=lambda rank: rank["waitS"])["node"] == "n2"
    assert reports[2].facts["compute_min_s"] >= 0.3 > reports[0].facts["compute_min_s"]


def test_a_slow_sender_lowers_the_bandwidth(crew: Crew) -> None:
    params = {"max_bytes": "1M", "size_s": 0.2, "iterations": 3, "latency_count": 20}
    reports = crew.run("pair", params, nodes=2, inject={"node": "n0", "send_s_per_mib": 0.2})
    assert all(report.ok for report in reports), [report.message for report in reports]
    facts = reports[0].facts
    assert facts["forward_gb_per_s"] <= (1 << 20) / 0.2 / 1e9
    assert facts["backward_gb_per_s"] > facts["forward_gb_per_s"]
    assert 0 < facts["latency_us"] <= facts["latency_p99_us"]


def test_a_pair_finds_wrong_values(crew: Crew) -> None:
    params = {"max_bytes": "256K", "size_s": 0.1, "iterations": 2, "latency_count": 5}
    reports = crew.run("pair", params, nodes=2, inject={"node": "n1", "corrupt": True})
    assert {(report.ok, report.reason) for report in reports} == {(False, "numeric")}


@pytest.mark.parametrize(
    ("program", "params", "reason"),
    [
        ("gemm", {"duration_s": 0.5, "size": 128}, "numeric"),
        ("memory", {"most_bytes": "8M", "seconds": 0.05, "copy_bytes": "4M"}, "hardware"),
    ],
)
@pytest.mark.requirement("companion/BMAAS09")
def test_a_device_that_errs_is_named(crew: Crew, program: str, params: dict[str, Any], reason: str) -> None:
    (good,) = crew.run(program, params, nodes=1)
    assert good.ok, good.message
    assert good.value > 0
    (bad,) = crew.run(program, params, nodes=1, inject={"corrupt": True})
    assert (bad.ok, bad.reason, bad.suspects) == (False, reason, ("n0",))


@pytest.mark.parametrize(
    ("program", "params", "told"),
    [
        ("collective", {}, "one rank alone"),
        ("collective", {"dtype": "float8"}, "dtype"),
        ("collective", {"max_bytes": 0}, "max_bytes"),
        ("pair", {}, "even number"),
        ("train", {"steps": 2, "checkpoint": "/no/such/folder", "checkpoint_every": 1}, "checkpoint"),
        ("memory", {"share": 0}, "too few"),
    ],
)
def test_what_cannot_be_measured_is_no_fault_of_a_node(
    crew: Crew, program: str, params: dict[str, Any], told: str
) -> None:
    (report,) = crew.run(program, params, nodes=1)
    assert (report.ok, report.reason, report.suspects) == (False, "harness", ())
    assert told in report.message


def test_a_port_that_somebody_else_has_is_nobodys_fault(crew: Crew) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = int(taken.getsockname()[1])
        reports = crew.run("collective", QUICK, nodes=2, timeout_s=20.0, port=port)
    assert reports[0].reason == "harness"
    assert [report.suspects for report in reports] == [(), ()]


def test_the_archive_runs_collectives_on_its_own(tmp_path: Path) -> None:
    archive = build_pyz(tmp_path / "muster-workloads.pyz")
    argv = [str(torch_python()), "-I", str(archive), "all-reduce", "--ranks", "2", "--device", "cpu"]
    argv += ["--min-bytes", "64K", "--max-bytes", "128K", "--iterations", "2", "--warmup", "1", "--json"]
    done = subprocess.run(argv, capture_output=True, text=True, cwd=tmp_path, timeout=200)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert [size["wrong"] for size in report["sizes"]] == [0, 0]
    assert len(report["ranks"]) == 2


def test_ranks_started_by_somebody_else_print_one_report(tmp_path: Path) -> None:
    argv = [str(torch_python()), "-m", "muster.workloads", "all-gather", "--device", "cpu", "--json"]
    argv += ["--min-bytes", "64K", "--max-bytes", "64K", "--iterations", "2"]
    shared = environment() | {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    started = [
        subprocess.Popen(argv, env=shared | {"RANK": str(rank), "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": "2"},
                         stdout=subprocess.PIPE, text=True)
        for rank in range(2)
    ]  # fmt: skip
    printed = [process.communicate(timeout=200)[0] for process in started]
    assert [process.returncode for process in started] == [0, 0]
    assert json.loads(printed[0])["ok"] is True
    assert printed[1] == ""
