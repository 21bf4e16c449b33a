"""Conditions that other agents set on the node's own Node object (node-problem-detector, device plugins, kubelet).

A condition is what somebody wrote at some time. Without a fresh heartbeat it says nothing of now, with one exception:
some writers latch a condition until the next boot and never renew it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from muster.agent.monitor import Look, NodeFacts
from muster.agent.plugins.config import ConditionConfig, NodeConditionsConfig, PluginConfig
from muster.agent.sources import Probe
from muster.kube.api import NODES, KubeApi
from muster.plain_text import plain
from muster.resources.base import ConditionStatus
from muster.resources.fault import Entity, EntityKind

CHECK = "node-condition"
MAX_MESSAGE = 400
_BOOT_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z0-9]+|[0-9]+")


class NodeConditionsMonitor:
    """Reads the node's own Node object."""

    def __init__(self, plugin: PluginConfig, config: NodeConditionsConfig, api: KubeApi, node: str) -> None:
        self.name = f"plugin-{plugin.name}"
        self.interval_s, self.deadline_s = plugin.interval_s, plugin.timeout_s
        self._config = config
        self._api = api
        self._node = node

    async def look(self, facts: NodeFacts, now: datetime) -> Look:
        node = await self._api.get(NODES, self._node)
        return Look(probes=judge(self.name, self._config, node, facts, now))

    def keep(self) -> str:
        return ""

    def restore(self, kept: str) -> None:  # noqa: ARG002 - nothing is kept
        return None

    async def close(self) -> None:
        return None


def code_of(condition_type: str) -> str:
    """`XidCriticalError` -> `xid-critical-error`, `example.com/GPUBad` -> `example-com-gpu-bad`."""
    return "-".join(word.lower() for word in _WORDS.findall(condition_type)) or "condition"


def judge(
    source: str, config: NodeConditionsConfig, node: Mapping[str, Any], facts: NodeFacts, now: datetime
) -> tuple[Probe, ...]:
    """A probe for each configured condition. Pure; `node` is the Node object as the API server gave it."""
    status = node.get("status")
    listed = status.get("conditions") if isinstance(status, dict) else None
    found = {
        str(item.get("type")): item for item in (listed if isinstance(listed, list) else []) if isinstance(item, dict)
    }
    return tuple(_probe(source, config, wanted, found.get(wanted.type), facts, now) for wanted in config.conditions)


def _probe(
    source: str,
    config: NodeConditionsConfig,
    wanted: ConditionConfig,
    found: Mapping[str, Any] | None,
    facts: NodeFacts,
    now: datetime,
) -> Probe:
    healthy, message = _told(config, wanted, found, facts, now)
    return Probe(
        source=source,
        check=CHECK,
        code=code_of(wanted.type),
        entity=Entity(kind=EntityKind.NODE),
        healthy=healthy,
        severity=wanted.severity,
        scope=wanted.scope,
        hint=wanted.hint,
        message=plain(message, MAX_MESSAGE),
    )


def _told(
    config: NodeConditionsConfig,
    wanted: ConditionConfig,
    found: Mapping[str, Any] | None,
    facts: NodeFacts,
    now: datetime,
) -> tuple[bool | None, str]:
    """What the condition says of now: healthy, faulty or unknown, and the words for it."""
    if found is None:
        return None, f"nobody has set the condition {wanted.type} on the Node"
    said = str(found.get("status"))
    text = str(found.get("message") or "").strip()
    reason = str(found.get("reason") or "")
    if said not in (ConditionStatus.TRUE, ConditionStatus.FALSE):
        return None, f"the condition {wanted.type} has the status {plain(said, 40)}"
    unhealthy = said == wanted.unhealthy_status
    since = _time(found.get("lastTransitionTime"))
    words = f"{wanted.type} is {said}: {reason} {text}"
    if wanted.latched or _BOOT_ID.fullmatch(text.lower()):
        # The writer names the boot of which it speaks, and never takes it back: the boot does.
        other_boot = _BOOT_ID.fullmatch(text.lower()) is not None and text.lower() != facts.boot_id.lower()
        if unhealthy and other_boot:
            return True, ""
        if unhealthy and since is not None and facts.booted_at is not None and since < facts.booted_at:
            return None, f"{wanted.type} was set before the node booted, and not since"
        return not unhealthy, f"{words} (latched {_when(since)} until the next boot)" if unhealthy else ""
    heartbeat = _time(found.get("lastHeartbeatTime")) or since
    if heartbeat is None or now - heartbeat > timedelta(seconds=config.stale_s):
        return None, f"nobody has renewed the condition {wanted.type} {_when(heartbeat)}"
    return not unhealthy, words if unhealthy else ""


def _when(at: datetime | None) -> str:
    return f"since {at:%Y-%m-%d %H:%M:%S} UTC" if at is not None else "at any told time"


def _time(value: object) -> datetime | None:
    if not isinstance(value, str):
        return None
    try:
        at = datetime.fromisoformat(value.replace("Z", "+00:00"))
    except ValueError:
        return None
    return at if at.tzinfo is not None else at.replace(tzinfo=UTC)
