"""Figures of the report as inline SVG: the goodput waterfall and the timeline of one node. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

from muster.demo.palette import BLUE, DARK, GREEN, VERMILION, of_class
from muster.operate.ledger import HOUR_US, Span, TimeClass

WIDTH = 960
LABEL_WIDTH = 280
VALUE_WIDTH = 190
ROW_HEIGHT = 30
LANE_HEIGHT = 34


def waterfall_svg(goodput: dict[str, Any]) -> str:
    """All node time, what each cause took, what was left: one bar a row, each with its number."""
    total = goodput["total"]["us"]
    rows: list[tuple[str, int, int, str]] = [("all node time", 0, total, DARK)]
    left = total
    for loss in goodput["losses"]:
        left -= loss["us"]
        colour = BLUE if loss["cause"].startswith("in service") else VERMILION
        rows.append((f"lost: {loss['cause']}", left, loss["us"], colour))
    rows.append(("busy in service (goodput)", 0, goodput["busy"]["us"], GREEN))
    scale = (WIDTH - LABEL_WIDTH - VALUE_WIDTH) / total if total else 0.0
    parts = []
    for index, (label, start, length, colour) in enumerate(rows):
        y = index * ROW_HEIGHT + 6
        x = LABEL_WIDTH + start * scale
        width = max(length * scale, 1.0)
        share = length / total if total else 0.0
        value = f"{length / HOUR_US:.1f} node-hours, {share:.1%}"
        parts.append(_text(LABEL_WIDTH - 8, y + 15, label, anchor="end"))
        parts.append(f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="20" fill="{colour}"/>')
        parts.append(_text(WIDTH - VALUE_WIDTH + 8, y + 15, value))
    return _svg(len(rows) * ROW_HEIGHT + 10, f"Simulated goodput waterfall: {goodput['goodput']:.1%} goodput", parts)


def timeline_svg(node: str, spans: Sequence[Span], start_us: int, end_us: int) -> str:
    """One lane from the start to the end of the story, coloured and lettered by class of time, with an hour scale."""
    length = max(1, end_us - start_us)
    scale = WIDTH / length
    parts = []
    for span in spans:
        look = of_class(span.time_class)
        x = (span.start_us - start_us) * scale
        width = max(span.length_us * scale, 1.0)
        note = f"{look.label}{f', {span.rung}' if span.rung else ''}, {span.length_us / 60_000_000:.1f} min"
        parts.append(
            f'<rect x="{x:.1f}" y="0" width="{width:.1f}" height="20" fill="{look.colour}" '
            f'stroke="#ffffff" stroke-width="0.5"><title>{escape(note)}</title></rect>'
        )
        if width >= 12 and span.time_class is not TimeClass.UNKNOWN:
            parts.append(_text(x + width / 2, 14, look.letter, anchor="middle", size=10, fill=look.ink))
    hours = length // HOUR_US
    every = max(1, -(-hours // 12))
    for hour in range(0, hours + 1, every):
        x = hour * HOUR_US * scale
        parts.append(f'<line x1="{x:.1f}" y1="20" x2="{x:.1f}" y2="24" stroke="#000000"/>')
        anchor = "start" if hour == 0 else "end" if x > WIDTH - 20 else "middle"
        parts.append(_text(x, LANE_HEIGHT, f"{hour} h", anchor=anchor, size=9))
    return _svg(LANE_HEIGHT + 2, f"Simulated timeline of {node}", parts)


def legend_html() -> str:
    """Every class of time with its letter, colour and label."""
    items = []
    for time_class in TimeClass:
        look = of_class(time_class)
        style = f"background:{look.colour};color:{look.ink}"
        items.append(f'<li><span class="key" style="{style}">{escape(look.letter)}</span> {escape(look.label)}</li>')
    return f'<ul class="legend">{"".join(items)}</ul>'


def _svg(height: int, title: str, parts: Sequence[str]) -> str:
    name = escape(title)
    return (
        f'<svg viewBox="0 0 {WIDTH} {height}" width="100%" role="img" aria-label="{name}">'
        f"<title>{name}</title>{''.join(parts)}</svg>"
    )


def _text(x: float, y: float, text: str, anchor: str = "start", size: int = 13, fill: str = "#000000") -> str:
    return f'<text x="{x:.1f}" y="{y}" font-size="{size}" text-anchor="{anchor}" fill="{fill}">{escape(text)}</text>'
