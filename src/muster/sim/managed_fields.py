"""`metadata.managedFields`: who owns which fields, and what a plain update changes about it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from muster.sim.api_status import bad_request
from muster.sim.field_sets import Changes, FieldSet, difference, intersection, union

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
                *("managedFields", "resourceVersion", "generateName", "deletionTimestamp"),
                "deletionGracePeriodSeconds",
            )
        },
    },
}
"""Fields that belong to the server or to identity, never to a manager."""


@dataclass(frozen=True)
class Manager:
    """One entry: a manager's fields under one operation, API version and subresource. `time` is RFC 3339 text."""

    name: str
    operation: str
    api_version: str
    subresource: str
    time: str
    fields: FieldSet

    @property
    def identity(self) -> tuple[str, str, str, str]:
        return (self.name, self.operation, self.api_version, self.subresource)

    def to_json(self) -> dict[str, Any]:
        encoded: dict[str, Any] = {
            "manager": self.name,
            "operation": self.operation,
            "apiVersion": self.api_version,
            "time": self.time,
            "fieldsType": "FieldsV1",
            "fieldsV1": self.fields,
        }
        if self.subresource:
            encoded["subresource"] = self.subresource
        return encoded


Managers = tuple[Manager, ...]


def decode(entries: Any) -> Managers:
    """Read `metadata.managedFields` that a client sent. Raises StatusError 400."""
    if entries is None:
        return ()
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise bad_request("metadata.managedFields must be a list of objects")
    managers = []
    for entry in entries:
        if not entry:
            continue
        fields = entry.get("fieldsV1") or {}
        if (
            entry.get("operation") not in (APPLY, UPDATE)
            or entry.get("fieldsType") != "FieldsV1"
            or not _valid(fields)
        ):
            raise bad_request("metadata.managedFields holds an entry without a known operation, type or field set")
        managers.append(
            Manager(
                name=str(entry.get("manager", "")),
                operation=entry["operation"],
                api_version=str(entry.get("apiVersion", "")),
                subresource=str(entry.get("subresource", "")),
                time=str(entry.get("time", "")),
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


def after_update(
    managers: Managers, changes: Changes, name: str, api_version: str, subresource: str, now: str
) -> Managers:
    """Ownership after a plain write: the writer takes what it changed, and what is gone is owned by nobody."""
    changed = difference(changes.changed, NOT_OWNED)
    kept = without(managers, union(changed, changes.removed))
    mine = next((m for m in kept if m.identity == (name, UPDATE, api_version, subresource)), None)
    others = [m for m in kept if m is not mine]
    if not changed:
        return ordered([*others, *((mine,) if mine else ())])
    fields = union(mine.fields, changed) if mine else changed
    return ordered(_capped([*others, Manager(name, UPDATE, api_version, subresource, now, fields)]))


def _capped(managers: list[Manager]) -> list[Manager]:
    """At most MAX_UPDATERS updaters: the fields of the oldest ones are lumped together."""
    updaters = sorted((m for m in managers if m.operation == UPDATE), key=lambda m: (m.time, m.name))
    if len(updaters) <= MAX_UPDATERS:
        return managers
    surplus = updaters[: len(updaters) - MAX_UPDATERS + 1]
    lump = replace(surplus[-1], name="ancient-changes", subresource="")
    for manager in surplus[:-1]:
        lump = replace(lump, fields=union(lump.fields, manager.fields))
    return [*(m for m in managers if m not in surplus), lump]


def without(managers: Iterable[Manager], fields: FieldSet) -> Managers:
    """Every manager less `fields`; managers that own nothing any more are dropped."""
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
