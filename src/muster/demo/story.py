"""The acceptance story, played: fleet, agents and controllers live until everything has settled; then the outcome."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from itertools import pairwise

from muster.clock import Clock
from muster.demo import chapters
from muster.demo.cluster import POLICY, Cluster, build
from muster.demo.narrator import Narrator
from muster.demo.outcome import (
    FleetRow,
    Line,
    Named,
    Outcome,
    Planted,
    named_by_certifications,
    named_by_faults,
)
from muster.demo.view import Cell, Scene
from muster.operate.budget import allowance
from muster.operate.explain import Explanation, explain
from muster.operate.fleet_usage import is_out
from muster.operate.goodput_report import goodput_values
from muster.resources.fault_policy import Budget
from muster.resources.node_health import NodeHealth, State
from muster.sim.fleet import FleetEvent
from muster.sim.plant import Plant

PATIENCE_S = 36 * 3600.0
"""Simulated time after the plant's last event in which everything must settle. A replacement takes two hours, and a
roll-out over 64 nodes in waves of seven some ten hours."""

CHECK_S = 60.0
CHECKS = 5
"""The story is over when nothing has moved for this many checks in a row."""

TOLD_EVENTS = {"defect": "(the plant) ", "update": "(the plant) ", "job": ""}
"""Kinds of fleet events that the narration repeats, and how they begin; the rest shows in what Muster does."""

LINES_KEPT = 20_000

Controller = Callable[[Cluster, Clock], Awaitable[None]]
"""Runs the controllers for ever: in this process, or as processes of their own."""


@dataclass
class _Log:
    lines: list[Line]
    show: Callable[[Line], None]

    def say(self, line: Line) -> None:
        if len(self.lines) < LINES_KEPT:
            self.lines.append(line)
        self.show(line)


class Story:
    """One play of `plant`. `show` is told of each line as it happens."""

    def __init__(self, plant: Plant, clock: Clock, cluster: Cluster, show: Callable[[Line], None]) -> None:
        self._plant = plant
        self._clock = clock
        self._start = clock.now()
        self.cluster = cluster
        self._log = _Log([], show)
        self._narrator = Narrator(cluster.api, clock, self._log.say, self.chapter)
        cluster.listeners.append(self._fleet_event)

    def chapter(self) -> str:
        return chapters.chapter(self._plant, self._start, self._clock.now(), self._healths())

    def scene(self) -> Scene:
        """The picture of this moment."""
        busy = self._narrator.recorder.busy_nodes()
        healths = self._healths()
        domains: dict[str, list[Cell]] = {}
        for name, node in self.cluster.world.nodes.items():
            health = healths.get(name)
            life = health.status.lifecycle if health is not None else None
            cell = Cell(name, life.state if life is not None else None, name in busy)
            domains.setdefault(node.domain, []).append(cell)
        budget = POLICY.spec.budget or Budget()
        return Scene(
            now=self._clock.now(),
            start=self._start,
            chapter=self.chapter(),
            domains=tuple((domain, tuple(cells)) for domain, cells in domains.items()),
            out=sum(1 for h in healths.values() if h.status.lifecycle is not None and is_out(h.status.lifecycle)),
            allowed=allowance(budget.max_disrupted, self._plant.nodes),
        )

    async def play(self, controller: Controller) -> Outcome:
        """Play to the end. Raises the first unexpected error of any part."""
        parts = [
            asyncio.create_task(self.cluster.fleet.run()),
            asyncio.create_task(self._narrator.run()),
            asyncio.ensure_future(controller(self.cluster, self._clock)),
        ]
        end = asyncio.create_task(self._settled())
        try:
            done, _ = await asyncio.wait([*parts, end], return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
            if end not in done:
                raise RuntimeError("a part of the demo ended that should run for ever")
            stuck = end.result()
            return self._outcome(stuck)
        finally:
            for task in (*parts, end):
                task.cancel()
            await asyncio.gather(*parts, end, return_exceptions=True)

    async def _settled(self) -> tuple[str, ...]:
        """Wait for the end. Returns what had not settled when patience ran out, else nothing."""
        limit = self._start + timedelta(seconds=self._plant.last_event_s() + PATIENCE_S)
        quiet = 0
        while quiet < CHECKS:
            now = self._clock.now()
            healths = self._healths()
            if now >= limit:
                return tuple(chapters.unsettled(healths, self._plant.nodes)) or ("A certification is still open.",)
            is_over = chapters.over(self._plant, self._start, now, healths, self._narrator.certifications())
            quiet = quiet + 1 if is_over else 0
            await self._clock.sleep(CHECK_S)
        return ()

    def _healths(self) -> dict[str, NodeHealth]:
        return dict(self._narrator.recorder.healths.items())

    def _fleet_event(self, event: FleetEvent) -> None:
        if event.kind in TOLD_EVENTS:
            self._narrator.tell(event.node, f"{TOLD_EVENTS[event.kind]}{event.message}")

    def _outcome(self, stuck: tuple[str, ...]) -> Outcome:
        now = self._clock.now()
        healths = self._healths()
        records = self._narrator.recorder.records()
        named = [*named_by_certifications(self._narrator.certifications()), *named_by_faults(healths.values())]
        planted = tuple(Planted(tuple(sorted(defect.nodes())), defect.sentence()) for defect in self._plant.defects)
        return Outcome(
            seed=self._plant.seed,
            start=self._start,
            end=now,
            fleet=tuple(
                _row(name, node.domain, healths.get(name)) for name, node in self.cluster.world.nodes.items()
            ),
            planted=planted,
            named=tuple(named),
            goodput=goodput_values(records, self._start, now),
            records=records,
            explanations=self._explanations(healths, planted, tuple(named)),
            lines=tuple(self._log.lines),
            stuck=stuck,
        )

    def _explanations(
        self, healths: dict[str, NodeHealth], planted: tuple[Planted, ...], named: tuple[Named, ...]
    ) -> tuple[Explanation, ...]:
        """Three nodes that have a story: one out of service if there is one, then those with the longest history."""
        told = [p.nodes[0] for p in planted] + [n.nodes[0] for n in named]
        candidates = sorted(set(told) & healths.keys()) or sorted(healths)
        ranked = sorted(candidates, key=lambda name: (_interest(healths[name]), name))
        return tuple(
            explain(
                healths[name],
                self._narrator.certifications(),
                self._narrator.repairs(),
                now=self._clock.now(),
            )
            for name in ranked[:3]
        )


def _interest(health: NodeHealth) -> tuple[bool, int]:
    life = health.status.lifecycle
    if life is None:
        return (True, 0)
    return (life.state is not State.OUT_OF_SERVICE, -len(life.history))


def _row(name: str, domain: str, health: NodeHealth | None) -> FleetRow:
    life = health.status.lifecycle if health is not None else None
    if life is None:
        return FleetRow(name, domain, "unknown", "", 0, trouble=False)
    ticket = life.episode.ticket if life.episode is not None else ""
    states = [step.state for step in life.history]
    left = sum(1 for a, b in pairwise(states) if a is State.IN_SERVICE and b is not State.IN_SERVICE)
    trouble = any(state in (State.QUARANTINED, State.OUT_OF_SERVICE) for state in states)
    return FleetRow(name, domain, life.state.value, ticket, left, trouble=trouble)


async def prepare(plant: Plant, clock: Clock, show: Callable[[Line], None]) -> Story:
    """Build the cluster of `plant` and the story on it."""
    return Story(plant, clock, await build(plant, clock), show)
