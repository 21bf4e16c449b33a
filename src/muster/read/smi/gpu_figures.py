"""Readings of GPUs as YAML or JSON: a list under `gpus` (or `gpu`), nested or with dotted names.

The names are those of `nvidia-smi` (sections and labels, XML tags, or columns of a query) or ours (`remap_pending`,
`recovery_action`). JSON made of the XML output reads the same way.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from muster.read.smi import names
from muster.read.smi.cells import Cell
from muster.read.smi.document import MAX_GPUS, Document, Shape
from muster.read.source import Input
from muster.read.tables.source import mapping

_LIST = re.compile(r'(?:^\s{0,8}"?|[{,]\s{0,40}")gpus?"?\s{0,4}:\s{0,4}(?:\[|\{|$)', re.MULTILINE)
_TELLING = re.compile(
    r"remap|recovery_action|ecc_errors|sram_uncorrectable|dram_uncorrectable|fabric_state|fabric[.:]|retired_pages"
    r"|clocks_event_reason|clocks_throttle_reason"
)
_MAX_DEPTH = 8
_OURS = (
    "index",
    "pci",
    "uuid",
    "remap_pending",
    "remap_failure",
    "remapped_correctable",
    "remapped_uncorrectable",
    "recovery_action",
    "fabric_state",
    "fabric_status",
    "ecc_enabled",
    "ecc_pending",
    "last_xid",
    "unrepairable_memory",
)
_NODE = ("driver_version", "cuda_version", "attached_gpus")


def score(sample: bytes) -> float:
    """Below the parsers of printed outputs: a list of GPUs with a reading that is judged."""
    text = sample[:65536].decode("utf-8", "replace")
    opens = text.lstrip()[:1] == "{" or re.search(r"^[A-Za-z_]{2,40}:(?: |$)", text, re.MULTILINE) is not None
    return 0.8 if opens and _LIST.search(text) and _TELLING.search(text) and "apiVersion" not in text else 0.0


def parse(item: Input) -> Document:
    """Read the file. Raises BadInputError when it is no mapping."""
    told: Mapping[str, Any] = mapping(item)
    inner = told.get("nvidia_smi_log")
    told = inner if isinstance(inner, dict) else told
    document = Document(Shape.QUERY)
    listed = told.get("gpus", told.get("gpu"))
    for row in (listed if isinstance(listed, list) else [listed])[:MAX_GPUS]:
        if isinstance(row, dict):
            cells = dict(_cells(row, (), item.name))
            if cells:
                document.gpus.append(cells)
    document.node = {key: Cell(_text(told[key]), 0, item.name) for key in _NODE if key in told}
    return document


def _cells(tree: Mapping[str, Any], path: tuple[str, ...], file: str) -> Iterator[tuple[str, Cell]]:
    for key, value in tree.items():
        if isinstance(value, dict) and len(path) < _MAX_DEPTH:
            yield from _cells(value, (*path, names.word(str(key))), file)
            continue
        if isinstance(value, dict | list):
            continue
        name = _name(str(key), path)
        if name is not None:
            yield name, Cell(_text(value), 0, file)


def _name(key: str, path: tuple[str, ...]) -> str | None:
    if "." in key:
        return names.of_column(key)
    word = names.word(key)
    if not path and word in _OURS:
        return word
    if word == "id":
        return "pci"
    # Nested under the dotted name of a query: `remapped_rows: {pending: true}`.
    return names.of_path((*path, word)) or names.of_column(".".join((*path, word)))


def _text(value: Any) -> str:
    match value:
        case None:
            return "N/A"
        case bool():
            return "Yes" if value else "No"
        case _:
            return str(value)[:200]
