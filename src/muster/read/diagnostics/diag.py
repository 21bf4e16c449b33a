"""Values of one `dcgmi diag` run, and the table that the tool prints.

Up to release 3 the checks of the deployment are rows of their own and a GPU test says `Pass - GPUs: 0, 1`; from
release 4 on they are one test `software`, and each GPU has a line (`GPU0: Pass`). Messages are cut at 45 characters.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from muster.errors import BadInputError
from muster.read.bandwidth.launcher import strip
from muster.read.diagnostics.error_codes import code_of

_MAX_ROWS = 100_000
_MAX_MESSAGE_CHARS = 2000
_MESSAGE_COLUMN = 45

_FRAME = re.compile(r"\+[-=]{3,200}\+[-=]{3,300}\+?$")
_SECTION = re.compile(r"[|+]-----\s{1,4}(\S{1,60}(?: \S{1,60}){0,3})\s{1,4}-{1,60}\+-{1,200}[|+]?$")
_ROW = re.compile(r"\|(?P<name>[^|]{1,60})\|(?P<rest>.{0,400})$")
_WORD = re.compile(r"(Pass|Fail|Skip|Warn)(?:ed)?\b(.{0,400})", re.IGNORECASE)
_ENTITY = re.compile(r"(GPU|CPU)\s?(\d{1,4}): ?(Pass|Fail|Skip|Warn)", re.IGNORECASE)
_OF_GPU = re.compile(r"GPU\s?(\d{1,4})\b")
_NUMBERS = re.compile(r"\d{1,4}")
_NOTE = re.compile(r"(?:Warning|Error|Info)(?::|$)", re.IGNORECASE)


class Status(StrEnum):
    PASS = "pass"  # noqa: S105 - a word of the tool
    WARN = "warn"
    FAIL = "fail"
    SKIP = "skip"


_RANK = {Status.SKIP: 0, Status.PASS: 1, Status.WARN: 2, Status.FAIL: 3}
_LEVELS: Mapping[str, int] = {
    **dict.fromkeys(("pcie", "gpu_memory", "memory", "memory_bandwidth", "integration"), 2),
    **dict.fromkeys(
        ("diagnostic", "targeted_stress", "targeted_power", "sm_stress", "nvbandwidth", "eud_test", "eud"), 3
    ),
    **dict.fromkeys(("memtest", "memory_stress", "pulse_test", "pulse", "input_edpp"), 4),
}
"""Run level from which on a test belongs to the run (DCGM user guide, run levels and tests)."""


@dataclass(frozen=True)
class Message:
    """A warning or an error beside a result. `gpu`: None where the text does not say. `line`: 0 in JSON."""

    text: str
    gpu: int | None
    code: str | None
    line: int = 0


@dataclass
class Test:
    """One test. `gpus`: results of single GPUs, where they are told."""

    name: str
    category: str
    status: Status | None = None
    gpus: dict[int, Status] = field(default_factory=dict)
    messages: list[Message] = field(default_factory=list)
    line: int = 0

    def add(self, status: Status, gpus: Sequence[int] = ()) -> None:
        """A further result; the worst counts."""
        if self.status is None or _RANK[status] > _RANK[self.status]:
            self.status = status
        for gpu in gpus:
            if gpu not in self.gpus or _RANK[status] > _RANK[self.gpus[gpu]]:
                self.gpus[gpu] = status

    @property
    def key(self) -> str:
        return re.sub(r"[^a-z0-9]+", "_", self.name.lower()).strip("_")


@dataclass(frozen=True)
class Diag:
    """One run, as far as its output goes."""

    tests: tuple[Test, ...]
    complete: bool
    dcgm_version: str | None = None
    driver_version: str | None = None
    device_ids: tuple[str, ...] = ()
    error: str = ""
    """Why the tool did not run the diagnostic."""

    @property
    def level(self) -> int:
        """Least run level that holds all tests seen."""
        return max((_LEVELS.get(test.key, 1) for test in self.tests), default=1)


def parse_table(text: str) -> Diag:
    """Read the table. Raises BadInputError when it is longer than any such table."""
    reader = _Reader()
    for number, raw in enumerate(text.split("\n"), start=1):
        if number > _MAX_ROWS:
            raise BadInputError(f"The diagnostic has more than {_MAX_ROWS} lines; give the output of one run.")
        reader.line(number, strip(raw).text)
    return reader.diag()


def status_of(text: str) -> Status | None:
    """`Pass`, `PASSED`, `Skip - All`, ... None for other text."""
    match = _WORD.match(text.strip())
    return Status(match[1].lower()) if match is not None else None


class _Reader:
    def __init__(self) -> None:
        self._tests: list[Test] = []
        self._facts: dict[str, str] = {}
        self._category = ""
        self._open: tuple[str, list[str], int] | None = None
        self._begun = False
        self._ended = False
        self._broken = False
        self._error = ""

    def line(self, number: int, text: str) -> None:
        stripped = text.strip()
        if not stripped:
            return
        if stripped.startswith(("+", "|")):
            self._table_line(number, stripped)
        elif (
            stripped.startswith(("Error:", "Unable to", "Cannot run diagnostic"))
            and len(self._error) < _MAX_MESSAGE_CHARS
        ):
            self._error = f"{self._error} {stripped[:500]}".strip()

    def _table_line(self, number: int, text: str) -> None:
        if match := _SECTION.match(text):
            self._close()
            self._category, self._begun, self._ended = match[1], True, False
        elif _FRAME.match(text):
            self._close()
            self._ended = self._begun and "=" not in text and text.endswith("+")
        elif match := _ROW.match(text):
            self._ended = False
            rest = match["rest"]
            self._broken = self._broken or not rest.rstrip().endswith("|")
            cell = rest.rstrip().removesuffix("|")[1:]
            self._row(number, match["name"].strip(), cell)
        else:
            self._broken, self._ended = True, False

    def _row(self, number: int, name: str, cell: str) -> None:
        if name in ("Diagnostic", "Result") and cell.strip() == "Result":
            return
        self._begun = True
        if not name and self._open is not None and not self._is_result(cell):
            self._open[1].append(cell[:_MESSAGE_COLUMN])
            return
        self._close()
        test = self._tests[-1] if self._tests else None
        if _NOTE.match(name):
            self._open = (name, [cell[:_MESSAGE_COLUMN]], number)
        elif not name:
            if test is not None:
                _result(test, cell)
        elif self._category == "Metadata" or name.endswith(("Version", "Detected")):
            self._facts[name] = cell.strip()
        elif status_of(cell) is not None:
            self._tests.append(Test(name, self._category, line=number))
            _result(self._tests[-1], cell)
        elif not cell.strip():
            self._broken = True

    def _is_result(self, cell: str) -> bool:
        return _ENTITY.match(cell.strip()) is not None or re.match(r"(Pass|Fail|Skip|Warn) - ", cell) is not None

    def _close(self) -> None:
        """The message that was read line by line is whole."""
        if self._open is None:
            return
        name, parts, line = self._open
        self._open = None
        if name.lower().startswith("info"):
            return
        text = " ".join("".join(parts).split())[:_MAX_MESSAGE_CHARS]
        named = _OF_GPU.search(name) or _OF_GPU.search(text)
        gpu = int(named[1]) if named is not None else None
        if not self._tests or (name.lower() == "error" and self._tests[-1].category != self._category):
            self._tests.append(Test(self._category or "diagnostic", self._category, Status.FAIL, line=line))
        test = self._tests[-1]
        if name.lower().startswith("error"):
            test.add(Status.FAIL, () if gpu is None else (gpu,))
        test.messages.append(Message(text, gpu, code_of(None, text), line))

    def diag(self) -> Diag:
        self._close()
        ids = self._facts.get("GPU Device IDs Detected", "")
        return Diag(
            tests=tuple(self._tests),
            complete=self._ended and not self._broken and bool(self._tests),
            dcgm_version=self._facts.get("DCGM Version") or None,
            driver_version=self._facts.get("Driver Version Detected") or None,
            device_ids=tuple(part.strip() for part in ids.split(",") if part.strip()),
            error=self._error,
        )


def _result(test: Test, cell: str) -> None:
    """`Pass`, `Pass - All`, `Fail - GPUs: 0, 3`, `GPU2: Fail`."""
    cell = cell.strip()
    if match := _ENTITY.match(cell):
        test.add(Status(match[3].lower()), (int(match[2]),) if match[1].upper() == "GPU" else ())
        return
    match = _WORD.match(cell)
    if match is not None:
        head, _, reason = (
            match[2].partition(":") if "GPUs:" not in match[2] and "GPU:" not in match[2] else (match[2], "", "")
        )
        test.add(Status(match[1].lower()), [int(number) for number in _NUMBERS.findall(head)[:1024]])
        if reason.strip():
            numbers = _NUMBERS.findall(head)
            test.messages.append(
                Message(reason.strip(), int(numbers[0]) if numbers else None, code_of(None, reason), test.line)
            )
