"""What a person who does not know Muster meets: plausible mistakes, and what to do on the first screen."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from muster.certify import catalogue
from muster.certify.grouping import make_plan
from muster.certify.nodes import NodeFacts
from muster.certify.report.build import build
from muster.certify.report.forecast import forecast, forecast_text
from muster.certify.report.html import html
from muster.certify.report.live import progress_line
from muster.certify.report.text import explanation, text
from muster.certify.report.words import next_step, todo
from muster.cli.certify_spec import Asked, build_spec
from muster.cli.group import run
from muster.errors import BadInputError
from muster.kube.api import CERTIFICATIONS
from muster.resources.certification import CertificationSpec, NodeVerdict, Phase
from tests.certify.bed import Bed, Faults
from tests.certify.report_samples import Fleet, certification
from tests.certify.test_cli_certify_follow import followed

SICK = Fleet(bad=("gpu-0003",), links=(("gpu-0006", "gpu-0013"),), untested=("gpu-0001",))


# Mistakes


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        (
            Asked(nodes=["n1"], tests="bringupp"),
            "'bringupp' is no profile and no test; did you mean bringup?",
        ),
        (Asked(nodes=["n1"], tests="zzz"), "'muster certify tests' lists both"),
        (Asked(nodes=["n1"], expect_transport="EFAA"), "--expect-transport 'EFAA' is not known; use one of efa, gib"),
        (Asked(nodes=["n1"], env=["1 F=x"]), "--env: '1 F' cannot be the name of a variable"),
    ],
)
def test_a_plausible_mistake_is_refused_in_one_sentence(asked: Asked, sentence: str) -> None:
    with pytest.raises(BadInputError) as caught:
        build_spec(asked)
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["EFA", "IB", "RoCE", "MNNVL", "gpudirect-tcpx", "NET/OwnPlugin", ""])
def test_transports_that_there_are_may_be_expected(name: str) -> None:
    assert build_spec(Asked(nodes=["n1"], expect_transport=name)).expected_transport == name


def test_a_command_that_is_one_text_is_told_to_be_a_list(tmp_path: Path) -> None:
    path = tmp_path / "probe.yaml"
    path.write_text("name: probe\nscope: node\ncommand: python3 /tests/probe.py\n")
    with pytest.raises(BadInputError, match="command is one text; write it as a list"):
        build_spec(Asked(nodes=["n1"], custom=[str(path)]))


def test_closed_output_is_no_internal_error() -> None:
    command = f"exec {sys.executable} -m muster.cli.main certify tests >&-"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False, env=dict(os.environ))
    assert (done.returncode, done.stderr) == (0, "")


# The plan


def facts(name: str, **other: object) -> NodeFacts:
    usual = {"uid": name, "boot_id": "b", "ready": True, "product": "H100", "gpus": 8, "domain": "d0"}
    return msgspec.convert({"name": name, **usual, **other}, NodeFacts, strict=False)


def planned(*nodes: NodeFacts, profile: str = "quick") -> str:
    spec = CertificationSpec(nodes=tuple(n.name for n in nodes), profile=profile)
    plan = make_plan("plan", spec, catalogue.profile(profile), {n.name: n for n in nodes}, {})
    return forecast_text(forecast(plan))


def test_a_plan_without_nodes_is_no_table_of_zeros() -> None:
    shown = planned(facts("n1", ready=False))
    assert "No node can be tested." in shown
    assert "n1: The node is not Ready." in shown
    assert "NODES A RUN" not in shown
    assert "0 rounds" not in shown


def test_a_plan_says_who_would_not_pass_although_nothing_fails() -> None:
    shown = planned(facts("n1"))
    assert "1 node of H100, 8 GPUs each, 1 domain" in shown
    assert "1 round, 1 run," in shown
    assert "Even when nothing fails, 1 node would not pass (n1)" in shown
    assert "partner" in shown.split("Even when")[1]
    assert "Even when" not in planned(facts("n1"), facts("n2"))


def test_a_held_node_is_sent_to_a_command_that_exists() -> None:
    shown = planned(facts("n1", held_for="repairing"))
    assert "Muster holds the node (repairing)" in shown
    assert "'muster node n1'" in shown
    assert "purpose" not in shown


# What to do


def test_the_report_begins_with_what_to_do() -> None:
    made, parts = certification(SICK)
    report = build(made, parts)
    lines = todo(report)
    assert [line.split(":")[0] for line in lines] == ["gpu-0003", "gpu-0006 - gpu-0013", "gpu-0001"]
    assert "Leave the nodes at its ends in service" in lines[1]
    page, shown = html(report), text(report)
    assert page.index("What to do") < page.index("Asked for") < page.index("Failed nodes")
    assert all(line in shown for line in lines)
    healthy = build(*certification(Fleet()))
    assert todo(healthy) == ()
    assert "What to do" not in html(healthy) + text(healthy)


def test_many_bad_nodes_do_not_flood_the_first_screen() -> None:
    names = tuple(f"gpu-{i:04d}" for i in range(64))
    made, parts = certification(Fleet(names=names, nodes=64, bad=names[::4], domains=8, tests=("host", "gpu-burn")))
    lines = todo(build(made, parts))
    assert len(lines) == 9
    assert lines[-1].startswith("8 more failed nodes")


def test_a_partner_is_not_told_to_be_kept_out() -> None:
    assert next_step("Partner", "", "", "n1") == "Nothing. It only helped to test others."


def test_what_is_not_decided_yet_has_no_reason_and_no_line_of_its_own() -> None:
    made, parts = certification(SICK)
    runs = [run for part in parts for run in part.spec.runs] + list(made.status.runs)
    status = msgspec.structs.replace(
        made.status, phase=Phase.RUNNING, nodes=(), links=(), parts=0, finished_at=None,
        runs=tuple(run for run in runs if run.round <= 2),
    )  # fmt: skip
    report = build(msgspec.structs.replace(made, status=status))
    undecided = [n for n in report.nodes if n.verdict == NodeVerdict.UNDETERMINED.value]
    assert undecided
    assert all(n.reason == "" for n in undecided)
    shown = text(report)
    assert f"{len(undecided)} nodes not decided yet." in shown
    assert "no-partner" not in shown
    assert "It is not finished: look again later." in shown
    assert "Next: Nothing yet" in explanation(report, undecided[0])


def test_the_cost_has_no_exponent() -> None:
    page = html(build(*certification(Fleet())))
    assert "20,000" in page
    assert "e+0" not in page


def test_empty_columns_leave_their_room_to_the_words() -> None:
    made, parts = certification(Fleet(bad=("gpu-0003",)))
    first = html(build(made, parts)).split("Evidence for")[1].split("</table>")[0]
    assert "<th>transport</th>" not in first
    assert "what it said" in first


# Waiting


def test_one_that_is_deleted_while_it_is_waited_for_ends_the_waiting() -> None:
    async def deleted(b: Bed) -> None:
        async def later() -> None:
            await b.clock.sleep(20.0)
            await b.api.delete(CERTIFICATIONS, "c")

        tasks.append(asyncio.get_running_loop().create_task(later()))

    tasks: list[asyncio.Task[None]] = []
    code, shown = followed(4, Faults(), beside=deleted)
    assert code == 3
    assert "c was deleted by somebody; it has no verdict." in shown


def test_a_narrow_terminal_keeps_the_numbers_and_drops_the_bar() -> None:
    made, _ = certification(SICK)
    assert progress_line(made, 10).startswith("[")
    assert progress_line(made, 10, narrow=True).startswith("Failed, round")


def test_the_command_line_refuses_with_two(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["certify", "run", "--nodes", "n1", "--expect-transport", "EFAA", "--dry-run"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_a_command_to_copy_has_whole_names_or_placeholders() -> None:
    few = todo(build(*certification(Fleet(untested=("gpu-0001", "gpu-0002")))))
    assert few[-1].endswith("muster certify run --nodes gpu-0001,gpu-0002.")
    names = tuple(f"gpu-{i:04d}" for i in range(10))
    many = todo(build(*certification(Fleet(untested=names))))
    assert many[-1].startswith("gpu-0000, gpu-0001,")
    assert many[-1].endswith("muster certify run --nodes NAME,NAME.")
