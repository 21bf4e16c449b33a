"""JSON patch (RFC 6902)."""

from __future__ import annotations

from typing import Any

MAX_OPERATIONS = 10_000


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
    match operation.get("op"):
        case "add":
            return _add(document, path, _value(operation))
        case "remove":
            return _remove(document, path)
        case "replace":
            look_up(document, path)
            value = _value(operation)
            return value if not path else _add(_remove(document, path), path, value)
        case "move":
            source = _source(operation)
            if path[: len(source)] == source and path != source:
                raise PatchError("a value cannot be moved into itself")
            value = look_up(document, source)
            return _add(_remove(document, source), path, value)
        case "copy":
            return _add(document, path, look_up(document, _source(operation)))
        case "test":
            if not same_json(look_up(document, path), _value(operation)):
                raise PatchError(f"testing value {operation['path']} failed")
            return document
        case other:
            raise PatchError(f"unexpected kind: {other}")


def _value(operation: dict[str, Any]) -> Any:
    if "value" not in operation:
        raise PatchError(f"the operation {operation.get('op')!r} needs 'value'")
    return operation["value"]


def _source(operation: dict[str, Any]) -> list[str]:
    if not isinstance(operation.get("from"), str):
        raise PatchError(f"the operation {operation.get('op')!r} needs 'from'")
    return parse_pointer(operation["from"])


def parse_pointer(pointer: str) -> list[str]:
    """The parts of a JSON pointer (RFC 6901)."""
    if pointer == "":
        return []
    if not pointer.startswith("/"):
        raise PatchError(f"{pointer!r} is not a JSON pointer")
    return [part.replace("~1", "/").replace("~0", "~") for part in pointer[1:].split("/")]


def look_up(document: Any, path: list[str]) -> Any:
    """The value at `path`. Raises PatchError when there is none."""
    for part in path:
        if isinstance(document, dict) and part in document:
            document = document[part]
        elif isinstance(document, list):
            document = document[_index(part, len(document) - 1)]
        else:
            raise PatchError(f"the path /{'/'.join(path)} does not exist")
    return document


def _index(part: str, highest: int) -> int:
    if not part.isascii() or not part.isdigit() or (len(part) > 1 and part[0] == "0") or len(part) > 9:
        raise PatchError(f"{part!r} is not an index of a list")
    if int(part) > highest:
        raise PatchError(f"the index {part} is out of range")
    return int(part)


def _add(document: Any, path: list[str], value: Any) -> Any:
    if not path:
        return value
    head, rest = path[0], path[1:]
    if isinstance(document, dict):
        if rest and head not in document:
            raise PatchError(f"the path to {head!r} does not exist")
        return {**document, head: _add(document[head], rest, value) if rest else value}
    if isinstance(document, list):
        if rest:
            at = _index(head, len(document) - 1)
            return [*document[:at], _add(document[at], rest, value), *document[at + 1 :]]
        at = len(document) if head == "-" else _index(head, len(document))
        return [*document[:at], value, *document[at:]]
    raise PatchError(f"the parent of {head!r} is neither an object nor a list")


def _remove(document: Any, path: list[str]) -> Any:
    if not path:
        raise PatchError("the whole document cannot be removed")
    head, rest = path[0], path[1:]
    if isinstance(document, dict):
        if head not in document:
            raise PatchError(f"unable to remove nonexistent key: {head}")
        if rest:
            return {**document, head: _remove(document[head], rest)}
        return {name: value for name, value in document.items() if name != head}
    if isinstance(document, list):
        at = _index(head, len(document) - 1)
        if rest:
            return [*document[:at], _remove(document[at], rest), *document[at + 1 :]]
        return document[:at] + document[at + 1 :]
    raise PatchError(f"the parent of {head!r} is neither an object nor a list")


def same_json(a: Any, b: Any) -> bool:
    """Equality of JSON values: numbers by value, and never a number equal to a boolean."""
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same_json(a[key], b[key]) for key in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(same_json, a, b))
    return bool(a == b)
