"""Figures of a report as inline SVG: pair heat map, bandwidth by size, waterfall. Pure.

Colours are classes that the style sheet of the page defines for light and dark; a letter or a pattern of its own says
the same, so that nobody needs the colours.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from html import escape

from muster.certify.report.model import Curve, CurvePoint, Matrix, MatrixCell, Waterfall
from muster.plain_text import plain

WIDTH = 960
LABEL_WIDTH = 190
LABEL_CHARACTERS = 24
CHART_HEIGHT = 250
LEFT, RIGHT, TOP, BOTTOM = 70, 36, 16, 40
ROW_HEIGHT = 28
SLOW, LOW = 0.95, 0.8
"""Shares of the median below which a cell counts as a little, or as much, too slow."""


def heat_map(matrix: Matrix) -> str:
    """Rows and columns are nodes (or groups of them); only pairs that were run have a cell."""
    side = len(matrix.labels)
    size = max(8.0, min(26.0, (WIDTH - LABEL_WIDTH) / max(1, side)))
    top = 120 if side > 1 else 60
    parts = []
    for index, label in enumerate(matrix.labels):
        short = _short(label)
        y = top + (index + 0.5) * size
        x = LABEL_WIDTH + (index + 0.5) * size
        text_size = min(12.0, max(7.0, size * 0.75))
        parts.append(_text(LABEL_WIDTH - 6, y + text_size / 3, short, anchor="end", size=text_size))
        parts.append(
            f'<text class="t" font-size="{text_size:.1f}" transform="translate({x + text_size / 3:.1f} {top - 6}) '
            f'rotate(-90)">{escape(_short(label, 18))}</text>'
        )
    width, height = LABEL_WIDTH + side * size, top + side * size
    parts.append(
        f'<rect class="frame" x="{LABEL_WIDTH}" y="{top}" width="{side * size:.1f}" height="{side * size:.1f}"/>'
    )
    for cell in matrix.cells:
        parts += _cells(matrix, cell, size, top)
    title = f"Pairs of {matrix.test} by {matrix.grouped_by}"
    return _svg(max(width + 4, 320), height + 4, title, parts, natural=True)


def _cells(matrix: Matrix, cell: MatrixCell, size: float, top: float) -> list[str]:
    look, letter = cell_look(cell)
    a, b = matrix.labels[cell.row], matrix.labels[cell.column]
    ratio = "" if cell.ratio is None else f", {cell.ratio:.0%} of the median"
    note = f"{a} - {b}: {cell.passed} passed, {cell.failed} failed, {cell.unusable} unusable{ratio}"
    parts = []
    for row, column in sorted({(cell.row, cell.column), (cell.column, cell.row)}):
        x, y = LABEL_WIDTH + column * size, top + row * size
        parts.append(
            f'<rect class="{look}" x="{x:.1f}" y="{y:.1f}" width="{size - 1:.1f}" height="{size - 1:.1f}">'
            f"<title>{escape(plain(note, 300))}</title></rect>"
        )
        if letter:
            middle = x + (size - 1) / 2
            parts.append(_text(middle, y + size * 0.72, letter, anchor="middle", size=size * 0.65, css="on-cell"))
    return parts


def cell_look(cell: MatrixCell) -> tuple[str, str]:
    """(class, letter) of a cell: F failed, f failed at times, ? nothing usable, s slow, none for good ones."""
    if cell.failed:
        return ("bad", "F") if not cell.passed else ("mixed", "f")
    if not cell.passed:
        return "unknown", "?"
    if cell.ratio is not None and cell.ratio < LOW:
        return "mixed", "s"
    if cell.ratio is not None and cell.ratio < SLOW:
        return "fair", "s"
    return "good", ""


def bandwidth(curve: Curve) -> str:
    """Bus bandwidth over message size, both axes from what was measured; the floor as a broken line."""
    points = [p for p in curve.points if p.size_bytes > 0]
    title = f"Bandwidth of {curve.test}{f' ({curve.variant})' if curve.variant else ''}, {curve.nodes} node(s)"
    if not points:
        return _svg(WIDTH, 30, title, [_text(8, 20, "Nothing was measured.")])
    first, last = math.log2(points[0].size_bytes), math.log2(points[-1].size_bytes)
    most = max(max(p.most_gb_per_s for p in points), curve.floor or 0.0) * 1.08 or 1.0

    def x_of(point: CurvePoint) -> float:
        share = (math.log2(point.size_bytes) - first) / (last - first) if last > first else 0.5
        return LEFT + share * (WIDTH - LEFT - RIGHT)

    def y_of(value: float) -> float:
        return TOP + (1 - value / most) * (CHART_HEIGHT - TOP - BOTTOM)

    parts = _axes(points, x_of, y_of, most)
    upper = [(x_of(p), y_of(p.most_gb_per_s)) for p in points]
    lower = [(x_of(p), y_of(p.least_gb_per_s)) for p in reversed(points)]
    parts.append(f'<polygon class="band" points="{_points((*upper, *lower))}"/>')
    parts.append(f'<polyline class="line" points="{_points([(x_of(p), y_of(p.median_gb_per_s)) for p in points])}"/>')
    for p in points:
        note = (
            f"{bytes_text(p.size_bytes)}: median {p.median_gb_per_s:.4g} GB/s, {p.least_gb_per_s:.4g} to "
            f"{p.most_gb_per_s:.4g} over {p.runs} run(s)" + (f", {p.wrong} wrong values" if p.wrong else "")
        )
        look = "dot-bad" if p.wrong else "dot"
        parts.append(
            f'<circle class="{look}" cx="{x_of(p):.1f}" cy="{y_of(p.median_gb_per_s):.1f}" r="3.5">'
            f"<title>{escape(note)}</title></circle>"
        )
    if curve.floor is not None:
        y = y_of(curve.floor)
        parts.append(f'<line class="floor" x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}"/>')
        parts.append(_text(LEFT + 6, y - 4, f"floor {curve.floor:.4g} GB/s", size=11))
    return _svg(WIDTH, CHART_HEIGHT, title, parts)


def _axes(
    points: Sequence[CurvePoint], x_of: Callable[[CurvePoint], float], y_of: Callable[[float], float], most: float
) -> list[str]:
    bottom = CHART_HEIGHT - BOTTOM
    parts = [f'<line class="axis" x1="{LEFT}" y1="{bottom}" x2="{WIDTH - RIGHT}" y2="{bottom}"/>']
    step = _round_step(most / 4)
    for index in range(int(most / step) + 1):
        y = y_of(index * step)
        parts.append(f'<line class="grid" x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}"/>')
        parts.append(_text(LEFT - 6, y + 4, f"{index * step:g}", anchor="end", size=11))
    every = -(-len(points) // 9)
    shown = points[::every]
    parts += [_text(x_of(p), bottom + 16, bytes_text(p.size_bytes), anchor="middle", size=11) for p in shown]
    parts.append(_text(LEFT, CHART_HEIGHT - 6, "message size; bus bandwidth in GB/s", size=11))
    return parts


def waterfall(shown: Waterfall) -> str:
    """All time, what each cause took from it, what was left: one bar a row, each with its number."""
    values = 170
    left = shown.total_seconds
    rows = [("all time", 0.0, shown.total_seconds, "total")]
    for bar in shown.bars:
        left -= bar.seconds
        rows.append((bar.label, max(0.0, left), bar.seconds, "good" if bar.productive else "bad"))
    scale = (WIDTH - LABEL_WIDTH - values) / shown.total_seconds if shown.total_seconds > 0 else 0.0
    parts = []
    for index, (label, start, length, look) in enumerate(rows):
        y = index * ROW_HEIGHT + 5
        x = LABEL_WIDTH + start * scale
        share = length / shown.total_seconds if shown.total_seconds > 0 else 0.0
        parts.append(_text(LABEL_WIDTH - 8, y + 14, _short(label, 28), anchor="end"))
        parts.append(f'<rect class="{look}" x="{x:.1f}" y="{y}" width="{max(length * scale, 1.0):.1f}" height="18"/>')
        parts.append(_text(WIDTH - values + 8, y + 14, f"{length:,.1f} s, {share:.1%}"))
    return _svg(WIDTH, len(rows) * ROW_HEIGHT + 8, shown.title, parts)


def bytes_text(size: int) -> str:
    """`512 B`, `4 KiB`, `1.5 GiB`.

    >>> bytes_text(1536), bytes_text(8589934592)
    ('1.5 KiB', '8 GiB')
    """
    value = float(size)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.4g} {unit}"
        value /= 1024
    return f"{value:.4g} TiB"


def _round_step(rough: float) -> float:
    if rough <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(rough))
    return next(factor * power for factor in (1.0, 2.0, 5.0, 10.0) if factor * power >= rough * 0.999)


def _points(pairs: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in pairs)


def _short(text: str, at_most: int = LABEL_CHARACTERS) -> str:
    """The end of a name tells nodes apart, so a long one loses its middle."""
    clean = plain(text, 200)
    if len(clean) <= at_most:
        return clean
    head = (at_most - 2) // 2
    return f"{clean[:head]}..{clean[-(at_most - 2 - head) :]}"


def _svg(width: float, height: float, title: str, parts: Sequence[str], *, natural: bool = False) -> str:
    name = escape(plain(title, 200))
    style = f' style="max-width:{width:.0f}px"' if natural else ""
    return (
        f'<svg viewBox="0 0 {width:.0f} {height:.0f}" width="100%" role="img" aria-label="{name}"{style}>'
        f"<title>{name}</title>{''.join(parts)}</svg>"
    )


def _text(x: float, y: float, text: str, anchor: str = "start", size: float = 13, css: str = "t") -> str:
    return (
        f'<text class="{css}" x="{x:.1f}" y="{y:.1f}" font-size="{size:.1f}" text-anchor="{anchor}">'
        f"{escape(plain(text, 200))}</text>"
    )
