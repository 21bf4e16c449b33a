"""What somebody changed beside the deployer is drift; what policies and autoscalers change is none."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from muster import yamlio
from muster.configure.live.drift import drift
from muster.configure.live.hand_edits import same_image
from muster.configure.live.kinds import Crd, Manager, WorkloadKind
from muster.configure.live.manifest import owned_objects
from muster.configure.live.state import Custom, Installed, LiveState, Via
from muster.configure.plan import plan
from muster.kube.api import PatchType
from muster.resources.baseline import Drift, DriftClass
from tests.live.bed import APPS, World, component, recipe_of, see, well, workload

RECIPE = recipe_of(component("op"))
IMAGE = "registry.example/team/work:1"


def web(**spec: Any) -> dict[str, Any]:
    pod = {
        "containers": [{"name": "main", "image": IMAGE}, {"name": "side", "image": "side:2"}],
        "initContainers": [{"name": "first", "image": "first:3"}],
    }
    return workload("Deployment", "web", "op", **{"replicas": 2, "pod": pod, **spec})


def edited(patch: dict[str, Any], **spec: Any) -> tuple[Drift, ...]:
    return drift(RECIPE, plan(RECIPE), state(patch, **spec))


def state(patch: dict[str, Any], **spec: Any) -> LiveState:
    replicas = patch.get("replicas", 2)

    async def setup(world: World) -> None:
        await world.install("op", (web(**spec), well("Deployment", 2)))
        await world.api.patch(APPS["Deployment"], "web", {"spec": patch}, PatchType.STRATEGIC, "op")
        generation = (await world.api.get(APPS["Deployment"], "web", "op"))["metadata"]["generation"]
        status = {**well("Deployment", replicas), "observedGeneration": generation}
        await world.status(APPS["Deployment"], "web", "op", status)

    return see(RECIPE, setup)


def image(container: str, name: str, key: str = "containers") -> dict[str, Any]:
    return {"template": {"spec": {key: [{"name": container, "image": name}]}}}


@pytest.mark.parametrize(
    ("container", "key", "wanted"),
    [("main", "containers", IMAGE), ("side", "containers", "side:2"), ("first", "initContainers", "first:3")],
)
def test_an_image_set_by_hand_is_told_with_the_way_back(container: str, key: str, wanted: str) -> None:
    (found,) = edited(image(container, "registry.example/team/work:evil", key))
    assert (found.drift_class, found.component) == (DriftClass.VALUES, "op")
    assert found.path == f"Deployment op/web: image of {container}"
    assert (found.expected, found.found) == (wanted, "registry.example/team/work:evil")
    assert f"'kubectl set image deployment/web {container}={wanted} -n op'" in found.remedy


def test_replicas_set_by_hand_are_told_and_those_of_an_autoscaler_are_not() -> None:
    (found,) = edited({"replicas": 5})
    assert (found.path, found.expected, found.found) == ("Deployment op/web: replicas", "2", "5")
    assert "'kubectl scale deployment/web --replicas=2 -n op'" in found.remedy
    scaled = state({"replicas": 5})
    for manager, count in (("kube-controller-manager", 0), ("keda", 0), ("kubectl", 1), ("kubectl-edit", 1)):
        assert len(drift(RECIPE, plan(RECIPE), written_by(scaled, manager))) == count, manager


def written_by(live: LiveState, manager: str) -> LiveState:
    from msgspec.structs import replace as with_fields

    (found,) = live.workloads[WorkloadKind.DEPLOYMENT]
    managers = (Manager(manager="helm"), Manager(manager=manager, subresource="scale"))
    workload_ = with_fields(found, metadata=with_fields(found.metadata, managed_fields=managers))
    return replace(live, workloads={**live.workloads, WorkloadKind.DEPLOYMENT: (workload_,)})


def test_a_chart_that_leaves_the_replicas_out_leaves_them_to_others() -> None:
    assert edited({"replicas": 5}, replicas=None) == ()


def test_nothing_is_told_of_what_is_as_it_was() -> None:
    assert edited({}) == ()
    assert edited({"replicas": 2}) == ()


@pytest.mark.parametrize(
    ("found", "same"),
    [
        (IMAGE, True),
        ("mirror.example:5000/proxy/team/work:1", True),
        (f"{IMAGE}@sha256:{'a' * 64}", True),
        ("registry.example/team/work:2", False),
        ("registry.example/team/work", False),
        ("registry.example/team/worker:1", False),
        ("(absent)", False),
    ],
)
def test_a_mirror_or_a_digest_that_a_policy_adds_is_the_same_image(found: str, same: bool) -> None:
    assert same_image(IMAGE, found) is same
    assert same_image(found, IMAGE) is same


def test_two_digests_are_two_images() -> None:
    assert not same_image("x:1@sha256:a", "x:1@sha256:b")


@pytest.mark.parametrize(
    "template", [None, [], {"spec": None}, {"spec": {"containers": "x"}}, {"spec": {"containers": [1, {"image": 7}]}}]
)
def test_a_template_of_another_form_has_no_images(template: Any) -> None:
    manifest = yamlio.dumps(
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": {"template": template}}
    )
    (owned,) = owned_objects(manifest)
    assert owned.images == ()


DRIVER: dict[str, Any] = {"version": "580.1", "enabled": True, "env": [{"name": "A", "value": "1"}]}
POLICY: dict[str, Any] = {"driver": DRIVER, "token": "hush-1", "no": None}


def policies(spec: dict[str, Any], api_version: str = "nvidia.com/v1") -> tuple[Drift, ...]:
    """The release has a policy with POLICY, and the cluster one with `spec`."""
    body = {"apiVersion": "nvidia.com/v1", "kind": "ClusterPolicy", "metadata": {"name": "policy"}, "spec": POLICY}
    owned = owned_objects(yamlio.dumps(body))
    helm = Installed(Via.HELM, "op", "op", True, "deployed", "op", "1.2.3", values={}, owned=owned)
    live = {**body, "apiVersion": api_version, "spec": spec, "status": {"state": "ready"}}
    crd = msgspec.convert(
        {"metadata": {"name": "clusterpolicies.nvidia.com"}, "spec": {"group": "nvidia.com", "scope": "Cluster"}}, Crd
    )
    custom = Custom("nvidia.com", "ClusterPolicy", "clusterpolicies", live)
    now = datetime(2026, 1, 5, 8, 0, tzinfo=UTC)
    return drift(RECIPE, plan(RECIPE), LiveState(now=now, installed=(helm,), customs=(custom,), crds=(crd,)))


def test_a_custom_resource_edited_by_hand_is_told_by_value() -> None:
    driver = POLICY["driver"]
    (found,) = policies({**POLICY, "driver": {**driver, "version": "570.9"}})
    assert (found.drift_class, found.path) == (DriftClass.VALUES, "ClusterPolicy policy: spec.driver.version")
    assert (found.expected, found.found) == ('"580.1"', '"570.9"')
    assert "deploy.sh --all" in found.remedy
    (found,) = policies({**POLICY, "driver": {**driver, "env": []}})
    assert found.path == "ClusterPolicy policy: spec.driver.env"
    (found,) = policies({**POLICY, "token": "hush-2"})
    assert "hush" not in found.expected + found.found


def test_defaults_pruned_fields_and_other_versions_are_no_edits() -> None:
    defaulted = {**POLICY, "driver": {**POLICY["driver"], "image": "default"}, "toolkit": {"enabled": True}, "no": {}}
    assert policies(defaulted) == ()
    assert policies({}) == ()
    assert policies({**POLICY, "driver": "another form"}) == ()
    assert policies({**POLICY, "driver": {**POLICY["driver"], "enabled": "true", "version": 580}}) == ()
    assert policies({**POLICY, "driver": {"version": "x"}}, "nvidia.com/v1beta1") == ()
