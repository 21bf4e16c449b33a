"""The live picture tells states without colour, and plain lines carry no escape codes."""

from __future__ import annotations

import io

from rich.console import Console

from muster.demo.outcome import Line
from muster.demo.palette import of_class, of_state
from muster.demo.view import Cell, LiveView, PlainView, Scene, picture, stamp
from muster.operate.ledger import TimeClass
from muster.resources.node_health import State
from tests.demo.samples import T0, at

LINE = Line(at(125.5), "3 a fault", "node-02", "-> Quarantined: XID 119")


def scene() -> Scene:
    cells = tuple(Cell(f"node-{i}", state, busy=i % 2 == 0) for i, state in enumerate([*State, None]))
    return Scene(at(130), T0, "3 a fault", (("domain-0", cells),), out=2, allowed=7)


def drawn(width: int = 120) -> str:
    out = io.StringIO()
    Console(file=out, width=width, color_system=None).print(picture(scene(), (LINE,)))
    return out.getvalue()


def test_states_are_told_by_letters_and_a_legend() -> None:
    text = drawn()
    for look in (of_class(c) for c in TimeClass):
        assert look.label in text
    row = next(line for line in text.splitlines() if "domain-0" in line)
    for state in State:
        assert f" {of_state(state, busy=True).letter} " in row or f" {of_state(state).letter} " in row


def test_letters_and_colours_are_all_different() -> None:
    looks = [of_class(c) for c in TimeClass]
    assert len({look.letter for look in looks}) == len({look.colour for look in looks}) == len(TimeClass)


def test_the_picture_shows_chapter_time_budget_and_events() -> None:
    text = drawn()
    for piece in ("Chapter 3 a fault", "2 h 10 min since the start", "2 of 7 nodes out", "T+02:05:30", "XID 119"):
        assert piece in text
    assert "simulated" in text


def test_a_narrow_terminal_does_not_break_it() -> None:
    assert "domain-0" in drawn(60)


def test_plain_lines_have_stamps_chapters_and_no_escape_codes() -> None:
    out = io.StringIO()
    view = PlainView(out, T0, 0.0)
    view.line(LINE)
    view.line(LINE)
    assert out.getvalue() == "\n== 3 a fault\n" + 2 * "T+02:05:30  node-02  -> Quarantined: XID 119\n"
    assert "\x1b" not in out.getvalue()
    assert view.pace(600.0) == 0.0


def test_plain_lines_can_be_paced() -> None:
    assert PlainView(io.StringIO(), T0, 300.0).pace(600.0) == 2.0


def test_the_live_view_waits_as_long_as_the_pace_asks_at_most() -> None:
    console = Console(file=io.StringIO(), width=100, force_terminal=True)
    with LiveView(console, scene, 1000.0) as view:
        assert 0.0 <= view.pace(500.0) <= 0.5
    with LiveView(console, scene, 0.0) as view:
        assert view.pace(500.0) == 0.0


def test_stamps_count_from_the_start() -> None:
    assert stamp(at(61), T0) == "T+01:01:00"
    assert stamp(at(-5), T0) == "T+00:00:00"
