"""Deletion: options, preconditions, grace periods and finalizers. What follows from it is done in `api_garbage` and
`api_namespaces`, which see the change."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from muster.kube.api import Object
from muster.sim import admission, api_namespaces
from muster.sim.api_kinds import Kind
from muster.sim.api_lists import ListOptions, ListResult, list_objects
from muster.sim.api_status import (
    Cause,
    StatusError,
    bad_request,
    conflict,
    invalid,
    method_not_allowed,
    unsupported_value,
)
from muster.sim.history import Key, Version
from muster.sim.identities import User
from muster.sim.managed_fields import Managers, encode

if TYPE_CHECKING:
    from muster.sim.store import Store

FOREGROUND_FINALIZER = "foregroundDeletion"
ORPHAN_FINALIZER = "orphan"
RETURNS_OBJECT = ("pods", "serviceaccounts", "services")
"""Kinds whose deletion answers with the object; others answer with a Status once the object is gone."""
_DEFAULT_POD_GRACE_S = 30
_KEPT_CHILDREN = (
    "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them or "
    "set propagationPolicy=Orphan to suppress this warning"
)


@dataclass(frozen=True)
class DeleteOptions:
    """`grace_period_s` None takes the object's own, below 0 means 1 s. `propagation`: Background, Foreground, Orphan,
    or "" to let the finalizers that are there decide. `identity` is who asks, None for the control plane itself.
    `collection`: this object was selected, not named."""

    grace_period_s: int | None = None
    uid: str = ""
    resource_version: str = ""
    propagation: str = ""
    dry_run: bool = False
    collection: bool = False
    identity: User | None = None
    warnings: list[str] = field(default_factory=list)


# Options of a request


def options_of(
    body: Any, query: Mapping[str, str], identity: User | None = None, warnings: list[str] | None = None
) -> DeleteOptions:
    """The options in the body of a request, or without a body those in its query. Raises StatusError: 400, 422."""
    sent = _from_query(query) if body is None else body
    if not isinstance(sent, dict):
        raise bad_request("the body of the request must be an object")
    grace = sent.get("gracePeriodSeconds")
    if grace is not None and (not isinstance(grace, int) or isinstance(grace, bool)):
        raise _wrong_type("gracePeriodSeconds", grace, "int64")
    propagation, orphan = sent.get("propagationPolicy"), sent.get("orphanDependents")
    if orphan is not None and not isinstance(orphan, bool):
        raise _wrong_type("orphanDependents", orphan, "bool")
    preconditions = sent.get("preconditions") or {}
    if not isinstance(preconditions, dict):
        raise _wrong_type("preconditions", preconditions, "v1.Preconditions")
    dry_run = sent.get("dryRun") or []
    causes = _option_causes(propagation, orphan, dry_run)
    if causes:
        raise invalid("DeleteOptions", "meta.k8s.io", "", causes)
    if orphan is not None:
        propagation = "Orphan" if orphan else "Background"
    return DeleteOptions(
        grace_period_s=grace,
        uid=str(preconditions.get("uid") or ""),
        resource_version=str(preconditions.get("resourceVersion") or ""),
        propagation=propagation or "",
        dry_run=bool(dry_run),
        identity=identity,
        warnings=[] if warnings is None else warnings,
    )


def _from_query(query: Mapping[str, str]) -> dict[str, Any]:
    sent: dict[str, Any] = {}
    if query.get("gracePeriodSeconds"):
        text = query["gracePeriodSeconds"]
        if not (text.removeprefix("-").isdecimal() and text.isascii() and len(text) < 19):
            raise bad_request(f'strconv.ParseInt: parsing "{text[:60]}": invalid syntax')
        sent["gracePeriodSeconds"] = int(text)
    if query.get("propagationPolicy"):
        sent["propagationPolicy"] = query["propagationPolicy"]
    if query.get("orphanDependents"):
        sent["orphanDependents"] = query["orphanDependents"].lower() not in ("0", "false")
    if query.get("dryRun"):
        sent["dryRun"] = [query["dryRun"]]
    return sent


def _wrong_type(name: str, value: Any, wanted: str) -> StatusError:
    names = {str: "string", bool: "bool", dict: "object", list: "array"}
    found = names.get(type(value), "number")
    return bad_request(f"json: cannot unmarshal {found} into Go struct field DeleteOptions.{name} of type {wanted}")


def _option_causes(propagation: Any, orphan: Any, dry_run: Any) -> list[Cause]:
    causes: list[Cause] = []
    if propagation is not None and orphan is not None:
        text = f'Invalid value: "{propagation}": orphanDependents and deletionPropagation cannot be both set'
        causes.append(Cause("FieldValueInvalid", text, "propagationPolicy"))
    if propagation not in (None, "Foreground", "Background", "Orphan"):
        allowed = ["Foreground", "Background", "Orphan", "nil"]
        causes.append(unsupported_value("propagationPolicy", propagation, allowed))
    if dry_run and dry_run != ["All"]:
        causes.append(unsupported_value("dryRun", dry_run, ["All"]))
    return causes


# Deleting


def delete(store: Store, kind: Kind, name: str, namespace: str, options: DeleteOptions) -> tuple[Version, bool]:
    """Delete one object. Returns what a client is answered, and whether that object is gone for good.

    Raises StatusError: 403 protected namespace or admission, 404, 409 precondition.
    """
    if kind.plural == "namespaces" and not kind.group:
        api_namespaces.refuse_protected(name)
    version = store.get(kind, name, namespace)
    key: Key = (namespace if kind.namespaced else "", name)
    if kind.plural == "namespaces" and not kind.group:
        return _delete_namespace(store, kind, key, version, options)
    return _delete(store, kind, key, version, options)


def _delete_namespace(
    store: Store, kind: Kind, key: Key, version: Version, options: DeleteOptions
) -> tuple[Version, bool]:
    """A namespace only begins to terminate; it goes when it is empty and nothing holds it."""
    api_namespaces.check_preconditions(version.obj, options.uid, options.resource_version)
    _admit(store, kind, version, options)
    if "deletionTimestamp" not in version.obj["metadata"]:
        finalizers = _finalizers(kind, version.obj["metadata"], options)
        return _marked(store, kind, key, version, api_namespaces.terminating(store, version.obj, finalizers), options)
    if version.obj.get("spec", {}).get("finalizers"):
        return version, False
    return _delete(store, kind, key, version, options)


def _delete(store: Store, kind: Kind, key: Key, version: Version, options: DeleteOptions) -> tuple[Version, bool]:
    check_preconditions(kind, version.obj, options)
    _admit(store, kind, version, options)
    graceful = None
    if kind.plural == "pods" and not kind.group:
        if _is_pending(version.obj["metadata"], options):
            return version, False
        graceful = _graceful(store, version.obj, options)
    metadata = (graceful or version.obj)["metadata"]
    finalizers = _finalizers(kind, metadata, options)
    if graceful is None and not finalizers:
        return (version, True) if options.dry_run else (store.remove(kind, key), True)
    marked = _with_finalizers(graceful or _terminating(store, version.obj), finalizers)
    answer, _ = _marked(store, kind, key, version, marked, options)
    if finalizers or marked["metadata"]["deletionGracePeriodSeconds"]:
        return answer, False
    if options.dry_run or store.find(kind, key) is None:
        return answer, True
    return store.remove(kind, key), True


def _marked(
    store: Store, kind: Kind, key: Key, version: Version, marked: Object, options: DeleteOptions
) -> tuple[Version, bool]:
    """Store the object as terminating."""
    if marked == version.obj:
        return version, False
    if options.dry_run:
        return Version(marked, version.number, version.managers), False
    return store.commit(kind, key, marked, version.managers), False


def removed(store: Store, kind: Kind, key: Key, last: Object, managers: Managers) -> Version:
    """Delete for good what an update has freed. Returns what that client is answered: its own last state, under the
    resourceVersion that the object was last stored with. Watches see the stored state instead."""
    before = store.storage(kind).objects[key]
    store.remove(kind, key)
    metadata = {**last["metadata"], "resourceVersion": before.obj["metadata"]["resourceVersion"]}
    if managers:
        metadata["managedFields"] = encode(managers)
    return Version({**last, "metadata": metadata}, before.number, managers)


def at_version(options: DeleteOptions, resource_version: str) -> DeleteOptions:
    """The same options for the version that we have just written ourselves."""
    return replace(options, resource_version=resource_version)


def check_preconditions(kind: Kind, obj: Object, options: DeleteOptions) -> None:
    """Raises StatusError 409 for an object that is not the one the client has seen."""
    metadata = obj["metadata"]
    name = metadata["name"]
    if options.uid and options.uid != metadata["uid"]:
        why = (
            f"the UID in the precondition ({options.uid}) does not match the UID in record ({metadata['uid']}). "
            "The object might have been deleted and then recreated"
        )
        raise conflict(kind.name, kind.group, name, why)
    found = metadata["resourceVersion"]
    if options.resource_version and options.resource_version != found:
        why = (
            f"the ResourceVersion in the precondition ({options.resource_version}) does not match the "
            f"ResourceVersion in record ({found}). The object might have been modified"
        )
        raise conflict(kind.name, kind.group, name, why)


def _admit(store: Store, kind: Kind, version: Version, options: DeleteOptions) -> None:
    """Ask admission about a client's request; what the control plane deletes by itself is not asked about."""
    if options.identity is None:
        return
    from muster.sim.store import WriteOptions

    request = WriteOptions(dry_run=options.dry_run, identity=options.identity, warnings=options.warnings)
    admission.validate(store, kind, None, version.obj, request, named=not options.collection)


