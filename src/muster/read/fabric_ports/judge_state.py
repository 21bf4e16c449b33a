"""State and rate of a port. Both states count; a rate needs an expectation or equal ports to be judged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from muster.read.fabric_ports.expectation import Expected
from muster.read.fabric_ports.finding import Finding
from muster.read.fabric_ports.port import Port
from muster.read.report import Result, Verdict
from muster.resources.fault import Scope, Severity

LEAST_PEERS = 2
"""Equal ports that a rate may be compared with."""
_CABLE = "Look at the cable, the module and the switch port at the far end."


def judge(ports: Sequence[Port], want: Expected, cut: bool) -> tuple[list[Finding], list[Verdict]]:
    """Findings and verdicts of the ports that tell a state. `cut`: there may be more ports than the text shows."""
    findings: list[Finding] = []
    verdicts: list[Verdict] = []
    stated = [port for port in ports if is_up(port) is not None]
    up = [port for port in stated if is_up(port)]
    enough = want.active_ports is not None and len(up) >= want.active_ports
    if want.active_ports is not None and len(up) < want.active_ports and not cut:
        findings.append(_too_few(stated, up, want.active_ports))
    for port in ports:
        if port.fact("netdev_state") == "Down" and is_up(port) is None:
            message = "The network interface is down; that may be the IP side alone. Look at ibstat for the port."
            verdicts.append(Verdict(port.id.label, Result.UNKNOWN, "netdev-down", message))
    for port in stated:
        if not is_up(port):
            if enough or want.is_unused(port.id) or port.fact("spare"):
                verdicts.append(
                    Verdict(port.id.label, Result.UNKNOWN, "not-in-use", "Down, and not expected to be up.")
                )
            else:
                findings.append(_down(port))
            continue
        wrong = [*_subnet_manager(port), *_rate(port, up, want)]
        findings += wrong
        if not wrong:
            verdicts += _passes(port, up, want)
    return findings, verdicts


def is_up(port: Port) -> bool | None:
    """Active with its link up; None when the texts do not say."""
    state, physical, detected = port.fact("state"), port.fact("physical_state"), port.fact("link_detected")
    if state is not None:
        return bool(state == "Active" and physical in (None, "LinkUp", "N/A"))
    if physical is not None:
        return bool(physical == "LinkUp")
    return bool(detected) if detected is not None else None


def where(port: Port) -> tuple[tuple[str, int, str], ...]:
    """Lines that tell the state of the port."""
    words = ("State", "state", "Rate", "rate", "Speed", "SM lid", "Link detected", "==(", "operstate")
    found = []
    for reading in port.readings:
        rows = [(reading.file, line, text) for line, text in reading.text.items()]
        found += [row for row in rows if any(word in row[2] for word in words)][:4] or rows[:1]
    return tuple(found[:6])


def _finding(port: Port, result: Result, reason: str, message: str, advice: str, code: str, **more: Any) -> Finding:
    return Finding(
        port.id.label, result, reason, message, port.id.entity(), advice, code=code, at=where(port), **more
    )


def _down(port: Port) -> Finding:
    state, physical = port.fact("state"), port.fact("physical_state")
    told: Mapping[str, Any] = {"state": state, "physical_state": physical}
    if state is None and physical is None:
        if port.fact("admin_up") is False:
            return _finding(
                port,
                Result.WARN,
                "port-disabled",
                "The interface is switched off.",
                "Switch the interface on, or leave it if nobody uses it.",
                "port-disabled",
                scope=Scope.CONFIG,
            )
        why = port.fact("link_reason")
        return _finding(
            port,
            Result.FAIL,
            "link-down",
            "No link is detected" + (f": {why}." if why else "."),
            _CABLE,
            "port-down",
            severity=Severity.FATAL,
            details={"reason": why},
        )
    if physical == "Disabled":
        return _finding(
            port,
            Result.WARN,
            "port-disabled",
            "The port is disabled.",
            "Enable the port, or leave it if nobody uses it; then look whether the adapter has a cable.",
            "port-disabled",
            scope=Scope.CONFIG,
            more=told,
        )
    if state in ("Initializing", "Armed") and physical in (None, "LinkUp"):
        return _finding(
            port,
            Result.FAIL,
            "no-subnet-manager",
            f"The link is up, yet the port stays {state}.",
            "Look for a running subnet manager and at its log: it has not configured this port.",
            "ib-port-not-configured",
            severity=Severity.FATAL,
            scope=Scope.FABRIC,
            more=told,
        )
    if physical == "LinkErrorRecovery":
        return _finding(
            port,
            Result.FAIL,
            "link-error-recovery",
            "The link is recovering from errors.",
            _CABLE,
            "ib-link-errors",
            severity=Severity.FATAL,
            more=told,
        )
    words = {"Polling": "it searches for a partner", "Training": "it does not finish its training"}
    why = words.get(str(physical), f"physical state {physical}" if physical else "no physical state is told")
    return _finding(
        port,
        Result.FAIL,
        "port-down",
        f"The port is {state or 'down'}: {why}.",
        _CABLE,
        "port-down",
        severity=Severity.FATAL,
        more=told,
    )


def _subnet_manager(port: Port) -> list[Finding]:
    if port.fact("link_layer") != "InfiniBand" or port.fact("sm_lid") != 0:
        return []
    return [
        _finding(
            port,
            Result.WARN,
            "sm-lid-zero",
            "The port is active, yet it knows no subnet manager (SM lid 0).",
            "Look whether a subnet manager runs on this fabric.",
            "ib-no-subnet-manager",
            scope=Scope.FABRIC,
        )
    ]


def _too_few(stated: Sequence[Port], up: Sequence[Port], wanted: int) -> Finding:
    return Finding(
        "node",
        Result.FAIL,
        "ports-missing",
        f"{len(up)} ports are active, {wanted} are expected.",
        {"kind": "node"},
        "Look at the ports that are down or missing; a missing adapter may be off the PCIe bus.",
        code="ports-missing",
        severity=Severity.FATAL,
        scope=Scope.NODE,
        count=wanted - len(up),
        details={"active": len(up), "seen": len(stated), "expected": wanted},
        at=tuple(row for port in stated if port not in up for row in where(port)[:1]),
    )


def _alike(port: Port) -> tuple[Any, ...]:
    return (port.fact("ca_type"), port.fact("link_layer"), port.id.host if port.fact("ca_type") is None else None)


def _peer_rate(port: Port, up: Sequence[Port]) -> tuple[float, int] | None:
    """The rate that most other ports of the same kind have, and how many have it."""
    if port.fact("ca_type") is None and port.fact("peer") is not None:
        return None  # a switch has links of several kinds
    rates = [other.fact("rate") for other in up if other is not port and _alike(other) == _alike(port)]
    known = [float(rate) for rate in rates if rate is not None]
    if len(known) < LEAST_PEERS:
        return None
    rate, count = max(Counter(known).items(), key=lambda pair: (pair[1], pair[0]))
    return (rate, count) if count >= LEAST_PEERS and 2 * count > len(known) else None


def _rate(port: Port, up: Sequence[Port], want: Expected) -> list[Finding]:
    rate = port.fact("rate")
    could = port.fact("could_be")
    advertised, partner = port.fact("advertised_rate"), port.fact("partner_rate")
    found: list[Finding] = []
    expected = want.rate_of(port.id)
    peers = _peer_rate(port, up)
    swap = "Reseat or swap the cable; compare the settings of both ends."
    if rate is None:
        return []
    if expected is not None and rate < expected * 0.99:
        found.append(
            _finding(
                port,
                Result.FAIL,
                "rate-below-expected",
                f"{rate:g} Gb/s, {expected:g} Gb/s are expected.",
                swap,
                "port-rate-low",
                details={"rate_gbps": rate, "expected_gbps": expected},
                more={"value": rate},
            )
        )
    elif expected is None and could is not None:
        found.append(
            _finding(
                port,
                Result.WARN,
                "rate-below-possible",
                f"{rate:g} Gb/s; the tool says: could be {could}.",
                swap,
                "port-rate-low",
                details={"rate_gbps": rate, "could_be": could},
                more={"value": rate},
                confidence="low",
            )
        )
    elif expected is None and peers is not None and rate < peers[0] * 0.99:
        found.append(
            _finding(
                port,
                Result.WARN,
                "rate-below-peers",
                f"{rate:g} Gb/s; {peers[1]} equal ports have {peers[0]:g}.",
                swap,
                "port-rate-low",
                details={"rate_gbps": rate, "peers_gbps": peers[0], "peers": peers[1]},
                more={"value": rate},
            )
        )
    elif expected is None and advertised and partner and rate < min(advertised, partner) * 0.99:
        best = min(advertised, partner)
        found.append(
            _finding(
                port,
                Result.WARN,
                "speed-below-advertised",
                f"{rate:g} Gb/s; both ends can do {best:g} Gb/s.",
                swap,
                "port-rate-low",
                details={"rate_gbps": rate, "both_ends_gbps": best},
                more={"value": rate},
            )
        )
    if port.fact("duplex") == "Half":
        found.append(
            _finding(port, Result.FAIL, "half-duplex", "The link runs in half duplex.", swap, "port-half-duplex")
        )
    return found


def _passes(port: Port, up: Sequence[Port], want: Expected) -> list[Verdict]:
    label, rate = port.id.label, port.fact("rate")
    if rate is not None and want.rate_of(port.id) is not None:
        return [Verdict(label, Result.PASS, "active-at-expected-rate")]
    if rate is not None and _peer_rate(port, up) is not None:
        return [Verdict(label, Result.PASS, "active-as-its-peers")]
    message = "Tell what the port should run at (expected_rate_gbps in the context)."
    return [
        Verdict(f"{label} state", Result.PASS, "active"),
        Verdict(f"{label} rate", Result.UNKNOWN, "expectation-missing", message),
    ]
