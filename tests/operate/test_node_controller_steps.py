"""Single steps of the node controller on the simulated API server: taints, checkpoints, repairs, hand-over."""

from __future__ import annotations

from datetime import timedelta

import pytest
from msgspec.structs import replace as with_fields

from muster.kube.api import CRDS, MAINTENANCES, NODE_HEALTHS, NODES, PODS, REPAIRS, Object, PatchType
from muster.operate.claims import RESOURCE_CLAIMS, RESOURCE_SLICES
from muster.operate.outputs.action import Action
from muster.resources.fault_policy import Budget, Checkpoint, Disposition, Drain, FaultPolicy, LadderStep, Rule
from muster.resources.node_health import State
from muster.resources.repair import Rung
from muster.sim.virtual import VirtualClock, run_virtual
from tests.operate.cluster import AUTOMATED, Machine, TestCluster, cluster, running, stamp
from tests.operate.worlds import fault, readings


def machines(count: int) -> list[Machine]:
    return [Machine(f"n{i:02}", domain=f"d{i % 4}") for i in range(count)]


def policy(**spec: object) -> FaultPolicy:
    return with_fields(AUTOMATED, spec=with_fields(AUTOMATED.spec, **spec))


def effects(node: Object) -> list[str]:
    return sorted(t["effect"] for t in node["spec"].get("taints") or () if t["key"] == "muster.dev/hold")


EVICTING = Rule(
    name="evicting", when="fault.code == '79'", disposition=Disposition.HOLD, no_execute=True, cordon=True
)


def test_no_execute_is_a_second_taint_that_goes_exactly_as_it_came() -> None:
    async def story(clock: VirtualClock) -> None:
        async with cluster(clock, machines(4), policy(rules=(EVICTING, *AUTOMATED.spec.rules))) as c:
            await c.until_settled()
            foreign = {"key": "other", "value": "x", "effect": "NoExecute"}
            await c.api.patch(NODES, "n01", {"spec": {"taints": [foreign]}}, PatchType.MERGE)
            c.machines["n01"].faults = (fault(seen=clock.now()),)
            await c.until_state("n01", State.QUARANTINED)
            await clock.sleep(5)
            node = await c.node("n01")
            assert effects(node) == ["NoExecute", "NoSchedule"]
            assert node["spec"]["unschedulable"] is True
            version = node["metadata"]["resourceVersion"]
            await clock.sleep(900)
            assert (await c.node("n01"))["metadata"]["resourceVersion"] == version, "it writes again and again"
            c.machines["n01"].faults = ()
            await c.until_state("n01", State.IN_SERVICE)
            await clock.sleep(5)
            node = await c.node("n01")
            assert effects(node) == []
            assert [t["key"] for t in node["spec"]["taints"]] == ["other"]
            assert not node["spec"].get("unschedulable")

    run_virtual(story)


def test_a_cordon_that_was_there_before_is_not_lifted_by_a_rule_that_cordons() -> None:
    async def story(clock: VirtualClock) -> None:
        async with cluster(clock, machines(4), policy(rules=(EVICTING, *AUTOMATED.spec.rules))) as c:
            await c.until_settled()
            await c.api.patch(NODES, "n01", {"spec": {"unschedulable": True}}, PatchType.MERGE)
            c.machines["n01"].faults = (fault(seen=clock.now()),)
            await c.until_state("n01", State.QUARANTINED)
            c.machines["n01"].faults = ()
            await c.until_state("n01", State.UNCERTIFIED)
            await clock.sleep(600)
            node = await c.node("n01")
            assert node["spec"]["unschedulable"] is True
            assert "muster.dev/cordoned-by" not in node["metadata"].get("annotations", {})

    run_virtual(story)


