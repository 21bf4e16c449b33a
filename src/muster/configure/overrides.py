"""Changes that a person makes to a recipe when building a bundle: `component:path=value` and supplied manifests."""

from __future__ import annotations

import copy
import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from muster.configure.lint import lint_values
from muster.configure.order import order
from muster.configure.recipe import ManifestFile, Recipe, RecipeComponent, check_recipe
from muster.configure.resolve import with_inferred_edges
from muster.configure.values import Path, leaves, parse_path, parse_value, path_text, put, sort_keys
from muster.errors import BadInputError


@dataclass(frozen=True, slots=True)
class Override:
    """One `--set component:path=value`, the component by its real name."""

    component: str
    path: Path
    value: Any

    def __str__(self) -> str:
        shown = msgspec.json.encode(self.value).decode()
        return f"{self.component}:{path_text(self.path)}={shown}"


def parse_overrides(texts: Iterable[str], recipe: Recipe) -> tuple[Override, ...]:
    """Read the texts of `--set`. Raises BadInputError for bad text, unknown components and overlapping paths."""
    found: list[Override] = []
    for text in texts:
        target, equals, value = text.partition("=")
        name, colon, path = target.partition(":")
        if not equals or not colon or not name or not path:
            raise BadInputError(f"--set {text[:80]!r} is malformed; write it as component:path=value.")
        try:
            override = Override(_component(name, recipe), parse_path(path), parse_value(value))
        except BadInputError as error:
            raise BadInputError(f"--set {text[:80]!r}: {error}") from error
        for other in found:
            shorter = min(len(other.path), len(override.path))
            if other.component == override.component and other.path[:shorter] == override.path[:shorter]:
                raise BadInputError(f"--set {other} and {override} overlap; give one of them.")
        if override.path == ("enabled",) and not isinstance(override.value, bool):
            raise BadInputError(f"--set {override}: enabled takes true or false.")
        found.append(override)
    return tuple(found)


def _component(name: str, recipe: Recipe) -> str:
    for component in recipe.components:
        if name == component.name:
            return name
    for component in recipe.components:
        if name in component.aliases:
            return component.name
    if name in recipe.disabled:
        raise BadInputError(f"Component {name!r} is turned off by the recipe; choose a recipe that has it on.")
    names = [c.name for c in recipe.components]
    close = difflib.get_close_matches(name, names, n=1)
    hint = f"did you mean {close[0]!r}?" if close else f"components: {', '.join(names)}."
    raise BadInputError(f"The recipe has no component {name[:60]!r}; {hint}")


def with_overrides(recipe: Recipe, overrides: Sequence[Override]) -> Recipe:
    """The recipe with `overrides` applied, edges and order worked out again. Raises BadInputError."""
    components: dict[str, RecipeComponent] = {c.name: c for c in recipe.components}
    off: list[str] = []
    for override in overrides:
        component = components[override.component]
        if override.path == ("enabled",):
            if override.value is False:
                off.append(component.name)
            continue
        values = copy.deepcopy(component.values)
        try:
            put(values, override.path, override.value)
        except BadInputError as error:
            raise BadInputError(f"--set {override}: {error}") from error
        lint_values(component.name, values, "--set")
        components[component.name] = msgspec.structs.replace(component, values=sort_keys(values))
    kept = {
        name: msgspec.structs.replace(c, depends_on=tuple(n for n in c.depends_on if n not in off))
        for name, c in components.items()
        if name not in off
    }
    kept = with_inferred_edges(kept)
    found = order({name: c.depends_on for name, c in kept.items()})
    changed = msgspec.structs.replace(
        recipe,
        components=tuple(kept[name] for name in found.sequence),
        levels=found.levels,
        disabled=tuple(sorted({*recipe.disabled, *off})),
    )
    check_recipe(changed, "The recipe with --set")
    return changed


def doubts(recipe: Recipe, overrides: Sequence[Override]) -> tuple[str, ...]:
    """Sentences about overrides that are allowed but may be a slip: a misspelt path, a component others need."""
    found: list[str] = []
    off = {o.component for o in overrides if o.path == ("enabled",) and o.value is False}
    for override in overrides:
        component = recipe.component(override.component)
        if component is None or override.path == ("enabled",):
            continue
        known = [path_text(path) for path, _ in leaves(component.values)]
        written = path_text(override.path)
        close = difflib.get_close_matches(written, known, n=1, cutoff=0.85)
        if close and close[0] != written and not written.startswith(f"{close[0]}["):
            found.append(f"The recipe does not set {component.name}:{written}; did you mean {close[0]}?")
    for name in sorted(off):
        needing = [c.name for c in recipe.components if name in c.depends_on and c.name not in off]
        if needing:
            found.append(
                f"{name} is left out, and in the recipe {', '.join(needing)} comes after it; make sure that the "
                "cluster has it already or does without."
            )
    return tuple(found)


def with_manifests(recipe: Recipe, supplied: Mapping[str, list[dict[str, Any]]]) -> Recipe:
    """The recipe with the objects of `supplied` (`component/file` -> objects) filled in or replaced.

    Raises BadInputError for a file that no component of the recipe names.
    """
    known = [f"{c.name}/{f.name}" for c in recipe.components for f in (*c.pre_manifests, *c.post_manifests)]
    for name in supplied:
        if name not in known:
            raise BadInputError(
                f"The recipe names no manifest {name[:80]!r}; it names: {', '.join(known) or 'none'}."
            )

    def filled(component: str, files: tuple[ManifestFile, ...]) -> tuple[ManifestFile, ...]:
        return tuple(
            ManifestFile(name=f.name, objects=supplied.get(f"{component}/{f.name}", f.objects)) for f in files
        )

    components = tuple(
        msgspec.structs.replace(
            c, pre_manifests=filled(c.name, c.pre_manifests), post_manifests=filled(c.name, c.post_manifests)
        )
        for c in recipe.components
    )
    return msgspec.structs.replace(recipe, components=components)
