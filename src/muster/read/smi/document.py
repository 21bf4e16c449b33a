"""What one output says before it is judged: cells of the GPUs, cells of the node, messages of the driver."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from muster.errors import BadInputError
from muster.read.bandwidth.launcher import strip
from muster.read.smi.cells import Cell
from muster.read.terminal import PROMPT

MAX_GPUS = 1024
MAX_LINES = 400_000
_PROMPT = re.compile(rf"\s{{0,8}}(?:{PROMPT}|[\w.@:~/()\[\]-]{{0,80}}[#$%>]|[#$])\s{{1,4}}\S")
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_QUOTE = ">"
"""In front of each line of a quoted mail."""
_LEAST_OF_A_HOST = 4
_HOST = re.compile(r"([A-Za-z0-9][A-Za-z0-9_.-]{0,80}): ?")


class Shape(StrEnum):
    """Which command wrote an output."""

    QUERY = "query"
    XML = "xml"
    CSV = "csv"
    TABLE = "table"
    LIST = "list"
    MONITOR = "monitor"
    TOPOLOGY = "topology"
    MESSAGE = "message"


class Trouble(StrEnum):
    """What the tool says when it cannot do its work."""

    NO_HANDLE = "no-handle"
    MISMATCH = "driver-mismatch"
    NO_DRIVER = "driver-not-loaded"
    NO_DEVICES = "no-devices"
    NVML_UNKNOWN = "nvml-unknown-error"
    NVML_BLOCKED = "nvml-access"
    NO_LIBRARY = "nvml-library-missing"
    INFOROM = "inforom-corrupted"
    POWER_CABLE = "power-cable"
    NEEDS_RESET = "gpu-reset-required"
    NO_TOOL = "nvidia-smi-missing"


@dataclass(frozen=True)
class Message:
    trouble: Trouble
    cell: Cell
    address: str | None = None
    """The address of a GPU as written."""
    index: int | None = None


@dataclass
class Document:
    """`gpus`: cells by our name of the reading. `complete`: the end of the output is there."""

    shape: Shape
    gpus: list[dict[str, Cell]] = field(default_factory=list)
    node: dict[str, Cell] = field(default_factory=dict)
    messages: list[Message] = field(default_factory=list)
    complete: bool = True
    unnamed_columns: bool = False
    """A CSV output without a header, of a query that the text does not tell."""
    processes: int | None = None
    listed: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Line:
    number: int
    text: str
    """Without launcher prefixes and colour."""
    shown: str


def lines_of(text: str) -> list[Line]:
    """The lines of an output, without what launchers and a parallel shell put in front of each."""
    raw = text.replace("\r\n", "\n").replace("\r", "\n").split("\n", MAX_LINES)[:MAX_LINES]
    host = _common_host(raw)
    found = []
    for number, shown in enumerate(raw, start=1):
        line = shown[len(host) :] if host and shown.startswith(host) else strip(shown).text
        found.append(Line(number, line.removeprefix("\ufeff").expandtabs(8)[:4096].rstrip(), shown[:300]))
    return found


def _common_host(lines: list[str]) -> str:
    """`node-7: ` where every line that says anything starts with it (pdsh, clush)."""
    filled = [line for line in lines[:2000] if line.strip()]
    if len(filled) > 1 and all(line.startswith(_QUOTE) for line in filled):
        return (
            f"{_QUOTE} "
            if all(line.startswith(f"{_QUOTE} ") or line.strip() == _QUOTE for line in filled)
            else _QUOTE
        )
    match = _HOST.match(filled[0]) if len(filled) > 1 else None
    if match is None or _DATE.match(match[1]):
        return ""
    prefix = f"{match[1]}:"
    if not all(line.startswith(prefix) for line in filled):
        return ""
    return f"{prefix} " if all(line.startswith(f"{prefix} ") or line.strip() == prefix for line in filled) else prefix


def _hosts_of(lines: Sequence[Line]) -> tuple[str, ...]:
    """Names in front of nearly every line (`pdsh`, `clush`) where more than one host writes; else nothing."""
    filled = [line.text for line in lines[:2000] if line.text.strip()]
    names = Counter(match[1] for text in filled if (match := _HOST.match(text)) and not _DATE.match(match[1]))
    often = sorted(name for name, count in names.items() if count >= _LEAST_OF_A_HOST)
    covered = sum(names[name] for name in often)
    return tuple(often) if len(often) > 1 and covered >= 0.9 * len(filled) else ()


def one_host(lines: Sequence[Line], file: str) -> None:
    """Raises BadInputError for outputs of several hosts line by line: their GPUs have the same addresses."""
    hosts = _hosts_of(lines)
    if len(hosts) > 1:
        raise BadInputError(
            f"{file} holds the outputs of several hosts ({', '.join(hosts[:4])}); read each host by itself."
        )


def is_prompt(line: str) -> bool:
    """A shell prompt or a comment in front of the output."""
    return _PROMPT.match(line) is not None


def cell(text: str, line: Line, file: str) -> Cell:
    return Cell(text.strip(), line.number, file, line.shown.strip())
