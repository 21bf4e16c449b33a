"""Reads the lines of a job - NCCL's, the watchdog's, crash reports, steps - and judges them together."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from muster.read.collectives import crash, kinds, network, watchdog
from muster.read.collectives.communicators import Communicators
from muster.read.collectives.faults import Sighted, Sightings, link, node, process
from muster.read.collectives.lines import Line, NcclLine, lost_text, nccl_line
from muster.read.collectives.names import Names
from muster.read.collectives.steps import Steps
from muster.read.collectives.transports import Transports, is_expected
from muster.read.collectives.wording import Event, event_of
from muster.read.report import Report, Result, Value, Verdict
from muster.read.source import Context, printable
from muster.resources.fault import Hint, Severity

MAX_COMMUNICATORS = 4096
MAX_LAST_ERRORS = 64
REPEATED = ("Got completion from peer", "socketProgress: Connection closed by remote peer")
"""Warnings that torch repeats as its `Last error`, without a header; they count where the warning is missing."""
_RESULT = re.compile(r"(?:^|\s)[\w./+-]{1,120}:\d{1,6} -> (?P<result>\d{1,2})\b")
_VERSION = re.compile(r"NCCL version (?P<version>\d{1,3}(?:\.\d{1,3}){1,3})")


class Reading:
    """The lines of one report while they are read."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.names = Names(context)
        self.seen = Sightings()
        self.transports = Transports()
        self.steps = Steps()
        self.crashes = crash.Crashes()
        self.watchdog = watchdog.Watchdog(context)
        self.truncated = 0
        self.order = 0
        self.version: str | None = None
        self.results: Counter[int] = Counter()
        self.peer_ports: dict[int, None] = {}
        self.sizes: list[int] = []
        self.communicators = Communicators()
        self.lines = 0
        self.passed_on = 0
        self.last_errors: list[tuple[str, Line, bool]] = []

    def take(self, file: str, line: Line) -> None:
        """Read one line."""
        self.order += 1
        lost = lost_text(line)
        found = nccl_line(line.text) if "NCCL" in line.text else None
        if self.watchdog.take(file, line, self.order):
            self.truncated += lost
            return
        if found is None:
            self._other(file, line, lost)
            return
        self.lines += 1
        self.names.host(found.host)
        if found.level in ("INFO", "TRACE"):
            self._info(found)
        event = event_of(found, lost)
        if event is not None:
            self._see(file, line, found, event)
            lost = lost and not (event.whole and event.kind.code in _COMPLETIONS and event.details.get("status"))
            if not event.whole:
                lost = True
        elif found.level in ("WARN", "ERROR"):
            self.passed_on += 1
        self.truncated += lost

    def _other(self, file: str, line: Line, lost: bool) -> None:
        if "NCCL version" in line.text and (version := _VERSION.search(line.text)):
            self.version = version["version"]
        elif any(mark in line.text for mark in REPEATED):
            if len(self.last_errors) < MAX_LAST_ERRORS:
                self.last_errors.append((file, line, lost))
        elif not self.crashes.take(file, line.number, line.text):
            self.steps.take(line.text)
        self.truncated += lost

    def _info(self, line: NcclLine) -> None:
        message = line.message
        if " -> " in message and (result := _RESULT.search(message)):
            self.results[int(result["result"])] += 1
            return
        if self.transports.take(message):
            if "OOB" in message:
                self.names.learn(line.host, message)
            return
        self.names.learn(line.host, message)
        if "NCCL version" in message and (version := _VERSION.search(message)):
            self.version = version["version"]
            return
        self.communicators.take(line.host, message)

    def _see(self, file: str, line: Line, found: NcclLine, event: Event) -> None:
        here = found.host
        if event.recovered:
            self._recover(event, here)
            return
        key = _key(event, found, here, event.peer)
        sighted = self.seen.see(key, event.kind, lambda: _make(event, found, here, event.peer), self.order)
        if sighted is None:
            return
        sighted.add(file, line.number, line.text, found.moment)
        sighted.cleared = False
        sighted.details.pop("recovered", None)
        if found.pid is not None and len(sighted.pids) < MAX_COMMUNICATORS:
            sighted.pids.add((found.host, found.pid))
        for name, value in event.listed.items():
            sighted.listing(name, value)
        if "peer_port" in event.details:
            self.peer_ports[event.details["peer_port"]] = None
        if "size_bytes" in event.details and event.details["size_bytes"] not in self.sizes and len(self.sizes) < 64:
            self.sizes.append(event.details["size_bytes"])

    def _last_errors(self) -> None:
        for file, line, lost in self.last_errors:
            starts = [at for mark in ("NET/IB", *REPEATED) if (at := line.text.find(mark)) >= 0]
            found = NcclLine("WARN", line.text[min(starts) :].rstrip())
            event = event_of(found, lost)
            if event is not None:
                self.order += 1
                self._see(file, line, found, event)

    def _recover(self, event: Event, here: str | None) -> None:
        """Take back what the same adapter of the same node reported."""
        for sighted in self.seen.of(event.kind.code):
            device = sighted.details.get("device")
            if sighted.entity.get("name") == here and (device is None or device == event.device):
                sighted.cleared = True
                sighted.details["recovered"] = True

    def report(self, files: tuple[str, ...], kind: str) -> Report:
        """Judge what was read."""
        for found in self.crashes.found:
            self.names.host(found.host)
            crash.note(self.seen, found, found.host)
        if not any(s.kind.code in network.NETWORK for s in self.seen.all()):
            self._last_errors()
        self.seen.rename(self.names.of)
        self.watchdog.note_exits()
        expected = self.context.get("expected_transport")
        used = self.transports.used()
        values = self._values(used)
        own = self._verdicts(expected if isinstance(expected, str) else None, used, files)
        sightings = self.seen.all()
        found_incidents = network.with_hang(network.incidents(sightings), self.watchdog.incidents())
        verdicts = [*network.verdicts(sightings, found_incidents), *own]
        judged = {verdict.of for verdict in verdicts}
        for verdict in self.watchdog.verdicts():
            evidence = verdict.of in ("network", "nodes") and any(s.kind.code in network.NETWORK for s in sightings)
            if not evidence and verdict.of not in judged:
                verdicts.append(verdict)
        sightings += self.watchdog.seen.all()
        faults = tuple(sighted.fault() for sighted in sightings)
        if not verdicts:
            verdicts = [self._quiet(bool(faults))]
        return Report(
            kind=kind,
            files=files,
            truncated=bool(self.truncated or self.seen.not_listed),
            faults=faults,
            incidents=tuple(found_incidents),
            verdicts=tuple(verdicts),
            values=values,
            next=_next(sightings),
        )

    def _quiet(self, faults: bool) -> Verdict:
        """The verdict on the job when no line speaks of a node."""
        if self.communicators.up and not faults and not self.truncated:
            return Verdict(
                "job", Result.PASS, "started-without-error", "All ranks started; no line tells of an error."
            )
        return Verdict("job", Result.UNKNOWN, "no-evidence", "Nothing in the log decides about a node.")

    def _values(self, used: str) -> dict[str, Value]:
        version = self.version or _told(self.context, "nccl")
        values: dict[str, Value] = {"nccl_lines": Value(self.lines), "truncated_lines": Value(self.truncated)}
        values |= self.steps.values()
        values |= self.watchdog.values(self.steps.last)
        suspected = [self.communicators.place(rank) for rank in self.watchdog.suspicion().ranks[:MAX_LAST_ERRORS]]
        if places := [place for place in suspected if place is not None]:
            values["suspects_at"] = Value(places, more={"confidence": "low"})
        if version is not None:
            values["nccl_version"] = Value(version)
        if self.results:
            result = self.results.most_common(1)[0][0]
            values["nccl_result"] = Value(result, more={"meaning": kinds.RESULTS.get(result, "unknown")})
        if self.peer_ports:
            ports = list(self.peer_ports)
            values["peer_port"] = Value(ports[0] if len(ports) == 1 else ports[:256])
        if self.sizes:
            values["multicast_size"] = Value(self.sizes[0] if len(self.sizes) == 1 else self.sizes, "B")
        moments = [s.first for s in self.seen.all() if s.first is not None]
        if moments:
            values["seen_at"] = Value(moments[0].text)
        values |= self._about_transports(used) | self.communicators.values()
        if self.crashes.found:
            first = self.crashes.found[0]
            values["frames"] = Value([number for number, _, _ in first.frames])
            issue = crash.known_issue(version, self.crashes.found)
            values["known_issue"] = Value(issue, more={"confidence": "low"} if issue else {})
        if self.passed_on:
            values["lines_passing_on"] = Value(self.passed_on)
        return values

    def _about_transports(self, used: str) -> dict[str, Value]:
        transports = self.transports
        values: dict[str, Value] = {}
        if used:
            values["transport"] = Value(used)
        if transports.between or transports.inside:
            channels = dict(sorted((transports.between + transports.inside).items()))
            values["channel_transports"] = Value(channels)
        if transports.between:
            values["gdr_channels"] = Value(transports.direct, more={"of": sum(transports.between.values())})
        if transports.networks:
            names = transports.networks
            values["network"] = Value(names[0] if len(names) == 1 else names)
        if transports.link_layer:
            values["link_layer"] = Value(transports.link_layer)
        if transports.multicast:
            values["nvls"] = Value(True)
        return values

    def _verdicts(self, expected: str | None, used: str, files: tuple[str, ...]) -> list[Verdict]:
        verdicts: list[Verdict] = []
        for sighted in self.seen.all():
            if sighted.kind in (kinds.NVLS_BIND, kinds.NVLS_SETUP):
                verdicts.append(
                    Verdict(
                        "intra-node-all-gpu",
                        Result.FAIL,
                        "nvlink-fabric-state",
                        "Test again with all GPUs of the node; tests of single GPUs never take this path.",
                    )
                )
            elif sighted.kind is kinds.SEGFAULT:
                verdicts.append(self._crashed(sighted))
            elif sighted.kind is kinds.CUDA_HARDWARE:
                name = sighted.entity.get("node") or "node"
                message = "CUDA names an error of the GPU; the kernel log tells which."
                verdicts.append(Verdict(name, Result.WARN, "gpu-error-reported", message))
            elif sighted.kind is kinds.CUDA_NOT_READY:
                name = sighted.entity.get("name") or "node"
                verdicts.append(Verdict(name, Result.WARN, "fabric-not-ready", kinds.CUDA_NOT_READY.next))
        if expected:
            verdicts.append(self._transport(expected, used, files))
        elif "NET/Socket" in used and (self.transports.adapters or self.seen.of(kinds.PLUGIN_LOAD.code)):
            message = "Sockets carried the traffic although faster devices or a plugin are there."
            verdicts.append(Verdict("transport", Result.WARN, "socket-transport", message))
        return list({(v.of, v.reason): v for v in verdicts}.values())

    def _crashed(self, sighted: Sighted) -> Verdict:
        name = sighted.entity.get("node") or "node"
        kernel = self.context.get("kernel_log_faults")
        if isinstance(kernel, int) and kernel > 0:
            return Verdict(name, Result.UNKNOWN, "kernel-log-has-faults", "Read the kernel log of the node first.")
        message = "A bad pointer inside a library; no fault of the hardware is told."
        return Verdict(name, Result.UNKNOWN, "no-hardware-evidence", message)

    def _transport(self, expected: str, used: str, files: tuple[str, ...]) -> Verdict:
        if not used:
            return Verdict(
                "transport", Result.UNKNOWN, "transport-not-told", "The log names no transport between nodes."
            )
        if is_expected(expected, used):
            return Verdict("transport", Result.PASS, "transport-as-expected")

        def make() -> tuple[dict[str, Any], dict[str, Any]]:
            return {"kind": "job"}, {"expected": expected[:80], "used": used[:200]}

        sighted = self.seen.see((), kinds.TRANSPORT_FALLBACK, make, self.order)
        if sighted is not None:
            sighted.add(files[0], 1, f"transport between nodes: {used[:200]}", None)
        return Verdict(
            "transport",
            Result.FAIL,
            "transport-fallback",
            f"Used {used[:80]} between nodes, expected {expected[:40]}.",
        )


