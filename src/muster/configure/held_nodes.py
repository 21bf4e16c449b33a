"""DaemonSets that prepare a node run on held nodes: the toleration at the value paths that the catalogue records.

Every node is held until it is certified, and it is certified only once its driver works, so the pods that bring the
driver must get there first. Pods of work never tolerate the hold. Pure.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from muster.configure.catalogue import DaemonTolerations
from muster.configure.parameters import reached_paths
from muster.configure.recipe import RecipeComponent
from muster.configure.values import ABSENT, get, is_set, parse_path, put, sort_keys
from muster.resources.base import HOLD_TAINT

REASON: Final = "node preparation runs on held nodes"
"""Source of the toleration in the provenance of a recipe."""
_EFFECT = "NoSchedule"


def hold_toleration() -> dict[str, str]:
    return {"key": HOLD_TAINT, "operator": "Exists"}


@dataclass(frozen=True, slots=True)
class Written:
    """What resolution put at a value path, and what was there or in the chart before."""

    path: str
    value: list[Any]
    before: Any
    """ABSENT: nobody set it."""
    default_source: str = ""
    """Where the chart's default was read; empty when somebody had set the path, or when the chart has no default."""


def tolerates_hold(tolerations: Any) -> bool:
    """Whether pods with these tolerations are placed on a held node, whatever the reason of the hold."""
    return isinstance(tolerations, list) and any(_covers(item) for item in tolerations)


def names_hold(tolerations: Any) -> bool:
    """Whether somebody decided about the hold already, be it for some of its reasons alone."""
    return isinstance(tolerations, list) and any(
        isinstance(item, Mapping) and item.get("key") == HOLD_TAINT for item in tolerations
    )


def _covers(toleration: Any) -> bool:
    if not isinstance(toleration, Mapping) or toleration.get("operator") != "Exists":
        return False
    return toleration.get("key") in (None, "", HOLD_TAINT) and toleration.get("effect") in (None, "", _EFFECT)


def daemon_paths(component: RecipeComponent) -> tuple[DaemonTolerations, ...]:
    """The paths of `component` that have an effect: those of its chart, or those that its manifests read."""
    reached = reached_paths(component)
    return tuple(d for d in component.placement.daemon_tolerations if reached is None or d.path in reached)


def on_held_nodes(component: RecipeComponent) -> tuple[RecipeComponent, tuple[Written, ...]]:
    """The component with the toleration at each of its daemon paths, and what was written; twice changes nothing.

    Left alone: a list that tolerates the hold or names it, an explicit empty list, and whatever is no list.
    """
    values, written = copy.deepcopy(component.values), []
    for daemon in daemon_paths(component):
        path = parse_path(daemon.path)
        before = get(values, path)
        if before is ABSENT and is_set(values, path):
            continue
        present = _default(daemon) if before is ABSENT else before
        if not isinstance(present, list) or (before is not ABSENT and not present):
            continue
        if tolerates_hold(present) or names_hold(present):
            continue
        value = [*present, hold_toleration()]
        put(values, path, value)
        carried = before is ABSENT and bool(daemon.default)
        written.append(Written(daemon.path, value, before, daemon.source if carried else ""))
    if not written:
        return component, ()
    return msgspec.structs.replace(component, values=sort_keys(values)), tuple(written)


def undecided(component: RecipeComponent, path: str) -> list[Any] | None:
    """The list that a person's own tolerations are added to: what resolution left at a daemon path.

    None when `path` is no daemon path, or when the recipe set the list itself.
    """
    daemon = next((d for d in daemon_paths(component) if d.path == path), None)
    if daemon is None:
        return None
    default = _default(daemon)
    value = get(component.values, parse_path(path))
    if value is ABSENT:
        return None if is_set(component.values, parse_path(path)) else default
    left = default if tolerates_hold(default) or names_hold(default) else [*default, hold_toleration()]
    return left if value == left else None


def repelled(component: RecipeComponent) -> tuple[str, ...]:
    """Daemon paths whose list keeps the pods off held nodes, in the order of the catalogue."""
    found = []
    for daemon in daemon_paths(component):
        path = parse_path(daemon.path)
        value = get(component.values, path)
        if value is ABSENT and not is_set(component.values, path):
            value = _default(daemon)
        if not tolerates_hold(value):
            found.append(daemon.path)
    return tuple(found)


def _default(daemon: DaemonTolerations) -> list[Any]:
    return [dict(toleration) for toleration in daemon.default]
