"""The first look at an object that a client sends: is it of the right kind, and does it hold unknown fields?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from muster.kube.api import Object
from muster.sim import builtin_rules
from muster.sim.api_kinds import Kind
from muster.sim.api_metadata import KNOWN_FIELDS
from muster.sim.api_status import bad_request

if TYPE_CHECKING:
    from muster.sim.store import WriteOptions

_ALWAYS = ("apiVersion", "kind", "metadata")


def check_shape(kind: Kind, obj: Object, *, complete: bool = False) -> None:
    """Raise StatusError 400 unless `obj` is an object of `kind` (of no kind at all too, unless `complete`)."""
    if not isinstance(obj, dict):
        raise bad_request("the body of the request must be a JSON object")
    api_version, name = obj.get("apiVersion"), obj.get("kind")
    if complete and not (api_version and name):
        raise bad_request("an applied configuration needs apiVersion and kind")
    if api_version and api_version != kind.api_version:
        raise bad_request(
            f"the API version in the data ({api_version}) does not match the expected API version "
            f"({kind.api_version})"
        )
    if name and name != kind.name:
        raise bad_request(f"the kind in the data ({name}) does not match the expected kind ({kind.name})")


def prepared(kind: Kind, obj: Object, old: Object | None, options: WriteOptions) -> Object:
    """The object without unknown fields and with defaults.

    Unknown fields are refused (`Strict`, StatusError 400), reported in the warnings (`Warn`) or dropped (`Ignore`).
    """
    if options.field_validation not in ("", "Ignore", "Warn", "Strict"):
        raise bad_request(f"fieldValidation {options.field_validation!r} is not Ignore, Warn or Strict")
    unknown: list[str] = []
    if kind.custom is not None:
        obj, unknown = kind.custom.prepared(obj, old)
    else:
        unknown = [name for name in obj if name not in _ALWAYS and name not in kind.top]
        if unknown:
            obj = {name: value for name, value in obj.items() if name not in unknown}
        obj = builtin_rules.on_create(kind, obj) if old is None else builtin_rules.on_update(kind, obj)
    report_unknown(kind, unknown, options)
    return obj


def report_unknown(kind: Kind, unknown: list[str], options: WriteOptions) -> None:
    """Refuse, warn about or ignore unknown fields."""
    if not unknown:
        return
    if options.field_validation == "Strict":
        listed = ", ".join(f'unknown field "{path}"' for path in unknown)
        raise bad_request(
            f'{kind.name} in version "{kind.resource.version}" cannot be handled as a {kind.name}: '
            f"strict decoding error: {listed}"
        )
    if options.field_validation != "Ignore":
        options.warnings += [f'unknown field "{path}"' for path in unknown]


def unknown_metadata(obj: Object) -> list[str]:
    """Paths of metadata fields that do not exist."""
    metadata = obj.get("metadata")
    return [f"metadata.{name}" for name in metadata if name not in KNOWN_FIELDS] if isinstance(metadata, dict) else []
