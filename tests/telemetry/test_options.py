"""Options that both deployables share, and those of the controller: taken over, or refused in one sentence."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest

from muster.cli.group import run
from muster.controller.process import ControllerProcess
from muster.errors import BadInputError, ExitCode
from muster.kube.http import BURST, RATE_PER_S, HttpApi
from muster.sim.inprocess import InProcessApi
from muster.sim.virtual import VirtualClock, run_virtual
from tests.certify.bed import Bed, Faults, names, running


@pytest.fixture(autouse=True)
def _logging(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A verb sets up the logging of its process; here the process is that of the tests."""
    monkeypatch.delenv("MUSTER_CLOCK", raising=False)
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:], root.level = handlers, level


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["controller", "run", "--requests-per-second", "nan"], "--requests-per-second must be a finite number"),
        (["controller", "run", "--requests-per-second", "inf"], "--requests-per-second must be a finite number"),
        (["controller", "run", "--requests-per-second", "0"], "--requests-per-second"),
        (["controller", "run", "--burst", "0"], "--burst"),
        (["controller", "run", "--test-image", ""], "--test-image is not the name of an image"),
        (["controller", "run", "--test-image", "a b"], "--test-image is not the name of an image"),
        (["controller", "run", "--log-format", "xml"], "--log-format"),
        (["controller", "run", "--listen", "8080"], "'8080' is not ADDRESS:PORT"),
        (["agent", "run", "--node", "n", "--interval", "nan"], "--interval must be a finite number"),
        (["agent", "run", "--node", "n", "--heartbeat", "inf"], "--heartbeat must be a finite number"),
    ],
)
def test_a_mistake_is_one_sentence(capsys: pytest.CaptureFixture[str], arguments: list[str], words: str) -> None:
    assert run(arguments) == 2
    told = capsys.readouterr().err
    assert words in told
    assert told.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], {}),
        (["--requests-per-second", "12.5"], {"rate_per_s": 12.5}),
        (["--requests-per-second", "7", "--burst", "9"], {"rate_per_s": 7.0, "burst": 9}),
    ],
)
@pytest.mark.requirement("v2.4/K8S32")
def test_the_request_rate_reaches_the_client(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str], expected: dict[str, Any]
) -> None:
    given: list[dict[str, Any]] = []

    def client(path: str | None, context: str | None, **rates: Any) -> HttpApi:
        given.append(rates)
        raise BadInputError("enough")

    monkeypatch.setattr(HttpApi, "from_kubeconfig", client)
    assert run(["controller", "run", *arguments]) == 2
    assert given == [expected]


def test_test_pods_run_the_image_that_was_given() -> None:
    async def story(clock: VirtualClock) -> None:
        b = Bed(clock, names(2), Faults())
        await b.install()
        image = "registry.example/tests:1.0"
        process = ControllerProcess(
            lambda: InProcessApi(b.store, user="muster"), clock, "a", tell=str, test_image=image
        )
        async with running(b.kubelets(), process.run()):
            await b.certify("c", names(2), "bringup")
            pods = await b.until(b.pods)
            assert {c["image"] for pod in pods for c in pod["spec"]["containers"]} == {image}

    run_virtual(story)


@pytest.mark.parametrize("verb", ["controller", "agent", "sim"])
def test_a_verb_that_needs_another_shows_its_help(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([verb]) == ExitCode.BAD_INPUT
    assert capsys.readouterr().err.startswith(f"Usage: muster {verb} [OPTIONS] COMMAND")


def test_help_says_the_bounds_that_hold_without_options(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["controller", "run", "--help"]) == ExitCode.OK
    words = " ".join(capsys.readouterr().out.split())
    assert f"Requests to the API server in the long run. [default: {RATE_PER_S:g}]" in words
    assert f"Requests at once. [default: {BURST}]" in words
