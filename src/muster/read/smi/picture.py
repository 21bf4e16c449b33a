"""All outputs of one moment as one picture of the node: the same GPU is one, whichever output tells of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from muster.read import pci
from muster.read.report import Evidence
from muster.read.smi.cells import Cell
from muster.read.smi.document import Document, Message, Shape
from muster.read.smi.readings import reading_of
from muster.read.smi.state import GpuReading

_MAX_EVIDENCE = 6
_NAMES_A_GPU = ("uuid", "pci", "index")


@dataclass
class Gpu:
    """One GPU with its cells. `index_told`: an output numbers it; else the number is its place in the listing."""

    cells: dict[str, Cell] = field(default_factory=dict)
    index_told: bool = False

    def reading(self) -> GpuReading:
        return reading_of(self.cells)

    def entity(self, reading: GpuReading) -> dict[str, Any]:
        entity: dict[str, Any] = {"kind": "gpu", "pci": reading.pci}
        if reading.index is not None:
            entity["index"] = reading.index
        if reading.uuid is not None:
            entity["uuid"] = reading.uuid
        return entity


@dataclass
class Picture:
    """`files`: all that were read; `cut`: those whose end is missing."""

    gpus: list[Gpu] = field(default_factory=list)
    node: dict[str, Cell] = field(default_factory=dict)
    messages: list[Message] = field(default_factory=list)
    cut: list[str] = field(default_factory=list)
    unnamed: list[str] = field(default_factory=list)
    shapes: list[Shape] = field(default_factory=list)
    listed: int | None = None
    """GPUs in the longest listing."""
    processes: int | None = None

    def add(self, document: Document, file: str) -> None:
        """Take in one output. What is told twice: the later output holds."""
        self.shapes.append(document.shape)
        self.messages += document.messages
        self.node |= document.node
        if document.processes is not None:
            self.processes = document.processes
        if not document.complete:
            self.cut.append(file)
        if document.unnamed_columns:
            self.unnamed.append(file)
        if document.gpus:
            self.listed = max(self.listed or 0, len(document.gpus))
        number = _numbered(document)
        for position, cells in enumerate(document.gpus):
            told = "index" in cells
            if not told and number:
                first = next(iter(cells.values()))
                cells = {**cells, "index": Cell(str(position), first.line, first.file, first.shown)}
            self.gpu_of(cells, told).cells.update(cells)

    def gpu_of(self, cells: Mapping[str, Cell], told: bool = True) -> Gpu:
        """The GPU that these cells name, new if it is not known yet."""
        for name in _NAMES_A_GPU:
            wanted = _identity(name, cells)
            if wanted is None:
                continue
            for gpu in self.gpus:
                if _identity(name, gpu.cells) == wanted:
                    gpu.index_told = gpu.index_told or (told and "index" in cells)
                    return gpu
        gpu = Gpu({}, told and "index" in cells)
        self.gpus.append(gpu)
        return gpu

    @property
    def attached(self) -> int | None:
        """GPUs that the driver has, as it says."""
        cell = self.node.get("attached_gpus")
        return int(cell.text) if cell is not None and cell.text.isdecimal() and len(cell.text) < 6 else None


def _numbered(document: Document) -> bool:
    """The listing is whole, so the place in it is the number of the GPU."""
    cell = document.node.get("attached_gpus")
    return document.shape in (Shape.QUERY, Shape.XML) and cell is not None and cell.text == str(len(document.gpus))


def _identity(name: str, cells: Mapping[str, Cell]) -> str | None:
    cell = cells.get(name)
    if cell is None:
        return None
    return pci.normalise(cell.text) if name == "pci" else cell.text.strip().casefold() or None


def evidence_of(cells: Sequence[Cell]) -> tuple[Evidence, ...]:
    """Cells as evidence, by file in order of appearance."""
    found: dict[str, dict[int, str]] = {}
    for cell in cells:
        if cell.line:
            found.setdefault(cell.file, {})[cell.line] = cell.shown
    evidence = []
    for file, lines in found.items():
        numbers = sorted(lines)[:_MAX_EVIDENCE]
        evidence.append(Evidence(file, tuple(numbers), tuple(lines[n] for n in numbers), len(lines)))
    return tuple(evidence)
