"""EC2: scheduled events, spot interruption and rebalance recommendation from the instance metadata service (IMDSv2).

Fields and codes: EC2 User Guide, "Scheduled events for your instances" and "Instance metadata categories".
"""

from __future__ import annotations

from typing import Any

from muster.agent.maintenance import answers
from muster.agent.maintenance.fetch import Answer, fetch
from muster.agent.maintenance.monitor import Heard
from muster.errors import BadInputError, UnreachableError
from muster.resources.node_health import Notice, NoticeKind, NoticeStatus

SOURCE = "aws"
ENDPOINT = "http://169.254.169.254"
TOKEN_TTL_S = 21600
"""The longest that the service grants (six hours)."""
REQUESTS = 7
"""At most for one look: a token, four categories, a fresh token and one of them again."""
_META = "/latest/meta-data/"
_SCHEDULED, _HISTORY = "events/maintenance/scheduled", "events/maintenance/history"
_SPOT, _REBALANCE = "spot/instance-action", "events/recommendations/rebalance"

_KINDS = {
    "instance-reboot": NoticeKind.REBOOT,
    "system-reboot": NoticeKind.REBOOT,
    "system-maintenance": NoticeKind.OTHER,
    "instance-retirement": NoticeKind.TERMINATE,
    "instance-stop": NoticeKind.STOP,
}
_STATES = {
    "active": NoticeStatus.SCHEDULED,
    "completed": NoticeStatus.COMPLETED,
    "canceled": NoticeStatus.CANCELLED,
    "cancelled": NoticeStatus.CANCELLED,
}


class AwsSource:
    """The metadata service at `endpoint`."""

    name = SOURCE

    def __init__(self, endpoint: str, timeout_s: float) -> None:
        self._endpoint = (endpoint or ENDPOINT).rstrip("/")
        self._timeout_s = timeout_s
        self._token = ""

    async def ask(self, standing: frozenset[str]) -> Heard:
        scheduled = await self._get(_SCHEDULED)
        found = list(parse_events(scheduled.body)) if scheduled.status == 200 else []
        spot = await self._get(_SPOT)
        if spot.status == 200:
            found.append(parse_spot(spot.body))
        rebalance = await self._get(_REBALANCE)
        if rebalance.status == 200:
            found.append(parse_rebalance(rebalance.body))
        named = {notice.id for notice in found}
        if any(known not in named and known.startswith("instance-event-") for known in standing):
            history = await self._get(_HISTORY)
            past = parse_events(history.body) if history.status == 200 else ()
            found += [notice for notice in past if notice.id in standing and notice.id not in named]
        return Heard(tuple(found), scheduled.at)

    async def _get(self, category: str) -> Answer:
        """The answer with status 200, or 404 for "there is none"."""
        if not self._token:
            self._token = await self._new_token()
        answer = await self._with_token(category)
        if answer.status == 401:
            self._token = await self._new_token()
            answer = await self._with_token(category)
        if answer.status not in (200, 404):
            raise UnreachableError(f"The metadata service answered {answer.status} to {category}.")
        return answer

    async def _with_token(self, category: str) -> Answer:
        headers = {"X-aws-ec2-metadata-token": self._token}
        return await fetch(f"{self._endpoint}{_META}{category}", headers, self._timeout_s)

    async def _new_token(self) -> str:
        headers = {"X-aws-ec2-metadata-token-ttl-seconds": str(TOKEN_TTL_S)}
        answer = await fetch(f"{self._endpoint}/latest/api/token", headers, self._timeout_s, method="PUT")
        if answer.status != 200:
            raise UnreachableError(
                f"The metadata service answered {answer.status} instead of a token; allow two hops to it."
            )
        token = answer.body.decode("latin-1").strip()
        if not token.isascii() or not token.isprintable() or not 0 < len(token) <= 512:
            raise BadInputError("The metadata service gave no usable token.")
        return token


def parse_events(body: bytes) -> tuple[Notice, ...]:
    """The answer to `events/maintenance/scheduled` or `history`. Raises BadInputError."""
    entries = answers.read_json(body, "The list of scheduled events") if body.strip() else []
    if not isinstance(entries, list):
        raise BadInputError("The list of scheduled events is no list.")
    return tuple(_event(entry) for entry in entries)


def _event(entry: Any) -> Notice:
    if not isinstance(entry, dict):
        raise BadInputError("A scheduled event is no object.")
    code = answers.text(entry.get("Code"), "Code of a scheduled event")
    state = answers.text(entry.get("State"), "State of a scheduled event")
    if state not in _STATES:
        raise BadInputError(f"A scheduled event is in the unknown state {state!r}.")
    begins = answers.moment(entry.get("NotBefore"), "NotBefore of a scheduled event")
    description = answers.text(entry.get("Description"), "Description of a scheduled event", answers.MAX_MESSAGE)
    # Events of old had no id: code and time stand for one.
    own = entry.get("EventId") or f"{code}/{begins.isoformat() if begins else ''}"
    status = _STATES[state]
    lowered = description.lower()
    if lowered.startswith(("[canceled]", "[cancelled]")):
        status = NoticeStatus.CANCELLED
    elif lowered.startswith("[completed]"):
        status = NoticeStatus.COMPLETED
    latest = answers.moment(entry.get("NotBeforeDeadline"), "NotBeforeDeadline of a scheduled event")
    until = f" May be moved until {latest:%Y-%m-%d %H:%M} UTC." if latest is not None else ""
    return Notice(
        id=answers.identifier(own, "EventId of a scheduled event"),
        source=SOURCE,
        kind=_kind(code, lowered),
        status=status,
        not_before=begins,
        ends_at=answers.moment(entry.get("NotAfter"), "NotAfter of a scheduled event"),
        message=f"{code}: {description}.{until}"[: answers.MAX_MESSAGE],
    )


def _kind(code: str, description: str) -> NoticeKind:
    if code == "system-maintenance":
        if "network" in description:
            return NoticeKind.NETWORK
        if "power" in description:
            return NoticeKind.POWER
    return _KINDS.get(code, NoticeKind.OTHER)


def parse_spot(body: bytes) -> Notice:
    """The answer to `spot/instance-action`: two minutes of notice. Raises BadInputError."""
    entry = answers.read_json(body, "The spot notice")
    if not isinstance(entry, dict):
        raise BadInputError("The spot notice is no object.")
    action = answers.text(entry.get("action"), "action of the spot notice")
    return Notice(
        id="spot-instance-action",
        source=SOURCE,
        kind=NoticeKind.TERMINATE if action == "terminate" else NoticeKind.STOP,
        status=NoticeStatus.SCHEDULED,
        not_before=answers.moment(entry.get("time"), "time of the spot notice"),
        emergency=True,
        message=f"The spot instance is taken back ({action}).",
    )


def parse_rebalance(body: bytes) -> Notice:
    """The answer to `events/recommendations/rebalance`: a warning without a time of its own. Raises BadInputError."""
    entry = answers.read_json(body, "The rebalance recommendation")
    if not isinstance(entry, dict):
        raise BadInputError("The rebalance recommendation is no object.")
    since = answers.moment(entry.get("noticeTime"), "noticeTime of the rebalance recommendation")
    told = f" since {since:%Y-%m-%d %H:%M} UTC" if since is not None else ""
    return Notice(
        id="rebalance-recommendation",
        source=SOURCE,
        kind=NoticeKind.OTHER,
        status=NoticeStatus.SCHEDULED,
        message=f"The spot instance is at a higher risk of being taken back{told}.",
    )
