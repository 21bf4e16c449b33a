"""Make `data/catalogue.json` of the YAML in `data/`: `python -m muster.faults.generate`. A test compares the two."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from muster import yamlio
from muster.errors import BadInputError
from muster.faults.catalogue import Catalogue

DATA = Path(__file__).parent / "data"
TARGET = DATA / "catalogue.json"
CONDITIONS = ("host", "gpu", "network", "services", "maintenance")
"""Files with rows of `conditions`, in the order in which the catalogue lists them."""


def catalogue() -> Catalogue:
    """The catalogue as the YAML files state it.

    Raises BadInputError on a code that is listed twice, BadInputError or msgspec.ValidationError on a bad file.
    """
    xid, nvlink5, sxid, dcgm = (_read(name) for name in ("xid", "nvlink5", "sxid", "dcgm"))
    found = msgspec.convert(
        {
            "version": xid["version"],
            "xids": xid["xids"],
            "recovery_actions": xid["recovery_actions"],
            "nvlink_registers": xid["nvlink_registers"],
            "nvlink5": nvlink5["rows"],
            "sxid_classes": sxid["classes"],
            "sxids": sxid["sxids"],
            "dcgm": dcgm["dcgm"],
            "conditions": [row for name in CONDITIONS for row in _read(name)["conditions"]],
        },
        Catalogue,
    )
    _each_once("XID", (entry.code for entry in found.xids))
    _each_once("SXID", (entry.code for entry in found.sxids))
    _each_once("DCGM code", (entry.code for entry in found.dcgm))
    _each_once("condition", (entry.code for entry in found.conditions))
    return found


def _each_once(kind: str, codes: Iterable[int | str]) -> None:
    twice = sorted(str(code) for code, count in Counter(codes).items() if count > 1)
    if twice:
        raise BadInputError(f"The fault catalogue lists {kind} {', '.join(twice)} twice; give each code one row.")


def _read(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = yamlio.load(DATA / f"{name}.yaml")
    return loaded


def encoded() -> bytes:
    """The content that `catalogue.json` must have."""
    return msgspec.json.encode(catalogue()) + b"\n"


if __name__ == "__main__":
    TARGET.write_bytes(encoded())
