"""Errors that the controller logs with a traceback while it is played."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class _Complaints(logging.Handler):
    """An error with a traceback in the log of Muster is a bug, whatever it was caught by."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        super().__init__(logging.ERROR)
        self._tell = tell

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info:
            error = record.exc_info[1]
            self._tell(f"{record.name}: {record.getMessage()}: {type(error).__name__}: {error}")


@contextmanager
def listening(tell: Callable[[str], None]) -> Iterator[None]:
    log, handler = logging.getLogger("muster"), _Complaints(tell)
    before, propagated = log.level, log.propagate
    log.addHandler(handler)
    log.setLevel(logging.ERROR)
    log.propagate = False
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(before)
        log.propagate = propagated
