"""Create and update: one pipeline from a client's object to the next stored version."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from muster.kube.api import Object
from muster.sim import admission, api_deletion, api_lifecycles, builtin_defaults, builtin_rules
from muster.sim.api_conversion import from_storage, to_storage
from muster.sim.api_decoding import check_identity, checked
from muster.sim.api_kinds import Kind
from muster.sim.api_metadata import (
    carry_over,
    causes_of,
    check_address,
    check_namespace,
    check_uid,
    check_version,
    checked_metadata,
    distinct_owners,
    finalizer_warnings,
    immutable_causes,
    sent_version,
)
from muster.sim.api_names import generated_name, hostname_warning
from muster.sim.api_status import (
    Cause,
    StatusError,
    already_exists,
    bad_request,
    internal,
    invalid,
    must_have_version,
    not_found,
    not_implemented,
    required,
    unknown_resource,
)
from muster.sim.history import Key, Version
from muster.sim.managed_fields import Managers, ordered, owners_after_update, owners_at_creation, owners_of_request

if TYPE_CHECKING:
    from muster.sim.store import Store, WriteOptions

MAX_OBJECT_BYTES = 1536 * 1024
"""Largest object that is stored: etcd's default request limit."""

CONDITIONAL_ONLY = ("leases", "poddisruptionbudgets", "customresourcedefinitions")
"""Built-in kinds whose replacement must say which version it replaces. Custom resources must always."""

CREATED_BY_UPDATE = ("leases", "events", "services", "roles", "clusterroles", "rolebindings", "clusterrolebindings")
"""Kinds of which a PUT makes a missing object."""

_NAME_TRIES = 8
"""How often another name is made up when a generated one is taken."""


# Create


def create(store: Store, kind: Kind, obj: Object, namespace: str, options: WriteOptions) -> Version:
    """Store a new object. Raises StatusError: 400, 403 terminating namespace, 404 namespace, 409, 422."""
    obj = copied(obj)
    check_identity(store, kind, obj)
    obj = checked(kind, obj, None, options)
    metadata = identified(store, kind, obj, namespace)
    if sent_version(metadata):
        raise internal("resourceVersion should not be set on objects to be created")
    return insert(store, kind, {**obj, "metadata": metadata}, options, managers=None)


def identified(store: Store, kind: Kind, obj: Object, namespace: str) -> dict[str, Any]:
    """Metadata of a new object with its final name and namespace."""
    metadata = checked_metadata(obj)
    if kind.namespaced:
        sent = metadata.get("namespace", "")
        check_namespace(sent, namespace)
        metadata["namespace"] = sent or namespace or "default"
    else:
        metadata.pop("namespace", None)
    if not metadata.get("name"):
        base = metadata.get("generateName")
        if not base:
            detail = "name or generateName is required"
            raise invalid(kind.name, kind.group, "", [required("metadata.name", detail)])
        metadata["name"] = _free_name(store, kind, metadata.get("namespace", ""), base)
    return metadata


def _free_name(store: Store, kind: Kind, namespace: str, base: str) -> str:
    name = generated_name(base, store.rng)
    for _ in range(_NAME_TRIES - 1):
        if store.find(kind, (namespace, name)) is None:
            break
        name = generated_name(base, store.rng)
    return name


def insert(
    store: Store,
    kind: Kind,
    obj: Object,
    options: WriteOptions,
    managers: Managers | None,
    subresource: str = "",
) -> Version:
    """Store `obj`, which has its final name, as a new object. `managers` given: ownership is decided already."""
    metadata = obj["metadata"]
    key: Key = (metadata.get("namespace", ""), metadata["name"])
    _check_namespace(store, kind, metadata)
    claimed = metadata.get("managedFields")
    metadata = {name: value for name, value in metadata.items() if name not in _NEVER_SENT}
    metadata["uid"] = store.new_uid()
    metadata["creationTimestamp"] = store.timestamp()
    if kind.generation:
        metadata["generation"] = 1
    metadata = distinct_owners(metadata, options.warnings)
    options.warnings += finalizer_warnings(kind, metadata, None)
    obj = {"apiVersion": kind.api_version, "kind": kind.name, **obj, "metadata": metadata}
    if managers is not None:
        obj = checked(kind, obj, None, options, merged=True)
    if managers is None:
        managers = _first_owners(kind, obj, claimed, options.manager, store.timestamp())
    if kind.custom is None:
        obj = builtin_defaults.begun(store, kind, obj)
    obj = _admitted(store, kind, obj, None, options, subresource)
    obj = api_lifecycles.on_create(store, kind, obj)
    _refuse(kind, key[1], causes_of(kind, obj["metadata"], None) + _kind_causes(kind, obj, None))
    admission.validate(store, kind, obj, None, options, subresource)
    if store.find(kind, key) is not None:
        raise already_exists(kind.plural, kind.group, key[1])
    if kind.custom is None and (warning := hostname_warning(kind.name, key[1])):
        options.warnings.append(warning)
    return commit(store, kind, key, obj, managers, options)


