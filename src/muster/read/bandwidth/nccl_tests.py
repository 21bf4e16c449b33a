"""The text that nccl-tests programs print (releases 2.0 to 2.20), under any launcher's prefixes.

What differs between releases: the last column (`error`, later `#wrong`), the columns `redop` and `root` (only for the
programs that have them in old releases), the group of a rank, its PCI address (`[0x3b]`, later `[0000:3b:00]`), lines
with the version, the start and the end. Some launchers drop the `#` at the begin of a line.
Formats as in `src/common.cu` and `src/util.cu` of NVIDIA's nccl-tests.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from muster.errors import BadInputError
from muster.read import pci
from muster.read.bandwidth.launcher import strip
from muster.read.bandwidth.rows import figure, from_size, header_columns, read_row, row_lead
from muster.read.bandwidth.table import Failure, Rank, Row, Table

MAX_ROWS = 100_000
_MAX_STREAMS = 4096
_MAX_FAILURES = 100

_VERSION = re.compile(r"nccl-tests version (\S{1,40})")
_VERSION_CODE = re.compile(r"nccl-(headers|library)=(\d{1,9})")
_NCCL_VERSION = re.compile(r"NCCL version (\d{1,3}\.\d{1,3}\.\d{1,3})")
_START = re.compile(r"Collective test starting: (\S{1,100})")
_END = re.compile(r"Collective test concluded: (\S{1,100})")
_PARAMETER = re.compile(r"([A-Za-z][A-Za-z ]{0,20}?)(?::\s*|\s)(-?\d{1,19})(?:\((factor|bytes)\))?(?=\s|$)")
_RANK = re.compile(
    r"#?\s{0,40}Rank\s{1,12}(\d{1,9})\s{1,12}(?:Group\s{1,12}(\d{1,9})\s{1,12})?Pid\s{1,12}(\d{1,12})\s{1,12}on\s{1,40}(\S{1,253})"
    r"\s{1,12}device\s{1,12}(\d{1,6})\s{1,12}\[([0-9A-Za-z:.]{1,32})\]\s{0,12}(.{0,200})"
)
_BOUNDS = re.compile(r"Out of bounds values\s{0,40}:\s{0,12}(\d{1,18})\s{0,12}(OK|FAILED)?")
_AVERAGE = re.compile(r"Avg bus bandwidth\s{0,40}:\s{0,12}(\S{1,40})\s{0,12}(OK|FAILED)?")
_FAILURE = re.compile(
    r"(?:(?P<host>[A-Za-z0-9_.-]{1,253}): )?Test (?P<kind>NCCL|CUDA|CURAND|MPI) failure (?P<where>\S{1,200})"
    r"\s{0,4}(?P<error>.{0,300})"
)
_RELAYED = re.compile(r"\s*\.\. (?P<host>\S{1,253}) pid \d{1,12}: Test failure (?P<where>\S{1,200})")
_PARAMETER_NAMES = {
    "nThread": "threads",
    "nGpus": "gpus_per_thread",
    "minBytes": "min_bytes",
    "maxBytes": "max_bytes",
    "warmup iters": "warmup",
    "iters": "iterations",
    "agg iters": "aggregate",
    "warmupIters": "warmup",
    "aggIters": "aggregate",
    "validation": "validation",
    "graph": "graph",
    "unalign": "unalign",
}


def parse_tables(text: str) -> tuple[Table, ...]:
    """Every run in the text, in the order in which they begin. Lines of several writers are told apart by prefix.

    Raises BadInputError when there are more rows than MAX_ROWS.
    """
    reader = _Reader()
    for number, line in enumerate(text.split("\n"), start=1):
        reader.line(number, line)
    return reader.tables()


def version_text(code: int) -> str:
    """`23102` -> `2.31.2`; codes below 10000 are of releases before 2.9 (`2708` -> `2.7.8`)."""
    base = 10_000 if code >= 10_000 else 1_000
    return f"{code // base}.{code % base // 100}.{code % 100}"


@dataclass
class _Run:
    """One table while it is read."""

    order: int
    columns: tuple[str, ...] | None = None
    rows: list[Row] = field(default_factory=list)
    last_column: str | None = None
    program: str | None = None
    version: str | None = None
    nccl_version: dict[str, str] = field(default_factory=dict)
    parameters: dict[str, int] = field(default_factory=dict)
    ranks: list[Rank] = field(default_factory=list)
    prefix: Mapping[str, int | str] = field(default_factory=dict)
    out_of_bounds: tuple[int, bool] | None = None
    avg: tuple[float, bool] | None = None
    failures: list[Failure] = field(default_factory=list)
    suspects: list[int] = field(default_factory=list)
    waiting: list[str] = field(default_factory=list)
    """First columns of a row whose figures did not come on the same line."""
    last_line: int = 0
    ended: bool = False

    @property
    def begun(self) -> bool:
        return bool(self.rows or self.failures or self.avg or self.out_of_bounds or self.suspects)

    @property
    def empty(self) -> bool:
        return not (self.begun or self.ranks or self.parameters or self.program or self.columns)

    def table(self, last_line: int) -> Table:
        cut = bool(self.suspects) and self.suspects[-1] > (self.rows[-1].line if self.rows else 0) and not self.avg
        bounds, average = self.out_of_bounds, self.avg
        return Table(
            rows=tuple(self.rows),
            last_column=self.last_column,
            program=self.program,
            version=self.version,
            nccl_version=self.nccl_version,
            parameters=self.parameters,
            ranks=tuple(self.ranks),
            prefix=self.prefix,
            out_of_bounds=bounds[0] if bounds else None,
            out_of_bounds_failed=bool(bounds and (bounds[1] or bounds[0] > 0)),
            avg=average[0] if average else None,
            avg_failed=bool(average and average[1]),
            failures=tuple(self.failures),
            malformed=tuple(self.suspects[:-1] if cut else self.suspects),
            cut=cut,
            lines=(self.order, last_line),
        )


class _Reader:
    def __init__(self) -> None:
        self._open: dict[str, _Run] = {}
        self._done: list[_Run] = []
        self._rows = 0

    def line(self, number: int, raw: str) -> None:
        line = strip(raw)
        text = line.text.rstrip()
        if not text:
            return
        run = self._open.get(line.stream)
        if run is None:
            run = _Run(number, prefix=line.tags)
            if len(self._open) < _MAX_STREAMS:
                self._open[line.stream] = run
        taken = self._comment(run, number, text, line.stream) or self._row(run, number, text)
        if taken:
            current = self._open.get(line.stream, run)
            current.last_line = number
            current.prefix = current.prefix or line.tags

    def tables(self) -> tuple[Table, ...]:
        runs = sorted(
            (run for run in (*self._done, *self._open.values()) if not run.empty), key=lambda run: run.order
        )
        tables = [run for run in runs if run.rows or run.columns or run.ranks or run.parameters or run.program]
        if not tables:
            return tuple(run.table(run.last_line) for run in runs)
        for run in runs:
            # The ranks of a job write into streams of their own; only the first prints the table.
            if run not in tables:
                before = [table for table in tables if table.order <= run.order]
                (before or tables)[-1 if before else 0].failures += run.failures
        return tuple(run.table(run.last_line) for run in tables)

    def _next_run(self, stream: str, number: int, run: _Run) -> _Run:
        """The run that a line of a beginning belongs to: a new one when the current one has rows already."""
        if not (run.begun or run.ended):
            if run.empty:
                run.order = number
            return run
        self._done.append(run)
        started = _Run(number, prefix=run.prefix)
        self._open[stream] = started
        return started

    def _comment(self, run: _Run, number: int, text: str, stream: str) -> bool:
        if "algbw" in text and "busbw" in text:
            columns = header_columns(text)
            if columns is not None:
                self._next_run(stream, number, run).columns = columns
                return True
        if "nccl-tests version" in text and (match := _VERSION.search(text)):
            run = self._next_run(stream, number, run)
            run.version = match[1]
            run.nccl_version |= {name: version_text(int(code)) for name, code in _VERSION_CODE.findall(text)}
            return True
        if "Collective test" in text and (match := _START.search(text)):
            self._next_run(stream, number, run).program = match[1].rpartition("/")[2]
            return True
        if text.lstrip("# ").startswith("nThread"):
            self._next_run(stream, number, run).parameters |= _parameters(text)
            return True
        if "Rank" in text and "device" in text and (match := _RANK.match(text)):
            self._next_run(stream, number, run).ranks.append(_rank(match))
            return True
        return _summary(run, number, text)

    def _row(self, run: _Run, number: int, text: str) -> bool:
        words = text.split(None, 60)
        if run.waiting and figure(words[0]) is not None:
            joined = [*run.waiting, *words]
            row = read_row(number, " ".join(joined), joined, run.columns)
            if row is not None:
                run.suspects.pop()
                return self._add(run, row)
        tokens = from_size(words, run.columns)
        if not tokens:
            return False
        row = read_row(number, text, tokens, run.columns)
        if row is None:
            run.waiting = row_lead(tokens, run.columns) or run.waiting
            # A line of numbers beside a table is a row that was cut or overwritten; elsewhere it is none of ours.
            like_a_row = tokens[1].isdigit() if len(tokens) > 1 else text.startswith("  ")
            if like_a_row and (run.columns is not None or run.rows) and not run.avg:
                run.suspects.append(number)
                return True
            return False
        return self._add(run, row)

    def _add(self, run: _Run, row: tuple[Row, str]) -> bool:
        run.waiting = []
        self._rows += 1
        if self._rows > MAX_ROWS:
            raise BadInputError(f"The input has more than {MAX_ROWS} rows of bandwidth; split the file.")
        run.rows.append(row[0])
        run.last_column = row[1]
        return True


def _summary(run: _Run, number: int, text: str) -> bool:
    if "Out of bounds" in text and (match := _BOUNDS.search(text)):
        run.out_of_bounds = (int(match[1]), match[2] == "FAILED")
        return True
    if "Avg bus bandwidth" in text and (match := _AVERAGE.search(text)):
        average = figure(match[1])
        if average is not None:
            run.avg = (average.value, match[2] == "FAILED")
        return True
    if "Collective test" in text and (match := _END.search(text)):
        run.program = run.program or match[1].rpartition("/")[2]
        run.ended = True
        return True
    if "NCCL version" in text and (match := _NCCL_VERSION.search(text)):
        run.nccl_version.setdefault("library", match[1])
        return False
    if "failure" in text and "Test" in text and len(run.failures) < _MAX_FAILURES:
        if match := _FAILURE.search(text):
            error = match["error"].strip().strip("'")
            kind = match["kind"].lower()
            run.failures.append(Failure(number, match["host"] or "", kind, match["where"], error))
            return True
        if match := _RELAYED.match(text):
            run.failures.append(Failure(number, match["host"], "test", match["where"], ""))
            return True
    return False


def _parameters(text: str) -> dict[str, int]:
    found: dict[str, int] = {}
    for name, value, step in _PARAMETER.findall(text[:1000]):
        if step:
            found[f"step_{step}"] = int(value)
        elif name.strip() in _PARAMETER_NAMES:
            found[_PARAMETER_NAMES[name.strip()]] = int(value)
    return found


def _rank(match: re.Match[str]) -> Rank:
    address = match[6]
    bus = address.lower().removeprefix("0x") if ":" not in address else None
    return Rank(
        rank=int(match[1]),
        group=int(match[2]) if match[2] is not None else None,
        pid=int(match[3]),
        host=match[4],
        device=int(match[5]),
        pci=pci.normalise(address),
        bus=bus,
        gpu=match[7].strip(),
    )
