"""Files and pipes that readers take, bounded chunk by chunk."""

from __future__ import annotations

import stat
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from muster.errors import BadInputError
from muster.read.source import SAMPLE_BYTES, Input

CHUNK_BYTES = 64 * 1024


def input_of(name: str) -> Input:
    """The file of that name, or standard input for `-`. Raises BadInputError."""
    if name == "-":
        if sys.stdin is None:
            raise BadInputError("Standard input is closed; give a file or pipe the log in.")
        return _stream_input("standard input", sys.stdin.buffer)
    path = Path(name)
    try:
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            raise BadInputError(f"{name} is a directory; name the file to read.")
        if not stat.S_ISREG(mode):
            return _stream_input(name, path.open("rb"))
        with path.open("rb") as file:
            sample = file.read(SAMPLE_BYTES)
    except OSError as error:
        raise BadInputError(f"Cannot read {name}: {error.strerror or error}.") from error
    except ValueError as error:
        raise BadInputError(f"Cannot read {name!r}: {error}.") from error
    return Input(name, sample, _reopen(path, name))


def _reopen(path: Path, name: str) -> Callable[[], Iterator[bytes]]:
    def chunks() -> Iterator[bytes]:
        try:
            with path.open("rb", buffering=0) as file:
                while chunk := file.read(CHUNK_BYTES):
                    yield chunk
        except OSError as error:
            raise BadInputError(f"Cannot read {name}: {error.strerror or error}.") from error

    return chunks


def _stream_input(name: str, stream: BinaryIO) -> Input:
    """Standard input and pipes can be read once; what was sampled is handed out first."""
    sample = stream.read(SAMPLE_BYTES)
    used = False

    def chunks() -> Iterator[bytes]:
        nonlocal used
        if used:
            raise BadInputError(f"{name} can be read only once; save it to a file first.")
        used = True
        yield sample
        while chunk := stream.read(CHUNK_BYTES):
            yield chunk

    return Input(name, sample, chunks)
