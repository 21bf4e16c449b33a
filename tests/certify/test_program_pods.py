"""Tests with an image of their own: their pods, their output, and that workers make room for them."""

from __future__ import annotations

import base64
import gzip
import json
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.certify import catalogue
from muster.certify.catalogue import CatalogueTest, Scope
from muster.certify.measure import HowEnded
from muster.certify.runners.pods import PodRunner
from muster.certify.runners.program_jobs import ClusterRunner
from muster.certify.runners.program_pods import OUTPUT_LIMIT_BYTES, end_of_program, output_of, program_spec
from muster.kube.api import PODS
from muster.kube.cache import WatchCache
from muster.resources.base import RUN_LABEL, SYSTEM_NAMESPACE
from muster.resources.certification import Pods
from muster.sim.inprocess import InProcessApi
from muster.sim.virtual import VirtualClock, run_virtual
from tests.certify.bed import End, running
from tests.certify.test_workers import PAIRS, scene
from tests.certify.worker_bed import hows, planned

OWN = CatalogueTest(
    name="own", version=1, scope=Scope.NODE, duration_s=5, deadline_s=60, command=("probe", "-x"), image="probe:1"
)
DCGM = catalogue.tests()["dcgm-diag"]


def packed(text: str) -> str:
    return "gz:" + base64.b64encode(gzip.compress(text.encode())).decode()


def test_the_pod_runs_the_command_of_the_test() -> None:
    spec = program_spec(OWN, ("a", "b"), 1, Pods(env={"A": "1"}, host_network=True), 8)
    (container,) = spec["containers"]
    assert container["image"] == "probe:1"
    assert container["command"][-2:] == ["probe", "-x"]
    env = {e["name"]: e["value"] for e in container["env"]}
    assert env == {"A": "1", "MUSTER_NODE": "b", "MUSTER_NODES": "a,b", "RANK": "1", "WORLD_SIZE": "2"}
    assert container["resources"]["limits"] == {"nvidia.com/gpu": "8"}
    assert spec["dnsPolicy"] == "ClusterFirstWithHostNet"


@pytest.mark.parametrize(
    ("script", "code"), [("echo '{\"ok\": true}'", 0), ("seq 1 200000; exit 3", 3), ("exit 7", 7)]
)
def test_the_wrapper_leaves_the_output_behind(script: str, code: int, tmp_path: Path) -> None:
    """The line of shell itself, with its paths in a folder of the test."""
    spec = program_spec(msgspec.structs.replace(OWN, command=("sh", "-c", script)), ("a",), 0, Pods(), 8)
    shell, flag, line, *rest = spec["containers"][0]["command"]
    line = line.replace("/muster-output", str(tmp_path)).replace("/dev/termination-log", str(tmp_path / "log"))
    done = subprocess.run([shell, flag, line, *rest], capture_output=True, timeout=30, check=False)
    message = (tmp_path / "log").read_text()
    assert done.returncode == code
    assert len(message) <= 4096
    expected = subprocess.run(["sh", "-c", script], capture_output=True, timeout=30, check=False).stdout.decode()
    assert done.stdout.decode() == expected
    assert expected.endswith(output_of(message))
    assert len(expected) > 4000 or output_of(message) == expected


def test_a_report_in_the_last_line_decides_else_the_exit_code() -> None:
    told = end_of_program("a", OWN, 0, 'noise\n{"ok": false, "reason": "hardware", "message": "bent"}\n')
    assert told.report is not None
    assert (told.report.ok, told.report.reason, told.report.message) == (False, "hardware", "bent")
    plain = end_of_program("a", OWN, 0, "fine")
    assert plain.report is not None
    assert plain.report.ok
    bad = end_of_program("a", OWN, 2, packed("broken"))
    assert bad.report is not None
    assert not bad.report.ok
    assert "broken" in bad.report.message


def test_what_the_parser_cannot_read_is_a_broken_test_and_no_broken_node() -> None:
    found = end_of_program("a", DCGM, 1, "Error: unable to establish a connection to the specified host: localhost")
    assert found.report is not None
    assert (found.report.ok, found.report.reason) == (False, "harness")
    assert end_of_program("a", DCGM, 1, "").how is HowEnded.CRASHED
    assert end_of_program("a", DCGM, 0, "").how is HowEnded.MUTE


@given(st.one_of(st.text(max_size=300), st.binary(max_size=300).map(lambda b: "gz:" + base64.b64encode(b).decode())))
def test_foreign_output_never_breaks_anything(message: str) -> None:
    assert len(output_of(message).encode("utf-8", "replace")) <= OUTPUT_LIMIT_BYTES
    for test in (OWN, DCGM):
        assert end_of_program("a", test, 0, message).node == "a"


def test_a_bomb_is_cut() -> None:
    assert len(output_of(packed("0" * 50_000_000))) == OUTPUT_LIMIT_BYTES


def test_workers_make_room_for_tests_with_an_image_of_their_own() -> None:
    async def scenario(clock: VirtualClock) -> None:
        async with scene(clock) as s:
            s.bed.behaviour = _answer
            s.bed._pods = WatchCache(  # the kubelets of the bed are for pods of runs only
                s.bed.api,
                PODS,
                json.loads,
                clock=clock,
                namespace=SYSTEM_NAMESPACE,
                label_selector=RUN_LABEL,
                on_change=s.bed._pod,
            )
            pods = PodRunner(InProcessApi(s.bed.store, user="muster"), clock)
            runner = ClusterRunner(s.runner, pods)
            async with running(s.bed.kubelets(), pods.run()):
                await runner.wait_synced()
                ends = await runner.carry_out(s.work(*PAIRS, planned(2, "dcgm-diag", "n00")), s.blocked)
                assert hows(ends, "r01-000") == [HowEnded.REPORTED] * 2
                assert hows(ends, "r01-002") == [HowEnded.REPORTED]
                assert [left.split()[0] for left in await s.left()] == []  # the GPUs belonged to the pod alone
                assert runner.certifications() == ("c",)
                assert runner.nodes_of("c") == ("n00",)
                ends = await runner.carry_out(s.work(planned(3, "host", "n00")), s.blocked)
                assert hows(ends, "r01-003") == [HowEnded.REPORTED]
                assert pods.certifications() == ()
                await runner.clean(s.owner, frozenset(), s.blocked)
                assert runner.certifications() == ()
                assert await s.bed.pods() == []
            assert s.bed.problems == []

    run_virtual(scenario)


def _answer(spec: dict[str, Any], node: str) -> End:
    return End(message=packed(json.dumps({"version": "4.2.3"})), exit_code=0)
