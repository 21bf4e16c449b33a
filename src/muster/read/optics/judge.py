"""What the readings of a link and its module mean. A value is judged against the limits printed beside it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from muster.read.fabric_ports import thresholds
from muster.read.fabric_ports.finding import Finding
from muster.read.optics import speed
from muster.read.optics.module import Link, Measured, at, rate_gbps
from muster.read.report import Result
from muster.resources.fault import Severity

_UP = ("active", "linkup", "link up", "physical linkup", "phy up", "eth_an_fsm_enable", "etherneten", "up")
_READY = ("ready state", "ready", "moduleready")
_DATAPATH_UP = ("dpactivated", "dpinitialized")
_CLEAN = (
    "Look at the module and its fibre: reseat and clean both ends, then swap the module; "
    "the far end's module may be the cause."
)
_FLAG_RULES: tuple[tuple[str, str, Result, Severity, str], ...] = (
    ("rx_los", "rx-los", Result.FAIL, Severity.FATAL, "No light is received on"),
    ("tx_fault", "tx-fault", Result.FAIL, Severity.FATAL, "The transmitter reports a fault on"),
    (
        "module_fw_fault",
        "module-fw-fault",
        Result.FAIL,
        Severity.FATAL,
        "The firmware of the module reports a fault on",
    ),
    (
        "datapath_fw_fault",
        "datapath-fw-fault",
        Result.FAIL,
        Severity.FATAL,
        "The module's data path reports a fault on",
    ),
    ("tx_los", "tx-los", Result.WARN, Severity.WARNING, "The module gets no signal from the host on"),
    ("tx_cdr_lol", "tx-cdr-lol", Result.WARN, Severity.WARNING, "The transmit clock is not locked on"),
    ("rx_cdr_lol", "rx-cdr-lol", Result.WARN, Severity.WARNING, "The receive clock is not locked on"),
    ("tx_adaptive_eq_fault", "tx-adaptive-eq-fault", Result.WARN, Severity.WARNING, "Equalisation failed on"),
)
_NAMES = {
    "temperature": "temperature",
    "voltage": "voltage",
    "bias_current": "bias current",
    "rx_power": "received power",
    "tx_power": "transmitted power",
}


def module_findings(link: Link, of: str) -> list[Finding]:
    """What is wrong with the module. Nothing for copper: it has no circuit that could tell."""
    if not link.optical_rules_apply:
        return []
    found = list(_state(link, of))
    for rule in _FLAG_RULES:
        found += _flag(link, of, rule, found)
    found += _dark(link, of, found)
    for name, measured in link.measured.items():
        if name in _NAMES:
            found += _range(link, of, name, measured, found)
    return found


def has_module_readings(link: Link) -> bool:
    return bool(link.flags) or any(not entry.empty for entry in link.measured.values()) or "module_state" in link.text


def _entity(link: Link, lane: int | None = None) -> dict[str, Any]:
    device = link.label
    name = " ".join(part for part in (device, f"lane {lane}" if lane is not None else "") if part) or "module"
    plain: dict[str, Any] = {"kind": "optic", "name": name}
    if link.device:
        plain["interface" if link.tool.startswith("ethtool") else "device"] = link.device
    if link.host:
        plain["host"] = link.host
    return plain | ({"lane": lane} if lane is not None else {})


def _state(link: Link, of: str) -> Iterator[Finding]:
    state = link.text.get("module_state")
    if state is not None and _state_word(state) not in _READY:
        yield Finding(
            of,
            Result.FAIL,
            "module-state",
            f"The module is not ready: {state}.",
            _entity(link),
            "Reseat the module or reset the port; replace the module if it does not become ready.",
            code="optic-module-state",
            kind="optic",
            severity=Severity.FATAL,
            at=at(link, "module_state"),
            more={"state": state},
            details={"state": state},
        )
    states = [
        part.strip() for part in link.text.get("datapath_state", "").split(",") if part.strip() not in ("", "N/A")
    ]
    wrong = [n for n, part in enumerate(states) if part.lower() not in _DATAPATH_UP]
    if wrong and _is_up(link) is not False:
        yield Finding(
            of,
            Result.WARN,
            "datapath-state",
            f"The data path of lane {wrong[0]} is {states[wrong[0]]}.",
            _entity(link, wrong[0]),
            _CLEAN,
            code="optic-datapath-state",
            kind="optic",
            at=at(link, "datapath_state"),
            more={"lane": wrong[0], "state": states[wrong[0]]},
            details={"lanes": wrong},
        )


def _state_word(state: str) -> str:
    """`Ready state`, and `0x03 (ModuleReady)` of ethtool, in lower case."""
    inner = re.search(r"\(([^)]{1,60})\)", state)
    return (inner[1] if inner else state).strip().lower()


def _flag(
    link: Link, of: str, rule: tuple[str, str, Result, Severity, str], before: Sequence[Finding]
) -> Iterator[Finding]:
    name, reason, result, severity, words = rule
    lanes = [lane for lane, set_ in enumerate(link.flags.get(name, ())) if set_]
    if name == "rx_cdr_lol":  # without light there is no clock to lock to
        lost = {lane for finding in before if finding.reason == "rx-los" for lane in finding.details["lanes"]}
        lanes = [lane for lane in lanes if lane not in lost]
    if not lanes:
        return
    whole = len(link.flags[name]) == 1 and name.endswith("fw_fault")
    groups: list[list[int]] = [lanes] if len(lanes) == len(link.flags[name]) > 1 else [[lane] for lane in lanes]
    for group in groups:
        lane = None if whole or len(group) > 1 else group[0]
        which = "the module" if lane is None and whole else "all lanes" if lane is None else f"lane {lane}"
        power = link.measured.get("rx_power")
        more: dict[str, Any] = {"lane": lane} if lane is not None else {"lanes": group}
        if name == "rx_los" and power is not None and lane is not None and lane < len(power.values):
            more["rx_power_dbm"] = power.values[lane]
        yield Finding(
            of,
            result,
            reason,
            f"{words} {which}.",
            _entity(link, lane),
            _CLEAN if name.startswith("rx") else "Reseat the module; replace it if the flag comes back.",
            code=f"optic-{reason}",
            kind="optic",
            severity=severity,
            at=at(link, name),
            more=more,
            details={"lanes": group},
        )


def _dark(link: Link, of: str, before: Sequence[Finding]) -> Iterator[Finding]:
    """A lane without light whose flag the tool does not print."""
    power = link.measured.get("rx_power")
    if power is None or any(finding.reason == "rx-los" for finding in before):
        return
    for lane, value in enumerate(power.values):
        if value is not None and value <= thresholds.DARK_DBM:
            yield Finding(
                of,
                Result.FAIL,
                "rx-dark",
                f"Lane {lane} receives no light ({value:g} dBm).",
                _entity(link, lane),
                _CLEAN,
                code="optic-rx-dark",
                kind="optic",
                severity=Severity.FATAL,
                at=at(link, "rx_power"),
                more={"lane": lane, "value": value},
                details={"lanes": [lane]},
            )


def _range(link: Link, of: str, name: str, measured: Measured, before: Sequence[Finding]) -> Iterator[Finding]:
    reason = f"{name.replace('_', '-')}-out-of-range"
    lost = {lane for f in before if f.reason in ("rx-los", "rx-dark") for lane in f.details["lanes"]}
    if measured.low is not None and measured.high is not None and measured.low < measured.high:
        for lane, value in enumerate(measured.values):
            if value is None or measured.low <= value <= measured.high or (name == "rx_power" and lane in lost):
                continue
            one = len(measured.values) == 1 and name in ("temperature", "voltage")
            where = "" if one else f" of lane {lane}"
            side = "above" if value > measured.high else "below"
            limit = measured.high if value > measured.high else measured.low
            yield Finding(
                of,
                Result.WARN,
                reason,
                f"The {_NAMES[name]}{where} is {value:g} {measured.unit}, {side} {limit:g}.",
                _entity(link, None if one else lane),
                _advice(name),
                code="optic-out-of-range",
                kind="optic",
                at=at(link, name),
                more={"value": value, **({} if one else {"lane": lane})},
                details={"reading": name, "value": value, "range": [measured.low, measured.high]},
            )
    elif measured.alarm:
        value = next((entry for entry in measured.values if entry is not None), None)
        yield Finding(
            of,
            Result.WARN,
            reason,
            f"The tool marks the {_NAMES[name]} with {measured.alarm}.",
            _entity(link),
            _advice(name),
            code="optic-out-of-range",
            kind="optic",
            at=at(link, name),
            more={"value": value, "alarm": measured.alarm},
            details={"reading": name, "value": value},
        )


def _advice(name: str) -> str:
    if name == "temperature":
        return "Look at the airflow and the fans around the module; swap the module if its neighbours are cool."
    late = "Swap the module at the next maintenance; watch the bit error rate until then."
    return _CLEAN if name == "rx_power" else late


def _is_up(link: Link) -> bool | None:
    state = link.text.get("state")
    return None if state is None else state.strip().lower() in _UP


def link_findings(link: Link, of: str, expected_gbps: float | None, expected_fec: str | None) -> list[Finding]:
    """What is wrong with the link itself: state, speed, FEC, error rates, the tool's own advice."""
    found = [*_link_state(link, of)]
    if _is_up(link) is not False:
        found += speed.findings(link, of, expected_gbps)
        found += _fec(link, of, expected_fec)
        found += _errors(link, of)
    return found


