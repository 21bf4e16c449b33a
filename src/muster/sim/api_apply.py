"""Server-side apply requests: from a client's configuration to the next version of the object."""

from __future__ import annotations

import json
import unicodedata
from typing import TYPE_CHECKING, Any

from muster.kube.api import Object
from muster.sim import api_writes
from muster.sim.api_conversion import from_storage
from muster.sim.api_decoding import checked
from muster.sim.api_kinds import Kind
from muster.sim.api_metadata import check_address
from muster.sim.api_status import Cause, bad_request, conflict, invalid, invalid_value, not_found
from muster.sim.field_sets import FieldSet, fields_of
from muster.sim.history import Key, Version
from muster.sim.managed_fields import APPLY, Manager, Managers, not_written, owners_before_first_apply
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
    _check_address(kind, merged, live, key, options)
    merged = _without_nulls(kind, name, merged, live, subresource)
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


def _check_address(kind: Kind, merged: Object, live: Object | None, key: Key, options: WriteOptions) -> None:
    """Raise StatusError 400 unless the outcome names the object of the URL: a manager that gives up all that anybody
    owned in the metadata takes the name with it, unless it says the name again."""
    namespace, name = key
    metadata = merged["metadata"]
    if not metadata.get("name"):
        # What cannot be read as the kind is told first.
        checked(kind, merged, live, options, merged=True)
    place = metadata.get("namespace") or namespace
    check_address({**metadata, "namespace": place} if namespace else metadata, name, namespace)


def _check_uid(kind: Kind, merged: Object, live: Object) -> None:
    uid = merged["metadata"].get("uid")
    if uid and uid != live["metadata"]["uid"]:
        cause = invalid_value("metadata.uid", uid, "field is immutable")
        raise invalid(kind.name, kind.group, live["metadata"]["name"], [cause])


def _placed(kind: Kind, config: Object) -> Object:
    """The configuration without the namespace that a cluster-scoped object does not have."""
    if "metadata" not in config:
        return config
    metadata = config["metadata"] or {}
    if not kind.namespaced:
        metadata = {name: value for name, value in metadata.items() if name != "namespace"}
    return {**config, "metadata": metadata}


def _create(store: Store, kind: Kind, key: Key, config: Object, applier: Manager, options: WriteOptions) -> Version:
    metadata = config.get("metadata") or {}
    if metadata.get("uid"):
        why = f"uid mismatch: the provided object specified uid {metadata['uid']}, and no existing object was found"
        raise conflict(kind.plural, kind.group, key[1], why)
    empty: Object = {"apiVersion": kind.api_version, "kind": kind.name, "metadata": {}}
    ignored = not_written(kind, "")
    applied = apply_configuration(empty, (), config, kind.shape, applier, force=True, ignored=ignored)
    _check_address(kind, applied.obj, None, key, options)
    obj = _without_nulls(kind, key[1], applied.obj, empty, "")
    metadata = api_writes.identified(store, kind, obj, key[0])
    return api_writes.insert(store, kind, {**obj, "metadata": metadata}, options, applied.managers)


def _without_nulls(kind: Kind, name: str, merged: Object, live: Object, subresource: str) -> Object:
    """Nulls that a client sends are dropped where the schema allows none; those that an apply leaves are refused,
    but for those in a status that this endpoint does not write, and for a null where no status was."""
    if kind.custom is None:
        return merged
    ignores = kind.has_status and (not subresource or (merged.get("status") is None and "status" not in live))
    written = {field: value for field, value in merged.items() if field != "status"} if ignores else merged
    if causes := kind.custom.null_causes(written):
        raise invalid(kind.name, kind.group, name, causes)
    return written


def _applied(
    kind: Kind, live: Object, managers: Managers, config: Object, applier: Manager, *, force: bool
) -> Applied:
    """The merge, with what kubectl is owed: it may take over what it once wrote with a client-side apply."""
    ignored = not_written(kind, applier.subresource)
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
