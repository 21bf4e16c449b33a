"""What the context says about ports, checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from muster.errors import BadInputError
from muster.read.fabric_ports.port import PortId
from muster.read.source import Context


@dataclass(frozen=True)
class Expected:
    """None and empty: not told."""

    rate_gbps: float | None = None
    rates_gbps: Mapping[str, float] = field(default_factory=dict)
    active_ports: int | None = None
    unused: tuple[str, ...] = ()
    interface: str | None = None
    interval_s: float | None = None
    fec: str | None = None
    gid_index: int | None = None
    lossless_priority: int | None = None

    def rate_of(self, ident: PortId) -> float | None:
        """The expected rate of one port: by its label, device or interface, else the one for all."""
        for name in (ident.label, ident.device, ident.interface):
            if name is not None and name in self.rates_gbps:
                return self.rates_gbps[name]
        return self.rate_gbps

    def is_unused(self, ident: PortId) -> bool:
        return any(name in self.unused for name in (ident.label, ident.device, ident.interface) if name)


def expected(context: Context) -> Expected:
    """Read the context. Raises BadInputError for a value that cannot be used."""
    rate = context.get("expected_rate_gbps")
    rates = {}
    if isinstance(rate, Mapping):
        rates = {str(name): _positive("expected_rate_gbps", value) for name, value in rate.items()}
        rate = None
    return Expected(
        rate_gbps=_positive("expected_rate_gbps", rate) if rate is not None else None,
        rates_gbps=rates,
        active_ports=_whole(context, "expected_active_ports"),
        unused=_names(context, "unused_ports"),
        interface=_word(context, "interface"),
        interval_s=_positive("interval_s", context["interval_s"]) if context.get("interval_s") is not None else None,
        fec=_word(context, "expected_fec"),
        gid_index=_whole(context, "gid_index"),
        lossless_priority=_whole(context, "lossless_priority"),
    )


def _positive(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e12:
        raise BadInputError(f"{name} in the context must be a number above zero, not {value!r:.40}.")
    return float(value)


def _whole(context: Context, name: str) -> int | None:
    value = context.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise BadInputError(f"{name} in the context must be a whole number, not {value!r:.40}.")
    return value


def _word(context: Context, name: str) -> str | None:
    value = context.get(name)
    if value is not None and not isinstance(value, str):
        raise BadInputError(f"{name} in the context must be a text, not {value!r:.40}.")
    return value


def _names(context: Context, name: str) -> tuple[str, ...]:
    value = context.get(name)
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise BadInputError(f"{name} in the context must be a list of names in quotes.")
    return tuple(value)
