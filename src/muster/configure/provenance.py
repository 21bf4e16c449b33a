"""Who set a value: what resolution records, and the answers to the question."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from muster.configure.infer import Inference
from muster.configure.recipe import RecipeComponent
from muster.configure.values import ABSENT, path_text, same, whole_leaves
from muster.errors import BadInputError


class Setting(msgspec.Struct, frozen=True):
    """Somebody set a value: which file, to what, and what it replaced (None: nothing was there)."""

    source: str
    value: Any
    replaced: tuple[Any, str] | None = None


Provenance = Mapping[str, tuple[Setting, ...]]
"""What was set -> settings, the deciding one last. Keys: `component:path` for values, `component.version` and
`component.enabled`, `component.dependsOn.<other>` for edges (value: declared, inferred or left out), and
`constraint:<name>`."""

DECLARED, INFERRED, LEFT_OUT = "declared", "inferred", "left out"


def provenance_of(components: Iterable[RecipeComponent], settings: Mapping[str, Sequence[Setting]]) -> Provenance:
    """`settings`, sorted by path; what a later setting around it wiped out is left to that one."""
    present = list(components)
    names = {c.name for c in present}
    held = {f"{c.name}:{path_text(path)}": value for c in present for path, value in whole_leaves(c.values)}

    def stands(path: str) -> bool:
        name, colon, _ = path.partition(":")
        return not colon or name not in names or same(held.get(path, ABSENT), settings[path][-1].value)

    return {path: tuple(settings[path]) for path in sorted(settings) if stands(path)}


def edge_settings(components: Iterable[RecipeComponent], inference: Inference) -> dict[str, Setting]:
    """Who says that one component comes after another, for the edges that nobody declared."""
    found = {
        f"{c.name}.dependsOn.{needed}": Setting(f"inference: {reason}", INFERRED)
        for c in components
        for needed, reason in c.inferred.items()
    }
    for edge in inference.left_out:
        against = f"but declared edges say {' -> '.join(edge.path)}"
        found[f"{edge.component}.dependsOn.{edge.needed}"] = Setting(f"inference: {edge.reason}, {against}", LEFT_OUT)
    return found


def explain(provenance: Provenance, paths: Iterable[str]) -> list[dict[str, Any]]:
    """For each path (or everything below it) its value and who set it, in order.

    Raises BadInputError with a suggestion when nothing was set at a path.
    """
    explained: list[dict[str, Any]] = []
    for path in paths:
        found = [
            known for known in provenance if known == path or known.startswith((f"{path}.", f"{path}:", f"{path}["))
        ]
        if not found:
            import difflib

            close = difflib.get_close_matches(path, provenance, n=1, cutoff=0.5)
            hint = f"did you mean {close[0]!r}?" if close else "paths look like gpu-operator:driver.version."
            raise BadInputError(f"The recipe sets nothing at {path[:120]!r}; {hint}")
        explained += [_entry(known, provenance[known]) for known in found]
    return explained


def _entry(path: str, settings: tuple[Setting, ...]) -> dict[str, Any]:
    return {"path": path, "value": settings[-1].value, "settings": [_setting(setting) for setting in settings]}


def _setting(setting: Setting) -> dict[str, Any]:
    entry = {"value": setting.value, "source": setting.source}
    if setting.replaced is not None:
        entry["replaced"], entry["replacedSource"] = setting.replaced
    return entry
