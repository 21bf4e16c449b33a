"""Writes tables in the layouts that nccl-tests has had, from figures that a test chooses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from muster.read import formats
from tests.read.cases import as_input

TWICE = ("all_reduce",)
SAME = ("sendrecv", "broadcast", "reduce")
PROGRAMS = (
    "all_reduce",
    "all_gather",
    "reduce_scatter",
    "alltoall",
    "sendrecv",
    "broadcast",
    "reduce",
    "gather",
    "scatter",
    "hypercube",
)


def factor(collective: str, ranks: int) -> float:
    if collective in SAME:
        return 1.0
    return (2.0 if collective in TWICE else 1.0) * (ranks - 1) / ranks


def number(value: float, width: int) -> str:
    """As the tool fits a number into a column."""
    digits = len(str(int(abs(value)))) if value == value and abs(value) != float("inf") else 3
    decimals = 2 if digits < width - 2 else 1 if digits < width - 1 else 0
    return f"{value:{width}.{decimals}f}"


@dataclass(frozen=True)
class Made:
    """One run. `rows`: (size in bytes, bus bandwidth out of place, in place) in GB/s."""

    rows: Sequence[tuple[int, float, float]]
    ranks: int = 16
    collective: str = "all_reduce"
    layout: str = "new"
    """`new` (version line, group), `middle` (group), `old` (bus number alone, error column, fewer columns)."""
    wrong: int | str = 0
    summary: bool = True
    hosts: Sequence[str] = ()
    header: bool = True
    names: dict[str, Any] = field(default_factory=dict)

    @property
    def average(self) -> float:
        return sum(a + b for _, a, b in self.rows) / (2 * len(self.rows)) if self.rows else 0.0

    def lines(self) -> list[str]:
        lines = self._head() if self.header else []
        for size, *rates in self.rows:
            lines.append(self._row(size, rates))
        if self.summary:
            bad = self.wrong if isinstance(self.wrong, int) else 0
            lines.append(f"# Out of bounds values : {bad} {'FAILED' if bad else 'OK'}")
            lines.append(f"# Avg bus bandwidth    : {self.average:g} ")
            lines.append("#")
        return lines

    def text(self, prefix: str = "") -> str:
        return "\n".join(prefix + line for line in self.lines()) + "\n"

    def _head(self) -> list[str]:
        lines = []
        if self.layout == "new":
            lines += [
                "# nccl-tests version 2.17.6 nccl-headers=22807 nccl-library=22903",
                f"# Collective test starting: {self.collective}_perf",
            ]
        lines.append(
            "# nThread 1 nGpus 1 minBytes 1024 maxBytes 8589934592 step: 2(factor) warmup iters: 5 iters: 20"
            " agg iters: 1 validation: 1 graph: 0"
        )
        lines += ["#", "# Using devices"]
        per_host = max(1, self.ranks // max(1, len(self.hosts)))
        for rank in range(self.ranks if self.hosts else 0):
            group = "" if self.layout == "old" else " Group  0"
            bus = 0x10 + rank % per_host
            pci = f"0x{bus:02x}" if self.layout == "old" else f"0000:{bus:02x}:00"
            host = self.hosts[rank // per_host]
            lines.append(
                f"#  Rank {rank:2}{group} Pid {5000 + rank:6} on {host:>10} device {rank % per_host:2} [{pci}] GPU X"
            )
        return [*lines, "#", *self._columns()]

    def _columns(self) -> list[str]:
        lead = "       size         count      type" + ("" if self._bare else "   redop    root")
        check = " error" if self.layout == "old" else "#wrong"
        half = f"     time   algbw   busbw {check}"
        return [
            f"# {'':60} out-of-place                       in-place",
            f"#{lead}{half}{half}",
            "#        (B)    (us)  (GB/s)",
        ]

    @property
    def _bare(self) -> bool:
        return self.layout == "old" and self.collective in ("all_gather", "alltoall", "sendrecv")

    def _row(self, size: int, rates: Sequence[float]) -> str:
        redop = "sum" if self.collective in ("all_reduce", "reduce_scatter", "reduce") else "none"
        lead = f"{size:12}  {size // 4:12}  {'float':>8}" + ("" if self._bare else f"  {redop:>6}  {-1:6}")
        halves = []
        for place, rate in enumerate(rates):
            algbw = rate / factor(self.collective, self.ranks)
            time = size / algbw / 1e3 if algbw > 0 else 12.5
            check: int | str = self.wrong if place == 0 or isinstance(self.wrong, str) else 0
            shown = "2e-07" if self.layout == "old" else str(check)
            halves.append(f"  {number(time, 7)}  {number(algbw, 6)}  {number(rate, 6)}  {shown:>6}")
        return lead + "".join(halves)


def read(text: str, context: dict[str, Any] | None = None, kind: str | None = None) -> dict[str, Any]:
    """The report on one input as plain values."""
    return formats.read([as_input("input", text.encode())], context or {}, kind).plain()


def verdicts(report: dict[str, Any]) -> dict[str, tuple[str, str]]:
    return {v["of"]: (v["result"], v["reason"]) for v in report["verdicts"]}


def value(report: dict[str, Any], name: str) -> Any:
    return report["values"][name]["value"]
