"""The timeline of one node as inline SVG, and the legend of the classes of time. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from muster.demo.palette import of_class
from muster.operate.goodput_svg import WIDTH, svg_element, text_element
from muster.operate.ledger import HOUR_US, Span, TimeClass

LANE_HEIGHT = 34


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
            parts.append(text_element(x + width / 2, 14, look.letter, anchor="middle", size=10, fill=look.ink))
    hours = length // HOUR_US
    every = max(1, -(-hours // 12))
    for hour in range(0, hours + 1, every):
        x = hour * HOUR_US * scale
        parts.append(f'<line x1="{x:.1f}" y1="20" x2="{x:.1f}" y2="24" stroke="#000000"/>')
        anchor = "start" if hour == 0 else "end" if x > WIDTH - 20 else "middle"
        parts.append(text_element(x, LANE_HEIGHT, f"{hour} h", anchor=anchor, size=9))
    return svg_element(LANE_HEIGHT + 2, f"Simulated timeline of {node}", parts)


def legend_html() -> str:
    """Every class of time with its letter, colour and label."""
    items = []
    for time_class in TimeClass:
        look = of_class(time_class)
        style = f"background:{look.colour};color:{look.ink}"
        items.append(f'<li><span class="key" style="{style}">{escape(look.letter)}</span> {escape(look.label)}</li>')
    return f'<ul class="legend">{"".join(items)}</ul>'
