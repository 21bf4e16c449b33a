"""The file that says where events and the audit log go: `muster controller run --outputs FILE`.

Secrets (addresses with a token in them, keys) are never written in it: it names files, and these are read again at
each delivery, so that a rotated secret needs no restart.
"""

from __future__ import annotations

import re
from enum import StrEnum
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from muster import yamlio
from muster.errors import BadInputError
from muster.operate.outputs.event import WEIGHTS, EventType, FleetEvent, Weight
from muster.resources.node_health import CauseKind

MAX_SINKS = 16
_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?")


class SinkKind(StrEnum):
    CLOUDEVENTS = "cloudevents"
    """CloudEvents 1.0 over HTTP: one event a request, or batches (`batch: true`)."""
    WEBHOOK = "webhook"
    """A JSON object with a list of events, signed when there is a secret."""
    SLACK = "slack"
    """Messages for people, in the shape of Slack's incoming webhooks, which Mattermost and others take too."""


class _Strict(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Base of the sections: an unknown key is an error, not a setting that is silently ignored."""


class Only(_Strict, frozen=True, kw_only=True):
    """Which events a sink gets; an empty list stands for all."""

    min_weight: Weight = Weight.INFO
    types: tuple[EventType, ...] = ()
    causes: tuple[CauseKind, ...] = ()
    pools: tuple[str, ...] = ()

    def takes(self, event: FleetEvent) -> bool:
        return (
            WEIGHTS.index(event.weight) >= WEIGHTS.index(self.min_weight)
            and (not self.types or event.type in self.types)
            and (not self.causes or event.cause in self.causes)
            and (not self.pools or event.pool in self.pools)
        )


class SinkConfig(_Strict, frozen=True, kw_only=True):
    """One receiver. `url` or `urlFile`; headers come from files too (`Authorization` from `tokenFile`)."""

    name: str
    kind: SinkKind
    url: str = ""
    url_file: str = ""
    token_file: str = ""
    """Content becomes `Authorization: Bearer ...`."""
    secret_file: str = ""
    """Key of the signature (kind `webhook`)."""
    ca_file: str = ""
    batch: bool = False
    """Kind `cloudevents`: several events in one request."""
    timeout_s: float = 10.0
    only: Only = Only()


class AuditConfig(_Strict, frozen=True, kw_only=True):
    """The audit log: one JSON object a line. `path` is a file, or `-` for standard output."""

    path: str
    max_bytes: int = 50_000_000
    """The file is moved aside when it has grown so large."""
    keep: int = 8
    """Files moved aside that are kept."""


class OutputsConfig(_Strict, frozen=True, kw_only=True):
    cluster: str = ""
    """Name of the cluster in everything that leaves it; CloudEvents have it in their source."""
    sinks: tuple[SinkConfig, ...] = ()
    audit: AuditConfig | None = None


def load(path: Path) -> OutputsConfig:
    """Read and check the file. Raises BadInputError."""
    try:
        found = msgspec.convert(yamlio.load(path), OutputsConfig, strict=True)
    except msgspec.ValidationError as error:
        raise BadInputError(f"{path}: {error}; docs/how-to/outputs.md shows what the file may say.") from error
    check(found, str(path))
    return found


def check(config: OutputsConfig, where: str) -> None:
    """Raises BadInputError when the parts do not fit together."""
    if len(config.sinks) > MAX_SINKS:
        raise BadInputError(f"{where} names {len(config.sinks)} sinks; at most {MAX_SINKS} are accepted.")
    seen: list[str] = []
    for sink in config.sinks:
        if not _NAME.fullmatch(sink.name) or sink.name in seen:
            raise BadInputError(
                f"{where}: sink {sink.name[:60]!r} needs a name of its own of lower-case letters, digits and dashes."
            )
        seen.append(sink.name)
        if bool(sink.url) == bool(sink.url_file):
            raise BadInputError(f"{where}: sink {sink.name} needs either url or urlFile.")
        if sink.url:
            check_url(sink.url, f"{where}: sink {sink.name}")
            if "@" in urlsplit(sink.url).netloc:
                raise BadInputError(
                    f"{where}: sink {sink.name} has a user or password in its url; give the address as urlFile."
                )
        if not 0 < sink.timeout_s <= 120:
            raise BadInputError(f"{where}: sink {sink.name} has timeoutS {sink.timeout_s}; give 0 to 120 seconds.")
        if sink.batch and sink.kind is not SinkKind.CLOUDEVENTS:
            raise BadInputError(f"{where}: sink {sink.name}: batch belongs to kind cloudevents; leave it out.")
        if sink.secret_file and sink.kind is not SinkKind.WEBHOOK:
            raise BadInputError(f"{where}: sink {sink.name}: secretFile belongs to kind webhook; leave it out.")
    audit = config.audit
    if audit is not None and (not audit.path or audit.max_bytes < 10_000 or not 1 <= audit.keep <= 1000):
        raise BadInputError(f"{where}: audit needs a path, maxBytes from 10000 on and keep from 1 to 1000.")


def check_url(url: str, where: str) -> None:
    """Raises BadInputError unless events can be posted to `url`, which is not shown: it may be secret."""
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable or len(url) > 2048 or not url.isprintable() or " " in url:
        raise BadInputError(f"{where}: the address is not an http or https URL; give one.")
