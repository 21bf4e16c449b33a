"""Server-side apply requests: from a client's configuration to the next version of the object."""

from __future__ import annotations

import json
import unicodedata
from typing import TYPE_CHECKING, Any

from muster.kube.api import Object
from muster.sim import api_writes
from muster.sim.api_conversion import from_storage
from muster.sim.api_kinds import Kind
from muster.sim.api_status import Cause, bad_request, conflict, invalid, invalid_value, not_found
from muster.sim.field_sets import FieldSet, fields_of
from muster.sim.history import Key, Version
from muster.sim.managed_fields import APPLY, Manager, Managers, owners_before_first_apply
from muster.sim.server_side_apply import Applied, ApplyConflictError, apply_configuration
from muster.sim.shapes import Shape
from muster.sim.typed_config import check_config

if TYPE_CHECKING:
    from muster.sim.store import Store, WriteOptions

MAX_MANAGER = 128
"""Bytes of a field manager's name."""

_KUBECTL = "kubectl"
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


def apply(
    store: Store,
    kind: Kind,
    name: str,
    config: Object,
    namespace: str,
    options: WriteOptions,
    force: bool,
    subresource: str,
) -> tuple[Version, bool]:
    """Apply `config`; the second value tells whether the object was created.

    Raises StatusError: 400, 404 (status of a missing object), 409 with causes, 422, 500 (not of the schema's types).
    """
    check_options(options, "PatchOptions", applies=True)
    api_writes.check_subresource(kind, subresource)
    config = _decoded(api_writes.copied(config))
    namespace = (namespace or "default") if kind.namespaced else ""
    key: Key = (namespace, name)
    version = store.find(kind, key)
    if version is None and subresource:
        raise not_found(kind.plural, kind.group, name)
    _check_identity(kind, config)
    check_config(kind, config)
    applier = Manager(options.manager, APPLY, kind.api_version, subresource, store.timestamp(), {})
    config = _placed(kind, config)
    if version is None:
        return _create(store, kind, key, config, applier, options), True
    convert = from_storage(kind)
    live = version.obj if convert is None else convert(version.obj)
    managers = version.managers or owners_before_first_apply(kind, live, subresource, store.timestamp())
    applied = _applied(kind, live, managers, config, applier, force=force)
    merged = {**applied.obj, "metadata": applied.obj.get("metadata") or {}}
    _refuse_nulls(kind, name, merged)
    _check_place(merged.get("metadata"), key)
    _check_uid(kind, merged, live)
    owned = _same_but_times(version.managers, applied.managers)
    return api_writes.replace(store, kind, version, merged, options, subresource, owned), False


def _same_but_times(before: Managers, after: Managers) -> Managers:
    """The ownership after an apply; where nothing but times differs, the one before, so that nothing is written."""
    known = {manager.identity: (manager.api_version, manager.fields) for manager in before}
    now = {manager.identity: (manager.api_version, manager.fields) for manager in after}
    return before if known == now else after


def _decoded(config: Any) -> Object:
    """The configuration as an object; an empty body is an empty one. Raises StatusError 400."""
    if config is None or isinstance(config, dict):
        return config or {}
    what = "array" if isinstance(config, list) else "string" if isinstance(config, str) else "number"
    what = "bool" if isinstance(config, bool) else what
    raise bad_request(
        "error decoding patch: error unmarshaling JSON: while decoding JSON: "
        f"json: cannot unmarshal {what} into Go value of type map[string]interface {{}}"
    )


def check_options(options: WriteOptions, kind: str, *, applies: bool = False) -> None:
    """Raise StatusError 422 for a field manager that cannot be one. `kind`: CreateOptions, UpdateOptions, ..."""
    manager = options.manager
    cause: Cause | None = None
    if applies and not manager:
        cause = Cause("FieldValueRequired", "Required value: is required for apply patch", "fieldManager")
    elif len(manager.encode()) > MAX_MANAGER:
        cause = Cause("FieldValueTooLong", f"Too long: may not be more than {MAX_MANAGER} bytes", "fieldManager")
    elif odd := [at for at, character in enumerate(manager) if not _is_printable(character)]:
        text = f"invalid character U+{ord(manager[odd[0]]):04X} (at position {odd[0]})"
        cause = invalid_value("fieldManager", manager, text)
    if cause is not None:
        raise invalid(kind, "meta.k8s.io", "", [cause])


def _is_printable(character: str) -> bool:
    return character == " " or unicodedata.category(character)[0] not in "CZ"


