"""Create, update, patch and apply: one pipeline from a client's object to the next stored version."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from muster.kube.api import Object, PatchType
from muster.sim import api_deletion, builtin_rules
from muster.sim.api_admission import check_shape, prepared, report_unknown, unknown_metadata
from muster.sim.api_conversion import from_storage, to_storage
from muster.sim.api_kinds import Kind
from muster.sim.api_metadata import carry_over, causes_of, checked_metadata
from muster.sim.api_names import generated_name
from muster.sim.api_status import (
    Cause,
    StatusError,
    already_exists,
    bad_request,
    conflict,
    forbidden,
    invalid,
    invalid_value,
    not_found,
    not_implemented,
    required,
    unsupported_media_type,
)
from muster.sim.field_sets import compare
from muster.sim.history import Key, Version
from muster.sim.managed_fields import APPLY, Manager, Managers, after_update, decode
from muster.sim.patch_json import PatchError, apply_json_patch
from muster.sim.patch_merge import apply_merge_patch
from muster.sim.patch_strategic import apply_strategic_patch
from muster.sim.server_side_apply import apply_configuration

if TYPE_CHECKING:
    from muster.sim.store import Store, WriteOptions

MAX_OBJECT_BYTES = 1536 * 1024
"""Largest object that is stored: etcd's default request limit."""

_CONDITIONAL_ONLY = ("leases", "poddisruptionbudgets", "customresourcedefinitions")


def create(store: Store, kind: Kind, obj: Object, namespace: str, options: WriteOptions) -> Version:
    """Store a new object. Raises StatusError: 400, 403 terminating namespace, 404 namespace, 409, 422."""
    obj = copied(obj)
    metadata = _identified(store, kind, obj, namespace)
    report_unknown(kind, unknown_metadata(obj), options)
    if metadata.pop("resourceVersion", "") not in ("", "0"):
        raise bad_request("resourceVersion should not be set on objects to be created")
    obj = {**obj, "metadata": metadata}
    return _insert(store, kind, obj, options, managers=None)


def _identified(store: Store, kind: Kind, obj: Object, namespace: str) -> dict[str, Any]:
    """Metadata of a new object with its final name and namespace."""
    check_shape(kind, obj)
    metadata = checked_metadata(obj)
    if kind.namespaced:
        sent = metadata.get("namespace")
        if sent and namespace and sent != namespace:
            raise bad_request("the namespace of the provided object does not match the namespace sent on the request")
        metadata["namespace"] = sent or namespace or "default"
    elif metadata.pop("namespace", ""):
        raise bad_request(f"{kind.name} is not namespaced; leave metadata.namespace out")
    if not metadata.get("name"):
        base = metadata.get("generateName")
        if not base:
            detail = "name or generateName is required"
            raise invalid(kind.name, kind.group, "", [required("metadata.name", detail)])
        metadata["name"] = generated_name(base, store.rng)
    return metadata


def _insert(
    store: Store,
    kind: Kind,
    obj: Object,
    options: WriteOptions,
    managers: Managers | None,
    subresource: str = "",
) -> Version:
    metadata = obj["metadata"]
    key: Key = (metadata.get("namespace", ""), metadata["name"])
    if store.find(kind, key) is not None:
        raise already_exists(kind.plural, kind.group, metadata["name"])
    _check_namespace(store, kind, metadata)
    metadata = {name: value for name, value in metadata.items() if name not in _NEVER_SENT}
    metadata["uid"] = store.new_uid()
    metadata["creationTimestamp"] = store.timestamp()
    if kind.generation:
        metadata["generation"] = 1
    obj = {"apiVersion": kind.api_version, "kind": kind.name, **obj, "metadata": metadata}
    obj = prepared(kind, obj, None, options)
    if managers is None:
        changes = compare(_EMPTY if kind.custom is None else {"metadata": {}}, obj, kind.shape)
        managers = after_update((), changes, options.manager, kind.api_version, subresource, store.timestamp())
    _refuse(kind, metadata["name"], causes_of(kind, obj["metadata"], None) + _kind_causes(kind, obj, None))
    return _commit(store, kind, key, obj, managers, options)


_EMPTY: Object = {"metadata": {}, "spec": {}, "status": {}}
"""What a built-in object is before anybody set a field."""

_NEVER_SENT = (
    "selfLink",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "managedFields",
    "resourceVersion",
    "uid",
)


def _check_namespace(store: Store, kind: Kind, metadata: dict[str, Any]) -> None:
    if not kind.namespaced:
        return
    name = metadata["namespace"]
    found = store.find(store.registry_kind("", "v1", "namespaces"), ("", name))
    if found is None:
        raise not_found("namespaces", "", name)
    if "deletionTimestamp" in found.obj["metadata"]:
        why = f"unable to create new content in namespace {name} because it is being terminated"
        raise forbidden(kind.plural, kind.group, metadata["name"], why)


