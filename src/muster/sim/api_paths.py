"""From an HTTP request to what it asks for: path, query, verb, and the forms of body and answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from muster.errors import BadInputError
from muster.sim import api_protobuf
from muster.sim.api_status import (
    StatusError,
    bad_request,
    method_not_allowed,
    unknown_resource,
    unsupported_media_type,
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
        if rest[2] in ("proxy", "exec", "attach", "portforward"):
            rest = rest[:3]
        else:
            raise unknown_resource()
    plural, name, subresource = [*rest, "", "", ""][:3]
    return Target(group, version, plural, namespace, name, subresource)


_TRUE = ("1", "true", "True", "TRUE", "t", "T")


@dataclass(frozen=True)
class Query:
    """The query parameters that the server knows."""

    values: Mapping[str, str] = field(default_factory=dict)

    def text(self, name: str) -> str:
        return self.values.get(name, "")

    def flag(self, name: str) -> bool:
        return self.values.get(name, "") in _TRUE

    def flag_or_none(self, name: str) -> bool | None:
        return self.flag(name) if name in self.values else None

    def number(self, name: str) -> int | None:
        """A whole number from 0. Raises StatusError 400."""
        text = self.values.get(name, "")
        if not text:
            return None
        if not (text.isascii() and text.isdigit() and len(text) <= 12):
            raise bad_request(f"the query parameter {name}={text[:40]!r} is not a whole number from 0")
        return int(text)

    def dry_run(self) -> bool:
        text = self.values.get("dryRun", "")
        if text not in ("", "All"):
            raise bad_request(f"dryRun {text[:40]!r} is not All")
        return bool(text)


def verb_of(method: str, target: Target, query: Query) -> str:
    """The verb in the words of role rules. Raises StatusError 405."""
    if method in ("GET", "HEAD"):
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
    raise method_not_allowed("the server does not allow this method on the requested resource")


def read_body(raw: bytes, content_type: str) -> Any:
    """The JSON value in a request body (JSON or YAML). Raises StatusError 400 or 415."""
    media = content_type.partition(";")[0].strip().lower()
    if media in ("application/cbor", "application/apply-patch+cbor"):
        raise unsupported_media_type(
            "the body of the request was in an unknown format - accepted media types include: application/json, "
            "application/yaml"
        )
    if len(raw) > MAX_BODY_BYTES:
        raise StatusError(413, "RequestEntityTooLarge", f"Request entity too large: limit is {MAX_BODY_BYTES}")
    if not raw.strip():
        return None
    if media == api_protobuf.MEDIA_TYPE:
        return api_protobuf.decode(raw)
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        if "yaml" not in media:
            raise bad_request(f"couldn't get version/kind; json parse error: {error}") from None
    from muster import yamlio

    try:
        return yamlio.loads(raw, "the request body")
    except BadInputError as error:
        raise bad_request(str(error)) from None


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
