"""What a network port may show before it counts as a fault: one table for texts and for the agent's live counters.

Names are those of sysfs (`counters/`, `hw_counters/`, `carrier_changes`) or of `ethtool -S`; other tools' names are
mapped to them in `counters.py`. A limit applies to an increase within a window, never to a lifetime count.

Sources: IBTA = InfiniBand Architecture Specification (a link is to keep a bit error rate of 1e-12; 120 symbol errors
an hour is the usual reading of it); NVSENTINEL = defaults of NVSentinel's NIC monitor, v1.14 to v1.24; IEEE = the
802.3 standard; OURS = our choice.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from muster.resources.fault import Hint, Scope, Severity


class Source(StrEnum):
    IBTA = "ibta"
    NVSENTINEL = "nvsentinel"
    IEEE = "ieee-802.3"
    OURS = "ours"


@dataclass(frozen=True)
class Threshold:
    """More than `limit` new counts within `window_s` seconds. `window_s` 0: within any window.

    `code` is the fault's code; `check` its group for policies.
    """

    counter: str
    limit: int
    window_s: float
    code: str
    severity: Severity
    scope: Scope
    source: Source
    hint: Hint = Hint.INSPECT
    why: str = ""
    check: str = "nic-port"

    def exceeded(self, increase: int, interval_s: float | None) -> bool:
        """Whether `increase` counts in `interval_s` seconds are too many. Without a time only window 0 decides."""
        if self.window_s == 0:
            return increase > self.limit
        if interval_s is None or interval_s <= 0:
            return False
        return increase / interval_s > self.limit / self.window_s


_ANY, _SECOND, _MINUTE, _HOUR = 0.0, 1.0, 60.0, 3600.0

THRESHOLDS: tuple[Threshold, ...] = (
    # InfiniBand port counters
    Threshold(
        "link_downed",
        0,
        _ANY,
        "port-link-flapping",
        Severity.WARNING,
        Scope.LINK,
        Source.OURS,
        why="NVSentinel calls one drop fatal; a reboot of the peer drops the link once, so we warn.",
    ),
    Threshold("link_error_recovery", 5, _MINUTE, "ib-link-errors", Severity.WARNING, Scope.LINK, Source.NVSENTINEL),
    Threshold(
        "symbol_error",
        120,
        _HOUR,
        "ib-link-errors",
        Severity.WARNING,
        Scope.LINK,
        Source.IBTA,
        why="NVSentinel calls this rate fatal; FEC and retransmission carry it, so we warn.",
    ),
    Threshold("port_rcv_errors", 10, _SECOND, "port-receive-errors", Severity.WARNING, Scope.LINK, Source.NVSENTINEL),
    Threshold(
        "port_rcv_remote_physical_errors",
        10,
        _SECOND,
        "port-remote-errors",
        Severity.WARNING,
        Scope.FABRIC,
        Source.OURS,
        why="The packets were marked bad before they came here: the cause is further up the path.",
    ),
    Threshold("port_xmit_discards", 100, _SECOND, "port-discards", Severity.WARNING, Scope.FABRIC, Source.NVSENTINEL),
    Threshold(
        "local_link_integrity_errors",
        0,
        _ANY,
        "port-link-integrity",
        Severity.WARNING,
        Scope.LINK,
        Source.NVSENTINEL,
        why="Fatal in NVSentinel; many false alarms were reported there.",
    ),
    Threshold(
        "excessive_buffer_overrun_errors",
        0,
        _ANY,
        "port-buffer-overrun",
        Severity.WARNING,
        Scope.LINK,
        Source.NVSENTINEL,
        why="Fatal in NVSentinel; many false alarms were reported there.",
    ),
    # RDMA counters of the adapter
    Threshold(
        "local_ack_timeout_err", 1, _SECOND, "roce-ack-timeouts", Severity.WARNING, Scope.LINK, Source.NVSENTINEL
    ),
    Threshold(
        "rnr_nak_retry_err",
        10,
        _SECOND,
        "rdma-receiver-not-ready",
        Severity.WARNING,
        Scope.APPLICATION,
        Source.OURS,
        why="Fatal in NVSentinel at one; a slow receiving process causes it, no hardware.",
    ),
    Threshold("roce_slow_restart", 10, _SECOND, "roce-slow-restart", Severity.WARNING, Scope.LINK, Source.NVSENTINEL),
    Threshold(
        "out_of_sequence",
        10,
        _SECOND,
        "roce-packet-loss",
        Severity.WARNING,
        Scope.FABRIC,
        Source.OURS,
        why="Packets arrive out of order or are lost on the way.",
    ),
    Threshold(
        "packet_seq_err",
        10,
        _SECOND,
        "roce-packet-loss",
        Severity.WARNING,
        Scope.FABRIC,
        Source.OURS,
        why="The peer asked for packets again.",
    ),
    # Ethernet
    Threshold(
        "carrier_changes",
        2,
        _ANY,
        "port-link-flapping",
        Severity.WARNING,
        Scope.LINK,
        Source.NVSENTINEL,
        why="One drop and return counts two.",
    ),
    Threshold("link_down_events_phy", 0, _ANY, "port-link-flapping", Severity.WARNING, Scope.LINK, Source.OURS),
    Threshold("rx_crc_errors_phy", 1, _MINUTE, "eth-crc-errors", Severity.WARNING, Scope.LINK, Source.OURS),
    Threshold("rx_symbol_err_phy", 120, _HOUR, "eth-link-errors", Severity.WARNING, Scope.LINK, Source.OURS),
    Threshold(
        "rx_pcs_symbol_err_phy",
        120,
        _HOUR,
        "eth-link-errors",
        Severity.WARNING,
        Scope.LINK,
        Source.OURS,
        why="Symbols that FEC could not correct.",
    ),
    Threshold(
        "rx_discards_phy",
        100,
        _SECOND,
        "port-discards",
        Severity.WARNING,
        Scope.CONFIG,
        Source.OURS,
        why="The receive buffer of the port was full: no pause was sent, or none was honoured.",
    ),
    Threshold("tx_discards_phy", 100, _SECOND, "port-discards", Severity.WARNING, Scope.CONFIG, Source.OURS),
    Threshold(
        "tx_pause_storm_warning_events",
        0,
        _ANY,
        "roce-pause-storm",
        Severity.WARNING,
        Scope.NODE,
        Source.OURS,
        why="The adapter sent pause for so long that its watchdog noticed: the host does not take its packets.",
    ),
    Threshold(
        "tx_pause_storm_error_events",
        0,
        _ANY,
        "roce-pause-storm",
        Severity.FATAL,
        Scope.NODE,
        Source.OURS,
        why="The adapter's watchdog stopped sending pause; packets are lost from here on.",
    ),
)
"""In order of weight where several hold for one counter."""


def of_counter(counter: str) -> tuple[Threshold, ...]:
    """The thresholds of one counter, by its name in sysfs or `ethtool -S`."""
    return tuple(entry for entry in THRESHOLDS if entry.counter == counter)


FLAPS_OF_A_LIFETIME = 10
"""Link drops since the counters began that are no accident any more. OURS: reboots of the peer count as well."""

CARRIER_CHANGES_OF_A_LIFETIME = 20
"""Each drop and return counts two."""

TELLING_LIFETIME: dict[str, int] = {
    "symbol_error": 10_000,
    "link_error_recovery": 10,
    "port_rcv_errors": 10_000,
    "local_link_integrity_errors": 0,
    "excessive_buffer_overrun_errors": 0,
    "rx_crc_errors_phy": 10_000,
    "rx_symbol_err_phy": 10_000,
    "rx_pcs_symbol_err_phy": 10_000,
    "tx_pause_storm_warning_events": 0,
    "tx_pause_storm_error_events": 0,
}
"""Above this a lifetime count says enough without a second reading. OURS."""

PAUSE_SHARE = 0.01
"""Pause frames for each packet of a priority above which a port was held up more than flow control needs. OURS."""

PAUSED_TIME_SHARE = 0.10
"""Share of an interval that a priority was paused. OURS."""

DISCARD_SHARE = 1e-5
"""Discarded packets for each received one above which RDMA suffers. OURS."""

KERNEL_DROP_SHARE = 1e-4
"""The same for the kernel's own count, which holds frames that nobody listens to (LLDP, foreign VLANs). OURS."""

# Bit error rates of `mlxlink -c`.
RAW_BER_FAIL = 2.4e-4
"""Before correction: what RS(544,514) can repair (IEEE 802.3, KP4). Above it the link drops."""
RAW_BER_WARN = 1e-5
"""OURS: little room is left to RAW_BER_FAIL."""
EFFECTIVE_BER_WARN = 1e-12
"""After correction. IBTA."""
SYMBOL_BER_WARN = 1e-12
"""After correction and retransmission at the physical layer. IBTA."""
DARK_DBM = -30.0
"""Received power of a lane that sees no light; modules print -40 for none. OURS."""
