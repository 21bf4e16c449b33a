"""`muster assert` and `muster drift` from the command line, over HTTP."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from muster import yamlio
from muster.cli.drift import Told
from muster.cli.group import run
from muster.cli.output import Format
from muster.configure import lock
from muster.configure.recipe import Recipe
from muster.kube.api import SECRETS, PatchType
from muster.resources.baseline import Drift, DriftClass
from tests.contract.server import Server, simulated
from tests.live.bed import APPS, component, recipe_of, release_secret, workload
from tests.live.cluster import create, on, save, set_status

DEPLOYMENT = APPS["Deployment"]
STATUS = {"observedGeneration": 1, "replicas": 1, "updatedReplicas": 1, "readyReplicas": 1, "availableReplicas": 1}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with simulated(tmp_path_factory.mktemp("simulated")) as found:
        yield found


class Scene:
    """The recipe's one component, installed and well, in a namespace of this test."""

    def __init__(self, server: Server, folder: Path) -> None:
        self.server = server
        self.namespace = server.new_namespace()
        # A name of its own: a second release of one chart anywhere would be a drift.
        self.name = server.unique("op")
        self.recipe: Recipe = recipe_of(component(self.name, self.namespace, values={"a": 1}))
        self.file = save(self.recipe, folder)
        self.release(values=self.recipe.components[0].values)

    def release(self, revision: int = 1, **record: Any) -> None:
        deployment = workload("Deployment", "d", self.namespace)
        fields = {"manifest": yamlio.dumps(deployment), "revision": revision, **record}
        create(self.server, SECRETS, release_secret(self.name, self.namespace, **fields))
        if revision == 1:
            create(self.server, DEPLOYMENT, deployment, STATUS)

    def muster(self, *args: str) -> int:
        return run([args[0], str(self.file), *args[1:], "--kubeconfig", str(self.server.kubeconfig)])

    def status(self, **status: Any) -> None:
        set_status(self.server, DEPLOYMENT, "d", self.namespace, status)

    @property
    def deployment(self) -> str:
        return f"{self.name}/Deployment/{self.namespace}/d"


@pytest.fixture
def scene(server: Server, tmp_path: Path) -> Scene:
    return Scene(server, tmp_path)


