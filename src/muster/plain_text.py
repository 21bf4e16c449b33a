"""Foreign text made fit for a terminal, a status and a log line. Pure."""

from __future__ import annotations


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
