"""What a parser is given: named inputs as chunks of bytes, a sample of each, and the context told beside them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

SAMPLE_BYTES = 64 * 1024
MAX_LINE_BYTES = 64 * 1024
MAX_TABLE_BYTES = 10 * 1024 * 1024

Context = Mapping[str, Any]


@dataclass(frozen=True)
class Input:
    """One file or standard input. `chunks` can be called more than once and yields the whole content each time."""

    name: str
    sample: bytes
    """The first bytes, at most SAMPLE_BYTES."""
    chunks: Callable[[], Iterable[bytes]]
    context: Context = field(default_factory=dict)


def text_lines(sample: bytes, limit: int = 400) -> list[str]:
    """The first lines of a sample as text, without line ends; the last one may be cut."""
    return [line.decode("utf-8", "replace").rstrip("\r") for line in sample.split(b"\n", limit)[:limit]]


def is_text(line: bytes) -> bool:
    """True for a line that a program wrote for people: not blank, and hardly any control bytes."""
    line = line[:4096].strip()
    if not line:
        return False
    control = sum(1 for byte in line if byte < 32 and byte not in (9, 27))
    invalid = line.decode("utf-8", "replace").count("�")
    return control + invalid <= len(line) // 10


def holds_text(sample: bytes) -> bool:
    """True when at least one line of the sample is text."""
    return any(is_text(line) for line in sample.split(b"\n", 2000)[:2000])


def printable(text: str, limit: int) -> str:
    """`text` safe to show on a terminal: bounded, control and format characters written as escapes."""
    text = text[: limit + 1]
    shown = text if text.isprintable() else "".join(c if c.isprintable() else _escape(c) for c in text)
    return shown if len(shown) <= limit else shown[: limit - 3] + "..."


def _escape(character: str) -> str:
    return " " if character == "\t" else character.encode("unicode_escape").decode("ascii")
