"""Resource quantities (`100m`, `16Gi`, `1e3`) in the one form in which an API server stores them."""

from __future__ import annotations

import re
from decimal import ROUND_UP, Decimal, InvalidOperation
from functools import lru_cache

_BINARY = {"Ki": 1, "Mi": 2, "Gi": 3, "Ti": 4, "Pi": 5, "Ei": 6}
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_FORM = re.compile(r"(?P<number>[+-]?(?:\d+\.?\d*|\.\d+))(?P<suffix>[numkMGTPE]|[KMGTPE]i|[eE][+-]?\d+)?")
_MILLI = Decimal(1).scaleb(-3)
_LONGEST = 64
_NAMES_OF_BINARY = {power: name for name, power in _BINARY.items()}
_NAMES_OF_DECIMAL = {power: name for name, power in _DECIMAL.items()}


@lru_cache(maxsize=4096)
def canonical_quantity(text: str) -> str | None:
    """The quantity as the server writes it back; None when `text` is none."""
    found = _FORM.fullmatch(text.strip()) if len(text) <= _LONGEST else None
    if found is None:
        return None
    try:
        return _canonical(Decimal(found["number"]), found["suffix"] or "")
    except InvalidOperation:
        # More digits than anybody can count.
        return None


def _canonical(number: Decimal, suffix: str) -> str | None:
    if suffix in _BINARY:
        return _binary(number * Decimal(1024) ** _BINARY[suffix])
    if suffix in _DECIMAL:
        return _decimal(_rounded(number.scaleb(_DECIMAL[suffix])), exponent=False)
    power = int(suffix[1:])
    return None if abs(power) > 30 else _decimal(_rounded(number.scaleb(power)), exponent=True)


@lru_cache(maxsize=4096)
def quantity_value(text: str) -> Decimal:
    """The number that a quantity in its stored form stands for; 0 for a text that is no quantity."""
    found = _FORM.fullmatch(text)
    if found is None:
        return Decimal(0)
    number, suffix = Decimal(found["number"]), found["suffix"] or ""
    if suffix in _BINARY:
        return number * Decimal(1024) ** _BINARY[suffix]
    return number.scaleb(_DECIMAL[suffix] if suffix in _DECIMAL else int(suffix[1:]))


def _rounded(value: Decimal) -> Decimal:
    """Nothing is finer than a thousandth in lists of resources; what is finer is rounded away from zero."""
    return value.quantize(_MILLI, rounding=ROUND_UP)


def _binary(value: Decimal) -> str:
    value = _rounded(value)
    if -1024 < value < 1024 or value != value.to_integral_value():
        return _decimal(value, exponent=False)
    whole, power = int(value), 0
    while whole % 1024 == 0 and power < 6:
        whole, power = whole // 1024, power + 1
    return f"{whole}{_NAMES_OF_BINARY.get(power, '')}"


def _decimal(value: Decimal, *, exponent: bool) -> str:
    if not value:
        return "0"
    whole, power = int(value.scaleb(9)), -9
    while whole % 1000 == 0 and power < 18:
        whole, power = whole // 1000, power + 3
    if exponent:
        return f"{whole}e{power}" if power else str(whole)
    return f"{whole}{_NAMES_OF_DECIMAL[power]}"
