"""Backtraces of a process that died by a signal: whose frame it was, below the handler that prints them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from muster.read.collectives import kinds
from muster.read.collectives.faults import Sightings, process

MAX_FRAMES = 128
MAX_CRASHES = 64
# UCX: [host:pid:index:tid] Caught signal 11 (Segmentation fault: address not mapped to object at address 0x48)
_UCX = re.compile(
    r"\[(?P<host>[^\s:\[\]]{1,253}):(?P<pid>\d{1,10}):\d{1,6}:(?P<tid>\d{1,10})\] Caught signal (?P<signal>\d{1,3})"
    r"(?: \((?P<what>[^)]{1,200}))?"
)
# Open MPI: [host:pid] Signal: Segmentation fault (11)
_MPI = re.compile(r"\[(?P<host>[^\s:\[\]]{1,253}):(?P<pid>\d{1,10})\] (?P<rest>.{1,400})")
_MPI_SIGNAL = re.compile(r"Signal: (?P<what>[\w ]{1,60}) \((?P<signal>\d{1,3})\)")
_ADDRESS = re.compile(r"(?:at address:?|Failing at address:) ?(?P<address>0x[0-9a-fA-F]{1,16}|\(nil\)?)")
_FRAME = re.compile(
    r"\[? ?(?P<number>\d{1,3})\]? {1,3}(?P<module>/?[\w./+@-]{1,300}\.so[\w.]{0,40}|/[\w./+@-]{1,300}|[\w.+-]{1,100})"
    r"\((?P<symbol>[^()]{0,300})\)? ?\[?(?P<pc>0x[0-9a-f]{1,16})?"
)
# UCX with symbols: ` 1 0x00000000000a1b2c function()  /build/file.cc:880`; the module is not told.
_SYMBOL_FRAME = re.compile(
    r"(?P<number>\d{1,3}) {1,4}0x[0-9a-f]{1,16} {1,4}(?P<symbol>[^\s()]{1,300})\((?P<arguments>[^()]{0,300})\)"
)
_HANDLER = ("ucs_handle_error", "ucs_debug", "sigaction", "restore_rt", "killpg", "backtrace", "opal_")
_HANDLER_MODULES = ("libucs", "libopen-pal", "libSegFault")


@dataclass
class Crash:
    """One process that died. `frames` are (number, module, symbol), as printed; numbers may skip."""

    file: str
    line: int
    text: str
    host: str | None
    pid: int | None
    tid: int | None
    signal: int
    address: str | None = None
    frames: list[tuple[int, str, str]] = field(default_factory=list)


class Crashes:
    """Reads crash reports, line by line."""

    def __init__(self) -> None:
        self.found: list[Crash] = []
        self._current: Crash | None = None

    def take(self, file: str, number: int, text: str) -> bool:
        """True when the line belongs to a crash report."""
        if "Caught signal" in text and (found := _UCX.search(text)):
            self._start(file, number, text, found, int(found["signal"]), found["what"] or "")
            return True
        if "] Signal: " in text and (found := _MPI.search(text)) and (what := _MPI_SIGNAL.match(found["rest"])):
            self._start(file, number, text, found, int(what["signal"]), what["what"])
            return True
        if self._current is None:
            return False
        if "ailing at address" in text and (address := _ADDRESS.search(text)):
            self._current.address = _address(address["address"])
            return True
        return self._frame(text)

    def _start(self, file: str, number: int, text: str, found: re.Match[str], signal: int, what: str) -> None:
        parts: Mapping[str, Any] = found.groupdict()
        address = _ADDRESS.search(what)
        crash = Crash(
            file,
            number,
            text,
            parts["host"],
            int(parts["pid"]),
            int(parts["tid"]) if parts.get("tid") else None,
            signal,
            _address(address["address"]) if address else None,
        )
        self._current = crash
        if len(self.found) < MAX_CRASHES:
            self.found.append(crash)

    def _frame(self, text: str) -> bool:
        crash = self._current
        mpi = _MPI.match(text.strip()) if text.lstrip().startswith("[") and "] [" in text else None
        if crash is not None and (plain := _SYMBOL_FRAME.match(text.strip())):
            if len(crash.frames) < MAX_FRAMES:
                crash.frames.append((int(plain["number"]), "", plain["symbol"]))
            return True
        found = _FRAME.match((mpi["rest"] if mpi else text).strip())
        if crash is None or found is None or ("0x" not in text and ".so" not in text):
            return "backtrace (tid:" in text or "Signal code:" in text or "*** " in text
        if len(crash.frames) < MAX_FRAMES:
            crash.frames.append((int(found["number"]), found["module"].rpartition("/")[2], found["symbol"]))
        return True


def _address(text: str) -> str:
    """The null pointer as the number that it is."""
    return "0x0" if text.startswith("(nil") else text


def first_outside(crash: Crash) -> tuple[int, str] | None:
    """(number, module) of the first frame below the handler that printed the trace; None when there is none."""
    for number, module, symbol in crash.frames:
        handler = module.startswith(_HANDLER_MODULES) or any(word in symbol for word in _HANDLER)
        if not handler and not (module.startswith(("libc.so", "libpthread")) and number <= 1):
            return number, module
    return None


def note(sightings: Sightings, crash: Crash, node: str | None) -> None:
    """Record a crash as a fault."""
    outside = first_outside(crash)

    def make() -> tuple[dict[str, Any], dict[str, Any]]:
        details: dict[str, Any] = {"signal": crash.signal, "address": crash.address}
        details["module"] = (outside[1] or None) if outside else None
        details["first_frame_outside_handler"] = outside[0] if outside else None
        return process(node, crash.pid, tid=crash.tid), details

    sighted = sightings.see(((node,), crash.pid, crash.tid, crash.line), kinds.SEGFAULT, make, crash.line)
    if sighted is not None:
        sighted.add(crash.file, crash.line, crash.text, None)


_KNOWN = (("2.27.7", "libnccl", "NCCL_RAS_ENABLE=0"),)
"""(version of NCCL, library of the crash, workaround): reported crashes in the state service of that release."""


def known_issue(version: str | None, crashes: list[Crash]) -> dict[str, str] | None:
    """A known defect that fits version and library; an inference, as offsets alone do not tell which code it was."""
    modules = [outside[1] for crash in crashes if (outside := first_outside(crash)) is not None]
    for known, library, workaround in _KNOWN:
        if version is not None and version.split("+")[0] == known and any(m.startswith(library) for m in modules):
            return {"nccl": known, "workaround": workaround}
    return None
