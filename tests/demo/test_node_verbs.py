"""`muster nodes`, `muster node` and `muster goodput` against an API server in memory."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from muster.cli.group import run
from muster.cli.nodes import row
from muster.clock import SystemClock
from muster.kube.api import CRDS, NODE_HEALTHS, NODES, KubeApi
from muster.resources import crd
from muster.resources.base import API_VERSION, from_object, to_object
from muster.resources.node_health import Cause, CauseKind, NodeHealth, Verb
from muster.sim.inprocess import InProcessApi
from muster.sim.store import Store
from tests.demo.samples import in_service, out_of_service, repairing


async def _fill(api: KubeApi) -> None:
    for manifest in crd.manifests():
        await api.create(CRDS, dict(manifest))
    for health in (in_service(), repairing(), out_of_service()):
        body = to_object(health)
        status = body.pop("status")
        body |= {"apiVersion": API_VERSION, "kind": NODE_HEALTHS.kind, "metadata": {"name": health.metadata.name}}
        created = await api.create(NODE_HEALTHS, dict(body, spec={}))
        await api.replace(NODE_HEALTHS, dict(created, status=status), subresource="status")


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> KubeApi:
    cluster = InProcessApi(Store(SystemClock()))
    asyncio.run(_fill(cluster))

    def with_cluster(kubeconfig: Any, context: Any, work: Callable[[KubeApi], Awaitable[Any]]) -> Any:
        async def main() -> Any:
            return await work(cluster)

        return asyncio.run(main())

    for module in ("nodes", "goodput_source"):
        monkeypatch.setattr(f"muster.cli.{module}.with_cluster", with_cluster)
    return cluster


def stored(api: KubeApi, name: str) -> NodeHealth:
    return from_object(NodeHealth, asyncio.run(_get(api, name)))


async def _get(api: KubeApi, name: str) -> Any:
    return await api.get(NODE_HEALTHS, name)


def test_nodes_is_a_table(api: KubeApi, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["nodes"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["NODE", "STATE", "SINCE", "CERTIFICATE", "FAULTS", "WAITS", "CAUSE", "NEXT"]
    assert [line.split()[:2] for line in lines[1:4]] == [
        ["node-01", "InService"],
        ["node-02", "Repairing"],
        ["node-03", "OutOfService"],
    ]
    assert lines[-1] == "3 nodes: 1 InService, 1 Repairing, 1 OutOfService."


def test_nodes_can_be_narrowed_and_read_by_machines(api: KubeApi, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["nodes", "--state", "repairing", "-o", "json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["node"], row["held"], row["faults"]) == ("node-02", True, 1)
    assert row["cause"] == "XID 119 on GPU 3: the GSP does not answer"


def test_a_new_node_that_failed_its_tests_shows_the_failure_and_not_that_it_is_new() -> None:
    failed = out_of_service()
    life = failed.status.lifecycle
    assert life is not None
    assert life.episode is not None
    cause = Cause(kind=CauseKind.NEW_NODE, message="The node joined and has never been certified.")
    life = msgspec.structs.replace(life, episode=msgspec.structs.replace(life.episode, cause=cause))
    status = msgspec.structs.replace(failed.status, lifecycle=life)
    assert row(msgspec.structs.replace(failed, status=status))["cause"] == "stack-1 failed it: GPU 5 does not start"


@pytest.mark.parametrize(
    ("options", "names"),
    [
        (["--fault", "xid/119"], ["node-02"]),
        (["--fault", "nothing"], []),
        (["--waits", "repair"], ["node-02"]),
        (["--waits", "budget"], []),
        (["-l", "pool=train"], ["node-01", "node-03"]),
        (["-l", "pool=train", "--state", "InService"], ["node-01"]),
    ],
)
def test_nodes_are_found_by_what_people_look_for(
    api: KubeApi, capsys: pytest.CaptureFixture[str], options: list[str], names: list[str]
) -> None:
    async def label() -> None:
        for name in ("node-01", "node-02", "node-03"):
            pool = "serve" if name == "node-02" else "train"
            body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {"pool": pool}}}
            await api.create(NODES, body)

    asyncio.run(label())
    assert run(["nodes", *options, "-o", "json"]) == 0
    assert [row["node"] for row in json.loads(capsys.readouterr().out)] == names


def test_nobody_waits_for_what_does_not_exist(api: KubeApi, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["nodes", "--waits", "weather"]) == 2
    assert "give one of agent, batch, budget" in capsys.readouterr().err


@pytest.mark.requirement("v2.4/OFM02")
def test_defer(api: KubeApi, capsys: pytest.CaptureFixture[str]) -> None:
    before = SystemClock().now()
    assert run(["node", "node-01", "defer", "--until", "6h", "--by", "alice"]) == 0
    assert "'muster node node-01' says what comes of it" in capsys.readouterr().out
    decision = stored(api, "node-01").spec.decision
    assert decision is not None
    assert decision.until is not None
    assert decision.verb is Verb.DEFER
    assert timedelta(hours=6) <= decision.until - before < timedelta(hours=6, minutes=5)
    assert run(["node", "node-01", "defer", "--until", "2199-01-01T08:00+02:00"]) == 0
    decision = stored(api, "node-01").spec.decision
    assert decision is not None
    assert decision.until == datetime(2199, 1, 1, 6, tzinfo=UTC)


@pytest.mark.parametrize(
    "args",
    [
        ["defer"],
        ["defer", "--until", "soon"],
        ["defer", "--until", "2020-01-01"],
        ["release", "--until", "6h"],
        ["--until", "6h"],
    ],
)
def test_a_time_that_does_not_fit_is_one_sentence(
    api: KubeApi, capsys: pytest.CaptureFixture[str], args: list[str]
) -> None:
    assert run(["node", "node-01", *args]) == 2
    assert "--until" in capsys.readouterr().err
    assert stored(api, "node-01").spec.decision is None


def test_node_explains(api: KubeApi, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["node", "node-03"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("node-03 is OutOfService")
    assert "INC-00042" in text


def test_a_wrong_name_is_one_sentence_with_a_suggestion(api: KubeApi, capsys: pytest.CaptureFixture[str]) -> None:
    for args in (["node", "node-3"], ["node", "node-3", "retry"]):
        assert run(args) == 2
        assert "did you mean node-03?" in capsys.readouterr().err
    assert run(["node", "zzz"]) == 2
    assert "'muster nodes' lists them" in capsys.readouterr().err


def test_hold_and_release(api: KubeApi, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["node", "node-01", "hold", "--reason", "cable work", "--by", "alice"]) == 0
    hold = stored(api, "node-01").spec.hold
    assert hold is not None
    assert (hold.by, hold.reason) == ("alice", "cable work")
    assert hold.at is not None
    assert run(["node", "node-01", "release", "--by", "bob"]) == 0
    spec = stored(api, "node-01").spec
    assert spec.hold is None
    assert spec.decision is not None
    assert (spec.decision.verb, spec.decision.by) == (Verb.RELEASE, "bob")


@pytest.mark.parametrize("verb", [v.value for v in Verb if v is not Verb.DEFER])
def test_each_decision_has_an_id_of_its_own(api: KubeApi, verb: str) -> None:
    ids = []
    for _ in range(2):
        assert run(["node", "node-02", verb]) == 0
        decision = stored(api, "node-02").spec.decision
        assert decision is not None
        assert decision.verb.value == verb
        assert decision.by
        ids.append(decision.id)
    assert ids[0] != ids[1]


def test_a_decision_leaves_the_status_alone(api: KubeApi) -> None:
    before = stored(api, "node-02").status
    assert run(["node", "node-02", "retry"]) == 0
    assert stored(api, "node-02").status == before


def test_goodput_of_a_cluster_closes(api: KubeApi, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["goodput", "--since", "1h", "-o", "json"]) == 0
    values = json.loads(capsys.readouterr().out)
    assert values["total"]["us"] == 3 * 3_600_000_000
    assert values["total"]["us"] - sum(x["us"] for x in values["losses"]) == values["busy"]["us"]


def test_goodput_of_an_unknown_pool_names_the_pools(api: KubeApi, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["goodput", "--pool", "p9"]) == 2
    assert "pools with nodes: default" in capsys.readouterr().err


def test_a_cluster_without_muster_says_so(api: KubeApi, capsys: pytest.CaptureFixture[str]) -> None:
    asyncio.run(_drop_crds(api))
    assert run(["nodes"]) == 2
    assert "install Muster's CRDs first" in capsys.readouterr().err


async def _drop_crds(api: KubeApi) -> None:
    for manifest in crd.manifests():
        await api.delete(CRDS, manifest["metadata"]["name"])


@pytest.mark.parametrize("verb", ["approve", "retry"])
def test_a_decision_that_could_change_nothing_is_refused(
    api: KubeApi, capsys: pytest.CaptureFixture[str], verb: str
) -> None:
    assert run(["node", "node-01", verb]) == 2
    assert f"there is nothing to {verb}" in capsys.readouterr().err
    assert stored(api, "node-01").spec.decision is None
    assert run(["node", "node-03", verb]) == 0
    assert stored(api, "node-03").spec.decision is not None
