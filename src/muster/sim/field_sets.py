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
    """Every member as text, `.spec.containers[name="a"].image`: the members of one level first, then those below."""
    found = [
        (prefix + shown_element(element), fields[element]) for element in sorted(fields, key=_rank) if element != "."
    ]
    for path, node in found:
        if is_member(node):
            yield path
    for path, node in found:
        yield from paths(node, path)


def _rank(element: str) -> tuple[int, str]:
    return ("fkvi.".index(element[0]), element)


def shown_element(element: str) -> str:
    """A path element as messages show it: `.name`, `[key="value"]`, `[="value"]`."""
    kind, _, rest = element.partition(":")
    if kind == "f":
        return f".{rest}"
    if kind == "k":
        keys = json.loads(rest)
        return "[" + ",".join(f"{key}={json.dumps(value)}" for key, value in keys.items()) + "]"
    return f"[={rest}]" if kind == "v" else f"[{rest}]"


def item_element(item: Any, shape: Shape) -> str:
    """The path element of a list item. Raises ValueError when the item cannot be told from others.

    A key that an item leaves out has its default; an item needs at least one key.
    """
    if shape.merge is Merge.SET:
        if item is None:
            raise ValueError("associative list without keys has an element that's an explicit null")
        if isinstance(item, dict):
            raise ValueError("associative list without keys has an element that's a map type")
        if isinstance(item, list):
            raise ValueError("not supported: associative list with lists as elements")
        return "v:" + json.dumps(item, separators=(",", ":"), ensure_ascii=False)
    if item is None:
        raise ValueError("associative list with keys may not have a null element")
    if not isinstance(item, dict):
        raise ValueError("associative list with keys may not have non-map elements")
    keys: dict[str, Any] = {}
    for key in sorted(shape.keys):
        if key in item:
            keys[key] = item[key]
        elif key in shape.key_defaults:
            keys[key] = shape.key_defaults[key]
    if not keys:
        listed = "[" + " ".join(json.dumps(key) for key in shape.keys) + "]"
        raise ValueError(
            f"associative list with keys has an element that omits all key fields {listed} (and doesn't have default "
            "values for any key fields)"
        )
    return "k:" + json.dumps(keys, separators=(",", ":"), ensure_ascii=False)


def is_free(name: str, shape: Shape) -> bool:
    """Whether `name` is a free key of a map rather than a field that the schema names."""
    return shape.merge is Merge.MAP and name not in shape.fields


def fields_of(value: Any, shape: Shape) -> FieldSet:
    """The fields that an applied configuration claims."""
    return _claimed(value, shape) or {}


def _claimed(value: Any, shape: Shape) -> FieldSet | None:
    """None: nothing at all, as of a granular list without items."""
    if isinstance(value, dict) and shape.merge is not Merge.ATOMIC:
        return _claimed_map(value, shape)
    if isinstance(value, list) and shape.merge in (Merge.KEYED, Merge.SET):
        claimed: FieldSet = {}
        for item in value:
            node = _claimed(item, shape.items or UNKNOWN) if shape.merge is Merge.KEYED else _LEAF
            claimed[item_element(item, shape)] = {".": _LEAF, **node} if node else _LEAF
        return claimed or None
    return _LEAF


def _claimed_map(value: dict[str, Any], shape: Shape) -> FieldSet | None:
    claimed: FieldSet = {}
    for name, part in value.items():
        node = _claimed(part, shape.child(name))
        if node is None and is_free(name, shape):
            node = _LEAF
        if node is not None:
            claimed["f:" + name] = {".": _LEAF, **node} if node and is_free(name, shape) else node
    return claimed if claimed or not value else None


def with_named_fields(fields: FieldSet, shape: Shape) -> FieldSet:
    """`fields` with every field that the schema names as a member, not only what is below it."""
    grown: FieldSet = {}
    for element, node in fields.items():
        if element == "." or not node:
            grown[element] = node
            continue
        if element[0] == "f":
            name = element[2:]
            below = with_named_fields(node, shape.child(name))
            grown[element] = below if "." in below or is_free(name, shape) else {".": _LEAF, **below}
        else:
            grown[element] = with_named_fields(node, shape.items or UNKNOWN)
    return grown


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
    if _granular(old, new, dict) and shape.merge is not Merge.ATOMIC:
        _compare_maps(old or {}, new or {}, shape, inner_changed, inner_removed)
    elif _granular(old, new, list) and shape.merge in (Merge.KEYED, Merge.SET):
        _compare_lists(old or [], new or [], shape, inner_changed, inner_removed)
    else:
        changed[element] = _LEAF if isinstance(old, dict | list) else _whole(new, shape)
        return
    if inner_changed:
        changed[element] = inner_changed
    if inner_removed:
        removed[element] = inner_removed


def _granular(old: Any, new: Any, kind: type) -> bool:
    """Both are of one kind (null counts as empty), and not both are empty: that is a change of the whole."""
    both = (old is None or isinstance(old, kind)) and (new is None or isinstance(new, kind))
    return both and bool(old or new)


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
    if not value or shape.merge is Merge.ATOMIC:
        return _LEAF
    if isinstance(value, dict):
        return {".": _LEAF, **{"f:" + name: _whole(part, shape.child(name)) for name, part in value.items()}}
    if isinstance(value, list) and shape.merge in (Merge.KEYED, Merge.SET):
        found = _by_element(value, shape)
        return {".": _LEAF, **{element: _whole(item, shape.items or UNKNOWN) for element, item in found.items()}}
    return _LEAF
