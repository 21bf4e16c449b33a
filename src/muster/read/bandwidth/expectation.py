"""What the reader of a bandwidth table is told beside it: the network, the algorithm, the floors."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from muster.errors import BadInputError
from muster.read.source import Context

RING = "ring"
_TEXTS = ("algo", "collective", "transport")
_COUNTS = ("gpus_per_node", "nics_per_node", "world_size")
_RATES = ("nic_gbps", "floor_share_of_wire", "floor_gb_s", "reference_gb_s")
_MOST = 10**9


@dataclass(frozen=True)
class Expectation:
    """Bandwidths in GB/s, NIC rates in Gb/s. None: not told."""

    collective: str | None = None
    algo: str | None = None
    """Pinned algorithm in lower case; None: the library chose, or nobody knows."""
    transport: str | None = None
    """`mnnvl` where NVLink joins the nodes; else the NICs do."""
    nodes: int | None = None
    gpus_per_node: int | None = None
    nics_per_node: int | None = None
    nic_gbps: float | None = None
    floor_share_of_wire: float | None = None
    floor_gb_s: float | None = None
    reference_gb_s: float | None = None
    world_size: int | None = None

    @property
    def node_wire_gb_s(self) -> float | None:
        """What the NICs of one node carry in one direction."""
        if self.nics_per_node is None or self.nic_gbps is None:
            return None
        return self.nics_per_node * self.nic_gbps / 8

    @property
    def expected_ranks(self) -> int | None:
        if self.world_size is not None:
            return self.world_size
        return self.nodes * self.gpus_per_node if self.nodes and self.gpus_per_node else None


def expectation(context: Context, file: str) -> Expectation:
    """What the context says about one file. A key may map file names to values. Raises BadInputError."""
    told: dict[str, Any] = {key: _of_file(context.get(key), file) for key in (*_TEXTS, *_COUNTS, *_RATES)}
    for key in _TEXTS:
        if told[key] is not None and not isinstance(told[key], str):
            raise BadInputError(f"{key} in the context must be a word, not {told[key]!r:.40}.")
    for key in _COUNTS:
        told[key] = _count(key, told[key])
    for key in _RATES:
        told[key] = _rate(key, told[key])
    algo = (told["algo"] or "").strip().lower()
    told["transport"] = (told["transport"] or "").strip().lower() or None
    return Expectation(
        **{**told, "algo": algo if algo not in ("", "auto", "default", "none") else None},
        nodes=_nodes(_of_file(context.get("nodes"), file)),
    )


def _of_file(value: Any, file: str) -> Any:
    return value.get(file, value.get(file.rpartition("/")[2])) if isinstance(value, Mapping) else value


def _count(key: str, value: Any) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= _MOST:
        raise BadInputError(f"{key} in the context must be a whole number above zero, not {value!r:.40}.")
    return value


def _rate(key: str, value: Any) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= _MOST or math.isnan(value):
        raise BadInputError(f"{key} in the context must be a number above zero, not {value!r:.40}.")
    return float(value)


def _nodes(value: Any) -> int | None:
    """A number of nodes, or a list of their names. A list of numbers is for several tables: see `nodes_of_tables`."""
    if isinstance(value, Sequence) and not isinstance(value, str):
        return len(value) if all(isinstance(item, str) for item in value) and value else None
    return _count("nodes", value)


def nodes_of_tables(context: Context, tables: int) -> tuple[int, ...] | None:
    """One number of nodes for each of several tables, where the context gives such a list."""
    value = context.get("nodes")
    if not isinstance(value, list) or len(value) != tables or any(isinstance(item, str) for item in value):
        return None
    counts = [_count("nodes", item) for item in value]
    return tuple(count for count in counts if count is not None)
