"""What makes a CustomResourceDefinition invalid, apart from its schemas (`schema_reading`)."""

from __future__ import annotations

import json
import re
from typing import Any

from muster.kube.api import Object
from muster.sim.api_status import Cause, invalid_value, required, unsupported_value
from muster.sim.json_path import JsonPathError, compile_path
from muster.sim.schema import Schema
from muster.sim.schema_reading import read_root

_LABEL = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LABEL_RULE = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, "
    "and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is "
    "'[a-z]([-a-z0-9]*[a-z0-9])?')"
)
_SUBDOMAIN_RULE = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start "
    "and end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    r"'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
_MIXED = "may have mixed case, but should otherwise match: " + _LABEL_RULE
_APPROVAL = "api-approved.kubernetes.io"
_APPROVAL_TEXT = "https://github.com/kubernetes/enhancements/pull/1111"
_ONE_STORAGE = "must have exactly one version marked as storage version"
_COLUMN_TYPES = ("boolean", "date", "integer", "number", "string")
_COLUMN_FORMATS = ("byte", "date", "date-time", "double", "float", "int32", "int64", "password")
_SELECTABLE = ("string", "integer", "boolean")


def crd_causes(crd: Object, old: Object | None) -> list[Cause]:
    """What is wrong with a definition whose defaults are filled in."""
    spec = crd.get("spec") or {}
    causes: list[Cause] = []
    if old is None:
        _check_name(crd, spec, causes)
    _check_group(spec.get("group") or "", causes)
    _check_approval(crd, spec.get("group") or "", causes)
    scope = spec.get("scope")
    if not scope:
        causes.append(required("spec.scope"))
    elif scope not in ("Cluster", "Namespaced"):
        causes.append(unsupported_value("spec.scope", scope, ["Cluster", "Namespaced"]))
    _check_names(spec.get("names") or {}, causes)
    if spec.get("preserveUnknownFields"):
        why = (
            "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead"
        )
        causes.append(invalid_value("spec.preserveUnknownFields", True, why))
    _check_conversion(spec.get("conversion") or {}, causes)
    if old is not None:
        _check_unchanged(spec, old, causes)
    _check_versions(spec.get("versions") or [], causes)
    return causes


def _check_name(crd: Object, spec: dict[str, Any], causes: list[Cause]) -> None:
    name = crd["metadata"]["name"]
    if name != f"{(spec.get('names') or {}).get('plural') or ''}.{spec.get('group') or ''}":
        causes.append(invalid_value("metadata.name", name, 'must be spec.names.plural+"."+spec.group'))


def _check_group(group: str, causes: list[Cause]) -> None:
    if not group:
        causes.append(required("spec.group"))
    elif not _SUBDOMAIN.fullmatch(group):
        causes.append(invalid_value("spec.group", group, _SUBDOMAIN_RULE))
    elif "." not in group:
        causes.append(invalid_value("spec.group", group, "should be a domain with at least one dot"))


def _check_approval(crd: Object, group: str, causes: list[Cause]) -> None:
    """Groups of Kubernetes itself need an annotation that says who approved them."""
    approval = (crd["metadata"].get("annotations") or {}).get(_APPROVAL)
    if group.endswith((".k8s.io", ".kubernetes.io")) and not approval:
        why = f'protected groups must have approval annotation "{_APPROVAL}", see {_APPROVAL_TEXT}'
        causes.append(required(f"metadata.annotations[{_APPROVAL}]", why))


def _check_names(names: dict[str, Any], causes: list[Cause]) -> None:
    for field in ("plural", "singular", "kind", "listKind"):
        value = names.get(field) or ""
        mixed = field in ("kind", "listKind")
        if not value:
            causes.append(required(f"spec.names.{field}"))
        elif not _LABEL.fullmatch(value.lower() if mixed else value):
            causes.append(invalid_value(f"spec.names.{field}", value, _MIXED if mixed else _LABEL_RULE))
    for field in ("shortNames", "categories"):
        for at, value in enumerate(names.get(field) or ()):
            if not _LABEL.fullmatch(value):
                causes.append(invalid_value(f"spec.names.{field}[{at}]", value, _LABEL_RULE))
    if names.get("kind") and names.get("kind") == names.get("listKind"):
        causes.append(
            invalid_value("spec.names.listKind", names["listKind"], "kind and listKind may not be the same")
        )


def _check_conversion(conversion: dict[str, Any], causes: list[Cause]) -> None:
    strategy = conversion.get("strategy", "None")
    if strategy not in ("None", "Webhook"):
        causes.append(unsupported_value("spec.conversion.strategy", strategy, ["None", "Webhook"]))
    elif strategy == "Webhook":
        why = "the simulated API server converts with strategy None only"
        causes.append(invalid_value("spec.conversion.strategy", strategy, why))


def _check_unchanged(spec: dict[str, Any], old: Object, causes: list[Cause]) -> None:
    before = old.get("spec") or {}
    if before.get("group") != spec.get("group"):
        causes.append(invalid_value("spec.group", spec.get("group"), "field is immutable"))
    if not _is_established(old):
        return
    if before.get("scope") != spec.get("scope"):
        causes.append(invalid_value("spec.scope", spec.get("scope"), "field is immutable"))
    for field in ("kind", "plural"):
        value = (spec.get("names") or {}).get(field)
        if (before.get("names") or {}).get(field) != value:
            causes.append(invalid_value(f"spec.names.{field}", value, "field is immutable"))


def _is_established(crd: Object) -> bool:
    conditions = (crd.get("status") or {}).get("conditions") or ()
    return any(c["type"] == "Established" and c["status"] == "True" for c in conditions)