def test_work_that_can_save_is_asked_and_leaves_when_it_has() -> None:
    async def story(clock: VirtualClock) -> None:
        saves = policy(drain=Drain(checkpoint=Checkpoint(timeout_s=600)))
        async with cluster(clock, machines(4), saves) as c:
            await c.until_settled()
            await c.add_pod("able", "n01", annotations={"muster.dev/checkpoint": "true"})
            await c.add_pod("plain", "n01")
            c.machines["n01"].faults = (fault(seen=clock.now()),)
            life = await c.until_state("n01", State.DRAINING)
            await clock.sleep(60)
            able = await c.api.get(PODS, "able", "work")
            assert life.episode is not None
            assert able["metadata"]["annotations"]["muster.dev/checkpoint-asked"] == life.episode.id
            assert "deletionTimestamp" not in able["metadata"]
            assert (await c.api.get(PODS, "plain", "work"))["metadata"]["deletionTimestamp"]
            done = {"metadata": {"annotations": {"muster.dev/checkpoint-done": life.episode.id}}}
            await c.api.patch(PODS, "able", done, PatchType.MERGE, "work")
            await clock.sleep(5)
            assert (await c.api.get(PODS, "able", "work"))["metadata"]["deletionTimestamp"]

    run_virtual(story)


def webhook_story(statuses: list[int], evicted_by_s: float) -> list[bytes]:
    """The webhook answers with `statuses` in turn (the last for ever; 0: it hangs); returns what it was told."""
    told: list[bytes] = []

    async def story(clock: VirtualClock) -> None:
        async def send(url: str, body: bytes, within_s: float) -> int:
            told.append(body)
            status = statuses[min(len(told), len(statuses)) - 1]
            if status == 0:
                await clock.sleep(within_s)
                raise TimeoutError
            return status

        section = Drain(checkpoint=Checkpoint(annotate=False, webhook="https://saver.example/x", timeout_s=300))
        c = TestCluster(clock, machines(4), policy(drain=section))
        await c.install()
        controller = c.controller(send=send)
        async with running(c.agents(), c.provider(), c.certifier(), controller.run()):
            await c.until_settled()
            await c.add_pod("train", "n01")
            c.machines["n01"].faults = (fault(seen=clock.now()),)
            started = (await c.until_state("n01", State.DRAINING)).since

            async def gone() -> bool:
                return "deletionTimestamp" in (await c.api.get(PODS, "train", "work"))["metadata"]

            await c.until(gone, limit_s=900)
            assert clock.now() - started <= timedelta(seconds=evicted_by_s)

    run_virtual(story)
    return told


def test_a_webhook_that_saves_at_last_lets_the_pod_go() -> None:
    told = webhook_story([202, 500, 204], evicted_by_s=90)
    assert len(told) == 3
    assert len(set(told)) == 1, "the receiver must be able to tell that it is asked again"


def test_a_webhook_that_hangs_or_fails_keeps_nobody_longer_than_the_policy_says() -> None:
    assert len(webhook_story([0], evicted_by_s=330)) > 3
    assert len(webhook_story([500], evicted_by_s=330)) > 3


def test_a_released_node_is_never_rebooted_afterwards() -> None:
    async def story(clock: VirtualClock) -> None:
        actions: list[Action] = []
        c = TestCluster(clock, machines(4))
        await c.install()
        controller = c.controller(on_action=actions.append, identity="muster-1")
        async with running(c.agents(), c.provider(), c.certifier(), controller.run()):
            await c.until_settled()
            c.provider_away = True
            c.machines["n01"].faults = (fault(seen=clock.now()),)
            await c.until_state("n01", State.REPAIRING)
            await clock.sleep(30)
            decision = {"id": "d1", "verb": "release", "by": "ada", "at": stamp(clock.now())}
            await c.api.patch(NODE_HEALTHS, "n01", {"spec": {"decision": decision}}, PatchType.MERGE)
            await clock.sleep(30)
            asked = [r for r in await c.all(REPAIRS) if r["spec"]["nodeName"] == "n01"]
            assert [r["spec"].get("cancel") for r in asked] == [True]
            c.provider_away = False
            await c.until_state("n01", State.IN_SERVICE)
            await clock.sleep(3600)
            assert c.machines["n01"].repairs == []
            assert c.machines["n01"].boot == 1
            done = {(a.action, a.target): a for a in actions}
            name = asked[0]["metadata"]["name"]
            assert done[("repair-created", f"Repair/{name}")].actor == "muster-1"
            assert ("repair-cancelled", f"Repair/{name}") in done
            assert done[("decision", "NodeHealth/n01")].actor == "ada"
            assert ("hold", "Node/n01") in done
            assert ("release", "Node/n01") in done

    run_virtual(story)


