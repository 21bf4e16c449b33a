"""Reading the parameters of a program: typed, bounded, and refused by name."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from muster.workloads.rank import RankFailure

_SIZE = re.compile(r"(\d{1,15})(?:\.(\d{1,3}))?\s*([KMGT]?)(?:i?B)?", re.IGNORECASE)
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def bytes_of(text: str) -> int:
    """`4M` -> 4194304: K, M, G, T are powers of 1024, as in nccl-tests. Raises `ValueError`."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is no size: write for example 64K, 16M or 1G")
    whole, part, unit = match.groups()
    return int(float(f"{whole}.{part or 0}") * _UNITS[unit.upper()]) if part else int(whole) * _UNITS[unit.upper()]


def text_of(size_bytes: int) -> str:
    """4194304 -> `4M`; the exact number of bytes where no unit fits."""
    for unit in ("T", "G", "M", "K"):
        if size_bytes and size_bytes % _UNITS[unit] == 0:
            return f"{size_bytes // _UNITS[unit]}{unit}"
    return str(size_bytes)


class Params:
    """The parameters of a run. Every reader refuses a wrong value with a `RankFailure` (`harness`) that names it."""

    def __init__(self, values: Mapping[str, object]) -> None:
        self._values = values

    def refuse_others(self, *known: str) -> None:
        """A parameter that no program reads is a mistake, not a wish to ignore."""
        unknown = sorted(set(self._values) - set(known))
        if unknown:
            raise RankFailure(
                "harness", f"unknown parameter {unknown[0]!r}: this program knows {', '.join(sorted(known))}"
            )

    def has(self, key: str) -> bool:
        return self._values.get(key) is not None

    def number(self, key: str, default: float, *, least: float = 0.0, most: float = math.inf) -> float:
        value = self._values.get(key, default)
        if isinstance(value, str):
            try:
                value = float(value)
            except ValueError:
                raise self._wrong(key, value, "a number") from None
        if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value):
            raise self._wrong(key, value, "a number")
        if not least <= value <= most:
            raise self._wrong(key, value, f"between {least:g} and {most:g}")
        return float(value)

    def whole(self, key: str, default: int, *, least: int = 0, most: int = 1 << 50) -> int:
        value = self.number(key, default, least=least, most=most)
        if value != int(value):
            raise self._wrong(key, value, "a whole number")
        return int(value)

    def size(self, key: str, default: int, *, least: int = 0, most: int = 1 << 50) -> int:
        """Bytes: a number, or a text such as `16M`."""
        value = self._values.get(key, default)
        if isinstance(value, str):
            try:
                value = bytes_of(value)
            except ValueError:
                raise self._wrong(key, value, "a size such as 64K, 16M or 1G") from None
        if isinstance(value, bool) or not isinstance(value, int):
            raise self._wrong(key, value, "a size in bytes")
        if not least <= value <= most:
            raise self._wrong(key, value, f"between {least} and {most} bytes")
        return value

    def text(self, key: str, default: str = "", *, among: tuple[str, ...] = ()) -> str:
        value = self._values.get(key, default)
        if not isinstance(value, str):
            raise self._wrong(key, value, "a text")
        if among and value not in among:
            raise self._wrong(key, value, f"one of {', '.join(among)}")
        return value

    def flag(self, key: str, default: bool = False) -> bool:
        value = self._values.get(key, default)
        if isinstance(value, str) and value.lower() in ("true", "false"):
            return value.lower() == "true"
        if not isinstance(value, bool):
            raise self._wrong(key, value, "true or false")
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        value = self._values.get(key, ())
        if not isinstance(value, list | tuple) or not all(isinstance(each, str) for each in value):
            raise self._wrong(key, value, "a list of texts")
        return tuple(str(each) for each in value)

    def wholes(self, key: str) -> tuple[int, ...]:
        value = self._values.get(key, ())
        if not isinstance(value, list | tuple) or not all(type(each) is int and 0 <= each < 1024 for each in value):
            raise self._wrong(key, value, "a list of whole numbers from 0 on")
        return tuple(int(each) for each in value)

    def mapping(self, key: str) -> dict[str, object]:
        value = self._values.get(key, {})
        if not isinstance(value, Mapping):
            raise self._wrong(key, value, "a mapping")
        return {str(name): item for name, item in value.items()}

    @staticmethod
    def _wrong(key: str, value: object, wanted: str) -> RankFailure:
        return RankFailure("harness", f"parameter {key} is {str(value)[:60]!r}: it must be {wanted}")
