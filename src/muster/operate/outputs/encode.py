"""Events in the words of those who receive them: CloudEvents 1.0, a signed webhook, chat messages. Pure.

CloudEvents: https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/formats/json-format.md
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from muster.operate.outputs.event import WEIGHTS, FleetEvent, Weight

EVENT_CONTENT_TYPE = "application/cloudevents+json; charset=utf-8"
BATCH_CONTENT_TYPE = "application/cloudevents-batch+json; charset=utf-8"
SIGNATURE_HEADER = "Muster-Signature"
SHOWN_LINES = 10
"""Lines of one chat message; a burst of hundreds is one message with a count, not hundreds of messages."""
CHAT_LIMIT = 3000
"""Characters of one message; Slack cuts text blocks there."""


def cloudevent(event: FleetEvent, cluster: str) -> dict[str, Any]:
    """The event in the JSON format of CloudEvents. Its ID is that of the event: a second delivery is recognisable."""
    found: dict[str, Any] = {
        "specversion": "1.0",
        "id": event.id,
        "source": f"/muster/{cluster}" if cluster else "/muster",
        "type": f"dev.muster.node.{event.type.value}",
        "subject": event.node,
        "time": moment(event.at),
        "datacontenttype": "application/json",
        "data": data(event),
    }
    return found


def data(event: FleetEvent) -> dict[str, Any]:
    """What an event says, as plain JSON values."""
    return {
        "node": event.node,
        "at": moment(event.at),
        "type": event.type.value,
        "weight": event.weight.value,
        "before": event.before,
        "state": event.state,
        "cause": {"kind": event.cause.value, "name": event.cause_name, "message": event.message},
        "episode": event.episode,
        "domain": event.domain,
        "pool": event.pool,
        "next": event.next,
    }


def webhook_body(events: Sequence[FleetEvent], cluster: str) -> bytes:
    """All events in one JSON object."""
    return _json({"cluster": cluster, "events": [{"id": event.id, **data(event)} for event in events]})


def event_body(event: FleetEvent, cluster: str) -> bytes:
    return _json(cloudevent(event, cluster))


def batch_body(events: Sequence[FleetEvent], cluster: str) -> bytes:
    return _json([cloudevent(event, cluster) for event in events])


def signature(secret: bytes, body: bytes, at: datetime) -> str:
    """Value of the signature header: `t=<Unix time>,v1=<HMAC-SHA256 over "<time>.<body>", hexadecimal>`."""
    seconds = str(int(at.timestamp()))
    digest = hmac.new(secret, seconds.encode() + b"." + body, hashlib.sha256).hexdigest()
    return f"t={seconds},v1={digest}"


def chat_body(events: Sequence[FleetEvent], cluster: str) -> bytes:
    """One message for people: the weightiest events first, the rest counted."""
    ranked = sorted(events, key=lambda e: (-WEIGHTS.index(e.weight), e.at, e.node))
    lines = [_line(event) for event in ranked[:SHOWN_LINES]]
    rest = Counter(event.type.value for event in ranked[SHOWN_LINES:])
    if rest:
        lines.append("and " + ", ".join(f"{count} more of type {name}" for name, count in sorted(rest.items())))
    head = f"*{escaped(cluster)}*\n" if cluster else ""
    return _json({"text": (head + "\n".join(lines))[:CHAT_LIMIT]})


def _line(event: FleetEvent) -> str:
    mark = {Weight.INFO: "", Weight.WARNING: "Warning: ", Weight.ATTENTION: "A person must decide: "}[event.weight]
    return f"{mark}{escaped(event.sentence())}"


def escaped(text: str) -> str:
    """Text in which nothing is a link, a mention or markup: what it says came from machines that may lie."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def moment(at: datetime) -> str:
    """RFC 3339 in UTC."""
    return at.isoformat().replace("+00:00", "Z")


def _json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