def update(
    store: Store, kind: Kind, name: str, obj: Object, namespace: str, options: WriteOptions, subresource: str
) -> Version:
    """Replace an object, or its status. Raises StatusError: 400, 404, 409, 422."""
    _check_subresource(kind, subresource)
    obj = copied(obj)
    check_shape(kind, obj)
    version = store.get(kind, name, namespace)
    metadata = checked_metadata(obj)
    report_unknown(kind, unknown_metadata(obj), options)
    if not metadata.get("resourceVersion") and (kind.custom is not None or kind.plural in _CONDITIONAL_ONLY):
        cause = Cause(
            "FieldValueInvalid", "Invalid value: 0x0: must be specified for an update", "metadata.resourceVersion"
        )
        raise invalid(kind.name, kind.group, name, [cause])
    return _replace(store, kind, version, obj, options, subresource)


def _check_subresource(kind: Kind, subresource: str) -> None:
    if subresource in ("", "status") and (not subresource or kind.has_status):
        return
    if subresource == "finalize" and kind.name == "Namespace":
        return
    if subresource in ("scale", "resize", "ephemeralcontainers", "proxy", "exec", "attach", "portforward"):
        raise not_implemented(f"the subresource {kind.plural}/{subresource}")
    raise StatusError(404, "NotFound", "the server could not find the requested resource")


def _replace(
    store: Store,
    kind: Kind,
    version: Version,
    obj: Object,
    options: WriteOptions,
    subresource: str,
    managers: Managers | None = None,
) -> Version:
    """Make `obj` (in the form of `kind`) the next version. `managers` given: ownership is decided already."""
    convert = from_storage(kind)
    old = version.obj if convert is None else convert(version.obj)
    sent = checked_metadata(obj)
    sent_managed = sent.get("managedFields")
    metadata = carry_over(kind, old, sent)
    obj = _restricted(kind, old, {**obj, "metadata": metadata}, subresource)
    obj = prepared(kind, obj, old, options)
    obj = _with_generation(kind, old, obj)
    if managers is None:
        base = version.managers
        if sent_managed is not None and sent_managed != old["metadata"].get("managedFields"):
            base = decode(sent_managed)
        changes = compare(old, obj, kind.shape)
        if not _differs(old, obj) and base is version.managers:
            return version
        managers = after_update(base, changes, options.manager, kind.api_version, subresource, store.timestamp())
    elif not _differs(old, obj) and managers == version.managers:
        return version
    name = old["metadata"]["name"]
    _refuse(kind, name, causes_of(kind, obj["metadata"], old["metadata"]) + _kind_causes(kind, obj, old))
    key: Key = (old["metadata"].get("namespace", ""), name)
    return _commit(store, kind, key, obj, managers, options)


def _differs(old: Object, new: Object) -> bool:
    for name, value in new.items():
        if name == "metadata":
            before = {k: v for k, v in old["metadata"].items() if k != "managedFields"}
            if {k: v for k, v in value.items() if k != "managedFields"} != before:
                return True
        elif name not in old or (old[name] is not value and old[name] != value):
            return True
    return len(old) != len(new)


def _restricted(kind: Kind, old: Object, new: Object, subresource: str) -> Object:
    """What this endpoint may write of `new`; the rest is taken from `old`."""
    if subresource == "finalize":
        spec = {**(old.get("spec") or {}), "finalizers": (new.get("spec") or {}).get("finalizers") or []}
        return {**old, "spec": spec}
    if subresource == "status":
        if kind.custom is not None:
            kept = {**old}
        else:
            owners = {name: old["metadata"][name] for name in ("ownerReferences",) if name in old["metadata"]}
            metadata = {name: value for name, value in new["metadata"].items() if name != "ownerReferences"}
            kept = {**old, "metadata": {**metadata, **owners}}
        kept.pop("status", None)
        return {**kept, "status": new["status"]} if "status" in new else kept
    if not kind.has_status:
        return new
    kept = {name: value for name, value in new.items() if name != "status"}
    return {**kept, "status": old["status"]} if "status" in old else kept


def _with_generation(kind: Kind, old: Object, new: Object) -> Object:
    if not kind.generation:
        return new
    ignored = ("metadata", "status") if kind.has_status else ("metadata",)
    before = {name: value for name, value in old.items() if name not in ignored}
    after = {name: value for name, value in new.items() if name not in ignored}
    if before == after:
        return new
    generation = old["metadata"].get("generation", 0) + 1
    return {**new, "metadata": {**new["metadata"], "generation": generation}}


def patch(
    store: Store,
    kind: Kind,
    name: str,
    patch: Any,
    patch_type: str,
    namespace: str,
    options: WriteOptions,
    subresource: str,
) -> Version:
    """Patch an object or its status. Raises StatusError: 400, 404, 409, 415, 422."""
    _check_subresource(kind, subresource)
    patch = copied(patch)
    if patch_type == PatchType.STRATEGIC and kind.custom is not None:
        raise unsupported_media_type(
            "the body of the request was in an unknown format - accepted media types include: "
            "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml"
        )
    version = store.get(kind, name, namespace)
    convert = from_storage(kind)
    old = version.obj if convert is None else convert(version.obj)
    try:
        match patch_type:
            case PatchType.JSON:
                new = apply_json_patch(old, patch)
            case PatchType.MERGE:
                new = _object(apply_merge_patch(old, _object(patch)))
            case PatchType.STRATEGIC:
                new = apply_strategic_patch(old, patch, kind.shape)
            case _:
                raise unsupported_media_type(f"the patch type {patch_type!r} is not supported")
    except PatchError as error:
        text = f"the server rejected our request due to an error in our request: {error}"
        raise StatusError(422, "Invalid", text, name, kind.group, kind.name) from None
    check_shape(kind, _object(new))
    report_unknown(kind, unknown_metadata(new), options)
    return _replace(store, kind, version, new, options, subresource)


