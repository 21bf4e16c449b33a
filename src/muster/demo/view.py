"""What the viewer of the demo sees: a live picture on a terminal, or plain lines anywhere else."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TextIO

from rich.columns import Columns
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from muster.demo.outcome import Line
from muster.demo.palette import Look, of_class, of_state
from muster.operate.ledger import TimeClass
from muster.operate.phrases import duration, moment
from muster.resources.node_health import State

EVENTS_SHOWN = 12
NODES_PER_ROW = 32
FRAME_S = 0.2
"""Least real time between two frames."""

MOST_LAG_S = 5.0
"""Computing that took longer than the pace is made up for by shorter waits, up to this many real seconds."""


@dataclass(frozen=True)
class Cell:
    """One node in the picture."""

    node: str
    state: State | None
    busy: bool


@dataclass(frozen=True)
class Scene:
    """One moment of the story."""

    now: datetime
    start: datetime
    chapter: str
    domains: tuple[tuple[str, tuple[Cell, ...]], ...]
    out: int
    allowed: int


class PlainView:
    """One line per event, no escape codes; for pipes, logs and tests."""

    def __init__(self, out: TextIO, start: datetime, speed: float) -> None:
        self._out = out
        self._start = start
        self._chapter = ""
        self._speed = speed

    def line(self, line: Line) -> None:
        if line.chapter != self._chapter:
            self._chapter = line.chapter
            self._out.write(f"\n== {line.chapter}\n")
        self._out.write(f"{stamp(line.at, self._start)}  {f'{line.node}  ' if line.node else ''}{line.text}\n")
        self._out.flush()

    def pace(self, jump_s: float) -> float:
        return jump_s / self._speed if self._speed else 0.0


class LiveView:
    """The fleet as a grid by domain, the chapter, the budget and the last events, redrawn as time goes on."""

    def __init__(self, console: Console, scene: Callable[[], Scene], speed: float) -> None:
        self._scene = scene
        self._speed = speed
        self._lines: deque[Line] = deque(maxlen=EVENTS_SHOWN)
        self._live = Live(console=console, auto_refresh=False, screen=False)
        self._drawn_at = 0.0
        self._debt_s = 0.0
        self._last_call = time.monotonic()

    def __enter__(self) -> LiveView:
        self._live.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._draw()
        self._live.stop()

    def line(self, line: Line) -> None:
        self._lines.append(line)

    def pace(self, jump_s: float) -> float:
        """Draws when it is time to; computing counts as waiting."""
        if time.monotonic() - self._drawn_at >= FRAME_S:
            self._draw()
        now = time.monotonic()
        self._debt_s += (jump_s / self._speed if self._speed else 0.0) - (now - self._last_call)
        wait_s = max(self._debt_s, 0.0)
        self._debt_s = max(self._debt_s - wait_s, -MOST_LAG_S)
        self._last_call = now + wait_s
        return wait_s

    def _draw(self) -> None:
        self._drawn_at = time.monotonic()
        self._live.update(picture(self._scene(), tuple(self._lines)), refresh=True)


def stamp(at: datetime, start: datetime) -> str:
    """Time since the start of the story, `T+05:02:10`."""
    seconds = max(0, int((at - start).total_seconds()))
    return f"T+{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"


def picture(scene: Scene, lines: Sequence[Line]) -> RenderableType:
    """One frame."""
    head = Text.assemble(
        ("Muster demo, simulated fleet", "bold"),
        f"   {moment(scene.now)}   {duration(scene.now - scene.start)} since the start\n",
        (f"Chapter {scene.chapter}", "bold"),
    )
    return Panel(Group(head, Text(), _grid(scene), Text(), _legend(), _budget(scene), Text(), _events(scene, lines)))


def _grid(scene: Scene) -> Table:
    grid = Table.grid(padding=(0, 2))
    for domain, cells in scene.domains:
        for index in range(0, len(cells), NODES_PER_ROW):
            row = Text()
            for cell in cells[index : index + NODES_PER_ROW]:
                look = of_state(cell.state, busy=cell.busy)
                row.append(f" {look.letter} ", style=_style(look))
                row.append(" ")
            grid.add_row(domain if index == 0 else "", row)
    return grid


def _legend() -> Columns:
    looks = [of_class(time_class) for time_class in TimeClass]
    return Columns(
        [Text.assemble((f" {look.letter} ", _style(look)), f" {look.label}") for look in looks], padding=(0, 3)
    )


def _budget(scene: Scene) -> Text:
    used = "#" * min(scene.out, scene.allowed) + "." * max(0, scene.allowed - scene.out)
    return Text(f"Disruption budget [{used}] {scene.out} of {scene.allowed} nodes out")


def _events(scene: Scene, lines: Sequence[Line]) -> Table:
    table = Table.grid(padding=(0, 2))
    for line in lines:
        table.add_row(stamp(line.at, scene.start), line.node, Text(line.text, overflow="ellipsis", no_wrap=True))
    for _ in range(EVENTS_SHOWN - len(lines)):
        table.add_row("", "", "")
    return table


def _style(look: Look) -> str:
    return f"{look.ink} on {look.colour}"