def _is_pending(metadata: dict[str, Any], options: DeleteOptions) -> bool:
    """Whether a pod is on its way already and this deletion does not shorten its grace."""
    left_s = metadata.get("deletionGracePeriodSeconds")
    if "deletionTimestamp" not in metadata or not left_s:
        return False
    return options.grace_period_s is None or _seconds(options.grace_period_s) >= left_s


def _seconds(grace_s: int) -> int:
    return 1 if grace_s < 0 else grace_s


def _graceful(store: Store, obj: Object, options: DeleteOptions) -> Object | None:
    """A pod with the end of its grace set or moved forward; None for one whose grace is over."""
    metadata = obj["metadata"]
    if "deletionTimestamp" not in metadata:
        grace_s = _grace_s(obj, options)
        return _dated(store, obj, store.now() + timedelta(seconds=grace_s), grace_s)
    before_s = metadata.get("deletionGracePeriodSeconds")
    if not before_s:
        return None
    requested = datetime.fromisoformat(metadata["deletionTimestamp"]) - timedelta(seconds=before_s)
    grace_s = _seconds(options.grace_period_s or 0)
    return _dated(store, obj, requested + timedelta(seconds=grace_s), grace_s)


def _grace_s(pod: Object, options: DeleteOptions) -> int:
    """Only pods that are bound to a node and have not finished end gracefully."""
    spec = pod.get("spec", {})
    if not spec.get("nodeName") or pod.get("status", {}).get("phase") in ("Succeeded", "Failed"):
        return 0
    if options.grace_period_s is not None:
        return _seconds(options.grace_period_s)
    return _seconds(int(spec.get("terminationGracePeriodSeconds", _DEFAULT_POD_GRACE_S)))


