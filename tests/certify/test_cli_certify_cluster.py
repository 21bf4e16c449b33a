"""`muster certify` against an API server over HTTP: created, checked by the server, watched, explained, reported."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from muster.cli.certify_run import create as create_certification
from muster.cli.group import run
from muster.kube.api import (
    CERTIFICATION_PARTS,
    CERTIFICATIONS,
    CRDS,
    NODE_HEALTHS,
    NODES,
    AlreadyExistsError,
    InvalidError,
    NotFoundError,
    ResourceType,
    TooManyRequestsError,
)
from muster.kube.http import HttpApi
from muster.resources import crd
from muster.resources.base import API_VERSION, to_object
from muster.resources.certification import Certification, CertificationPart
from tests.certify.report_samples import Fleet, certification
from tests.certify.test_cli_certify import node
from tests.contract.server import REAL, SIMULATOR, Server, eventually, real, simulated
from tests.live.cluster import create, on, set_status

SICK = Fleet(bad=("gpu-0003",), links=(("gpu-0006", "gpu-0013"),), untested=("gpu-0001",))


SIDES = [pytest.param(SIMULATOR, id=SIMULATOR), pytest.param(REAL, id=REAL, marks=pytest.mark.real_api)]


@pytest.fixture(scope="module", params=SIDES)
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    if request.param == REAL:
        found = real(request.getfixturevalue("real_cluster"))
        install(found)
        yield found
        return
    with simulated(tmp_path_factory.mktemp("simulated")) as found:
        install(found)
        yield found


def install(server: Server) -> None:
    """Our kinds, as far as no other test brought them."""
    for manifest in crd.manifests():
        with suppress(AlreadyExistsError):
            create(server, CRDS, dict(manifest))
    for kind in (CERTIFICATIONS, CERTIFICATION_PARTS, NODE_HEALTHS):
        eventually(partial(served, server, kind))


@pytest.fixture
def fleet(server: Server) -> str:
    """The value of the label `fleet` of four nodes of this test alone; three of them have pool=a, one pool=b."""
    mark = server.unique("fleet")
    for index in range(4):
        obj = node(f"{mark}-{index}", pool="a" if index < 3 else "b", fleet=mark)
        create(server, NODES, {k: v for k, v in obj.items() if k != "status"}, obj["status"])
    return mark


def served(server: Server, res: ResourceType) -> bool:
    async def listed(api: HttpApi) -> bool:
        try:
            await api.list_page(res)
        except (NotFoundError, TooManyRequestsError):  # a new kind takes a moment
            return False
        return True

    return on(server, listed)


def muster(server: Server, *args: str) -> int:
    return run(["certify", *args, "--kubeconfig", str(server.kubeconfig)])


def put(server: Server, made: Certification, parts: list[CertificationPart]) -> str:
    """The certification and its parts as objects of the server; its name."""
    name = server.unique("cert")
    obj = {"apiVersion": API_VERSION, "kind": "Certification", **to_object(made)}
    obj["metadata"] = {"name": name, "annotations": made.metadata.annotations}
    create(server, CERTIFICATIONS, obj, obj.get("status", {}))
    for part in parts:
        body = {"apiVersion": API_VERSION, "kind": "CertificationPart", **to_object(part)}
        body["metadata"] = {"name": f"{name}-{part.spec.number}"}
        body["spec"]["certification"] = name
        body["spec"].setdefault("number", 0)
        create(server, CERTIFICATION_PARTS, body)
    return name


def stored(server: Server, name: str) -> dict[str, Any]:
    return on(server, lambda api: api.get(CERTIFICATIONS, name))


def test_run_creates_what_was_asked(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    name = server.unique("run")
    assert (
        muster(server, "run", "--nodes", "h0,h1", "--tests", "host,pair", "--name", name, "--max-minutes", "30") == 0
    )
    assert f"muster certify status {name}" in capsys.readouterr().out
    spec = stored(server, name)["spec"]
    assert (spec["nodes"], spec["tests"], spec["profile"]) == (["h0", "h1"], ["host", "pair"], "bringup")
    assert spec["budget"]["maxWallMinutes"] == 30
    assert muster(server, "run", "--nodes", "h0", "--name", name) == 2
    assert "already" in capsys.readouterr().err


def test_a_selector_is_kept_and_a_negative_one_becomes_names(server: Server, fleet: str) -> None:
    name = server.unique("run")
    assert muster(server, "run", "--target", f"fleet={fleet},pool=a", "--name", name) == 0
    spec = stored(server, name)["spec"]
    assert spec["nodeSelector"] == {"fleet": fleet, "pool": "a"}
    assert "nodes" not in spec
    other = server.unique("run")
    assert muster(server, "run", "--target", f"fleet={fleet},pool!=a", "--name", other) == 0
    spec = stored(server, other)["spec"]
    assert spec["nodes"] == [f"{fleet}-3"]
    assert "nodeSelector" not in spec


def test_the_server_has_the_last_word(server: Server) -> None:
    """What the client lets through and the server refuses is bad input, in the server's words."""
    body = {
        "apiVersion": API_VERSION,
        "kind": "Certification",
        "metadata": {"name": server.unique("run")},
        "spec": {"nodes": ["h0"], "profile": "repair", "budget": {"maxRounds": "many"}},
    }
    with pytest.raises(InvalidError, match="maxRounds") as caught:
        on(server, lambda api: create_certification(api, body))
    assert caught.value.exit_code == 2


