"""Validation of Events: strict for events.k8s.io, lenient for the core group (source: validation of Kubernetes 1.37).

Both kinds of request are judged in the core form, and so the names of wrong fields are the core group's.
"""

from __future__ import annotations

import re
from typing import Any

from muster.kube.api import Object
from muster.sim.api_status import Cause, invalid_value, required

_NAMESPACES_OF_OTHERS = ("", "default", "kube-system")
"""Where events about objects without a namespace may be."""
_LONGEST_WORD, _LONGEST_NOTE = 128, 1024
_TYPES = ("Normal", "Warning")
_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_NAME_RULE = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
    "character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
_UNSET = ("firstTimestamp", "lastTimestamp", "count", "source")
_IMMUTABLE = (
    *("involvedObject", "reason", "message", "source", "firstTimestamp", "lastTimestamp", "count", "type"),
    *("eventTime", "action", "related", "reportingComponent", "reportingInstance"),
)


def event_causes(obj: Object, old: Object | None, *, strict: bool) -> list[Cause]:
    """What is wrong with an event in the core form. `strict`: the request came through events.k8s.io."""
    causes = _place_causes(obj)
    if not strict:
        if old is None and obj.get("eventTime"):
            causes += _origin_causes(obj, "reportingComponent")
        return causes
    if old is None:
        return causes + _new_causes(obj)
    return causes + _changed_causes(obj, old)


def _place_causes(obj: Object) -> list[Cause]:
    named, home = str((obj.get("involvedObject") or {}).get("namespace") or ""), obj["metadata"].get("namespace", "")
    if named == home or (not named and home in _NAMESPACES_OF_OTHERS):
        return []
    return [invalid_value("involvedObject.namespace", named, "does not match event.namespace")]


def _origin_causes(obj: Object, controller_field: str) -> list[Cause]:
    """Who reports what, and during which action."""
    controller = str(obj.get("reportingComponent") or "")
    causes = [] if controller else [required(controller_field)]
    if not controller:
        causes.append(invalid_value(controller_field, "", "name part must be non-empty"))
    prefix, _, name = controller.rpartition("/")
    if not _NAME.fullmatch(name) or "/" in prefix:
        causes.append(invalid_value(controller_field, controller, _NAME_RULE))
    for field in ("reportingInstance", "action", "reason"):
        value = str(obj.get(field) or "")
        if not value:
            causes.append(required(field))
        elif len(value) > _LONGEST_WORD:
            causes.append(invalid_value(field, "", f"can have at most {_LONGEST_WORD} characters"))
    return causes


def _new_causes(obj: Object) -> list[Cause]:
    causes = [] if obj.get("eventTime") else [required("eventTime")]
    series = obj.get("series")
    if series is not None:
        if int(series.get("count") or 0) < 2:
            causes.append(invalid_value("series.count", "", "should be at least 2"))
        if not series.get("lastObservedTime"):
            causes.append(required("series.lastObservedTime"))
    causes += _origin_causes(obj, "reportingController")
    if obj.get("type") not in _TYPES:
        causes.append(invalid_value("type", "", f"has invalid value: {obj.get('type') or ''}"))
    if len(str(obj.get("message") or "")) > _LONGEST_NOTE:
        causes.append(invalid_value("message", "", f"can have at most {_LONGEST_NOTE} characters"))
    causes += [invalid_value(field, "", "needs to be unset") for field in _UNSET if obj.get(field)]
    return causes


def _changed_causes(obj: Object, old: Object) -> list[Cause]:
    causes = []
    for field in _IMMUTABLE:
        before, after = old.get(field) or None, obj.get(field) or None
        if before != after:
            shown = "reportingController" if field == "reportingComponent" else field
            causes.append(invalid_value(shown, _internal(after), "field is immutable"))
    return causes


def _internal(value: Any) -> Any:
    """A reference as messages show it: the server's own form, with every field."""
    if not isinstance(value, dict):
        return value if value is not None else ""
    names = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")
    capitals = {"uid": "UID", "apiVersion": "APIVersion"}
    return {capitals.get(name, name[:1].upper() + name[1:]): value.get(name, "") for name in names}
