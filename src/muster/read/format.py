"""What a format is: how it is recognised and read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from muster.read.report import Report
from muster.read.source import Context, Input


@dataclass(frozen=True)
class Format:
    """`kinds`: what `--kind` may say for it. `detect`: how sure the format is of a sample, 0 to 1.

    `takes`: names of formats whose inputs it reads beside its own, as one picture of the same moment.
    """

    name: str
    kinds: tuple[str, ...]
    detect: Callable[[bytes], float]
    parse: Callable[[Sequence[Input], Context], Report]
    takes: tuple[str, ...] = ()
