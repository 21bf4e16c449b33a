"""`muster agent run`: one sentence for each mistake, and a whole run against the simulated API server."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path

import pytest

from muster import yamlio
from muster.agent.config import AgentConfig, load, monitors, read
from muster.agent.gpu.config import GpuSource
from muster.agent.state import DirectoryStateStore
from muster.agent.timing import limits
from muster.cli.group import run
from muster.clock import SystemClock
from muster.errors import ExitCode
from muster.kube.api import CRDS, LEASES, NAMESPACES, NODE_HEALTHS, NODES, NotFoundError
from muster.resources import crd
from muster.resources.base import SYSTEM_NAMESPACE, agent_lease, from_object
from muster.resources.node_health import NodeHealth
from muster.sim.inprocess import InProcessApi
from muster.sim.server import ApiServer
from muster.sim.store import Store
from tests.agent.node import xid

BOOT = "0f1e2d3c-0000-4000-8000-123456789abc"


def host(root: Path) -> Path:
    boot = root / "proc/sys/kernel/random/boot_id"
    boot.parent.mkdir(parents=True)
    boot.write_text(BOOT)
    return root


def sentence(capsys: pytest.CaptureFixture[str], code: int, expected: ExitCode) -> str:
    error = capsys.readouterr().err
    assert code == expected
    assert error.startswith("muster: ")
    assert error.count("\n") == 1
    return error


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--interval", "0"], "--interval"),
        (["--nonsense"], "--nonsense"),
        (["--kernel-log", "/nonexistent/kmsg"], "give --kernel-log PATH"),
        (["--kernel-log", "/"], "is a directory"),
        (["--host-root", "/nonexistent"], "Cannot read the boot ID"),
        (["--kernel-log", "{log}", "--state-dir", "/dev/null/x"], "give another --state-dir"),
        (["--kernel-log", "{log}", "--kubeconfig", "/nonexistent/config"], "Cannot read /nonexistent/config"),
    ],
)
def test_a_mistake_is_one_sentence(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    words: str,
) -> None:
    monkeypatch.delenv("MUSTER_CLOCK", raising=False)
    log = tmp_path / "kmsg"
    log.touch()
    given = [argument.replace("{log}", str(log)) for argument in arguments]
    base = ["agent", "run", "--node", "n1", "--state-dir", str(tmp_path / "state")]
    code = run([*base, "--host-root", str(host(tmp_path / "root")), *given])
    assert words in sentence(capsys, code, ExitCode.BAD_INPUT)


def test_a_node_name_is_needed(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NODE_NAME", raising=False)
    assert "--node" in sentence(capsys, run(["agent", "run"]), ExitCode.BAD_INPUT)


def test_a_clock_that_is_none_is_one_sentence(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MUSTER_CLOCK", "noon")
    assert "is not a clock" in sentence(capsys, run(["agent", "run", "--node", "n1"]), ExitCode.BAD_INPUT)


async def started(*arguments: str) -> asyncio.subprocess.Process:
    environment = {key: value for key, value in os.environ.items() if key not in ("MUSTER_CLOCK", "KUBECONFIG")}
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "muster.cli.main",
        "agent",
        "run",
        *arguments,
        env=environment,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


async def until_seen(api: InProcessApi, codes: list[str]) -> NodeHealth:
    """Follow the NodeHealth until it shows these faults."""
    start = (await api.list_page(NODE_HEALTHS)).resource_version
    try:
        first = from_object(NodeHealth, await api.get(NODE_HEALTHS, "n1"))
    except NotFoundError:
        first = None
    observed = first.status.observed if first is not None else None
    if first is not None and observed is not None and [fault.code for fault in observed.faults] == codes:
        return first
    async for event in api.watch(NODE_HEALTHS, start, timeout_s=60):
        seen = from_object(NodeHealth, json.loads(event.raw))
        observed = seen.status.observed
        if observed is not None and [fault.code for fault in observed.faults] == codes:
            return seen
    raise AssertionError(f"faults {codes} were not seen in time")


@pytest.mark.full
def test_a_process_publishes_faults_stops_on_sigterm_and_resumes(tmp_path: Path) -> None:
    log = tmp_path / "kmsg"
    log.write_text(f"3,1,1000,-;{xid(79)}\n")
    root = host(tmp_path / "root")

    async def main() -> None:
        store = Store(SystemClock())
        api = InProcessApi(store)
        for manifest in crd.manifests():
            await api.create(CRDS, manifest)
        await api.create(NAMESPACES, {"metadata": {"name": SYSTEM_NAMESPACE}})
        node = await api.create(NODES, {"metadata": {"name": "n1"}})
        async with ApiServer(store) as server:
            file = tmp_path / "kubeconfig"
            file.write_text(server.kubeconfig())
            arguments = ("--node", "n1", "--kubeconfig", str(file), "--kernel-log", str(log))
            arguments += ("--state-dir", str(tmp_path / "state"), "--host-root", str(root))

            once = await started(*arguments, "--once")
            out, error = await asyncio.wait_for(once.communicate(), 60)
            assert once.returncode == 0, error
            assert out.startswith(b"n1: 0 GPUs, 1 open faults, fingerprint sha256:")
            seen = await until_seen(api, ["79"])
            assert seen.status.observed is not None
            assert seen.status.observed.node_uid == node["metadata"]["uid"]
            assert seen.status.observed.boot_id == BOOT

            running = await started(*arguments)
            with log.open("a") as file_:
                file_.write(f"3,2,2000,-;{xid(94)}\n")
            await asyncio.wait_for(until_seen(api, ["79", "94"]), 60)
            lease = await api.get(LEASES, agent_lease("n1"), SYSTEM_NAMESPACE)
            assert lease["spec"]["holderIdentity"] == "n1"
            running.send_signal(signal.SIGTERM)
            _, error = await asyncio.wait_for(running.communicate(), 60)
            assert running.returncode == 0, error
            assert b"Traceback" not in error

            kept = DirectoryStateStore(tmp_path / "state").load()
            assert kept is not None
            assert json.loads(kept)["bootId"] == BOOT
            again = await started(*arguments, "--once")
            out, error = await asyncio.wait_for(again.communicate(), 60)
            assert b"2 open faults" in out, error
            final = await until_seen(api, ["79", "94"])
            assert final.status.observed is not None
            assert [fault.count for fault in final.status.observed.faults] == [1, 1]

    asyncio.run(main())


@pytest.mark.full
def test_a_cluster_that_does_not_answer_is_one_sentence(tmp_path: Path) -> None:
    log = tmp_path / "kmsg"
    log.touch()
    config = {
        "current-context": "x",
        "clusters": [{"name": "x", "cluster": {"server": "http://127.0.0.1:9"}}],
        "contexts": [{"name": "x", "context": {"cluster": "x"}}],
    }
    file = tmp_path / "config"
    file.write_text(json.dumps(config))
    root = host(tmp_path / "root")

    async def main() -> tuple[int | None, bytes]:
        arguments = ("--node", "n1", "--kubeconfig", str(file), "--kernel-log", str(log), "--once")
        process = await started(*arguments, "--state-dir", str(tmp_path / "s"), "--host-root", str(root))
        _, error = await asyncio.wait_for(process.communicate(), 60)
        return process.returncode, error

    code, error = asyncio.run(main())
    assert code == ExitCode.UNREACHABLE
    assert error.splitlines()[-1].startswith(b"muster: No answer from the API server http://127.0.0.1:9")


GOOD = """
gpu: {source: dcgm-exporter, url: "http://localhost:9400/metrics", expectedCount: 8}
timing:
  burstGapS: 120
  debounce: [{check: xid, code: "31", times: 3, windowS: 600}]
  grace: [{check: gpu, seconds: 900}]
  flapping: {times: 5}
