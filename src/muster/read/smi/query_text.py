"""The text of `nvidia-smi -q`, whole or in parts: sections by indentation, `label : value` lines."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from muster.read import pci
from muster.read.smi import names
from muster.read.smi.cells import Cell
from muster.read.smi.document import MAX_GPUS, Document, Line, Shape, cell, is_prompt

_GPU = re.compile(rf"\s{{0,60}}GPU\s{{1,4}}(?P<pci>{pci.PATTERN})\s*$")
_ENTRY = re.compile(r"(?P<indent>\s{0,80})(?P<label>[A-Za-z][^:]{0,80}?)\s{0,60}:(?:\s{1,8}(?P<value>.{0,400}))?$")
_SECTION = re.compile(r"(?P<indent>\s{0,80})(?P<label>[A-Za-z][A-Za-z0-9 /_.()-]{1,80})\s*$")
_INNER = ("volatile", "aggregate", "bank_remap_availability_histogram", "health", "pcie_generation", "link_width")
"""Sections inside a section, for text that has lost its indentation."""
_LAST_SECTIONS = ("processes", "capabilities")
_NODE = ("driver_version", "cuda_version", "attached_gpus", "timestamp")
_OPENING = frozenset({"product_name", "gpu_uuid", "minor_number", "ecc_mode", "ecc_errors", "volatile"})


def parse(lines: Sequence[Line], file: str) -> Document:
    """Read the text. An excerpt that names no GPU is one GPU of unknown address."""
    document = Document(Shape.QUERY)
    flat = _is_flat(lines)
    gpu: dict[str, Cell] | None = None
    stack: list[tuple[int, str]] = []
    seen: list[str] = []
    cut = False
    ends: list[str] = []
    named = any(_GPU.match(line.text) for line in lines)
    for line in lines:
        if not line.text.strip() or line.text.startswith("=") or is_prompt(line.text):
            continue
        if (match := _GPU.match(line.text)) is not None:
            if len(document.gpus) >= MAX_GPUS:
                break
            gpu = {"pci": cell(match["pci"], line, file)}
            document.gpus.append(gpu)
            ends += seen[-1:]
            stack, seen, cut = [], [], False
            continue
        parsed = _ENTRY.match(line.text) or _SECTION.match(line.text)
        if parsed is None:
            cut = True
            continue
        label = names.word(parsed["label"])
        value = parsed.groupdict().get("value")
        stack = _place(stack, len(parsed["indent"]), label, flat, value)
        path = tuple(name for _, name in stack)
        if len(path) == 1:
            seen.append(label)
        cut = value is None
        if value is None:
            continue
        field = names.of_path(path)
        if field is None:
            continue
        if field in _NODE and (gpu is None or len(path) == 1):
            document.node.setdefault(field, cell(value, line, file))
            continue
        if gpu is None or (not named and field in gpu and len(document.gpus) < MAX_GPUS):
            # Lines picked out of a longer listing: the same label again is the next GPU.
            gpu = {}
            document.gpus.append(gpu)
        if field not in gpu or field == "pci":
            gpu[field] = cell(value, line, file)
    document.complete = bool(document.gpus or document.node) and not cut
    _mark_ends(document, seen, ends)
    if not named and len(document.gpus) > 1:
        for position, found in enumerate(document.gpus):
            first = next(iter(found.values()))
            found["index"] = Cell(str(position), first.line, file, first.shown)
    return document


def _place(
    stack: list[tuple[int, str]], indent: int, label: str, flat: bool, value: str | None
) -> list[tuple[int, str]]:
    """The path to a label: what stands further left above it. Flat text: sections by their names."""
    if not flat:
        return [item for item in stack if item[0] < indent] + [(indent, label)]
    sections = [item for item in stack if item[0] == 0]
    if value is None:
        keep = sections[:1] if label in _INNER and sections else []
        return [*keep, (0, label)]
    return [*sections, (1, label)]


def _is_flat(lines: Iterable[Line]) -> bool:
    """No line is indented further than another: a copy that has lost its white space."""
    filled = [line.text for line in lines if line.text.strip() and not line.text.startswith("=")]
    indents = {len(text) - len(text.lstrip()) for text in filled}
    return len(filled) > 2 and len(indents) == 1


def _mark_ends(document: Document, last_sections: Sequence[str], ends: Sequence[str]) -> None:
    """A full listing ends with the list of processes, and every GPU with the same section as the first (`ends`)."""
    told = document.node.get("attached_gpus")
    if len(ends) > 0 and len(document.gpus) > 1 and ends[-1] != "".join(last_sections[-1:]):
        document.complete = False
    full = len(last_sections) > 12
    if full and not any(name.startswith(_LAST_SECTIONS) for name in last_sections):
        document.complete = False
    if told is not None and not document.gpus and told.text not in ("0", ""):
        document.complete = False
