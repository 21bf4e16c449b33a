"""Rules for `metadata` that hold for every kind: what the server sets, keeps and refuses."""

from __future__ import annotations

from typing import Any

from muster.kube.api import Object
from muster.sim import builtin_fields
from muster.sim.api_kinds import Kind
from muster.sim.api_names import (
    annotation_causes,
    finalizer_causes,
    generate_name_causes,
    is_bare_finalizer,
    label_causes,
    name_causes,
)
from muster.sim.api_status import (
    Cause,
    bad_request,
    conflict,
    forbidden_field,
    internal,
    invalid_value,
    required,
    shown,
    stale,
)
from muster.sim.builtin_fields import DecodeError

_SERVER_OWNED = ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds")
_NO_OWNERS = (("v1", "Event"), ("events.k8s.io/v1", "Event"))
_SAME_NAMESPACE = "the namespace of the provided object does not match the namespace sent on the request"


def checked_metadata(obj: Object) -> dict[str, Any]:
    """The object's metadata with the right JSON types, without unknown fields. Raises StatusError 400."""
    metadata = obj.get("metadata")
    try:
        return builtin_fields.read("ObjectMeta", {} if metadata is None else metadata, None, [])
    except DecodeError as error:
        raise bad_request(str(error)) from None


def causes_of(kind: Kind, metadata: dict[str, Any], old: dict[str, Any] | None) -> list[Cause]:
    """What is wrong with checked metadata, compared with the old metadata of an update."""
    causes: list[Cause] = []
    if old is None:
        causes += generate_name_causes(kind.name, metadata.get("generateName", ""))
        causes += name_causes(kind.name, metadata["name"])
    for name, check in (("labels", label_causes), ("annotations", annotation_causes)):
        value = metadata.get(name)
        if value and (old is None or value is not old.get(name)):
            causes += check(value)
    owners = metadata.get("ownerReferences")
    if owners and (old is None or owners is not old.get("ownerReferences")):
        causes += _owner_causes(owners)
    finalizers = metadata.get("finalizers")
    if finalizers and (old is None or finalizers is not old.get("finalizers")):
        causes += finalizer_causes(finalizers, any_name=_takes_any_finalizer(kind))
    if old is not None and "deletionTimestamp" in old:
        added = [name for name in finalizers or [] if name not in (old.get("finalizers") or [])]
        if added:
            listed = ", ".join(map(shown, added))
            detail = (
                "no new finalizers can be added if the object is being deleted, found new finalizers "
                f"[]string{{{listed}}}"
            )
            causes.append(forbidden_field("metadata.finalizers", detail))
    return causes


_ANY_FINALIZER = ("admissionregistration.k8s.io", "apiextensions.k8s.io", "coordination.k8s.io", "policy")
"""Groups whose kinds, as events and custom resources, also take finalizers of no domain."""


def _takes_any_finalizer(kind: Kind) -> bool:
    return kind.custom is not None or kind.group in _ANY_FINALIZER or kind.storage == "events"


def finalizer_warnings(kind: Kind, metadata: dict[str, Any], old: dict[str, Any] | None) -> list[str]:
    """What a client is told about new finalizers of a custom resource that belong to no domain."""
    finalizers = metadata.get("finalizers")
    if kind.custom is None or not finalizers:
        return []
    before = (old or {}).get("finalizers") or []
    advice = "prefer a domain-qualified finalizer name to avoid accidental conflicts with other finalizer writers"
    added = sorted(name for name in finalizers if name not in before)
    return [f"metadata.finalizers: {shown(name)}: {advice}" for name in added if is_bare_finalizer(name)]


def _owner_causes(owners: list[dict[str, Any]]) -> list[Cause]:
    causes: list[Cause] = []
    for at, owner in enumerate(owners):
        path = f"metadata.ownerReferences[{at}]"
        missing = [name for name in ("apiVersion", "kind", "name", "uid") if not owner[name]]
        causes += [required(f"{path}.{name}", "must not be empty") for name in missing]
        if owner["apiVersion"].count("/") > 1:
            text = "must be <group>/<version> or <version>"
            causes.append(invalid_value(f"{path}.apiVersion", owner["apiVersion"], text))
        elif (owner["apiVersion"], owner["kind"]) in _NO_OWNERS:
            group, _, version = owner["apiVersion"].rpartition("/")
            text = f"{group}/{version}, Kind={owner['kind']} is disallowed from being an owner"
            causes.append(invalid_value(path, owner, text))
    controllers = [owner for owner in owners if owner.get("controller") is True]
    if len(controllers) > 1:
        first, second = (f"{owner['kind']}/{owner['name']}" for owner in controllers[:2])
        text = (
            f'Only one reference can have Controller set to true. Found "true" in references for {first} and {second}'
        )
        causes.append(invalid_value("metadata.ownerReferences", owners, text))
    return causes


