"""The recipe: what resolution yields, and the content of the lock file."""

from __future__ import annotations

import re
from enum import StrEnum
from functools import cache
from typing import Any

import msgspec

from muster.configure.catalogue import (
    Checks,
    Crds,
    Entry,
    Gate,
    Health,
    Layer,
    Need,
    Placement,
    SecretNeed,
    Source,
    SourceKind,
    Storage,
)
from muster.configure.criteria import Dimension
from muster.configure.order import order
from muster.errors import BadInputError
from muster.resources.base import API_VERSION

KIND = "Recipe"
_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,51}[a-z0-9])?", re.ASCII)
_REPOSITORY = re.compile(r"(https|oci)://[A-Za-z0-9.-]+(:\d{1,5})?(/[A-Za-z0-9._~/-]*)?", re.ASCII)
_CHART = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", re.ASCII)
_EXACT = re.compile(r"v?\d{1,9}\.\d{1,9}\.\d{1,9}(-[0-9A-Za-z.-]{1,60})?(\+[0-9A-Za-z.-]{1,60})?", re.ASCII)
_FILE = re.compile(r"[a-z0-9][a-z0-9.-]{0,99}\.yaml", re.ASCII)


class ManifestFile(Entry, frozen=True, kw_only=True):
    """A file of Kubernetes objects. Without `objects` only its name is known: whoever builds a bundle supplies it."""

    name: str
    objects: list[dict[str, Any]] | None = None


class RecipeComponent(Entry, frozen=True, kw_only=True):
    """One component, locked: exact source, merged values, dependencies."""

    name: str
    source: Source
    namespace: str
    depends_on: tuple[str, ...] = ()
    inferred: dict[str, str] = {}
    """Those of `depends_on` that nobody wrote down, with the reason."""
    pool: str = ""
    """The pool whose copy this is; then the name is `<component of the catalogue>-<pool>`."""
    gate: Gate = Gate.RELEASE_READY
    timeout_s: int = 600
    crds: Crds = Crds()
    storage: Storage = Storage()
    needs: tuple[Need, ...] = ()
    health: tuple[Health, ...] = ()
    placement: Placement = Placement()
    secrets: tuple[SecretNeed, ...] = ()
    aliases: tuple[str, ...] = ()
    namespace_labels: dict[str, str] = {}
    pre_manifests: tuple[ManifestFile, ...] = ()
    post_manifests: tuple[ManifestFile, ...] = ()
    values: dict[str, Any] = {}

    @property
    def catalogue_name(self) -> str:
        """What the catalogue calls the component."""
        return self.name.removesuffix(f"-{self.pool}") if self.pool else self.name


class Pool(Entry, frozen=True, kw_only=True):
    """GPU nodes that differ from those of other pools: their criteria, and what holds for them alone."""

    name: str
    criteria: dict[str, str]
    """All of them, those of the whole cluster included."""
    node_selector: dict[str, str] = {}
    overlays: tuple[str, ...] = ()
    profiles: dict[str, str] = {}
    constraints: dict[str, str] = {}
    """Those about nodes (operating system, kernel, driver); constraints of the cluster stand in the recipe."""
    checks: dict[str, Checks] = {}


class Recipe(Entry, frozen=True, kw_only=True):
    """A locked recipe. `digest` covers everything else."""

    api_version: str = API_VERSION
    kind: str = KIND
    digest: str = ""
    catalogue: str
    """Digest of the catalogue that it came from, layers included."""
    layers: tuple[Layer, ...] = ()
    """Users' layers of that catalogue, lowest first."""
    criteria: dict[str, str] = {}
    """What was stated for the whole cluster; with pools, each of them says more."""
    nodes: int | None = None
    profiles: dict[str, str] = {}
    overlays: tuple[str, ...] = ()
    mixins: tuple[str, ...] = ()
    constraints: dict[str, str] = {}
    checks: dict[str, Checks] = {}
    pools: tuple[Pool, ...] = ()
    """Empty: all GPU nodes are alike."""
    settled: dict[str, str] = {}
    """Where pools wanted different things of a shared component: `component:path` -> what a person settled on, as
    the text of `--settle`."""
    components: tuple[RecipeComponent, ...]
    """In deployment order."""
    disabled: tuple[str, ...] = ()
    levels: tuple[tuple[str, ...], ...] = ()

    def component(self, name: str) -> RecipeComponent | None:
        return next((c for c in self.components if c.name == name), None)


