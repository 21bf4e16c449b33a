"""From an HTTP request to what it asks for: path, query, verb, and the forms of body and answer."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from muster.errors import BadInputError
from muster.sim import api_protobuf
from muster.sim.api_status import (
    Cause,
    StatusError,
    bad_request,
    forbidden_field,
    invalid,
    invalid_value,
    method_not_allowed,
    shown,
    too_large,
    unknown_format,
    unknown_resource,
    unsupported_value,
)

MAX_BODY_BYTES = 3 * 1024 * 1024
"""Largest request body: the limit of a real API server."""


@dataclass(frozen=True)
class Target:
    """What a path under /api or /apis names. `plural` "" names the group version itself."""

    group: str
    version: str
    plural: str = ""
    namespace: str = ""
    name: str = ""
    subresource: str = ""


def parse_path(path: str) -> Target:
    """Parse `/api/v1/...` and `/apis/<group>/<version>/...`. Raises StatusError 404."""
    parts = [part for part in path.split("/") if part]
    if parts[:1] == ["api"] and len(parts) >= 2:
        group, version, rest = "", parts[1], parts[2:]
    elif parts[:1] == ["apis"] and len(parts) >= 3:
        group, version, rest = parts[1], parts[2], parts[3:]
    else:
        raise unknown_resource()
    if rest[:1] == ["watch"]:
        raise unknown_resource()
    if rest[:1] == ["namespaces"] and len(rest) >= 3 and not (len(rest) == 3 and rest[2] in ("status", "finalize")):
        namespace, rest = rest[1], rest[2:]
    else:
        namespace = ""
    if len(rest) > 3:
        # Below a proxy anything may follow; elsewhere nothing is served.
        rest = rest[:3] if rest[2] == "proxy" else [*rest[:2], "/".join(rest[2:])]
    plural, name, subresource = [*rest, "", "", ""][:3]
    return Target(group, version, plural, namespace, name, subresource)


_FALSE = ("0", "false")


@dataclass(frozen=True)
class Query:
    """The query parameters that the server knows."""

    values: Mapping[str, str] = field(default_factory=dict)

    def text(self, name: str) -> str:
        return self.values.get(name, "")

    def flag(self, name: str) -> bool:
        """Whether a parameter is given and not false; an empty one is true."""
        return name in self.values and self.values[name].lower() not in _FALSE

    def flag_or_none(self, name: str) -> bool | None:
        return self.flag(name) if name in self.values else None

    def number(self, name: str) -> int | None:
        """A whole number. Raises StatusError 400."""
        text = self.values.get(name, "")
        if not text:
            return None
        if not re.fullmatch(r"[+-]?[0-9]{1,18}", text):
            raise bad_request(f"strconv.ParseInt: parsing {shown(text[:40])}: invalid syntax")
        return int(text)

    def dry_run(self) -> bool:
        """Whether nothing is to be stored. `check_write_options` has refused every other value."""
        return bool(self.text("dryRun"))


MAX_MANAGER_BYTES = 128
_VALIDATIONS = ("", "Ignore", "Strict", "Warn")


def check_write_options(query: Query, options: str, *, applies: bool = False) -> None:
    """Raise StatusError 422 for options of a write that are none. `options`: CreateOptions, UpdateOptions, ..."""
    causes: list[Cause] = []
    if "force" in query.values and options == "PatchOptions" and not applies:
        causes.append(forbidden_field("force", "may not be specified for non-apply patch"))
    causes += _manager_causes(query.text("fieldManager"))
    dry_run = query.text("dryRun")
    if dry_run not in ("", "All"):
        causes.append(unsupported_value("dryRun", [dry_run], ["All"]))
    validation = query.text("fieldValidation")
    if validation not in _VALIDATIONS:
        causes.append(unsupported_value("fieldValidation", validation, list(_VALIDATIONS)))
    if causes:
        raise invalid(options, "meta.k8s.io", "", causes)


def _manager_causes(manager: str) -> list[Cause]:
    if len(manager.encode()) > MAX_MANAGER_BYTES:
        text = f"Too long: may not be more than {MAX_MANAGER_BYTES} bytes"
        return [Cause("FieldValueTooLong", text, "fieldManager")]
    for at, character in enumerate(manager):
        if not character.isprintable():
            text = f"invalid character U+{ord(character):04X} (at position {at})"
            return [invalid_value("fieldManager", manager, text)]
    return []


def verb_of(method: str, target: Target, query: Query) -> str:
    """The verb in the words of role rules. Raises StatusError 405."""
    if method == "GET":
        if target.name:
            return "get"
        return "watch" if query.flag("watch") else "list"
    if method == "POST" and (not target.name or target.subresource):
        return "create"
    if method == "PUT" and target.name:
        return "update"
    if method == "PATCH" and target.name:
        return "patch"
    if method == "DELETE":
        return "delete" if target.name else "deletecollection"
    raise method_not_allowed()


@dataclass(frozen=True)
class Unreadable:
    """A request body that holds no JSON value, and why; `raw` is what was sent. `null`: it is the JSON null."""

    raw: bytes
    why: str
    null: bool = False


def read_body(raw: bytes, content_type: str) -> Any:
    """The JSON value in a request body (JSON or YAML), None for no body, or `Unreadable`.

    Raises StatusError: 413, 415 for CBOR.
    """
    media = content_type.partition(";")[0].strip().lower()
    if media in ("application/cbor", "application/apply-patch+cbor"):
        raise unknown_format(("application/json", "application/yaml"))
    if len(raw) > MAX_BODY_BYTES:
        raise too_large(f"limit is {MAX_BODY_BYTES}")
    if not raw.strip():
        return None
    if media == api_protobuf.MEDIA_TYPE:
        return api_protobuf.decode(raw)
    try:
        value = msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        if "yaml" not in media:
            return Unreadable(raw, f"couldn't get version/kind; json parse error: {_spoken(str(error), raw)}")
        return _read_yaml(raw)
    if value is None:
        return Unreadable(raw, "", null=True)
    doubled = doubled_fields(raw) if isinstance(value, dict) else []
    return Doubled(value, doubled) if doubled else value


class Doubled(dict[str, Any]):
    """A JSON object in which fields stand more than once; `paths` says which. The last one counts."""

    def __init__(self, value: dict[str, Any], paths: list[str]) -> None:
        super().__init__(value)
        self.paths = paths


def _spoken(error: str, raw: bytes) -> str:
    """A parse error in the words of a real server."""
    if "truncated" in error:
        return "unexpected end of JSON input"
    found = re.search(r"\(byte (\d+)\)", error)
    if found is None or int(found[1]) >= len(raw):
        return error
    character = raw[int(found[1]) :].decode(errors="replace")[0]
    return f"invalid character '{character}' looking for beginning of value"


def _read_yaml(raw: bytes) -> Any:
    from muster import yamlio

    try:
        value = yamlio.loads(raw, "the request body")
    except BadInputError as error:
        return Unreadable(raw, f"yaml: {error}")
    return Unreadable(raw, "", null=True) if value is None else value


def doubled_fields(raw: bytes) -> list[str]:
    """Paths of fields that a JSON object holds more than once, in the order in which they are met.

    `raw` is valid JSON. Nothing is found in most bodies, so the paths are worked out only when something is.
    """
    found: list[str] = []

    def pairs(items: list[tuple[str, Any]]) -> Any:
        seen: dict[str, Any] = {}
        for name, value in items:
            if name in seen:
                found.append(name)
            seen[name] = value
        return _Pairs(items) if found else seen

    parsed = json.loads(raw, object_pairs_hook=pairs)
    if not found:
        return []
    parsed = json.loads(raw, object_pairs_hook=_Pairs)
    paths: list[str] = []
    _walk(parsed, "", paths)
    return paths


class _Pairs(list[tuple[str, Any]]):
    """A JSON object with every field that it was written with."""


def _walk(value: Any, path: str, paths: list[str]) -> None:
    if isinstance(value, _Pairs):
        names: list[str] = []
        for name, part in value:
            here = f"{path}.{name}" if path else name
            if name in names:
                paths.append(here)
            names.append(name)
            _walk(part, here, paths)
    elif isinstance(value, list):
        for at, item in enumerate(value):
            _walk(item, f"{path}[{at}]", paths)


@dataclass(frozen=True)
class Form:
    """How the client wants an answer: `as_` is "", Table, PartialObjectMetadata, PartialObjectMetadataList or
    APIGroupDiscoveryList."""

    as_: str = ""


def accepted(header: str) -> Form:
    """The first form in an Accept header that the server can give. Raises StatusError 406."""
    if not header.strip():
        return Form()
    for choice in header.split(","):
        media, *parameters = [part.strip() for part in choice.split(";")]
        if media not in ("application/json", "*/*", "application/*"):
            continue
        values = dict(part.partition("=")[::2] for part in parameters)
        wanted = values.get("as", "")
        if not wanted:
            return Form()
        known = {
            "Table": ("meta.k8s.io", ("v1",)),
            "PartialObjectMetadata": ("meta.k8s.io", ("v1",)),
            "PartialObjectMetadataList": ("meta.k8s.io", ("v1",)),
            "APIGroupDiscoveryList": ("apidiscovery.k8s.io", ("v2",)),
        }.get(wanted)
        if known is not None and values.get("g") == known[0] and values.get("v") in known[1]:
            return Form(wanted)
    raise StatusError(
        406, "NotAcceptable", "only the following media types are accepted: application/json, application/yaml"
    )
