"""Strategic merge patch: a merge patch that knows which lists merge by key."""

from __future__ import annotations

from typing import Any

from muster.sim.patch_json import PatchError, same_json
from muster.sim.shapes import Shape

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
        case None:
            pass
        case "replace":
            return {name: _plain(value) for name, value in patch.items() if name != _DIRECTIVE}
        case "delete":
            return {}
        case other:
            raise PatchError(f"unknown patch type: {other} in map: {go_map(patch)}")
    merged = _retained(current, patch)
    for name, value in patch.items():
        if _is_directive(name):
            continue
        if value is None:
            merged.pop(name, None)
        elif isinstance(value, dict) and isinstance(merged.get(name), dict):
            part = shape.child(name)
            merged[name] = _plain(value) if part.patch_replaces else _merge_map(merged[name], value, part)
        elif isinstance(value, list) and isinstance(merged.get(name), list):
            merged[name] = _merge_list(merged[name], value, shape.child(name), patch.get(_ORDER + name), name)
        elif isinstance(value, dict) and value.get(_DIRECTIVE) == "delete":
            merged.pop(name, None)
        else:
            merged[name] = _plain(value)
    _primitive_deletions(merged, patch)
    _orders_alone(merged, patch, shape)
    return merged


def _is_directive(name: str) -> bool:
    return name in (_DIRECTIVE, _RETAIN) or name.startswith((_ORDER, _DELETE))


def _retained(current: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    keep = patch.get(_RETAIN)
    if keep is None:
        return dict(current)
    if not isinstance(keep, list):
        raise PatchError(f"{_RETAIN} must be a list of names")
    for name, value in patch.items():
        if not _is_directive(name) and value is not None and name not in keep:
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
                merged[name] = _ordered(merged[name], merged[name], _listed(order), shape.child(name))


def _listed(order: Any) -> list[Any]:
    if not isinstance(order, list):
        raise PatchError("invalid patch format of setElementOrder list")
    return order


def _merge_list(current: list[Any], patch: list[Any], shape: Shape, order: Any, name: str) -> list[Any]:
    if not shape.patch_merges:
        return [_plain(item) for item in patch]
    if order is not None:
        _check_order(patch, _listed(order), shape)
    if not shape.patch_key:
        merged = current + [item for item in patch if not any(same_json(item, old) for old in current)]
    else:
        merged = _merge_keyed(current, patch, shape, name)
    wanted = patch if order is None else _listed(order)
    return _ordered(merged, current, wanted, shape)


def _check_order(patch: list[Any], order: list[Any], shape: Shape) -> None:
    """The items of the patch must stand in the order that it asks for."""
    kept = [item for item in patch if not (isinstance(item, dict) and _DIRECTIVE in item)]
    at = 0
    for place in order:
        if at < len(kept) and same_json(_identity(kept[at], shape), _identity(place, shape)):
            at += 1
    if order and at < len(kept):
        told = [" ".join(map(_go, items)) for items in (patch, order)]
        raise PatchError(
            f"The order in patch list:\n[{told[0]}]\n doesn't match $setElementOrder list:\n[{told[1]}]\n"
        )


def _go(item: Any) -> str:
    return go_map(item) if isinstance(item, dict) else str(item)


def _identity(item: Any, shape: Shape) -> Any:
    return item.get(shape.patch_key) if isinstance(item, dict) and shape.patch_key else item


def _merge_keyed(items: list[Any], patch: list[Any], shape: Shape, name: str) -> list[Any]:
    key = shape.patch_key
    for item in patch:
        if not isinstance(item, dict):
            raise PatchError(f"list element types are not identical: {name} holds objects, the patch {item!r}")
    if any(item.get(_DIRECTIVE) == "replace" for item in patch):
        return [_plain(item) for item in patch if item.get(_DIRECTIVE) != "replace"]
    merged = list(items)
    item_shape = shape.items or Shape()
    for item in patch:
        if key not in item:
            raise PatchError(f"map: {go_map(item)} does not contain declared merge key: {key}")
        at = [i for i, old in enumerate(merged) if isinstance(old, dict) and same_json(old.get(key), item[key])]
        directive = item.get(_DIRECTIVE)
        if directive not in (None, "delete"):
            raise PatchError(f"unknown patch type: {directive} in map: {go_map(item)}")
        if directive == "delete":
            merged = [old for i, old in enumerate(merged) if i not in at]
        elif at:
            merged[at[0]] = _merge_map(merged[at[0]], item, item_shape)
        else:
            merged.append(_merge_map({}, item, item_shape))
    return merged


def _ordered(merged: list[Any], before: list[Any], order: list[Any], shape: Shape) -> list[Any]:
    """Items named in `order` in that order. The others stand before those that they stood before, else behind."""
    wanted = [_identity(item, shape) for item in order]
    positions = [_identity(item, shape) for item in before]
    named = sorted(
        (item for item in merged if _identity(item, shape) in wanted),
        key=lambda item: wanted.index(_identity(item, shape)),
    )
    others = [item for item in merged if _identity(item, shape) not in wanted]
    result: list[Any] = []
    while named and others:
        left, right = _identity(others[0], shape), _identity(named[0], shape)
        both = left in positions and right in positions
        others_first = both and positions.index(left) < positions.index(right)
        result.append(others.pop(0) if others_first else named.pop(0))
    return result + named + others


def go_map(value: dict[str, Any]) -> str:
    """A map as Go prints it in the messages of a real server."""
    return "map[" + " ".join(f"{name}:{part}" for name, part in sorted(value.items())) + "]"


def _plain(value: Any) -> Any:
    """A value of the patch without directives, for places where nothing was before."""
    if isinstance(value, dict):
        return {name: _plain(part) for name, part in value.items() if not _is_directive(name) and part is not None}
    if isinstance(value, list):
        return [_plain(item) for item in value if not (isinstance(item, dict) and item.get(_DIRECTIVE) == "delete")]
    return value
