"""Small recipes that no catalogue has."""

from __future__ import annotations

from typing import Any

from muster.configure.catalogue import Source, SourceKind
from muster.configure.order import order
from muster.configure.recipe import ManifestFile, Recipe, RecipeComponent

HELM = Source(kind=SourceKind.HELM, repository="https://charts.example", chart="x", version="1.0.0")
BARE = Source(kind=SourceKind.MANIFESTS)
FILES = (ManifestFile(name="a.yaml", objects=[{"apiVersion": "v1", "kind": "ConfigMap"}]),)


def component(name: str, **fields: Any) -> RecipeComponent:
    return RecipeComponent(**({"name": name, "source": HELM, "namespace": "ns"} | fields))


def recipe_with(*components: RecipeComponent) -> Recipe:
    found = order({c.name: c.depends_on for c in components})
    by_name = {c.name: c for c in components}
    return Recipe(
        catalogue="sha256:0",
        criteria={},
        components=tuple(by_name[name] for name in found.sequence),
        levels=found.levels,
    )
