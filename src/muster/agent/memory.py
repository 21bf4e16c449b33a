"""The document that an agent keeps on its node: cursor and open faults in one, so that they belong together."""

from __future__ import annotations

import msgspec

from muster.resources.base import Model
from muster.resources.fingerprint import Reading
from muster.resources.node_health import Observed

FORMAT = 1
"""Raised when the document changes its meaning; documents of another format are dropped."""


class Memory(Model, frozen=True, kw_only=True):
    """What one agent hands to the next one on the same node. `observed` is also the spool of an API outage."""

    format: int = FORMAT
    boot_id: str
    cursor: str | None = None
    """Where the kernel log goes on, for the boot of `boot_id` only."""
    diagnosis: str
    """The fault assembly, in its own form."""
    readings: tuple[Reading, ...] = ()
    most_gpus: int = 0
    """The most GPUs that this node has shown: with fewer, a fault of a missing one is not over."""
    monitors: dict[str, str] = {}
    """Name of each monitor, and what it wants kept."""
    observed: Observed | None = None
    """The state that was offered to the API last, whether it arrived or not."""


def encode(memory: Memory) -> bytes:
    return msgspec.json.encode(memory)


def decode(document: bytes | None) -> Memory | None:
    """Read what `encode` wrote; None when there is nothing or it is not readable (a damaged disk, another format)."""
    if document is None:
        return None
    try:
        memory = msgspec.json.decode(document, type=Memory)
    except (msgspec.MsgspecError, RecursionError):
        return None
    return memory if memory.format == FORMAT else None
