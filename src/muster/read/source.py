"""What a parser is given: named inputs as chunks of bytes, a sample of each, and the context told beside them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from muster.errors import BadInputError
from muster.read import pci

SAMPLE_BYTES = 64 * 1024
MAX_LINE_BYTES = 64 * 1024
MAX_TABLE_BYTES = 10 * 1024 * 1024

_TELLING_BYTES = 12

Context = Mapping[str, Any]


@dataclass(frozen=True)
class Input:
    """One file or standard input. `chunks` can be called more than once and yields the whole content each time."""

    name: str
    sample: bytes
    """The first bytes, at most SAMPLE_BYTES."""
    chunks: Callable[[], Iterable[bytes]]
    context: Context = field(default_factory=dict)


_WHOLE_NUMBERS = ("expected_gpus", "observed_gpus", "code")
_LISTS = ("gpus", "expected_nodes")


def check_context(context: Context, name: str) -> None:
    """Raises BadInputError for a known key with a value that cannot be used; other keys are for other formats."""
    for key in _WHOLE_NUMBERS:
        value = context.get(key)
        if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 0):
            raise BadInputError(f"{key} in {name} must be a whole number, not {value!r:.40}.")
    for key in _LISTS:
        value = context.get(key)
        if value is not None and not (isinstance(value, list) and all(isinstance(item, str) for item in value)):
            raise BadInputError(f"{key} in {name} must be a list of names in quotes.")
    for address in context.get("gpus") or ():
        if pci.normalise(address) is None:
            raise BadInputError(f"gpus in {name} must be PCI addresses such as 0000:9b:00.0, not {address!r:.40}.")
    if not isinstance(context.get("suspect", ""), str):
        raise BadInputError(f"suspect in {name} must be the name of a node.")
    if not isinstance(context.get("same_job", True), bool):
        raise BadInputError(f"same_job in {name} must be true or false.")


def text_lines(sample: bytes, limit: int = 400) -> list[str]:
    """The first lines of a sample as text, without line ends; the last one may be cut."""
    lines = sample.removeprefix(b"\xef\xbb\xbf").split(b"\n", limit)[:limit]
    return [line.decode("utf-8", "replace").rstrip("\r") for line in lines]


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
    lines = sample.split(b"\n", 2000)[:2000]
    if any(len(line) >= _TELLING_BYTES and is_text(line) for line in lines):
        return True
    # In binary junk a few very short lines look like text by chance.
    filled = [line for line in lines if line.strip()]
    return 2 * sum(map(is_text, filled)) > len(filled)


def printable(text: str, limit: int) -> str:
    """`text` safe to show on a terminal: bounded, control and format characters written as escapes."""
    text = text[: limit + 1]
    shown = text if text.isprintable() else "".join(c if c.isprintable() else _escape(c) for c in text)
    return shown if len(shown) <= limit else shown[: limit - 3] + "..."


def _escape(character: str) -> str:
    return " " if character == "\t" else character.encode("unicode_escape").decode("ascii")
