"""The format `kernel-log` (with `fabric-manager` and `pcie`): from the inputs to the report."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from muster.read.advice import advice
from muster.read.kernel import escalate, incidents, joins, verdicts, xid
from muster.read.kernel.aggregate import MAX_LISTED, Collector, Tracked, listed_name
from muster.read.kernel.bandwidth import Limits
from muster.read.kernel.finding import Finding
from muster.read.kernel.framing import frame
from muster.read.kernel.parser import KernelLogParser
from muster.read.kernel.prefilter import Tally, candidates
from muster.read.report import (
    HINT_RANK,
    SEVERITY_RANK,
    Incident,
    ReadFault,
    Report,
    Result,
    Value,
    Verdict,
    entity_plain,
)
from muster.read.source import Context, Input, text_lines
from muster.resources.fault import Hint, Severity

KERNEL_LOG, FABRIC_MANAGER, PCIE = "kernel-log", "fabric-manager", "pcie"

_SUBSYSTEM = re.compile(
    r"(?:NVRM: |nvidia[-_\w]*: |nvidia-peermem|mlx5_core|EXT4-fs|XFS \(|md: |pci(?:eport|_bus)? [0-9a-f]{4}:"
    r"|usb \d|audit: |EDAC |mce: |ACPI: |Kernel |Linux version |Command line: |clocksource: |IPv6: |docker0: |scsi "
    r"|sd [a-z0-9]+:|ata\d|nvme nvme|nvme\d|CPU: \d|Call Trace|RIP: |BUG: |INFO: task|rcu: |watchdog: |cgroup: "
    r"|NETDEV WATCHDOG|GPU reset executed: |NVSwitch|detected N|request to query NV|failed to find the GPU handle"
    r"|systemd\[1\]: |(?:Memory cgroup o|O)ut of memory: "
    r"|[\w./-]{1,40}\[\d+\]: segfault|\{\d+\}\[Hardware Error\]"
    r"|device \w+ entered |[\w-]+ [0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]: )"
)
_TRUNCATED_START = re.compile(r"\s*\d*\.?\d+\]\s")
_DMESG_ISO = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d,\d{6}[+-]\d\d:\d\d ")
_KMSG_LINE = re.compile(r"\d{1,6},\d+,\d+,[^;]*;|\d+\.\d+\]")
_XID_HEAD = re.compile(r"Xid \([^()]*\)$")
_ENDINGS = (".", ")", "!", '"', "]", "}", ";")


def score(sample: bytes) -> float:
    """Share of the lines that look like a kernel or service log, from 0 to 1."""
    lines = [line for line in text_lines(sample) if line.strip()]
    if not lines:
        return 0.0
    known = sum(1 for line in lines if _known(line))
    continued = sum(1 for line in lines if line[0] in " \t" and not _known(line))
    if not known:
        return 0.0
    return min(1.0, (known + 0.5 * continued) / len(lines))


def _known(line: str) -> bool:
    """A record of the kernel, or any of syslog or the journal. A date alone is no sign: many programs log one."""
    origin = frame(line[:2000])
    if not origin.framed:
        return _SUBSYSTEM.match(line.lstrip()) is not None or "NVRM: " in line or "Xid (PCI:" in line
    if _SUBSYSTEM.match(origin.message) or _DMESG_ISO.match(line):
        return True
    plain_date = line[:1].isdigit() and _KMSG_LINE.match(line) is None and origin.tag is None
    return origin.moment is not None and not plain_date


def parse(inputs: Sequence[Input], context: Context) -> Report:
    """Read the inputs together, in bounded memory."""
    reading = Reading()
    for item in inputs:
        reading.read(item)
    return reading.report(context)


class Reading:
    """The inputs of one report while they are read."""

    def __init__(self) -> None:
        self.collector = Collector()
        self.notes: list[tuple[str, Finding]] = []
        self.uuids: dict[str, str] = {}
        self.files: list[str] = []
        self.truncated_lines = 0
        self.oversized_lines = 0
        self.records: int | None = 0
        self.lines = 0
        self._kinds: list[str] = []
        self._log_seen = False
        self._era = 0
        """Seconds since boot in different files may be of different boots."""

    def read(self, item: Input) -> None:
        """Read one input to its end."""
        parser, tally = KernelLogParser(self._era), Tally()
        parser.uuids.update(self.uuids)
        self.files.append(item.name)
        notes_before, used_before = len(self.collector.notes), self.collector.findings
        for candidate in candidates(item.chunks(), tally):
            cut = candidate.cut and _may_be_cut(candidate.line)
            for finding in parser.line(candidate.number, candidate.line, cut):
                self.collector.add(finding, item.name)
        for finding in parser.flush():
            self.collector.add(finding, item.name)
        self._era = parser.era + 1
        self.uuids.update(parser.uuids)
        notes = self.collector.notes[notes_before:]
        self.notes += [(item.name, note) for note in notes]
        self._count(item, tally)
        self._log_seen |= score(item.sample) > 0 or self.collector.findings > used_before
        self._kinds.append(_kind(item.sample, notes, self.collector.findings - used_before))

    def _count(self, item: Input, tally: Tally) -> None:
        first = text_lines(item.sample, 1)[0]
        if _TRUNCATED_START.match(first) and not first.lstrip().startswith("["):
            self.truncated_lines += 1
        if not tally.ends_complete and tally.last_line and _may_be_cut(tally.last_line):
            self.truncated_lines += 1
        self.oversized_lines += tally.oversized
        self.lines += tally.lines
        if not tally.records_known or self.records is None:
            self.records = None
        elif _fabric_share(item.sample) > 0.2:
            self.records += tally.bracketed
        else:
            self.records += tally.lines - tally.blank - tally.indented

    def report(self, context: Context) -> Report:
        """Join, escalate, find incidents, judge."""
        failed = joins.join(self.collector, self.uuids)
        escalate.escalate(self.collector)
        found = incidents.find(self.collector)
        tracked = list(self.collector.listed())
        kind = self._kinds[0] if len(set(self._kinds)) == 1 else KERNEL_LOG
        limits = Limits(self.notes, context)
        values, missing = self._values(tracked, failed, context)
        faults = [read_fault(item) for item in tracked]
        judged = self._verdicts(tracked, found, missing)
        if limits.read:
            more, verdict = limits.judge()
            values |= limits.values()
            faults += more
            if not tracked:
                judged = (verdict,)
            elif judged[-1].result is Result.PASS:
                judged = (*judged[:-1], verdict)
        if judged[-1].result is Result.PASS and any(_is(note, xid.CUT) for _, note in self.notes):
            message = "The log ends inside an XID line, before its code; read it anew."
            judged = (*judged[:-1], Verdict(judged[-1].of, Result.UNKNOWN, "cut-line", message))
        if judged[-1].result is Result.PASS and not self._log_seen:
            message = "No line of the input looks like a log, so nothing can be said."
            judged = (*judged[:-1], Verdict(judged[-1].of, Result.UNKNOWN, "no-log-lines", message))
        values["alerts"] = Value(alerts(tracked, found) + len(faults) - len(tracked))
        return Report(
            kind=kind,
            files=tuple(self.files),
            truncated=bool(self.truncated_lines or self.oversized_lines or self.collector.not_listed),
            faults=tuple(faults),
            incidents=found,
            verdicts=judged,
            values=values,
            next=next_step(faults, found),
        )

    def _verdicts(
        self, tracked: Sequence[Tracked], found: Sequence[Incident], missing: int | None
    ) -> tuple[Verdict, ...]:
        gpus = verdicts.gpu_verdicts(tracked, found)
        hosts = sorted({t.host for t in tracked if t.host})
        if len(hosts) < 2:
            return (*gpus, verdicts.node_verdict("node", tracked, found, gpus, missing))
        nodes = []
        for host in hosts:
            own = [t for t in tracked if t.host == host]
            own_gpus = [v for v in gpus if v.of.endswith(f" on {host}")]
            nodes.append(verdicts.node_verdict(host, own, found, own_gpus, None))
        return (*gpus, *nodes)

    def _values(
        self, tracked: Sequence[Tracked], failed: int | None, context: Context
    ) -> tuple[dict[str, Value], int | None]:
        values: dict[str, Value] = {"lines": Value(self.lines)}
        if self.records is not None:
            values["log_records"] = Value(self.records)
        values["parsed_lines"] = Value(self.collector.lines_used)
        values["truncated_lines"] = Value(self.truncated_lines)
        values["xid_lines"] = Value(self.collector.xid_lines)
        for name, number in (
            ("oversized_lines", self.oversized_lines),
            ("findings_not_listed", self.collector.not_listed),
        ):
            if number:
                values[name] = Value(number)
        versions = [str(n.detection.details["driver_version"]) for _, n in self.notes if _is(n, "driver-version")]
        if versions:
            values["driver_version"] = Value(versions[-1])
        if self.uuids:
            values["gpu_uuids"] = Value(dict(sorted(self.uuids.items())))
        if failed is not None:
            values["failed_devices"] = Value(failed)
        values |= _firmware_values(tracked)
        registers = [t.details["registers"] for t in tracked if t.code == 74 and t.details.get("registers")]
        if registers:
            values["registers_read"] = Value(len(registers[-1]), more={"of": 7})
        missing, value = verdicts.missing_gpus(context)
        if value is not None:
            values["missing_gpus"] = value
        return values, missing


def _is(finding: Finding, check: str) -> bool:
    return finding.detection.check == check


def _may_be_cut(line: bytes) -> bool:
    """The last line of a file without a line end is cut unless it ends like a sentence."""
    text = line.rstrip().decode("utf-8", "replace")
    return not text.endswith(_ENDINGS) or _XID_HEAD.search(text[-80:]) is not None


def _fabric_share(sample: bytes) -> float:
    lines = [line for line in text_lines(sample) if line.strip()]
    fabric = sum(1 for line in lines if frame(line[:300]).tag == "nv-fabricmanager")
    return fabric / len(lines) if lines else 0.0


def _kind(sample: bytes, notes: Sequence[Finding], findings: int) -> str:
    if _fabric_share(sample) > 0.2:
        return FABRIC_MANAGER
    if notes and len(notes) == findings and all(_is(note, "pcie-bandwidth") for note in notes):
        return PCIE
    return KERNEL_LOG


def _firmware_values(tracked: Sequence[Tracked]) -> dict[str, Value]:
    """What the GSP firmware lines (119, 120) say, over all GPUs."""
    firmware = [t for t in tracked if t.code in (119, 120)]
    values: dict[str, Value] = {}
    timeouts = [t.details["timeout_s"] for t in firmware if t.details.get("timeout_s") is not None]
    if timeouts:
        values["rpc_timeout"] = Value(timeouts[0] if len(set(timeouts)) == 1 else timeouts, "s")
    functions = [item for t in firmware for item in t.listed.get("function", [])][:MAX_LISTED]
    if functions:
        values["gsp_functions"] = Value(functions)
    limits = [t.details["rate_limit"] for t in firmware if t.details.get("rate_limit") is not None]
    if limits:
        values["rate_limit"] = Value(limits[0])
    names = list(dict.fromkeys(name for t in firmware for name in t.listed.get("process", [])))[:MAX_LISTED]
    if names:
        values["processes_seen"] = Value(names)
    return values


_DECODE = (
    "layout",
    "intr_info",
    "error_status",
    "link_down_reason",
    "cross_contained",
    "injected",
    "immediate",
    "investigatory",
)


def read_fault(tracked: Tracked) -> ReadFault:
    """The fault as the report shows it."""
    detection = tracked.detection
    details = _details(tracked)
    entity = entity_plain(detection.entity, tracked.about, tracked.host)
    if detection.check == "segfault" or detection.entity.kind.value == "process":
        entity.pop("pci", None)
    return ReadFault(
        code=detection.code,
        kind=detection.check,
        entity=entity,
        severity=tracked.severity,
        scope=detection.scope,
        hint=detection.hint,
        name=detection.name,
        count=tracked.count,
        count_is=str(details.pop("count_is", "exact")),
        first=tracked.first,
        last=tracked.last,
        details=details,
        evidence=tracked.evidence(),
        next=advice(detection.hint, tracked.severity, entity, details),
        confidence=detection.confidence,
        cleared=tracked.cleared,
    )


def _details(tracked: Tracked) -> dict[str, Any]:
    details = dict(tracked.details)
    for name, values in tracked.listed.items():
        if len(values) > 1 or name == "channel":
            details[listed_name(name)] = values
    if tracked.code == 31:
        details["distinct_pids"] = tracked.distinct_pids()
        details["distinct_addresses"] = len(tracked.distinct.get("address", ()))
    whole = tracked.last.since(tracked.first) if tracked.last is not None else None
    if tracked.count > 1 and whole is not None:
        details["window_s"] = whole
    if "decode_class" in details:
        details["class"] = details["decode_class"]
    if "intr_info" in details:
        details["decode"] = {name: details[name] for name in _DECODE if name in details}
    return details


def alerts(tracked: Sequence[Tracked], found: Sequence[Incident]) -> int:
    """What a person should be told of: an incident is one alert, whatever its members."""
    members = {(t.code, t.detection.check) for t in tracked if t.details.get("follows") is not None}
    roots = {incident.root for incident in found}
    loud = [
        t
        for t in tracked
        if SEVERITY_RANK[t.severity] >= SEVERITY_RANK[Severity.UNKNOWN]
        and not t.cleared
        and (t.code, t.detection.check) not in members
        and not (t.code in roots and any(t.code == i.root and _about(t, i) for i in found))
    ]
    return len(loud) + sum(1 for i in found if i.severity is not Severity.INFO)


def _about(tracked: Tracked, incident: Incident) -> bool:
    entity = incident.fields.get("entity")
    return entity is None or entity.get("pci") == tracked.detection.entity.pci


def next_step(faults: Sequence[ReadFault], found: Sequence[Incident]) -> str:
    """The one sentence: the advice on the fault that asks for most."""
    owned = {code for i in found if i.fields.get("owner") == "workload" for code in i.members}
    loud = [fault for fault in faults if not fault.cleared]
    if owned and all(fault.code in owned or fault.severity is Severity.INFO for fault in loud):
        return "Restart the job; reset the GPU only if it stays stuck."
    top = max(loud, key=lambda f: (SEVERITY_RANK[f.severity], HINT_RANK[f.hint]), default=None)
    if top is None or (
        top.hint is Hint.NONE and top.severity is not Severity.UNKNOWN and not top.details.get("act_only_if")
    ):
        return "Nothing has to be done."
    return top.next
