"""Names and widths of port counters: every tool spells them in its own way."""

from __future__ import annotations

import re

_SPELLINGS: dict[str, tuple[str, ...]] = {
    "symbol_error": ("SymbolErrorCounter", "SymbolErrors", "symbol_error_counter", "symbol_errors"),
    "link_error_recovery": (
        "LinkErrorRecoveryCounter",
        "LinkErrorRecovery",
        "link_error_recovery_counter",
        "LinkRecovers",
    ),
    "link_downed": (
        "LinkDownedCounter",
        "LinkDowned",
        "link_downed_counter",
        "link_down_counter",
        "Link_Down",
        "LinkDown",
        "link_downs",
    ),
    "port_rcv_errors": ("PortRcvErrors", "RcvErrors", "port_rcv_errors_counter"),
    "port_rcv_remote_physical_errors": (
        "PortRcvRemotePhysicalErrors",
        "RcvRemotePhysErrors",
        "RcvRemotePhysicalErrors",
    ),
    "port_rcv_switch_relay_errors": ("PortRcvSwitchRelayErrors", "RcvSwRelayErrors", "RcvSwitchRelayErrors"),
    "port_xmit_discards": ("PortXmitDiscards", "XmtDiscards", "XmitDiscards", "port_xmit_discard"),
    "port_xmit_constraint_errors": ("PortXmitConstraintErrors", "XmtConstraintErrors"),
    "port_rcv_constraint_errors": ("PortRcvConstraintErrors", "RcvConstraintErrors"),
    "local_link_integrity_errors": ("LocalLinkIntegrityErrors", "LinkIntegrityErrors"),
    "excessive_buffer_overrun_errors": (
        "ExcessiveBufferOverrunErrors",
        "ExcBufOverrunErrors",
        "excessive_buffer_errors",
    ),
    "vl15_dropped": ("VL15Dropped",),
    "port_xmit_wait": ("PortXmitWait", "XmtWait", "XmitWait"),
    "port_xmit_data": ("PortXmitData", "XmtData", "XmitData"),
    "port_rcv_data": ("PortRcvData", "RcvData"),
    "port_xmit_packets": ("PortXmitPkts", "XmtPkts", "XmitPkts", "port_xmit_pkts"),
    "port_rcv_packets": ("PortRcvPkts", "RcvPkts", "port_rcv_pkts"),
    "qp1_dropped": ("QP1Dropped", "qp1_drops"),
    "unicast_xmit_packets": ("PortUnicastXmitPkts",),
    "unicast_rcv_packets": ("PortUnicastRcvPkts",),
    "multicast_xmit_packets": ("PortMulticastXmitPkts",),
    "multicast_rcv_packets": ("PortMulticastRcvPkts",),
}


def _folded(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


_CANONICAL = {_folded(alias): name for name, aliases in _SPELLINGS.items() for alias in (name, *aliases)}

_CLASSIC_BITS = {
    "symbol_error": 16,
    "link_error_recovery": 8,
    "link_downed": 8,
    "port_rcv_errors": 16,
    "port_rcv_remote_physical_errors": 16,
    "port_rcv_switch_relay_errors": 16,
    "port_xmit_discards": 16,
    "port_xmit_constraint_errors": 8,
    "port_rcv_constraint_errors": 8,
    "local_link_integrity_errors": 4,
    "excessive_buffer_overrun_errors": 4,
    "vl15_dropped": 16,
    "qp1_dropped": 16,
    "port_xmit_wait": 32,
    "port_xmit_data": 32,
    "port_rcv_data": 32,
    "port_xmit_packets": 32,
    "port_rcv_packets": 32,
}
"""Widths of the PortCounters attribute (IBTA vol. 1, 16.1.3.5). They stop at their maximum and do not wrap."""

PHYSICAL_ERRORS = ("symbol_error", "link_error_recovery", "link_downed", "port_rcv_errors")


def canonical(name: str) -> str | None:
    """The name of sysfs for a counter of the PortCounters attributes; None for another counter."""
    return _CANONICAL.get(_folded(name.removesuffix("_extended").removesuffix("Extended").removesuffix("Ext")))


def bits_of(name: str, extended: bool) -> int | None:
    """Width of a counter that stops at its maximum: 64 bits in the extended attribute."""
    if extended:
        return 64
    return _CLASSIC_BITS.get(name)
