"""Azure Scheduled Events of the instance metadata service.

Fields: Azure documentation, "Azure Metadata Service: Scheduled Events". The list is that of the whole scale set or
availability set; only events whose `Resources` name this machine count.
"""

from __future__ import annotations

from typing import Any

from muster.agent.maintenance import answers
from muster.agent.maintenance.fetch import fetch
from muster.agent.maintenance.monitor import Heard
from muster.errors import BadInputError, UnreachableError
from muster.moments import after
from muster.resources.node_health import Notice, NoticeKind, NoticeStatus

SOURCE = "azure"
ENDPOINT = "http://169.254.169.254"
REQUESTS = 2
_HEADERS = {"Metadata": "true"}
_EVENTS = "/metadata/scheduledevents?api-version=2020-07-01"
_NAME = "/metadata/instance/compute/name?api-version=2021-02-01&format=text"
_KINDS = {
    "reboot": NoticeKind.REBOOT,
    "redeploy": NoticeKind.MIGRATE,
    "freeze": NoticeKind.FREEZE,
    "preempt": NoticeKind.TERMINATE,
    "terminate": NoticeKind.TERMINATE,
}
_STATUSES = {
    "scheduled": NoticeStatus.SCHEDULED,
    "started": NoticeStatus.STARTED,
    "completed": NoticeStatus.COMPLETED,
    "canceled": NoticeStatus.CANCELLED,
}


class AzureSource:
    """The metadata service at `endpoint`."""

    name = SOURCE

    def __init__(self, endpoint: str, timeout_s: float) -> None:
        self._endpoint = (endpoint or ENDPOINT).rstrip("/")
        self._timeout_s = timeout_s
        self._machine = ""

    async def ask(self, _: frozenset[str]) -> Heard:
        if not self._machine:
            self._machine = await self._own_name()
        answer = await fetch(self._endpoint + _EVENTS, _HEADERS, self._timeout_s)
        if answer.status != 200:
            raise UnreachableError(f"The metadata service answered {answer.status} to scheduledevents.")
        return Heard(parse_events(answer.body, self._machine), answer.at)

    async def _own_name(self) -> str:
        """The name under which events list this machine; it never changes while the machine lives."""
        answer = await fetch(self._endpoint + _NAME, _HEADERS, self._timeout_s)
        if answer.status != 200:
            raise UnreachableError(f"The metadata service answered {answer.status} to the name of the machine.")
        return answers.identifier(answer.body.decode("utf-8", errors="replace").strip(), "Name of the machine")


def parse_events(body: bytes, machine: str) -> tuple[Notice, ...]:
    """The events that concern `machine`. Raises BadInputError."""
    document = answers.read_json(body, "The list of scheduled events")
    if not isinstance(document, dict) or not isinstance(document.get("Events"), list):
        raise BadInputError("The list of scheduled events has no Events.")
    found = (_event(entry, machine) for entry in document["Events"])
    return tuple(notice for notice in found if notice is not None)


def _event(entry: Any, machine: str) -> Notice | None:
    if not isinstance(entry, dict):
        raise BadInputError("A scheduled event is no object.")
    resources = entry.get("Resources")
    if not isinstance(resources, list):
        raise BadInputError("A scheduled event has no list of Resources.")
    if not any(isinstance(name, str) and name.casefold() == machine.casefold() for name in resources):
        return None
    what = answers.text(entry.get("EventType"), "EventType of a scheduled event")
    state = answers.text(entry.get("EventStatus"), "EventStatus of a scheduled event")
    if state.casefold() not in _STATUSES:
        raise BadInputError(f"A scheduled event is in the unknown status {state!r}.")
    begins = answers.moment(entry.get("NotBefore"), "NotBefore of a scheduled event")
    lasts_s = answers.whole_number(entry.get("DurationInSeconds", -1), "DurationInSeconds of a scheduled event")
    by = answers.text(entry.get("EventSource"), "EventSource of a scheduled event", 40)
    description = answers.text(entry.get("Description"), "Description of a scheduled event", 200)
    known = 0 <= lasts_s <= 366 * 24 * 3600
    return Notice(
        id=answers.identifier(entry.get("EventId"), "EventId of a scheduled event"),
        source=SOURCE,
        kind=_KINDS.get(what.casefold(), NoticeKind.OTHER),
        status=_STATUSES[state.casefold()],
        not_before=begins,
        ends_at=after(begins, lasts_s) if begins is not None and known else None,
        emergency=what.casefold() == "preempt",
        message=f"{what}{f' by {by}' if by else ''}{f': {description}' if description else ''}"[
            : answers.MAX_MESSAGE
        ],
    )