def _dated(store: Store, obj: Object, end: datetime, grace_s: int) -> Object:
    """`obj` as terminating at `end`. Its generation grows when that is new."""
    before = obj["metadata"]
    metadata = {**before, "deletionTimestamp": store.timestamp(end), "deletionGracePeriodSeconds": grace_s}
    if "deletionTimestamp" not in before and before.get("generation"):
        metadata["generation"] = before["generation"] + 1
    return {**obj, "metadata": metadata}


def _terminating(store: Store, obj: Object) -> Object:
    """An object that ends as soon as its finalizers are gone; its date, when it has one that is past, stays."""
    sent = obj["metadata"].get("deletionTimestamp")
    now = store.now()
    return _dated(store, obj, min(now, datetime.fromisoformat(sent)) if sent else now, 0)


def _finalizers(kind: Kind, metadata: dict[str, Any], options: DeleteOptions) -> list[str]:
    """The finalizers with those of the garbage collector as the propagation policy asks for."""
    present = list(metadata.get("finalizers") or [])
    if kind.storage == "events":
        return present
    kept = [name for name in present if name not in (FOREGROUND_FINALIZER, ORPHAN_FINALIZER)]
    policy = options.propagation
    if not policy:
        policy = next((_POLICY_OF[name] for name in present if name in _POLICY_OF), "")
    if not policy and kind.storage == "jobs.batch":
        options.warnings.append(_KEPT_CHILDREN)
        policy = "Orphan"
    match policy:
        case "Foreground":
            kept.append(FOREGROUND_FINALIZER)
        case "Orphan":
            kept.append(ORPHAN_FINALIZER)
        case _:
            pass
    return present if sorted(kept) == sorted(present) else kept


_POLICY_OF = {FOREGROUND_FINALIZER: "Foreground", ORPHAN_FINALIZER: "Orphan"}


def _with_finalizers(obj: Object, finalizers: list[str]) -> Object:
    metadata = {name: value for name, value in obj["metadata"].items() if name != "finalizers"}
    if finalizers:
        metadata["finalizers"] = finalizers
    return {**obj, "metadata": metadata}


def drop_finalizer(store: Store, kind: Kind, key: Key, finalizer: str) -> None:
    """Take a finalizer of the server's own off; the object goes when it was the last."""
    version = store.find(kind, key)
    if version is None:
        return
    left = [name for name in version.obj["metadata"].get("finalizers") or [] if name != finalizer]
    obj = _with_finalizers(version.obj, left)
    if ready_to_go(obj):
        store.remove(kind, key)
    else:
        store.commit(kind, key, obj, version.managers)


def ready_to_go(obj: Object) -> bool:
    """Whether a terminating object has nothing left to wait for."""
    metadata = obj["metadata"]
    return (
        "deletionTimestamp" in metadata
        and not metadata.get("finalizers")
        and not metadata.get("deletionGracePeriodSeconds")
        and not (obj.get("kind") == "Namespace" and (obj.get("spec") or {}).get("finalizers"))
    )


def delete_collection(
    store: Store, kind: Kind, namespace: str, selection: ListOptions, options: DeleteOptions
) -> ListResult:
    """Delete everything that a list would show. Returns what was there. Raises StatusError: 400, 405 namespaces."""
    if kind.plural == "namespaces" and not kind.group:
        raise method_not_allowed()
    found = list_objects(store, kind, namespace, selection)
    for version in found.items:
        metadata = version.obj["metadata"]
        try:
            delete(store, kind, metadata["name"], metadata.get("namespace", ""), replace(options, collection=True))
        except StatusError as error:
            if error.code != 404:
                raise
    return found
