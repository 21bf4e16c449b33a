"""Custom resources: from a CustomResourceDefinition to served kinds with schema, names and printer columns."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from muster.kube.api import EventType, Object, ResourceType
from muster.sim import crd_validation
from muster.sim.api_kinds import Kind
from muster.sim.api_status import Cause, required
from muster.sim.history import Change, Key
from muster.sim.managed_fields import owners_after_update
from muster.sim.schema import Schema, prune, with_defaults
from muster.sim.schema_reading import read_root
from muster.sim.schema_rules import NO_FIELD
from muster.sim.schema_validation import BLOCKING, find_nulls, has_rules, validate, validate_rules
from muster.sim.shapes import Shape

if TYPE_CHECKING:
    from muster.sim.store import Store

_NOT_CHECKED = (
    "some validation rules were not checked because the object was invalid; correct the existing errors to complete "
    "validation"
)
_ROOT_FIELDS = ("apiVersion", "kind", "metadata")


@dataclass(frozen=True)
class PrinterColumn:
    name: str
    type: str
    json_path: str
    description: str = ""
    priority: int = 0
    format: str = ""


@dataclass(frozen=True)
class CustomSchema:
    """What one version of a custom resource demands of its objects."""

    schema: Schema
    raw: dict[str, Any]
    columns: tuple[PrinterColumn, ...] = ()
    selectable_fields: tuple[str, ...] = ()
    has_status: bool = True

    def prepared(self, obj: Object, old: Object | None) -> tuple[Object, list[str]]:
        """The object pruned and with defaults, and the paths of unknown fields."""
        unknown: list[str] = []
        if old is None and self.has_status:
            obj = {name: value for name, value in obj.items() if name != "status"}
        body = {name: value for name, value in obj.items() if name not in _ROOT_FIELDS}
        before = {name: value for name, value in (old or {}).items() if name not in _ROOT_FIELDS}
        body = prune(body, self.schema, before, "", unknown)
        body = with_defaults(body, self.schema, before)
        return {**{name: obj[name] for name in _ROOT_FIELDS if name in obj}, **body}, unknown

    def null_causes(self, obj: Object) -> list[Cause]:
        """Nulls where the schema allows none and has no default that could stand in."""
        causes: list[Cause] = []
        body = {name: value for name, value in obj.items() if name not in _ROOT_FIELDS}
        if b"null" not in msgspec.json.encode(body):
            # Much quicker than a walk through the schema, and true of nearly every object.
            return causes
        find_nulls(body, self.schema, "", causes)
        return causes

    def causes_of(self, obj: Object, old: Object | None) -> list[Cause]:
        """What is wrong with a prepared object. Rules run only on objects that fit the schema."""
        before = old if old is not None else {}
        causes = [required(name) for name in self.schema.limits.get("required") or () if name not in obj]
        for name, value in obj.items():
            child = self.schema.properties.get(name)
            if name not in _ROOT_FIELDS and child is not None:
                validate(value, child, before.get(name), name, causes)
        if any(cause.reason in BLOCKING for cause in causes):
            if has_rules(self.schema):
                causes.append(Cause("FieldValueInvalid", f"Invalid value: null: {_NOT_CHECKED}", NO_FIELD))
        elif has_rules(self.schema):
            validate_rules(_for_rules(obj), self.schema, None if old is None else _for_rules(old), "", causes)
        return causes


def _for_rules(obj: Object) -> Object:
    """Rules may read no metadata but the name."""
    names = ("name", "generateName")
    return {**obj, "metadata": {name: obj["metadata"][name] for name in names if name in obj["metadata"]}}


def crd_defaults(crd: Object) -> Object:
    """A definition with the names and the conversion that it leaves out."""
    spec = crd.get("spec")
    if not isinstance(spec, dict):
        return crd
    names: dict[str, Any] = spec.get("names") or {}
    kind = names.get("kind") or ""
    filled = {**names}
    if kind:
        filled["singular"] = names.get("singular") or kind.lower()
        filled["listKind"] = names.get("listKind") or f"{kind}List"
    conversion = spec.get("conversion") or {"strategy": "None"}
    return {**crd, "spec": {**spec, "names": filled, "conversion": conversion}}


def crd_causes(crd: Object, old: Object | None) -> list[Cause]:
    """What is wrong with a definition."""
    return crd_validation.crd_causes(crd_defaults(crd), old)


def crd_begun(crd: Object) -> Object:
    """A new definition with the status that it has before anybody has looked at it."""
    versions = crd["spec"].get("versions") or ()
    stored = [version["name"] for version in versions if version.get("storage") is True]
    return {
        **crd,
        "status": {"acceptedNames": {"kind": "", "plural": ""}, "conditions": None, "storedVersions": stored},
    }


def kinds_of(crd: Object) -> list[Kind]:
    """The kinds that a valid definition serves, one per served version."""
    spec = crd["spec"]
    names = spec["names"]
    storage_version = next(v["name"] for v in spec["versions"] if v.get("storage"))
    kinds = []
    for version in sorted(spec["versions"], key=_by_priority):
        if not version.get("served"):
            continue
        raw = version["schema"]["openAPIV3Schema"]
        has_status = "status" in (version.get("subresources") or {})
        schema = read_root(raw, "", [])
        top = tuple(name for name in schema.properties if name not in _ROOT_FIELDS)
        selectable = tuple(field["jsonPath"].lstrip(".") for field in version.get("selectableFields") or ())
        kinds.append(
            Kind(
                resource=ResourceType(
                    spec["group"], version["name"], names["plural"], names["kind"], spec["scope"] == "Namespaced"
                ),
                storage=f"{names['plural']}.{spec['group']}",
                storage_api_version=f"{spec['group']}/{storage_version}",
                singular=names.get("singular") or names["kind"].lower(),
                short_names=tuple(names.get("shortNames") or ()),
                categories=tuple(names.get("categories") or ()),
                subresources=("status",) if has_status else (),
                top=top,
                generation=True,
                shape=Shape.of_schema(raw),
                custom=CustomSchema(schema, raw, _columns(version), selectable, has_status),
            )
        )
    return kinds


def _columns(version: dict[str, Any]) -> tuple[PrinterColumn, ...]:
    return tuple(
        PrinterColumn(
            name=column["name"],
            type=column["type"],
            json_path=column["jsonPath"],
            description=column.get("description")
            or f"Custom resource definition column (in JSONPath format): {column['jsonPath']}",
            priority=column.get("priority", 0),
            format=column.get("format", ""),
        )
        for column in version.get("additionalPrinterColumns") or ()
    )


_STABILITY = re.compile(r"v(\d+)(?:(alpha|beta)(\d+))?")


def _by_priority(version: dict[str, Any]) -> tuple[Any, ...]:
    """The order in which discovery prefers versions: v2, v1, v1beta1, v1alpha1, then others by name."""
    found = _STABILITY.fullmatch(version["name"])
    if found is None:
        return (1, 0, 0, 0, version["name"])
    rank = {None: 0, "beta": 1, "alpha": 2}[found[2]]
    return (0, rank, -int(found[1]), -int(found[3] or 0), "")


def react(store: Store, change: Change) -> None:
    """Serve what a definition defines as soon as its names are accepted, and stop when it is gone."""
    crd = change.current.obj
    spec = crd["spec"]
    group, plural = spec["group"], spec["names"]["plural"]
    if change.type is EventType.DELETED:
        store.registry.remove(group, plural)
        _remove_instances(store, kinds_of(crd))
        store.drop_storage(f"{plural}.{group}")
        _judge_others(store, change)
        return
    status = _judged(store, crd, change.key)
    if any(c["type"] == "Established" and c["status"] == "True" for c in status["conditions"]):
        store.registry.remove(group, plural)
        for kind in kinds_of(crd):
            store.registry.add(kind)
    _settle(store, change.key, status)


def _remove_instances(store: Store, kinds: list[Kind]) -> None:
    """The objects of a deleted definition go with it; their finalizers are not waited for."""
    for kind in kinds[:1]:
        keys = store.storage(kind).keys()
        for key in keys:
            if store.find(kind, key) is not None:
                store.remove(kind, key)


def _judge_others(store: Store, change: Change) -> None:
    """Names that are free again may be what another definition of the group waits for."""
    kind = _definitions(store)
    keys = store.storage(kind).keys()
    for key in keys:
        version = store.find(kind, key)
        if version is not None and version.obj["spec"]["group"] == change.current.obj["spec"]["group"]:
            react(store, Change(version.number, EventType.MODIFIED, key, version, version))


def _definitions(store: Store) -> Kind:
    return store.registry_kind("apiextensions.k8s.io", "v1", "customresourcedefinitions")


def _judged(store: Store, crd: Object, key: Key) -> dict[str, Any]:
    """The status that a definition deserves: which of its names are accepted, and whether it is served."""
    before = crd.get("status") or {}
    accepted, conflict = _accepted_names(store, crd, key)
    names = conflict or ("NoConflicts", "no conflicts found")
    conditions = [_condition(store, before, "NamesAccepted", conflict is None, *names)]
    was = next((c for c in before.get("conditions") or () if c["type"] == "Established"), None)
    if was is not None and was["status"] == "True":
        conditions.append(was)
    elif conflict is None:
        told = ("InitialNamesAccepted", "the initial names have been accepted")
        conditions.append(_condition(store, before, "Established", True, *told))
    else:
        told = ("NotAccepted", "not all names are accepted")
        conditions.append(_condition(store, before, "Established", False, *told))
    storage_version = next(v["name"] for v in crd["spec"]["versions"] if v.get("storage"))
    stored = list(dict.fromkeys([*(before.get("storedVersions") or ()), storage_version]))
    return {**before, "conditions": conditions, "acceptedNames": accepted, "storedVersions": stored}


def _condition(
    store: Store, before: dict[str, Any], type_: str, holds: bool, reason: str, message: str
) -> dict[str, Any]:
    status = "True" if holds else "False"
    old = next((c for c in before.get("conditions") or () if c["type"] == type_), None)
    if old is not None and (old["status"], old.get("reason"), old.get("message")) == (status, reason, message):
        return dict(old)
    since = old["lastTransitionTime"] if old is not None and old["status"] == status else store.timestamp()
    return {"type": type_, "status": status, "lastTransitionTime": since, "reason": reason, "message": message}


def _accepted_names(store: Store, crd: Object, key: Key) -> tuple[dict[str, Any], tuple[str, str] | None]:
    """The names that no other definition of the group holds, and the last conflict (reason, message) if any."""
    wanted, group = crd_defaults(crd)["spec"]["names"], crd["spec"]["group"]
    resources, kinds = _taken(store, group, key)
    before = (crd.get("status") or {}).get("acceptedNames") or {}
    accepted: dict[str, Any] = {"kind": before.get("kind", ""), "plural": before.get("plural", "")}
    conflict: tuple[str, str] | None = None
    for field, taken, reason in (
        ("plural", resources, "PluralConflict"),
        ("singular", resources, "SingularConflict"),
        ("shortNames", resources, "ShortNamesConflict"),
        ("kind", kinds, "KindConflict"),
        ("listKind", kinds, "ListKindConflict"),
    ):
        value = wanted.get(field)
        clashes = [name for name in (value if isinstance(value, list) else [value]) if name in taken]
        if clashes:
            conflict = (reason, f'"{clashes[0]}" is already in use')
            if before.get(field):
                accepted[field] = before[field]
        elif value:
            accepted[field] = value
    if wanted.get("categories"):
        accepted["categories"] = wanted["categories"]
    return accepted, conflict


def _taken(store: Store, group: str, key: Key) -> tuple[dict[str, None], dict[str, None]]:
    """Names of resources, and of kinds, that other definitions of the group hold."""
    kind = _definitions(store)
    resources: dict[str, None] = {}
    kinds: dict[str, None] = {}
    keys = store.storage(kind).keys()
    for other in keys:
        version = store.find(kind, other)
        if other == key or version is None or version.obj["spec"]["group"] != group:
            continue
        names = (version.obj.get("status") or {}).get("acceptedNames") or {}
        for name in (names.get("plural"), names.get("singular"), *(names.get("shortNames") or ())):
            resources[name or ""] = None
        for name in (names.get("kind"), names.get("listKind")):
            kinds[name or ""] = None
    resources.pop("", None)
    kinds.pop("", None)
    return resources, kinds


def _settle(store: Store, key: Key, status: dict[str, Any]) -> None:
    """Write a status that has changed, as the API server itself does in a real cluster."""
    kind = _definitions(store)
    version = store.find(kind, key)
    if version is None or version.obj.get("status") == status:
        return
    crd = {**version.obj, "status": status}
    managers = owners_after_update(
        kind, version.managers, version.obj, crd, "kube-apiserver", "status", store.timestamp()
    )
    store.commit(kind, key, crd, managers)
