"""Unknown is never a pass: reading less never turns anything into a pass, whatever the cluster looks like."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from muster.configure.catalogue import Crds, Health
from muster.configure.live.assess import assess
from muster.configure.live.drift import drift
from muster.configure.live.kinds import WorkloadKind
from muster.configure.live.objects import WORKLOAD_PLURALS
from muster.configure.live.state import LiveState
from muster.configure.plan import plan
from muster.kube.api import CRDS, ResourceType
from muster.resources.baseline import AssertionResult
from muster.sim.virtual import VirtualClock, run_virtual
from tests.live.bed import World, component, container, on_gpu_nodes, pod, recipe_of, well, workload

NS = "op"
RULE = Health(
    api_version="example.com/v1", kind="Gadget", plural="gadgets", expect="object.status.ok", why="it is not well"
)
RECIPE = recipe_of(
    on_gpu_nodes("op", health=(RULE,), crds=Crds(provides=("gadgets.example.com",))),
    component("second", "op", values={"a": 1}),
    constraints={"kubernetes.version": ">= 1.34", "kernel.version": ">= 6.8", "nodes.gpu.label": "a=b"},
)
GADGETS = ResourceType("example.com", "v1", "gadgets", "Gadget", True)
PLACES = [
    ("secrets", NS),
    ("pods", NS),
    *((resource, NS) for resource in WORKLOAD_PLURALS.values()),
    ("nodes", ""),
    ("nodehealths.muster.dev", ""),
    ("customresourcedefinitions.apiextensions.k8s.io", ""),
    ("gadgets.example.com", NS),
    ("applications.argoproj.io", ""),
]
WORKLOADS = ("Deployment", "StatefulSet", "DaemonSet", "Job")


def build(broken: dict[str, Any]) -> LiveState:
    """A cluster that is healthy but for what `broken` says."""

    async def main(clock: VirtualClock) -> LiveState:
        world = World(clock, RECIPE)
        await world.node("gpu-1", {"nvidia.com/gpu.present": "true", **broken["labels"]})
        made = [
            (
                workload(kind, kind.lower(), NS, **broken["spec"].get(kind, {})),
                {**well(kind), **broken["status"].get(kind, {})},
            )
            for kind in WORKLOADS
        ]
        await world.install("op", *made, status=broken["release"])
        if broken["second"]:
            await world.install("second", (workload("Deployment", "d2", NS), well("Deployment")))
        await _gadget(world, broken)
        if broken["pod"]:
            waiting = {"waiting": {"reason": "CrashLoopBackOff"}}
            await world.add_pod(pod("p", NS, ("DaemonSet", "daemonset"), containers=[container(state=waiting)]))
        for kind in broken["gone"]:
            res = {"DaemonSet": "daemonsets", "Deployment": "deployments"}[kind]
            await world.api.delete(ResourceType("apps", "v1", res, kind, True), kind.lower(), NS)
        return await world.look()

    return run_virtual(main)


async def _gadget(world: World, broken: dict[str, Any]) -> None:
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": anything}}
    names = {"plural": "gadgets", "singular": "gadget", "kind": "Gadget", "listKind": "GadgetList"}
    spec = {"group": "example.com", "scope": "Namespaced", "names": names, "versions": [version]}
    definition = {"metadata": {"name": "gadgets.example.com"}, "spec": spec}
    head = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition"}
    await world.api.create(CRDS, {**head, **definition})
    for name in broken["gadgets"]:
        body = {"apiVersion": "example.com/v1", "kind": "Gadget", "metadata": {"name": name}}
        await world.api.create(GADGETS, {**body, "status": {"ok": name != "bad"}}, NS)


def without(state: LiveState, places: list[tuple[str, str]]) -> LiveState:
    """The same cluster as somebody sees it who may not read `places`."""
    gone = {resource for resource, _ in places}
    changes: dict[str, Any] = {"unread": dict.fromkeys(places, "not allowed")}
    if "secrets" in gone:
        changes["installed"] = ()
    if "pods" in gone:
        changes["pods"] = ()
    if "nodes" in gone:
        changes["nodes"] = ()
    if "customresourcedefinitions.apiextensions.k8s.io" in gone:
        changes["crds"] = ()
    if "gadgets.example.com" in gone:
        changes["customs"] = ()
    kept = {k: v for k, v in state.workloads.items() if WORKLOAD_PLURALS[WorkloadKind(k)] not in gone}
    return replace(state, **changes, workloads=kept)


BROKEN = st.fixed_dictionaries(
    {
        "labels": st.sampled_from([{}, {"a": "b"}]),
        "release": st.sampled_from(["deployed", "deployed", "failed", "pending-upgrade"]),
        "second": st.booleans(),
        "pod": st.booleans(),
        "gadgets": st.lists(st.sampled_from(["good", "bad"]), unique=True),
        "gone": st.lists(st.just("Deployment"), max_size=1),
        "spec": st.fixed_dictionaries(
            {
                "Deployment": st.sampled_from([{}, {"replicas": 0}]),
                "DaemonSet": st.sampled_from([{}, {"pod": {"nodeSelector": {"never": "there"}}}]),
            }
        ),
        "status": st.fixed_dictionaries(
            {
                "Deployment": st.sampled_from([{}, {"availableReplicas": 0}]),
                "StatefulSet": st.sampled_from([{}, {"readyReplicas": 0}]),
                "DaemonSet": st.sampled_from([{}, {"desiredNumberScheduled": 0}, {"numberReady": 0}]),
            }
        ),
    }
)


@settings(max_examples=60)
@given(BROKEN, st.lists(st.sampled_from(PLACES), unique=True))
def test_reading_less_never_makes_a_pass_or_a_drift(broken: dict[str, Any], places: list[tuple[str, str]]) -> None:
    state = build(broken)
    assert state.unread == {}
    planned = plan(RECIPE)
    whole = {a.name: a.result for a in assess(RECIPE, planned, state)}
    less = {a.name: a.result for a in assess(RECIPE, planned, without(state, places))}
    for name, result in less.items():
        if result is AssertionResult.PASSED:
            assert whole.get(name) is AssertionResult.PASSED, name
    if whole and all(result is AssertionResult.PASSED for result in less.values()):
        assert all(result is AssertionResult.PASSED for result in whole.values())
    known = {(d.drift_class, d.component, d.node, d.path) for d in drift(RECIPE, planned, state)}
    fewer = {(d.drift_class, d.component, d.node, d.path) for d in drift(RECIPE, planned, without(state, places))}
    assert fewer <= known


@settings(max_examples=20)
@given(BROKEN, st.randoms(use_true_random=False))
def test_the_order_in_which_things_are_read_does_not_matter(broken: dict[str, Any], random: Any) -> None:
    state = build(broken)
    planned = plan(RECIPE)

    def mixed(items: Any) -> Any:
        copy = list(items)
        random.shuffle(copy)
        return tuple(copy)

    other = replace(
        state,
        installed=mixed(state.installed),
        pods=mixed(state.pods),
        crds=mixed(state.crds),
        customs=mixed(state.customs),
        nodes=mixed(state.nodes),
        workloads={kind: mixed(state.workloads[kind]) for kind in mixed(state.workloads)},
    )
    assert assess(RECIPE, planned, other) == assess(RECIPE, planned, state)
    assert drift(RECIPE, planned, other) == drift(RECIPE, planned, state)