def _link_state(link: Link, of: str) -> Iterator[Finding]:
    opcode = link.numbers.get("status_opcode")
    advice = link.text.get("recommendation", "")
    state = link.text.get("state")
    up = _is_up(link)
    if up is False:
        unplugged = bool(opcode) and "unplugged" in advice.lower()
        off = (state or "").lower() in ("disable", "disabled", "close port", "sleep") and not unplugged
        yield Finding(
            of,
            Result.FAIL,
            "link-disabled" if off else "link-down",
            f"The link is not up: {state}" + (f"; the tool says: {advice}" if opcode and advice else "") + ".",
            link.entity(),
            "The port is switched off: enable it, or leave it if nobody uses it."
            if off
            else "Look at the cable, the module and the port at the far end.",
            code="port-disabled" if off else "port-down",
            severity=Severity.WARNING if off else Severity.FATAL,
            at=at(link, "state"),
            more={"state": state, **({"opcode": int(opcode)} if opcode else {})},
            details={"recommendation": advice or None},
        )
    elif opcode:
        yield Finding(
            of,
            Result.WARN,
            "troubleshooting",
            f"The tool reports opcode {int(opcode)}: {advice or 'no text'}.",
            link.entity(),
            f"Follow the tool's advice: {advice}." if advice else _CLEAN,
            code="link-troubleshooting",
            at=at(link, "status_opcode"),
            more={"opcode": int(opcode)},
            details={"recommendation": advice or None},
        )


