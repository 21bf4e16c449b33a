"""Drift of a simulated cluster from its recipe: each kind classed, nothing where nothing differs."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from muster.configure.catalogue import Gate
from muster.configure.live.drift import Severity, drift, severity
from muster.configure.live.state import LiveState
from muster.configure.live.values_drift import ABSENT_TEXT, differences
from muster.configure.plan import plan
from muster.configure.recipe import ManifestFile
from muster.configure.render.gate import gate_name
from muster.kube.api import CRDS, NODE_HEALTHS, SECRETS
from muster.resources.base import API_VERSION, ObjectMeta, to_object
from muster.resources.baseline import DriftClass
from muster.resources.crd import manifests
from muster.resources.fingerprint import Reading, ReadingClass, fingerprint
from muster.resources.node_health import (
    Certificate,
    Lifecycle,
    NodeHealth,
    NodeHealthStatus,
    Observed,
    Standing,
    State,
)
from tests.live.bed import (
    APPS,
    World,
    compare,
    component,
    on_gpu_nodes,
    recipe_of,
    release_secret,
    see,
    told,
    well,
    workload,
)

VALUES = {"driver": {"version": "580.10", "enabled": True}, "list": [1, {"a": None}], "none": None, "map": {}}
RECIPE = recipe_of(on_gpu_nodes("op", values=VALUES), component("second"))
NOW = datetime(2026, 1, 5, 8, 0, tzinfo=UTC)


async def installed(world: World, **record: Any) -> None:
    await world.node("gpu-1")
    await world.install("op", (workload("DaemonSet", "driver", "op"), well("DaemonSet")), **record)
    await world.install("second", (workload("Deployment", "d", "second"), well("Deployment")))


def test_an_untouched_cluster_does_not_drift_however_often_it_is_read() -> None:
    assert compare(RECIPE, installed) == ()

    async def twice(world: World) -> None:
        await installed(world)
        first = drift(world.recipe, world.plan, await world.look())
        await world.clock.sleep(3600)
        assert drift(world.recipe, world.plan, await world.look()) == first == ()

    see(RECIPE, twice)


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        ({"version": "1.2.4"}, ("version", "op", "release op/op")),
        ({"chart": "fork"}, ("version", "op", "release op/op")),
        ({"status": "failed"}, ("assertion", "op", "release op/op")),
        ({"status": "pending-upgrade"}, ("assertion", "op", "release op/op")),
        ({"status": "uninstalled"}, ("missing", "op", "release op/op")),
        (
            {"values": {**VALUES, "driver": {"version": "570.1", "enabled": True}}},
            ("values", "op", "op:driver.version"),
        ),
        ({"values": {k: v for k, v in VALUES.items() if k != "none"}}, ("values", "op", "op:none")),
        ({"values": {**VALUES, "extra": {"deep": 1}}}, ("values", "op", "op:extra.deep")),
        ({"values": {**VALUES, "list": [1]}}, ("values", "op", "op:list")),
    ],
)
def test_a_changed_release_is_classed(record: dict[str, Any], expected: tuple[str, str, str]) -> None:
    async def setup(world: World) -> None:
        await installed(world, **record)

    assert told(compare(RECIPE, setup)) == [expected]


@pytest.mark.parametrize(
    "values",
    [
        {k: v for k, v in VALUES.items() if k != "map"},
        {**VALUES, "other": {}},
        {**VALUES, "list": [1.0, {"a": None}]},
    ],
)
def test_values_that_mean_the_same_do_not_differ(values: dict[str, Any]) -> None:
    async def setup(world: World) -> None:
        await installed(world, values=values)

    assert compare(RECIPE, setup) == ()


def test_a_missing_component_and_a_missing_object_are_told() -> None:
    async def setup(world: World) -> None:
        await world.node("gpu-1")
        await world.install("op", (workload("DaemonSet", "driver", "op"), well("DaemonSet")))
        await world.api.delete(APPS["DaemonSet"], "driver", "op")

    found = compare(RECIPE, setup)
    assert told(found) == [("missing", "op", "DaemonSet op/driver"), ("missing", "second", "release second/second")]
    assert all(severity(d.drift_class) is Severity.CRITICAL for d in found)


@pytest.mark.parametrize(
    ("namespace", "name", "chart", "foreign"),
    [
        ("op", "stray", "something", True),
        ("far-away", "second-operator", "gpu-operator", True),
        ("far-away", "copy", "second", True),
        ("far-away", "app", "something", False),
    ],
)
def test_a_foreign_release_is_found_in_our_namespaces_and_of_the_gpu_stack(
    namespace: str, name: str, chart: str, foreign: bool
) -> None:
    async def setup(world: World) -> None:
        await installed(world)
        await world.namespace(namespace)
        await world.api.create(SECRETS, release_secret(name, namespace, chart=chart), namespace)

    expected = [("foreign", "cluster", f"release {namespace}/{name}")] if foreign else []
    assert [(c, who or "cluster", p) for c, who, p in told(compare(RECIPE, setup))] == expected


@pytest.mark.parametrize(
    ("chart", "why"),
    [
        ("gpu-operator", "gpu-operator competes for the GPUs and their nodes"),
        ("second", "the recipe installs the chart second too"),
    ],
)
def test_why_a_release_is_foreign_is_true(chart: str, why: str) -> None:
    async def setup(world: World) -> None:
        await installed(world)
        await world.namespace("far-away")
        await world.api.create(SECRETS, release_secret("x", "far-away", chart=chart), "far-away")

    (found,) = compare(RECIPE, setup)
    assert found.remedy.startswith(why)
    assert "'helm uninstall x -n far-away'" in found.remedy


@pytest.mark.parametrize(
    ("status", "word"),
    [
        ("pending-upgrade", "when no Helm is at work on it, deploy the bundle again"),
        ("uninstalling", "when no Helm is at work on it, deploy the bundle again"),
        ("failed", "then deploy op again from the bundle"),
    ],
)
def test_a_release_that_is_not_deployed_says_how_to_go_on(status: str, word: str) -> None:
    async def setup(world: World) -> None:
        await installed(world, status=status)

    (found,) = compare(RECIPE, setup)
    assert "'helm history op -n op'" in found.remedy
    assert word in found.remedy


def test_the_gate_that_a_deployer_adds_is_not_foreign() -> None:
    recipe = recipe_of(component("op", gate=Gate.DEPLOYMENTS_AVAILABLE))

    async def setup(world: World) -> None:
        await world.install("op")
        gate = gate_name(world.plan.releases[0])
        await world.api.create(SECRETS, release_secret(gate, "op", chart=gate, version="0.1.0"), "op")

    assert compare(recipe, setup) == ()


def test_other_releases_in_kube_system_are_nobodys_drift() -> None:
    recipe = recipe_of(component("csi", "kube-system"))

    async def setup(world: World) -> None:
        await world.install("csi")
        await world.api.create(SECRETS, release_secret("cilium", "kube-system", chart="cilium"), "kube-system")

    assert compare(recipe, setup) == ()


MANIFEST = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "quota"}, "data": {"a": "1"}}


@pytest.mark.parametrize(
    ("applied", "expected"),
    [
        ("kind: ConfigMap\napiVersion: v1\nmetadata: {name: quota}\ndata: {a: '1'}\n", []),
        (
            "kind: ConfigMap\napiVersion: v1\nmetadata: {name: quota}\ndata: {a: '2'}\n",
            ["local: ConfigMap quota: data.a"],
        ),
        (
            "kind: Secret\napiVersion: v1\nmetadata: {name: quota}\n",
            ["local: ConfigMap quota", "local: Secret quota"],
        ),
    ],
)
def test_the_objects_of_a_chart_inside_the_bundle_are_compared(applied: str, expected: list[str]) -> None:
    files = (ManifestFile(name="a.yaml", objects=[MANIFEST]),)
    recipe = recipe_of(component("local", chart=False, pre_manifests=files))

    async def setup(world: World) -> None:
        await world.install("local", manifest=f"---\n{applied}")

    assert [d.path for d in compare(recipe, setup)] == expected


def test_secret_values_are_never_shown() -> None:
    hostile = {
        "adminPassword": "hunter2",
        "nested": {"apiToken": ["hunter2"], "env": [{"name": "HF_TOKEN", "value": "hunter2"}]},
        "innocent": "https://user:hunter2@example.com",
        "pem": "-----BEGIN PRIVATE KEY-----hunter2",
        "plain": "seen",
    }

    async def setup(world: World) -> None:
        await installed(world, values={**VALUES, **hostile})

    found = compare(RECIPE, setup)
    assert {d.path for d in found} == {
        f"op:{p}" for p in ("adminPassword", "nested.apiToken", "nested.env", "innocent", "pem", "plain")
    }
    assert "hunter2" not in repr(found)
    assert "seen" in repr(found)


def test_a_flood_of_differences_is_bounded_and_counted() -> None:
    found = differences({}, {f"k{n:04}": n for n in range(500)})
    assert len(found) == 51
    assert "450 more" in found[-1].found
    assert found[0].expected == ABSENT_TEXT


# Nodes


def health(now: list[Reading], certified: list[Reading] | None = None, **certificate: Any) -> NodeHealth:
    observed = Observed(observed_at=NOW, node_uid="u1", boot_id="b", fingerprint=fingerprint(now))
    lifecycle = None
    if certified is not None:
        fields = {
            "node_uid": "u1",
            "profile": "p",
            "tests": (),
            "certification": "c",
            "issued_at": NOW,
            **certificate,
        }
        issued = Certificate(fingerprint=fingerprint(certified), **fields)
        lifecycle = Lifecycle(state=State.IN_SERVICE, since=NOW, certificate=issued)
    return NodeHealth(
        metadata=ObjectMeta(name="gpu-1"), status=NodeHealthStatus(observed=observed, lifecycle=lifecycle)
    )


def readings(**values: str) -> list[Reading]:
    classes = {"uuid": ReadingClass.IDENTITY, "driver": ReadingClass.STACK, "sysctl": ReadingClass.CONFIG}
    names = {"uuid": "gpu.0.uuid", "driver": "driver.version", "sysctl": "sysctl.vm.swappiness"}
    return [Reading(name=names[k], value=v, reading_class=classes[k]) for k, v in values.items()]


def _state(state: LiveState, *found: NodeHealth) -> LiveState:
    return replace(state, node_healths=found)


SAME = {"uuid": "GPU-1", "driver": "580.10", "sysctl": "10"}


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, []),
        ({"uuid": "GPU-2"}, [("node-identity", "gpu.0.uuid", "GPU-1", "GPU-2")]),
        ({"sysctl": "60"}, [("node-config", "sysctl.vm.swappiness", "10", "60")]),
        (
            {"driver": "570.1"},
            [("node-stack", "driver.version", "580.10", "570.1")],
        ),
    ],
)
def test_a_node_off_its_certificate_or_off_the_recipe_is_classed(
    change: dict[str, str], expected: list[tuple[str, str, str, str]]
) -> None:
    recipe = recipe_of(
        component("gpu-operator", "op", values=VALUES),
    )

    async def setup(world: World) -> None:
        await world.node("gpu-1")
        await world.install("gpu-operator")

    state = _state(see(recipe, setup), health(readings(**SAME | change), readings(**SAME)))
    found = drift(recipe, plan(recipe), state)
    assert [(d.drift_class.value, d.path, d.expected, d.found) for d in found] == expected
    assert all(d.node == "gpu-1" for d in found)


def test_a_driver_that_the_operator_does_not_install_is_not_compared() -> None:
    recipe = recipe_of(component("gpu-operator", "op", values={"driver": {"enabled": False, "version": "580.10"}}))

    async def setup(world: World) -> None:
        await world.node("gpu-1")
        await world.install("gpu-operator")

    state = _state(see(recipe, setup), health(readings(driver="570.1")))
    assert drift(recipe, plan(recipe), state) == ()


@pytest.mark.parametrize(
    ("certificate", "path"),
    [
        ({"recipe_digest": "sha256:other"}, "certificate.recipe"),
        ({"node_uid": "u0"}, "node.uid"),
        ({"standing": Standing.VOID, "voided_because": "age"}, "certificate"),
    ],
)
def test_a_certificate_for_something_else_is_told(certificate: dict[str, Any], path: str) -> None:
    state = _state(see(RECIPE, installed), health(readings(**SAME), readings(**SAME), **certificate))
    assert [d.path for d in drift(RECIPE, plan(RECIPE), state)] == [path]


def test_a_broken_constraint_of_nodes_is_told_once_and_by_node() -> None:
    recipe = recipe_of(component("op"), constraints={"kernel.version": ">= 7.0", "kubernetes.version": ">= 1.40"})

    async def setup(world: World) -> None:
        await world.node("gpu-1")
        await world.node("gpu-2")
        await world.install("op")

    found = compare(recipe, setup)
    assert [(d.drift_class, d.node, d.path) for d in found] == [
        (DriftClass.ASSERTION, "", "constraint/kubernetes.version"),
        (DriftClass.NODE_STACK, "gpu-1", "kernel.version"),
        (DriftClass.NODE_STACK, "gpu-2", "kernel.version"),
    ]


def test_node_healths_of_the_cluster_are_read() -> None:
    async def setup(world: World) -> None:
        for crd in manifests():
            if crd["spec"]["names"]["plural"] == NODE_HEALTHS.plural:
                await world.api.create(CRDS, crd)
        body = to_object(health(readings(**SAME)))
        made = {"apiVersion": API_VERSION, "kind": "NodeHealth", "metadata": {"name": "gpu-1"}, "spec": {}}
        await world.api.create(NODE_HEALTHS, made)
        await world.status(NODE_HEALTHS, "gpu-1", "", body["status"])

    state = see(RECIPE, setup)
    assert [h.metadata.name for h in state.node_healths] == ["gpu-1"]
    assert state.unread == {}
