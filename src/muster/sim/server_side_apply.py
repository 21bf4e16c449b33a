"""Server-side apply: merging a configuration into a live object, with field ownership and conflicts."""

from __future__ import annotations

from dataclasses import dataclass
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
)
from muster.sim.managed_fields import APPLY, NOT_OWNED, Manager, Managers, ordered, without
from muster.sim.shapes import UNKNOWN, Merge, Shape


@dataclass(frozen=True)
class Applied:
    obj: Object
    managers: Managers


def apply_configuration(
    live: Object,
    managers: Managers,
    config: Object,
    shape: Shape,
    applier: Manager,
    *,
    force: bool,
) -> Applied:
    """Merge `config` into `live` (neither is changed) for `applier`, whose `fields` are ignored.

    Fields that this applier applied before and leaves out now go, unless somebody else owns them too. Raises
    StatusError 409 with one cause per field when another manager owns a field that would change, unless `force`.
    ValueError: an item of a keyed list lacks its key.
    """
    config = _without_nulls(config)
    claimed = difference(fields_of(config, shape), NOT_OWNED)
    merged = _merge(live, config, shape)
    others = tuple(m for m in managers if m.identity != applier.identity)
    changed = difference(compare(live, merged, shape).changed, NOT_OWNED)
    conflicts = [(m, overlap) for m in others if (overlap := intersection(changed, m.fields))]
    if conflicts and not force:
        raise _conflict(conflicts)
    others = without(others, changed)
    mine = next((m for m in managers if m.identity == applier.identity), None)
    if mine is not None:
        merged = _prune(merged, difference(mine.fields, claimed), _all_fields(others, claimed), shape)
        if not isinstance(merged, dict):
            merged = {}
    removed = compare(live, merged, shape).removed
    others = without(others, removed)
    if mine is not None and mine.fields == claimed and merged == live:
        return Applied(live, managers)
    time = mine.time if mine is not None and mine.fields == claimed else applier.time
    entry = Manager(applier.name, APPLY, applier.api_version, applier.subresource, time, claimed)
    return Applied(merged, ordered([*others, *((entry,) if claimed else ())]))


def _all_fields(managers: Managers, claimed: FieldSet) -> FieldSet:
    everything = claimed
    for manager in managers:
        everything = union(everything, manager.fields)
    return everything


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_nulls(part) for name, part in value.items() if part is not None}
    if isinstance(value, list):
        return [_without_nulls(item) for item in value]
    return value


def _merge(live: Any, config: Any, shape: Shape) -> Any:
    if isinstance(live, dict) and isinstance(config, dict) and shape.merge is not Merge.ATOMIC:
        merged = dict(live)
        for name, value in config.items():
            merged[name] = _merge(live[name], value, shape.child(name)) if name in live else value
        return merged
    if isinstance(live, list) and isinstance(config, list):
        if shape.merge is Merge.SET:
            return live + [item for item in config if item not in live]
        if shape.merge is Merge.KEYED:
            return _merge_keyed(live, config, shape)
    return live if type(live) is type(config) and live == config else config


def _merge_keyed(live: list[Any], config: list[Any], shape: Shape) -> list[Any]:
    wanted: dict[str, Any] = {}
    for item in config:
        element = item_element(item, shape)
        if element in wanted:
            raise ValueError(f"duplicate entries for key {element[2:]}")
        wanted[element] = item
    merged = []
    for item in live:
        applied = wanted.pop(item_element(item, shape), None)
        merged.append(item if applied is None else _merge(item, applied, shape.items or UNKNOWN))
    return merged + list(wanted.values())


_GONE: Any = object()


def _prune(value: Any, gone: FieldSet, kept: FieldSet | None, shape: Shape) -> Any:
    """`value` without the members of `gone` that `kept` does not hold. Containers emptied by it go too."""
    if not gone:
        return value
    keep = kept or {}
    if isinstance(value, dict):
        left_map: dict[str, Any] = {}
        for name, part in value.items():
            pruned = _prune_part(part, gone.get("f:" + name), keep.get("f:" + name), shape.child(name))
            if pruned is not _GONE:
                left_map[name] = pruned
        return left_map
    if isinstance(value, list) and shape.merge in (Merge.KEYED, Merge.SET):
        left_list = []
        for item in value:
            element = item_element(item, shape)
            pruned = _prune_part(item, gone.get(element), keep.get(element), shape.items or UNKNOWN)
            if pruned is not _GONE:
                left_list.append(pruned)
        return left_list
    return value


def _prune_part(part: Any, gone: FieldSet | None, kept: FieldSet | None, shape: Shape) -> Any:
    if gone is None:
        return part
    if is_member(gone) and kept is None:
        return _GONE
    pruned = _prune(part, gone, kept, shape)
    if isinstance(pruned, dict | list) and not pruned and part and kept is None:
        return _GONE
    return pruned


def _conflict(conflicts: list[tuple[Manager, FieldSet]]) -> StatusError:
    causes: list[Cause] = []
    listed: list[str] = []
    for manager, overlap in sorted(conflicts, key=lambda pair: pair[0].identity):
        subresource = f' with subresource "{manager.subresource}"' if manager.subresource else ""
        subject = f'"{manager.name}"{subresource} using {manager.api_version}'
        fields = list(paths(overlap))
        causes += [Cause("FieldManagerConflict", f"conflict with {subject}", path) for path in fields]
        shown = f": {fields[0]}" if len(fields) == 1 else ":" + "".join(f"\n- {path}" for path in fields)
        listed.append(f"conflict{'s' if len(fields) > 1 else ''} with {subject}{shown}")
    plural = "s" if len(causes) > 1 else ""
    message = f"Apply failed with {len(causes)} conflict{plural}: " + "\n".join(listed)
    return StatusError(409, "Conflict", message, causes=tuple(causes))
