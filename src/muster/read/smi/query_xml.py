"""`nvidia-smi -q -x`. Read with a small scanner instead of an XML library: no entities, no external documents, and
a text that breaks off is read as far as it goes."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence

from muster.read.smi import names
from muster.read.smi.document import MAX_GPUS, Document, Line, Shape, cell

_TAG = re.compile(r"<(?P<close>/)?(?P<name>[A-Za-z_][\w.-]{0,80})(?P<rest>[^<>]{0,400}?)(?P<empty>/)?>")
_ID = re.compile(r'\bid\s{0,4}=\s{0,4}"([^"]{1,60})"')
_ROOT = "nvidia_smi_log"
_MAX_DEPTH = 40
_NODE = ("driver_version", "cuda_version", "attached_gpus", "timestamp")


def parse(lines: Sequence[Line], file: str) -> Document:
    """Read the document. It is complete when the root is closed."""
    document = Document(Shape.XML, complete=False)
    path: list[str] = []
    value, start = "", None
    for line in lines:
        position = 0
        for tag in _TAG.finditer(line.text):
            value += line.text[position : tag.start()]
            position = tag.end()
            name = names.word(tag["name"])
            if tag["empty"]:
                value = ""
            elif tag["close"]:
                _close(document, path, name, value, start or line, file)
                value = ""
            else:
                if len(path) < _MAX_DEPTH:
                    path.append(name)
                value, start = "", line
                if name == "gpu" and len(path) <= 2 and len(document.gpus) < MAX_GPUS:
                    found = _ID.search(tag["rest"])
                    document.gpus.append({"pci": cell(found[1], line, file)} if found else {})
        value = (value + line.text[position:])[:500]
    return document


def _close(document: Document, path: list[str], name: str, value: str, line: Line, file: str) -> None:
    if name == _ROOT:
        document.complete = True
    if name not in path:
        return
    while path and path[-1] != name:
        path.pop()
    inner = [part for part in path if part not in (_ROOT, "gpu")]
    in_gpu = "gpu" in path
    path.pop()
    field = names.of_path(tuple(inner)) if inner and value.strip() else None
    if field is None:
        return
    found = cell(html.unescape(value), line, file)
    if field in _NODE and not in_gpu:
        document.node.setdefault(field, found)
    elif in_gpu and document.gpus and (field not in document.gpus[-1]):
        document.gpus[-1][field] = found
