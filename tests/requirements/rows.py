"""The requirements as rows: what is asked, where it could be proven, and what is said of those that are not."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Any

import msgspec
import yaml

FILE = Path(__file__).with_name("rows.yaml")


class Priority(StrEnum):
    """Our proposal, not the source's."""

    MUST = "must"
    SHOULD = "should"
    OUT = "out"


class Where(StrEnum):
    """What a proof needs."""

    PURE = "U"
    SIMULATED = "S"
    REAL_API = "R"
    PROCESSES = "L"
    HARDWARE = "H"


class Row(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`why`: it is not Muster's business. `partly`: what the tests do not show. `without`: why there is no test."""

    ids: tuple[str, ...]
    priority: Priority
    asks: str
    measure: str = ""
    where: tuple[Where, ...] = ()
    why: str = ""
    partly: str = ""
    without: str = ""


class Area(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    area: str
    rows: tuple[Row, ...]


class Beyond(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Requirements without a row, because they are wholly another's."""

    list: str
    ids: str
    about: str


class Requirements(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    areas: tuple[Area, ...]
    beyond: tuple[Beyond, ...]

    def ids(self) -> list[str]:
        """Every ID, in the order of the file."""
        return [name for area in self.areas for row in area.rows for name in row.ids]


def load() -> Requirements:
    """Raises msgspec.ValidationError."""
    content: Any = yaml.safe_load(FILE.read_text(encoding="utf-8"))
    return msgspec.convert(content, Requirements)
