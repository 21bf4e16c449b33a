"""The monitor of one source of notices. It asks, follows what it heard, and remembers it over a restart."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from muster.agent.maintenance.standing import ENDED, Standing, follow, keep, restore, told
from muster.agent.monitor import Look, NodeFacts
from muster.plain_text import counted
from muster.resources.node_health import Notice


@dataclass(frozen=True)
class Heard:
    """Every notice that the owner names now, and the owner's own time, where it tells one."""

    notices: tuple[Notice, ...]
    at: datetime | None = None


class NoticeSource(Protocol):
    """Where notices come from."""

    name: str
    """`Notice.source` of all of them."""

    async def ask(self, standing: frozenset[str], /) -> Heard:
        """All notices of this moment. `standing` are the ids of those that have not ended so far.

        Raises OSError or MusterError when the owner cannot be asked or its answer cannot be read: then nobody knows,
        and what stood stands.
        """
        ...


class NoticeMonitor:
    """A `Monitor` over one `NoticeSource`."""

    def __init__(self, source: NoticeSource, interval_s: float, deadline_s: float) -> None:
        self.name = f"maintenance-{source.name}"
        self.interval_s = interval_s
        self.deadline_s = deadline_s
        self._source = source
        self._standing: tuple[Standing, ...] = ()

    async def look(self, facts: NodeFacts, now: datetime) -> Look:  # noqa: ARG002 - the interface of monitors
        """Raises what the source raises; the notices that stood are not touched then."""
        open_ids = frozenset(s.notice.id for s in self._standing if s.notice.status not in ENDED)
        heard = await self._source.ask(open_ids)
        # A node whose clock is wrong must not take an event that is still to come for one that is over.
        at = heard.at or now
        self._standing = follow(self._standing, heard.notices, at)
        found = told(self._standing, at)
        unknown: tuple[str, ...] = ()
        if found.left_out:
            unknown = (f"{counted(found.left_out, 'notice')} more than can be told were left out",)
        return Look(notices=found.notices, unknown=unknown)

    def keep(self) -> str:
        return keep(self._standing) if self._standing else ""

    def restore(self, kept: str) -> None:
        self._standing = restore(kept)

    async def close(self) -> None:
        """Nothing stays open between looks."""
