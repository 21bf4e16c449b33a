"""Reading what metadata services answer: JSON of a known shape, times in their many spellings. Strict and bounded."""

from __future__ import annotations

from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

import msgspec

from muster.errors import BadInputError
from muster.plain_text import plain

MAX_ID = 200
MAX_MESSAGE = 300
_decoder = msgspec.json.Decoder()


def read_json(body: bytes, what: str) -> Any:
    """Any JSON value. Raises BadInputError."""
    try:
        return _decoder.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BadInputError(f"{what} is not JSON: {plain(str(error), 120)}.") from error


def text(value: Any, what: str, at_most: int = MAX_ID) -> str:
    """A text on one line, without anything that a terminal would obey; empty for null. Raises BadInputError."""
    if value is None:
        return ""
    if not isinstance(value, str):
        raise BadInputError(f"{what} is {type(value).__name__} where a text belongs.")
    return plain(value, at_most)


def identifier(value: Any, what: str) -> str:
    """A text that is not empty and not cut. Raises BadInputError."""
    found = text(value, what, MAX_ID + 1)
    if not found or len(found) > MAX_ID:
        raise BadInputError(f"{what} must be a text of 1 to {MAX_ID} characters.")
    return found


def moment(value: Any, what: str) -> datetime | None:
    """A time as RFC 3339 or as in mail (RFC 1123, weekday optional); None for null or an empty text.

    A time without a zone is UTC, as the clouds write it. Raises BadInputError.
    """
    written = text(value, what, 64)
    if not written:
        return None
    try:
        found = datetime.fromisoformat(written)
    except ValueError:
        try:
            found = parsedate_to_datetime(written)
        except (ValueError, TypeError, IndexError, OverflowError) as error:
            raise BadInputError(f"{what} is {written!r}, which is no time.") from error
    try:
        return found.astimezone(UTC) if found.tzinfo is not None else found.replace(tzinfo=UTC)
    except OverflowError as error:
        raise BadInputError(f"{what} is {written!r}, which is no time that can be.") from error


def whole_number(value: Any, what: str) -> int:
    """A whole number, also written as text. Raises BadInputError."""
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise BadInputError(f"{what} is {type(value).__name__} where a number belongs.")
    try:
        return int(str(value)[:12])
    except ValueError as error:
        raise BadInputError(f"{what} is {plain(str(value), 40)!r} where a number belongs.") from error
