"""Strategic merge patch: a merge patch that knows which lists merge by key."""

from __future__ import annotations

from typing import Any

from muster.sim.patch_json import PatchError, same_json
from muster.sim.shapes import Merge, Shape

_DIRECTIVE = "$patch"
_RETAIN = "$retainKeys"
_ORDER = "$setElementOrder/"
_DELETE = "$deleteFromPrimitiveList/"


def apply_strategic_patch(document: Any, patch: Any, shape: Shape) -> Any:
    """`document` after `patch`; neither is changed. Raises PatchError for a malformed patch."""
    if not isinstance(patch, dict):
        raise PatchError("a strategic merge patch must be an object")
    return _merge_map(document if isinstance(document, dict) else {}, patch, shape)


def _merge_map(current: dict[str, Any], patch: dict[str, Any], shape: Shape) -> dict[str, Any]:
    match patch.get(_DIRECTIVE):
        case None | "merge":
            pass
        case "replace":
            return {name: _plain(value) for name, value in patch.items() if name != _DIRECTIVE}
        case "delete":
            return {}
        case other:
            raise PatchError(f"unknown patch directive {other!r}")
    merged = _retained(current, patch)
    for name, value in patch.items():
        if name.startswith("$"):
            continue
        if value is None:
            merged.pop(name, None)
        elif isinstance(value, dict):
            merged[name] = _merge_child(merged.get(name), value, shape.child(name))
        elif isinstance(value, list):
            merged[name] = _merge_list(merged.get(name), value, shape.child(name), patch.get(_ORDER + name), name)
        else:
            merged[name] = value
    _primitive_deletions(merged, patch)
    _orders_alone(merged, patch, shape)
    return merged


def _merge_child(current: Any, value: dict[str, Any], shape: Shape) -> dict[str, Any]:
    return _merge_map(current if isinstance(current, dict) else {}, value, shape)


def _retained(current: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    keep = patch.get(_RETAIN)
    if keep is None:
        return dict(current)
    if not isinstance(keep, list):
        raise PatchError(f"{_RETAIN} must be a list of names")
    for name, value in patch.items():
        if not name.startswith("$") and value is not None and name not in keep:
            raise PatchError(f"{_RETAIN} does not list {name!r}, which the patch sets")
    return {name: value for name, value in current.items() if name in keep}


def _primitive_deletions(merged: dict[str, Any], patch: dict[str, Any]) -> None:
    for directive, gone in patch.items():
        if not directive.startswith(_DELETE):
            continue
        name = directive[len(_DELETE) :]
        if not isinstance(gone, list):
            raise PatchError(f"{directive} must be a list")
        if isinstance(merged.get(name), list):
            merged[name] = [item for item in merged[name] if not any(same_json(item, other) for other in gone)]


def _orders_alone(merged: dict[str, Any], patch: dict[str, Any], shape: Shape) -> None:
    """`$setElementOrder` for a list that the patch does not otherwise touch."""
    for directive, order in patch.items():
        if directive.startswith(_ORDER):
            name = directive[len(_ORDER) :]
            if name not in patch and isinstance(merged.get(name), list):
                merged[name] = _ordered(merged[name], merged[name], order, shape.child(name))
        elif (
            directive.startswith("$") and not directive.startswith(_DELETE) and directive not in (_DIRECTIVE, _RETAIN)
        ):
            raise PatchError(f"unknown patch directive {directive!r}")


def _merge_list(current: Any, patch: list[Any], shape: Shape, order: Any, name: str) -> list[Any]:
    items = current if isinstance(current, list) else []
    if not shape.patch_merges:
        return [_plain(item) for item in patch]
    if shape.merge is Merge.SET or not shape.patch_key:
        merged = items + [item for item in patch if not any(same_json(item, old) for old in items)]
    else:
        merged = _merge_keyed(items, patch, shape, name)
    return _ordered(merged, items, order, shape) if order is not None else merged


def _merge_keyed(items: list[Any], patch: list[Any], shape: Shape, name: str) -> list[Any]:
    key = shape.patch_key
    for item in patch:
        if not isinstance(item, dict):
            raise PatchError(f"items of {name!r} must be objects")
    if any(item.get(_DIRECTIVE) == "replace" for item in patch):
        return [_plain(item) for item in patch if item.get(_DIRECTIVE) != "replace"]
    merged = list(items)
    item_shape = shape.items or Shape()
    for item in patch:
        if key not in item:
            raise PatchError(f"an item of {name!r} does not contain the declared merge key {key!r}")
        at = [i for i, old in enumerate(merged) if isinstance(old, dict) and same_json(old.get(key), item[key])]
        if item.get(_DIRECTIVE) == "delete":
            merged = [old for i, old in enumerate(merged) if i not in at]
        elif at:
            merged[at[0]] = _merge_map(merged[at[0]], item, item_shape)
        else:
            merged.append(_merge_map({}, item, item_shape))
    return merged


def _ordered(merged: list[Any], before: list[Any], order: Any, shape: Shape) -> list[Any]:
    """Items named in `order` in that order; the others stay where they stood relative to their neighbours."""
    if not isinstance(order, list):
        raise PatchError("$setElementOrder must be a list")

    def identity(item: Any) -> Any:
        return item.get(shape.patch_key) if isinstance(item, dict) and shape.patch_key else item

    wanted = [identity(item) for item in order]
    positions = [identity(item) for item in before]
    named = sorted(
        (item for item in merged if identity(item) in wanted), key=lambda item: wanted.index(identity(item))
    )
    others = [item for item in merged if identity(item) not in wanted]
    result: list[Any] = []
    while named and others:
        left, right = identity(named[0]), identity(others[0])
        left_first = left not in positions or right not in positions or positions.index(left) < positions.index(right)
        result.append(named.pop(0) if left_first else others.pop(0))
    return result + named + others


def _plain(value: Any) -> Any:
    """A value of the patch without directives, for places where nothing was before."""
    if isinstance(value, dict):
        return {name: _plain(part) for name, part in value.items() if not name.startswith("$") and part is not None}
    if isinstance(value, list):
        return [_plain(item) for item in value if not (isinstance(item, dict) and item.get(_DIRECTIVE) == "delete")]
    return value
