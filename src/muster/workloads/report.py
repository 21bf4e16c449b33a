"""What a node says about one run: the number that decides, and what it measured beside it.

The first seven fields are the report of a test pod (its termination message); the rest are details. `sizes`, `ranks`,
`versions` and `facts` are plain JSON shapes with the names of the Certification's API (`sizeBytes`, `busbwGbPerS`).
Standard library only.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

REPORT_LIMIT_BYTES = 1024 * 1024
MESSAGE_LIMIT = 1000


class ReportError(ValueError):
    """The text is no report."""


@dataclass(frozen=True)
class NodeReport:
    """The report of one node on one run. `value` is that of its slowest rank."""

    node: str
    ok: bool
    value: float | None = None
    unit: str = ""
    reason: str = ""
    """Word of the vocabulary of reasons (`bandwidth`, `numeric`, `crash`); empty when the node passed."""
    suspects: tuple[str, ...] = ()
    """Nodes that the run itself points at. A hint, never a verdict."""
    message: str = ""
    sizes: Sequence[Mapping[str, object]] = ()
    ranks: Sequence[Mapping[str, object]] = ()
    transport: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    facts: Mapping[str, float] = field(default_factory=dict)

    def to_json(self) -> str:
        """The report as JSON. Numbers that JSON does not know (NaN, infinity) become null: not measured."""
        return json.dumps(
            finite(
                {
                    "node": self.node,
                    "ok": self.ok,
                    "value": self.value,
                    "unit": self.unit,
                    "reason": self.reason,
                    "suspects": list(self.suspects),
                    "message": self.message[:MESSAGE_LIMIT],
                    "sizes": [dict(row) for row in self.sizes],
                    "ranks": [dict(row) for row in self.ranks],
                    "transport": self.transport,
                    "versions": dict(self.versions),
                    "facts": dict(self.facts),
                }
            ),
            sort_keys=True,
            separators=(",", ":"),
            allow_nan=False,
        )

    @staticmethod
    def from_json(text: str | bytes) -> NodeReport:
        """Read a report. Raises ReportError; what is missing is empty, what has the wrong shape is an error."""
        return _read(text)


def finite(value: object) -> object:
    """`value` with every number that is not finite replaced by None."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(k): finite(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [finite(v) for v in value]
    return value


def _read(text: str | bytes) -> NodeReport:
    if len(text) > REPORT_LIMIT_BYTES:
        raise ReportError(f"The report has more than {REPORT_LIMIT_BYTES} bytes.")
    try:
        found = json.loads(text, parse_constant=lambda _: None)
    except (ValueError, RecursionError) as error:
        raise ReportError(f"The report is not JSON: {error}.") from error
    if not isinstance(found, dict) or not isinstance(found.get("node"), str) or not isinstance(found.get("ok"), bool):
        raise ReportError("The report names no node, or does not say whether it passed.")
    value = found.get("value")
    if value is not None and _number(value) is None:
        raise ReportError("The field value must be a finite number or null.")
    return NodeReport(
        node=found["node"],
        ok=found["ok"],
        value=_number(value),
        unit=_text(found, "unit"),
        reason=_text(found, "reason"),
        suspects=tuple(s for s in _list(found, "suspects") if isinstance(s, str)),
        message=_text(found, "message")[:MESSAGE_LIMIT],
        sizes=tuple(row for row in _list(found, "sizes") if isinstance(row, dict)),
        ranks=tuple(row for row in _list(found, "ranks") if isinstance(row, dict)),
        transport=_text(found, "transport"),
        versions={k: v for k, v in _object(found, "versions").items() if isinstance(v, str)},
        facts={k: n for k, v in _object(found, "facts").items() if (n := _number(v)) is not None},
    )


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:
        return None


def _text(found: Mapping[str, object], key: str) -> str:
    value = found.get(key, "")
    if not isinstance(value, str):
        raise ReportError(f"The field {key} must be a text.")
    return value


def _list(found: Mapping[str, object], key: str) -> Sequence[object]:
    value = found.get(key, ())
    if not isinstance(value, list | tuple):
        raise ReportError(f"The field {key} must be a list.")
    return value


def _object(found: Mapping[str, object], key: str) -> Mapping[str, object]:
    value = found.get(key, {})
    if not isinstance(value, dict):
        raise ReportError(f"The field {key} must be an object.")
    return value
