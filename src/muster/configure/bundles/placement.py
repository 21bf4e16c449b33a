"""Where pods and volumes go: a person's choice, written to the value paths that the catalogue records.

A path that the recipe sets keeps its value, an explicit `[]` or null included: the recipe knows more about a
component than a choice that is made for all of them. Tolerations for a DaemonSet that prepares nodes are added to
what resolution wrote there, so that it stays on held nodes.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from muster.configure.catalogue import Entry
from muster.configure.held_nodes import undecided
from muster.configure.parameters import reached_paths
from muster.configure.recipe import Recipe, RecipeComponent
from muster.configure.values import get, is_set, parse_path, put, sort_keys
from muster.errors import BadInputError

EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_PREFIX = r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/"
_NAME = r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"
_KEY = re.compile(rf"({_PREFIX})?{_NAME}", re.ASCII)
_VALUE = re.compile(rf"({_NAME})?", re.ASCII)
_CLASS = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?", re.ASCII)

Toleration = dict[str, str]


class PlacementChoice(Entry, frozen=True, kw_only=True):
    """What a person chooses for all components at once; empty fields choose nothing."""

    system_node_selector: dict[str, str] = {}
    system_node_tolerations: tuple[Toleration, ...] = ()
    accelerated_node_selector: dict[str, str] = {}
    accelerated_node_tolerations: tuple[Toleration, ...] = ()
    workload_selector: dict[str, str] = {}
    workload_gate: str = ""
    """Taint `key=value:Effect` that keeps workloads off a node until it is prepared."""
    storage_class: str = ""
    shared_storage_class: str = ""


@dataclass(frozen=True, slots=True)
class Placed:
    """The recipe with a placement; `written` and `kept` hold `component:path`, sorted."""

    recipe: Recipe
    written: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Flag:
    """One flag: how it is called, what it chooses and which paths of a component take it."""

    name: str
    value: Any
    paths: Callable[[RecipeComponent], tuple[str, ...]]


def parse_selector(flag: str, texts: Iterable[str]) -> dict[str, str]:
    """Read `key=value` texts as labels. Raises BadInputError."""
    found: dict[str, str] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not _KEY.fullmatch(key) or not _VALUE.fullmatch(value):
            raise BadInputError(f"{flag} {text[:80]!r} is no label; write it as key=value.")
        if found.setdefault(key, value) != value:
            raise BadInputError(f"{flag} gives {key} two values, {found[key]!r} and {value!r}; give one.")
    return dict(sorted(found.items()))


def parse_toleration(flag: str, text: str) -> Toleration:
    """Read `key=value:Effect`, `key:Effect`, `key=value`, `key`, or `Exists`, which tolerates every taint.

    Without an effect every effect is tolerated. Raises BadInputError.
    """
    if text == "Exists":
        return {"operator": "Exists"}
    label, colon, effect = text.rpartition(":")
    if not colon:
        label, effect = text, ""
    key, equals, value = label.partition("=")
    if not _KEY.fullmatch(key) or not _VALUE.fullmatch(value) or (colon and effect not in EFFECTS):
        raise BadInputError(
            f"{flag} {text[:80]!r} is no toleration; write key=value:Effect, key:Effect or Exists, with the effect "
            f"{', '.join(EFFECTS[:-1])} or {EFFECTS[-1]}."
        )
    toleration = {"key": key, "operator": "Equal", "value": value} if equals else {"key": key, "operator": "Exists"}
    return toleration | ({"effect": effect} if effect else {})


def parse_taint(flag: str, text: str) -> str:
    """Check a taint `key=value:Effect` or `key:Effect` and return it. Raises BadInputError."""
    label, _, effect = text.rpartition(":")
    key, _, value = label.partition("=")
    if not _KEY.fullmatch(key) or not _VALUE.fullmatch(value) or effect not in EFFECTS:
        raise BadInputError(
            f"{flag} {text[:80]!r} is no taint; write key=value:Effect with the effect {', '.join(EFFECTS)}."
        )
    return text


def parse_storage_class(flag: str, text: str) -> str:
    """Check the name of a StorageClass and return it. Raises BadInputError."""
    if not _CLASS.fullmatch(text):
        raise BadInputError(f"{flag} {text[:80]!r} is no name of a storage class; use letters, digits, '-' and '.'.")
    return text


def with_placement(recipe: Recipe, placement: PlacementChoice) -> Recipe:
    """The recipe with `placement` in the values of its components. Raises BadInputError for a flag without effect."""
    return placed(recipe, placement).recipe


def placed(recipe: Recipe, placement: PlacementChoice) -> Placed:
    """As `with_placement`, and which paths were written and which keep what the recipe sets."""
    flags = _flags(placement)
    if not flags:
        return Placed(recipe)
    components: list[RecipeComponent] = []
    written: dict[str, list[str]] = {flag.name: [] for flag in flags}
    kept: dict[str, list[str]] = {flag.name: [] for flag in flags}
    for component in recipe.components:
        wanted = _wanted(component, flags)
        values = copy.deepcopy(component.values)
        for path, (names, value) in wanted.items():
            added_to = undecided(component, path) if isinstance(value, list) else None
            if added_to is not None:
                value = added_to + [item for item in value if item not in added_to]
            is_free = added_to is not None or not is_set(component.values, parse_path(path))
            into = written if is_free else kept
            if is_free:
                put(values, parse_path(path), value)
            for name in names:
                into[name].append(f"{component.name}:{path}")
        components.append(msgspec.structs.replace(component, values=sort_keys(values)) if wanted else component)
    for flag in flags:
        _require_effect(flag.name, written[flag.name], kept[flag.name])
    return Placed(
        msgspec.structs.replace(recipe, components=tuple(components)),
        tuple(sorted({path for paths in written.values() for path in paths})),
        tuple(sorted({path for paths in kept.values() for path in paths})),
    )


def _flags(choice: PlacementChoice) -> list[_Flag]:
    def tolerations(values: tuple[Toleration, ...]) -> list[Toleration]:
        return [dict(value) for value in values]

    flags = [
        _Flag("--system-node-selector", choice.system_node_selector, lambda c: c.placement.system_selectors),
        _Flag(
            "--system-node-toleration",
            tolerations(choice.system_node_tolerations),
            lambda c: c.placement.system_tolerations,
        ),
        _Flag(
            "--accelerated-node-selector",
            choice.accelerated_node_selector,
            lambda c: c.placement.accelerated_selectors,
        ),
        _Flag(
            "--accelerated-node-toleration",
            tolerations(choice.accelerated_node_tolerations),
            lambda c: c.placement.accelerated_tolerations,
        ),
        _Flag("--workload-selector", choice.workload_selector, lambda c: c.placement.workload_selectors),
        _Flag("--workload-gate", choice.workload_gate, lambda c: c.placement.accelerated_taints),
        _Flag("--storage-class", choice.storage_class, lambda c: _claims(c, c.storage.class_paths)),
        _Flag(
            "--shared-storage-class", choice.shared_storage_class, lambda c: _claims(c, c.storage.shared_class_paths)
        ),
    ]
    return [flag for flag in flags if flag.value]


def _claims(component: RecipeComponent, paths: tuple[str, ...]) -> tuple[str, ...]:
    """Those of `paths` around which a volume is claimed; naming a class elsewhere would claim one."""
    if component.storage.claims:
        return paths
    around = {path: get(component.values, parse_path(path)[:-1]) for path in paths}
    return tuple(path for path in paths if isinstance(around[path], Mapping) and around[path])


def _wanted(component: RecipeComponent, flags: list[_Flag]) -> dict[str, tuple[list[str], Any]]:
    """Path -> (flags that write it, value). Lists of tolerations add up, everything else must agree."""
    wanted: dict[str, tuple[list[str], Any]] = {}
    reached = reached_paths(component)
    for flag in flags:
        for path in flag.paths(component):
            if reached is not None and path not in reached:
                continue
            names, present = wanted.get(path, ([], None))
            value = flag.value
            if isinstance(present, list) and isinstance(value, list):
                value = present + [item for item in value if item not in present]
            elif present is not None and present != value:
                raise BadInputError(
                    f"{names[0]} and {flag.name} both set {component.name}:{path}, to different values; set it with "
                    "--set instead."
                )
            wanted[path] = ([*names, flag.name], copy.deepcopy(value))
    return wanted


def _require_effect(flag: str, written: list[str], kept: list[str]) -> None:
    if written:
        return
    if not kept:
        raise BadInputError(
            f"{flag} reaches no component of this recipe; leave it out or use --set component:path=value."
        )
    shown = ", ".join(kept[:3]) + (f" and {len(kept) - 3} more" if len(kept) > 3 else "")
    raise BadInputError(
        f"{flag} changes nothing: the recipe sets {shown} itself; leave the flag out or use "
        "--set component:path=value."
    )