def _fec(link: Link, of: str, expected: str | None) -> Iterator[Finding]:
    fec = link.text.get("fec")
    if fec is None:
        return
    width = speed.width_of(link)
    rate = rate_gbps(link.text.get("speed"), width)
    lane = rate / width if rate and width else None
    off = fec.lower().replace("-", " ").startswith(("no fec", "none", "off"))
    wrong = ""
    if expected is not None:
        wrong = "" if expected.lower() in fec.lower() else f"{expected} is expected"
    elif off and lane is not None and lane >= 50:
        wrong = f"lanes of {lane:g} Gb/s need Reed-Solomon correction"
    elif lane is not None and lane >= 50 and ("fire code" in fec.lower() or "528,514" in fec):
        wrong = f"lanes of {lane:g} Gb/s need RS(544,514) or its low-latency kin"
    if wrong:
        yield Finding(
            of,
            Result.WARN,
            "wrong-fec",
            f"FEC is {fec}; {wrong}.",
            link.entity(),
            "Set the same FEC at both ends (automatic, or RS).",
            code="port-fec",
            at=at(link, "fec"),
            more={"value": fec},
            details={"fec": fec},
        )


_BER_RULES = (
    ("raw_physical_ber", thresholds.RAW_BER_FAIL, Result.FAIL, "raw-ber", "before correction"),
    ("raw_physical_ber", thresholds.RAW_BER_WARN, Result.WARN, "raw-ber", "before correction"),
    ("effective_physical_ber", thresholds.EFFECTIVE_BER_WARN, Result.WARN, "effective-ber", "after correction"),
    ("symbol_ber", thresholds.SYMBOL_BER_WARN, Result.WARN, "symbol-ber", "after correction and retransmission"),
)


def _errors(link: Link, of: str) -> Iterator[Finding]:
    seen: set[str] = set()
    for name, limit, result, reason, words in _BER_RULES:
        value = link.numbers.get(name)
        if value is None or value < limit or name in seen:
            continue
        seen.add(name)
        yield Finding(
            of,
            result,
            reason,
            f"The bit error rate {words} is {value:.1e}; {limit:.1e} is the limit.",
            link.entity(),
            _CLEAN,
            code="port-bit-errors",
            severity=Severity.FATAL if result is Result.FAIL else Severity.WARNING,
            at=at(link, name),
            more={"value": value},
            details={"reading": name, "value": value, "limit": limit},
        )
    drops = link.numbers.get("link_down_counter", 0)
    if drops > thresholds.FLAPS_OF_A_LIFETIME:
        minutes = link.numbers.get("minutes_since_clear")
        span = f" within {minutes:g} minutes" if minutes else ""
        yield Finding(
            of,
            Result.WARN,
            "link-flapping",
            f"The link went down {int(drops)} times{span}.",
            link.entity(),
            _CLEAN,
            code="port-link-flapping",
            count=int(drops),
            at=at(link, "link_down_counter"),
            more={"value": int(drops)},
            details={"interval_min": minutes},
        )