def _object(value: Any) -> Object:
    if not isinstance(value, dict):
        raise bad_request("the patch does not yield a JSON object")
    return value


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
    """Server-side apply. Raises StatusError: 400, 404 (status of a missing object), 409 with causes, 422."""
    _check_subresource(kind, subresource)
    config = copied(config)
    check_shape(kind, config, complete=True)
    if not options.manager:
        text = 'PatchOptions.meta.k8s.io "" is invalid: fieldManager: Required value: is required for apply patch'
        raise bad_request(text)
    metadata = checked_metadata(config)
    report_unknown(kind, unknown_metadata(config), options)
    if metadata.get("managedFields"):
        raise bad_request("metadata.managedFields must be nil")
    if metadata.setdefault("name", name) != name:
        raise bad_request(f"the name of the object ({metadata['name']}) does not match the name on the URL ({name})")
    applier = Manager(options.manager, APPLY, kind.api_version, subresource, store.timestamp(), {})
    claim = _claim(kind, {**config, "metadata": metadata}, subresource)
    key: Key = ((namespace or metadata.get("namespace") or "default") if kind.namespaced else "", name)
    version = store.find(kind, key)
    try:
        if version is None:
            return _apply_new(store, kind, key, claim, applier, options), True
        convert = from_storage(kind)
        live = version.obj if convert is None else convert(version.obj)
        applied = apply_configuration(live, version.managers, claim, kind.shape, applier, force=force)
    except ValueError as error:
        raise invalid(kind.name, kind.group, name, [invalid_value("", None, str(error))]) from None
    except StatusError as error:
        if error.reason == "Conflict" and not error.name:
            error.name, error.group, error.kind = name, kind.group, kind.plural
        raise
    return _replace(store, kind, version, applied.obj, options, subresource, applied.managers), False


def _claim(kind: Kind, config: Object, subresource: str) -> Object:
    """The part of a configuration that this endpoint can apply."""
    if subresource == "status":
        kept: Object = {name: config[name] for name in ("apiVersion", "kind", "status") if name in config}
        metadata = config["metadata"]
        if kind.custom is not None:
            names = ("name", "namespace", "uid", "resourceVersion")
            metadata = {name: metadata[name] for name in names if name in metadata}
        return {**kept, "metadata": metadata}
    if kind.has_status:
        return {name: value for name, value in config.items() if name != "status"}
    return config


def _apply_new(
    store: Store, kind: Kind, key: Key, config: Object, applier: Manager, options: WriteOptions
) -> Version:
    if applier.subresource:
        raise not_found(kind.plural, kind.group, key[1])
    if config["metadata"].get("uid"):
        why = f"Precondition failed: UID in precondition: {config['metadata']['uid']}, UID in object meta: "
        raise conflict(kind.plural, kind.group, key[1], why)
    empty: Object = {"apiVersion": kind.api_version, "kind": kind.name, "metadata": {}}
    applied = apply_configuration(empty, (), config, kind.shape, applier, force=True)
    metadata = _identified(store, kind, applied.obj, key[0])
    return _insert(store, kind, {**applied.obj, "metadata": metadata}, options, applied.managers)


def _kind_causes(kind: Kind, obj: Object, old: Object | None) -> list[Cause]:
    if kind.custom is not None:
        return kind.custom.causes_of(obj, old)
    return builtin_rules.causes_of(kind, obj, old)


def _refuse(kind: Kind, name: str, causes: list[Cause]) -> None:
    if causes:
        raise invalid(kind.name, kind.group, name, causes)


def _commit(store: Store, kind: Kind, key: Key, obj: Object, managers: Managers, options: WriteOptions) -> Version:
    stored_form = to_storage(kind)
    stored = obj if stored_form is None else stored_form(obj)
    if "deletionTimestamp" in stored["metadata"] and not options.dry_run and api_deletion.ready_to_go(stored):
        return store.remove(kind, key, stored)
    version = store.commit(kind, key, stored, managers, dry_run=options.dry_run, limit_bytes=MAX_OBJECT_BYTES)
    if kind.plural == "namespaces" and not options.dry_run:
        api_deletion.finish_namespace(store, key[1])
    return version


_encode = msgspec.json.encode
_decode = msgspec.json.decode


def copied(value: Any) -> Any:
    """A private copy as plain JSON values. Raises StatusError 400 for what JSON cannot hold."""
    try:
        return _decode(_encode(value))
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise bad_request(f"the body of the request is not a JSON value: {error}") from None
