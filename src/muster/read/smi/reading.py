"""Outputs of `nvidia-smi` of one node, with what lies beside them: kernel logs and the node's own figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from muster.errors import BadInputError
from muster.read.kernel import logs
from muster.read.report import Report
from muster.read.smi import csv_query, detect, figures, gpu_figures, messages, node, query_text, query_xml, tables
from muster.read.smi.document import Document, Shape, lines_of, one_host
from muster.read.smi.figures import NodeFigures
from muster.read.smi.picture import Picture
from muster.read.source import Context, Input
from muster.read.tables.source import content
from muster.read.terminal import without_end

_KERNEL_SIGNS = (b"NVRM: ", b"Xid (PCI")


@dataclass
class Sorted:
    """The inputs by what they are. `others`: of no format that this package reads."""

    picture: Picture = field(default_factory=Picture)
    figures: NodeFigures | None = None
    logs: list[Input] = field(default_factory=list)


def parse(inputs: Sequence[Input], context: Context) -> Report:
    """Read all inputs together. Raises BadInputError for a context that cannot be used."""
    found = sort(inputs, context)
    kernel = logs.parse(found.logs, context) if found.logs else None
    parts = node.Parts(found.picture, found.figures, kernel)
    return node.assemble(detect.KIND, [item.name for item in inputs], parts, context)


def sort(inputs: Sequence[Input], context: Context) -> Sorted:
    """Parse the outputs of the tool and the figures; logs are left to their own reader."""
    found = Sorted()
    query = _query(context)
    for item in inputs:
        if figures.score(item.sample) and detect.score(item.sample) == 0.0:
            found.figures = figures.parse(item)
        elif gpu_figures.score(item.sample) and detect.score(item.sample) == 0.0:
            found.picture.add(gpu_figures.parse(item), item.name)
        elif detect.score(item.sample) == 0.0 and logs.score(item.sample) > 0.0:
            found.logs.append(item)
        else:
            found.picture.add(document_of(content(item), item.name, query), item.name)
            if any(sign in item.sample for sign in _KERNEL_SIGNS):
                # A report that a person pasted together: kernel lines in the same file.
                found.logs.append(item)
    return found


def document_of(text: str, file: str, query: Sequence[str] = ()) -> Document:
    """One output of the tool."""
    lines = lines_of(without_end(text))
    one_host(lines, file)
    shape = detect.shape_of(lines[:4000])
    match shape:
        case Shape.QUERY:
            document = query_text.parse(lines, file)
        case Shape.XML:
            document = query_xml.parse(lines, file)
        case Shape.CSV:
            document = csv_query.parse(lines, file, query)
        case Shape.TABLE | Shape.LIST | Shape.MONITOR | Shape.TOPOLOGY:
            document = tables.PARSERS[shape](lines, file)
        case Shape.MESSAGE:
            document = Document(Shape.MESSAGE)
        case None if query:
            document = csv_query.parse(lines, file, query)
        case None:
            document = Document(Shape.MESSAGE, unnamed_columns="," in text, complete="," in text)
    document.messages = list(messages.find(lines, file))
    if document.messages and not document.gpus:
        document.complete = True
    return document


def _query(context: Context) -> tuple[str, ...]:
    """Names of the columns of a CSV output without header (`query` in the context). Raises BadInputError."""
    told = context.get("query")
    if told is None:
        return ()
    if isinstance(told, list):
        told = ",".join(str(part) for part in told)
    if not isinstance(told, str):
        raise BadInputError("query in the context must be the list of fields that --query-gpu was given.")
    return tuple(part.strip() for part in told.split(",") if part.strip())[:200]
