"""Rules for `metadata` that hold for every kind: what the server sets, keeps and refuses."""

from __future__ import annotations

from typing import Any

from muster.kube.api import Object
from muster.sim.api_kinds import Kind
from muster.sim.api_names import annotation_causes, label_causes, name_causes
from muster.sim.api_status import Cause, bad_request, conflict, forbidden_field, invalid_value, required, stale

KNOWN_FIELDS = (
    *("name", "generateName", "namespace", "selfLink", "uid", "resourceVersion", "generation", "creationTimestamp"),
    *("deletionTimestamp", "deletionGracePeriodSeconds", "labels", "annotations", "ownerReferences", "finalizers"),
    "managedFields",
)
_VANISH_WHEN_EMPTY = ("labels", "annotations", "finalizers", "ownerReferences", "name", "generateName", "namespace")
_SERVER_OWNED = (
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
    "selfLink",
)


def checked_metadata(obj: Object) -> dict[str, Any]:
    """The object's metadata with the right JSON types, without unknown fields. Raises StatusError 400."""
    metadata = obj.get("metadata")
    if metadata is None:
        metadata = {}
    if not isinstance(metadata, dict):
        raise bad_request("metadata must be an object")
    for name in ("labels", "annotations"):
        _check_strings(metadata, name)
    for name in ("name", "generateName", "namespace", "uid", "resourceVersion"):
        if not isinstance(metadata.get(name, ""), str | None):
            raise bad_request(f"metadata.{name} must be a string")
    for name in ("finalizers", "ownerReferences"):
        items = metadata.get(name)
        wanted = str if name == "finalizers" else dict
        if items is not None and not (isinstance(items, list) and all(isinstance(item, wanted) for item in items)):
            raise bad_request(f"metadata.{name} must be a list of {'strings' if wanted is str else 'objects'}")
    return {
        name: value
        for name, value in metadata.items()
        if name in KNOWN_FIELDS and value is not None and (value or name not in _VANISH_WHEN_EMPTY)
    }


def _check_strings(metadata: dict[str, Any], name: str) -> None:
    values = metadata.get(name)
    if values is None:
        return
    if not isinstance(values, dict) or not all(isinstance(value, str) for value in values.values()):
        raise bad_request(f"metadata.{name} must be an object whose values are strings")


def causes_of(kind: Kind, metadata: dict[str, Any], old: dict[str, Any] | None) -> list[Cause]:
    """What is wrong with checked metadata, compared with the old metadata of an update."""
    causes: list[Cause] = []
    if old is None:
        causes += name_causes(kind.name, metadata["name"])
    if metadata.get("labels") and (old is None or metadata["labels"] != old.get("labels")):
        causes += label_causes(metadata["labels"])
    if metadata.get("annotations") and (old is None or metadata["annotations"] != old.get("annotations")):
        causes += annotation_causes(metadata["annotations"])
    causes += _owner_causes(metadata.get("ownerReferences") or [])
    if old is not None and "deletionTimestamp" in old:
        added = [f for f in metadata.get("finalizers") or [] if f not in (old.get("finalizers") or [])]
        if added:
            detail = f"no new finalizers can be added if the object is being deleted, found new finalizers {added}"
            causes.append(forbidden_field("metadata.finalizers", detail))
    return causes


def _owner_causes(owners: list[Any]) -> list[Cause]:
    causes = []
    for at, owner in enumerate(owners):
        causes += [
            required(f"metadata.ownerReferences[{at}].{name}", "must not be empty")
            for name in ("apiVersion", "kind", "name", "uid")
            if not isinstance(owner.get(name), str) or not owner[name]
        ]
    if sum(owner.get("controller") is True for owner in owners) > 1:
        text = "Only one reference can have Controller set to true"
        causes.append(invalid_value("metadata.ownerReferences", None, text))
    return causes


def carry_over(kind: Kind, old: Object, metadata: dict[str, Any]) -> dict[str, Any]:
    """Metadata of an update with everything that belongs to the server taken from `old`.

    Raises StatusError: another name or namespace (400), another uid or a stale resourceVersion (409).
    """
    before = old["metadata"]
    for field in ("name", "namespace"):
        wanted = metadata.get(field) or before.get(field)
        if wanted != before.get(field):
            on_url = before.get(field, "")
            raise bad_request(
                f"the {field} of the object ({wanted}) does not match the {field} on the URL ({on_url})"
            )
    if metadata.get("uid") and metadata["uid"] != before["uid"]:
        why = f"Precondition failed: UID in precondition: {metadata['uid']}, UID in object meta: {before['uid']}"
        raise conflict(kind.plural, kind.group, before["name"], why)
    sent = metadata.get("resourceVersion")
    if sent and sent not in ("0", before["resourceVersion"]):
        raise stale(kind.plural, kind.group, before["name"])
    kept = {name: value for name, value in metadata.items() if name not in _SERVER_OWNED}
    for name in ("name", "namespace", "resourceVersion", "generateName", *_SERVER_OWNED):
        if name in before:
            kept[name] = before[name]
    return kept
