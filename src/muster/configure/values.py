"""Helm values as plain JSON values: paths into them, deep merge with provenance, and value text from a flag.

A null is kept: it deletes what lower layers set, and in the rendered file it also tells Helm to drop the default of
the chart. Lists and scalars replace, maps merge, an explicit empty list is a value.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from muster.errors import BadInputError

Values = dict[str, Any]
Path = tuple[str, ...]
Record = Callable[[Path, Any, Any], None]
"""Called with (path, new value, what was there or ABSENT) for each value that is set."""

MAX_DEPTH = 40


class _Absent:
    def __repr__(self) -> str:
        return "ABSENT"

    def __deepcopy__(self, memo: Any) -> _Absent:
        return self


ABSENT = _Absent()
_SPECIAL = re.compile(r"[\\.\[\]]")
_SEGMENT = re.compile(r"((?:\\.|[^\\.\[\]])+)((?:\[\d{1,4}\])*)", re.DOTALL)


def parse_path(text: str) -> Path:
    r"""Split `a.b.nodeSelector.nvidia\.com/gpu[0]`: dots separate, `\.` is a dot inside a key, `[n]` a list index.

    Raises BadInputError when the path is empty or malformed.
    """
    segments: list[str] = []
    position = 0
    while match := _SEGMENT.match(text, position):
        segments.append(re.sub(r"\\(.)", r"\1", match[1], flags=re.DOTALL))
        segments.extend(f"[{index}]" for index in re.findall(r"\d+", match[2]))
        position = match.end()
        if position == len(text):
            break
        if text[position] != ".":
            break
        position += 1
    if position != len(text) or not segments or (text.endswith(".") and not text.endswith("\\.")):
        raise BadInputError(f"{text[:120]!r} is not a path to a value; write it like driver.version or list[0].name.")
    if len(segments) > MAX_DEPTH:
        raise BadInputError(f"The path {text[:60]!r}... is deeper than {MAX_DEPTH} levels; shorten it.")
    return tuple(segments)


def path_text(path: Path) -> str:
    """The inverse of `parse_path`."""
    if not _SPECIAL.search("".join(path)):
        return ".".join(path)
    parts: list[str] = []
    for segment in path:
        if re.fullmatch(r"\[\d+\]", segment) and parts:
            parts[-1] += segment
        else:
            parts.append(re.sub(r"([\\.\[\]])", r"\\\1", segment))
    return ".".join(parts)


def get(values: Any, path: Path) -> Any:
    """The value at `path`, or ABSENT."""
    for segment in path:
        if isinstance(values, Mapping) and segment in values:
            values = values[segment]
        elif isinstance(values, list) and re.fullmatch(r"\[\d+\]", segment) and int(segment[1:-1]) < len(values):
            values = values[int(segment[1:-1])]
        else:
            return ABSENT
    return values


def is_set(values: Any, path: Path) -> bool:
    """Whether somebody decided what is at `path`: a value there, null included, or no map on the way."""
    for segment in path:
        if not isinstance(values, Mapping):
            return True
        if segment not in values:
            return False
        values = values[segment]
    return True


def same(one: Any, other: Any) -> bool:
    """Whether both are the same value in a file: unlike in Python, true is not 1 and 1 is not 1.0."""
    if one is other or one is ABSENT or other is ABSENT:
        return one is other
    encoded = (msgspec.json.encode(value, order="sorted") for value in (one, other))
    return next(encoded) == next(encoded)


def is_on(values: Mapping[str, Any], when: str, default: bool) -> bool:
    """Helm's truth of the value at the path `when`, `default` where nobody sets it; a null on the way drops it."""
    path = parse_path(when)
    for at in range(1, len(path) + 1):
        value = get(values, path[:at])
        if value is ABSENT:
            return default
        if value is None:
            return False
    return bool(get(values, path))


def merge(target: Values, patch: Mapping[str, Any], record: Record | None = None, at: Path = ()) -> None:
    """Merge `patch` into `target` in place. `patch` is copied, never shared."""
    for key, value in patch.items():
        path = (*at, key)
        present = target.get(key, ABSENT)
        if isinstance(value, Mapping) and (value or isinstance(present, dict)):
            if not isinstance(present, dict):
                target[key] = {}
            merge(target[key], value, record, path)
            continue
        target[key] = copy.deepcopy(value)
        if record is not None:
            record(path, value, present)


