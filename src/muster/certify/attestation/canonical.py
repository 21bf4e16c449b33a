"""JSON in its one canonical form (RFC 8785): same value, same bytes, on every machine and in every language. Pure."""

from __future__ import annotations

import json
import math
from decimal import Decimal
from typing import Any

MAX_INTEGER = 2**53 - 1
"""The largest whole number that every reader of JSON takes exactly."""
MAX_DEPTH = 100


def canonical(value: Any, depth: int = 0) -> bytes:
    """`value` (plain JSON values) as bytes.

    Raises ValueError for what JSON cannot hold: numbers without end, half characters, values that nest too deeply.
    """
    if depth > MAX_DEPTH:
        raise ValueError("it nests too deeply")
    match value:
        case None:
            return b"null"
        case bool():
            return b"true" if value else b"false"
        case str():
            return _text(value)
        case int():
            if abs(value) > MAX_INTEGER:
                raise ValueError("a whole number in it is too large for JSON")
            return str(value).encode()
        case float():
            return _number(value).encode()
        case dict():
            # The standard orders keys by their UTF-16 code units.
            entries = sorted(value.items(), key=lambda entry: entry[0].encode("utf-16-be"))
            return b"{" + b",".join(_text(k) + b":" + canonical(v, depth + 1) for k, v in entries) + b"}"
        case list() | tuple():
            return b"[" + b",".join(canonical(v, depth + 1) for v in value) + b"]"
        case _:
            raise ValueError(f"a {type(value).__name__} is no value of JSON")


def _text(value: str) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode()


def _number(value: float) -> str:
    """As ECMAScript writes it: the fewest digits that read back as the same number."""
    if not math.isfinite(value):
        raise ValueError("a number in it is not finite")
    if value == 0:
        return "0"
    sign = "-" if value < 0 else ""
    _, figures, exponent = Decimal(repr(abs(value))).as_tuple()
    assert isinstance(exponent, int)  # noqa: S101 - text only for numbers that are not finite
    digits = "".join(map(str, figures))
    point = len(digits) + exponent
    digits = digits.rstrip("0")
    if 0 < point <= 21:
        whole, rest = digits[:point].ljust(point, "0"), digits[point:]
        return f"{sign}{whole}.{rest}" if rest else f"{sign}{whole}"
    if -6 < point <= 0:
        return f"{sign}0.{'0' * -point}{digits}"
    rest = f".{digits[1:]}" if len(digits) > 1 else ""
    return f"{sign}{digits[0]}{rest}e{point - 1:+d}"
