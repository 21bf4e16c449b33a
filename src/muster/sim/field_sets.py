"""Sets of field paths in the form of `fieldsV1`, and the differences of two objects as such sets.

A set is a nested dict. Path elements are `f:<name>`, `k:{<keys>}` and `v:<value>`. A node is a member when it is
empty or holds the element `.`. Sets are values: nothing here changes its arguments.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from muster.sim.shapes import UNKNOWN, Merge, Shape

FieldSet = dict[str, Any]
_LEAF: FieldSet = {}


def is_member(node: FieldSet) -> bool:
    return not node or "." in node


def union(a: FieldSet, b: FieldSet) -> FieldSet:
    """Everything in either (roots are never members themselves)."""
    if a is b or not b:
        return a
    if not a:
        return b
    merged = dict(a)
    for element, node in b.items():
        if element == ".":
            merged["."] = _LEAF
        elif element in merged:
            merged[element] = _union_nodes(merged[element], node)
        else:
            merged[element] = node
    return merged


def _union_nodes(a: FieldSet, b: FieldSet) -> FieldSet:
    if a is b:
        return a
    if not a:
        return {".": _LEAF, **b} if b else _LEAF
    if not b:
        return a if "." in a else {".": _LEAF, **a}
    return union(a, b)


def difference(a: FieldSet, b: FieldSet) -> FieldSet:
    """What is in `a` and not in `b`."""
    if not a or not b:
        return a
    return _walk(a, b, keep_common=False)


def intersection(a: FieldSet, b: FieldSet) -> FieldSet:
    """What is in both."""
    if not a or not b:
        return {}
    return _walk(a, b, keep_common=True)


def _walk(a: FieldSet, b: FieldSet, *, keep_common: bool) -> FieldSet:
    kept: FieldSet = {}
    for element, node in a.items():
        if element == ".":
            continue
        other = b.get(element)
        if other is None:
            if not keep_common:
                kept[element] = node
            continue
        member = is_member(node) and (is_member(other) is keep_common)
        children = _walk(node, other, keep_common=keep_common)
        if member:
            kept[element] = {".": _LEAF, **children} if children else _LEAF
        elif children:
            kept[element] = children
    return kept if kept != a else a


def paths(fields: FieldSet, prefix: str = "") -> Iterator[str]:
    """Every member as text: `.spec.containers[name="a"].image`. Sorted."""
    for element in sorted(fields):
        if element == ".":
            continue
        path = prefix + _shown(element)
        node = fields[element]
        if is_member(node):
            yield path
        yield from paths(node, path)


def _shown(element: str) -> str:
    kind, _, rest = element.partition(":")
    if kind == "f":
        return f".{rest}"
    if kind == "k":
        keys = json.loads(rest)
        return "[" + ",".join(f"{key}={json.dumps(value)}" for key, value in keys.items()) + "]"
    return f"[={rest}]" if kind == "v" else f"[{rest}]"


def item_element(item: Any, shape: Shape) -> str:
    """The path element of a list item. Raises ValueError when an object item lacks a key without default."""
    if shape.merge is Merge.SET:
        return "v:" + json.dumps(item, separators=(",", ":"), sort_keys=True)
    if not isinstance(item, dict):
        raise ValueError("items of a keyed list must be objects")
    keys: dict[str, Any] = {}
    for key in sorted(shape.keys):
        if key in item:
            keys[key] = item[key]
        elif key in shape.key_defaults:
            keys[key] = shape.key_defaults[key]
        else:
            raise ValueError(f"associative list with keys has an element that omits key field {key!r}")
    return "k:" + json.dumps(keys, separators=(",", ":"), ensure_ascii=False)


def fields_of(value: Any, shape: Shape) -> FieldSet:
    """The fields that an applied configuration claims."""
    if isinstance(value, dict) and shape.merge is not Merge.ATOMIC:
        claimed: FieldSet = {}
        for name, part in value.items():
            node = fields_of(part, shape.child(name))
            free_key = shape.merge is Merge.MAP and name not in shape.fields
            claimed["f:" + name] = {".": _LEAF, **node} if node and free_key else node
        return claimed
    if isinstance(value, list) and shape.merge in (Merge.KEYED, Merge.SET):
        claimed = {}
        for item in value:
            node = fields_of(item, shape.items or UNKNOWN) if shape.merge is Merge.KEYED else _LEAF
            claimed[item_element(item, shape)] = {".": _LEAF, **node} if node else _LEAF
        return claimed
    return _LEAF


@dataclass(frozen=True)
class Changes:
    """How two objects differ: `changed` holds added and modified fields of the new one."""

    changed: FieldSet
    removed: FieldSet

    def __bool__(self) -> bool:
        return bool(self.changed or self.removed)


def compare(old: Any, new: Any, shape: Shape) -> Changes:
    """Differences between two objects (roots: dicts). Shared parts cost nothing."""
    changed: FieldSet = {}
    removed: FieldSet = {}
    _compare_maps(old, new, shape, changed, removed)
    return Changes(changed, removed)


def _compare_maps(
    old: dict[str, Any], new: dict[str, Any], shape: Shape, changed: FieldSet, removed: FieldSet
) -> None:
    for name, value in new.items():
        before = old.get(name, _ABSENT)
        if before is not value:
            _compare_values("f:" + name, before, value, shape.child(name), changed, removed)
    for name, before in old.items():
        if name not in new:
            removed["f:" + name] = _whole(before, shape.child(name))


_ABSENT: Any = object()


def _compare_values(element: str, old: Any, new: Any, shape: Shape, changed: FieldSet, removed: FieldSet) -> None:
    if old is _ABSENT:
        changed[element] = _whole(new, shape)
        return
    if type(old) is type(new) and old == new:
        return
    inner_changed: FieldSet = {}
    inner_removed: FieldSet = {}
    if isinstance(old, dict) and isinstance(new, dict) and shape.merge is not Merge.ATOMIC:
        _compare_maps(old, new, shape, inner_changed, inner_removed)
    elif isinstance(old, list) and isinstance(new, list) and shape.merge in (Merge.KEYED, Merge.SET):
        _compare_lists(old, new, shape, inner_changed, inner_removed)
    else:
        changed[element] = _whole(new, shape)
        return
    if inner_changed:
        changed[element] = inner_changed
    if inner_removed:
        removed[element] = inner_removed


def _compare_lists(old: list[Any], new: list[Any], shape: Shape, changed: FieldSet, removed: FieldSet) -> None:
    before = _by_element(old, shape)
    after = _by_element(new, shape)
    for element, item in after.items():
        _compare_values(element, before.get(element, _ABSENT), item, shape.items or UNKNOWN, changed, removed)
    for element, item in before.items():
        if element not in after:
            removed[element] = _whole(item, shape.items or UNKNOWN)


def _by_element(items: list[Any], shape: Shape) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for at, item in enumerate(items):
        try:
            found[item_element(item, shape)] = item
        except ValueError:
            found[f"i:{at}"] = item
    return found


def _whole(value: Any, shape: Shape) -> FieldSet:
    """A value that came or went as a whole: every part of it is a member."""
    try:
        node = fields_of(value, shape)
    except ValueError:
        return _LEAF
    return {".": _LEAF, **_all_members(node)} if node else _LEAF


def _all_members(node: FieldSet) -> FieldSet:
    return {
        element: ({".": _LEAF, **_all_members(child)} if child else _LEAF) if element != "." else _LEAF
        for element, child in node.items()
    }
