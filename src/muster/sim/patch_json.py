"""JSON patch (RFC 6902), with the liberties that a Kubernetes API server takes.

It replaces a key that is not there, copies what is not there as null, tests it against null, takes an operation
without `value` as one with null, counts list indexes from the end when they are negative, and ignores what stands
before the first slash of a path.
"""

from __future__ import annotations

import re
from typing import Any

MAX_OPERATIONS = 10_000
_INDEX = re.compile(r"[+-]?[0-9]{1,9}")


class PatchError(ValueError):
    """The patch does not fit the document; the text says where."""


def apply_json_patch(document: Any, operations: Any) -> Any:
    """`document` after all `operations`; neither is changed. Raises PatchError."""
    if not isinstance(operations, list):
        raise PatchError("a JSON patch must be a list of operations")
    if len(operations) > MAX_OPERATIONS:
        raise PatchError(f"the allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {len(operations)}")
    for operation in operations:
        document = _apply_one(document, operation)
    return document


def _apply_one(document: Any, operation: Any) -> Any:
    if not isinstance(operation, dict) or not isinstance(operation.get("path"), str):
        raise PatchError("an operation needs 'op' and 'path'")
    path = parse_pointer(operation["path"])
    value = operation.get("value")
    match operation.get("op"):
        case "add":
            return _add(document, path, value)
        case "remove":
            return _remove(document, path)
        case "replace":
            return _replace(document, path, value)
        case "move":
            source = _source(operation)
            if path[: len(source)] == source and path != source:
                raise PatchError("a value cannot be moved into itself")
            moved = look_up(document, source)
            return _add(_remove(document, source), path, moved)
        case "copy":
            return _add(document, path, _look_up_or_null(document, _source(operation)))
        case "test":
            if not same_json(_look_up_or_null(document, path), value):
                raise PatchError(f"testing value {operation['path']} failed")
            return document
        case other:
            raise PatchError(f"unexpected kind: {other}")


def _source(operation: dict[str, Any]) -> list[str]:
    if not isinstance(operation.get("from"), str):
        raise PatchError(f"the operation {operation.get('op')!r} needs 'from'")
    return parse_pointer(operation["from"])


def parse_pointer(pointer: str) -> list[str]:
    """The parts of a JSON pointer (RFC 6901)."""
    if pointer == "":
        return []
    if "/" not in pointer:
        raise PatchError(f"{pointer!r} is not a JSON pointer")
    return [part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[1:]]


def look_up(document: Any, path: list[str]) -> Any:
    """The value at `path`. Raises PatchError when there is none."""
    for part in path:
        if isinstance(document, dict) and part in document:
            document = document[part]
        elif isinstance(document, list):
            document = document[_index(part, len(document))]
        else:
            raise PatchError(f"the path /{'/'.join(path)} does not exist")
    return document


def _look_up_or_null(document: Any, path: list[str]) -> Any:
    """The value at `path`; null for a key that is missing in an object that is there."""
    if not path:
        return document
    parent = look_up(document, path[:-1])
    return parent.get(path[-1]) if isinstance(parent, dict) else look_up(parent, path[-1:])


def _index(part: str, length: int) -> int:
    """The place that `part` names in a list of `length`; from the end when it is negative."""
    if not _INDEX.fullmatch(part):
        raise PatchError(f"{part!r} is not an index of a list")
    at = int(part)
    if not -length <= at < length:
        raise PatchError(f"the index {part} is out of range")
    return at + length if at < 0 else at


def _within(document: Any, path: list[str], change: Any) -> Any:
    """`document` with `change` applied to the part at `path`."""
    if not path:
        return change(document)
    head, rest = path[0], path[1:]
    if isinstance(document, dict):
        if head not in document:
            raise PatchError(f"the path to {head!r} does not exist")
        return {**document, head: _within(document[head], rest, change)}
    if isinstance(document, list):
        at = _index(head, len(document))
        return [*document[:at], _within(document[at], rest, change), *document[at + 1 :]]
    raise PatchError(f"the parent of {head!r} is neither an object nor a list")


def _add(document: Any, path: list[str], value: Any) -> Any:
    if not path:
        raise PatchError("nothing can be added in the place of the whole document")
    name = path[-1]

    def change(parent: Any) -> Any:
        if isinstance(parent, dict):
            return {**parent, name: value}
        if isinstance(parent, list):
            at = len(parent) if name == "-" else _index(name, len(parent) + 1)
            return [*parent[:at], value, *parent[at:]]
        raise PatchError(f"the parent of {name!r} is neither an object nor a list")

    return _within(document, path[:-1], change)


def _replace(document: Any, path: list[str], value: Any) -> Any:
    if not path:
        return value
    name = path[-1]

    def change(parent: Any) -> Any:
        if isinstance(parent, dict):
            return {**parent, name: value}
        if isinstance(parent, list):
            at = _index(name, len(parent))
            return [*parent[:at], value, *parent[at + 1 :]]
        raise PatchError(f"the parent of {name!r} is neither an object nor a list")

    return _within(document, path[:-1], change)


def _remove(document: Any, path: list[str]) -> Any:
    if not path:
        raise PatchError("the whole document cannot be removed")
    name = path[-1]

    def change(parent: Any) -> Any:
        if isinstance(parent, dict):
            if name not in parent:
                raise PatchError(f"unable to remove nonexistent key: {name}")
            return {key: value for key, value in parent.items() if key != name}
        if isinstance(parent, list):
            at = _index(name, len(parent))
            return parent[:at] + parent[at + 1 :]
        raise PatchError(f"the parent of {name!r} is neither an object nor a list")

    return _within(document, path[:-1], change)


def same_json(a: Any, b: Any) -> bool:
    """Equality of JSON values: numbers by value, and never a number equal to a boolean."""
    if a is b:
        return True
    if isinstance(a, bool) or isinstance(b, bool):
        return False
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same_json(a[key], b[key]) for key in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(same_json, a, b))
    return bool(a == b)
