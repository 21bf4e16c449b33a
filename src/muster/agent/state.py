"""What an agent keeps across restarts: one small document, replaced as a whole."""

from __future__ import annotations

import errno
import logging
import os
import threading
from pathlib import Path
from typing import Protocol

from muster.errors import BadInputError

log = logging.getLogger(__name__)

MAX_STATE_BYTES = 16 * 1024 * 1024
SAVE_S = 3.0
"""A disk that hangs holds the agent so long, once: what it read of that disk's errors must still be told."""
_SICK_DISK = (errno.ENOSPC, errno.EROFS, errno.EIO, errno.EDQUOT)
"""The folder is right and its disk is not: that is a fault of the node, which the agent is there to tell."""


class StateStore(Protocol):
    """Keeps one document. After `save` returns, `load` gives that document, also after a crash or power loss."""

    def load(self) -> bytes | None: ...

    def save(self, document: bytes) -> None: ...


class MemoryStateStore:
    """For simulated nodes: survives the agent, not the process."""

    def __init__(self) -> None:
        self._document: bytes | None = None

    def load(self) -> bytes | None:
        return self._document

    def save(self, document: bytes) -> None:
        self._document = document


class DirectoryStateStore:
    """One file in a directory of the node, written beside the old one, flushed to disk, then renamed over it."""

    FILE = "agent-state.json"

    def __init__(self, folder: Path) -> None:
        """Creates `folder` when it is missing. Raises BadInputError when it cannot be used.

        A disk that is full, read-only or broken raises nothing here: each `save` does.
        """
        self._file = folder / self.FILE
        self._saving: threading.Thread | None = None
        try:
            folder.mkdir(parents=True, exist_ok=True)
            probe = folder / f".{self.FILE}.probe"
            probe.write_bytes(b"")
            probe.unlink()
        except OSError as error:
            if error.errno in _SICK_DISK:
                return
            raise BadInputError(
                f"Cannot keep state in {folder} ({error.strerror or error}); give another --state-dir."
            ) from error

    def load(self) -> bytes | None:
        """The document, or None when there is none, it cannot be read or is too large to be one of ours."""
        try:
            with self._file.open("rb") as file:
                document = file.read(MAX_STATE_BYTES + 1)
        except FileNotFoundError:
            return None
        except OSError as error:
            log.warning("the state of the agent before cannot be read: %s", error)
            return None
        return document if len(document) <= MAX_STATE_BYTES else None

    def save(self, document: bytes) -> None:
        """Raises OSError; also when the disk does not answer within SAVE_S, and at once while it still does not."""
        if self._saving is not None and self._saving.is_alive():
            raise OSError(errno.ETIMEDOUT, "the disk has not answered since an earlier write")
        failures: list[BaseException] = []

        def work() -> None:
            try:
                self._write(document)
            except BaseException as error:  # handed to whoever waits
                failures.append(error)

        self._saving = threading.Thread(target=work, name="state", daemon=True)
        try:
            self._saving.start()
        except RuntimeError:  # no thread to be had
            self._saving = None
            self._write(document)
            return
        self._saving.join(SAVE_S)
        if self._saving.is_alive():
            raise OSError(errno.ETIMEDOUT, f"the disk did not answer within {SAVE_S:g} s")
        if failures:
            raise failures[0]

    def _write(self, document: bytes) -> None:
        beside = self._file.with_name(f".{self.FILE}.new")
        with beside.open("wb") as file:
            file.write(document)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(self._file)
        folder = os.open(self._file.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
