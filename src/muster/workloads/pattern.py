"""Values by which a wrong element shows: whole numbers that depend on the rank and on the place in the buffer.

They repeat after a prime number of elements, so that chunks that changed places (chunks are powers of two long) do
not fit. Sums over all ranks stay exact in the type that is used.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

PERIOD = 509
TILE_PERIODS = 2048
"""A tile of about a million elements is compared at a time: comparing needs little memory beside the buffers."""
EXACT: dict[str, int] = {
    "float32": 1 << 24,
    "float64": 1 << 52,
    "int32": 1 << 30,
    "float16": 1 << 11,
    "bfloat16": 1 << 8,
}
"""The largest whole number up to which every whole number is exact, by type."""


def span(dtype: str, ranks: int) -> int:
    """Values are below this, so that a sum over `ranks` is exact. Raises `ValueError` when no two values are left."""
    found = min(256, EXACT[dtype] // max(1, ranks) + 1)
    if found < 2:
        raise ValueError(f"a sum over {ranks} ranks is not exact in {dtype}: use float32")
    return found


@lru_cache(maxsize=64)
def values(rank: int, below: int, shift: int = 0) -> tuple[int, ...]:
    """One period of what `rank` sends; `shift` tells blocks for different receivers apart."""
    step = 2 * (rank % 7) + 1
    return tuple((place * step + 13 * rank + 17 * shift + 1) % below for place in range(PERIOD))


@lru_cache(maxsize=8)
def sums(ranks: int, below: int) -> tuple[int, ...]:
    """One period of the sum over all ranks."""
    return tuple(map(sum, zip(*(values.__wrapped__(rank, below) for rank in range(ranks)), strict=True)))


def tile(torch: Any, period: tuple[int, ...], like: Any) -> Any:
    """Many periods as a tensor of the type and device of `like`, no longer than two periods beyond it."""
    repeats = min(TILE_PERIODS, like.numel() // PERIOD + 2)
    return torch.tensor(period, dtype=like.dtype, device=like.device).repeat(repeats)


def fill(torch: Any, into: Any, period: tuple[int, ...], place: int = 0) -> None:
    """Writes the pattern into a flat tensor whose first element stands at `place` of the whole buffer."""
    turned = tile(torch, _turned(period, place), into)
    for at in range(0, into.numel(), turned.numel()):
        part = into[at : at + turned.numel()]
        part.copy_(turned[: part.numel()])


def wrong(torch: Any, found: Any, period: tuple[int, ...], place: int = 0) -> int:
    """How many elements are not what they must be. NaN is wrong too."""
    turned = tile(torch, _turned(period, place), found)
    count = 0
    for at in range(0, found.numel(), turned.numel()):
        part = found[at : at + turned.numel()]
        count += int((part != turned[: part.numel()]).sum())
    return count


def _turned(period: tuple[int, ...], place: int) -> tuple[int, ...]:
    start = place % PERIOD
    return period[start:] + period[:start]
