"""Taking a bundle down: reverse of every edge, shared CRDs kept, and pages whose commands say the same."""

from __future__ import annotations

import re

import pytest
from hypothesis import given

from muster.configure.bundles.build import Deployer
from muster.configure.bundles.uninstall import BUILT_IN_NAMESPACES, Action, Step, uninstall_steps
from muster.configure.catalogue import Crds, Gate
from muster.configure.plan import CrdPolicy, Plan, Role, plan
from muster.configure.recipe import Recipe
from muster.configure.render import argocd, flux, gate, removal
from tests.bundle.cases import bundle_of
from tests.bundle.made_up import FILES, component, recipe_with
from tests.bundle.test_plan import recipes
from tests.configure.cases import NAMES, recipe_of


def check_order(planned: Plan) -> None:
    steps = uninstall_steps(planned)
    place = {step.name: at for at, step in enumerate(steps) if step.action in (Action.REMOVE, Action.KEEP)}
    assert set(place) == {r.name for r in planned.releases}
    removed = {step.name for step in steps if step.action is Action.REMOVE}
    for release in planned.releases:
        assert (release.name in removed) is (release.crds is not CrdPolicy.KEEP)
        for needed in release.depends_on:
            # A shared CRD may need what is removed: what is kept does not count.
            if release.name in removed:
                assert place[release.name] < place[needed]
    kept = [at for at, step in enumerate(steps) if step.action is Action.KEEP]
    gone = [at for at, step in enumerate(steps) if step.action is Action.REMOVE]
    assert not kept or not gone or max(gone) < min(kept)


@pytest.mark.parametrize("name", NAMES)
def test_reverse_of_every_edge(name: str) -> None:
    check_order(plan(recipe_of(name)))


@given(recipes())
def test_reverse_of_every_edge_made_up(recipe: Recipe) -> None:
    check_order(plan(recipe))


def small() -> Plan:
    return plan(
        recipe_with(
            component("crds", namespace="shared", crds=Crds(owned=True, only=True, provides=("x.example.com",))),
            component(
                "operator",
                namespace="op",
                depends_on=("crds",),
                crds=Crds(owned=True, provides=("y.example.com", "z.example.com")),
                pre_manifests=FILES,
                post_manifests=FILES,
                gate=Gate.DEPLOYMENTS_AVAILABLE,
            ),
            component("user", namespace="kube-system", depends_on=("operator",)),
        )
    )


def test_objects_go_before_the_controller_that_finalizes_them() -> None:
    steps = uninstall_steps(small())
    assert [(s.action, s.name) for s in steps] == [
        (Action.REMOVE, "user"),
        (Action.REMOVE, "operator-post"),
        (Action.DELETE_OBJECTS, "operator"),
        (Action.REMOVE, "operator"),
        (Action.REMOVE, "operator-pre"),
        (Action.KEEP, "crds"),
        (Action.NAMESPACE, "op"),
    ]
    assert steps[2].crds == ("y.example.com", "z.example.com")
    assert steps[5].crds == ("x.example.com",)
    assert [r.role for r in reversed(small().of("operator"))] == [Role.POST, Role.MAIN, Role.PRE]


def test_namespaces_of_the_cluster_and_of_what_is_kept_stay() -> None:
    names = {step.name for step in uninstall_steps(small()) if step.action is Action.NAMESPACE}
    assert names == {"op"}
    assert names.isdisjoint(BUILT_IN_NAMESPACES)


def removals(page: str) -> list[str]:
    """Names of releases in the order in which the commands of the page remove them, gates left out."""
    releases = page.split("## Releases")[1].split("## Shared CRDs stay")[0].split("## Namespaces")[0]
    pattern = r"^ +(?:helm uninstall|kubectl delete (?:application|helmrelease)\.\S+) (\S+) --namespace"
    return [name for name in re.findall(pattern, releases, re.M) if not name.endswith("-gate")]


@pytest.mark.parametrize("deployer", list(Deployer))
@pytest.mark.parametrize("name", ["h100-eks-ubuntu-training-slurm", "h100-eks-ubuntu-inference-dynamo", "h100-any"])
def test_the_page_of_each_deployer(deployer: Deployer, name: str) -> None:
    planned, files = bundle_of(name, deployer)
    page = files["UNINSTALL.md"]
    assert "Every step can be repeated; `NotFound` then means that it was done before." in page
    wanted = [r.name for r in reversed(planned.releases) if r.crds is not CrdPolicy.KEEP]
    assert removals(page) == wanted
    kept = [r.name for r in planned.releases if r.crds is CrdPolicy.KEEP]
    assert kept
    section = page.split("## Shared CRDs stay")[1].split("## Namespaces")[0]
    assert all(f"- `{release}`" in section for release in kept)
    assert not any(f"delete namespace {namespace}\n" in page for namespace in BUILT_IN_NAMESPACES)


@pytest.mark.parametrize("deployer", list(Deployer))
def test_commands_of_one_plan(deployer: Deployer) -> None:
    page = removal.removal_page(small(), deployer.value)
    lines = [line.strip() for line in page.splitlines()]
    delete = lines.index("kubectl delete y.example.com --all --all-namespaces --ignore-not-found --timeout=600s")
    uninstall = next(
        at for at, line in enumerate(lines) if re.search(r"(uninstall|delete \S+) operator --name", line)
    )
    assert delete < uninstall
    gates = [at for at, line in enumerate(lines) if " operator-gate --namespace" in line]
    if deployer in (Deployer.HELM, Deployer.HELMFILE):
        assert gates == []
    else:
        assert gates == [uninstall - 1]
    healing = [line for line in lines if '"automated":null' in line]
    assert bool(healing) is (deployer in (Deployer.ARGOCD, Deployer.ARGOCD_HELM))
    # The parent goes first, so that it does not bring back what is deleted.
    if deployer in (Deployer.ARGOCD, Deployer.ARGOCD_HELM):
        assert next(i for i, line in enumerate(lines) if "--cascade=orphan" in line) < delete
    if deployer is Deployer.FLUX:
        assert next(i for i, line in enumerate(lines) if '"suspend":true' in line) < delete


def test_names_are_those_of_the_renderers() -> None:
    assert (removal.ARGOCD_NAMESPACE, removal.PARENT) == (argocd.NAMESPACE, argocd.PARENT)
    assert (removal.FLUX_NAMESPACE, removal.PARENT) == (flux.NAMESPACE, flux.BUNDLE)
    release = small().of("operator")[1]
    assert gate.gate_name(release) == f"operator{removal.GATE_SUFFIX}"


def test_a_step_that_a_person_decides_has_no_command() -> None:
    assert removal.commands(Step(Action.KEEP, "a", "b"), "helm") == ()
    assert removal.commands(Step(Action.NAMESPACE, "a", "a"), "helm") == ()