def test_all_passed_is_0_and_the_count_is_shown(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    assert scene.muster("assert") == 0
    assert capsys.readouterr().out == "4 passed, 0 failed, 0 unknown\n"
    assert scene.muster("assert", "--all") == 0
    assert scene.deployment in capsys.readouterr().out


def test_a_failure_is_3_and_says_what_where_and_why(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    scene.status(availableReplicas=0)
    assert scene.muster("assert") == 3
    out = capsys.readouterr().out
    assert f"failed   {scene.deployment}" in out
    assert "0 of 1 replicas are available" in out
    assert f"kubectl describe deployment d -n {scene.namespace}" in out


@pytest.mark.parametrize(("output", "read"), [("json", json.loads), ("yaml", lambda text: yamlio.loads(text, "out"))])
def test_the_results_are_data(scene: Scene, capsys: pytest.CaptureFixture[str], output: str, read: Any) -> None:
    scene.status(availableReplicas=0)
    assert scene.muster("assert", "-o", output) == 3
    found = read(capsys.readouterr().out)
    assert (found["passed"], found["failed"], found["unknown"]) == (3, 1, 0)
    assert found["recipe"] == scene.recipe.digest
    assert {a["name"]: a["result"] for a in found["assertions"]}[scene.deployment] == "failed"
    assert scene.muster("drift", "-o", output) == 3
    drifts = read(capsys.readouterr().out)["drifts"]
    assert [(d["class"], d["severity"], d["component"]) for d in drifts] == [("assertion", "critical", scene.name)]


def test_wait_ends_when_all_is_well(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    scene.status(availableReplicas=0)
    mending = threading.Timer(1.0, scene.status, kwargs={"availableReplicas": 1})
    mending.start()
    assert scene.muster("assert", "--wait", "60") == 0
    mending.join()
    told = capsys.readouterr()
    assert "4 passed" in told.out
    assert f"waiting for {scene.deployment}" in told.err


def test_wait_that_runs_out_is_5_and_shows_what_is_open(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    scene.status(availableReplicas=0)
    assert scene.muster("assert", "--wait", "0.2") == 5
    told = capsys.readouterr()
    assert "1 failed" in told.out
    assert "within 0.2 s" in told.err


def test_no_drift_is_0_and_a_changed_value_is_3_without_its_secret(
    scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    assert scene.muster("drift") == 0
    assert capsys.readouterr().out == "Nothing differs.\n"
    scene.release(revision=2, values={"a": 2, "token": "hunter2"}, version="1.2.9")
    assert scene.muster("drift") == 3
    out = capsys.readouterr().out
    assert f"values         {scene.name}: {scene.name}:a: 1 -> 2" in out
    assert f"version        {scene.name}: " in out
    assert f"{scene.name}:token" in out
    assert "hunter2" not in out


def test_a_bundle_stands_for_its_recipe_with_its_changes(
    scene: Scene, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bundle = tmp_path / "bundle"
    args = ["bundle", str(scene.file), "--deployer", "helm", "-o", str(bundle), "--set", f"{scene.name}:a=2"]
    assert run(args) == 0
    capsys.readouterr()
    scene.file = bundle
    assert scene.muster("drift") == 3
    assert f"{scene.name}:a: 2 -> 1" in capsys.readouterr().out
    assert scene.muster("assert") == 0
    (bundle / "README.md").write_text("changed")
    assert scene.muster("assert") == 3
    assert "README.md was changed" in capsys.readouterr().err


BAD_RECIPES = {
    "missing": None,
    "no yaml": "a: [",
    "other": "kind: Other\n",
    "edited": "EDIT",
}


@pytest.mark.parametrize("verb", ["assert", "drift"])
@pytest.mark.parametrize("content", BAD_RECIPES)
def test_a_bad_recipe_is_2(scene: Scene, capsys: pytest.CaptureFixture[str], verb: str, content: str) -> None:
    text = BAD_RECIPES[content]
    if text is None:
        scene.file = scene.file.with_name("none.yaml")
    else:
        scene.file.write_text(lock.write(scene.recipe).replace("a: 1", "a: 3") if text == "EDIT" else text)
    assert scene.muster(verb) == 2
    _one_sentence(capsys)


@pytest.mark.parametrize("verb", ["assert", "drift"])
def test_a_kubeconfig_that_points_nowhere_is_4(
    scene: Scene, tmp_path: Path, capsys: pytest.CaptureFixture[str], verb: str
) -> None:
    config = yamlio.load(scene.server.kubeconfig)
    config["clusters"][0]["cluster"]["server"] = "https://127.0.0.1:1"
    nowhere = tmp_path / "nowhere"
    nowhere.write_text(yamlio.dumps(config))
    assert run([verb, str(scene.file), "--kubeconfig", str(nowhere)]) == 4
    assert "127.0.0.1:1" in _one_sentence(capsys)


@pytest.mark.parametrize("verb", ["assert", "drift"])
def test_a_refused_login_is_4_and_no_kubeconfig_is_2(
    scene: Scene, tmp_path: Path, capsys: pytest.CaptureFixture[str], verb: str
) -> None:
    config = yamlio.load(scene.server.kubeconfig)
    config["users"][0]["user"]["token"] = "wrong"
    stranger = tmp_path / "stranger"
    stranger.write_text(yamlio.dumps(config))
    assert run([verb, str(scene.file), "--kubeconfig", str(stranger)]) == 4
    assert "does not accept the login" in _one_sentence(capsys)
    assert run([verb, str(scene.file), "--kubeconfig", str(tmp_path / "none")]) == 2
    _one_sentence(capsys)


def test_an_interval_without_watch_is_refused(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    assert scene.muster("drift", "--interval", "5") == 2
    assert "--watch" in _one_sentence(capsys)


def test_a_snapshot_that_is_none_is_refused_before_the_cluster_is_asked(
    scene: Scene, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert scene.muster("drift", "--snapshot", str(scene.file)) == 2
    assert "snapshot" in _one_sentence(capsys)
    assert scene.muster("drift", "--snapshot", str(tmp_path / "none.yaml")) == 2
    _one_sentence(capsys)


def _one_sentence(capsys: pytest.CaptureFixture[str]) -> str:
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.startswith("muster: ")
    assert told.err.count("\n") == 1
    assert "Traceback" not in told.err
    return told.err


def test_a_watch_tells_changes_and_not_the_counting_of_restarts(capsys: pytest.CaptureFixture[str]) -> None:
    def drift(kind: DriftClass, found: str) -> Drift:
        return Drift(drift_class=kind, component="op", path=f"{kind.value} path", expected="x", found=found)

    told = Told(Format.JSON)
    now = datetime(2026, 1, 5, 8, 0, tzinfo=UTC)
    values, crash = DriftClass.VALUES, DriftClass.ASSERTION
    lines = []
    for found in (
        [drift(values, "1"), drift(crash, "restarted 3 times")],
        [drift(values, "1"), drift(crash, "restarted 4 times")],
        [drift(values, "2"), drift(crash, "restarted 5 times")],
        [drift(values, "2")],
    ):
        told.update(now, found, {})
        written = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        lines.append([(entry["change"], entry["class"]) for entry in written])
    assert lines == [[("new", "values"), ("new", "assertion")], [], [("changed", "values")], [("gone", "assertion")]]


@pytest.mark.full
def test_a_watch_prints_drifts_as_they_come_and_go(scene: Scene) -> None:
    args = [sys.executable, "-m", "muster.cli.main", "drift", str(scene.file), "--watch", "-o", "json"]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        [*args, "--kubeconfig", str(scene.server.kubeconfig)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        # A run of the tests in the background of a shell hands down that Ctrl-C is ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert "nothing differs" in process.stderr.readline()
        scene.status(availableReplicas=0)
        new = json.loads(process.stdout.readline())
        scene.status(availableReplicas=1)
        gone = json.loads(process.stdout.readline())
        process.send_signal(signal.SIGINT)
        code = process.wait(timeout=30)
    assert (new["change"], new["class"], new["component"]) == ("new", "assertion", scene.name)
    assert (gone["change"], gone["path"]) == ("gone", new["path"])
    assert code == 130


def test_scaling_is_seen_over_http(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    async def scale(api: Any) -> None:
        await api.patch(DEPLOYMENT, "d", {"spec": {"replicas": 5}}, PatchType.MERGE, scene.namespace)

    on(scene.server, scale)
    assert scene.muster("assert") == 3
    assert "newest version" in capsys.readouterr().out
