"""Plays a story: all in one thread on virtual time, or with the controller as a process of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TextIO

from rich.console import Console

from muster.clock import Clock
from muster.demo.cluster import Cluster
from muster.demo.outcome import Line, Outcome
from muster.demo.story import Story, prepare
from muster.demo.view import LiveView, PlainView
from muster.sim.plant import Plant
from muster.sim.virtual import DEFAULT_START, VirtualClock, run_virtual

LEASE_S = 300.0
"""Nobody competes for this lease; renewing it as often as in production would be a tenth of the work of the demo."""


async def controller_in_process(cluster: Cluster, clock: Clock) -> None:
    """The real controllers on the loop of the fleet."""
    from muster.controller.process import ControllerProcess

    await ControllerProcess(cluster.client, clock, "muster-controller-0", lease_s=LEASE_S).run()


def play_in_process(
    plant: Plant,
    out: TextIO,
    *,
    live: bool,
    speed: float,
    controller: Callable[[Cluster, Clock], Awaitable[None]] = controller_in_process,
) -> Outcome:
    """Play on virtual time. `speed`: simulated seconds per real second, 0 as fast as the machine can."""
    if not live:
        view = PlainView(out, DEFAULT_START, speed)

        async def plain(clock: VirtualClock) -> Outcome:
            return await (await prepare(plant, clock, view.line)).play(controller)

        return run_virtual(plain, pace=view.pace if speed else None)
    return _play_live(plant, out, speed, controller)


def _play_live(
    plant: Plant, out: TextIO, speed: float, controller: Callable[[Cluster, Clock], Awaitable[None]]
) -> Outcome:
    stage = _Stage(Console(file=out), speed)

    async def main(clock: VirtualClock) -> Outcome:
        story = await prepare(plant, clock, stage.line)
        with stage.open(story):
            return await story.play(controller)

    return run_virtual(main, pace=stage.pace)


class _Stage:
    """Stands between the loop, which exists first, and the view, which needs the story."""

    def __init__(self, console: Console, speed: float) -> None:
        self._console = console
        self._speed = speed
        self._view: LiveView | None = None

    def open(self, story: Story) -> LiveView:
        self._view = LiveView(self._console, story.scene, self._speed)
        return self._view

    def line(self, line: Line) -> None:
        if self._view is not None:
            self._view.line(line)

    def pace(self, jump_s: float) -> float:
        return self._view.pace(jump_s) if self._view is not None else 0.0


def play_with_process(plant: Plant, out: TextIO, *, speed: float | None) -> Outcome:
    """Play in accelerated real time; the controller is a process of its own, over HTTPS."""
    from muster.demo.process import DEFAULT_SPEED, play

    return asyncio.run(play(plant, out, speed or DEFAULT_SPEED))
