"""Plain values of others as readings: one per leaf, what looks like a secret hidden, long text as its digest."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

from muster.configure.live.redact import HIDDEN, redacted
from muster.configure.values import path_text
from muster.resources.fingerprint import Reading, ReadingClass

MAX_TEXT = 1024
MAX_LEAVES = 20_000


def readings_of(prefix: str, values: Any, reading_class: ReadingClass) -> tuple[Reading, ...]:
    """`<prefix>.<path>` with the JSON of each leaf. A hidden value is `(hidden)`: a change of it cannot be seen.

    A list is one leaf: told by position, an entry in front would change the reading of every entry behind it.
    """
    found: list[Reading] = []
    for path, keys, value in _leaves(values, (), ()):
        if len(found) == MAX_LEAVES:
            break
        name = f"{prefix}.{path_text(path)}" if path else prefix
        found.append(Reading(name=name, value=_text(keys, value), reading_class=reading_class))
    return tuple(found)


def _leaves(
    value: Any, path: tuple[str, ...], keys: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], tuple[str, ...], Any]]:
    """Path, the keys that tell whether it is secret, and the value. `{name: TOKEN, value: x}`: the name tells."""
    if isinstance(value, Mapping) and value:
        named = value.get("name")
        for key in sorted(value):
            told = str(named) if key == "value" and isinstance(named, str) else str(key)
            yield from _leaves(value[key], (*path, str(key)), (*keys, told))
    else:
        yield path, keys, value


def _text(keys: tuple[str, ...], value: Any) -> str:
    told = redacted(keys, value)
    if told == HIDDEN:
        return HIDDEN
    text = json.dumps(told, ensure_ascii=True, sort_keys=True, default=str)
    if len(text) <= MAX_TEXT:
        return text
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()} of {len(text)} characters"
