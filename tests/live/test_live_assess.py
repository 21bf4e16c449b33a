"""Assertions over a simulated cluster: what fails, what is unknown, and that healthy things pass."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from muster.configure.catalogue import Crds, Health
from muster.configure.live.assess import assess
from muster.configure.live.kinds import Meta
from muster.configure.live.nodes import read_confirmed
from muster.configure.live.state import LiveNode, LiveState
from muster.configure.plan import plan
from muster.configure.recipe import Pool
from muster.errors import BadInputError
from muster.kube.api import (
    CRDS,
    NODES,
    SECRETS,
    ConnectionLostError,
    ForbiddenError,
    ListPage,
    PatchType,
    ResourceType,
)
from muster.resources.baseline import AssertionResult
from muster.sim.inprocess import InProcessApi
from tests.live.bed import (
    APPS,
    GPU_NODE,
    World,
    component,
    container,
    judge,
    on_gpu_nodes,
    pod,
    recipe_of,
    release_secret,
    results,
    well,
    workload,
)

PASSED, FAILED, UNKNOWN = AssertionResult.PASSED, AssertionResult.FAILED, AssertionResult.UNKNOWN
RECIPE = recipe_of(on_gpu_nodes("op"))
NS = "op"


async def healthy(world: World) -> None:
    await world.node("gpu-1")
    await world.install(
        "op",
        (workload("Deployment", "controller", NS), well("Deployment")),
        (workload("StatefulSet", "store", NS), well("StatefulSet")),
        (workload("DaemonSet", "driver", NS), well("DaemonSet")),
        (workload("Job", "setup", NS), well("Job")),
    )


def test_everything_passes_where_everything_is_well() -> None:
    found = judge(RECIPE, healthy)
    assert results(found.values()) == dict.fromkeys(
        (
            "op/Release/op/op",
            "op/Version/op/op",
            "op/DaemonSet/op/driver",
            "op/Deployment/op/controller",
            "op/Job/op/setup",
            "op/Pods/op",
            "op/StatefulSet/op/store",
        ),
        PASSED,
    )


@pytest.mark.parametrize(
    ("record", "name", "word"),
    [
        ({"status": "failed", "description": "no quota"}, "op/Release/op/op", "no quota"),
        ({"status": "pending-upgrade"}, "op/Release/op/op", "pending-upgrade"),
        ({"version": "1.2.2"}, "op/Version/op/op", "1.2.2"),
        ({"chart": "another"}, "op/Version/op/op", "another"),
    ],
)
def test_a_release_that_is_not_as_locked_fails(record: dict[str, Any], name: str, word: str) -> None:
    async def setup(world: World) -> None:
        await world.install("op", **record)

    found = judge(RECIPE, setup)
    assert found[name].result is FAILED
    assert word in found[name].message


@pytest.mark.parametrize("version", ["v1.2.3", "1.2.3"])
def test_the_spelling_of_a_version_does_not_matter(version: str) -> None:
    async def setup(world: World) -> None:
        await world.install("op", version=version)

    assert judge(RECIPE, setup)["op/Version/op/op"].result is PASSED


def test_the_newest_revision_counts() -> None:
    async def setup(world: World) -> None:
        await world.install("op", revision=9)
        await world.api.create(SECRETS, release_secret("op", NS, revision=10, status="failed"), NS)

    assert judge(RECIPE, setup)["op/Release/op/op"].result is FAILED


def test_a_component_that_is_not_installed_fails_and_a_namesake_elsewhere_is_named() -> None:
    async def setup(world: World) -> None:
        await world.namespace("else")
        await world.api.create(SECRETS, release_secret("op", "else"), "else")

    found = judge(RECIPE, setup)
    assert results(found.values()) == {"op/Release/op/op": FAILED}
    assert "else" in found["op/Release/op/op"].message


CHANGES: list[tuple[str, str, dict[str, Any], str]] = [
    ("Deployment", "controller", {"availableReplicas": 0}, "0 of 1 replicas are available"),
    ("Deployment", "controller", {"observedGeneration": 0}, "newest version"),
    ("Deployment", "controller", {"updatedReplicas": 0}, "0 of 1 replicas have the newest version"),
    ("Deployment", "controller", {"replicas": 2}, "older version"),
    ("StatefulSet", "store", {"readyReplicas": 0}, "0 of 1 replicas are ready"),
    ("DaemonSet", "driver", {"numberReady": 0}, "0 of 1 pods are ready"),
    ("DaemonSet", "driver", {"updatedNumberScheduled": 0}, "0 of 1 pods have the newest version"),
    ("DaemonSet", "driver", {"observedGeneration": 0}, "newest version"),
]


@pytest.mark.parametrize(("kind", "name", "change", "word"), CHANGES)
def test_a_workload_that_is_not_well_fails_and_says_why(
    kind: str, name: str, change: dict[str, Any], word: str
) -> None:
    async def setup(world: World) -> None:
        await healthy(world)
        await world.status(APPS[kind], name, NS, change)

    found = judge(RECIPE, setup)
    assert found[f"op/{kind}/op/{name}"].result is FAILED
    assert word in found[f"op/{kind}/op/{name}"].message
    assert [n for n, a in found.items() if a.result is not PASSED] == [f"op/{kind}/op/{name}"]


@pytest.mark.parametrize(
    ("status", "result"),
    [
        ({"active": 1}, FAILED),
        (
            {
                "failed": 3,
                "conditions": [
                    {"type": "FailureTarget", "status": "True"},
                    {"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded"},
                ],
            },
            FAILED,
        ),
    ],
)
def test_a_job_that_runs_or_failed_is_not_complete(status: dict[str, Any], result: AssertionResult) -> None:
    async def setup(world: World) -> None:
        await world.install("op", (workload("Job", "setup", NS), {"startTime": "2026-01-05T07:00:00Z", **status}))

    assert judge(RECIPE, setup)["op/Job/op/setup"].result is result


def test_a_job_that_removed_itself_is_unknown() -> None:
    async def setup(world: World) -> None:
        job = workload("Job", "setup", NS, ttlSecondsAfterFinished=60)
        await world.install("op", (job, well("Job")))
        await world.api.delete(APPS["Job"], "setup", NS)

    assert judge(RECIPE, setup)["op/Job/op/setup"].result is UNKNOWN


def test_an_object_that_is_gone_fails() -> None:
    async def setup(world: World) -> None:
        await healthy(world)
        await world.api.delete(APPS["Deployment"], "controller", NS)

    found = judge(RECIPE, setup)
    assert found["op/Deployment/op/controller"].result is FAILED
    assert "not there" in found["op/Deployment/op/controller"].message


def test_scaled_to_zero_fails_only_where_the_release_wants_more() -> None:
    async def setup(world: World) -> None:
        told = workload("Deployment", "told", NS, replicas=2)
        meant = workload("Deployment", "meant", NS, replicas=0)
        await world.install("op", (told, well("Deployment")), (meant, {"observedGeneration": 1}))
        await world.api.patch(APPS["Deployment"], "told", {"spec": {"replicas": 0}}, PatchType.MERGE, NS)

    found = judge(RECIPE, setup)
    assert found["op/Deployment/op/told"].result is FAILED
    assert found["op/Deployment/op/meant"].result is PASSED


def test_names_and_namespaces_come_from_the_objects_not_from_the_component() -> None:
    async def setup(world: World) -> None:
        renamed = workload("Deployment", "my-own-name", "my-own-place")
        await world.install("op", (renamed, {**well("Deployment"), "availableReplicas": 0}))

    assert judge(RECIPE, setup)["op/Deployment/my-own-place/my-own-name"].result is FAILED


# DaemonSets and GPU nodes


def nowhere(**spec: Any) -> Any:
    async def setup(world: World) -> None:
        await world.node("gpu-1", taints=[{"key": "nvidia.com/gpu", "effect": "NoSchedule"}])
        await world.node("cpu-1", {"kubernetes.io/os": "linux"})
        await world.install("op", (workload("DaemonSet", "driver", NS, **spec), well("DaemonSet", 0)))

    return setup


def test_no_desired_pod_on_a_cluster_with_gpu_nodes_fails_and_names_the_selector() -> None:
    found = judge(RECIPE, nowhere(pod={"nodeSelector": {"nvidia.com/gpu.deploy.driver": "true"}}))
    assert found["op/DaemonSet/op/driver"].result is FAILED
    assert "nvidia.com/gpu.deploy.driver=true matches no node" in found["op/DaemonSet/op/driver"].message


def test_no_desired_pod_because_of_a_taint_names_the_taint() -> None:
    found = judge(RECIPE, nowhere(pod={"nodeSelector": {"nvidia.com/gpu.present": "true"}}))
    assert found["op/DaemonSet/op/driver"].result is FAILED
    assert "nvidia.com/gpu:NoSchedule" in found["op/DaemonSet/op/driver"].message


def test_a_daemon_set_for_windows_needs_no_node() -> None:
    found = judge(RECIPE, nowhere(pod={"nodeSelector": {"kubernetes.io/os": "windows"}}))
    assert found["op/DaemonSet/op/driver"].result is PASSED


def test_no_desired_pod_without_gpu_nodes_is_unknown() -> None:
    async def setup(world: World) -> None:
        await world.node("cpu-1", {})
        await world.install("op", (workload("DaemonSet", "driver", NS), well("DaemonSet", 0)))

    assert judge(RECIPE, setup)["op/DaemonSet/op/driver"].result is UNKNOWN


@pytest.mark.parametrize(("capable", "result"), [("false", PASSED), ("true", FAILED)])
def test_the_mig_manager_may_be_nowhere_where_no_gpu_can_be_divided(capable: str, result: AssertionResult) -> None:
    async def setup(world: World) -> None:
        await world.node("gpu-1", {"nvidia.com/gpu.present": "true", "nvidia.com/mig.capable": capable})
        selector = {"nodeSelector": {"nvidia.com/gpu.deploy.mig-manager": "true"}}
        await world.install("op", (workload("DaemonSet", "mig", NS, pod=selector), well("DaemonSet", 0)))

    assert judge(RECIPE, setup)["op/DaemonSet/op/mig"].result is result


@pytest.mark.parametrize(
    ("taint", "tolerations", "result"),
    [
        ("example.com/gpu", [], FAILED),
        ("example.com/gpu", [{"key": "example.com/gpu", "operator": "Exists"}], PASSED),
        ("example.com/gpu", [{"operator": "Exists"}], PASSED),
        ("example.com/gpu", [{"key": "example.com/gpu", "operator": "Equal", "value": "other"}], FAILED),
        # Muster itself keeps the node free, and a cordon is no fault of the component.
        ("muster.dev/hold", [], PASSED),
        ("node.kubernetes.io/unschedulable", [], PASSED),
    ],
)
def test_a_daemon_set_must_reach_every_gpu_node_that_it_selects(
    taint: str, tolerations: list[dict[str, str]], result: AssertionResult
) -> None:
    async def setup(world: World) -> None:
        await world.node("gpu-1")
        await world.node("gpu-2", taints=[{"key": taint, "value": "x", "effect": "NoSchedule"}])
        pods = {"nodeSelector": {"nvidia.com/gpu.present": "true"}, "tolerations": tolerations}
        await world.install("op", (workload("DaemonSet", "driver", NS, pod=pods), well("DaemonSet")))

    found = judge(RECIPE, setup)["op/DaemonSet/op/driver"]
    assert found.result is result
    assert ("gpu-2" in found.message) == (result is FAILED)


@pytest.mark.parametrize("key", ["nvidia.com/mps.capable", "nvidia.com/gpu.deploy.vgpu-manager"])
def test_what_runs_only_on_nodes_chosen_for_it_may_be_nowhere(key: str) -> None:
    found = judge(RECIPE, nowhere(pod={"nodeSelector": {key: "true"}}))
    assert found["op/DaemonSet/op/driver"].result is PASSED


@pytest.mark.parametrize(("desired", "ready", "result"), [(2, 1, PASSED), (3, 1, FAILED), (1, 0, FAILED)])
@pytest.mark.parametrize("why", ["held", "down"])
def test_a_node_out_of_service_is_not_the_fault_of_the_daemon_set(
    desired: int, ready: int, result: AssertionResult, why: str
) -> None:
    async def setup(world: World) -> None:
        await world.node("gpu-1")
        held = [{"key": "muster.dev/hold", "value": "x", "effect": "NoSchedule"}]
        await world.node("gpu-2", taints=held if why == "held" else [])
        if why == "down":
            await world.status(NODES, "gpu-2", "", {"conditions": [{"type": "Ready", "status": "Unknown"}]})
        status = {**well("DaemonSet", desired), "numberReady": ready, "updatedNumberScheduled": ready}
        await world.install("op", (workload("DaemonSet", "driver", NS), status))
        waiting = {"waiting": {"reason": "CrashLoopBackOff"}}
        await world.add_pod(
            pod("p", NS, ("DaemonSet", "driver"), node="gpu-2", containers=[container(state=waiting)])
        )

    found = judge(RECIPE, setup)
    assert found["op/DaemonSet/op/driver"].result is result
    assert found["op/Pods/op"].result is PASSED


# Pods


@pytest.mark.parametrize(
    ("kind", "owner", "place"),
    [
        ("DaemonSet", "driver", "containers"),
        ("ReplicaSet", "controller-5d8f", "init"),
        ("StatefulSet", "store", "init"),
    ],
)
def test_crash_loops_behind_a_running_phase_are_found(kind: str, owner: str, place: str) -> None:
    async def setup(world: World) -> None:
        await healthy(world)
        waiting = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 5m0s"}}
        await world.add_pod(pod("p-1", NS, (kind, owner), **{place: [container("c", restarts=12, state=waiting)]}))

    found = judge(RECIPE, setup)
    assert found["op/Pods/op"].result is FAILED
    assert "CrashLoopBackOff after 12 restarts" in found["op/Pods/op"].message
    assert found["op/Deployment/op/controller"].result is PASSED


def test_pods_of_what_an_operator_made_in_a_shared_namespace_are_found_by_their_owners() -> None:
    recipe = recipe_of(
        component("first", "shared", crds=Crds(provides=("gadgets.example.com",))), component("second", "shared")
    )

    async def setup(world: World) -> None:
        await world.install("second", (workload("Deployment", "innocent", "shared"), well("Deployment")))
        await define(world)
        manifest = "apiVersion: example.com/v1\nkind: Gadget\nmetadata: {name: g}\n---\n"
        await world.install("first", manifest=manifest)
        await world.api.create(
            GADGETS, {"apiVersion": "example.com/v1", "kind": "Gadget", "metadata": {"name": "g"}}, "shared"
        )
        made = await world.own(workload("DaemonSet", "made", "shared"), GADGETS, "g", "shared")
        await world.node("gpu-1")
        await world.add(made, well("DaemonSet"))
        waiting = {"waiting": {"reason": "ImagePullBackOff"}}
        await world.add_pod(pod("made-x", "shared", ("DaemonSet", "made"), containers=[container(state=waiting)]))

    found = judge(recipe, setup)
    assert found["first/DaemonSet/shared/made"].result is PASSED
    assert found["first/Pods/shared"].result is FAILED
    assert found["second/Pods/shared"].result is PASSED


# CRDs and custom resources

GADGETS = ResourceType("example.com", "v1", "gadgets", "Gadget", True)


async def define(world: World) -> None:
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": anything}}
    names = {"plural": "gadgets", "singular": "gadget", "kind": "Gadget", "listKind": "GadgetList"}
    await world.api.create(
        CRDS,
        {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": "gadgets.example.com"},
            "spec": {"group": "example.com", "scope": "Namespaced", "names": names, "versions": [version]},
        },
    )


def with_rule(
    expect: str = "object.status.state == 'ready'", name: str = "", values: dict[str, Any] | None = None, **more: Any
) -> Any:
    rule = Health(
        api_version="example.com/v1",
        kind="Gadget",
        plural="gadgets",
        name=name,
        expect=expect,
        why="it is not ready",
        **more,
    )
    crds = Crds(provides=("gadgets.example.com",))
    return recipe_of(component("op", health=(rule,), crds=crds, values=values or {}))


def gadget(**status: Any) -> Any:
    async def setup(world: World) -> None:
        await world.install("op")
        await define(world)
        body = {"apiVersion": "example.com/v1", "kind": "Gadget", "metadata": {"name": "g"}, "status": status}
        await world.api.create(GADGETS, body, NS)

    return setup


@pytest.mark.parametrize(
    ("expect", "status", "result"),
    [
        ("object.status.state == 'ready'", {"state": "ready"}, PASSED),
        ("object.status.state == 'ready'", {"state": "notReady"}, FAILED),
        ("object.status.state == 'ready'", {}, UNKNOWN),
        ("has(object.status.state) && object.status.state == 'ready'", {}, FAILED),
        ("object.status.state ==", {"state": "ready"}, UNKNOWN),
        ("object.status.state", {"state": "ready"}, UNKNOWN),
        (
            "object.status.conditions.exists(c, c.type == 'A' && c.status == 'True')",
            {"conditions": [{"type": "A", "status": "True"}]},
            PASSED,
        ),
    ],
)
def test_the_rule_of_a_component_decides_on_its_objects(
    expect: str, status: dict[str, Any], result: AssertionResult
) -> None:
    found = judge(with_rule(expect), gadget(**status))
    assert found["op/Gadget/op/g"].result is result
    assert ("it is not ready" in found["op/Gadget/op/g"].message) == (result is FAILED)


@pytest.mark.parametrize(
    ("values", "default", "held"),
    [
        ({}, True, True),
        ({}, False, False),
        ({"gadget": {"enabled": False}}, True, False),
        ({"gadget": {"enabled": True}}, False, True),
        ({"gadget": None}, True, False),
    ],
)
def test_a_rule_holds_only_while_its_value_is_on(values: dict[str, Any], default: bool, held: bool) -> None:
    async def none(world: World) -> None:
        await world.install("op")
        await define(world)

    found = judge(with_rule(when="gadget.enabled", default=default, values=values), none)
    assert ("op/Gadget/op/*" in found) is held


def test_a_rule_without_any_object_fails_and_without_the_kind_is_unknown() -> None:
    async def none(world: World) -> None:
        await world.install("op")
        await define(world)

    async def no_kind(world: World) -> None:
        await world.install("op")

    assert judge(with_rule(), none)["op/Gadget/op/*"].result is FAILED
    assert judge(with_rule(name="g"), none)["op/Gadget/op/g"].result is FAILED
    found = judge(with_rule(), no_kind)
    assert found["op/Gadget/op/*"].result is UNKNOWN
    assert found["op/CustomResourceDefinition/gadgets.example.com"].result is FAILED
    assert found["op/Gadget/op/*"].message.endswith("See 'kubectl get gadgets.example.com -n op'.")


def test_what_was_never_installed_is_not_called_deleted() -> None:
    async def nothing(_: World) -> None:
        pass

    found = judge(with_rule(), nothing)["op/CustomResourceDefinition/gadgets.example.com"]
    assert found.result is FAILED
    assert found.message.startswith(
        "CustomResourceDefinition gadgets.example.com: it is not there. See whether somebody deleted it, then "
    )


@pytest.mark.parametrize(
    ("conditions", "result"),
    [
        ([{"type": "Ready", "status": "True"}], PASSED),
        ([{"type": "Ready", "status": "False", "reason": "Broken", "message": "no luck"}], FAILED),
        ([{"type": "Ready", "status": "Unknown"}], UNKNOWN),
        ([{"type": "SomethingElse", "status": "False"}], None),
        ("ready", PASSED),
        ("notReady", FAILED),
        ("a word nobody knows", None),
    ],
)
def test_without_a_rule_the_status_of_an_owned_object_speaks(
    conditions: list[dict[str, str]] | str, result: AssertionResult | None
) -> None:
    async def setup(world: World) -> None:
        await define(world)
        await world.install("op", manifest="apiVersion: example.com/v1\nkind: Gadget\nmetadata: {name: g}\n---\n")
        body = {"apiVersion": "example.com/v1", "kind": "Gadget", "metadata": {"name": "g"}}
        status = {"state": conditions} if isinstance(conditions, str) else {"conditions": conditions}
        await world.api.create(GADGETS, {**body, "status": status}, NS)

    found = judge(recipe_of(component("op")), setup).get("op/Gadget/op/g")
    assert (found.result if found is not None else None) is result


# Constraints


def constraint(name: str, text: str) -> Any:
    return recipe_of(component("op"), constraints={name: text})


@pytest.mark.parametrize(
    ("name", "text", "result"),
    [
        ("kubernetes.version", ">= 1.34", PASSED),
        ("kubernetes.version", ">= 1.35", FAILED),
        ("kernel.version", ">= 6.8", PASSED),
        ("kernel.version", ">= 7.0", FAILED),
        ("os.id", "ubuntu", PASSED),
        ("os.id", "talos", FAILED),
        ("os.version_id", "24.04", PASSED),
        ("os.version_id", "22.04", FAILED),
        ("driver.version", ">= 580", UNKNOWN),
        ("nodes.gpu.label", "nvidia.com/gpu.present=true", PASSED),
        ("nodes.gpu.label", "!nvidia.com/gpu.present", FAILED),
        ("nodes.gpu.label", "example.com/absent=true", FAILED),
        ("aks.gpu-pools.gpu-driver", "None", UNKNOWN),
    ],
)
def test_constraints_hold_against_cluster_and_nodes(name: str, text: str, result: AssertionResult) -> None:
    async def setup(world: World) -> None:
        await world.node("gpu-1")
        await world.node("cpu-1", {}, info={"kernelVersion": "4.0.0", "osImage": "Debian GNU/Linux 9"})

    found = judge(constraint(name, text), setup)[f"constraint/{name}"]
    assert found.result is result
    assert ("gpu-1" in found.message) == (result is not PASSED and not name.startswith("kubernetes"))


@pytest.mark.parametrize(("value", "result"), [("None", PASSED), ("Install", FAILED)])
def test_what_only_the_cloud_tells_a_person_can_vouch_for(value: str, result: AssertionResult) -> None:
    name = "aks.gpu-pools.gpu-driver"
    recipe = constraint(name, "None")
    live = LiveState(
        now=datetime(2026, 1, 5, tzinfo=UTC), nodes=(LiveNode(metadata=Meta(name="a", labels=GPU_NODE)),)
    )
    said = replace(live, confirmed=read_confirmed([f"{name}={value}"]))
    found = {a.name: a.result for a in assess(recipe, plan(recipe), said)}
    assert found[f"constraint/{name}"] is result


@pytest.mark.parametrize(
    "text", ["", "x", "aks.gpu-pools.gpu-driver=", "kubernetes.version=1.34", "driver.version=1"]
)
def test_what_the_cluster_tells_nobody_vouches_for(text: str) -> None:
    with pytest.raises(BadInputError, match="--confirm"):
        read_confirmed([text])


def test_figures_of_tests_are_not_for_the_cluster() -> None:
    async def setup(world: World) -> None:
        await world.node("gpu-1")

    assert "constraint/nccl-all-reduce-bw" not in judge(constraint("nccl-all-reduce-bw", ">= 300"), setup)


def test_each_pool_has_its_own_constraints() -> None:
    pools = tuple(
        Pool(name=name, criteria={}, node_selector={"pool": name}, constraints={"os.id": os_id})
        for name, os_id in (("a", "ubuntu"), ("b", "talos"))
    )

    async def setup(world: World) -> None:
        for name in ("a", "b"):
            await world.node(f"gpu-{name}", {"nvidia.com/gpu.present": "true", "pool": name})

    found = judge(recipe_of(component("op"), pools=pools), setup)
    assert found["constraint/a/os.id"].result is PASSED
    assert found["constraint/b/os.id"].result is FAILED
    assert "gpu-b" in found["constraint/b/os.id"].message


def test_without_gpu_nodes_the_constraints_of_nodes_are_unknown() -> None:
    async def setup(world: World) -> None:
        await world.node("cpu-1", {})

    assert judge(constraint("os.id", "ubuntu"), setup)["constraint/os.id"].result is UNKNOWN


# What cannot be read


class Refusing(InProcessApi):
    """Refuses lists of some resources, as RBAC would."""

    refused: frozenset[str] = frozenset()

    async def list_page(self, res: ResourceType, *args: Any, **more: Any) -> ListPage:
        if res.plural in self.refused:
            raise ForbiddenError(403, "Forbidden", f"{res.plural} is forbidden")
        return await super().list_page(res, *args, **more)


@pytest.mark.parametrize(
    ("refused", "names"),
    [
        ("secrets", {"op/Release/op/op"}),
        ("deployments", {"op/Deployment/op/controller", "op/Pods/op"}),
        ("daemonsets", {"op/DaemonSet/op/driver", "op/Pods/op"}),
        ("statefulsets", {"op/StatefulSet/op/store", "op/Pods/op"}),
        ("jobs", {"op/Job/op/setup", "op/Pods/op"}),
        ("pods", {"op/Pods/op"}),
        ("nodes", {"op/DaemonSet/op/driver"}),
    ],
)
def test_what_may_not_be_read_is_unknown(refused: str, names: set[str]) -> None:
    async def setup(world: World) -> None:
        await healthy(world)
        world.api = Refusing(world.store)
        world.api.refused = frozenset({refused})

    found = judge(RECIPE, setup)
    assert {n for n, a in found.items() if a.result is UNKNOWN} == names
    assert all(a.result is PASSED for n, a in found.items() if n not in names)
    assert all("RBAC" in found[n].message for n in names)


def test_records_of_our_namespaces_are_read_where_no_others_may_be() -> None:
    class OurNamespaces(InProcessApi):
        async def list_page(self, res: ResourceType, namespace: str = "", **more: Any) -> ListPage:
            if res.plural == "secrets" and not namespace:
                raise ForbiddenError(403, "Forbidden", "secrets is forbidden at the cluster scope")
            return await super().list_page(res, namespace, **more)

    async def setup(world: World) -> None:
        await healthy(world)
        world.api = OurNamespaces(world.store)

    assert set(results(judge(RECIPE, setup).values()).values()) == {PASSED}


def test_a_lost_connection_and_a_refused_login_are_errors_not_results() -> None:
    class Broken(InProcessApi):
        error: Exception = ConnectionLostError("gone")

        async def list_page(self, res: ResourceType, *args: Any, **more: Any) -> ListPage:
            raise self.error

    for error in (ConnectionLostError("gone"), ForbiddenError(401, "Unauthorized", "Unauthorized")):

        async def setup(world: World, error: Exception = error) -> None:
            world.api = Broken(world.store)
            world.api.error = error

        with pytest.raises(type(error)):
            judge(RECIPE, setup)


def test_a_record_that_cannot_be_read_makes_its_namespace_unknown() -> None:
    async def setup(world: World) -> None:
        await world.install("op")
        broken = release_secret("op", NS, revision=2)
        broken["data"]["release"] = "Z2FyYmFnZQ=="
        await world.api.create(SECRETS, broken, NS)

    assert judge(RECIPE, setup)["op/Release/op/op"].result is UNKNOWN
