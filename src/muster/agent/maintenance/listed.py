"""Notices in Muster's own shape, from a file on the node or a URL of the site (docs/how-to/cloud-maintenance.md)."""

from __future__ import annotations

import asyncio
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from muster.agent.maintenance import answers
from muster.agent.maintenance.config import WebhookConfig
from muster.agent.maintenance.fetch import MAX_BODY_BYTES, fetch
from muster.agent.maintenance.monitor import Heard
from muster.errors import BadInputError, UnreachableError
from muster.resources.node_health import Notice, NoticeKind, NoticeStatus

FILE_SOURCE, WEBHOOK_SOURCE = "file", "webhook"
MAX_TOKEN_BYTES = 8192
_FIELDS = ("id", "kind", "status", "notBefore", "endsAt", "emergency", "message")


class FileSource:
    """A YAML or JSON file. One that is missing announces nothing; one that cannot be read is unknown."""

    name = FILE_SOURCE

    def __init__(self, path: Path) -> None:
        self._path = path

    async def ask(self, _: frozenset[str]) -> Heard:
        found = await asyncio.to_thread(self._read)
        return Heard(parse_notices(found, FILE_SOURCE, str(self._path)))

    def _read(self) -> Any:
        try:
            with self._path.open("rb") as file:
                content = file.read(MAX_BODY_BYTES + 1)
        except FileNotFoundError:
            return []
        if len(content) > MAX_BODY_BYTES:
            raise BadInputError(f"{self._path} is larger than {MAX_BODY_BYTES // 1024} KiB; remove old notices.")
        if not content.strip():
            return []
        try:
            return msgspec.json.decode(content)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            from muster import yamlio

            try:
                return yamlio.loads(content, str(self._path))
            except UnicodeDecodeError as error:
                raise BadInputError(f"{self._path} is not UTF-8 text.") from error


class WebhookSource:
    """A URL of the site that answers with the list."""

    name = WEBHOOK_SOURCE

    def __init__(self, config: WebhookConfig, node: str) -> None:
        if "{node}" in config.url and not node:
            raise BadInputError("maintenance.webhook.url holds {node}, and the name of the node is not known.")
        from urllib.parse import quote

        self._url = config.url.replace("{node}", quote(node, safe=""))
        self._config = config

    async def ask(self, _: frozenset[str]) -> Heard:
        headers = {"Accept": "application/json"}
        if self._config.token_file:
            headers["Authorization"] = f"Bearer {await asyncio.to_thread(self._token)}"
        config = self._config
        answer = await fetch(self._url, headers, config.timeout_s, ca_file=config.ca_file)
        if answer.status != 200:
            raise UnreachableError(f"maintenance.webhook.url answered {answer.status}.")
        document = answers.read_json(answer.body, "The answer of maintenance.webhook.url")
        return Heard(parse_notices(document, WEBHOOK_SOURCE, "The answer of maintenance.webhook.url"), answer.at)

    def _token(self) -> str:
        with Path(self._config.token_file).open("rb") as file:
            token = file.read(MAX_TOKEN_BYTES).decode("latin-1").strip()
        if not token.isascii() or not token.isprintable() or not token:
            raise BadInputError("maintenance.webhook.tokenFile holds no usable token.")
        return token


def parse_notices(document: Any, source: str, where: str) -> tuple[Notice, ...]:
    """A list of notices, or an object with it as `notices`. `where` names it in errors. Raises BadInputError."""
    if isinstance(document, dict):
        stray = sorted(str(key) for key in document if key not in ("notices", "apiVersion", "kind"))
        if stray:
            raise BadInputError(f"{where} has {stray[0][:60]!r} beside notices, which nobody knows.")
        document = document.get("notices")
    if document is None:
        document = []
    if not isinstance(document, list):
        raise BadInputError(f"{where} holds no list of notices.")
    found = tuple(_notice(entry, source, f"{where}, notice {number}") for number, entry in enumerate(document, 1))
    if len({notice.id for notice in found}) < len(found):
        raise BadInputError(f"{where} names one id twice; give each notice an id of its own.")
    return found


def _notice(entry: Any, source: str, where: str) -> Notice:
    if not isinstance(entry, dict):
        raise BadInputError(f"{where}: a notice is an object with at least an id.")
    stray = sorted(str(key) for key in entry if key not in _FIELDS)
    if stray:
        raise BadInputError(f"{where}: {stray[0][:60]!r} is no field of a notice; known: {', '.join(_FIELDS)}.")
    emergency = entry.get("emergency", False)
    if not isinstance(emergency, bool):
        raise BadInputError(f"{where}: emergency must be true or false.")
    kind = _word(entry.get("kind", "other"), [k.value for k in NoticeKind], f"{where}: kind")
    status = _word(entry.get("status", "scheduled"), [s.value for s in NoticeStatus], f"{where}: status")
    begins = _zoned(entry.get("notBefore"), f"{where}: notBefore")
    ends = _zoned(entry.get("endsAt"), f"{where}: endsAt")
    if begins is not None and ends is not None and ends < begins:
        raise BadInputError(f"{where}: endsAt lies before notBefore.")
    return Notice(
        id=answers.identifier(entry.get("id"), f"{where}: id"),
        source=source,
        kind=NoticeKind(kind),
        status=NoticeStatus(status),
        not_before=begins,
        ends_at=ends,
        emergency=emergency,
        message=answers.text(entry.get("message"), f"{where}: message", answers.MAX_MESSAGE),
    )


def _word(value: Any, known: list[str], where: str) -> str:
    if not isinstance(value, str) or value not in known:
        raise BadInputError(f"{where} must be one of {', '.join(known)}.")
    return value


def _zoned(value: Any, where: str) -> datetime | None:
    """People write times too: one without a zone could be anybody's."""
    written = answers.text(value, where, 64)
    if written and not (written.endswith(("Z", "z", "GMT")) or "+" in written[10:] or "-" in written[10:]):
        raise BadInputError(f"{where} names no time zone; write it like 2026-03-01T22:00:00Z.")
    return answers.moment(value, where)
