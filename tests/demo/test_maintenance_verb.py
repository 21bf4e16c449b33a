"""`muster maintenance` against an API server in memory."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from muster.cli.group import run
from muster.clock import SystemClock
from muster.kube.api import CRDS, MAINTENANCES, REPAIRS, KubeApi
from muster.resources import crd
from muster.resources.base import Condition, ConditionStatus, ObjectMeta, to_object
from muster.resources.maintenance import (
    MaintainedNode,
    Maintenance,
    MaintenancePhase,
    MaintenanceSpec,
    MaintenanceStatus,
    NodeProgress,
)
from muster.resources.repair import Repair, RepairPhase, RepairSpec, RepairStatus, Rung
from muster.sim.inprocess import InProcessApi
from muster.sim.store import Store

OPENS = datetime(2126, 12, 1, 8, tzinfo=UTC)
"""Still to come for the clock of the machine, by which the API server of these tests stamps what is created."""
PLANNED = Maintenance(
    metadata=ObjectMeta(name="firmware"),
    spec=MaintenanceSpec(
        reason="new firmware", nodes=("n1", "n2", "n3"), opens_at=OPENS, closes_at=OPENS + timedelta(hours=8)
    ),
    status=MaintenanceStatus(
        phase=MaintenancePhase.HANDED_OVER,
        nodes=(
            MaintainedNode(name="n1", progress=NodeProgress.READY, since=OPENS),
            MaintainedNode(name="n2", progress=NodeProgress.DRAINING, since=OPENS),
            MaintainedNode(name="n3", progress=NodeProgress.DRAINING, since=OPENS),
        ),
    ),
)
REPAIRED = Repair(
    metadata=ObjectMeta(name="n9-1"),
    spec=RepairSpec(node_name="n9", node_uid="u9", episode="e", rung=Rung.REBOOT, provider="cloud", reason="XID 79"),
    status=RepairStatus(phase=RepairPhase.DONE, started_at=OPENS, finished_at=OPENS + timedelta(minutes=6)),
)


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> KubeApi:
    cluster = InProcessApi(Store(SystemClock()))

    async def definitions() -> None:
        for manifest in crd.manifests():
            await cluster.create(CRDS, dict(manifest))

    asyncio.run(definitions())

    def with_cluster(kubeconfig: Any, context: Any, work: Callable[[KubeApi], Awaitable[Any]]) -> Any:
        async def main() -> Any:
            return await work(cluster)

        return asyncio.run(main())

    monkeypatch.setattr("muster.cli.maintenance.with_cluster", with_cluster)
    return cluster


async def _add(api: KubeApi, resource: Any, value: Any) -> None:
    body = to_object(value) | {"apiVersion": resource.api_version, "kind": resource.kind}
    status = body.pop("status")
    created = await api.create(resource, body)
    await api.replace(resource, dict(created, status=status), subresource="status")


def test_nothing_is_said_when_there_is_nothing(api: KubeApi, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["maintenance", "list"]) == 0
    assert capsys.readouterr().out == "No maintenance is declared.\n"
    assert run(["maintenance", "records"]) == 0
    assert capsys.readouterr().out.startswith("No repair")


def test_list_counts_the_nodes(api: KubeApi, capsys: pytest.CaptureFixture[str]) -> None:
    asyncio.run(_add(api, MAINTENANCES, PLANNED))
    assert run(["maintenance", "list"]) == 0
    line = capsys.readouterr().out.splitlines()[1]
    assert line.split("  ")[0] == "firmware"
    assert "2126-12-01 08:00Z" in line
    assert "2 draining, 1 ready" in line
    assert run(["maintenance", "list", "-o", "json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["phase"], row["nodes"]) == ("HandedOver", {"draining": 2, "ready": 1})


def test_list_says_why_no_node_moves(api: KubeApi, capsys: pytest.CaptureFixture[str]) -> None:
    nobody = Condition(
        type="Valid",
        status=ConditionStatus.TRUE,
        reason="NoNodes",
        message="It concerns no node that the cluster has now.",
        last_transition_time=OPENS,
    )
    status = MaintenanceStatus(phase=MaintenancePhase.ANNOUNCED, conditions=(nobody,))
    asyncio.run(_add(api, MAINTENANCES, msgspec.structs.replace(PLANNED, status=status)))
    assert run(["maintenance", "list"]) == 0
    assert capsys.readouterr().out.endswith("firmware: It concerns no node that the cluster has now.\n")


@pytest.mark.requirement("v2.4/BFX02")
def test_records_have_ten_fields_each(api: KubeApi, capsys: pytest.CaptureFixture[str]) -> None:
    asyncio.run(_add(api, MAINTENANCES, PLANNED))
    asyncio.run(_add(api, REPAIRS, REPAIRED))
    assert run(["maintenance", "records", "--account", "team-a", "-o", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert {len(row) for row in rows} == {10}
    assert {row["account"] for row in rows} == {"team-a"}
    (repair,) = [row for row in rows if row["category"] == "repair"]
    assert (repair["actionClass"], repair["closed"]) == ("reboot", "2126-12-01T08:06:00Z")
    assert sorted(row["category"] for row in rows) == ["planned-maintenance"] * 3 + ["repair"]
    assert run(["maintenance", "records"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 5