def _first_owners(kind: Kind, obj: Object, claimed: Any, manager: str, now: str) -> Managers:
    """Ownership of a new object: what its maker claims for others in `managedFields`, and the rest for itself."""
    others = owners_of_request(claimed, ())
    mine = owners_at_creation(kind, obj, manager, now)
    names = [owner.identity for owner in mine]
    return ordered([*(owner for owner in others if owner.identity not in names), *mine])


_NEVER_SENT = (
    "selfLink",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "managedFields",
    "resourceVersion",
    "uid",
)


def _check_namespace(store: Store, kind: Kind, metadata: dict[str, Any]) -> None:
    """Nothing is made in a namespace that is missing or going."""
    if not kind.namespaced:
        return
    name = metadata["namespace"]
    found = store.find(store.registry_kind("", "v1", "namespaces"), ("", name))
    if found is None:
        raise not_found("namespaces", "", name)
    if "deletionTimestamp" in found.obj["metadata"]:
        subject = f"{kind.plural}.{kind.group}" if kind.group else kind.plural
        raise StatusError(
            403,
            "Forbidden",
            f'{subject} "{metadata["name"]}" is forbidden: unable to create new content in namespace {name} because '
            "it is being terminated",
            metadata["name"],
            kind.group,
            kind.plural,
            (Cause("NamespaceTerminating", f"namespace {name} is being terminated", "metadata.namespace"),),
        )


def _admitted(
    store: Store, kind: Kind, obj: Object, old: Object | None, options: WriteOptions, subresource: str
) -> Object:
    """The object as mutating admission leaves it, with the defaults of what that added."""
    mutated = admission.mutate(store, kind, obj, old, options, subresource)
    return mutated if mutated is obj else checked(kind, mutated, obj, options)


# Update


def update(
    store: Store, kind: Kind, name: str, obj: Object, namespace: str, options: WriteOptions, subresource: str
) -> Version:
    """Replace an object, or its status. Raises StatusError: 400, 404, 409, 422."""
    check_subresource(kind, subresource)
    obj = copied(obj)
    check_identity(store, kind, obj)
    version = store.find(kind, (namespace if kind.namespaced else "", name))
    convert = from_storage(kind)
    old = None if version is None else version.obj if convert is None else convert(version.obj)
    obj = checked(kind, obj, old, options)
    metadata = checked_metadata(obj)
    if not kind.namespaced:
        metadata.pop("namespace", None)
    check_address(metadata, name, namespace if kind.namespaced else "")
    if version is None or old is None:
        if kind.plural in CREATED_BY_UPDATE and kind.custom is None and not subresource:
            return create(store, kind, {**obj, "metadata": {**metadata, "resourceVersion": ""}}, namespace, options)
        raise not_found(kind.plural, kind.group, name)
    check_uid(kind, old, metadata)
    must_say = kind.custom is not None or kind.plural in CONDITIONAL_ONLY
    if must_say and not sent_version(metadata):
        raise must_have_version(kind.plural, kind.group, name)
    return replace(store, kind, version, {**obj, "metadata": metadata}, options, subresource)


def check_subresource(kind: Kind, subresource: str) -> None:
    """Raise StatusError 404 for a subresource without updates, 501 for one that only a real server has."""
    if subresource in ("", "status") and (not subresource or kind.has_status):
        return
    if subresource == "finalize" and kind.name == "Namespace":
        return
    refuse_unsupported(kind, subresource)
    raise unknown_resource()


_UNSUPPORTED = {
    "pods": ("resize", "ephemeralcontainers", "proxy", "exec", "attach", "portforward"),
    "deployments": ("scale",),
    "replicasets": ("scale",),
    "statefulsets": ("scale",),
    "services": ("proxy",),
    "nodes": ("proxy",),
}


def refuse_unsupported(kind: Kind, subresource: str) -> None:
    """Raise StatusError 501 for what a real server has and this one does not."""
    if kind.custom is None and subresource in _UNSUPPORTED.get(kind.plural, ()):
        raise not_implemented(f"the subresource {kind.plural}/{subresource}")