@cache
def _true_by_default(struct: type[msgspec.Struct]) -> frozenset[str]:
    """Fields, as they are written, that are true when they are left out."""
    defaults = zip(reversed(struct.__struct_encode_fields__), reversed(struct.__struct_defaults__), strict=False)
    return frozenset(name for name, default in defaults if default is True)


def content_of(value: Any) -> Any:
    """Plain values of a recipe or a part of it, fields in their order; what is empty, false or absent is left out,
    unless it would then be read back as true.

    Decided by value alone. (The encoder of msgspec leaves defaults out by object identity, so it would tell equal
    recipes apart by how they were made.)
    """
    if isinstance(value, msgspec.Struct):
        fields = zip(value.__struct_fields__, value.__struct_encode_fields__, strict=True)
        plain = {encoded: content_of(getattr(value, name)) for name, encoded in fields}
        kept = _true_by_default(type(value))
        return {
            key: v
            for key, v in plain.items()
            if v not in (None, False, "", {}, []) or (key == "objects" and v == []) or (key in kept and v is False)
        }
    if isinstance(value, StrEnum):
        return value.value
    if isinstance(value, tuple):
        return [content_of(item) for item in value]
    if isinstance(value, dict):
        return {key: content_of(item) if isinstance(item, msgspec.Struct) else item for key, item in value.items()}
    return value


def check_recipe(recipe: Recipe, source: str) -> None:
    """Raise BadInputError unless names, versions, addresses and edges can be deployed as they stand."""
    names = [c.name for c in recipe.components]
    if len(set(names)) != len(names):
        raise BadInputError(f"{source} holds one component twice; resolve it again with 'muster recipe'.")
    _check_pools(recipe, source)
    for criteria in (recipe.criteria, *(pool.criteria for pool in recipe.pools)):
        if unknown := sorted(criteria.keys() - set(Dimension)):
            raise BadInputError(
                f"{source}: {unknown[0][:60]!r} is no dimension; a recipe is chosen by {', '.join(Dimension)}."
            )
    for component in recipe.components:
        _check_component(component, source)
    found = order({c.name: c.depends_on for c in recipe.components})
    if found.levels != recipe.levels:
        raise BadInputError(
            f"{source} holds levels that do not follow from its edges; resolve it again with 'muster recipe'."
        )


def _check_pools(recipe: Recipe, source: str) -> None:
    pools = [pool.name for pool in recipe.pools]
    if len(set(pools)) != len(pools) or len(pools) == 1 or not all(_NAME.fullmatch(name) for name in pools):
        raise BadInputError(f"{source}: pools are two or more, each with a name of its own that is a DNS label.")
    if any(not pool.node_selector for pool in recipe.pools):
        raise BadInputError(f"{source}: a pool without nodeSelector cannot be told from the others.")
    for component in recipe.components:
        if component.pool and (component.pool not in pools or not component.name.endswith(f"-{component.pool}")):
            raise BadInputError(
                f"{source}, component {component.name[:60]!r}: its pool {component.pool[:60]!r} is not one of the "
                "recipe, or its name does not end in it; resolve the recipe again with 'muster recipe'."
            )


def _check_component(component: RecipeComponent, source: str) -> None:
    where = f"{source}, component {component.name[:60]!r}"
    if not _NAME.fullmatch(component.name) or not _NAME.fullmatch(component.namespace):
        raise BadInputError(f"{where}: name and namespace must be DNS labels of at most 53 characters.")
    if not 1 <= component.timeout_s <= 86400:
        raise BadInputError(f"{where}: timeoutS must lie between 1 and 86400.")
    for file in (*component.pre_manifests, *component.post_manifests):
        if not _FILE.fullmatch(file.name):
            raise BadInputError(
                f"{where}: {file.name[:60]!r} is no name of a manifest; use letters, digits, '.' and '-'."
            )
    if component.source.kind is SourceKind.MANIFESTS:
        return
    if not _REPOSITORY.fullmatch(component.source.repository) or ".." in component.source.repository:
        raise BadInputError(
            f"{where}: {component.source.repository[:80]!r} is no https:// or oci:// chart repository."
        )
    if not _CHART.fullmatch(component.source.chart):
        raise BadInputError(f"{where}: {component.source.chart[:60]!r} is no chart name.")
    if not _EXACT.fullmatch(component.source.version):
        raise BadInputError(
            f"{where}: {component.source.version[:60]!r} is no exact version; pin one, for example 1.2.3."
        )
