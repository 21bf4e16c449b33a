"""The plan: names, edges and levels, for the catalogue and for made-up recipes."""

from __future__ import annotations

import re

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.configure.catalogue import Crds, SecretNeed
from muster.configure.plan import CrdPolicy, Role, plan
from muster.configure.recipe import ManifestFile, Recipe
from muster.errors import BadInputError
from tests.bundle.made_up import BARE, FILES, HELM, component, recipe_with
from tests.configure.cases import NAMES, recipe_of


@st.composite
def recipes(draw: st.DrawFn) -> Recipe:
    count = draw(st.integers(1, 8))
    made = []
    for at in range(count):
        # Edges lead to earlier ones, so there is no cycle; names are not in that order.
        needed = draw(st.sets(st.integers(0, at - 1), max_size=3)) if at else set()
        made.append(
            component(
                f"c{(at * 5) % 11}-{at}",
                source=draw(st.sampled_from([HELM, BARE])),
                depends_on=tuple(sorted(made[n].name for n in needed)),
                pre_manifests=draw(st.sampled_from([(), FILES])),
                post_manifests=draw(st.sampled_from([(), FILES])),
            )
        )
    return recipe_with(*draw(st.permutations(made)))


@given(recipes())
def test_edges_levels_and_names(recipe: Recipe) -> None:
    planned = plan(recipe)
    place = {release.name: at for at, release in enumerate(planned.releases)}
    level = {release.name: release.level for release in planned.releases}
    assert len(place) == len(planned.releases)
    for release in planned.releases:
        assert release.level == max((level[needed] + 1 for needed in release.depends_on), default=0)
        assert all(place[needed] < place[release.name] for needed in release.depends_on)
    for part in recipe.components:
        mine = planned.of(part.name)
        assert [r.role for r in mine] == sorted((r.role for r in mine), key=list(Role).index)
        for needed in part.depends_on:
            last = max(planned.of(needed), key=lambda r: place[r.name])
            assert all(last.name in r.depends_on for r in mine)
        assert sum(r.role is Role.MAIN for r in mine) == 1
        assert part.name in place
    folders = [planned.folder(release) for release in planned.releases]
    assert folders == sorted(folders)
    assert all(re.fullmatch(r"\d{3}-[a-z0-9-]+", folder) for folder in folders)


@pytest.mark.parametrize("name", NAMES)
def test_every_leaf_has_a_plan(name: str) -> None:
    recipe = recipe_of(name)
    planned = plan(recipe)
    assert {r.component for r in planned.releases} == {c.name for c in recipe.components}
    assert planned.recipe_digest == recipe.digest
    assert set(planned.namespaces) == {c.namespace for c in recipe.components}
    assert all(len(r.name) <= 53 for r in planned.releases)


def test_names_that_are_taken_or_too_long() -> None:
    with pytest.raises(BadInputError, match="Two components would be installed as 'a-post'"):
        plan(recipe_with(component("a", post_manifests=FILES), component("a-post")))
    with pytest.raises(BadInputError, match="longer than 53"):
        plan(recipe_with(component("a" * 50, post_manifests=FILES)))


def test_labels_of_a_namespace_must_agree() -> None:
    one, two = component("a", namespace_labels={"l": "1"}), component("b", namespace_labels={"l": "2"})
    assert plan(recipe_with(one)).namespaces == {"ns": {"l": "1"}}
    with pytest.raises(BadInputError, match="label l with two values, '1' and '2'"):
        plan(recipe_with(one, two))


def test_a_secret_that_two_need_is_asked_for_once() -> None:
    first = component("a", secrets=(SecretNeed(name="s", keys=("x",)),))
    second = component("b", secrets=(SecretNeed(name="s", keys=("y", "x")),))
    (secret,) = plan(recipe_with(first, second)).secrets
    assert (secret.namespace, secret.name, secret.keys, secret.components) == ("ns", "s", ("x", "y"), ("a", "b"))


def test_secrets_are_asked_for_only_where_needed() -> None:
    eks, kind = recipe_of("h100-eks-ubuntu-training-kubeflow"), recipe_of("h100-kind-training-kubeflow")
    assert [s.name for s in plan(eks).secrets] == ["grafana-admin"]
    assert plan(kind).secrets == ()


@pytest.mark.parametrize(
    ("crds", "policy"),
    [
        (Crds(), CrdPolicy.INSTALL),
        (Crds(owned=True), CrdPolicy.REPLACE),
        (Crds(owned=True, only=True), CrdPolicy.KEEP),
    ],
)
def test_crd_policy(crds: Crds, policy: CrdPolicy) -> None:
    (release,) = plan(recipe_with(component("a", crds=crds))).releases
    assert release.crds is policy
    assert release.provides == crds.provides


def test_manifests_are_filled_with_values() -> None:
    file = ManifestFile(
        name="a.yaml",
        objects=[
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}, "data": {"k": {"$value": "a.b"}}},
            {"$when": "extra", "$default": False, "$then": {"apiVersion": "v1", "kind": "Secret"}},
        ],
    )
    part = component("a", post_manifests=(file,), values={"a": {"b": "text"}})
    for source in (HELM, BARE):
        planned = plan(recipe_with(msgspec.structs.replace(part, source=source)))
        (objects,) = [f.objects for f in planned.releases[-1].manifests]
        assert objects == [
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}, "data": {"k": "text"}}
        ]
        assert planned.missing == ()


def test_a_manifest_without_content_is_missing() -> None:
    (release,) = plan(recipe_with(component("a", source=BARE, pre_manifests=(ManifestFile(name="a.yaml"),)))).releases
    assert release.missing == ("a/a.yaml",)
