"""Foreign text made fit for a terminal, a status and a log line. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def printable(text: str) -> str:
    """`text` with a space for each character that a terminal might obey."""
    if text.isprintable():
        # Nearly always: the walk through the characters would be a good part of what a decision costs.
        return text
    return "".join(c if c.isprintable() else " " for c in text)


def plain(text: str, at_most: int = 400) -> str:
    """`text` on one line without control characters, cut to `at_most` characters.

    Log lines and API answers are written by others; an escape sequence in them must not reach a terminal.
    """
    clean = " ".join(printable(text[: at_most * 4]).split())
    return clean if len(clean) <= at_most else clean[: at_most - 3] + "..."


def counted(count: int, noun: str) -> str:
    """`1 node`, `2 nodes`."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def aligned(rows: Sequence[Sequence[str]]) -> Iterable[str]:
    """Rows of equal length as lines, column below column."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))] if rows else []
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
