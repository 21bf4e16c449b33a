"""Conversion between the served versions of one stored object."""

from __future__ import annotations

from collections.abc import Callable

from muster.kube.api import Object
from muster.sim.api_kinds import Kind

_CORE_TO_NEW = {
    "involvedObject": "regarding",
    "message": "note",
    "source": "deprecatedSource",
    "firstTimestamp": "deprecatedFirstTimestamp",
    "lastTimestamp": "deprecatedLastTimestamp",
    "count": "deprecatedCount",
    "reportingComponent": "reportingController",
}
_NEW_TO_CORE = {new: core for core, new in _CORE_TO_NEW.items()}


def from_storage(kind: Kind) -> Callable[[Object], Object] | None:
    """How a stored object becomes one of `kind`; None when it already is."""
    if kind.api_version == kind.storage_api_version:
        return None
    if kind.storage == "events":
        return lambda obj: _without_empty_origin(_renamed(obj, kind.api_version, _CORE_TO_NEW))
    return lambda obj: {**obj, "apiVersion": kind.api_version}


def to_storage(kind: Kind) -> Callable[[Object], Object] | None:
    """How an object of `kind` is stored; None when as it is."""
    if kind.api_version == kind.storage_api_version:
        return None
    if kind.storage == "events":
        return lambda obj: {
            "reportingComponent": "",
            "reportingInstance": "",
            **_renamed(obj, kind.storage_api_version, _NEW_TO_CORE),
        }
    return lambda obj: {**obj, "apiVersion": kind.storage_api_version}


def _renamed(obj: Object, api_version: str, names: dict[str, str]) -> Object:
    return {**{names.get(name, name): value for name, value in obj.items()}, "apiVersion": api_version}


def _without_empty_origin(obj: Object) -> Object:
    """The core form always says who reports, if only by an empty text; the newer form leaves that out."""
    return {k: v for k, v in obj.items() if v != "" or k not in ("reportingController", "reportingInstance")}
