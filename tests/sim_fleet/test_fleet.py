"""The fleet on virtual time: nodes, pods, repairs, jobs and agents, seen through the API only."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from muster.kube.api import LEASES, NODE_HEALTHS, NODES, PODS, REPAIRS, PatchType
from muster.resources.base import SYSTEM_NAMESPACE, from_object
from muster.resources.node_health import NodeHealth
from muster.resources.repair import Rung
from muster.resources.topology import domain_of
from muster.sim.api_faults import Fault, FaultHook, Request, internal_error, too_many_requests, unavailable
from muster.sim.defects import Appears, CuredBy, Defect, DefectKind
from muster.sim.draws import rng
from muster.sim.fleet import REJOIN_S, Rates
from muster.sim.jobs import DONE_ANNOTATION, GRACE_PERIOD_S, JOBS, LOST_ANNOTATION, NAMESPACE
from muster.sim.plant import DriverUpdate, JobMix, Plant, Refusal
from muster.sim.tests_model import RunSpec, simulate_run
from tests.sim_fleet.cluster import FLEET_USER, Cluster, play

TESTS = ("host", "gpu-burn")
A, B, C = "gpu-001", "gpu-002", "gpu-003"


def plant(*defects: Defect, nodes: int = 4, **fields: Any) -> Plant:
    return Plant(seed=1, nodes=nodes, domains=2, defects=defects, **fields)


def xid(node: str, cured_by: CuredBy, after_s: float = 600.0, code: int = 119) -> Defect:
    return Defect(
        kind=DefectKind.XID, node=node, gpu=2, xid=code, cured_by=cured_by, appears=Appears.TIME, after_s=after_s
    )


def ready(node: dict[str, Any]) -> str:
    return next(c["status"] for c in node["status"]["conditions"] if c["type"] == "Ready")


# Nodes


def test_nodes_are_registered_with_what_a_gpu_node_shows() -> None:
    async def scenario(cluster: Cluster) -> list[dict[str, Any]]:
        return await cluster.objects(NODES)

    nodes = play(plant(nodes=16), scenario)
    assert [n["metadata"]["name"] for n in nodes] == [f"gpu-{i:03d}" for i in range(1, 17)]
    assert sorted({domain_of(n["metadata"]["labels"]) for n in nodes}) == ["domain-1", "domain-2"]
    for node in nodes:
        assert node["metadata"]["labels"]["nvidia.com/gpu.present"] == "true"
        assert node["metadata"]["labels"]["nvidia.com/gpu.count"] == "8"
        assert node["status"]["allocatable"]["nvidia.com/gpu"] == "8"
        assert node["status"]["nodeInfo"]["kubeletVersion"].startswith("v1.34.")
        assert ready(node) == "True"
    assert len({n["status"]["nodeInfo"]["bootID"] for n in nodes}) == 16


def test_kubelet_leases_are_renewed() -> None:
    async def scenario(cluster: Cluster) -> tuple[str, str]:
        before = (await cluster.api.get(LEASES, A, "kube-node-lease"))["spec"]["renewTime"]
        await cluster.clock.sleep(1300)
        return before, (await cluster.api.get(LEASES, A, "kube-node-lease"))["spec"]["renewTime"]

    before, after = play(plant(), scenario)
    assert after > before


def test_a_fleet_that_registers_held_takes_no_job_before_it_is_released() -> None:
    async def scenario(cluster: Cluster) -> tuple[int, int]:
        await cluster.clock.sleep(300)
        before = len(await job_pods(cluster))
        for node in await cluster.objects(NODES):
            await cluster.api.patch(NODES, node["metadata"]["name"], {"spec": {"taints": None}}, PatchType.MERGE)
        await cluster.clock.sleep(60)
        return before, len(await job_pods(cluster))

    assert play(plant(jobs=JobMix(count=2, nodes=2)), scenario, register_held=True) == (0, 4)


# Test pods


def test_the_pods_of_a_run_report_what_is_true() -> None:
    link = Defect(kind=DefectKind.BAD_LINK, node=A, peer=B, factor=0.4, cured_by=CuredBy.NONE)

    async def scenario(cluster: Cluster) -> tuple[Any, Any]:
        await cluster.test_pods("c", "bad", "pair", A, B)
        await cluster.test_pods("c", "good", "pair", C, "gpu-004")
        return await cluster.reports("c", "bad", 2), await cluster.reports("c", "good", 2)

    bad, good = play(plant(link), scenario)
    assert [r["node"] for r in bad] == [A, B]
    assert all(150 < r["value"] < 250 and r["ok"] for r in bad)
    assert all(r["value"] > 450 and r["ok"] and r["unit"] == "GB/s" for r in good)


def test_a_failing_rank_ends_as_a_failed_pod_with_its_report() -> None:
    bad = Defect(kind=DefectKind.BAD_NODE, node=A, gpu=3, cured_by=CuredBy.NONE)

    async def scenario(cluster: Cluster) -> tuple[Any, Any]:
        await cluster.test_pods("c", "r", "gpu-burn", A)
        return await cluster.reports("c", "r", 1), (await cluster.objects(PODS, SYSTEM_NAMESPACE))[0]["status"]

    reports, status = play(plant(bad), scenario)
    assert status["phase"] == "Failed"
    assert list(status["containerStatuses"][0]["state"]) == ["terminated"]
    assert {c["status"] for c in status["conditions"] if c["type"] in ("Ready", "ContainersReady")} == {"False"}
    assert reports[0]["reason"] == "numeric"
    assert reports[0]["suspects"] == [A]


def test_a_pod_is_refused_while_the_gpus_are_taken() -> None:
    async def scenario(cluster: Cluster) -> Any:
        await cluster.test_pods("c", "first", "gpu-burn", A)
        await cluster.clock.sleep(30)
        await cluster.test_pods("c", "second", "gpu-burn", A)
        return await cluster.reports("c", "second", 1), await cluster.reports("c", "first", 1)

    second, first = play(plant(), scenario)
    assert second == ["UnexpectedAdmissionError"]
    assert first[0]["ok"]


def test_a_run_whose_rank_is_deleted_hangs_until_the_watchdog() -> None:
    async def scenario(cluster: Cluster) -> Any:
        await cluster.test_pods("c", "r", "pair", A, B)
        await cluster.clock.sleep(30)
        await cluster.api.delete(PODS, "c-r-1", SYSTEM_NAMESPACE)

        async def ended() -> bool:
            return await cluster.pod_phase("c-r-0", SYSTEM_NAMESPACE) == "Failed"

        await cluster.until(ended)
        gone = await cluster.pod_phase("c-r-1", SYSTEM_NAMESPACE)
        return (await cluster.reports("c", "r", 1))[0], gone

    report, gone = play(plant(), scenario)
    assert gone == "gone"
    assert (report["reason"], report["suspects"]) == ("hang", [B])


def test_ranks_that_never_meet_run_into_their_deadline() -> None:
    async def scenario(cluster: Cluster) -> Any:
        await cluster.test_pods("c", "other", "gpu-burn", B)
        await cluster.clock.sleep(30)
        await cluster.test_pods("c", "r", "pair", A, B, deadline_s=200)
        return await cluster.reports("c", "r", 2)

    assert play(plant(), scenario) == ["DeadlineExceeded", "UnexpectedAdmissionError"]


# Repairs


@pytest.mark.parametrize(("rung", "least_s"), [("reboot", 360), ("power-cycle", 540), ("replace", 7200)])
def test_a_restart_gives_a_new_boot_id_and_a_silent_node_meanwhile(rung: str, least_s: int) -> None:
    async def scenario(cluster: Cluster) -> dict[str, Any]:
        before = await cluster.api.get(NODES, A)
        gpus = cluster.fleet.world.nodes[A].gpus
        seen: list[str] = []

        async def watch() -> bool:
            seen.append(ready(await cluster.api.get(NODES, A)))
            return seen[-1] != "True"

        started = cluster.clock.elapsed_s
        uid = before["metadata"]["uid"]
        spec = {"nodeName": A, "nodeUid": uid, "episode": "e", "rung": rung, "provider": "simulated-cloud"}
        obj = {"apiVersion": "muster.dev/v1alpha1", "kind": "Repair", "metadata": {"name": "r"}, "spec": spec}
        await cluster.api.create(REPAIRS, obj)
        await cluster.until(watch)
        repair = await cluster.repaired("r")
        await cluster.clock.sleep(10)
        after = await cluster.api.get(NODES, A)
        return {
            "status": repair["status"],
            "took_s": cluster.clock.elapsed_s - started,
            "down": seen[-1],
            "up": ready(after),
            "boot_ids": {n["status"]["nodeInfo"]["bootID"] for n in (before, after)},
            "same_node": after["metadata"]["uid"] == uid,
            "new_gpus": cluster.fleet.world.nodes[A].gpus != gpus,
        }

    result = play(plant(), scenario)
    assert result["status"]["phase"] == "Done"
    assert result["took_s"] >= least_s
    assert (result["down"], result["up"]) == ("Unknown", "True")
    assert len(result["boot_ids"]) == 2
    assert result["same_node"]
    assert result["new_gpus"] == (rung == "replace")


def test_a_repair_that_is_deleted_and_asked_for_again_is_made_once() -> None:
    async def scenario(cluster: Cluster) -> dict[str, Any]:
        uid = (await cluster.api.get(NODES, A))["metadata"]["uid"]
        spec = {"nodeName": A, "nodeUid": uid, "episode": "e", "rung": "reboot", "provider": "simulated-cloud"}
        obj = {"apiVersion": "muster.dev/v1alpha1", "kind": "Repair", "metadata": {"name": "r"}, "spec": spec}

        async def phase() -> str:
            return str((await cluster.api.get(REPAIRS, "r")).get("status", {}).get("phase", ""))

        await cluster.api.create(REPAIRS, obj)
        await cluster.clock.sleep(60)
        first = (await cluster.api.get(REPAIRS, "r"))["status"]
        await cluster.api.delete(REPAIRS, "r")
        await cluster.api.create(REPAIRS, obj)
        await cluster.clock.sleep(10)
        again = (await cluster.api.get(REPAIRS, "r"))["status"]
        await cluster.repaired("r")
        await cluster.api.delete(REPAIRS, "r")
        await cluster.api.create(REPAIRS, obj)
        await cluster.clock.sleep(3600)
        return {
            "first": first,
            "again": again,
            "end": await phase(),
            "boots": sum("reboot of" in event.message for event in cluster.fleet.events),
        }

    result = play(plant(), scenario)
    assert result["first"]["phase"] == "Running"
    assert result["again"] == result["first"]
    assert (result["end"], result["boots"]) == ("Done", 1)


def test_a_deleted_node_loses_its_pods_and_registers_again_as_another_node() -> None:
    async def scenario(cluster: Cluster) -> dict[str, Any]:
        uid = (await cluster.api.get(NODES, A))["metadata"]["uid"]
        await cluster.clock.sleep(60)
        await cluster.test_pods("c", "r", "gpu-burn", A)
        await cluster.clock.sleep(10)
        await cluster.api.delete(NODES, A)
        await cluster.clock.sleep(60)
        names = [n["metadata"]["name"] for n in await cluster.objects(NODES)]
        pods = await cluster.pod_phase("c-r-0", SYSTEM_NAMESPACE)
        await cluster.clock.sleep(REJOIN_S)
        back = await cluster.api.get(NODES, A)

        async def observed() -> bool:
            health = from_object(NodeHealth, await cluster.api.get(NODE_HEALTHS, A))
            return health.status.observed is not None and health.status.observed.node_uid == back["metadata"]["uid"]

        await cluster.until(observed)
        return {
            "gone": A not in names,
            "pods": pods,
            "new": back["metadata"]["uid"] != uid,
            "ready": ready(back),
            "events": [event.kind for event in cluster.fleet.events],
        }

    result = play(plant(), scenario)
    assert result == {"gone": True, "pods": "gone", "new": True, "ready": "True", "events": ["node"]}


def test_each_rung_cures_what_it_should_and_nothing_more() -> None:
    async def scenario(cluster: Cluster) -> list[int]:
        left = []
        await cluster.clock.sleep(700)
        for rung in ("reset-gpu", "reboot"):
            await cluster.repair(f"r-{rung}", A, rung)
            await cluster.repair(f"s-{rung}", B, rung)
            left.append([len(cluster.fleet.world.defects_of(n)) for n in (A, B)])
        return left

    defects = (xid(A, CuredBy.RESET_GPU), xid(B, CuredBy.REBOOT))
    assert play(plant(*defects), scenario) == [[0, 1], [0, 0]]


def test_what_a_reset_did_not_cure_is_logged_again() -> None:
    async def scenario(cluster: Cluster) -> tuple[int, int]:
        await cluster.clock.sleep(700)
        node = cluster.fleet.world.nodes[A]
        before = sum(b"Xid" in record for record in node.log)
        await cluster.repair("r", A, "reset-gpu")
        await cluster.clock.sleep(60)
        return before, sum(b"Xid" in record for record in node.log)

    before, after = play(plant(xid(A, CuredBy.REBOOT, code=48)), scenario)
    assert after == 2 * before > 0


def test_a_silent_firmware_logs_nothing_after_a_reset_but_fails_the_next_real_test() -> None:
    async def scenario(cluster: Cluster) -> tuple[int, int, list[Any]]:
        await cluster.clock.sleep(700)
        node = cluster.fleet.world.nodes[A]
        before = sum(b"Xid" in record for record in node.log)
        await cluster.repair("r", A, "reset-gpu")
        await cluster.clock.sleep(60)
        after = sum(b"Xid" in record for record in node.log)
        return before, after, [simulate_run(cluster.fleet.world, "c", RunSpec("r", t, (A,), 0)) for t in TESTS]

    before, after, outcomes = play(plant(xid(A, CuredBy.REBOOT, code=119)), scenario)
    assert after == before > 0
    assert [outcome.reports[0].ok for outcome in outcomes] == [True, False]


def test_a_reset_is_refused_while_pods_use_the_gpus() -> None:
    async def scenario(cluster: Cluster) -> Any:
        await cluster.test_pods("c", "r", "dcgm-diag", A)
        await cluster.clock.sleep(20)
        return await cluster.repair("r", A, "reset-gpu")

    status = play(plant(), scenario)["status"]
    assert status["phase"] == "Failed"
    assert "in use by muster-system/c-r-0" in status["message"]


def test_the_provider_fails_honestly() -> None:
    async def scenario(cluster: Cluster) -> list[Any]:
        refused = await cluster.repair("a", A, "replace")
        stranger = await cluster.repair("b", A, "reboot", nodeUid="another-uid")
        nowhere = await cluster.repair("c", B, "reboot", nodeName="elsewhere")
        ticket = await cluster.repair("d", A, "ticket")
        return [r["status"] for r in (refused, stranger, nowhere, ticket)]

    refusals = (Refusal(node=A, rung=Rung.REPLACE, message="no spare"),)
    refused, stranger, nowhere, ticket = play(plant(refusals=refusals), scenario)
    assert (refused["phase"], refused["message"]) == ("Failed", "no spare")
    assert stranger["phase"] == nowhere["phase"] == "Failed"
    assert (ticket["phase"], ticket["externalId"]) == ("Done", "INC-10001")


def test_a_repair_is_carried_out_once_and_only_by_its_provider() -> None:
    async def scenario(cluster: Cluster) -> tuple[int, str]:
        await cluster.repair("mine", A, "reboot")
        await cluster.api.patch(REPAIRS, "mine", {"metadata": {"labels": {"x": "y"}}}, PatchType.MERGE)
        other = await cluster.api.get(REPAIRS, "mine")
        other["metadata"] = {"name": "theirs"}
        del other["status"]
        other["spec"]["provider"] = "somebody-else"
        await cluster.api.create(REPAIRS, other)
        await cluster.clock.sleep(3600)
        theirs = await cluster.api.get(REPAIRS, "theirs")
        return cluster.fleet.world.nodes[A].boots, theirs.get("status", {}).get("phase", "Pending")

    assert play(plant(), scenario) == (2, "Pending")


# Jobs

JOB = JobMix(count=1, nodes=2, duration_s=2000.0, checkpoint_s=300.0, startup_s=60.0)


async def job_pods(cluster: Cluster) -> list[dict[str, Any]]:
    pods = await cluster.objects(PODS, NAMESPACE)
    return [p for p in pods if p["status"]["phase"] == "Running" and "deletionTimestamp" not in p["metadata"]]


async def running_pods(cluster: Cluster) -> list[dict[str, Any]]:
    async def both() -> list[dict[str, Any]] | None:
        pods = await job_pods(cluster)
        return pods if len(pods) == 2 else None

    result: list[dict[str, Any]] = await cluster.until(both)
    return result


def test_jobs_run_finish_and_follow_one_another() -> None:
    async def scenario(cluster: Cluster) -> list[dict[str, Any]]:
        await cluster.clock.sleep(8000)
        return await cluster.objects(JOBS, NAMESPACE)

    jobs = play(plant(jobs=JOB), scenario)
    complete = [j["metadata"]["name"] for j in jobs if j["status"].get("succeeded") == 2]
    assert [j["metadata"]["name"] for j in jobs][:3] == ["train-0001", "train-0002", "train-0003"]
    assert len(complete) >= 2
    assert all(j["spec"]["managedBy"] == "muster.dev/simulated-fleet" for j in jobs)


def test_pods_of_a_job_are_placed_together_and_owned() -> None:
    pods = play(plant(jobs=JOB), running_pods)
    assert {p["metadata"]["ownerReferences"][0]["kind"] for p in pods} == {"Job"}
    assert len({p["spec"]["nodeName"] for p in pods}) == 2


def test_an_evicted_job_restarts_elsewhere_and_accounts_for_what_it_lost() -> None:
    async def scenario(cluster: Cluster) -> tuple[Any, ...]:
        pods = await running_pods(cluster)
        await cluster.clock.sleep(1000)
        node = pods[0]["spec"]["nodeName"]
        await cluster.api.patch(NODES, node, {"spec": {"unschedulable": True}}, PatchType.MERGE)
        await cluster.api.evict(pods[0]["metadata"]["name"], NAMESPACE)
        await cluster.clock.sleep(10)
        again = await running_pods(cluster)
        job = (await cluster.objects(JOBS, NAMESPACE))[0]
        return node, [p["spec"]["nodeName"] for p in again], job["metadata"]["annotations"], cluster.fleet.jobs

    node, nodes, annotations, jobs = play(plant(jobs=JOB), scenario)
    assert node not in nodes
    assert int(annotations[DONE_ANNOTATION]) == 900
    assert 0 < int(annotations[LOST_ANNOTATION]) < 300
    assert [(i.node, i.why.value) for i in jobs.interruptions] == [(node, "deleted")]


def test_an_xid_crashes_the_job_on_the_node() -> None:
    async def scenario(cluster: Cluster) -> Any:
        await cluster.clock.sleep(1000)
        return cluster.fleet.jobs.interruptions

    interruptions = play(plant(xid(A, CuredBy.NONE, 700.0, code=48), jobs=JOB, nodes=2), scenario)
    assert (interruptions[0].node, interruptions[0].why.value) == (A, "exited")
    assert interruptions[0].lost_s > 0


def test_an_xid_of_a_silent_firmware_hangs_the_job_until_its_pod_is_evicted() -> None:
    async def scenario(cluster: Cluster) -> tuple[list[str], Any]:
        await cluster.clock.sleep(6000)
        pods = [p for p in await cluster.objects(PODS) if p["spec"].get("nodeName") == A]
        phases = [p["status"]["phase"] for p in pods]
        await cluster.api.evict(pods[0]["metadata"]["name"], pods[0]["metadata"]["namespace"])
        await cluster.clock.sleep(GRACE_PERIOD_S - 10)
        assert cluster.fleet.jobs.interruptions == []
        await cluster.clock.sleep(60)
        return phases, cluster.fleet.jobs.interruptions

    phases, interruptions = play(plant(xid(A, CuredBy.NONE, 700.0, code=119), jobs=JOB, nodes=2), scenario)
    assert phases == ["Running"]
    assert (interruptions[0].node, interruptions[0].why.value) == (A, "deleted")
    assert interruptions[0].lost_s <= 700.0


def test_a_job_that_restarts_on_a_broken_node_crashes_again() -> None:
    async def scenario(cluster: Cluster) -> Any:
        await cluster.clock.sleep(1000)
        return cluster.fleet.jobs.interruptions, cluster.fleet.jobs.completed

    bad = Defect(kind=DefectKind.BAD_NODE, node=B, cured_by=CuredBy.NONE)
    interruptions, completed = play(plant(bad, jobs=JOB, nodes=2), scenario)
    assert len(interruptions) > 3
    assert {(i.node, i.why.value, i.lost_s) for i in interruptions} == {(B, "exited", 0.0)}
    assert completed == 0


def test_a_slow_node_slows_its_job() -> None:
    async def scenario(cluster: Cluster) -> float:
        while not cluster.fleet.jobs.completed:
            await cluster.clock.sleep(10)
        return cluster.clock.elapsed_s

    slow = Defect(kind=DefectKind.SLOW_NODE, node=A, factor=0.5, cured_by=CuredBy.NONE)
    usual_s = play(plant(jobs=JOB, nodes=2), scenario)
    slow_s = play(plant(slow, jobs=JOB, nodes=2), scenario)
    assert slow_s - 60 == pytest.approx(2 * (usual_s - 60), rel=0.05)


def test_a_held_node_gets_no_job() -> None:
    async def scenario(cluster: Cluster) -> Any:
        pods = await cluster.objects(PODS, NAMESPACE)
        return [p["spec"].get("nodeName", "") for p in pods], [
            c["message"] for p in pods for c in p["status"].get("conditions", []) if c["type"] == "PodScheduled"
        ]

    async def hold(cluster: Cluster) -> Any:
        taint = {"key": "muster.dev/hold", "value": "new-node", "effect": "NoSchedule"}
        for node in (A, B, C):
            await cluster.api.patch(NODES, node, {"spec": {"taints": [taint]}}, PatchType.MERGE)
        await cluster.clock.sleep(300)
        return await scenario(cluster)

    mix = JobMix(count=1, nodes=2, start_s=60.0)
    nodes, messages = play(plant(jobs=mix), hold)
    assert nodes == ["", ""]
    assert messages[0].startswith("0/4 nodes are available: ")
    assert "3 node(s) had untolerated taint {muster.dev/hold: new-node}" in messages[0]


# Agents and the driver update


async def observed(cluster: Cluster, name: str) -> NodeHealth:
    return from_object(NodeHealth, await cluster.api.get(NODE_HEALTHS, name))


def test_agents_publish_what_their_node_is() -> None:
    async def scenario(cluster: Cluster) -> tuple[Any, Any]:
        await cluster.clock.sleep(60)
        return await observed(cluster, B), cluster.fleet.world.nodes[B]

    health, truth = play(plant(), scenario)
    seen = health.status.observed
    assert seen is not None
    assert seen.boot_id == truth.boot_id
    assert [g.uuid for g in seen.gpus] == [g.uuid for g in truth.gpus]
    assert health.status.lifecycle is None


def test_an_xid_becomes_an_open_fault_of_the_gpu_and_a_reboot_closes_it() -> None:
    async def scenario(cluster: Cluster) -> tuple[Any, Any]:
        await cluster.clock.sleep(620)
        opened = (await observed(cluster, A)).status.observed
        await cluster.repair("r", A, "reboot")
        await cluster.clock.sleep(300)
        return opened, (await observed(cluster, A)).status.observed

    opened, closed = play(plant(xid(A, CuredBy.REBOOT)), scenario)
    assert [(f.check, f.code) for f in opened.faults] == [("xid", "119")]
    assert opened.faults[0].entity.uuid in {g.uuid for g in opened.gpus}
    assert closed.faults == ()
    assert closed.boot_id != opened.boot_id


def test_a_reset_that_helped_closes_the_fault_and_one_that_did_not_leaves_it_open() -> None:
    async def scenario(cluster: Cluster) -> list[Any]:
        await cluster.clock.sleep(620)
        for name in (A, B):
            await cluster.repair(f"r-{name}", name, "reset-gpu")
        await cluster.clock.sleep(400)
        return [[f.code for f in (await observed(cluster, n)).status.observed.faults] for n in (A, B)]

    assert play(plant(xid(A, CuredBy.RESET_GPU, code=48), xid(B, CuredBy.REBOOT, code=48)), scenario) == [
        [],
        ["45", "48", "63"],
    ]


def test_a_driver_update_changes_every_fingerprint_in_order_without_a_boot() -> None:
    update = DriverUpdate(at_s=600.0, driver="580.95.05")
    late = Defect(
        kind=DefectKind.DEGRADED_NVLINK, node=B, factor=0.5, cured_by=CuredBy.REBOOT, appears=Appears.DRIVER_UPDATE
    )

    async def scenario(cluster: Cluster) -> list[Any]:
        await cluster.clock.sleep(500)
        assert cluster.fleet.world.active == []
        before = {n: (await observed(cluster, n)).status.observed for n in (A, B)}
        await cluster.clock.sleep(500)
        after = {n: (await observed(cluster, n)).status.observed for n in (A, B)}
        label = (await cluster.api.get(NODES, A))["metadata"]["labels"]["nvidia.com/cuda.driver-version.full"]
        return [before, after, label, list(cluster.fleet.world.active), cluster.fleet.events]

    before, after, label, active, events = play(plant(late, update=update), scenario)
    for name in (A, B):
        assert before[name].fingerprint.digest != after[name].fingerprint.digest
        assert before[name].boot_id == after[name].boot_id
    assert label == "580.95.05"
    assert active == [late]
    assert [e.kind for e in events] == ["update", "defect", "update"]


# A bad API server


def unreliable(seed: int) -> FaultHook:
    """Every fourth write of the fleet fails, before or after it took effect; every watch breaks after a while."""
    draws = rng(seed, "unreliable")

    def hook(request: Request) -> Fault | None:
        if request.user != FLEET_USER:
            return None
        if request.verb == "watch":
            return Fault(drop_after_s=draws.uniform(20.0, 200.0))
        if request.verb in ("get", "list") or draws.random() > 0.25:
            return None
        error = draws.choice([None, internal_error(), unavailable(), too_many_requests()])
        return Fault(error=error, lost=error is None, after_write=draws.random() < 0.5)

    return hook


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_fleet_works_on_through_an_unreliable_api_server(seed: int) -> None:
    async def scenario(cluster: Cluster) -> tuple[Any, ...]:
        await cluster.clock.sleep(30)
        await cluster.test_pods("c", "r", "pair", "gpu-003", "gpu-004")
        reports = await cluster.reports("c", "r", 2)
        repair = await cluster.repair("r", "gpu-004", "reboot")
        await cluster.clock.sleep(6000)
        world = cluster.fleet.world.nodes["gpu-004"]
        node = await cluster.api.get(NODES, "gpu-004")
        return (
            reports,
            repair["status"]["phase"],
            world.boots,
            node["status"]["nodeInfo"]["bootID"],
            world.boot_id,
            (cluster.fleet.jobs.completed),
        )

    mix = JobMix(count=1, nodes=2, duration_s=1000.0)
    reports, phase, boots, boot_id, true_boot_id, completed = play(plant(jobs=mix), scenario, unreliable(seed))
    assert [r["ok"] for r in reports] == [True, True]
    assert (phase, boots) == ("Done", 2)
    assert boot_id == true_boot_id
    assert completed >= 2


def test_a_quiet_fleet_writes_little_more_than_heartbeats() -> None:
    async def scenario(cluster: Cluster) -> int:
        await cluster.clock.sleep(600)
        before = cluster.store.version
        await cluster.clock.sleep(7200)
        return cluster.store.version - before

    leases = 16 * 7200 * (1 / Rates().node_heartbeat_s + 1 / Rates().agent_heartbeat_s)
    assert play(plant(nodes=16), scenario) <= 1.1 * leases


# Determinism


def story(seed: int) -> str:
    """Everything that happened in a short story, as text."""

    async def scenario(cluster: Cluster) -> str:
        await cluster.clock.sleep(1500)
        await cluster.repair("r", A, "reboot")
        await cluster.clock.sleep(1500)
        events = [f"{e.at.isoformat()} {e.kind} {e.node} {e.message}" for e in cluster.fleet.events]
        nodes = await cluster.objects(NODES)
        healths = await cluster.objects(NODE_HEALTHS)
        pods = await cluster.objects(PODS)
        return "\n".join([*events, *(msgspec.json.encode(o).decode() for o in [*nodes, *healths, *pods])])

    mix = JobMix(count=2, nodes=2, duration_s=900.0)
    update = DriverUpdate(at_s=1200.0, driver="580.95.05")
    text: str = play(
        Plant(seed=seed, nodes=8, domains=2, jobs=mix, update=update, defects=(xid(A, CuredBy.REBOOT, 700.0),)),
        scenario,
    )
    return text


def test_the_same_seed_tells_the_same_story() -> None:
    first = story(3)
    assert first == story(3)
    assert first != story(4)
    assert "XID 119" in first


@pytest.mark.full
def test_the_story_does_not_depend_on_the_hash_seed() -> None:
    program = (
        "import hashlib; from tests.sim_fleet.test_fleet import story; "
        "print(hashlib.sha256(story(3).encode()).hexdigest())"
    )
    root = Path(__file__).parents[2]
    digests = [
        subprocess.run(
            [sys.executable, "-c", program],
            cwd=root,
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "1", "12345")
    ]
    assert len(set(digests)) == 1
    assert len(digests[0].strip()) == 64
