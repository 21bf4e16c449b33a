"""The goodput waterfall as SVG: one bar a row, each with its number and unit. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

from muster.operate.ledger import HOUR_US

WIDTH = 960
LABEL_WIDTH = 280
VALUE_WIDTH = 190
ROW_HEIGHT = 30

# Colours of Okabe and Ito (2008), which colour-blind people tell apart; each bar has its label too.
TOTAL, LOST, IDLE, BUSY = "#444444", "#D55E00", "#0072B2", "#009E73"

_STYLE = (
    "<style>text { font-family: sans-serif } @media (prefers-color-scheme: dark) "
    "{ svg { background: #111111 } text { fill: #eeeeee } .total { fill: #aaaaaa } }</style>"
)


def waterfall_svg(goodput: dict[str, Any], title: str, *, alone: bool = False) -> str:
    """All node time, what each cause took, what was left, from the values of `goodput_values`.

    `alone`: a file of its own, readable on light and on dark; else it stands in a page with black text on white.
    """
    total = goodput["total"]["us"]
    rows: list[tuple[str, int, int, str, str]] = [("all node time", 0, total, TOTAL, "total")]
    left = total
    for loss in goodput["losses"]:
        left -= loss["us"]
        colour = IDLE if loss["cause"].startswith("in service") else LOST
        rows.append((f"lost: {loss['cause']}", left, loss["us"], colour, "loss"))
    rows.append(("busy in service (goodput)", 0, goodput["busy"]["us"], BUSY, "busy"))
    scale = (WIDTH - LABEL_WIDTH - VALUE_WIDTH) / total if total else 0.0
    parts = []
    for index, (label, start, length, colour, kind) in enumerate(rows):
        y = index * ROW_HEIGHT + 6
        x = LABEL_WIDTH + start * scale
        width = max(length * scale, 1.0)
        share = length / total if total else 0.0
        value = f"{length / HOUR_US:.1f} node-hours, {share:.1%}"
        parts.append(text_element(LABEL_WIDTH - 8, y + 15, label, anchor="end"))
        parts.append(f'<rect class="{kind}" x="{x:.1f}" y="{y}" width="{width:.1f}" height="20" fill="{colour}"/>')
        parts.append(text_element(WIDTH - VALUE_WIDTH + 8, y + 15, value))
    told = [f"{label}: {length / HOUR_US:.1f} node-hours" for label, _, length, _, _ in rows]
    described = f"<desc>{escape('; '.join(told))}</desc>{_STYLE if alone else ''}"
    return svg_element(len(rows) * ROW_HEIGHT + 10, title, [described, *parts], alone=alone)


def svg_element(height: int, title: str, parts: Sequence[str], *, alone: bool = False) -> str:
    """A picture of the full width with a name for people who hear it; `alone`: a file of its own."""
    name = escape(title)
    space = 'xmlns="http://www.w3.org/2000/svg" ' if alone else ""
    return (
        f'<svg {space}viewBox="0 0 {WIDTH} {height}" width="100%" role="img" '
        f'aria-label="{name}"><title>{name}</title>{"".join(parts)}</svg>'
    )


def text_element(x: float, y: float, text: str, anchor: str = "start", size: int = 13, fill: str = "") -> str:
    """Black, unless a style or `fill` says otherwise."""
    colour = f' fill="{fill}"' if fill else ""
    return f'<text x="{x:.1f}" y="{y}" font-size="{size}" text-anchor="{anchor}"{colour}>{escape(text)}</text>'
