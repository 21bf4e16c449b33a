"""`metadata.managedFields`: who owns which fields, and what a plain update changes about it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from muster.kube.api import Object
from muster.sim.builtin_fields import FieldType, struct_name, zero
from muster.sim.field_sets import Changes, FieldSet, compare, difference, intersection, union

if TYPE_CHECKING:
    from muster.sim.api_kinds import Kind

APPLY = "Apply"
UPDATE = "Update"
MAX_UPDATERS = 10
"""Number of updating managers that a real API server keeps apart per object."""

_LEAF: FieldSet = {}

NOT_OWNED: FieldSet = {
    "f:apiVersion": _LEAF,
    "f:kind": _LEAF,
    "f:metadata": {
        ".": _LEAF,
        **{
            f"f:{name}": _LEAF
            for name in (
                *("name", "namespace", "creationTimestamp", "selfLink", "uid", "clusterName", "generation"),
                *("managedFields", "resourceVersion"),
            )
        },
    },
}
"""Fields that belong to the server or to identity, never to a manager."""


@dataclass(frozen=True)
class Manager:
    """One entry: a manager's fields under one operation, API version and subresource.

    `time` is RFC 3339 text, empty for an applier that has never changed the object.
    """

    name: str
    operation: str
    api_version: str
    subresource: str
    time: str
    fields: FieldSet

    @property
    def identity(self) -> tuple[str, str, str, str]:
        """What tells entries apart. A manager that applies keeps its entry when it moves to another API version."""
        version = "" if self.operation == APPLY else self.api_version
        return (self.name, self.operation, version, self.subresource)

    def to_json(self) -> dict[str, Any]:
        encoded: dict[str, Any] = {
            "manager": self.name,
            "operation": self.operation,
            "apiVersion": self.api_version,
            **({"time": self.time} if self.time else {}),
            "fieldsType": "FieldsV1",
            "fieldsV1": self.fields,
        }
        if self.subresource:
            encoded["subresource"] = self.subresource
        return encoded


Managers = tuple[Manager, ...]


def owners_of_request(sent: Any, live: Managers) -> Managers:
    """The ownership that an update starts from: what it sent in `metadata.managedFields`, or what is there.

    An empty list, or a list of one empty entry, resets the ownership. Entries that cannot be read are ignored.
    """
    if sent in ([], [{}]):
        return ()
    return _decoded(sent) or live


def _decoded(entries: Any) -> Managers:
    if not isinstance(entries, list):
        return ()
    managers = []
    for entry in entries:
        if not isinstance(entry, dict):
            return ()
        fields: Any = entry.get("fieldsV1") or {}
        if (
            not _valid(fields)
            or entry.get("operation") not in (APPLY, UPDATE)
            or entry.get("fieldsType") != "FieldsV1"
            or not entry.get("apiVersion")
        ):
            return ()
        managers.append(
            Manager(
                name=str(entry.get("manager", "")),
                operation=entry["operation"],
                api_version=str(entry["apiVersion"]),
                subresource=str(entry.get("subresource", "")),
                time=str(entry.get("time") or ""),
                fields=fields,
            )
        )
    return tuple(managers)


def _valid(fields: Any) -> bool:
    return isinstance(fields, dict) and all(
        (name == "." or name[:2] in ("f:", "k:", "v:", "i:")) and _valid(node) for name, node in fields.items()
    )


def encode(managers: Managers) -> list[dict[str, Any]]:
    return [manager.to_json() for manager in managers]


def owners_at_creation(kind: Kind, obj: Object, manager: str, now: str) -> Managers:
    """Ownership of a new object. A status that has an endpoint of its own belongs to nobody yet, even when kept."""
    return _everything(kind, obj, manager, "", now)


def owners_before_first_apply(kind: Kind, live: Object, subresource: str, now: str) -> Managers:
    """Ownership that is made up for an object without any, when somebody applies to it for the first time."""
    return _everything(kind, live, "before-first-apply", subresource, now)


def not_written(kind: Kind, subresource: str) -> tuple[str, ...]:
    """The top-level fields that an endpoint does not write."""
    if subresource == "status":
        return ("metadata", "spec") if kind.custom is not None else ("spec",)
    return ("status",) if kind.has_status else ()


def _everything(kind: Kind, obj: Object, manager: str, subresource: str, now: str) -> Managers:
    shown = {name: value for name, value in obj.items() if name not in not_written(kind, subresource)}
    return after_update((), compare(_empty(kind), shown, kind.shape), manager, kind.api_version, subresource, now)


def _empty(kind: Kind) -> Object:
    """What an object is before anybody set a field."""
    if kind.custom is not None:
        return {"metadata": {}}
    empty: Object = zero(FieldType("struct", struct_name(kind.group, kind.name), ""))
    return {**empty, "metadata": {}}


def owners_after_update(
    kind: Kind, managers: Managers, old: Object, new: Object, manager: str, subresource: str, now: str
) -> Managers:
    """Ownership after a plain write. An object without any owners stays without."""
    if not managers:
        return ()
    changes = compare(old, new, kind.shape)
    return after_update(managers, changes, manager, kind.api_version, subresource, now)


def after_update(
    managers: Managers, changes: Changes, name: str, api_version: str, subresource: str, now: str
) -> Managers:
    """The writer takes what it changed, and what is gone is owned by nobody."""
    changed = difference(changes.changed, NOT_OWNED)
    kept = without(managers, union(changed, changes.removed))
    if not changed:
        return ordered(kept)
    writer = Manager(name, UPDATE, api_version, subresource, now, changed)
    mine = next((m for m in managers if m.identity == writer.identity), None)
    if mine is not None:
        left = next((m.fields for m in kept if m.identity == writer.identity), {})
        writer = replace(writer, fields=union(left, changed))
    return ordered(_capped([*(m for m in kept if m.identity != writer.identity), writer]))


def _capped(managers: list[Manager]) -> list[Manager]:
    """At most MAX_UPDATERS updaters: the fields of the oldest ones are lumped together, by API version."""
    updaters = sorted((m for m in managers if m.operation == UPDATE), key=lambda m: (m.time, m.name, m.api_version))
    surplus = len(updaters) - MAX_UPDATERS
    lumps: dict[str, Manager] = {}
    gone: list[Manager] = []
    for manager in updaters:
        if surplus <= 0:
            break
        lump = lumps.get(manager.api_version)
        lumps[manager.api_version] = (
            replace(manager, name=_ANCIENT, subresource="", fields=union(lump.fields, manager.fields))
            if lump is not None
            else manager
        )
        gone.append(manager)
        surplus -= lump is not None
    merged = [lump for lump in lumps.values() if lump not in gone]
    kept = [m for m in managers if m not in gone or m in lumps.values()]
    return [*kept, *merged]


_ANCIENT = "ancient-changes"


def without(managers: Iterable[Manager], fields: FieldSet) -> Managers:
    """Every manager less `fields`; managers that own nothing any more are dropped."""
    if not fields:
        return tuple(managers)
    kept = []
    for manager in managers:
        left = difference(manager.fields, fields) if intersection(manager.fields, fields) else manager.fields
        if left is manager.fields:
            kept.append(manager)
        elif left:
            kept.append(replace(manager, fields=left))
    return tuple(kept)


def ordered(managers: Iterable[Manager]) -> Managers:
    """Appliers first, then by time and name, as the server lists them."""
    return tuple(sorted(managers, key=lambda m: (m.operation, m.time, m.name, m.api_version, m.subresource)))
