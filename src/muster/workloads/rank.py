"""What one rank of a run reports, and the words in which a program says that it failed."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

REASONS = (
    "hardware",
    "bandwidth",
    "compute",
    "transport",
    "numeric",
    "straggler",
    "timeout",
    "hang",
    "crash",
    "harness",
)
"""The words for `RankResult.reason`; empty when the rank is well."""
MESSAGE_LIMIT = 500
"""Characters of a message. It travels in a report that has a bound of its own."""


class RankFailure(Exception):  # noqa: N818 - the failure of a rank, told in a word of REASONS
    """A program ends: `reason` is a word of `REASONS`; `suspects` are nodes, only where the program knows."""

    def __init__(self, reason: str, message: str, suspects: tuple[str, ...] = ()) -> None:
        if reason not in REASONS:
            raise ValueError(f"{reason!r} is no reason of a rank")
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.suspects = suspects


@dataclass(frozen=True)
class RankResult:
    """What one rank measured. Figures of the whole group (`value`, `sizes`) are equal on all ranks."""

    ok: bool
    value: float | None = None
    """The number of the test, in `unit`; None: nothing was measured."""
    unit: str = ""
    reason: str = ""
    message: str = ""
    suspects: tuple[str, ...] = ()
    """Nodes that the run points at."""
    sizes: tuple[Mapping[str, Any], ...] = ()
    """A bandwidth sweep: `sizeBytes`, `placement`, `timeUs`, `algbwGbPerS`, `busbwGbPerS`, `wrong`."""
    compute_s: float | None = None
    """Mean time per step in work of this rank alone, no waiting for peers inside."""
    wait_s: float | None = None
    """Mean time per step in collectives."""
    gpu: int | None = None
    """Index of the GPU on its node; None on a CPU."""
    transport: str = ""
    """What carried the traffic between ranks: `IB`, `RoCE`, `EFA`, `Socket`, `MNNVL`, `P2P`, `SHM`, `gloo-tcp`."""
    versions: Mapping[str, str] = field(default_factory=dict)
    facts: Mapping[str, float] = field(default_factory=dict)
    """Further numbers, keyed with their unit."""

    def to_json(self) -> str:
        """One line. What is not a finite number becomes null: JSON has no NaN, and a missing number is never a
        pass."""
        return json.dumps(
            {
                "ok": self.ok,
                "value": finite(self.value),
                "unit": self.unit,
                "reason": self.reason,
                "message": self.message[:MESSAGE_LIMIT],
                "suspects": list(self.suspects),
                "sizes": [{key: finite(item) for key, item in size.items()} for size in self.sizes],
                "computeS": finite(self.compute_s),
                "waitS": finite(self.wait_s),
                "gpu": self.gpu,
                "transport": self.transport,
                "versions": dict(sorted(self.versions.items())),
                "facts": {key: item for key, item in sorted(self.facts.items()) if math.isfinite(item)},
            },
            allow_nan=False,
        )

    @staticmethod
    def from_json(text: str) -> RankResult:
        """Raises `ValueError` naming what is wrong."""
        try:
            got = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"the result of a rank is no JSON: {error}") from error
        if not isinstance(got, dict) or not isinstance(got.get("ok"), bool):
            raise ValueError("the result of a rank is no object with a boolean `ok`")
        return RankResult(
            ok=got["ok"],
            value=_number(got.get("value")),
            unit=str(got.get("unit", "")),
            reason=str(got.get("reason", "")),
            message=str(got.get("message", "")),
            suspects=tuple(str(each) for each in _list(got.get("suspects"))),
            sizes=tuple(each for each in _list(got.get("sizes")) if isinstance(each, dict)),
            compute_s=_number(got.get("computeS")),
            wait_s=_number(got.get("waitS")),
            gpu=got["gpu"] if isinstance(got.get("gpu"), int) else None,
            transport=str(got.get("transport", "")),
            versions={str(key): str(item) for key, item in _object(got.get("versions")).items()},
            facts={
                str(key): number
                for key, item in _object(got.get("facts")).items()
                if (number := _number(item)) is not None
            },
        )

    def honest(self) -> RankResult:
        """Itself, or a failure when it claims to be well with a value that is no finite number."""
        if self.value is None or math.isfinite(self.value):
            return self
        return replace(
            self,
            ok=False,
            value=None,
            reason=self.reason or "numeric",
            message=f"measured {self.value}, which is no number; {self.message}".rstrip("; "),
        )


def failed(failure: RankFailure) -> RankResult:
    """The result of a rank whose program ended with `failure`."""
    return RankResult(ok=False, reason=failure.reason, message=failure.message, suspects=failure.suspects)


def finite(item: Any) -> Any:
    """`item`, or None when it is a float that is not finite."""
    return None if isinstance(item, float) and not math.isfinite(item) else item


def _number(item: object) -> float | None:
    if isinstance(item, bool) or not isinstance(item, int | float):
        return None
    return float(item) if math.isfinite(item) else None


def _list(item: object) -> list[Any]:
    return item if isinstance(item, list) else []


def _object(item: object) -> dict[Any, Any]:
    return item if isinstance(item, dict) else {}
