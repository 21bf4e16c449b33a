"""Log lines of the deployables: one style for all of them, as text for people or as JSON for collectors.

    2026-01-05T08:00:00Z INFO muster.controller: node gpu-001: Uncertified -> Certifying (...)
    {"time": "2026-01-05T08:00:00Z", "level": "INFO", "logger": "muster.controller", "message": "node gpu-001: ..."}

What stands in a message may come from a kernel log or an API answer: it is cut to a length, and no control character
leaves the line that it is in.
"""

from __future__ import annotations

import json
import logging
import sys
from enum import StrEnum
from typing import TextIO

from muster.clock import Clock

MESSAGE_LIMIT = 4096
QUIET = ("httpx", "httpx2", "httpcore", "httpcore2", "asyncio")
"""Client libraries that tell of every request below this level."""


class LogFormat(StrEnum):
    TEXT = "text"
    JSON = "json"


class _Lines(logging.Formatter):
    def __init__(self, log_format: LogFormat, clock: Clock) -> None:
        super().__init__()
        self._log_format = log_format
        self._clock = clock

    def format(self, record: logging.LogRecord) -> str:
        """One line, at the time of the clock: in a simulation, in the time of the simulation."""
        time = f"{self._clock.now():%Y-%m-%dT%H:%M:%SZ}"
        text = record.getMessage()
        if record.exc_info:
            text = f"{text} | {self.formatException(record.exc_info)}"
        if len(text) > MESSAGE_LIMIT:
            text = text[:MESSAGE_LIMIT] + "…"
        if self._log_format is LogFormat.JSON:
            line = {"time": time, "level": record.levelname, "logger": record.name, "message": text}
            return json.dumps(line, ensure_ascii=True)
        return f"{time} {record.levelname} {record.name}: {one_line(text)}"


def one_line(text: str) -> str:
    """`text` without line ends and other control characters."""
    return "".join(c if c.isprintable() else " " for c in text)


def configure(log_format: LogFormat, clock: Clock, *, level: int, stream: TextIO | None = None) -> None:
    """Make the root logger write lines of `log_format` to `stream` (standard error)."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(_Lines(log_format, clock))
    logging.basicConfig(level=level, handlers=[handler], force=True)
    for noisy in QUIET:
        logging.getLogger(noisy).setLevel(logging.WARNING)
