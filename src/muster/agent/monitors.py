"""The state of the agent's monitors: each degrades alone, and says why."""

from __future__ import annotations

from muster.plain_text import plain
from muster.resources.node_health import MonitorState, MonitorStatus

MAX_MESSAGE = 300


class Monitors:
    """One entry per monitor, in the order of their names."""

    def __init__(self, *names: str) -> None:
        self._messages: dict[str, str] = dict.fromkeys(names, "")

    def ok(self, name: str) -> None:
        self._messages[name] = ""

    def degraded(self, name: str, message: str) -> None:
        """`message` says what cannot be seen now, and why."""
        self._messages[name] = plain(message, MAX_MESSAGE) or "unknown error"

    def is_ok(self, name: str) -> bool:
        return not self._messages[name]

    def statuses(self) -> tuple[MonitorStatus, ...]:
        return tuple(
            MonitorStatus(name=name, state=MonitorState.DEGRADED if message else MonitorState.OK, message=message)
            for name, message in sorted(self._messages.items())
        )
