"""Manifests of the catalogue filled with the values of their component.

A manifest is data, so what differs from cluster to cluster stands in it as a map of its own:

- `{$value: path}` is the value at that path; without one the entry goes away, and with `$default` that is used.
- A map with `$when: path` goes away when the value there is false; one with `$unless: path` goes away unless it is.
  An unset path counts as true, with `$default: false` as false. The map stands for its other entries, or `$then`.
- `{$name: text}` is the text, followed by the pool's name where the component is installed once for each pool.

A map or list that loses all its entries this way goes away too, so that no empty selector matches everything.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from muster.configure.catalogue import SourceKind
from muster.configure.recipe import ManifestFile, RecipeComponent
from muster.configure.values import ABSENT, get, parse_path
from muster.errors import BadInputError

VALUE, WHEN, UNLESS, NAME = "$value", "$when", "$unless", "$name"
DEFAULT, THEN = "$default", "$then"
_MAX_DEPTH: Final = 64


def filled(files: tuple[ManifestFile, ...], component: RecipeComponent) -> tuple[ManifestFile, ...]:
    """`files` with every placeholder replaced by the values of `component`; a file known by name only stays as it is.

    Raises BadInputError for a placeholder that is malformed or yields something that is no object.
    """
    return tuple(_file(file, component) for file in files)


def value_paths(objects: list[dict[str, Any]] | None) -> tuple[str, ...]:
    """Value paths that the placeholders in `objects` read, sorted."""
    found: dict[str, None] = {}

    def visit(node: Any) -> None:
        if isinstance(node, Mapping):
            for key in (VALUE, WHEN, UNLESS):
                if isinstance(node.get(key), str):
                    found[node[key]] = None
            for value in node.values():
                visit(value)
        elif isinstance(node, list):
            for value in node:
                visit(value)

    visit(objects)
    return tuple(sorted(found))


def reached_paths(component: RecipeComponent) -> frozenset[str] | None:
    """Value paths that a component without a chart reads: those in its manifests. None: it has a chart."""
    if component.source.kind is SourceKind.HELM:
        return None
    files = (*component.pre_manifests, *component.post_manifests)
    return frozenset(path for file in files for path in value_paths(file.objects))


def _file(file: ManifestFile, component: RecipeComponent) -> ManifestFile:
    if file.objects is None:
        return file
    where = f"The manifest {component.name}/{file.name}"
    objects = []
    for index, template in enumerate(file.objects, start=1):
        found = _fill(template, component, f"{where}, object {index}", 0)
        if found is ABSENT:
            continue
        if not isinstance(found, dict):
            raise BadInputError(f"{where}, object {index}: the placeholder yields no object; mend the manifest.")
        objects.append(found)
    return msgspec.structs.replace(file, objects=objects)


def _fill(node: Any, component: RecipeComponent, where: str, depth: int) -> Any:
    """The node with placeholders replaced, or ABSENT when it goes away."""
    if depth > _MAX_DEPTH:
        raise BadInputError(f"{where} is nested more than {_MAX_DEPTH} levels deep; flatten it.")
    if isinstance(node, list):
        items = [_fill(value, component, where, depth + 1) for value in node]
        rest = [value for value in items if value is not ABSENT]
        return ABSENT if items and not rest else rest
    if not isinstance(node, Mapping):
        return node
    if VALUE in node:
        return _value(node, component, where)
    if NAME in node:
        text = _only_text(node, NAME, {NAME}, where)
        return f"{text}-{component.pool}" if component.pool else text
    if WHEN in node or UNLESS in node:
        return _guarded(node, component, where, depth)
    _refuse_unknown(node, set(), where)
    kept = {key: _fill(value, component, where, depth + 1) for key, value in node.items()}
    entries = {key: value for key, value in kept.items() if value is not ABSENT}
    return ABSENT if kept and not entries else entries


def _value(node: Mapping[str, Any], component: RecipeComponent, where: str) -> Any:
    value = get(component.values, parse_path(_only_text(node, VALUE, {VALUE, DEFAULT}, where)))
    return node.get(DEFAULT, ABSENT) if value is ABSENT or value is None else value


def _guarded(node: Mapping[str, Any], component: RecipeComponent, where: str, depth: int) -> Any:
    form = WHEN if WHEN in node else UNLESS
    rest = {key: value for key, value in node.items() if key not in (form, DEFAULT)}
    _refuse_unknown(rest, {THEN}, where)
    if not isinstance(node[form], str) or (THEN in rest and len(rest) > 1):
        raise BadInputError(f"{where}: {form} takes the path of a value, and {THEN} stands alone beside it.")
    value = get(component.values, parse_path(node[form]))
    on = node.get(DEFAULT, True) if value is ABSENT or value is None else value
    off = on is False or (isinstance(on, str) and on.lower() == "false")
    if off is (form == WHEN):
        return ABSENT
    return _fill(rest.get(THEN, rest), component, where, depth + 1)


def _only_text(node: Mapping[str, Any], form: str, known: set[str], where: str) -> str:
    text = node[form]
    if not isinstance(text, str) or not known.issuperset(node):
        raise BadInputError(f"{where}: {form} takes a text, and beside it only {' and '.join(sorted(known))}.")
    return text


def _refuse_unknown(node: Mapping[str, Any], known: set[str], where: str) -> None:
    for key in node:
        if str(key).startswith("$") and key not in known:
            raise BadInputError(f"{where} holds {key[:40]!r}, which is no placeholder; see {VALUE}, {WHEN}, {NAME}.")
