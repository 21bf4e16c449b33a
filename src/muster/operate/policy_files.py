"""Policies as people write them in files: strict, so that a misspelt key is an error and not a default. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from typing import Any, TypeVar

import msgspec
from msgspec import inspect

from muster.errors import BadInputError
from muster.plain_text import plain
from muster.resources.fault_policy import FaultPolicy

M = TypeVar("M", bound=msgspec.Struct)
MAX_METADATA_KEYS = 64


def read_policy(document: Any, source: str) -> FaultPolicy:
    """A FaultPolicy of one YAML or JSON document. Raises BadInputError naming the file, the field and the remedy."""
    if not isinstance(document, dict) or document.get("kind") != "FaultPolicy":
        raise BadInputError(f"{source} holds no FaultPolicy; it needs `kind: FaultPolicy`, metadata and spec.")
    # What the API server writes into metadata is none of our business; the rest is.
    known = {key: value for key, value in document.items() if key not in ("metadata", "status")}
    return strict(FaultPolicy, {**known, "metadata": _metadata(document, source)}, source)


def _metadata(document: dict[str, Any], source: str) -> dict[str, Any]:
    metadata = document.get("metadata")
    if not isinstance(metadata, dict) or not isinstance(metadata.get("name"), str) or not metadata["name"]:
        raise BadInputError(f"{source} holds a FaultPolicy without a name; give it metadata.name.")
    return {"name": metadata["name"]}


def strict(model: type[M], value: Any, source: str) -> M:
    """`value` as `model`. Raises BadInputError for what does not fit, unknown keys included, with the nearest one."""
    for path, key, fields in _unknown(inspect.type_info(model), value, ""):
        close = difflib.get_close_matches(key, fields, n=1)
        nearest = f"; did you mean {close[0]}?" if close else f"; there are {', '.join(fields)}."
        raise BadInputError(f"{source} has {plain(f'{path}{key}', 120)}, which is not known{nearest}")
    try:
        return msgspec.convert(value, model, strict=False)
    except (msgspec.ValidationError, ValueError) as error:
        raise BadInputError(f"{source} cannot be read: {plain(str(error), 300)}.") from error


def _unknown(kind: inspect.Type, value: Any, path: str) -> Iterator[tuple[str, str, list[str]]]:
    """(path, key, known keys) of every key that no field has."""
    if isinstance(kind, inspect.UnionType):
        for option in kind.types:
            if isinstance(option, inspect.StructType) and isinstance(value, dict):
                yield from _unknown(option, value, path)
    elif isinstance(kind, inspect.StructType) and isinstance(value, dict):
        fields = {field.encode_name: field.type for field in kind.fields}
        for key, item in value.items():
            if key in fields:
                yield from _unknown(fields[key], item, f"{path}{key}.")
            else:
                yield path, str(key), sorted(fields)
    elif isinstance(kind, (inspect.VarTupleType, inspect.ListType)) and isinstance(value, list):
        for index, item in enumerate(value):
            yield from _unknown(kind.item_type, item, f"{path.removesuffix('.')}[{index}].")
    elif isinstance(kind, inspect.DictType) and isinstance(value, dict):
        for key, item in value.items():
            yield from _unknown(kind.value_type, item, f"{path}{key}.")
