"""What a MutatingAdmissionPolicy does to an object, pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from muster.kube.api import Object
from muster.sim.admission_cel import EvaluationError
from muster.sim.admission_policies import Evaluation, Mutation
from muster.sim.patch_json import PatchError, apply_json_patch
from muster.sim.shapes import Merge, Shape


class MutationError(Exception):
    """Why a mutation cannot be carried out; the policy's failurePolicy decides what follows."""


def mutated(evaluation: Evaluation, mutation: Mutation, obj: Object, shape: Shape, top: tuple[str, ...]) -> Object:
    """The object after one mutation. `top`: the fields that the kind has. Raises MutationError."""
    try:
        value = evaluation.value(mutation.expression)
    except EvaluationError as error:
        raise MutationError(str(error)) from None
    if mutation.kind == "JSONPatch":
        try:
            patched = apply_json_patch(obj, value)
        except PatchError as error:
            raise MutationError(f"JSON Patch: {error}") from None
        if not isinstance(patched, dict):
            raise MutationError("JSON Patch: the result is no object")
        return patched
    if not isinstance(value, dict):
        raise MutationError("error applying patch: the expression yields no object")
    for name in value:
        if name not in (*top, "metadata", "apiVersion", "kind"):
            text = f"failed to convert patch object to typed object: .{name}: field not declared in schema"
            raise MutationError(f"error applying patch: {text}")
    merged: Object = _merged(obj, value, shape, "")
    return merged


def _merged(old: Any, new: Any, shape: Shape, path: str) -> Any:
    """`new` laid over `old` as server-side apply would, but nothing is ever removed."""
    match shape.merge:
        case Merge.STRUCT | Merge.MAP:
            if not isinstance(new, dict):
                _refuse_list(new, path)
                return new
            base = old if isinstance(old, dict) else {}
            laid = {
                name: _merged(base.get(name), value, shape.child(name), f"{path}.{name}")
                for name, value in new.items()
            }
            return {**base, **laid}
        case Merge.KEYED:
            return _merged_items(old, new, shape, path)
        case Merge.SET:
            base_items = old if isinstance(old, list) else []
            return [*base_items, *(item for item in new if item not in base_items)]
        case Merge.ATOMIC:
            raise MutationError(
                "error applying patch: invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: "
                + path
            )


def _refuse_list(value: Any, path: str) -> None:
    if isinstance(value, list):
        raise MutationError(
            f"error applying patch: invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: {path}"
        )


def _merged_items(old: Any, new: Any, shape: Shape, path: str) -> Any:
    if not isinstance(new, list) or not all(isinstance(item, dict) for item in new):
        raise MutationError(f"error applying patch: {path}: expected a list of objects")
    items = list(old) if isinstance(old, list) else []
    inner = shape.items or Shape()

    def identity(item: Mapping[str, Any]) -> list[Any]:
        return [item.get(key, shape.key_defaults.get(key)) for key in shape.keys]

    for item in new:
        at = next((n for n, other in enumerate(items) if identity(other) == identity(item)), None)
        if at is None:
            items.append(_merged({}, item, inner, path))
        else:
            items[at] = _merged(items[at], item, inner, path)
    return items
