"""The values that a release was given against those of the recipe. Pure.

A null is a value of its own: it drops a default of the chart, which an absent key does not. An empty map is nothing:
merged with the chart's defaults it changes nothing. Numbers are equal when they are, whatever their type.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from muster import yamlio
from muster.configure.live.redact import shown
from muster.configure.values import ABSENT, Path, path_text
from muster.errors import BadInputError

ABSENT_TEXT = "(absent)"
MAX_DIFFERENCES = 50
"""So many of one release are told one by one."""


@dataclass(frozen=True)
class Difference:
    """One value that differs; texts are JSON, with secrets hidden."""

    path: str
    expected: str
    found: str


def differences(expected: Mapping[str, Any], found: Mapping[str, Any]) -> list[Difference]:
    """Every value that differs, sorted by path."""
    unequal = sorted(_walk((), expected, found), key=lambda each: path_text(each[0]))
    told = [Difference(path_text(path), _text(path, a), _text(path, b)) for path, a, b in unequal[:MAX_DIFFERENCES]]
    if len(unequal) > MAX_DIFFERENCES:
        told.append(Difference("*", "as in the recipe", f"{len(unequal) - MAX_DIFFERENCES} more values differ"))
    return told


def manifest_differences(expected: Sequence[Mapping[str, Any]], manifest: str) -> list[Difference]:
    """Objects of the bundle's own chart against the manifest that Helm applied, sorted by kind and name.

    Empty when the manifest cannot be read as YAML.
    """
    try:
        documents = yamlio.loads_all(manifest, "the manifest in Helm's record")
    except BadInputError:
        return []
    wanted, applied = _by_name(expected), _by_name([d for d in documents if isinstance(d, Mapping)])
    found = []
    for name in sorted({*wanted, *applied}):
        if name not in applied:
            found.append(Difference(name, "present", ABSENT_TEXT))
        elif name not in wanted:
            found.append(Difference(name, ABSENT_TEXT, "present"))
        else:
            found += [
                Difference(f"{name}: {each.path}", each.expected, each.found)
                for each in differences(wanted[name], applied[name])
            ]
    return found[:MAX_DIFFERENCES]


def _by_name(objects: Sequence[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    named = {}
    for obj in objects:
        metadata = obj.get("metadata")
        metadata = metadata if isinstance(metadata, Mapping) else {}
        place = "/".join(str(metadata[key]) for key in ("namespace", "name") if metadata.get(key))
        named[f"{obj.get('kind')} {place}"] = obj
    return named


def _walk(path: Path, a: Any, b: Any) -> Iterator[tuple[Path, Any, Any]]:
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        for key in sorted({*map(str, a), *map(str, b)}):
            yield from _walk((*path, key), a.get(key, ABSENT), b.get(key, ABSENT))
    elif isinstance(a, Mapping) and b is ABSENT:
        for key in sorted(a):
            yield from _walk((*path, key), a[key], ABSENT)
    elif a is ABSENT and isinstance(b, Mapping):
        for key in sorted(b):
            yield from _walk((*path, key), ABSENT, b[key])
    elif not _equal(a, b):
        yield path, a, b


def _equal(a: Any, b: Any) -> bool:
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(_equal(x, y) for x, y in zip(a, b, strict=True))
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        return a.keys() == b.keys() and all(_equal(a[key], b[key]) for key in a)
    return bool(a == b)


def _text(path: Path, value: Any) -> str:
    return ABSENT_TEXT if value is ABSENT else shown(path, value)
