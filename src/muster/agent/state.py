"""What an agent keeps across restarts: one small document, replaced as a whole."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Protocol

from muster.errors import BadInputError

MAX_STATE_BYTES = 16 * 1024 * 1024


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
        """Creates `folder` when it is missing. Raises BadInputError when it cannot be used."""
        self._file = folder / self.FILE
        try:
            folder.mkdir(parents=True, exist_ok=True)
            probe = folder / f".{self.FILE}.probe"
            probe.write_bytes(b"")
            probe.unlink()
        except OSError as error:
            raise BadInputError(
                f"Cannot keep state in {folder} ({error.strerror or error}); give another --state-dir."
            ) from error

    def load(self) -> bytes | None:
        """The document, or None when there is none or it is too large to be one of ours."""
        try:
            with self._file.open("rb") as file:
                document = file.read(MAX_STATE_BYTES + 1)
        except FileNotFoundError:
            return None
        return document if len(document) <= MAX_STATE_BYTES else None

    def save(self, document: bytes) -> None:
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