def replace(
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
    if managers is not None:
        obj = checked(kind, obj, old, options, merged=True)
    sent = obj["metadata"]
    check_version(kind, old, sent)
    wrong = immutable_causes(kind, old, sent)
    metadata = distinct_owners(carry_over(old, sent), options.warnings)
    options.warnings += finalizer_warnings(kind, metadata, old["metadata"])
    obj = {"apiVersion": kind.api_version, "kind": kind.name, **obj, "metadata": metadata}
    obj = restricted(kind, old, obj, subresource)
    if managers is None:
        base = version.managers if subresource else owners_of_request(sent.get("managedFields"), version.managers)
        now = store.timestamp()
        managers = (
            base
            if not differs(old, obj)
            else owners_after_update(kind, base, old, obj, options.manager, subresource, now)
        )
    obj = _admitted(store, kind, obj, old, options, subresource)
    if not subresource:
        obj = api_lifecycles.on_update(store, kind, obj, old)
    obj = _with_generation(kind, old, obj)
    name = old["metadata"]["name"]
    changed = differs(old, obj)
    if changed or wrong:
        _refuse(kind, name, wrong + causes_of(kind, obj["metadata"], old["metadata"]) + _kind_causes(kind, obj, old))
    admission.validate(store, kind, obj, old, options, subresource)
    if not changed and managers == version.managers:
        return version
    key: Key = (old["metadata"].get("namespace", ""), name)
    return commit(store, kind, key, obj, managers, options)


def differs(old: Object, new: Object) -> bool:
    """Whether two versions differ in anything but ownership."""
    for name, value in new.items():
        if name == "metadata":
            before = {k: v for k, v in old["metadata"].items() if k != "managedFields"}
            if {k: v for k, v in value.items() if k != "managedFields"} != before:
                return True
        elif name not in old or (old[name] is not value and old[name] != value):
            return True
    return len(old) != len(new)


_KEPT_BY_STATUS = {"Pod": ("ownerReferences",), "Deployment": ("labels",), "CustomResourceDefinition": ("*",)}
"""Metadata that a write to the status of a built-in kind leaves alone; `*` is all of it."""


def restricted(kind: Kind, old: Object, new: Object, subresource: str) -> Object:
    """What this endpoint may write of `new`; the rest is taken from `old`."""
    if subresource == "finalize":
        spec = {**(old.get("spec") or {}), "finalizers": (new.get("spec") or {}).get("finalizers") or []}
        return {**old, "spec": spec}
    if subresource == "status":
        kept = {**old, "metadata": _status_metadata(kind, old["metadata"], new["metadata"])}
        kept.pop("status", None)
        return {**kept, "status": new["status"]} if "status" in new else kept
    if kind.name == "Namespace":
        return {**new, "spec": old["spec"], "status": old["status"]}
    if not kind.has_status:
        return new
    kept = {name: value for name, value in new.items() if name != "status"}
    return {**kept, "status": old["status"]} if "status" in old else kept


def _status_metadata(kind: Kind, old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    kept = ("*",) if kind.custom is not None else _KEPT_BY_STATUS.get(kind.name, ())
    if kept == ("*",):
        return old
    metadata = {name: value for name, value in new.items() if name not in kept}
    return {**metadata, **{name: old[name] for name in kept if name in old}}


def _with_generation(kind: Kind, old: Object, new: Object) -> Object:
    if not kind.generation or kind.name == "PriorityClass":
        # A priority class begins with a generation that never grows.
        return new
    ignored = ("metadata", "status") if kind.has_status else ("metadata",)
    before = {name: value for name, value in old.items() if name not in ignored}
    after = {name: value for name, value in new.items() if name not in ignored}
    if before == after:
        return new
    generation = old["metadata"].get("generation", 0) + 1
    return {**new, "metadata": {**new["metadata"], "generation": generation}}


# Storing


def _kind_causes(kind: Kind, obj: Object, old: Object | None) -> list[Cause]:
    if kind.custom is not None:
        return kind.custom.causes_of(obj, old)
    return builtin_rules.causes_of(kind, obj, old)


def _refuse(kind: Kind, name: str, causes: list[Cause]) -> None:
    if causes:
        # Events of both groups are judged as those of the core group.
        raise invalid(kind.name, "" if kind.storage == "events" else kind.group, name, causes)


def commit(store: Store, kind: Kind, key: Key, obj: Object, managers: Managers, options: WriteOptions) -> Version:
    """Store the next version of an object, or make it go when nothing holds it any more."""
    stored_form = to_storage(kind)
    stored = obj if stored_form is None else stored_form(obj)
    if options.dry_run:
        return _not_stored(store, kind, key, stored, managers)
    if "deletionTimestamp" in stored["metadata"] and api_deletion.ready_to_go(stored):
        return api_deletion.removed(store, kind, key, stored, managers)
    return _committed(store, kind, key, stored, managers, dry_run=False)


def _committed(store: Store, kind: Kind, key: Key, obj: Object, managers: Managers, *, dry_run: bool) -> Version:
    try:
        return store.commit(kind, key, obj, managers, dry_run=dry_run, limit_bytes=MAX_OBJECT_BYTES)
    except StatusError as error:
        if error.code != 413:
            raise
        # The store refuses it, and a real server passes that on.
        raise internal("etcdserver: request is too large") from None


def _not_stored(store: Store, kind: Kind, key: Key, obj: Object, managers: Managers) -> Version:
    """The answer to a dry run: the object would have a version of its own only once it is stored."""
    version = _committed(store, kind, key, obj, managers, dry_run=True)
    metadata = {name: value for name, value in version.obj["metadata"].items() if name != "resourceVersion"}
    previous = store.find(kind, key)
    if previous is not None:
        metadata["resourceVersion"] = previous.obj["metadata"]["resourceVersion"]
    return Version({**version.obj, "metadata": metadata}, version.number, managers)


_encode = msgspec.json.encode
_decode = msgspec.json.decode


def copied(value: Any) -> Any:
    """A private copy as plain JSON values. Raises StatusError 400 for what JSON cannot hold."""
    try:
        return _decode(_encode(value))
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise bad_request(f"the body of the request is not a JSON value: {error}") from None
