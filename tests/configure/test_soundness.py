"""`recipe check` beyond the digest: secrets, inferred edges, unmet needs, value paths that no chart knows."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from muster.configure.catalogue import Checks, Need, load
from muster.configure.criteria import parse_criteria
from muster.configure.known_paths import known_paths
from muster.configure.matching import unavailable
from muster.configure.recipe import Pool, Recipe
from muster.configure.resolve import leaf_names, resolve
from muster.configure.soundness import require_sound
from muster.configure.values import Path
from muster.errors import BadInputError
from tests.configure.cases import recipe_of

LEAF = "h100-eks-ubuntu-training-kubeflow"


class Known:
    """A chart that knows everything below `driver`."""

    def unknown(self, path: Path) -> str | None:
        return None if path[0] == "driver" else "driver"


def changed(component: str, /, **fields: Any) -> Recipe:
    recipe = recipe_of(LEAF)
    components = tuple(msgspec.structs.replace(c, **fields) if c.name == component else c for c in recipe.components)
    return msgspec.structs.replace(recipe, components=components)


def demanding(**fields: Any) -> Recipe:
    return msgspec.structs.replace(recipe_of(LEAF), **fields)


@pytest.mark.parametrize("name", [n for n in leaf_names(load()) if not unavailable(n, load())])
def test_every_leaf_is_sound(name: str) -> None:
    recipe = resolve(parse_criteria(dict(load().overlays[name].criteria)), load()).recipe
    require_sound(recipe, name, known_paths)
    assert recipe.components


@pytest.mark.parametrize(
    ("recipe", "message"),
    [
        (changed("nfd", values={"adminPassword": "hunter2"}), r"nfd:adminPassword \(r\.yaml\) is a secret"),
        (
            changed("kube-prometheus-stack", inferred={}, depends_on=("prometheus-operator-crds",)),
            "inferred edges are none and should be",
        ),
        (changed("nfd", inferred={"cert-manager": "because"}), "'nfd': its inferred edges are cert-manager"),
        (changed("nfd", needs=(Need(crd="things.example.com"),)), r"r\.yaml: Component 'nfd' needs the CRD things"),
        (changed("nfd", values={"drivre": {"a": 1}}), r"has no value nfd:drivre\.a; did you mean driver\?"),
        (
            demanding(constraints={"kubernetes.version": "newest"}),
            r"r\.yaml, constraint 'kubernetes\.version': 'newest'",
        ),
        (demanding(constraints={"kernel.versoin": ">= 6"}), r"r\.yaml, constraint .*did you mean 'kernel\.version'"),
        (
            demanding(checks={"performance": Checks(constraints={"nccl-all-reduce-bw": "fast"})}),
            r"r\.yaml, constraint 'nccl-all-reduce-bw': 'fast'",
        ),
        (
            demanding(pools=(Pool(name="a", criteria={}, constraints={"driver.version": "> new"}),)),
            r"r\.yaml, constraint 'driver\.version': 'new'",
        ),
        (changed("nfd", values={"x": 1, "y": 2}), r"nfd:x \(1 more such paths follow\)"),
    ],
)
def test_what_is_wrong_is_said(recipe: Recipe, message: str) -> None:
    paths = {"nfd": Known()}
    with pytest.raises(BadInputError, match=message):
        require_sound(recipe, "r.yaml", paths.get)


def test_a_copy_for_a_pool_is_known_by_its_name_in_the_catalogue() -> None:
    recipe = changed("nfd", name="nfd-train", pool="train", values={"drivre": 1})
    asked: list[str] = []

    def paths(component: str) -> Known | None:
        asked.append(component)
        return Known() if component == "nfd" else None

    with pytest.raises(BadInputError, match="nfd-train:drivre"):
        require_sound(recipe, "r.yaml", paths)
    assert "nfd" in asked
