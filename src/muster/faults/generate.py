"""Make `data/catalogue.json` of the YAML in `data/`: `python -m muster.faults.generate`. A test compares the two."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from muster import yamlio
from muster.faults.catalogue import Catalogue

DATA = Path(__file__).parent / "data"
TARGET = DATA / "catalogue.json"


def catalogue() -> Catalogue:
    """The catalogue as the YAML files state it. Raises BadInputError or msgspec.ValidationError on a bad file."""
    xid, nvlink5, sxid, dcgm, host = (_read(name) for name in ("xid", "nvlink5", "sxid", "dcgm", "host"))
    return msgspec.convert(
        {
            "version": xid["version"],
            "xids": xid["xids"],
            "recovery_actions": xid["recovery_actions"],
            "nvlink_registers": xid["nvlink_registers"],
            "nvlink5": nvlink5["rows"],
            "sxid_classes": sxid["classes"],
            "sxids": sxid["sxids"],
            "dcgm": dcgm["dcgm"],
            "conditions": host["conditions"],
        },
        Catalogue,
    )


def _read(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = yamlio.load(DATA / f"{name}.yaml")
    return loaded


def encoded() -> bytes:
    """The content that `catalogue.json` must have."""
    return msgspec.json.encode(catalogue()) + b"\n"


if __name__ == "__main__":
    TARGET.write_bytes(encoded())
