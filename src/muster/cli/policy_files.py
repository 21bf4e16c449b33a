"""Files of policies and cases that the verbs of `muster policy` are given."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from muster.errors import BadInputError

if TYPE_CHECKING:
    from muster.resources.fault_policy import FaultPolicy


def read_bytes(name: str, limit: int) -> bytes:
    """The content of a file, `-` for the standard input. Raises BadInputError."""
    try:
        if name == "-":
            data = sys.stdin.buffer.read(limit + 1)
        else:
            with Path(name).open("rb") as file:
                data = file.read(limit + 1)
    except OSError as error:
        raise BadInputError(f"{name} cannot be read ({error.strerror or error}); give a readable file.") from error
    if len(data) > limit:
        raise BadInputError(f"{name} is larger than {limit // 1024 // 1024} MiB; give a smaller file.")
    return data


def load_documents(files: Sequence[str]) -> Iterator[tuple[str, Any]]:
    """(name for people, document) of every YAML document of `files`; empty ones are left out, lists are opened."""
    from muster import yamlio

    for name in files:
        source = "standard input" if name == "-" else name
        documents = yamlio.loads_all(read_bytes(name, yamlio.MAX_BYTES), source)
        if all(document is None for document in documents):
            raise BadInputError(f"{source} is empty; give a FaultPolicy.")
        for document in documents:
            if isinstance(document, dict) and str(document.get("kind", "")).endswith("List"):
                yield from ((source, item) for item in document.get("items") or [])
            elif document is not None:
                yield source, document


def load_policies(files: Sequence[str]) -> list[tuple[str, FaultPolicy]]:
    """(file, policy) of every FaultPolicy in `files`. Raises BadInputError."""
    from muster.operate.policy_files import read_policy

    return [
        (source, read_policy(document, source))
        for source, document in load_documents(files)
        if not (isinstance(document, dict) and "cases" in document)
    ]
