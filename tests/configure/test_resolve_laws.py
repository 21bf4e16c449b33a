"""Laws of resolution: over generated catalogues and over every leaf."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.configure import lock
from muster.configure.catalogue import (
    ROOT,
    Catalogue,
    Component,
    Crds,
    Mixin,
    Need,
    Overlay,
    Patch,
    Pin,
    Source,
    SourceKind,
    load,
)  # fmt: skip
from muster.configure.catalogue_check import check_catalogue
from muster.configure.criteria import Dimension, parse_criteria
from muster.configure.matching import unavailable
from muster.configure.resolve import Resolution, leaf_names, resolve
from muster.configure.values import ABSENT, get, parse_path, path_text, same, whole_leaves
from muster.configure.versions import Range, Scheme, Version
from muster.errors import BadInputError

K = Scheme.KUBERNETES
NAMES = "abcde"
CHAIN: list[dict[str, str]] = [
    {},
    {"service": "eks"},
    {"service": "eks", "intent": "training"},
    {"service": "eks", "accelerator": "h100", "intent": "training"},
]
CRITERIA = parse_criteria(CHAIN[-1])
POINTS = [f"1.{minor}{suffix}" for minor in range(28, 36) for suffix in ("", ".3", ".3-gke.7", ".0-rc.1")]

ends = st.sampled_from(
    [">= 1.{}", "> 1.{}", ">= 1.{}.3", ">= 1.{}.0-0", ">= 1.{}.3-gke.7", "< 1.{}", "<= 1.{}.3", "!= 1.{}"]
)
demands = st.builds(lambda form, minor: form.format(minor), ends, st.integers(29, 34))
scalars = st.none() | st.booleans() | st.integers(0, 2) | st.sampled_from(["", "x", "1"])
trees: st.SearchStrategy[Any] = st.recursive(
    scalars | st.lists(scalars, max_size=2),
    lambda inner: st.dictionaries(st.sampled_from(["p", "q.r", "s[0]"]), inner, max_size=2),
    max_leaves=4,
)
values = st.dictionaries(st.sampled_from(["p", "q.r", "enabled", "version"]), trees, max_size=3)


def chart(name: str, **fields: Any) -> Component:
    source = Source(kind=SourceKind.HELM, repository="https://charts.example.com", chart=name, version="1.0.0")
    return Component(name=name, source=source, namespace=name, pin=Pin(source="test", date="2026-09"), **fields)


@st.composite
def patches(draw: st.DrawFn) -> dict[str, Patch]:
    found: dict[str, Patch] = {}
    for name in draw(st.lists(st.sampled_from(NAMES), unique=True, max_size=4)):
        earlier = NAMES[: NAMES.index(name)]
        version = draw(st.sampled_from(["", "", "1.1.0", "2.0.0"]))
        found[name] = Patch(
            enabled=draw(st.sampled_from([None, None, None, True, False])),
            version=version,
            version_reason="test" if version else "",
            depends_on=tuple(draw(st.lists(st.sampled_from(earlier), unique=True))) if earlier else (),
            values=draw(values),
        )
    return found


@st.composite
def catalogues(draw: st.DrawFn) -> Catalogue:
    """A chain of overlays, a sibling that applies too, and a mixin, over components with values, needs and CRDs."""
    components = {}
    for name in NAMES:
        crd = f"{name}s.example.com"
        needs = draw(st.lists(st.sampled_from(NAMES[: NAMES.index(name) + 1]), unique=True, max_size=2))
        components[name] = chart(
            name,
            values=draw(values),
            kube_version=draw(st.sampled_from(["", "", ">= 1.29.0-0"])),
            crds=Crds(provides=(crd,)),
            needs=tuple(Need(crd=f"{needed}s.example.com", when="p", default=False) for needed in needs),
        )
    base = {name: Patch() for name in NAMES}
    overlays = {ROOT: Overlay(name=ROOT, components=base, constraints={"kubernetes.version": ">= 1.28"})}
    for at, criteria in enumerate(CHAIN[1:], start=1):
        overlays[f"o{at}"] = Overlay(
            name=f"o{at}",
            base=ROOT if at == 1 else f"o{at - 1}",
            criteria=criteria,
            constraints={"kubernetes.version": draw(demands)} if draw(st.booleans()) else {},
            components=draw(patches()),
            mixins=("m",) if at == 3 and draw(st.booleans()) else (),
        )
    overlays["side"] = Overlay(
        name="side", base=ROOT, criteria={"accelerator": "h100"}, components=draw(patches()),
        constraints={"kubernetes.version": draw(demands)},
    )  # fmt: skip
    mixins = {"m": Mixin(name="m", components=draw(patches()), constraints={"kubernetes.version": draw(demands)})}
    catalogue = Catalogue(components=components, overlays=overlays, mixins=mixins, digest="sha256:test")
    check_catalogue(catalogue)
    return catalogue


def outcome(catalogue: Catalogue) -> Resolution | str:
    try:
        return resolve(CRITERIA, catalogue)
    except BadInputError as error:
        return str(error)


def demanded(catalogue: Catalogue, found: Resolution) -> list[str]:
    """Every demand on the version of Kubernetes that the recipe inherits."""
    texts = [catalogue.overlays[n].constraints.get("kubernetes.version", "") for n in found.recipe.overlays]
    texts += [catalogue.mixins[n].constraints.get("kubernetes.version", "") for n in found.recipe.mixins]
    texts += [catalogue.components[c.name].kube_version for c in found.recipe.components]
    return [text for text in texts if text]


@settings(max_examples=40)
@given(catalogues(), st.sampled_from(POINTS))
def test_a_child_never_holds_under_what_a_parent_refuses(catalogue: Catalogue, point: str) -> None:
    found = outcome(catalogue)
    if isinstance(found, str):
        assert "Nothing satisfies" in found or "needs the CRD" in found
        return
    version = Version.parse(point, K)
    holds = Range.parse(found.recipe.constraints["kubernetes.version"], K).contains(version)
    assert holds == all(Range.parse(text, K).contains(version) for text in demanded(catalogue, found))


@settings(max_examples=40)
@given(catalogues(), st.randoms(use_true_random=False))
def test_the_order_of_files_does_not_matter(catalogue: Catalogue, random: Any) -> None:
    def turned(entries: dict[str, Any]) -> dict[str, Any]:
        pairs = list(entries.items())
        random.shuffle(pairs)
        return dict(pairs)

    other = msgspec.structs.replace(
        catalogue,
        components=turned(catalogue.components),
        overlays=turned(catalogue.overlays),
        mixins=turned(catalogue.mixins),
    )
    one, two = outcome(catalogue), outcome(other)
    if isinstance(one, str) or isinstance(two, str):
        assert one == two
        return
    assert lock.write(one.recipe) == lock.write(two.recipe)
    assert one.provenance == two.provenance


@settings(max_examples=40)
@given(catalogues())
def test_edges_levels_and_explanations_hold_together(catalogue: Catalogue) -> None:
    found = outcome(catalogue)
    if not isinstance(found, str):
        check_explained(found)
        place = {c.name: at for at, c in enumerate(found.recipe.components)}
        level = {name: at for at, names in enumerate(found.recipe.levels) for name in names}
        for component in found.recipe.components:
            for needed in component.depends_on:
                assert place[needed] < place[component.name]
                assert level[needed] < level[component.name]


def check_explained(found: Resolution) -> None:
    """The last setting of every path is what the recipe holds, and nothing else is claimed."""
    for component in found.recipe.components:
        name = component.name
        if component.source.version:
            assert found.provenance[f"{name}.version"][-1].value == component.source.version
        for needed in component.depends_on:
            said = found.provenance[f"{name}.dependsOn.{needed}"][-1].value
            assert said == ("inferred" if needed in component.inferred else "declared")
        for path, value in whole_leaves(component.values):
            assert same(found.provenance[f"{name}:{path_text(path)}"][-1].value, value)
        for key in (k for k in found.provenance if k.startswith(f"{name}:")):
            held = get(component.values, parse_path(key.partition(":")[2]))
            assert held is not ABSENT
            assert same(held, found.provenance[key][-1].value)
    for name, text in found.recipe.constraints.items():
        assert found.provenance[f"constraint:{name}"][-1].value == text


@pytest.mark.parametrize("name", [n for n in leaf_names(load()) if not unavailable(n, load())])
def test_every_value_of_every_leaf_is_explained(name: str) -> None:
    criteria = {Dimension(d): v for d, v in load().overlays[name].criteria.items()}
    check_explained(resolve(criteria, load(), nodes=8))
