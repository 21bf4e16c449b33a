"""Pieces of the HTML report: foreign text made harmless, tags, tables. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from muster.certify.report.model import RunView
from muster.plain_text import plain

Row = tuple[str, ...]
"""Cells of HTML."""


def esc(text: str, at_most: int = 500) -> str:
    """Text of somebody else, on one line, as text."""
    return escape(plain(text, at_most))


def tag(word: str) -> str:
    """A word of our own vocabulary in its colour."""
    # The word is of our own vocabulary; it is a class as well.
    return f'<span class="tag {esc(word, 20)}">{esc(word, 20)}</span>'


def run_table(runs: Sequence[RunView]) -> str:
    """Runs, one a row."""
    head = ("run", "test", "nodes", "outcome", "#number", "#floor", "transport", "what it said")
    rows = [_run_row(run) for run in runs]
    # Columns that are empty throughout only take room from the last one, which says what happened.
    kept = [i for i, title in enumerate(head) if title.lstrip("#") not in _MAY_GO or any(r[i] != "-" for r in rows)]
    return table([head[i] for i in kept], (tuple(row[i] for i in kept) for row in rows))


_MAY_GO = ("number", "floor", "transport")


def _run_row(run: RunView) -> Row:
    names = ", ".join(f'<span class="whole">{esc(name, 80)}</span>' for name in run.nodes[:4])
    names += f" and {len(run.nodes) - 4} more" if len(run.nodes) > 4 else ""
    number = "-" if run.value is None else f"{run.value:.4g} {run.unit}"
    floor = "-" if run.floor is None else f"{run.floor:.4g}"
    said = ": ".join(w for w in (run.reason, run.message) if w)
    test = f"{run.test} {run.variant}".strip()
    whole = f'<span class="whole">{esc(run.id)}</span>', f'<span class="whole">{esc(test, 60)}</span>'
    rest = (number, floor, run.transport or "-", said)
    return (*whole, names, tag(run.outcome), *(esc(c) for c in rest))


def table(head: Sequence[str], rows: Iterable[Row]) -> str:
    """Cells are HTML. A column whose title begins with # holds numbers."""
    numeric = [title.startswith("#") for title in head]
    titles = "".join(
        f'<th class="n">{title[1:]}</th>' if right else f"<th>{title}</th>"
        for title, right in zip(head, numeric, strict=True)
    )
    body = "".join(
        "<tr>"
        + "".join(
            f'<td class="n">{cell}</td>' if right else f"<td>{cell}</td>"
            for cell, right in zip(row, numeric, strict=True)
        )
        + "</tr>"
        for row in rows
    )
    return f'<div class="scroll"><table><tr>{titles}</tr>{body}</table></div>'
