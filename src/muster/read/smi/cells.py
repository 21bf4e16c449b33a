"""Single values as the tools print them: numbers with units, yes and no, and the many words for no reading."""

from __future__ import annotations

import re
from dataclasses import dataclass

_NUMBER = re.compile(r"\s{0,8}(-?\d{1,18}(?:\.\d{1,9})?)\s{0,4}(?:[A-Za-z%/().]{0,12})\s{0,8}$")
_WIDTH = re.compile(r"\s{0,8}x?(\d{1,2})x?\s{0,8}$")
_GENERATION = re.compile(r"\s{0,8}(?:gen\s?)?(\d)\s{0,8}$", re.IGNORECASE)
_NOTHING = frozenset(
    {"", "n/a", "na", "-", "not supported", "not available", "requested functionality has been deprecated"}
)
_YES = frozenset({"yes", "true", "1", "enabled", "active", "on"})
_NO = frozenset({"no", "false", "0", "disabled", "not active", "inactive", "off"})
_LOST = ("gpu is lost", "gpu_is_lost")
_RESET = ("requires reset", "reset required")
_FAILED = ("err!", "unknown error")
_BLOCKED = ("insufficient permissions", "no permission", "gpu access blocked")
"""Who reads may not: nothing is known of the GPU, good or bad."""


@dataclass(frozen=True, slots=True)
class Cell:
    """A value as written, and the line (from 1) that holds it."""

    text: str
    line: int = 0
    file: str = ""
    shown: str = ""
    """The whole line."""


def bare(text: str) -> str:
    """The value without the brackets of the CSV output and without spaces around it."""
    text = text.strip()
    return text[1:-1].strip() if text.startswith("[") and text.endswith("]") else text


def is_nothing(text: str) -> bool:
    """The tool has no reading: not supported, not available. Unknown, never zero."""
    return bare(text).casefold() in _NOTHING


def trouble(text: str) -> str | None:
    """`lost`, `reset-required`, `failed` or `blocked` where the tool wrote an error in place of a reading."""
    lowered = bare(text).casefold()
    for kind, words in (
        ("lost", _LOST),
        ("reset-required", _RESET),
        ("failed", _FAILED),
        ("blocked", _BLOCKED),
    ):
        if any(word in lowered for word in words):
            return kind
    return None


def number(text: str) -> float | None:
    match = _NUMBER.match(bare(text))
    return float(match[1]) if match else None


def whole(text: str) -> int | None:
    found = number(text)
    return int(found) if found is not None and found == int(found) and found >= 0 else None


def yes_no(text: str) -> bool | None:
    lowered = bare(text).casefold()
    return True if lowered in _YES else False if lowered in _NO else None


def width(text: str) -> int | None:
    match = _WIDTH.match(bare(text))
    return int(match[1]) if match else None


def generation(text: str) -> int | None:
    match = _GENERATION.match(bare(text))
    return int(match[1]) if match else None


def words(text: str) -> str | None:
    """The text itself, bounded; None when it says nothing or tells of an error."""
    found = bare(text)[:200]
    return None if is_nothing(found) or trouble(found) else found
