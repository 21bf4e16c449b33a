"""Counters of a port: increases between two readings, or what one reading of lifetime counts can say."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from muster.read.fabric_ports import thresholds
from muster.read.fabric_ports.counters import PHYSICAL_ERRORS
from muster.read.fabric_ports.finding import Finding
from muster.read.fabric_ports.port import Port
from muster.read.fabric_ports.thresholds import Threshold
from muster.read.report import SEVERITY_RANK, Result, Verdict
from muster.resources.fault import Hint, Scope, Severity

RATE = "current-error-rate"
_CABLE = (
    "Reseat or swap the cable and its modules, then read the counters again: one of the two ports may be the cause."
)
_ADVICE = {
    "port-remote-errors": "Follow the path upstream: the packets were broken before they came to this port.",
    "port-discards": "Look at congestion and at the flow control settings of switch and host.",
    "roce-ack-timeouts": "Look for packet loss on the path: flow control, traffic class and the peer's port.",
    "roce-packet-loss": "Look for packet loss on the path: flow control, traffic class and the peer's port.",
    "roce-slow-restart": "Look for congestion and packet loss on the path.",
    "rdma-receiver-not-ready": "Look at the receiving process of the job: it posts its buffers too late.",
    "roce-pause-storm": "Take the node off the network: its adapter does not take packets and holds"
    " up its neighbours.",
}
LOSS = ("local_ack_timeout_err", "out_of_sequence", "packet_seq_err", "implied_nak_seq_err", "roce_slow_restart")
"""Counters of an RDMA adapter that say that packets were lost."""
_WATCHED = tuple(dict.fromkeys(entry.counter for entry in thresholds.THRESHOLDS))


def judge(ports: Sequence[Port], interval_s: float | None) -> tuple[list[Finding], list[Verdict]]:
    """Findings and verdicts of all ports that have counters. `interval_s` of the context goes before times told."""
    findings: list[Finding] = []
    verdicts: list[Verdict] = []
    single = unknown = steady = False
    for port in ports:
        watched = [name for name in port.last if name in _WATCHED or name in LOSS or name in PHYSICAL_ERRORS]
        findings += _saturated(port)
        if not watched:
            continue
        if port.repeated:
            found, open_ = _increases(port, interval_s if interval_s is not None else port.interval_s)
            findings += found
            unknown = unknown or open_
            steady = steady or not (found or open_)
            if not found and not open_:
                verdicts.append(Verdict(port.id.label, Result.PASS, "no-error-rate"))
            continue
        found = _lifetime(port)
        counted = {name: port.last[name].value for name in watched if port.last[name].value}
        findings += found
        single = single or bool(counted)
        if counted and not found:
            verdicts.append(
                Verdict(port.id.label, Result.UNKNOWN, "lifetime-counts", _counted(counted), {"counters": counted})
            )
        elif not counted:
            verdicts.append(Verdict(port.id.label, Result.PASS, "no-errors-counted"))
    if single or unknown:
        reason = "one-sample" if single else "interval-missing"
        message = "Read the counters twice, some minutes apart, and tell interval_s if the text holds no times."
        verdicts.append(Verdict(RATE, Result.UNKNOWN, reason, message))
    elif steady and not findings:
        verdicts.append(Verdict(RATE, Result.PASS, "within-limits"))
    return findings, verdicts


def _counted(counts: dict[str, int]) -> str:
    shown = ", ".join(f"{name} {value}" for name, value in list(counts.items())[:6])
    return f"Counted since the counters began: {shown}. One reading does not tell whether it goes on."


def _finding(
    port: Port, entry: Threshold | None, code: str, reason: str, message: str, counters: Sequence[str], **more: Any
) -> Finding:
    severity = entry.severity if entry is not None else Severity.WARNING
    return Finding(
        port.id.label,
        Result.FAIL if severity is Severity.FATAL else Result.WARN,
        reason,
        message,
        port.id.entity(),
        _ADVICE.get(code, _CABLE),
        code=code,
        severity=severity,
        scope=entry.scope if entry is not None else Scope.LINK,
        hint=entry.hint if entry is not None else Hint.INSPECT,
        at=tuple(port.where(name) for name in counters),
        **more,
    )


def _increases(port: Port, interval_s: float | None) -> tuple[list[Finding], bool]:
    """Findings of new counts, and whether something could not be judged."""
    found: list[Finding] = []
    open_ = False
    for name in port.last:
        more = port.increase(name)
        limits = thresholds.of_counter(name)
        if not limits or (more is None and port.times_read(name) < 2):
            continue
        if more is None or port.last[name].saturated:
            open_ = open_ or bool(port.last[name].value)
            continue
        for entry in limits:
            if entry.exceeded(more, interval_s):
                per = f" within {interval_s:g} s" if interval_s is not None else " between the readings"
                found.append(
                    _finding(
                        port,
                        entry,
                        entry.code,
                        f"{name.replace('_', '-')}-rate",
                        f"{name} rose by {more}{per}.",
                        [name],
                        count=more,
                        details={
                            "counter": name,
                            "increase": more,
                            "interval_s": interval_s,
                            "limit": entry.limit,
                            "window_s": entry.window_s or None,
                        },
                        more={"value": more},
                    )
                )
                break
        else:
            open_ = open_ or (more > 0 and interval_s is None)
    return _merged(found), open_


def _merged(found: list[Finding]) -> list[Finding]:
    """One finding for each code: two counters of one trouble are one fault."""
    by_code: dict[Any, Finding] = {}
    for finding in found:
        before = by_code.get(finding.code)
        if before is None:
            by_code[finding.code] = finding
        else:
            by_code[finding.code] = Finding(
                **{
                    **before.__dict__,
                    "message": f"{before.message.rstrip('.')}; {finding.message}",
                    "at": before.at + finding.at,
                    "count": before.count + finding.count,
                    "severity": max(before.severity, finding.severity, key=SEVERITY_RANK.__getitem__),
                    "result": Result.FAIL if Result.FAIL in (before.result, finding.result) else before.result,
                }
            )
    return list(by_code.values())


def _lifetime(port: Port) -> list[Finding]:
    """What one reading says by itself. Small counts say nothing: nobody knows when they came."""
    counts = {name: counter.value for name, counter in port.last.items()}
    found: list[Finding] = []
    symbol, recovered = counts.get("symbol_error", 0), counts.get("link_error_recovery", 0)
    if symbol and recovered:
        found.append(
            _finding(
                port,
                None,
                "ib-link-errors",
                "symbol-and-recovery-errors",
                f"{symbol} symbol errors and {recovered} recoveries of the link were counted.",
                ["symbol_error", "link_error_recovery"],
                count=symbol,
                confidence="low",
                lower_bound=port.last["symbol_error"].saturated,
                details={"counters": _physical(counts)},
            )
        )
    drops = max(counts.get("link_downed", 0), counts.get("link_down_events_phy", 0))
    flaps = drops > thresholds.FLAPS_OF_A_LIFETIME
    flaps = flaps or counts.get("carrier_changes", 0) > thresholds.CARRIER_CHANGES_OF_A_LIFETIME
    if flaps:
        names = [name for name in ("link_downed", "link_down_events_phy", "carrier_changes") if counts.get(name)]
        drops = drops or counts["carrier_changes"] // 2
        found.append(
            _finding(
                port,
                None,
                "port-link-flapping",
                "link-flapping",
                f"The link went down {drops} times.",
                names,
                count=drops,
                confidence="low",
                more={"value": drops},
                details={"counters": _physical(counts)},
                lower_bound=any(port.last[name].saturated for name in names),
            )
        )
    codes = {finding.code for finding in found}
    for name, least in thresholds.TELLING_LIFETIME.items():
        entry = next(iter(thresholds.of_counter(name)), None)
        if counts.get(name, 0) <= least or entry is None or entry.code in codes:
            continue
        codes.add(entry.code)
        found.append(
            _finding(
                port,
                entry,
                entry.code,
                f"{name.replace('_', '-')}-high",
                f"{name} stands at {counts[name]}.",
                [name],
                count=counts[name],
                confidence="low",
                lower_bound=port.last[name].saturated,
                more={"value": counts[name]},
                details={"counters": _physical(counts)},
            )
        )
    return found


def _physical(counts: dict[str, int]) -> dict[str, int]:
    return {name: value for name, value in counts.items() if value and (name in PHYSICAL_ERRORS or name in _WATCHED)}


def _saturated(port: Port) -> list[Finding]:
    full = [name for name, counter in port.last.items() if counter.saturated]
    if not full:
        return []
    return [
        Finding(
            f"{port.id.label} counters",
            Result.UNKNOWN,
            "counter-saturated",
            f"At their maximum and stopped: {', '.join(full)}.",
            port.id.entity(),
            "Clear the counters (perfquery -R, or through the fabric manager) and read them again later.",
            at=tuple(port.where(name) for name in full),
            more={"counters": full},
        )
    ]