def distinct_owners(metadata: dict[str, Any], warnings: list[str]) -> dict[str, Any]:
    """Metadata whose owner references are all different; the client is told when they were not."""
    owners = metadata.get("ownerReferences")
    if not owners or len(owners) < 2:
        return metadata
    kept: list[dict[str, Any]] = []
    doubled: list[str] = []
    for owner in owners:
        if owner in kept:
            doubled.append(owner["uid"])
        else:
            kept.append(owner)
    if not doubled:
        return metadata
    warnings.append(
        ".metadata.ownerReferences contains duplicate entries; API server dedups owner references in 1.20+, and may "
        "reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: "
        + ", ".join(dict.fromkeys(doubled))
    )
    return {**metadata, "ownerReferences": kept}


def check_address(metadata: dict[str, Any], name: str, namespace: str) -> None:
    """Raise StatusError 400 unless metadata names the object of the URL."""
    given = metadata.get("name", "")
    if not given:
        raise bad_request(f"the name of the object ({name} based on URL) was undeterminable: name must be provided")
    if given != name:
        raise bad_request(f"the name of the object ({given}) does not match the name on the URL ({name})")
    if metadata.get("namespace", namespace) != namespace:
        raise bad_request(_SAME_NAMESPACE)


def check_namespace(sent: str, on_url: str) -> None:
    """Raise StatusError 400 when an object names another namespace than the URL."""
    if sent and on_url and sent != on_url:
        raise bad_request(_SAME_NAMESPACE)


def sent_version(metadata: dict[str, Any]) -> str:
    """The version that an update says it starts from; "" for any. Raises StatusError 500 for one that is none."""
    text = str(metadata.get("resourceVersion", ""))
    if text and not (text.isascii() and text.isdigit()):
        raise internal(f"strconv.ParseUint: parsing {shown(text)}: invalid syntax")
    return "" if not text.strip("0") else text


def check_version(kind: Kind, old: Object, metadata: dict[str, Any]) -> None:
    """Raise StatusError 409 when an update starts from another version than the stored one."""
    version = sent_version(metadata)
    if version and version != old["metadata"]["resourceVersion"]:
        raise stale(kind.plural, kind.group, old["metadata"]["name"])


def check_uid(kind: Kind, old: Object, metadata: dict[str, Any]) -> None:
    """Raise StatusError 409 when a replacement is meant for another object of the same name."""
    uid, before = metadata.get("uid"), old["metadata"]
    if uid and uid != before["uid"]:
        parts = ["/registry", kind.plural, before.get("namespace", ""), before["name"]]
        if kind.custom is not None:
            parts.insert(1, kind.group)
        why = (
            f"StorageError: invalid object, Code: 4, Key: {'/'.join(part for part in parts if part)}, "
            f"ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: {uid}, "
            f"UID in object meta: {before['uid']}"
        )
        raise conflict(kind.plural, kind.group, before["name"], why)


def immutable_causes(kind: Kind, old: Object, metadata: dict[str, Any]) -> list[Cause]:
    """What an update wants to change although the server alone may. `metadata` is as the client sent it."""
    causes = []
    for name in ("uid", "deletionTimestamp", "deletionGracePeriodSeconds"):
        value = metadata.get(name)
        if value is not None and value != old["metadata"].get(name):
            cause = invalid_value(f"metadata.{name}", value, "field is immutable")
            # A real server checks the metadata of custom resources twice.
            causes += [cause, cause] if kind.custom is not None else [cause]
    return causes


def carry_over(old: Object, metadata: dict[str, Any]) -> dict[str, Any]:
    """Metadata of an update with everything that belongs to the server taken from `old`."""
    before = old["metadata"]
    gone = ("generation", "selfLink", "managedFields", *_SERVER_OWNED)
    kept = {name: value for name, value in metadata.items() if name not in gone}
    for name in ("name", "namespace", "resourceVersion", "generation", *_SERVER_OWNED):
        if name in before:
            kept[name] = before[name]
    return kept