def put(values: Values, path: Path, value: Any) -> None:
    """Set one value in place, creating maps on the way; a list index must exist or be the next one.

    A null on the way becomes a map. Raises BadInputError when the path leads through any other scalar, and when a
    scalar or list would replace a map that holds something: that drops settings which nobody meant.
    """
    node: Any = values
    for at, segment in enumerate(path):
        last = at == len(path) - 1
        index = re.fullmatch(r"\[(\d+)\]", segment)
        if isinstance(node, list) and index:
            number = int(index[1])
            if number > len(node):
                raise BadInputError(
                    f"{path_text(path)!r}: the list has {len(node)} entries; set the whole list instead."
                )
            if number == len(node):
                node.append(None)
            if last:
                _require_same_shape(node[number], value, path)
                node[number] = copy.deepcopy(value)
            elif node[number] is None:
                node[number] = {}
            node = node[number]
        elif isinstance(node, dict) and not (index and at):
            if last:
                _require_same_shape(node.get(segment), value, path)
                node[segment] = copy.deepcopy(value)
            elif node.get(segment) is None:
                node[segment] = [] if re.fullmatch(r"\[\d+\]", path[at + 1]) else {}
            node = node[segment]
        else:
            here = path_text(path[:at])
            raise BadInputError(
                f"{path_text(path)!r} leads through {here!r}, which is not a {'list' if index else 'map'}."
            )


def _require_same_shape(present: Any, value: Any, path: Path) -> None:
    if isinstance(present, dict) and present and value is not None and not isinstance(value, dict):
        keys = ", ".join(list(present)[:8])
        raise BadInputError(
            f"{path_text(path)!r} is a map with the keys {keys}; set one of them, or null to drop the whole map."
        )


def leaves(values: Any, at: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Every value that is not a non-empty map, with its path; lists are walked into after being yielded whole."""
    if isinstance(values, Mapping) and values:
        for key, value in values.items():
            yield from leaves(value, (*at, key))
        return
    if at:
        yield at, values
    if isinstance(values, list):
        for index, item in enumerate(values):
            if isinstance(item, (Mapping, list)):
                yield from leaves(item, (*at, f"[{index}]"))


def whole_leaves(values: Any, at: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Every value that is not a non-empty map, with its path; each list is one value."""
    if isinstance(values, Mapping) and values:
        for key, value in values.items():
            yield from whole_leaves(value, (*at, key))
    elif at:
        yield at, values


def parse_value(text: str) -> Any:
    """What a flag's text means: JSON when it is JSON (`true`, `3`, `null`, `[]`, `"3"`), else the text itself.

    Raises BadInputError for a number that would not come out as it was written (`1.30` is a version to people and
    1.3 to YAML), for a key given twice and for text that no file can hold.
    """
    import json

    try:
        value = json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=_unique)
    except (ValueError, RecursionError):
        value = text
    check(value, repr(text[:80]))
    if isinstance(value, (int, float)) and not isinstance(value, bool) and not _reads_back(text.strip(), value):
        shown = text.strip()[:40]
        raise BadInputError(
            f"{shown} can be a number or a text; write '\"{shown}\"', inner quotes included, for the text, or a "
            "number that keeps its form, such as 1.3."
        )
    return value


def _reads_back(text: str, number: float) -> bool:
    """Whether every reader prints the number as it was written; integers beyond 2^53 are rounded by some."""
    return str(number) == text and "e" not in text and not text.endswith(".0") and abs(number) <= 2**53


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise BadInputError("A JSON value holds one key twice; give each key once.")
    return found


def _refuse_constant(name: str) -> Any:
    raise ValueError(name)


def check(values: Any, source: str, depth: int = 0) -> None:
    """Raise BadInputError unless `values` is plain JSON with text keys, finite numbers and a sane depth."""
    if depth > MAX_DEPTH:
        raise BadInputError(f"{source} nests deeper than {MAX_DEPTH} levels; flatten it.")
    if isinstance(values, Mapping):
        for key, value in values.items():
            if not isinstance(key, str):
                raise BadInputError(f"{source} has the key {key!r}, which is not text; put it in quotes.")
            _check_text(key, source)
            check(value, source, depth + 1)
    elif isinstance(values, list):
        for value in values:
            check(value, source, depth + 1)
    elif isinstance(values, float):
        if values != values or values in (float("inf"), float("-inf")):
            raise BadInputError(f"{source} holds a number that is not finite; write a finite number.")
    elif isinstance(values, str):
        _check_text(values, source)
    elif isinstance(values, int):
        if not -(2**63) <= values < 2**63:
            raise BadInputError(f"{source} holds an integer of more than 64 bits; put it in quotes.")
    elif values is not None:
        raise BadInputError(f"{source} holds a {type(values).__name__}, which is no Helm value.")


def _check_text(text: str, source: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise BadInputError(
            f"{source} holds half a character (a lone surrogate); write the character whole."
        ) from error


def sort_keys(values: Any) -> Any:
    """A copy with the keys of every map in order; lists keep theirs."""
    if isinstance(values, Mapping):
        return {key: sort_keys(values[key]) for key in sorted(values)}
    if isinstance(values, list):
        return [sort_keys(value) for value in values]
    return values