def test_a_repair_that_begins_while_it_is_called_back_goes_on() -> None:
    async def story(clock: VirtualClock) -> None:
        async with cluster(clock, machines(4)) as c:
            await c.until_settled()
            c.provider_away = True
            c.machines["n01"].faults = (fault(seen=clock.now()),)
            await c.until_state("n01", State.REPAIRING)
            await clock.sleep(30)
            repair = (await c.all(REPAIRS))[0]
            begun = {"status": {"phase": "Running", "startedAt": stamp(clock.now())}}
            await c.api.patch(REPAIRS, repair["metadata"]["name"], begun, PatchType.MERGE, subresource="status")
            decision = {"id": "d1", "verb": "release", "by": "ada", "at": stamp(clock.now())}
            await c.api.patch(NODE_HEALTHS, "n01", {"spec": {"decision": decision}}, PatchType.MERGE)
            await clock.sleep(60)
            assert not (await c.all(REPAIRS))[0]["spec"].get("cancel")
            c.provider_away = False
            await c.until_state("n01", State.IN_SERVICE)
            assert c.machines["n01"].repairs == ["reboot"]

    run_virtual(story)


def test_a_repair_that_a_person_deletes_is_not_done_twice() -> None:
    async def story(clock: VirtualClock) -> None:
        async with cluster(clock, machines(4)) as c:
            await c.until_settled()
            c.provider_away = True
            c.machines["n01"].faults = (fault(seen=clock.now()),)
            await c.until_state("n01", State.REPAIRING)
            await clock.sleep(30)
            await c.api.delete(REPAIRS, (await c.all(REPAIRS))[0]["metadata"]["name"])
            c.provider_away = False
            await clock.sleep(1200)
            assert await c.all(REPAIRS) == []
            assert c.machines["n01"].boot == 1

    run_virtual(story)


@pytest.mark.requirement("v2.4/OFM05")
def test_a_node_is_handed_over_in_its_window_and_comes_back_through_its_tests() -> None:
    async def story(clock: VirtualClock) -> None:
        async with cluster(clock, machines(6)) as c:
            await c.until_settled()
            await c.add_pod("train", "n02")
            opens = clock.now() + timedelta(hours=1)
            await c.api.create(
                MAINTENANCES,
                {
                    "apiVersion": "muster.dev/v1alpha1",
                    "kind": "Maintenance",
                    "metadata": {"name": "pdu-7"},
                    "spec": {
                        "reason": "power work",
                        "nodes": ["n02"],
                        "opensAt": stamp(opens),
                        "closesAt": stamp(opens + timedelta(hours=4)),
                    },
                },
            )
            await clock.sleep(3500)
            assert (await c.states())["n02"] == "InService"
            assert "deletionTimestamp" not in (await c.api.get(PODS, "train", "work"))["metadata"]
            await c.until_state("n02", State.DRAINING, limit_s=300)
            await clock.sleep(10)
            await c.api.delete(PODS, "train", "work", grace_period_s=0)
            await c.until_state("n02", State.QUARANTINED, limit_s=300)
            await clock.sleep(60)
            life = await c.life("n02")
            assert life is not None
            assert "maintenance" in [b.kind for b in life.blockers]
            assert effects(await c.node("n02")) == ["NoSchedule"]
            await clock.sleep(1800)
            assert c.machines["n02"].repairs == []
            back = {"status": {"handedBack": ["n02"]}}
            await c.api.patch(MAINTENANCES, "pdu-7", back, PatchType.MERGE, subresource="status")
            await c.until_state("n02", State.IN_SERVICE, limit_s=3 * 3600)

    run_virtual(story)


