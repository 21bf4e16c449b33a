"""Server-side apply: merging a configuration into a live object, with field ownership and conflicts."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from muster.kube.api import Object
from muster.sim.api_status import Cause, StatusError
from muster.sim.field_sets import (
    FieldSet,
    compare,
    difference,
    fields_of,
    intersection,
    is_member,
    item_element,
    paths,
    union,
    with_named_fields,
)
from muster.sim.managed_fields import NOT_OWNED, UPDATE, Manager, Managers, ordered, without
from muster.sim.patch_json import same_json
from muster.sim.shapes import UNKNOWN, Merge, Shape


@dataclass(frozen=True)
class Applied:
    obj: Object
    managers: Managers


class ApplyConflictError(StatusError):
    """409: other managers own fields that would change. `conflicts`: each of them with the fields in question."""

    def __init__(self, conflicts: tuple[tuple[Manager, FieldSet], ...]) -> None:
        self.conflicts = conflicts
        causes: list[Cause] = []
        listed: list[str] = []
        for manager, fields in sorted(conflicts, key=lambda pair: pair[0].identity):
            subject = _subject(manager)
            shown = list(paths(fields))
            causes += [Cause("FieldManagerConflict", f"conflict with {subject}", path) for path in shown]
            listed += [f"conflicts with {subject}:", *(f"- {path}" for path in shown)]
        if len(causes) == 1:
            message = f"Apply failed with 1 conflict: {causes[0].message}: {causes[0].field}"
        else:
            message = f"Apply failed with {len(causes)} conflicts: " + "\n".join(listed)
        super().__init__(409, "Conflict", message, causes=tuple(causes))

    def without(self, allowed: FieldSet) -> ApplyConflictError:
        """The same less the conflicts about `allowed` fields."""
        left = ((manager, difference(fields, allowed)) for manager, fields in self.conflicts)
        return ApplyConflictError(tuple((manager, fields) for manager, fields in left if fields))


def _subject(manager: Manager) -> str:
    subresource = f' with subresource "{manager.subresource}"' if manager.subresource else ""
    version = f" using {manager.api_version}" if manager.operation == UPDATE else ""
    return f'"{manager.name}"{subresource}{version}'


def apply_configuration(
    live: Object,
    managers: Managers,
    config: Object,
    shape: Shape,
    applier: Manager,
    *,
    force: bool,
    ignored: tuple[str, ...] = (),
) -> Applied:
    """Merge `config` into `live` (neither is changed) for `applier`, whose `fields` are ignored.

    `ignored`: top-level fields that this endpoint does not write; they are merged, but nobody comes to own them.

    Fields that this applier applied before and leaves out now go, unless somebody else owns them too. A map or list
    emptied by that becomes null. Raises ApplyConflictError when another manager owns a field that would change,
    unless `force`; ValueError when an item of a keyed list has no key.
    """
    mentioned = _written(fields_of(config, shape), ignored)
    claimed = difference(mentioned, NOT_OWNED)
    merged = _merge(live, config, shape)
    mine = next((m for m in managers if m.identity == applier.identity), None)
    others = tuple(m for m in managers if m is not mine)
    if mine is not None and difference(mine.fields, claimed):
        merged = _pruned(merged, mine.fields, mentioned, others, shape) or {}
    changes = compare(live, merged, shape)
    changed = _owned(changes.changed, ignored)
    conflicts = tuple((m, overlap) for m in others if (overlap := intersection(m.fields, changed)))
    if conflicts and not force:
        raise ApplyConflictError(conflicts)
    others = without(without(others, changed), _owned(changes.removed, ignored))
    entry = replace(applier, fields=claimed)
    if same_json(merged, live):
        # Nothing changes but, perhaps, who owns it: the time of the applier's last change stands.
        merged, entry = live, replace(entry, time=mine.time if mine is not None else "")
    return Applied(merged, ordered([*others, *((entry,) if claimed else ())]))


def _owned(fields: FieldSet, ignored: tuple[str, ...]) -> FieldSet:
    return _written(difference(fields, NOT_OWNED), ignored)


def _written(fields: FieldSet, ignored: tuple[str, ...]) -> FieldSet:
    names = tuple("f:" + name for name in ignored)
    return {element: node for element, node in fields.items() if element not in names} if names else fields


def _merge(live: Any, config: Any, shape: Shape) -> Any:
    """A null in the configuration leaves a map or list alone and replaces anything else.

    Where nothing changes, `live` itself is returned: what comes after an apply passes over parts that are shared.
    """
    if _merges(live, config, dict) and shape.merge is not Merge.ATOMIC:
        return _merge_maps(live or {}, config or {}, shape)
    if _merges(live, config, list) and shape.merge in (Merge.KEYED, Merge.SET):
        return _merge_lists(live or [], config or [], shape)
    return live if same_json(live, config) else config


def _merge_maps(live: dict[str, Any], config: dict[str, Any], shape: Shape) -> dict[str, Any]:
    changed: dict[str, Any] = {}
    for name, value in config.items():
        before = live.get(name, _ABSENT)
        merged = value if before is _ABSENT else _merge(before, value, shape.child(name))
        if merged is not before:
            changed[name] = merged
    return {**live, **changed} if changed else live


_ABSENT: Any = object()


def _merges(live: Any, config: Any, kind: type) -> bool:
    if not all(value is None or isinstance(value, kind) for value in (live, config)):
        return False
    return bool(live or config)


def _merge_lists(live: list[Any], config: list[Any], shape: Shape) -> list[Any]:
    """Items of both, in the order of the configuration where both have them, with the others where they stood."""
    left = [item_element(item, shape) for item in live]
    right = [item_element(item, shape) for item in config]
    ours = dict(zip(left, live, strict=True))
    theirs = dict(zip(right, config, strict=True))
    shared = [element for element in right if element in ours]
    merged: list[str] = []
    taken: dict[str, None] = {}
    at_left = at_right = 0
    while at_left < len(left) or at_right < len(right):
        element = left[at_left] if at_left < len(left) else ""
        if at_left < len(left) and at_right < len(right):
            if element == right[at_right]:
                merged.append(element)
                taken[element] = None
                at_left, at_right = at_left + 1, at_right + 1
                shared = shared[1:]
                continue
            if element in theirs and shared and shared[0] != element:
                at_left += 1
                continue
        if at_left < len(left):
            if element not in theirs:
                merged.append(element)
                at_left += 1
                continue
            if element in taken:
                at_left += 1
        if at_right < len(right):
            element = right[at_right]
            merged.append(element)
            taken[element] = None
            at_right += 1
            if shared and shared[0] == element:
                shared = shared[1:]
    items = shape.items or UNKNOWN
    found = [
        ours[element]
        if element not in theirs
        else _merge(ours[element], theirs[element], items)
        if element in ours
        else theirs[element]
        for element in merged
    ]
    same = len(found) == len(live) and all(item is before for item, before in zip(found, live, strict=True))
    return live if same else found


def _pruned(merged: Any, last: FieldSet, mentioned: FieldSet, others: Managers, shape: Shape) -> Any:
    """`merged` without what the applier owned before and nobody owns now."""
    owned = mentioned
    for manager in others:
        owned = union(owned, manager.fields)
    last = with_named_fields(last, shape)
    present = with_named_fields(fields_of(merged, shape), shape)
    left = _present(_removed(merged, last, shape), shape)
    with_owned = _removed(merged, difference(present, union(left, with_named_fields(owned, shape))), shape)
    gone = difference(present, _present(with_owned, shape))
    return _removed(merged, intersection(gone, last), shape)


def _present(value: Any, shape: Shape) -> FieldSet:
    return with_named_fields(fields_of(value, shape), shape) if isinstance(value, dict) else {}


def _removed(value: Any, gone: FieldSet, shape: Shape) -> Any:
    """`value` without the members of `gone`; None when nothing is left of a map or list."""
    if isinstance(value, dict) and shape.merge is not Merge.ATOMIC:
        left_map: dict[str, Any] = {}
        for name, part in value.items():
            node = gone.get("f:" + name)
            if node is None:
                left_map[name] = part
            elif not is_member(node):
                left_map[name] = _removed(part, node, shape.child(name))
        return left_map or None
    if isinstance(value, list) and shape.merge in (Merge.KEYED, Merge.SET):
        left_list = []
        for item in value:
            node = gone.get(item_element(item, shape))
            if node is None:
                left_list.append(item)
            elif not is_member(node):
                left_list.append(_removed(item, node, shape.items or UNKNOWN))
        return left_list or None
    return value
