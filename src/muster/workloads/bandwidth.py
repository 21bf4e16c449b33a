"""Sizes of a sweep and the bandwidth that a time means. Pure.

A size is that of the whole buffer of one rank, the larger one where sending and receiving differ: for all-gather what
arrives, for reduce-scatter what is sent. algbw = size / time. busbw = algbw x factor, comparable between group sizes
and with the speed of the hardware: 2(n-1)/n for all-reduce, (n-1)/n for the others (conventions of nccl-tests).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

COLLECTIVES = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all")
GB = 1e9
"""Bandwidths are in GB/s of 10^9 bytes."""


def sweep(min_bytes: int, max_bytes: int, factor: int, granule_bytes: int) -> list[int]:
    """Sizes from `min_bytes` to `max_bytes`, each `factor` times the one before, and `max_bytes` itself; every one is
    rounded down to a multiple of `granule_bytes` (at least one granule), none stands twice."""
    if min_bytes < 0 or max_bytes < max(1, min_bytes) or factor < 2 or granule_bytes < 1:
        raise ValueError(f"no sweep from {min_bytes} to {max_bytes} bytes by {factor}")
    wanted = []
    size = max(1, min_bytes)
    while size < max_bytes:
        wanted.append(size)
        size *= factor
    wanted.append(max_bytes)
    return sorted({max(1, each // granule_bytes) * granule_bytes for each in wanted})


def bus_factor(collective: str, ranks: int) -> float:
    """busbw / algbw. Raises `ValueError` for an unknown collective or no ranks."""
    if ranks < 1:
        raise ValueError(f"a group of {ranks} ranks")
    if collective == "all-reduce":
        return 2 * (ranks - 1) / ranks
    if collective in COLLECTIVES:
        return (ranks - 1) / ranks
    raise ValueError(f"no collective {collective!r}: there are {', '.join(COLLECTIVES)}")


def figures(
    collective: str, ranks: int, size_bytes: int, time_s: float, *, placement: str, wrong: int | None
) -> dict[str, Any]:
    """One line of a sweep. A time that is not positive gives no bandwidth."""
    algbw = size_bytes / time_s / GB if time_s > 0 else None
    return {
        "sizeBytes": size_bytes,
        "placement": placement,
        "timeUs": time_s * 1e6 if time_s > 0 else None,
        "algbwGbPerS": algbw,
        "busbwGbPerS": None if algbw is None else algbw * bus_factor(collective, ranks),
        "wrong": wrong,
    }


def table(sizes: Sequence[Any]) -> str:
    """The sweep as text, one line per size and placement."""
    lines = [f"{'bytes':>14} {'place':>5} {'time us':>12} {'algbw GB/s':>11} {'busbw GB/s':>11} {'wrong':>7}"]
    for each in sizes:
        cells = [
            _cell(each.get(key), width) for key, width in (("timeUs", 12), ("algbwGbPerS", 11), ("busbwGbPerS", 11))
        ]
        wrong = "n/a" if each.get("wrong") is None else str(each["wrong"])
        lines.append(f"{each.get('sizeBytes', 0):>14} {each.get('placement', ''):>5} {' '.join(cells)} {wrong:>7}")
    return "\n".join(lines)


def _cell(value: object, width: int) -> str:
    return f"{value:>{width}.3f}" if isinstance(value, int | float) else "n/a".rjust(width)
