"""A monitor of one's own: a file tells that somebody works on the machine."""

# ruff: noqa: ARG001, ARG002 - the signatures are those that the agent calls

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

from muster.agent.monitor import Look, NodeFacts
from muster.agent.sources import Probe
from muster.clock import Clock
from muster.errors import BadInputError
from muster.resources.fault import Entity, EntityKind, Hint, Scope, Severity


class SiteMonitor:
    """Faulty while the file exists; its first line is the message."""

    # The agent gives the monitor the name and the times of its configuration.
    name, interval_s, deadline_s = "site", 60.0, 10.0

    def __init__(self, file: Path) -> None:
        self._file = file

    async def look(self, facts: NodeFacts, now: datetime) -> Look:
        try:
            with self._file.open(encoding="utf-8", errors="replace") as file:
                message, present = file.readline(512), True
        except FileNotFoundError:
            message, present = "", False
        # Any other OSError goes to the agent: the monitor is degraded, and the fault stays as it was.
        probe = Probe(
            source=self.name,
            check="site",
            code="site-work",
            entity=Entity(kind=EntityKind.NODE),
            healthy=not present,
            severity=Severity.WARNING,
            scope=Scope.NODE,
            hint=Hint.INSPECT,
            message=message or "somebody works on this machine",
        )
        # A healthy probe is what closes the fault, so it is given at every look.
        return Look(probes=(probe,))

    def keep(self) -> str:
        return ""

    def restore(self, kept: str) -> None:
        return None

    async def close(self) -> None:
        return None


def make(options: dict[str, Any], root: Path, clock: Clock) -> SiteMonitor:
    """The entry point. `root` is where the node's file system is mounted."""
    file = options.get("file")
    if not isinstance(file, str) or not file.startswith("/"):
        raise BadInputError("The site monitor needs the option 'file', an absolute path.")
    return SiteMonitor(root / file.lstrip("/"))
