"""Where the history is kept: `sqlite:///PATH` or `postgresql://USER@HOST/DATABASE`. Pure.

The address of a database may carry a password, so it is never shown as it was given.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from enum import StrEnum
from urllib.parse import parse_qsl, unquote, urlsplit

from muster.errors import BadInputError
from muster.plain_text import plain

VARIABLE = "MUSTER_HISTORY_URL"
MAX_CHARACTERS = 4096
_SECRET = re.compile(r"pass", re.IGNORECASE)


class Engine(StrEnum):
    """Which database."""

    SQLITE = "sqlite"
    POSTGRESQL = "postgresql"


@dataclass(frozen=True)
class Address:
    """`target` is a path, or what the driver of PostgreSQL takes; `shown` is the same without secrets."""

    engine: Engine
    target: str
    shown: str

    def __repr__(self) -> str:
        return f"Address({self.shown})"


def parse(text: str) -> Address:
    """Read an address. Raises BadInputError, without repeating a password."""
    text = text.strip()
    if len(text) > MAX_CHARACTERS:
        raise BadInputError(f"The address of the history is longer than {MAX_CHARACTERS} characters.")
    scheme, separator, rest = text.partition("://")
    if separator and scheme == "sqlite":
        path = unquote(rest.removeprefix("/")) if rest.startswith("//") else unquote(rest)
        if not path.startswith("/") or path.endswith("/") or "\0" in path:
            raise BadInputError(f"{_cut(text)} names no file; write sqlite:///var/lib/muster/history.db.")
        return Address(Engine.SQLITE, os.path.normpath(path), f"sqlite://{plain(path, 200)}")
    if separator and scheme in ("postgresql", "postgres"):
        return _postgresql(text)
    raise BadInputError(
        f"{_cut(scheme) if separator else 'The text given'} is no kind of history; write sqlite:///PATH or "
        "postgresql://USER@HOST/DATABASE."
    )


def _postgresql(text: str) -> Address:
    try:
        parts = urlsplit(text)
        port = parts.port
        options = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
    except ValueError as error:
        raise BadInputError(
            "The address of the PostgreSQL database cannot be read; write postgresql://USER@HOST:PORT/DATABASE."
        ) from error
    if parts.netloc.count("@") > 1:
        raise BadInputError("An @ in the user or password of the PostgreSQL database must be written as %40.")
    database = parts.path.strip("/")
    if not database:
        raise BadInputError("The address of the PostgreSQL database names no database; write it after the host.")
    user = f"{plain(unquote(parts.username), 80)}@" if parts.username else ""
    host = parts.hostname or next((value for key, value in options if key == "host"), "")
    where = f"[{host}]" if ":" in host else host
    kept = "&".join(f"{k}={'...' if _SECRET.search(k) else v}" for k, v in options if k != "host")
    shown = f"postgresql://{user}{where}{f':{port}' if port else ''}/{unquote(database)}{'?' + kept if kept else ''}"
    return Address(Engine.POSTGRESQL, text, plain(shown, 300))


def _cut(text: str) -> str:
    """What may be repeated of a text that was meant as an address: nothing after what may be a user's name."""
    return plain(re.split(r"[@?]", text)[0] if "@" not in text else text.split("://")[0], 120)