_COMPLETIONS = frozenset(kind.code for _, kind in kinds.STATUS.values())


def _told(context: Mapping[str, Any], name: str) -> str | None:
    value = context.get(name)
    return printable(value, 40) if isinstance(value, str) else None


def _key(event: Event, found: NcclLine, here: str | None, peer: str | None) -> tuple[Any, ...]:
    match event.subject:
        case "link":
            return ((here, peer), event.details.get("status"))
        case "process":
            return ((here,), found.pid, event.details.get("file"), event.details.get("cuda_error"))
        case "gpu":
            return ((here,), found.gpu)
        case _:
            return ((here,), event.device, event.details.get("call"))


def _make(event: Event, found: NcclLine, here: str | None, peer: str | None) -> tuple[dict[str, Any], dict[str, Any]]:
    """(entity, details) of a new fault."""
    details = {name: value for name, value in event.details.items() if name not in ("peer_port", "size_bytes")}
    reported = {"node": here, "pid": found.pid, "tid": found.tid, "local_gpu": found.gpu}
    details["reported_by"] = {name: value for name, value in reported.items() if value is not None}
    if event.device is not None:
        details["device"] = event.device
        details["port"] = event.port
    match event.subject:
        case "link":
            return link(here, peer), details
        case "process":
            return process(here, found.pid), details
        case "gpu":
            return {"kind": "gpu", "pci": None, "index": found.gpu, "node": here}, details
        case _:
            return node(here), details


def _next(sightings: Sequence[Sighted]) -> str:
    """The advice of the fault nearest to a cause."""
    severe = [s for s in sightings if s.kind.severity is Severity.FATAL and not s.cleared]
    mild = [s for s in sightings if s.kind.hint is not Hint.NONE and not s.cleared]
    for group in (
        [s for s in severe if s.kind.code in network.ADAPTER],
        [s for s in severe if s.kind.code not in network.FOLLOWERS],
        mild,
    ):
        if group:
            return group[0].kind.next
    return "Nothing has to be done."