def _check_identity(kind: Kind, config: Object) -> None:
    """An applied configuration names its kind, and says nothing about ownership."""
    api_version, name = str(config.get("apiVersion") or ""), str(config.get("kind") or "")
    if (api_version, name) != (kind.api_version, kind.name):
        group, _, version = api_version.rpartition("/")
        raise bad_request(f"invalid object type: {group}/{version}, Kind={name}")
    metadata = config.get("metadata")
    if isinstance(metadata, dict) and metadata.get("managedFields") is not None:
        raise bad_request("metadata.managedFields must be nil")


def _check_place(metadata: Any, key: Key) -> None:
    namespace, name = key
    metadata = metadata if isinstance(metadata, dict) else {}
    if (metadata.get("name") or name) != name:
        raise bad_request(f"the name of the object ({metadata['name']}) does not match the name on the URL ({name})")
    if namespace and (metadata.get("namespace") or namespace) != namespace:
        raise bad_request("the namespace of the provided object does not match the namespace sent on the request")


def _check_uid(kind: Kind, merged: Object, live: Object) -> None:
    uid = merged["metadata"].get("uid")
    if uid and uid != live["metadata"]["uid"]:
        cause = invalid_value("metadata.uid", uid, "field is immutable")
        raise invalid(kind.name, kind.group, live["metadata"]["name"], [cause])


def _ignored(kind: Kind, subresource: str) -> tuple[str, ...]:
    """The top-level fields that this endpoint does not write."""
    if subresource == "status":
        return ("metadata", "spec") if kind.custom is not None else ("spec",)
    return ("status",) if kind.has_status else ()


def _placed(kind: Kind, config: Object) -> Object:
    """The configuration with metadata, and without the namespace that a cluster-scoped object does not have."""
    metadata = config.get("metadata") or {}
    if not kind.namespaced:
        metadata = {name: value for name, value in metadata.items() if name != "namespace"}
    return {**config, "metadata": metadata}


def _create(store: Store, kind: Kind, key: Key, config: Object, applier: Manager, options: WriteOptions) -> Version:
    metadata = config["metadata"]
    _check_place(metadata, key)
    if metadata.get("uid"):
        why = f"uid mismatch: the provided object specified uid {metadata['uid']}, and no existing object was found"
        raise conflict(kind.plural, kind.group, key[1], why)
    empty: Object = {"apiVersion": kind.api_version, "kind": kind.name, "metadata": {}}
    config = {**config, "metadata": {**metadata, "name": key[1]}}
    ignored = _ignored(kind, "")
    applied = apply_configuration(empty, (), config, kind.shape, applier, force=True, ignored=ignored)
    obj = applied.obj
    _refuse_nulls(kind, key[1], obj)
    metadata = api_writes.identified(store, kind, obj, key[0])
    return api_writes.insert(store, kind, {**obj, "metadata": metadata}, options, applied.managers)


def _refuse_nulls(kind: Kind, name: str, merged: Object) -> None:
    """Nulls that a client sends are dropped where the schema allows none; those that an apply leaves are refused."""
    if kind.custom is not None and (causes := kind.custom.null_causes(merged)):
        raise invalid(kind.name, kind.group, name, causes)


def _applied(
    kind: Kind, live: Object, managers: Managers, config: Object, applier: Manager, *, force: bool
) -> Applied:
    """The merge, with what kubectl is owed: it may take over what it once wrote with a client-side apply."""
    ignored = _ignored(kind, applier.subresource)
    try:
        applied = apply_configuration(live, managers, config, kind.shape, applier, force=force, ignored=ignored)
    except ApplyConflictError as error:
        left = error
        if applier.name == _KUBECTL:
            left = error.without(_last_applied(live, kind.shape))
        if left.conflicts:
            raise left from None
        applied = apply_configuration(live, managers, config, kind.shape, applier, force=True, ignored=ignored)
    if applier.name == _KUBECTL and _LAST_APPLIED in (live["metadata"].get("annotations") or {}):
        return Applied(_with_last_applied(applied.obj, config), applied.managers)
    return applied


def _last_applied(live: Object, shape: Shape) -> FieldSet:
    """The fields of the configuration that kubectl left in an annotation; none when there is no readable one."""
    text = (live["metadata"].get("annotations") or {}).get(_LAST_APPLIED, "")
    try:
        config = json.loads(text)
        return fields_of(config, shape) if isinstance(config, dict) else {}
    except ValueError:
        return {}


def _with_last_applied(obj: Object, config: Object) -> Object:
    text = json.dumps(config, separators=(",", ":"), sort_keys=True, ensure_ascii=False) + "\n"
    metadata = obj["metadata"]
    return {**obj, "metadata": {**metadata, "annotations": {**metadata["annotations"], _LAST_APPLIED: text}}}
