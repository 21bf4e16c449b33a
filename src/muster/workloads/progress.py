"""What a rank is doing right now, in a file that its supervisor reads when the rank does not answer any more."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path


class Progress:
    """Keeps one JSON line: `phase`, `step`, `waiting` (inside an operation that needs peers), `at` (Unix time,
    seconds).

    A hang is explained by it: who does not wait for others while all others wait is the silent one.
    """

    def __init__(self, path: Path | None) -> None:
        self._file = (
            None if path is None else os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        )

    def enter(self, phase: str, *, step: int = 0, waiting: bool = False) -> None:
        if self._file is None:
            return
        line = json.dumps({"phase": phase[:40], "step": step, "waiting": waiting, "at": time.time()})
        # A fixed width, written in place: a reader never sees half a line followed by the rest of an older one.
        os.pwrite(self._file, line.ljust(159).encode()[:159] + b"\n", 0)


def read_progress(path: Path) -> dict[str, object]:
    """What stands in the file; empty when there is nothing legible."""
    try:
        found = json.loads(path.read_bytes()[:1000])
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
