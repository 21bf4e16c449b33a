"""Texts about network ports, read together: states, counters, settings, modules, tests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from muster.read.fabric_ports import (
    detect,
    eth_ports,
    fabric_lists,
    ib_counters,
    ib_state,
    judge_counters,
    judge_roce,
    judge_state,
    roce,
    sysfs,
)
from muster.read.fabric_ports.expectation import Expected, expected
from muster.read.fabric_ports.fabric_lists import UnhealthyPort
from muster.read.fabric_ports.finding import Finding, heaviest_first
from muster.read.fabric_ports.lines import Line, lines_of
from muster.read.fabric_ports.port import Counter, Port, PortReading, join
from muster.read.fabric_ports.roce import RoceSettings
from muster.read.optics import ethtool_module, link_test, mlxlink
from muster.read.optics import reading as optics
from muster.read.optics.link_test import Firmware, LinkTest
from muster.read.optics.module import Link
from muster.read.report import ReadFault, Report, Result, Value, Verdict
from muster.read.source import Context, Input
from muster.read.tables.source import content
from muster.read.terminal import without_end
from muster.resources.fault import Scope, Severity


@dataclass
class _Found:
    """All that the inputs say."""

    readings: list[PortReading] = field(default_factory=list)
    unhealthy: list[tuple[str, UnhealthyPort]] = field(default_factory=list)
    stages: dict[str, tuple[int, int]] = field(default_factory=dict)
    messages: list[tuple[str, int, str, str]] = field(default_factory=list)
    settings: RoceSettings = field(default_factory=RoceSettings)
    links: list[Link] = field(default_factory=list)
    tests: list[LinkTest] = field(default_factory=list)
    firmware: list[tuple[str, Firmware]] = field(default_factory=list)
    cut_files: list[str] = field(default_factory=list)
    kinds: list[str] = field(default_factory=list)


def parse(inputs: Sequence[Input], context: Context) -> Report:
    """Read all texts of one moment. Raises BadInputError for a context that cannot be used."""
    want = expected(context)
    found = _Found()
    for item in inputs:
        _read(item.name, content(item), found, want)
    ports = join(found.readings)
    findings, verdicts = judge_state.judge(ports, want, bool(found.cut_files))
    more, passed = judge_counters.judge(ports, want.interval_s)
    roce_findings, roce_passed = judge_roce.judge(ports, found.settings, want, bool(found.cut_files))
    findings += more + roce_findings + _unhealthy(found) + _stages(found)
    verdicts += passed + roce_passed
    values = _values(ports, found)
    for link, suffix in _suffixes(found.links):
        wrong, right = optics.judged(link, suffix, want.rate_gbps, want.fec)
        findings += wrong
        verdicts += right
        values |= {f"{name}{suffix}": value for name, value in optics.values_of(link).items()}
    figures, of_tests = optics.judge_tests(found.tests, want.rate_gbps)
    stored, wrong, right = optics.judge_firmware([entry for _, entry in found.firmware], _first(found.firmware))
    values |= figures | stored
    findings = heaviest_first(findings + wrong)
    verdicts = _settled(findings, verdicts + of_tests + right, found, ports, bool(values))
    faults = tuple(fault for finding in findings if (fault := finding.fault()) is not None)
    return Report(
        kind=detect.kind_of({str(n): kind for n, kind in enumerate(found.kinds)}),
        files=tuple(item.name for item in inputs),
        truncated=bool(found.cut_files),
        faults=faults,
        verdicts=tuple(verdicts),
        values=values,
        next=_next(faults, findings, verdicts),
    )


def _first(entries: Sequence[tuple[str, Firmware]]) -> str:
    return entries[0][0] if entries else ""


def _read(name: str, text: str, found: _Found, want: Expected) -> None:
    text = without_end(text)
    lines = lines_of(text)
    tools = {**detect.tools_of(text), **detect.tools_of("\n".join(line.text for line in lines))}
    found.kinds += [kind for kind in tools.values() if kind not in found.kinds]
    if "mlxlink json" in tools:
        try:
            found.links += mlxlink.parse_json(text, name)
        except (ValueError, RecursionError):
            found.cut_files.append(name)
        return
    whole = text.endswith("\n") or "\n" not in text
    if not whole:  # half a number is a wrong number
        found.cut_files.append(name)
        lines = lines[:-1]
    elif _incomplete(lines, tools):
        found.cut_files.append(name)
    for reader in (ib_state.parse, ib_counters.parse, sysfs.parse):
        found.readings += reader(lines, name)
    if "ib lists" in tools:
        lists = fabric_lists.parse(lines, name)
        found.readings += lists.ports
        found.unhealthy += [(name, port) for port in lists.unhealthy]
        found.stages |= lists.stages
        found.messages += [(name, *message) for message in lists.messages]
    if "eth ports" in tools:
        found.readings += _named(eth_ports.parse(lines, name), want.interface)
    roce.parse(lines, name, found.settings)
    if "mlxlink" in tools:
        found.links += mlxlink.parse(lines, name)
    if "module" in tools and "mlxlink" not in tools:
        found.links += ethtool_module.parse(lines, name)
    found.tests += link_test.parse_tests(lines)
    found.firmware += [(name, entry) for entry in link_test.parse_firmware(lines)]


def _named(readings: list[PortReading], interface: str | None) -> list[PortReading]:
    """`ethtool -S` does not print the interface; the context may tell it."""
    if interface is not None:
        for reading in readings:
            if reading.id.interface is None and reading.tool == "ethtool -S":
                reading.id = replace(reading.id, interface=interface)
                reading.put("interface", interface)
    return readings


def _incomplete(lines: Sequence[Line], tools: dict[str, str]) -> bool:
    """The text ends within the block of a port: the tool prints more lines for each."""
    filled = [line.text.strip() for line in lines if line.text.strip()][-40:]
    if not filled or "ib state" not in tools:
        return False
    for back, text in enumerate(reversed(filled)):
        if text.startswith(("CA '", "hca_id:")):
            return not any(line.startswith("link_layer") for line in filled[len(filled) - back :])
        if (text.startswith("Port ") and text.endswith(":")) or text.endswith("status:"):
            block = filled[len(filled) - back :]
            return not any(line.lower().startswith(("port guid", "link layer", "link_layer")) for line in block)
    return False


def _suffixes(links: Sequence[Link]) -> list[tuple[Link, str]]:
    """Each link with what tells it apart in the names of verdicts and values; nothing for a single one."""
    if len(links) == 1:
        return [(links[0], "")]
    names = [link.label for link in links]
    unique = len(set(names)) == len(names) and all(names)
    files = [link.file for link in links]
    by_file = len(set(files)) == len(files)
    return [
        (link, f" of {link.label if unique else link.file if by_file else number}")
        for number, link in enumerate(links, start=1)
    ]


def _values(ports: Sequence[Port], found: _Found) -> dict[str, Value]:
    """Readings of a single port by their names, of several ports by port."""
    values: dict[str, Value] = {}
    shown = [port for port in ports if port.facts or port.last]
    if shown:
        values["ports"] = Value(len(shown))
    if len(shown) <= 1 or _one_of_each(shown):
        for port in shown:
            values |= {name: value for name, value in port.facts.items() if name != "reporters"}
            values |= {counter.printed: Value(counter.value) for counter in _telling(port)}
    else:
        values["by_port"] = Value(
            {
                port.id.label: {
                    **{name: value.value for name, value in port.facts.items() if name != "reporters"},
                    **{counter.printed: counter.value for counter in _telling(port)},
                }
                for port in shown[:512]
            }
        )
        up = [judge_state.is_up(port) for port in shown]
        if any(state is not None for state in up):
            values["ports_up"], values["ports_down"] = Value(up.count(True)), Value(up.count(False))
    increases = {
        port.id.label: rising
        for port in shown
        if port.repeated and (rising := {name: more for name in port.last if (more := port.increase(name))})
    }
    if increases:
        values["increases"] = Value(dict(list(increases.items())[:512]))
    values |= judge_roce.values(ports, found.settings)
    if found.stages:
        values["stages"] = Value({name: {"warnings": w, "errors": e} for name, (w, e) in found.stages.items()})
    if found.unhealthy:
        values["unhealthy_ports"] = Value(len(found.unhealthy))
    return values


def _telling(port: Port) -> list[Counter]:
    return [counter for name, counter in port.last.items() if not name.startswith(("rx_prio", "tx_prio"))][:400]


def _one_of_each(ports: Sequence[Port]) -> bool:
    """An RDMA device and its interface: two names of one thing, whose readings do not collide."""
    if len(ports) != 2:
        return False
    first, second = ports
    return (first.id.device is None) != (second.id.device is None) and not set(first.last) & set(second.last)


def _unhealthy(found: _Found) -> list[Finding]:
    """Both ends of a link are listed: one finding for each link."""
    findings: dict[tuple[str, str], Finding] = {}
    for file, port in found.unhealthy:
        ends = sorted((port.id.label, port.peer.label))
        if (ends[0], ends[1]) in findings:
            continue
        words = ", ".join(port.conditions).lower()
        since = f" since {port.at.text}" if port.at is not None and port.at.text else ""
        findings[ends[0], ends[1]] = Finding(
            port.id.label,
            Result.WARN,
            "-".join(port.conditions).lower().replace("_", "-") or "unhealthy",
            f"The subnet manager calls the link {port.node} port {port.id.port} to {port.peer_node} port"
            f" {port.peer.port} {words}{since}.",
            {"kind": "link", "between": [f"{port.node}/{port.id.port}", f"{port.peer_node}/{port.peer.port}"]},
            "Swap the cable of this link; keep the link out of routing until then.",
            code="port-link-flapping" if "FLAPPING" in port.conditions else "port-unhealthy",
            scope=Scope.FABRIC,
            at=((file, port.line, port.text),),
            more={"conditions": list(port.conditions)},
            details={"ends": [port.id.entity(), port.peer.entity()], "conditions": list(port.conditions)},
        )
    return list(findings.values())


def _stages(found: _Found) -> list[Finding]:
    findings = []
    for stage, (warnings, errors) in found.stages.items():
        if not warnings and not errors:
            continue
        words = [word for word in stage.lower().replace("(", " ").split() if len(word) > 3][:3]
        texts = [row for row in found.messages if row[2] == ("E" if errors else "W")][:8]
        findings.append(
            Finding(
                f"stage {stage}",
                Result.FAIL if errors else Result.WARN,
                "errors" if errors else "warnings",
                f"{stage}: {errors} errors, {warnings} warnings.",
                {"kind": "fabric", "name": stage},
                f"Look at the section on {stage} in the tool's log: it names the ports.",
                code="fabric-check" if errors else None,
                kind="fabric",
                scope=Scope.FABRIC,
                count=errors or warnings,
                severity=Severity.WARNING,
                at=tuple((file, line, text) for file, line, _, text in texts),
                details={"stage": "-".join(words), "warnings": warnings, "errors": errors},
            )
        )
    return findings


def _settled(
    findings: Sequence[Finding], verdicts: Sequence[Verdict], found: _Found, ports: Sequence[Port], shown: bool
) -> list[Verdict]:
    """Findings first. A pass does not stand beside a finding on the same subject, nor at the end of a cut text."""
    said = {finding.of for finding in findings}
    cut = set()
    for file in found.cut_files:
        last = [port.id.label for port in ports if port.readings[-1].file == file][-1:]
        cut |= {name for label in last for name in (label, f"{label} state", f"{label} rate")}
        of_file = [suffix for link, suffix in _suffixes(found.links) if link.file == file][-1:]
        cut |= {f"{name}{suffix}" for suffix in of_file for name in ("module", "link")}
    rows = [finding.verdict() for finding in findings]
    for verdict in verdicts:
        if verdict.of in said:
            if verdict.of == judge_counters.RATE or verdict.result is Result.UNKNOWN:
                rows.append(verdict)
            continue
        if verdict.result is Result.PASS and verdict.of in cut:
            verdict = Verdict(verdict.of, Result.UNKNOWN, "truncated-output", "The text ends before the port does.")
        rows.append(verdict)
    if not rows and found.cut_files:
        rows.append(Verdict("port", Result.UNKNOWN, "truncated-output", "The text ends before it says anything."))
    elif not rows and not shown:
        message = "The text holds no reading of a port; give the output of the tool itself."
        rows.append(Verdict("port", Result.UNKNOWN, "nothing-read", message))
    return [row for n, row in enumerate(rows) if row not in rows[:n]]


def _next(faults: Sequence[ReadFault], findings: Sequence[Finding], verdicts: Sequence[Verdict]) -> str:
    serious = sorted(faults, key=lambda fault: fault.severity is not Severity.FATAL)
    if serious:
        return serious[0].next
    if findings:
        return findings[0].next
    open_ = next((verdict for verdict in verdicts if verdict.result is Result.UNKNOWN and verdict.message), None)
    return open_.message if open_ is not None else "Nothing has to be done."
