"""Custom resources: from a CustomResourceDefinition to served kinds with schema, names and printer columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from muster.kube.api import EventType, Object, ResourceType
from muster.sim.api_kinds import Kind
from muster.sim.api_names import is_dns_label, is_dns_subdomain
from muster.sim.api_status import Cause, invalid_value, required, unsupported_value
from muster.sim.history import Change
from muster.sim.schema import Schema, prune, read_schema, with_defaults
from muster.sim.schema_validation import has_rules, validate, validate_rules
from muster.sim.shapes import Shape

if TYPE_CHECKING:
    from muster.sim.store import Store

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
        if old is None and self.has_status:
            body.pop("status", None)
        return {**{name: obj[name] for name in _ROOT_FIELDS if name in obj}, **body}, unknown

    def causes_of(self, obj: Object, old: Object | None) -> list[Cause]:
        """What is wrong with a prepared object. Rules run only on objects that fit the schema."""
        before = old if old is not None else {}
        causes = [required(name) for name in self.schema.limits.get("required") or () if name not in obj]
        for name, value in obj.items():
            child = self.schema.properties.get(name)
            if name not in _ROOT_FIELDS and child is not None:
                validate(value, child, before.get(name), name, causes)
        if not causes and has_rules(self.schema):
            validate_rules(_for_rules(obj), self.schema, None if old is None else _for_rules(old), "", causes)
        return causes


def _for_rules(obj: Object) -> Object:
    """Rules may read no metadata but the name."""
    names = ("name", "generateName")
    return {**obj, "metadata": {name: obj["metadata"][name] for name in names if name in obj["metadata"]}}


def crd_causes(crd: Object, old: Object | None) -> list[Cause]:
    """What is wrong with a CustomResourceDefinition."""
    spec = crd.get("spec") or {}
    names = spec.get("names") or {}
    causes: list[Cause] = []
    group, plural = spec.get("group"), names.get("plural")
    if not isinstance(group, str) or not is_dns_subdomain(group) or "." not in group:
        causes.append(invalid_value("spec.group", group, "should be a domain with at least one dot"))
    for name, value in (("plural", plural), ("kind", names.get("kind"))):
        if not isinstance(value, str) or not is_dns_label(value.lower()):
            causes.append(required(f"spec.names.{name}"))
    if crd["metadata"]["name"] != f"{plural}.{group}":
        detail = 'must be spec.names.plural+"."+spec.group'
        causes.append(invalid_value("metadata.name", crd["metadata"]["name"], detail))
    if spec.get("scope") not in ("Cluster", "Namespaced"):
        causes.append(unsupported_value("spec.scope", spec.get("scope"), ["Cluster", "Namespaced"]))
    if spec.get("preserveUnknownFields"):
        causes.append(
            invalid_value(
                "spec.preserveUnknownFields",
                True,
                "cannot set to true, set x-kubernetes-preserve-unknown-fields to true instead",
            )
        )
    strategy = (spec.get("conversion") or {}).get("strategy", "None")
    if strategy != "None":
        text = "the simulated API server converts with strategy None only"
        causes.append(invalid_value("spec.conversion.strategy", strategy, text))
    if old is not None:
        before = old.get("spec") or {}
        causes += [
            invalid_value(f"spec.{field}", spec.get(field), "field is immutable")
            for field in ("group", "scope")
            if before.get(field) != spec.get(field)
        ]
    return causes + _version_causes(spec)


def _version_causes(spec: dict[str, Any]) -> list[Cause]:
    causes: list[Cause] = []
    versions = spec.get("versions")
    if not isinstance(versions, list) or not versions or not all(isinstance(v, dict) for v in versions):
        return [required("spec.versions", "must have exactly one version marked as storage version")]
    if sum(v.get("storage") is True for v in versions) != 1:
        causes.append(invalid_value("spec.versions", None, "must have exactly one version marked as storage version"))
    for at, version in enumerate(versions):
        path = f"spec.versions[{at}]"
        if not isinstance(version.get("name"), str) or not is_dns_label(version["name"]):
            causes.append(required(f"{path}.name"))
        raw = (version.get("schema") or {}).get("openAPIV3Schema")
        if not isinstance(raw, dict):
            causes.append(required(f"{path}.schema.openAPIV3Schema", "schemas are required"))
            continue
        schema = read_schema(raw, f"{path}.schema.openAPIV3Schema", causes)
        if schema.type != "object":
            causes.append(
                invalid_value(f"{path}.schema.openAPIV3Schema.type", schema.type, "must be object at the root")
            )
        for name in version.get("subresources") or {}:
            if name != "status":
                text = f"the subresource {name!r} is not supported by the simulated API server"
                causes.append(invalid_value(f"{path}.subresources.{name}", "", text))
        for at_column, column in enumerate(version.get("additionalPrinterColumns") or ()):
            causes += [
                required(f"{path}.additionalPrinterColumns[{at_column}].{field}")
                for field in ("name", "type", "jsonPath")
                if not column.get(field)
            ]
    return causes


def kinds_of(crd: Object) -> list[Kind]:
    """The kinds that a valid definition serves, one per served version."""
    spec = crd["spec"]
    names = spec["names"]
    storage_version = next(v["name"] for v in spec["versions"] if v.get("storage"))
    kinds = []
    for version in spec["versions"]:
        if not version.get("served"):
            continue
        raw = version["schema"]["openAPIV3Schema"]
        has_status = "status" in (version.get("subresources") or {})
        schema = read_schema(raw, "", [])
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
            description=column.get("description", ""),
            priority=column.get("priority", 0),
            format=column.get("format", ""),
        )
        for column in version.get("additionalPrinterColumns") or ()
    )


def react(store: Store, change: Change) -> None:
    """Serve what a definition defines as soon as it exists, and stop when it is gone."""
    crd = change.current.obj
    spec = crd["spec"]
    group, plural = spec["group"], spec["names"]["plural"]
    if change.type is EventType.DELETED:
        _remove_instances(store, kinds_of(crd))
    store.registry.remove(group, plural)
    if change.type is EventType.DELETED:
        store.drop_storage(f"{plural}.{group}")
        return
    for kind in kinds_of(crd):
        store.registry.add(kind)
    if (crd.get("status") or {}).get("acceptedNames") != _accepted(spec["names"]):
        _establish(store, change)


def _remove_instances(store: Store, kinds: list[Kind]) -> None:
    """The objects of a deleted definition go with it; their finalizers are not waited for."""
    for kind in kinds[:1]:
        keys = store.storage(kind).keys()
        for key in keys:
            if store.find(kind, key) is not None:
                store.remove(kind, key)


def _accepted(names: dict[str, Any]) -> dict[str, Any]:
    return {"singular": names["kind"].lower(), "listKind": names["kind"] + "List", **names}


def _establish(store: Store, change: Change) -> None:
    crd = change.current.obj
    now = store.timestamp()
    storage_version = next(v["name"] for v in crd["spec"]["versions"] if v.get("storage"))
    stored = list(dict.fromkeys([*((crd.get("status") or {}).get("storedVersions") or ()), storage_version]))
    status = {
        "conditions": [
            {
                "type": "NamesAccepted",
                "status": "True",
                "lastTransitionTime": now,
                "reason": "NoConflicts",
                "message": "no conflicts found",
            },
            {
                "type": "Established",
                "status": "True",
                "lastTransitionTime": now,
                "reason": "InitialNamesAccepted",
                "message": "the initial names have been accepted",
            },
        ],
        "acceptedNames": _accepted(crd["spec"]["names"]),
        "storedVersions": stored,
    }
    kind = store.registry_kind("apiextensions.k8s.io", "v1", "customresourcedefinitions")
    store.commit(kind, change.key, {**crd, "status": status}, change.current.managers)
