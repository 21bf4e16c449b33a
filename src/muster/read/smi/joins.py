"""The same event told by two sources is one fault: the kernel's line and the driver's state of one GPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from muster.read.report import ReadFault
from muster.resources.fault import Severity

_SAME: Mapping[str, tuple[int | str, ...]] = {
    "row-remap-pending": (63,),
    "repair-pending": (63, 156, 160),
    "row-remap-failed": (64,),
    "memory-unrepairable": (64, 157),
    "page-retirement-pending": (63,),
    "retired-pages-limit": (64,),
    "dram-uncorrectable": (48, 94, 95, 171),
    "sram-uncorrectable": (48, 94, 95, 172),
    "ecc-uncorrectable": (48, 94, 95),
    "gpu-lost": (79, "gpu-off-bus"),
    "driver-mismatch": ("driver-mismatch",),
}
"""What the driver's state says, and the codes of the kernel log for the same event."""
_STATE_WEIGHS_MORE = frozenset(
    {"gpu-recovery-action", "gpu-reset-required", "sram-uncorrectable", "row-remap-failed", "driver-mismatch"}
)
"""States that say what has to be done more directly than the line does."""


def join(kernel: Sequence[ReadFault], state: Sequence[ReadFault]) -> list[ReadFault]:
    """Both lists as one, without doubles; where both tell an event, the one that says more about it stays."""
    kept = list(state)
    out: list[ReadFault] = []
    for line in kernel:
        position = next((n for n, other in enumerate(kept) if _same(line, other)), None)
        if position is None:
            out.append(line)
            continue
        other = kept[position]
        if str(other.code) in _STATE_WEIGHS_MORE:
            kept[position] = _with(other, line, {"with_xid": line.code if isinstance(line.code, int) else None})
        else:
            kept.pop(position)
            out.append(_with(line, other, {}))
    return out + kept


def _same(line: ReadFault, other: ReadFault) -> bool:
    if not _same_entity(line.entity, other.entity):
        return False
    if line.code == other.code and line.kind == other.kind:
        return True
    if other.code in ("gpu-recovery-action", "gpu-reset-required"):
        return line.kind in ("xid", "nvlink5") and line.severity is Severity.FATAL
    return line.code in _SAME.get(str(other.code), ())


def _same_entity(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    if one.get("kind") == "node" or other.get("kind") == "node":
        return bool(one.get("kind") == other.get("kind"))
    for key in ("uuid", "pci", "index"):
        if one.get(key) is not None and other.get(key) is not None:
            return bool(one[key] == other[key])
    return False


def _with(kept: ReadFault, joined: ReadFault, more: Mapping[str, Any]) -> ReadFault:
    """`kept` with the evidence of the other, what that knows beside it, and the identity that both tell."""
    told = {name: value for name, value in joined.details.items() if name not in ("reason", "same_as", "urgency")}
    details = {**told, **kept.details, **{name: value for name, value in more.items() if value is not None}}
    entity = {**joined.entity, **{k: v for k, v in kept.entity.items() if v is not None}}
    return replace(kept, entity=entity, details=details, evidence=(*kept.evidence, *joined.evidence))


def join_codes(
    kept: Sequence[ReadFault], more: Sequence[ReadFault], same: Callable[[ReadFault, ReadFault], bool]
) -> list[ReadFault]:
    """`more` beside `kept`; of two that are the `same` on one entity the second only adds evidence."""
    out = list(kept)
    for fault in more:
        position = next(
            (n for n, other in enumerate(out) if _same_entity(fault.entity, other.entity) and same(fault, other)),
            None,
        )
        if position is None:
            out.append(fault)
        else:
            out[position] = _with(out[position], fault, {})
    return out
