"""GPUs that cannot be opened or are not there. A lost GPU reports nothing, so what is expected is compared with what
is seen; a message that names it is matched by its address, or by its bus where the address is none that PCI has."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from muster.errors import BadInputError
from muster.read import pci
from muster.read.smi.document import Message
from muster.read.source import Context

_PARTS = re.compile(
    r"(?:(?P<domain>[0-9a-f]{1,8}):)?(?P<bus>[0-9a-f]{2}):(?P<device>[0-9a-f]{2})(?:\.(?P<fn>[0-9a-f]))?"
)
_LAST_DEVICE = 0x1F


@dataclass(frozen=True)
class Inventory:
    """`expected`, `seen`: addresses where they are told; the numbers beside them always where there is one."""

    expected: tuple[str, ...] | None
    seen: tuple[str, ...] | None
    expected_count: int | None
    seen_count: int | None

    @property
    def missing(self) -> tuple[str, ...]:
        if self.expected is None or self.seen is None:
            return ()
        return tuple(address for address in self.expected if address not in self.seen)

    @property
    def missing_count(self) -> int:
        if self.expected_count is None or self.seen_count is None:
            return 0
        return max(len(self.missing), self.expected_count - self.seen_count)


@dataclass(frozen=True)
class Lost:
    """`address`: where the GPU is, None where nothing tells. `matched_by`: `address`, `bus`, or `inventory`."""

    address: str | None
    message: Message | None
    matched_by: str | None
    plausible: bool | None
    why_not: str = ""


def inventory(context: Context, seen: Sequence[str], seen_count: int | None) -> Inventory:
    """From the context (`expected_pci` or `gpus`, `metrics_pci`, `expected_gpus`, `observed_gpus`). Raises
    BadInputError."""
    expected = _addresses(context, "expected_pci") or _addresses(context, "gpus")
    observed = _addresses(context, "metrics_pci") or _addresses(context, "observed_pci")
    if observed is None and seen and seen_count == len(seen):
        observed = tuple(seen)
    wanted = context.get("expected_gpus")
    count = context.get("observed_gpus")
    wanted_count = wanted if isinstance(wanted, int) and not isinstance(wanted, bool) else None
    told_count = count if isinstance(count, int) and not isinstance(count, bool) else None
    return Inventory(
        expected,
        observed,
        len(expected) if expected is not None else wanted_count,
        len(observed) if observed is not None else told_count if told_count is not None else seen_count,
    )


def _addresses(context: Context, key: str) -> tuple[str, ...] | None:
    told: Any = context.get(key)
    if told is None:
        return None
    if not isinstance(told, list):
        raise BadInputError(f"{key} in the context must be a list of PCI addresses in quotes.")
    found = [pci.normalise(item) if isinstance(item, str) else None for item in told[:1024]]
    bad = next((item for item, address in zip(told, found, strict=False) if address is None), None)
    if bad is not None:
        raise BadInputError(f"{key} in the context must hold PCI addresses such as 0000:9b:00.0, not {bad!r:.40}.")
    return tuple(dict.fromkeys(address for address in found if address is not None))


def find(messages: Sequence[Message], stock: Inventory) -> tuple[Lost, ...]:
    """Each lost GPU once: those that a message names, then those that are missing without one."""
    found: list[Lost] = []
    for message in messages:
        lost = _of_message(message, stock)
        known = [(item.address, item.message.address if item.message else None) for item in found]
        if (lost.address, message.address) not in known and not (lost.address and lost.address in dict(known)):
            found.append(lost)
    named = [lost.address for lost in found]
    # A message without a usable address takes one of the missing GPUs with it, whichever that is.
    nameless = sum(1 for lost in found if lost.address is None)
    rest = [address for address in stock.missing if address not in named]
    found += [Lost(address, None, "inventory", None) for address in rest[nameless:]]
    return tuple(found)


def _of_message(message: Message, stock: Inventory) -> Lost:
    text = (message.address or "").casefold()
    parts = _PARTS.fullmatch(text)
    if not text or parts is None:
        only = stock.missing[0] if len(stock.missing) == 1 and message.index is None else None
        return Lost(only, message, "inventory" if only else None, None if not text else False, "not an address")
    why = _why_not(parts)
    if not why:
        return Lost(pci.normalise(text), message, "address", True)
    bus = parts["bus"]
    for candidates in (stock.missing, stock.expected or ()):
        same = [address for address in candidates if address.split(":")[1] == bus]
        if len(same) == 1:
            return Lost(same[0], message, "bus", False, why)
    return Lost(None, message, None, False, why)


def _why_not(parts: re.Match[str]) -> str:
    """What makes the address impossible; empty for a good one."""
    if int(parts["device"], 16) > _LAST_DEVICE:
        return "device number above 0x1f"
    if parts["domain"] is not None and len(parts["domain"]) < 4:
        return "domain of less than four digits"
    if parts["fn"] is not None and int(parts["fn"], 16) > 7:
        return "function number above 7"
    return ""
