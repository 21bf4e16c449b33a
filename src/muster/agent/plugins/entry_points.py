"""Monitors in Python from other packages: entry points of the group `muster.monitors`.

An entry point is a function `make(options, root, clock) -> Monitor`. It is loaded only when the configuration names
it, runs in the agent's own process, and must not block. What is wrong with it is told as the state of its monitor.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from muster.agent.monitor import Look, Monitor, NodeFacts
from muster.agent.plugins.config import EntryPointConfig, PluginConfig
from muster.agent.sources import Probe
from muster.clock import Clock
from muster.errors import BadInputError, MusterError
from muster.faults.assembly import Sighting
from muster.faults.sighting import MAX_NAME_CHARACTERS, fit
from muster.plain_text import plain
from muster.resources.node_health import GpuAssignment, Notice

GROUP = "muster.monitors"
MAX_FINDINGS = 256
"""Probes, and sightings, of one look."""
MAX_UNKNOWN = 16
MAX_MESSAGE = 512
MAX_KEPT = 64 * 1024

T = TypeVar("T")
Make = Callable[[dict[str, Any], Path, Clock], Monitor]


class PluginError(MusterError):
    """A plugin did not do what a monitor does; the sentence names it and what it did."""


def find(name: str) -> Make:
    """The function of the entry point `name`. Raises BadInputError when there is none; loading raises anything."""
    from importlib.metadata import entry_points

    found = [point for point in entry_points(group=GROUP) if point.name == name]
    if not found:
        known = ", ".join(sorted(point.name for point in entry_points(group=GROUP))) or "none"
        raise BadInputError(f"No installed package has the monitor {name!r} (group {GROUP}); there are: {known}.")
    made: Make = found[0].load()
    return made


def load(plugin: PluginConfig, root: Path, clock: Clock, find: Callable[[str], Make] = find) -> Monitor:
    """The plugin's monitor, or one that says why there is none."""
    assert plugin.entry_point is not None  # noqa: S101 - the caller chose by kind
    return PluginMonitor(plugin, plugin.entry_point, root, clock, find)


class PluginMonitor:
    """Holds somebody else's monitor: its errors are sentences, and what it says is bounded and under its own name."""

    def __init__(
        self,
        plugin: PluginConfig,
        point: EntryPointConfig,
        root: Path,
        clock: Clock,
        find: Callable[[str], Make],
    ) -> None:
        self.name = f"plugin-{plugin.name}"
        self.interval_s, self.deadline_s = plugin.interval_s, plugin.timeout_s
        self._inner: Monitor | None = None
        self._broken = ""
        try:
            self._inner = find(point.name)(dict(point.options), root, clock)
        except Exception as error:  # a plugin may raise anything
            self._broken = _words(error)

    async def look(self, facts: NodeFacts, now: datetime) -> Look:
        """Raises PluginError for anything that the plugin raises."""
        if self._inner is None:
            raise PluginError(f"The plugin {self.name} cannot be loaded: {self._broken}")
        try:
            look = await self._inner.look(facts, now)
        except Exception as error:  # a plugin may raise anything
            raise PluginError(f"The plugin {self.name} failed: {_words(error)}") from error
        if not isinstance(look, Look):
            raise PluginError(f"The plugin {self.name} gave a {type(look).__name__} and no Look.")
        return self._bounded(look)

    def _bounded(self, look: Look) -> Look:
        probes = tuple(self._probe(probe) for probe in look.probes[:MAX_FINDINGS])
        sightings = tuple(self._sighting(seen) for seen in look.sightings[:MAX_FINDINGS])
        if look.notices is not None or look.assignments is not None:
            look = dataclasses.replace(look, notices=self._notices(look), assignments=self._assignments(look))
        unknown = [plain(str(words), MAX_MESSAGE) for words in look.unknown[:MAX_UNKNOWN]]
        left_out = len(look.probes) - len(probes) + len(look.sightings) - len(sightings)
        if left_out:
            unknown.append(f"{left_out} findings beyond the first {MAX_FINDINGS} were left out")
        return dataclasses.replace(look, probes=probes, sightings=sightings, unknown=tuple(unknown))

    def _probe(self, probe: object) -> Probe:
        if not isinstance(probe, Probe):
            raise PluginError(f"The plugin {self.name} gave a {type(probe).__name__} among its probes.")
        whole = self._checked(probe, Probe)
        return dataclasses.replace(whole, source=self.name, message=plain(whole.message, MAX_MESSAGE))

    def _sighting(self, seen: object) -> Sighting:
        if not isinstance(seen, Sighting):
            raise PluginError(f"The plugin {self.name} gave a {type(seen).__name__} among its sightings.")
        whole = self._checked(seen, Sighting)
        if whole.at.tzinfo is None or (whole.since is not None and whole.since.tzinfo is None):
            raise PluginError(f"The plugin {self.name} gave a time without a time zone.")
        return msgspec.structs.replace(whole, source=self.name, message=plain(whole.message, MAX_MESSAGE))

    def _checked(self, value: T, kind: type[T]) -> T:
        """The value, if its fields are what they should be: Python does not look, and the API server would refuse."""
        try:
            return msgspec.json.decode(msgspec.json.encode(value), type=kind)
        except (msgspec.MsgspecError, TypeError, ValueError) as error:
            raise PluginError(f"The plugin {self.name} gave a {kind.__name__} that is none: {error}.") from error

    def _notices(self, look: Look) -> tuple[Notice, ...] | None:
        if look.notices is None:
            return None
        whole = (self._checked(notice, Notice) for notice in look.notices[:MAX_FINDINGS])
        return tuple(
            msgspec.structs.replace(
                notice,
                id=fit(notice.id, MAX_NAME_CHARACTERS),
                source=fit(notice.source, MAX_NAME_CHARACTERS),
                message=plain(notice.message, MAX_MESSAGE),
            )
            for notice in whole
        )

    def _assignments(self, look: Look) -> tuple[GpuAssignment, ...] | None:
        if look.assignments is None:
            return None
        whole = (self._checked(held, GpuAssignment) for held in look.assignments)
        return tuple(
            GpuAssignment(
                pod_uid=fit(held.pod_uid, MAX_NAME_CHARACTERS),
                pod=fit(held.pod, MAX_MESSAGE),
                gpus=tuple(fit(uuid, MAX_NAME_CHARACTERS) for uuid in held.gpus[:MAX_FINDINGS]),
            )
            for held in whole
        )

    def keep(self) -> str:
        try:
            kept: object = self._inner.keep() if self._inner is not None else ""
        except Exception:  # a plugin may raise anything
            return ""
        return kept if isinstance(kept, str) and len(kept) <= MAX_KEPT else ""

    def restore(self, kept: str) -> None:
        try:
            if self._inner is not None:
                self._inner.restore(kept)
        except Exception as error:  # a plugin may raise anything
            self._inner, self._broken = None, f"it cannot go on from what it kept: {_words(error)}"

    async def close(self) -> None:
        try:
            if self._inner is not None:
                await self._inner.close()
        except Exception:  # a plugin may raise anything, and the agent ends anyway
            return


def _words(error: Exception) -> str:
    return plain(f"{type(error).__name__}: {error}", 300)
