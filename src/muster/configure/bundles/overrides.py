"""Changes that a person makes to a recipe when building a bundle: values, files of values, supplied manifests."""

from __future__ import annotations

import copy
import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec

from muster.configure.lint import lint_values
from muster.configure.order import order
from muster.configure.parameters import value_paths
from muster.configure.recipe import ManifestFile, Recipe, RecipeComponent, check_recipe
from muster.configure.values import (
    ABSENT,
    Path,
    check,
    get,
    leaves,
    merge,
    parse_path,
    parse_value,
    path_text,
    put,
    sort_keys,
    whole_leaves,
)
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


@dataclass(frozen=True, slots=True)
class FileValues:
    """One `--set-file component=FILE`: values merged into those of the component, the component by its real name."""

    component: str
    values: Mapping[str, Any]


class Paths(Protocol):
    """Value paths that a chart knows."""

    def unknown(self, path: Path) -> str | None:
        """A suggestion, or an empty text, when the chart knows no such path; None when it does."""
        ...


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
            if override.value == value:
                _require_plain(override, recipe)
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


def _require_plain(override: Override, recipe: Recipe) -> None:
    """Refuse text without quotes that was surely meant as something else: charts take it, and do the opposite."""
    text = override.value.strip()
    quoted = f"quotes inside ('\"{text[:40]}\"') say that this text is meant"
    if text[:1] in ("{", "[", '"'):
        raise BadInputError(f"the value looks like JSON and is not valid JSON; correct it, or {quoted}.")
    if text.lower() in ("true", "false", "null"):
        raise BadInputError(f"write true, false or null in small letters; {quoted}.")
    component = recipe.component(override.component)
    present = ABSENT if component is None else get(component.values, override.path)
    word = override.path[-1] == "enabled" and text.lower() in ("yes", "no", "on", "off", "y", "n")
    if word or (text and isinstance(present, bool)):
        raise BadInputError(f"this is a switch; write true or false; {quoted}.")


def file_values(name: str, values: Any, source: str, recipe: Recipe) -> FileValues:
    """What the file `source` says about the component `name`. Raises BadInputError."""
    if not isinstance(values, dict) or not values:
        raise BadInputError(f"{source} holds no map of Helm values; write it like a values.yaml.")
    check(values, source)
    return FileValues(_component(name, recipe), values)


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


def with_overrides(recipe: Recipe, overrides: Sequence[Override], files: Sequence[FileValues] = ()) -> Recipe:
    """The recipe with `files` and then `overrides` applied, edges and order worked out again.

    Raises BadInputError.
    """
    # A bundle without such changes needs neither resolution nor inference, and starts sooner without them.
    from muster.configure.resolve import with_inferred_edges

    components: dict[str, RecipeComponent] = {c.name: c for c in recipe.components}
    for file in files:
        values = copy.deepcopy(components[file.component].values)
        merge(values, file.values)
        _replace(components, file.component, values, "--set-file")
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
        _replace(components, override.component, values, "--set")
    kept = {
        name: msgspec.structs.replace(c, depends_on=tuple(n for n in c.depends_on if n not in off))
        for name, c in components.items()
        if name not in off
    }
    kept = with_inferred_edges(kept, recipe.criteria.get("service", ""))
    found = order({name: c.depends_on for name, c in kept.items()})
    changed = msgspec.structs.replace(
        recipe,
        components=tuple(kept[name] for name in found.sequence),
        levels=found.levels,
        disabled=tuple(sorted({*recipe.disabled, *off})),
    )
    check_recipe(changed, "The recipe with --set")
    return changed


def _replace(components: dict[str, RecipeComponent], name: str, values: dict[str, Any], flag: str) -> None:
    lint_values(name, values, flag)
    check(values, flag)
    components[name] = msgspec.structs.replace(components[name], values=sort_keys(values))


def require_known_paths(
    recipe: Recipe,
    overrides: Sequence[Override],
    files: Sequence[FileValues] = (),
    paths_of: Callable[[str], Paths | None] | None = None,
) -> None:
    """Raise BadInputError for the first path that a chart does not know, where its paths are recorded.

    `paths_of`: recorded paths by the component's name in the catalogue; those that come with Muster unless given.
    """
    if paths_of is None:
        from muster.configure.known_paths import known_paths

        paths_of = known_paths
    for override in overrides:
        if override.path != ("enabled",):
            nested = whole_leaves(override.value, override.path) if isinstance(override.value, Mapping) else ()
            paths = [path for path, _ in nested] or [override.path]
            _require_known(recipe, override.component, paths, f"--set {override}", paths_of)
    for file in files:
        paths = [path for path, _ in whole_leaves(file.values)]
        _require_known(recipe, file.component, paths, f"--set-file {file.component}", paths_of)


def _require_known(
    recipe: Recipe, name: str, paths: Iterable[Path], flag: str, paths_of: Callable[[str], Paths | None]
) -> None:
    component = recipe.component(name)
    known = paths_of(component.catalogue_name) if component is not None else None
    if component is None or known is None:
        return
    manifests = (*component.pre_manifests, *component.post_manifests)
    read = [parse_path(text) for file in manifests for text in value_paths(file.objects)]
    for path in paths:
        suggestion = known.unknown(path)
        if suggestion is None or get(component.values, path) is not ABSENT:
            continue
        if any(path[: len(other)] == other or other[: len(path)] == path for other in read):
            continue
        hint = f"did you mean {suggestion!r}? Else" if suggestion else "mend it, or"
        raise BadInputError(
            f"{flag[:120]}: the chart of {name} has no value {path_text(path)!r}; {hint} pass --allow-unknown."
        )


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
        for document in supplied[name]:
            if document.get("kind") == "Secret" and (document.get("data") or document.get("stringData")):
                raise BadInputError(
                    f"The manifest {name} holds a Secret with its content, and a bundle is shared; create the Secret "
                    "in the cluster and leave it out of the file."
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
