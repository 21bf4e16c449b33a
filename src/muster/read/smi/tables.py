"""Tables of `nvidia-smi`: the default one, `-L`, `dmon`, `pmon` and `topo -m`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from muster.read import pci
from muster.read.smi.cells import Cell
from muster.read.smi.document import MAX_GPUS, Document, Line, Shape, cell

TITLE = re.compile(
    r"NVIDIA-SMI\s{1,8}(?P<smi>[\d.]{3,20}|N/A)\s.{0,80}?(?:Driver|KMD) Version: {1,8}(?P<driver>\S{1,40})"
    r"(?:\s{1,40}CUDA (?:UMD )?Version: {1,8}(?P<cuda>\S{1,20}))?"
)
_FIRST = re.compile(
    rf"\|\s{{1,6}}(?P<index>\d{{1,4}}|N/A)\s{{1,6}}(?P<name>\S.{{0,60}}?)\s{{0,40}}\|\s{{1,30}}(?P<pci>{pci.PATTERN}|\S{{1,20}}:\S{{1,20}})\s"
    r"{1,6}(?P<display>\S{1,8})\s{0,8}\|\s{0,30}(?P<ecc>\S.{0,24}?)\s{0,30}\|"
)
_SECOND = re.compile(
    r"\|\s{0,8}(?P<fan>\S{1,12})\s{1,12}(?P<temp>\S{1,12})\s{1,12}(?P<perf>\S{1,12})\s{1,20}(?P<power>[^|]{1,40})\|"
    r"(?P<memory>[^|]{1,60})\|\s{0,12}(?P<util>\S{1,14})\s{1,20}(?P<mode>[^|]{1,20})\|"
)
_MIG = re.compile(r"\|\s{1,80}\|\s{1,60}\|\s{1,30}(?P<mig>Enabled\*?|Disabled\*?|N/A|ERR!)\s{0,8}\|")
_GPU_LINE = re.compile(
    r"\s{0,8}GPU (?P<index>\d{1,4}): (?P<name>.{1,100}?)\s{0,4}\(UUID: (?P<uuid>GPU-[0-9A-Za-z-]{1,80})\)"
)
_NO_PROCESSES = "No running processes found"


def parse_table(lines: Sequence[Line], file: str) -> Document:
    """The default table: three lines a GPU."""
    document = Document(Shape.TABLE)
    gpu: dict[str, Cell] | None = None
    last, rule = "", 0
    in_processes = False
    for line in lines:
        text = line.text.strip()
        last = text if text.startswith(("|", "+")) else last
        if not rule and text.startswith("+"):
            rule = len(text)
        if (title := TITLE.search(text)) is not None:
            for name, group in (("driver_version", "driver"), ("cuda_version", "cuda")):
                if title[group]:
                    document.node[name] = cell(title[group], line, file)
        in_processes = in_processes or "Processes:" in text
        if in_processes:
            if _NO_PROCESSES in text:
                document.processes = 0
            continue
        if (match := _FIRST.match(text)) is not None and len(document.gpus) < MAX_GPUS:
            gpu = _first(match, line, file)
            document.gpus.append(gpu)
        elif gpu is not None and (match := _SECOND.match(text)) is not None:
            fields = {"temperature": "temp", "performance_state": "perf", "utilization": "util", "power": "power"}
            gpu |= {name: cell(match[group], line, file) for name, group in fields.items()}
        elif gpu is not None and (match := _MIG.match(text)) is not None:
            # An asterisk: the mode changes at the next reset.
            now = match["mig"].rstrip("*")
            gpu["mig_enabled"] = cell(now, line, file)
            if match["mig"].endswith("*"):
                gpu["mig_pending"] = cell({"Enabled": "Disabled", "Disabled": "Enabled"}[now], line, file)
    document.complete = last.startswith("+") and len(last) >= rule and bool(document.gpus)
    return document


def _first(match: re.Match[str], line: Line, file: str) -> dict[str, Cell]:
    ecc = match["ecc"]
    found = {"pci": cell(match["pci"], line, file), "name": cell(_without_mode(match["name"]), line, file)}
    if match["index"].isdigit():
        found["index"] = cell(match["index"], line, file)
    if ecc.casefold() == "off":
        found["ecc_enabled"] = cell("Disabled", line, file)
    else:
        found["uncorrectable_total.volatile"] = cell(ecc, line, file)
        if ecc.isdigit():
            found["ecc_enabled"] = cell("Enabled", line, file)
    return found


def _without_mode(name: str) -> str:
    """The column holds the name and the persistence mode."""
    parts = name.rsplit(None, 1)
    return parts[0] if len(parts) == 2 and parts[1] in ("On", "Off", "N/A", "ERR!") else name


def parse_list(lines: Sequence[Line], file: str) -> Document:
    """`nvidia-smi -L`. Nothing but names: a GPU in the list may be unusable all the same."""
    document = Document(Shape.LIST)
    for line in lines:
        if (match := _GPU_LINE.match(line.text)) is not None and len(document.gpus) < MAX_GPUS:
            document.gpus.append({name: cell(match[name], line, file) for name in ("index", "name", "uuid")})
    return document


_MONITOR: Mapping[str, str] = {
    "gpu": "index",
    "gtemp": "temperature",
    "temp": "temperature",
    "sm": "utilization",
    "dbecc": "uncorrectable_total.volatile",
    "tviol": "slowdown.sw-thermal",
}


def parse_monitor(lines: Sequence[Line], file: str) -> Document:
    """`dmon` and `pmon`: the last sample of each GPU."""
    document = Document(Shape.MONITOR)
    columns: list[str] = []
    samples: dict[str, dict[str, Cell]] = {}
    pids: dict[tuple[str, str], None] = {}
    for line in lines:
        parts = line.text.split()
        if line.text.lstrip().startswith("#"):
            titles = [part.casefold() for part in line.text.lstrip(" #").split()]
            if titles and titles[0] in ("gpu", "date"):
                columns = titles
            continue
        position = columns.index("gpu") if "gpu" in columns else None
        if position is None or len(parts) <= position or not parts[position].isdigit():
            continue
        row = dict(zip(columns, parts, strict=False))
        if len(samples) < MAX_GPUS:
            named = {_MONITOR[k]: cell(value, line, file) for k, value in row.items() if k in _MONITOR}
            samples.setdefault(row["gpu"], {}).update(named)
        if "pid" in row and row["pid"].isdigit():
            pids[row["gpu"], row["pid"]] = None
        document.complete = len(parts) >= len(columns)
    document.gpus = list(samples.values())
    document.processes = len(pids) if "pid" in columns else None
    return document


_TOPOLOGY_ROW = re.compile(r"\s{0,8}(?P<name>GPU\d{1,3}|NIC\d{1,3}|mlx5_\d{1,3})\s{1,8}(?P<cells>\S.{0,2000})$")
_RELATION = re.compile(r"X|SYS|NODE|PHB|PXB|PIX|NV\d{1,2}|C2C|N/A|OK|NS|GNS|CNS|TNS|DR")


def parse_topology(lines: Sequence[Line], file: str) -> Document:
    """`nvidia-smi topo -m`: for each GPU how many others it reaches over NVLink."""
    document = Document(Shape.TOPOLOGY)
    names: list[str] = []
    for line in lines:
        text = line.text.replace("\x1b", "")
        heads = [part for part in text.split() if part.startswith(("GPU", "NIC", "mlx5_"))]
        if not names and len(heads) >= 1 and heads[0] == "GPU0" and _TOPOLOGY_ROW.match(text) is None:
            names = [part for part in heads if part[3:].isdigit() or part.startswith("mlx5_")]
            continue
        if not names and heads[:1] == ["GPU0"]:
            names = [part for part in heads if part[3:].isdigit()]
            continue
        match = _TOPOLOGY_ROW.match(text)
        if match is None or not match["name"].startswith("GPU") or len(document.gpus) >= MAX_GPUS:
            continue
        relations = match["cells"].split()[: len(names)]
        if not all(_RELATION.fullmatch(relation) for relation in relations):
            continue
        others = [r for n, r in zip(names, relations, strict=False) if n.startswith("GPU") and r != "X"]
        linked = sum(1 for relation in others if relation.startswith("NV"))
        found = {"index": cell(match["name"][3:], line, file), "peers": cell(str(len(others)), line, file)}
        found["nvlink_peers"] = cell(str(linked), line, file)
        document.gpus.append(found)
        document.complete = len(relations) == len(names)
    wanted = sum(1 for name in names if name.startswith("GPU"))
    document.complete = document.complete and len(document.gpus) == wanted > 0
    return document


PARSERS: Mapping[Shape, Callable[[Sequence[Line], str], Document]] = {
    Shape.TABLE: parse_table,
    Shape.LIST: parse_list,
    Shape.MONITOR: parse_monitor,
    Shape.TOPOLOGY: parse_topology,
}