def test_a_bad_driver_that_shows_the_same_fault_on_many_nodes_does_not_empty_the_fleet() -> None:
    async def story(clock: VirtualClock) -> None:
        fleet = [Machine(f"n{i:02}", domain="d0") for i in range(16)]
        wide = policy(budget=Budget(max_disrupted="100%", max_disrupted_per_domain="100%"))
        async with cluster(clock, fleet, wide) as c:
            await c.until_settled()
            for machine in fleet[:8]:
                machine.fingerprint = readings(driver="bad")
                machine.faults = (fault(seen=clock.now()),)
                machine.cured_by = None
            await clock.sleep(3600)
            lives = [await c.life(m.name) for m in fleet]
            told = [b for life in lives if life is not None for b in life.blockers if b.kind == "correlation"]
            assert len(told) == 8
            assert all("8 of 16 nodes" in b.message for b in told)
            assert sum(len(m.repairs) for m in fleet) == 0
            assert list((await c.states()).values()).count("InService") == 15

    run_virtual(story)


def test_a_cluster_without_claims_is_run_without_them() -> None:
    async def story(clock: VirtualClock) -> None:
        c = TestCluster(clock, machines(4))
        await c.install()
        async with running(c.agents(), c.provider(), c.certifier(), c.controller(claims=True).run()):
            await c.until_settled()

    run_virtual(story)


def claimed(plural: str, kind: str, scope: str) -> Object:
    """A definition that stands in for what an API server of Kubernetes 1.34 serves by itself."""
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{plural}.resource.k8s.io",
            "annotations": {"api-approved.kubernetes.io": "unapproved, for a test"},
        },
        "spec": {
            "group": "resource.k8s.io",
            "scope": scope,
            "names": {"plural": plural, "singular": kind.lower(), "kind": kind, "listKind": f"{kind}List"},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": anything}}],
        },
    }


@pytest.mark.requirement("v2.4/K8S24")
def test_only_the_pod_whose_claim_gave_it_the_gpu_at_fault_is_evicted() -> None:
    async def story(clock: VirtualClock) -> None:
        rule = Rule(
            name="one-gpu",
            when="fault.code == '48'",
            disposition=Disposition.REPAIR,
            ladder=(LadderStep(rung=Rung.RESET_GPU), LadderStep(rung=Rung.TICKET)),
        )
        c = TestCluster(clock, machines(4), policy(rules=(rule, *AUTOMATED.spec.rules)))
        await c.install()
        await c.api.create(CRDS, claimed("resourceclaims", "ResourceClaim", "Namespaced"))
        await c.api.create(CRDS, claimed("resourceslices", "ResourceSlice", "Cluster"))
        async with running(c.agents(), c.provider(), c.certifier(), c.controller(claims=True).run()):
            await c.until_settled()
            devices = [{"name": f"gpu-{n}", "attributes": {"uuid": {"string": f"GPU-{n + 1}"}}} for n in range(2)]
            slice_ = {
                "apiVersion": "resource.k8s.io/v1",
                "kind": "ResourceSlice",
                "metadata": {"name": "s1"},
                "spec": {
                    "driver": "gpu.nvidia.com",
                    "nodeName": "n01",
                    "pool": {"name": "n01", "generation": 1},
                    "devices": devices,
                },
            }
            await c.api.create(RESOURCE_SLICES, slice_)
            for number in range(2):
                made = await c.add_pod(f"p{number}", "n01")
                result = {"driver": "gpu.nvidia.com", "pool": "n01", "device": f"gpu-{number}"}
                claim = {
                    "apiVersion": "resource.k8s.io/v1",
                    "kind": "ResourceClaim",
                    "metadata": {"name": f"c{number}"},
                    "status": {
                        "allocation": {"devices": {"results": [result]}},
                        "reservedFor": [{"resource": "pods", "name": f"p{number}", "uid": made["metadata"]["uid"]}],
                    },
                }
                await c.api.create(RESOURCE_CLAIMS, claim, "work")
            await clock.sleep(700)
            c.machines["n01"].cured_by = Rung.RESET_GPU
            c.machines["n01"].faults = (fault("48", seen=clock.now()),)
            await c.until_state("n01", State.DRAINING)
            await clock.sleep(30)
            assert (await c.api.get(PODS, "p0", "work"))["metadata"]["deletionTimestamp"]
            await c.api.delete(PODS, "p0", "work", grace_period_s=0)
            await c.until_state("n01", State.UNCERTIFIED, limit_s=900)
            assert "deletionTimestamp" not in (await c.api.get(PODS, "p1", "work"))["metadata"]
            assert c.machines["n01"].repairs == ["reset-gpu"]

    run_virtual(story)
