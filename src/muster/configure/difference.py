"""How one recipe differs from another, value by value."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from muster.configure.recipe import Recipe, content_of
from muster.configure.values import ABSENT, path_text, same, whole_leaves


@dataclass(frozen=True, slots=True)
class Difference:
    """One path that differs; ABSENT on the side that lacks it."""

    path: str
    before: Any
    after: Any

    def as_dict(self) -> dict[str, Any]:
        """Plain values; the side that lacks the path is left out."""
        sides = {"before": self.before, "after": self.after}
        return {"path": self.path} | {side: value for side, value in sides.items() if value is not ABSENT}


def differences(before: Recipe, after: Recipe) -> tuple[Difference, ...]:
    """Every difference, sorted by path. Components are compared by name, wherever they stand in the order.

    A component that only one side has is one difference, with its version. The digest and the levels are left out:
    they follow from the rest.
    """
    both = {c.name for c in before.components} & {c.name for c in after.components}
    old, new = _flat(before, both), _flat(after, both)
    return tuple(
        Difference(path, old.get(path, ABSENT), new.get(path, ABSENT))
        for path in sorted(old.keys() | new.keys())
        if not same(old.get(path, ABSENT), new.get(path, ABSENT))
    )


def _flat(recipe: Recipe, detailed: Collection[str]) -> dict[str, Any]:
    content = content_of(recipe)
    flat: dict[str, Any] = {}
    for component in content.pop("components"):
        name = component.pop("name")
        if name not in detailed:
            flat[name] = component["source"].get("version", "manifests only")
            continue
        for path, value in whole_leaves(component.pop("values", {})):
            flat[f"{name}:{path_text(path)}"] = value
        for path, value in whole_leaves(component):
            flat[f"{name}.{path_text(path)}"] = value
    for pool in content.pop("pools", []):
        name = pool.pop("name")
        flat |= {f"pools.{name}.{path_text(path)}": value for path, value in whole_leaves(pool)}
    content.pop("digest", None)
    content.pop("levels", None)
    return flat | {path_text(path): value for path, value in whole_leaves(content)}
