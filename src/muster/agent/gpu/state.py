"""What the judgement of the GPUs remembers between looks and over restarts of the agent."""

from __future__ import annotations

from datetime import datetime

import msgspec

from muster.resources.base import Model

FORMAT = 1


class Known(Model, frozen=True, kw_only=True):
    """A GPU that the node has shown."""

    uuid: str
    pci: str = ""
    index: int = 0


class Counter(Model, frozen=True, kw_only=True):
    """The last value of a growing number."""

    value: int
    at: datetime


class GpuState(Model, frozen=True, kw_only=True):
    """A value; mappings are never changed in place."""

    format: int = FORMAT
    boot_id: str = ""
    most: int = 0
    """The most GPUs that the node has shown."""
    known: tuple[Known, ...] = ()
    """The GPUs of the last look at which none was missing, by UUID."""
    counters: dict[str, Counter] = {}
    """`<uuid>/<name>` -> last value; growth is judged, never the value."""
    runs: dict[str, int] = {}
    """`<uuid>/<code>` -> looks in a row at which it was bad."""
    links_up: dict[str, tuple[int, ...]] = {}
    """UUID -> links that were up in this boot, or were told to be down in the one before."""
    links_down: dict[str, tuple[int, ...]] = {}
    """UUID -> links that the last look told to be down: a boot alone does not mend them."""
    fresh: int = 0
    """Looks that still count as the first ones after a boot."""


def encode(state: GpuState) -> str:
    return msgspec.json.encode(state).decode()


def decode(text: str) -> GpuState | None:
    """Read what `encode` wrote; None for anything else."""
    try:
        state = msgspec.json.decode(text, type=GpuState)
    except (msgspec.MsgspecError, UnicodeError):
        return None
    return state if state.format == FORMAT else None