"""


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("gpu: {intervall: 5}", "'gpu.intervall', which the agent does not know; did you mean 'intervalS'?"),
        ("gpus: {}", "'gpus', which the agent does not know; did you mean 'gpu'?"),
        ("timing: {debounce: [{check: x, tims: 2}]}", "'timing.debounce[0].tims'"),
        ("zzz: 1", "it knows assignments, gpu"),
        ("gpu: {source: nvlm}", "Invalid enum value 'nvlm'"),
        ("gpu: {deadlineS: -1}", "deadlineS up to 3600"),
        ("gpu: {looks: .nan}", "Expected `int`"),
        ("timing: {burstGapS: 0}", "burstGapS must be 1 to 86400"),
        ("[1, 2]", "no configuration of the agent"),
        ("gpu: [", "is not valid YAML"),
    ],
)
def test_a_configuration_with_a_mistake_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, words: str
) -> None:
    file = tmp_path / "agent.yaml"
    file.write_text(text)
    error = sentence(capsys, run(["agent", "run", "--node", "n1", "--config", str(file)]), ExitCode.BAD_INPUT)
    assert words in error
    assert str(file) in error


def test_a_configuration_that_is_not_there_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    code = run(["agent", "run", "--node", "n1", "--config", "/nonexistent/agent.yaml"])
    assert "Cannot read /nonexistent/agent.yaml" in sentence(capsys, code, ExitCode.BAD_INPUT)


def test_a_configuration_says_what_is_watched_and_how_patiently(tmp_path: Path) -> None:
    file = tmp_path / "agent.yaml"
    file.write_text(GOOD)
    config = load(file)
    assert (config.gpu.source, config.gpu.expected_count) == (GpuSource.DCGM_EXPORTER, 8)
    found = limits(config.timing)
    assert (found.burst_gap_s, found.flapping.times) == (120.0, 5)
    assert found.grace_s("gpu", "gpu-missing") == 900.0, "rows of the file go before ours"
    rule = found.patience("xid", "31")
    assert rule is not None
    assert (rule.times, rule.window_s) == (3, 600.0)
    assert load_text("") == AgentConfig()


def load_text(text: str) -> AgentConfig:
    return read(yamlio.loads(text, "test"), "test")


def test_everything_can_be_turned_off_and_names_are_unique(tmp_path: Path) -> None:
    off = load_text(
        "gpu: {enabled: false}\nnetwork: {enabled: false}\nhost: {enabled: false}\n"
        "assignments: {enabled: false}\nmaintenance: {enabled: false}\n"
    )
    api = InProcessApi(Store(SystemClock()))
    assert monitors(off, tmp_path, SystemClock(), api, "n1") == ()
    names = [monitor.name for monitor in monitors(AgentConfig(), tmp_path, SystemClock(), api, "n1")]
    assert "gpu" in names
    assert len(names) == len(set(names))