def _check_versions(versions: list[dict[str, Any]], causes: list[Cause]) -> None:
    names = [version.get("name") or "" for version in versions]
    if sum(version.get("storage") is True for version in versions) != 1:
        causes.append(_of_versions(versions, _ONE_STORAGE))
        if not any(version.get("storage") is True for version in versions):
            why = "must have at least one stored version"
            causes.append(Cause("FieldValueInvalid", f"Invalid value: null: {why}", "status.storedVersions"))
    if len(set(names)) != len(names):
        causes.append(_of_versions(versions, "must contain unique version names"))
    for at, name in enumerate(names):
        if not _LABEL.fullmatch(name):
            causes.append(invalid_value(f"spec.versions[{at}].name", name, _LABEL_RULE))
            if at == 0:
                causes.append(invalid_value("spec.version", name, _LABEL_RULE))
    for at, version in enumerate(versions):
        if version.get("deprecationWarning") is not None and not version.get("deprecated"):
            where = f"spec.versions[{at}].deprecationWarning"
            why = "can only be set for deprecated versions"
            causes.append(invalid_value(where, version["deprecationWarning"], why))
        elif version.get("deprecated"):
            why = "the simulated API server does not warn of deprecated versions"
            causes.append(invalid_value(f"spec.versions[{at}].deprecated", True, why))
    _check_contents(versions, causes)


def _of_versions(versions: list[dict[str, Any]], why: str) -> Cause:
    quoted = [
        {
            "Name": version.get("name") or "",
            "Served": bool(version.get("served")),
            "Storage": bool(version.get("storage")),
            "Deprecated": bool(version.get("deprecated")),
            **dict.fromkeys(
                ("DeprecationWarning", "Schema", "Subresources", "AdditionalPrinterColumns", "SelectableFields")
            ),
        }
        for version in versions
    ]
    text = json.dumps(quoted, separators=(",", ":")) if versions else "[]"
    return Cause("FieldValueInvalid", f"Invalid value: {text}: {why}", "spec.versions")


def _check_contents(versions: list[dict[str, Any]], causes: list[Cause]) -> None:
    """Schemas, columns and subresources. What all versions share is named as if it stood beside them."""
    schemas = [(version.get("schema") or {}).get("openAPIV3Schema") for version in versions]
    shared = all(raw == schemas[0] for raw in schemas)
    if not shared:
        why = "the simulated API server serves several versions only where they have one schema"
        causes.append(Cause("FieldValueInvalid", f"Invalid value: null: {why}", "spec.versions"))
    for at, (version, raw) in enumerate(zip(versions, schemas, strict=True)):
        where = f"spec.versions[{at}].schema.openAPIV3Schema"
        if not isinstance(raw, dict) or not raw:
            causes.append(required(where))
            continue
        path = "spec.validation.openAPIV3Schema" if shared else where
        own: list[Cause] = []
        schema = read_root(raw, path, own)
        single = "spec" if len(versions) == 1 else f"spec.versions[{at}]"
        if not shared or at == 0:
            causes += own
        _check_subresources(version.get("subresources") or {}, f"{single}.subresources", causes)
        _check_columns(version.get("additionalPrinterColumns") or (), single, causes)
        _check_selectable(version.get("selectableFields") or (), schema, f"{single}.selectableFields", causes)


def _check_subresources(subresources: dict[str, Any], path: str, causes: list[Cause]) -> None:
    scale = subresources.get("scale")
    if scale is None:
        return
    missing = [field for field in ("specReplicasPath", "statusReplicasPath") if not scale.get(field)]
    causes += [required(f"{path}.scale.{field}") for field in missing]
    if not missing:
        why = "the simulated API server does not serve the subresource scale"
        causes.append(Cause("FieldValueInvalid", f"Invalid value: null: {why}", f"{path}.scale"))


def _check_columns(columns: Any, path: str, causes: list[Cause]) -> None:
    for at, column in enumerate(columns):
        where = f"{path}.additionalPrinterColumns[{at}]"
        if not column.get("name"):
            causes.append(required(f"{where}.name"))
        kind, form, json_path = column.get("type") or "", column.get("format") or "", column.get("jsonPath") or ""
        if not kind:
            listed = ",".join(_COLUMN_TYPES)
            causes.append(required(f"{where}.type", f"must be one of {listed}"))
        elif kind not in _COLUMN_TYPES:
            causes.append(invalid_value(f"{where}.type", kind, f"must be one of {','.join(_COLUMN_TYPES)}"))
        if form and form not in _COLUMN_FORMATS:
            causes.append(invalid_value(f"{where}.format", form, f"must be one of {','.join(_COLUMN_FORMATS)}"))
        _check_json_path(json_path, f"{where}.JSONPath", causes)


def _check_json_path(json_path: str, path: str, causes: list[Cause]) -> None:
    if not json_path:
        causes.append(required(path))
    elif not json_path.startswith("."):
        causes.append(invalid_value(path, json_path, "must be a simple json path starting with ."))
    else:
        try:
            compile_path(json_path)
        except JsonPathError as error:
            causes.append(invalid_value(path, json_path, f"is an invalid path: {error}"))


def _check_selectable(fields: Any, schema: Schema, path: str, causes: list[Cause]) -> None:
    for at, field in enumerate(fields):
        json_path = field.get("jsonPath") or ""
        current: Schema | None = schema
        for name in json_path.split(".")[1:]:
            current = current.properties.get(name) if current is not None else None
        if current is None or current.type not in _SELECTABLE or json_path.startswith(".metadata"):
            why = "is an invalid path: does not refer to a valid field"
            causes.append(invalid_value(f"{path}[{at}].jsonPath", json_path, why))
