"""The first look at an object that a client sends: is it of the right kind, are its fields of the right type?"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from muster.kube.api import Object
from muster.sim import builtin_defaults, builtin_fields
from muster.sim.api_kinds import Kind
from muster.sim.api_status import StatusError, bad_request, internal, invalid, invalid_value, shown
from muster.sim.builtin_fields import DecodeError

if TYPE_CHECKING:
    from muster.sim.store import Store, WriteOptions

_SCHEME = "pkg/runtime/scheme.go:111"
_SUMMARY = 30
"""Length of the quotation of a body that cannot be read (characters)."""


def summary(raw: bytes) -> str:
    """A body as a real server quotes it: the beginning of an object, anything else in hexadecimal digits."""
    if not raw:
        return "<empty>"
    head = raw[:_SUMMARY]
    text = head.decode(errors="replace") if raw[:1] == b"{" else head.hex()
    return text + (" ..." if len(raw) > _SUMMARY else "")


def unrecognized(kind: Kind, why: str, raw: bytes) -> StatusError:
    """400 for a body in which no object of `kind` can be seen."""
    return bad_request(f"the object provided is unrecognized (must be of type {kind.name}): {why} ({summary(raw)})")


def unreadable(kind: Kind, why: str) -> StatusError:
    """400 for an object whose fields do not fit `kind`."""
    return bad_request(f'{kind.name} in version "{kind.resource.version}" cannot be handled as a {kind.name}: {why}')


def invalid_patch(patched: Any, why: str) -> StatusError:
    """422 for a patch whose result cannot be read."""
    shown_patch = patched if isinstance(patched, str) else json.dumps(patched, separators=(",", ":"))
    return invalid("", "", "", [invalid_value("patch", shown_patch, why)])


def check_identity(store: Store, kind: Kind, obj: Any) -> None:
    """Raise StatusError 400 or 422 unless `obj` says that it is of `kind`. Built-in objects may leave it out."""
    if not isinstance(obj, dict):
        what = "array" if isinstance(obj, list) else "string" if isinstance(obj, str) else "number"
        raise unrecognized(kind, _not_an_object(what), json.dumps(obj).encode())
    why = _identity_fault(store, kind, obj)
    if why is not None:
        raise why


def _not_an_object(what: str) -> str:
    struct = 'struct { APIVersion string "json:\\"apiVersion,omitempty\\""; Kind string "json:\\"kind,omitempty\\"" }'
    return (
        f"couldn't get version/kind; json parse error: json: cannot unmarshal {what} into Go value of type {struct}"
    )


def _identity_fault(store: Store, kind: Kind, obj: Object) -> StatusError | None:
    version, name = obj.get("apiVersion") or "", obj.get("kind") or ""
    if not isinstance(version, str) or not isinstance(name, str):
        field = "kind" if isinstance(version, str) else "apiVersion"
        why = (
            f"couldn't get version/kind; json parse error: json: cannot unmarshal into field .{field} of type string"
        )
        return unrecognized(kind, why, json.dumps(obj).encode())
    if kind.custom is not None:
        return _custom_identity_fault(kind, obj, version, name)
    version, name = version or kind.api_version, name or kind.name
    if (version, name) == (kind.api_version, kind.name):
        return None
    return bad_request(
        f'{name} in version "{version.rpartition("/")[2]}" cannot be handled as a {kind.name}: '
        + _foreign(store, kind, version, name)
    )


def _foreign(store: Store, kind: Kind, version: str, name: str) -> str:
    """Why an object of another kind is refused."""
    other = store.registry.by_kind(version, name)
    if other is None or other.custom is not None:
        return f'no kind "{name}" is registered for version "{version}" in scheme "{_SCHEME}"'
    if other.storage == kind.storage:
        return f"the API version in the data ({version}) does not match the expected API version ({kind.api_version})"
    package = kind.group.partition(".")[0] or "core"
    return f"converting ({other.resource.version}.{name}) to ({package}.{kind.name}): unknown conversion"


def _custom_identity_fault(kind: Kind, obj: Object, version: str, name: str) -> StatusError | None:
    if not name:
        raw = json.dumps(obj)
        return unrecognized(kind, f"Object 'Kind' is missing in '{raw[:1000]}'", raw.encode())
    if version != kind.api_version:
        return bad_request(
            f"the API version in the data ({version}) does not match the expected API version ({kind.api_version})"
        )
    if name != kind.name:
        metadata = obj.get("metadata")
        given = str(metadata.get("name") or "") if isinstance(metadata, dict) else ""
        return invalid(name, kind.group, given, [invalid_value("kind", name, f"must be {kind.name}")])
    return None


def patched_identity_fault(store: Store, kind: Kind, obj: Object) -> StatusError | None:
    """What is wrong when a patch leaves `obj` with another kind or version than `kind`."""
    version, name = obj.get("apiVersion"), obj.get("kind")
    if (version, name) == (kind.api_version, kind.name):
        return None
    if kind.custom is None:
        if version in (None, kind.api_version) and name in (None, kind.name):
            return None
        why = _foreign(store, kind, str(version or kind.api_version), str(name or kind.name))
        return invalid_patch(obj, why)
    if not name or not isinstance(name, str) or not isinstance(version, str):
        return invalid_patch(obj, f"Object 'Kind' is missing in '{json.dumps(obj)[:1000]}'")
    metadata = obj.get("metadata")
    given = str(metadata.get("name") or "") if isinstance(metadata, dict) else ""
    group = version.rpartition("/")[0]
    if version != kind.api_version:
        return invalid(name, group, given, [invalid_value("apiVersion", version, f"must be {kind.api_version}")])
    return invalid(name, group, given, [invalid_value("kind", name, f"must be {kind.name}")])


def decoded(kind: Kind, obj: Object, old: Object | None) -> tuple[Object, list[str]]:
    """The object as the server reads it, with defaults, and the paths of fields that it does not know.

    Raises DecodeError for a field of the wrong type.
    """
    unknown: list[str] = []
    if kind.custom is None:
        found = builtin_fields.read(builtin_fields.struct_name(kind.group, kind.name), obj, old, unknown)
        return builtin_defaults.filled(kind, found, old), unknown
    metadata = read_metadata(obj.get("metadata"), (old or {}).get("metadata"), unknown)
    found, more = kind.custom.prepared({**obj, "metadata": metadata}, old)
    return found, unknown + sorted(more)


def read_metadata(metadata: Any, old: Any, unknown: list[str]) -> dict[str, Any]:
    """Metadata as the server reads it. Raises DecodeError."""
    paths: list[str] = []
    found = builtin_fields.read("ObjectMeta", {} if metadata is None else metadata, old, paths)
    unknown += [f"metadata.{path}" for path in paths]
    return found


def checked(kind: Kind, obj: Object, old: Object | None, options: WriteOptions, *, merged: bool = False) -> Object:
    """The object as the server reads it, for create and update. `merged`: it is the outcome of an apply.

    Raises StatusError: 400, or 500 when `merged`, for a field of the wrong type.
    """
    try:
        found, unknown = decoded(kind, obj, old)
    except DecodeError as error:
        raise (_unconvertible(kind, obj, str(error)) if merged else unreadable(kind, str(error))) from None
    if unknown and options.field_validation == "Strict":
        raise unreadable(kind, strict(unknown))
    warn(unknown, options)
    return found


def checked_patch(kind: Kind, obj: Object, old: Object, options: WriteOptions, told: Callable[[], str]) -> Object:
    """The result of a patch as the server reads it. `told`: how a refusal quotes it. Raises StatusError 422."""
    try:
        found, unknown = decoded(kind, obj, old)
    except DecodeError as error:
        raise invalid_patch(told(), str(error)) from None
    if unknown and options.field_validation == "Strict":
        raise invalid_patch(told(), strict(unknown))
    warn(unknown, options)
    return found


def _unconvertible(kind: Kind, obj: Object, why: str) -> StatusError:
    metadata = obj["metadata"]
    subject = f"{kind.group}/{kind.resource.version}, Kind={kind.name}"
    prefix = "error decoding from json: " if why.startswith("illegal base64") else ""
    name = f"{metadata.get('namespace', '')}/{metadata.get('name', '')}"
    return internal(
        f"failed to convert new object ({name}; {subject}) to proper "
        f"version: unable to convert unstructured object to {subject}: {prefix}{why}"
    )


def strict(unknown: list[str]) -> str:
    return "strict decoding error: " + ", ".join(f'unknown field "{path}"' for path in unknown)


def warn(unknown: list[str], options: WriteOptions) -> None:
    """Tell the client about unknown fields, unless it asked not to be told."""
    if options.field_validation != "Ignore":
        options.warnings += [f'unknown field "{path}"' for path in unknown]


def go_text(value: Any) -> str:
    """A value as Go prints it, bounded: how refusals quote a strategic merge patch."""
    if isinstance(value, dict):
        return "map[" + " ".join(f"{name}:{go_text(part)}" for name, part in sorted(value.items())) + "]"
    if isinstance(value, list):
        return "[" + " ".join(map(go_text, value)) + "]"
    if value is None:
        return "<nil>"
    return value if isinstance(value, str) else shown(value)