def test_plan_reads_the_cluster_and_changes_nothing(
    server: Server, fleet: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = on(server, lambda api: api.list_page(CERTIFICATIONS)).items
    assert muster(server, "plan", "--target", f"fleet={fleet}", "--tests", "repair") == 0
    assert "4 nodes of NVIDIA-H100-80GB-HBM3 on aws, 8 GPUs each" in capsys.readouterr().out
    assert on(server, lambda api: api.list_page(CERTIFICATIONS)).items == before


def test_status_report_and_explain_read_parts_too(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    name = put(server, *certification(SICK, parts=3))
    assert muster(server, "status", name) == 3
    assert "1 failed (gpu-0003)" in capsys.readouterr().out
    assert muster(server, "report", name, "-o", "json") == 3
    report = json.loads(capsys.readouterr().out)
    assert (report["provenance"]["partsRead"], report["problems"]) == (3, [])
    assert report["curves"]
    assert muster(server, "explain", name, "gpu-0003", "-o", "json") == 0
    content = json.loads(capsys.readouterr().out)
    assert content["node"]["verdict"] == "Failed"
    assert {run["id"] for run in content["runs"]} >= set(content["node"]["evidenceFor"])
    assert muster(server, "status") == 0
    assert name in capsys.readouterr().out


def test_a_part_that_somebody_deleted_is_told(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    name = put(server, *certification(Fleet(), parts=2))
    assert muster(server, "report", name) == 0
    on(server, lambda api: api.delete(CERTIFICATION_PARTS, f"{name}-1"))
    assert muster(server, "report", name) == 3
    assert "1 of 2 parts are missing (number 1)" in capsys.readouterr().out


def test_an_unknown_certification_is_bad_input(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    name = put(server, *certification(Fleet()))
    for verb in (["status"], ["report"], ["explain"]):
        assert muster(server, *verb, f"{name}x", *(["gpu-0001"] if verb == ["explain"] else [])) == 2
        assert f"did you mean {name}?" in capsys.readouterr().err


def test_an_api_server_that_is_away_is_unreachable(
    tmp_path: Path, server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    text = server.kubeconfig.read_text()
    port = server.url.rpartition(":")[2].strip("/")
    gone = tmp_path / "gone"
    gone.write_text(text.replace(f":{port}", ":9"))
    for args in (["status"], ["run", "--nodes", "h0"], ["plan", "--nodes", "h0"], ["report", "x"]):
        assert run(["certify", *args, "--kubeconfig", str(gone)]) == 4
        told = capsys.readouterr().err
        assert told.startswith("muster: ")
        assert "Traceback" not in told


def test_a_cluster_without_the_kind_says_what_to_install(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with simulated(tmp_path) as bare:
        assert muster(bare, "run", "--nodes", "h0") == 2
        assert "install Muster's CRDs first" in capsys.readouterr().err
        assert muster(bare, "status") == 2
        assert "install Muster's CRDs first" in capsys.readouterr().err


@pytest.mark.full
def test_wait_ends_with_the_verdict_and_a_timeout_with_five(
    server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    """A certification that somebody else ends while this waits: its verdict is the exit code."""
    name = server.unique("wait")
    made, _ = certification(Fleet(nodes=4, domains=1, bad=("gpu-0003",)))
    done = to_object(made)["status"]

    def end() -> None:
        def running() -> bool:
            try:
                return bool(stored(server, name))
            except NotFoundError:
                return False

        eventually(running)
        set_status(server, CERTIFICATIONS, name, "", done)

    thread = threading.Thread(target=end)
    thread.start()
    code = muster(server, "run", "--nodes", "gpu-0000,gpu-0003", "--name", name, "--wait")
    thread.join()
    told = capsys.readouterr().out
    assert code == 3
    assert "Not passed" in told


@pytest.mark.full
def test_ctrl_c_ends_the_looking_on_and_not_the_certification(server: Server) -> None:
    name = server.unique("run")
    command = [sys.executable, "-m", "muster.cli.main", "certify", "run", "--nodes", "n1", "--wait", "--name", name]
    with subprocess.Popen(
        [*command, "--kubeconfig", str(server.kubeconfig)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert "is created" in process.stdout.readline()
        assert "Pending" in process.stdout.readline()
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=60)
    assert process.returncode == 130
    assert told.strip() == f"It goes on in the cluster. Look again: muster certify status {name}"
    assert stored(server, name)["spec"]["nodes"] == ["n1"]
