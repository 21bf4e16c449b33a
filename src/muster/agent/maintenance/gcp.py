"""Google Compute Engine: `maintenance-event`, `upcoming-maintenance` and `preempted` of the metadata server.

Fields: Compute Engine documentation, "Query metadata server for maintenance event notices" and "Monitor and plan for
a host maintenance event". The server spells fields with underscores, the API in camel case; both are read.
"""

from __future__ import annotations

import re
from typing import Any

from msgspec.structs import replace

from muster.agent.maintenance import answers
from muster.agent.maintenance.fetch import Answer, fetch
from muster.agent.maintenance.monitor import Heard
from muster.errors import BadInputError, UnreachableError
from muster.resources.node_health import Notice, NoticeKind, NoticeStatus

SOURCE = "gcp"
ENDPOINT = "http://169.254.169.254"
REQUESTS = 3
_INSTANCE = "/computeMetadata/v1/instance/"
_HEADERS = {"Metadata-Flavor": "Google"}
_EVENTS = {
    "NONE": None,
    "MIGRATE_ON_HOST_MAINTENANCE": NoticeKind.MIGRATE,
    "TERMINATE_ON_HOST_MAINTENANCE": NoticeKind.STOP,
}
_STATUSES = {
    "PENDING": NoticeStatus.SCHEDULED,
    "UNKNOWN": NoticeStatus.SCHEDULED,
    "": NoticeStatus.SCHEDULED,
    "ONGOING": NoticeStatus.STARTED,
    "COMPLETED": NoticeStatus.COMPLETED,
}
_KNOWN = {"maintenance_status", "window_start_time", "start_time", "window_end_time", "type", "can_reschedule"}


class GcpSource:
    """The metadata server at `endpoint`."""

    name = SOURCE

    def __init__(self, endpoint: str, timeout_s: float) -> None:
        self._endpoint = (endpoint or ENDPOINT).rstrip("/")
        self._timeout_s = timeout_s

    async def ask(self, _: frozenset[str]) -> Heard:
        upcoming = await self._get("upcoming-maintenance?alt=json")
        event = await self._get("maintenance-event")
        preempted = await self._get("preempted")
        planned = parse_upcoming(upcoming.body) if upcoming.status == 200 else None
        kind = parse_event(event.body) if event.status == 200 else None
        found = _together(planned, kind)
        if preempted.status == 200 and parse_preempted(preempted.body):
            found.append(_preemption())
        return Heard(tuple(found), event.at)

    async def _get(self, key: str) -> Answer:
        """The answer with status 200, or 404 for a key that this kind of machine does not have."""
        answer = await fetch(f"{self._endpoint}{_INSTANCE}{key}", _HEADERS, self._timeout_s)
        if answer.status not in (200, 404):
            raise UnreachableError(f"The metadata server answered {answer.status} to {key.partition('?')[0]}.")
        return answer


def _together(planned: Notice | None, kind: NoticeKind | None) -> list[Notice]:
    """The planned maintenance, begun if `maintenance-event` says so; without a plan that one stands for itself."""
    if planned is not None:
        if kind is None or planned.status is NoticeStatus.COMPLETED:
            return [planned]
        return [replace(planned, kind=kind, status=NoticeStatus.STARTED)]
    if kind is None:
        return []
    what = "moved to another host" if kind is NoticeKind.MIGRATE else "stopped for maintenance of its host"
    return [
        Notice(
            id="maintenance-event",
            source=SOURCE,
            kind=kind,
            status=NoticeStatus.STARTED,
            emergency=True,
            message=f"The machine is about to be {what}.",
        )
    ]


def _preemption() -> Notice:
    return Notice(
        id="preempted",
        source=SOURCE,
        kind=NoticeKind.TERMINATE,
        status=NoticeStatus.STARTED,
        emergency=True,
        message="The spot machine is taken back.",
    )


def parse_event(body: bytes) -> NoticeKind | None:
    """The answer to `maintenance-event`. Raises BadInputError."""
    word = body[:100].decode("latin-1").strip().strip('"')
    if word not in _EVENTS:
        raise BadInputError(f"maintenance-event is {word[:60]!r}, which is no word that it knows.")
    return _EVENTS[word]


def parse_preempted(body: bytes) -> bool:
    """The answer to `preempted`. Raises BadInputError."""
    word = body[:100].decode("latin-1").strip().strip('"').upper()
    if word not in ("TRUE", "FALSE"):
        raise BadInputError(f"preempted is {word[:60]!r} where TRUE or FALSE belongs.")
    return word == "TRUE"


def parse_upcoming(body: bytes) -> Notice | None:
    """The answer to `upcoming-maintenance?alt=json`; None when nothing is planned. Raises BadInputError."""
    if body.strip() in (b"", b"NONE"):
        return None
    entry = answers.read_json(body, "upcoming-maintenance")
    if entry == "NONE":
        return None
    if not isinstance(entry, dict):
        raise BadInputError("upcoming-maintenance is no object.")
    if len(entry) == 1 and isinstance(inner := next(iter(entry.values())), dict):
        entry = inner  # some answers name the whole once more
    fields = {re.sub(r"[A-Z]", lambda m: "_" + m.group().lower(), str(key)): value for key, value in entry.items()}
    if not fields or "error" in fields:
        return None  # "no notifications have been received yet"
    if not fields.keys() & _KNOWN:
        raise BadInputError("upcoming-maintenance holds nothing that it is known to hold.")
    return _planned(fields)


def _planned(fields: dict[str, Any]) -> Notice:
    status = answers.text(fields.get("maintenance_status"), "maintenance_status").upper()
    if status not in _STATUSES:
        raise BadInputError(f"maintenance_status is {status!r}, which is no status that it knows.")
    begins = answers.moment(fields.get("window_start_time", fields.get("start_time")), "window_start_time")
    latest = answers.moment(fields.get("latest_window_start_time"), "latest_window_start_time")
    kind = answers.text(fields.get("type"), "type of upcoming-maintenance").upper()
    reasons = fields.get("maintenance_reasons") or []
    if not isinstance(reasons, list):
        raise BadInputError("maintenance_reasons is no list.")
    why = ", ".join(answers.text(reason, "maintenance_reasons", 60) for reason in reasons[:8])
    movable = str(fields.get("can_reschedule", "")).lower() == "true"
    parts = [f"Host maintenance, {kind.lower() or 'of unknown type'}"]
    parts += [why] if why else []
    parts += [f"may be moved until {latest:%Y-%m-%d %H:%M} UTC"] if movable and latest is not None else []
    return Notice(
        id=f"upcoming-maintenance/{begins.isoformat() if begins is not None else ''}",
        source=SOURCE,
        kind=NoticeKind.STOP,
        status=_STATUSES[status],
        not_before=begins,
        ends_at=answers.moment(fields.get("window_end_time"), "window_end_time"),
        message=("; ".join(parts) + ".")[: answers.MAX_MESSAGE],
    )
