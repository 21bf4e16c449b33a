"""`muster sim up`: flags, and the real thing as a process of its own."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from muster import yamlio
from muster.cli.group import run
from muster.sim.plant import default_plant, healthy_plant, parse_plant

BAD = [
    (["--port", "70000"], "--port 70000 is not a port"),
    (["--port", "x"], "'x' is not a valid integer"),
    (["--speed", "0"], "--speed 0 is out of range"),
    (["--speed", "nan"], "--speed nan is out of range"),
    (["--nodes", "3"], "needs at least 8 nodes; 3 were asked for"),
    (["--nodes", "0", "--no-story"], "nodes must be between 1 and 10000, not 0"),
    (["--nodes", "100000"], "What was asked for is not a valid plant: nodes must be between 1 and 10000"),
    (["--domains", "65"], "domains must be between 1"),
    (["--plant", "/nonexistent/plant.yaml"], "/nonexistent/plant.yaml"),
    (["--plant", "p.yaml", "--seed", "4"], "--seed and --plant cannot be combined"),
    (["--plant", "p.yaml", "--no-story"], "--no-story and --plant cannot be combined"),
    (["--frobnicate"], "No such option"),
    (["extra"], "unexpected extra argument"),
]


@pytest.mark.parametrize(("flags", "says"), BAD, ids=[" ".join(flags) for flags, _ in BAD])
def test_bad_flags_are_one_sentence(flags: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["sim", "up", *flags]) == 2
    captured = capsys.readouterr()
    assert says in captured.err
    assert len(captured.err.strip().splitlines()) == 1
    assert captured.out == ""


@pytest.mark.parametrize("text", ["clusters: [{name: production}]\n", "not a kubeconfig\n", "a: [\n"])
def test_a_kubeconfig_of_another_cluster_is_not_written_over(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "config"
    path.write_text(text)
    assert run(["sim", "up", "--nodes", "1", "--no-story", "--kubeconfig", str(path)]) == 2
    told = capsys.readouterr().err
    assert f"{path} exists and is not the kubeconfig of a simulation" in told
    assert told.count("\n") == 1
    assert path.read_text() == text


@pytest.mark.parametrize("flags", [[], ["--seed", "7", "--nodes", "16"], ["--no-story"]])
def test_the_printed_plant_can_be_read_back(flags: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["sim", "plant", *flags]) == 0
    read_back = parse_plant(yamlio.loads(capsys.readouterr().out, "stdout"), "stdout")
    story = healthy_plant() if "--no-story" in flags else default_plant()
    assert read_back == (default_plant(7, 16) if "7" in flags else story)


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    return {**os.environ, "HOME": str(tmp_path), "PYTHONUNBUFFERED": "1"}


def start(environment: dict[str, str], *flags: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "muster.cli.main", "sim", "up", *flags]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def read_until(process: subprocess.Popen[str], pattern: str) -> str:
    """The output up to and including the line that matches."""
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line)
        if re.search(pattern, line):
            return "".join(lines)
    raise AssertionError(f"no line with {pattern!r} in {lines} {process.stderr.read() if process.stderr else ''}")


@pytest.mark.full
def test_the_cluster_answers_kubectl_and_goes_away_on_interrupt(tmp_path: Path, environment: dict[str, str]) -> None:
    kubectl = Path(sys.executable).parent / "kubectl"
    config = tmp_path / "config"
    flags = ["--nodes", "8", "--no-story", "--no-controller", "--kubeconfig", str(config)]
    process = start(environment, *flags)
    try:
        said = read_until(process, "muster controller run")
        assert "export MUSTER_CLOCK=" in said
        assert config.stat().st_mode & 0o077 == 0
        wait = [
            str(kubectl),
            "--kubeconfig",
            str(config),
            "wait",
            "--for=condition=Ready",
            "node",
            "--all",
            "--timeout=30s",
        ]
        assert subprocess.run(wait, capture_output=True, text=True, check=True).stdout.count("condition met") == 8
    finally:
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    assert process.returncode == 0, err
    assert "The simulated cluster is gone." in out
    assert "Traceback" not in err


@pytest.mark.full
def test_a_port_in_use_is_one_sentence(environment: dict[str, str]) -> None:
    first = start(environment, "--nodes", "8", "--no-story", "--no-controller")
    try:
        said = read_until(first, r"https?://")
        port = re.search(r"https?://[^:/]+:(\d+)", said)
        assert port is not None
        second = start(environment, "--nodes", "8", "--no-story", "--no-controller", "--port", port.group(1))
        _, err = second.communicate(timeout=30)
        assert second.returncode == 2
        assert f"Cannot listen on 127.0.0.1:{port.group(1)}" in err
        assert len(err.strip().splitlines()) == 1
    finally:
        first.send_signal(signal.SIGTERM)
        first.communicate(timeout=30)
    assert first.returncode == 0
