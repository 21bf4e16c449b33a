"""The programs by name. A program runs inside one rank process; its module is imported when it runs."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping

from muster.workloads.context import RankContext
from muster.workloads.rank import RankResult

Program = Callable[[RankContext], RankResult]


def _from(module: str) -> Program:
    """The function `run` of `muster.workloads.<module>`."""

    def program(context: RankContext) -> RankResult:
        found: Program = importlib.import_module(f"muster.workloads.{module}").run
        return found(context)

    return program


PROGRAMS: Mapping[str, Program] = {
    "collective": _from("collective"),
    "pair": _from("pair"),
    "train": _from("train"),
    "gemm": _from("gemm"),
    "memory": _from("memory"),
    "storage": _from("storage"),
    "host": _from("host"),
    "command": _from("command"),
}
"""`collective` takes `collective` in its parameters: all-reduce, all-gather, reduce-scatter or all-to-all."""

ONE_RANK_PER_NODE = ("storage", "host", "command")
"""Programs that speak of the node as a whole: one rank does it, whatever the number of GPUs."""
