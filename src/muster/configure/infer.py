"""Edges that nobody wrote down but that follow from what a component needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from muster.configure.catalogue import Storage
from muster.configure.values import ABSENT, get, parse_path


class Needs(Protocol):
    """What inference looks at; catalogue and recipe components both have it."""

    @property
    def name(self) -> str: ...
    @property
    def storage(self) -> Storage: ...
    @property
    def values(self) -> dict[str, Any]: ...


def inferred_edges(components: Sequence[Needs]) -> Mapping[str, Mapping[str, str]]:
    """component -> {needed component: reason}, for enabled components with their merged values.

    A volume claim stays pending until its provisioner runs, and a release that waits for its pods then fails: whoever
    claims a volume comes after whoever provisions volumes.
    """
    providers = sorted(c.name for c in components if c.storage.provides)
    edges: dict[str, dict[str, str]] = {}
    for component in components:
        claim = _claim(component)
        found = {p: f"{claim} needs a provisioner" for p in providers if claim and p != component.name}
        if found:
            edges[component.name] = found
    return edges


def _claim(component: Needs) -> str:
    """What claims a volume, or an empty text."""
    for text in component.storage.class_paths:
        around = parse_path(text)[:-1]
        value = get(component.values, around)
        if value is not ABSENT and isinstance(value, Mapping) and value:
            return f"the volume claim at {'.'.join(around)}"
    return "a volume claim of the chart" if component.storage.claims else ""
