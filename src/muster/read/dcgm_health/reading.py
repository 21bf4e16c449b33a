"""Outputs of DCGM of one node, with those of `nvidia-smi` and kernel logs of the same moment.

Where they disagree the driver's recovery action outranks the health value, which does not cover firmware faults.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from muster.read.dcgm_health import conditions, health, judge, monitor, scrape
from muster.read.dcgm_health.detect import KIND, MESSAGES, Shape, shape_of
from muster.read.kernel import logs
from muster.read.report import ReadFault, Report, Result, Value, Verdict
from muster.read.smi import detect as smi_detect
from muster.read.smi import node
from muster.read.smi import reading as smi_reading
from muster.read.smi.document import Line, lines_of, one_host
from muster.read.smi.faults import NODE, fault
from muster.read.smi.picture import Picture, evidence_of
from muster.read.source import Context, Input
from muster.read.tables.source import content
from muster.read.terminal import without_end
from muster.resources.fault import Hint, Scope, Severity


@dataclass
class _Found:
    picture: Picture
    faults: list[ReadFault] = field(default_factory=list)
    verdicts: list[Verdict] = field(default_factory=list)
    values: dict[str, Value] = field(default_factory=dict)
    want: judge.Expected = field(default_factory=judge.Expected)
    nvlink_errors: list[tuple[str, dict[int, float]]] = field(default_factory=list)
    truncated: bool = False
    healthy: bool = False
    """A whole report of the watch, or a scrape of its status, says that all is well."""


def parse(inputs: Sequence[Input], context: Context) -> Report:
    """Read all outputs of one node. Raises BadInputError for a context that cannot be used."""
    shapes = [
        None if smi_detect.score(item.sample) else shape_of(item.sample.decode("utf-8", "replace")) for item in inputs
    ]
    rest = smi_reading.sort([item for item, shape in zip(inputs, shapes, strict=True) if shape is None], context)
    found = _Found(rest.picture, want=judge.expected(context))
    for item, shape in zip(inputs, shapes, strict=True):
        if shape is not None:
            _take(found, shape, content(item), item.name)
    found.faults += _last_xids(found.picture) + _rising(found)
    kernel = logs.parse(rest.logs, context) if rest.logs else None
    parts = node.Parts(
        picture=found.picture,
        figures=rest.figures,
        kernel=kernel,
        more_faults=found.faults,
        more_verdicts=found.verdicts,
        more_values=found.values,
        truncated=found.truncated,
        judged_elsewhere=found.healthy,
    )
    return node.assemble(KIND, [item.name for item in inputs], parts, context)


def _take(found: _Found, shape: Shape, text: str, file: str) -> None:
    lines = lines_of(without_end(text))
    one_host(lines, file)
    match shape:
        case Shape.HEALTH | Shape.HEALTH_JSON:
            report = health.parse_json(text) if shape is Shape.HEALTH_JSON else health.parse_table(lines)
            own = judge.faults(report, file, found.want)
            _identify(found.picture, own)
            found.faults += own
            found.verdicts += judge.verdicts(report, own)
            found.values |= judge.values(report)
            found.truncated = found.truncated or not report.complete
            explained = bool(own) and all(item.severity is Severity.INFO for item in own)
            found.healthy = found.healthy or (report.complete and (report.overall == "Healthy" or explained))
            _unexplained(found, report, own)
        case Shape.MONITOR:
            found.picture.add(monitor.parse_monitor(lines, file), file)
        case Shape.DISCOVERY:
            found.picture.add(monitor.parse_discovery(lines, file), file)
        case Shape.SCRAPE:
            _take_scrape(found, scrape.parse(lines, file), file)
        case Shape.CONDITION:
            found.faults += [
                judge.of_condition(code, trouble, identity, file, found.want)
                for code, trouble, identity in conditions.find(lines)
            ]
        case Shape.MESSAGE:
            found.faults.append(_message(lines))


def _unexplained(found: _Found, report: health.Health, own: Sequence[ReadFault]) -> None:
    """The watch says that something is wrong and the text does not say what."""
    if report.overall in (None, "Healthy") or own:
        return
    found.verdicts.append(
        Verdict("node", Result.UNKNOWN, "health-without-cause", f"The watch says {report.overall} and names nothing.")
    )


def _identify(picture: Picture, found: list[ReadFault]) -> None:
    """Give a fault of `GPU 3` the address of that GPU where another output tells it."""
    by_index = {reading.index: reading for reading in (gpu.reading() for gpu in picture.gpus)}
    for position, item in enumerate(found):
        known = by_index.get(item.entity.get("index"))
        if known is not None and item.entity.get("kind") in ("gpu", "nvlink"):
            more = {"pci": known.pci} | ({"uuid": known.uuid} if known.uuid else {})
            found[position] = replace(item, entity={**item.entity, **more})


def _take_scrape(found: _Found, told: scrape.Scrape, file: str) -> None:
    found.picture.add(told.document, file)
    if told.nvlink_errors:
        # Lifetime totals: shown, never judged from one sample.
        found.nvlink_errors.append((file, told.nvlink_errors))
        found.values["nvlink_errors_lifetime"] = Value({g: int(n) for g, n in sorted(told.nvlink_errors.items())})
    if not told.health:
        return
    report = health.Health("Healthy")
    for (gpu, watch), (word, line) in told.health.items():
        report.entities[("GPU", gpu)] = _worse(report.entities.get(("GPU", gpu)), word)
        if word not in ("Healthy",) and watch.casefold() != "all":
            report.troubles.append(health.Trouble("GPU", gpu, f"{watch} system", word, "", [line]))
        report.overall = _worse(report.overall, word)
    named = {trouble.entity for trouble in report.troubles}
    for (gpu, _), (word, line) in told.health.items():
        if word != "Healthy" and gpu not in named:
            report.troubles.append(health.Trouble("GPU", gpu, "all systems", word, "", [line]))
            named.add(gpu)
    own = judge.faults(report, file, found.want)
    _identify(found.picture, own)
    found.faults += own
    found.verdicts += judge.verdicts(report, own)
    found.values |= judge.values(report)
    found.healthy = found.healthy or report.overall == "Healthy"


def _worse(one: str | None, other: str) -> str:
    order = ("Healthy", "Warning", "Failure")
    if one is None or one not in order:
        return other
    return other if other not in order or order.index(other) > order.index(one) else one


def _last_xids(picture: Picture) -> list[ReadFault]:
    """A last Xid that no recovery action explains. Zero means that none was seen."""
    found = []
    for gpu in picture.gpus:
        reading = gpu.reading()
        asked = (reading.recovery_action or "none").casefold() not in ("none", "0")
        asked = asked or bool(reading.reset_required or reading.drain_and_reset)
        if not reading.last_xid or asked:
            continue
        cells = [gpu.cells["last_xid"]] if "last_xid" in gpu.cells else []
        details = {"recovery_action": reading.recovery_action} if "recovery_action" in gpu.cells else {}
        found.append(judge.xid_fault(reading.last_xid, gpu.entity(reading), evidence_of(cells), details))
    return found


def _rising(found: _Found) -> list[ReadFault]:
    """NVLink error counters that moved between the first and the last scrape; a counter that shrank was reset."""
    if len(found.nvlink_errors) < 2:
        return []
    (_, first), (file, last) = found.nvlink_errors[0], found.nvlink_errors[-1]
    change = {gpu: int(now - first[gpu] if now >= first[gpu] else now) for gpu, now in last.items() if gpu in first}
    found.values["nvlink_errors_change"] = Value(dict(sorted(change.items())))
    rising = [
        fault(
            "nvlink-errors-rising",
            "nvlink",
            {"kind": "gpu", "pci": None, "index": gpu},
            Severity.WARNING,
            Scope.LINK,
            Hint.INSPECT,
            f"{count} NVLink error(s) between the scrapes",
            details={"reason": "counter-moving", "change": count, "file": file},
            next="Look at the NVLinks of {gpu}: which link counts, and what is at its far end.",
        )
        for gpu, count in sorted(change.items())
        if count > 0
    ]
    _identify(found.picture, rising)
    return rising


def _message(lines: Sequence[Line]) -> ReadFault:
    line = next(line for line in lines if any(message in line.text for message in MESSAGES))
    watches = "watches" in line.text
    return fault(
        "dcgm-watches-off" if watches else "dcgm-unreachable",
        "dcgm-health",
        NODE,
        Severity.UNKNOWN,
        Scope.SOFTWARE,
        Hint.INSPECT,
        "DCGM's health watches are not set" if watches else "DCGM's host engine does not answer",
        details={"reason": "dcgm-watches-off" if watches else "dcgm-unreachable", "message": line.text.strip()[:300]},
        next="Set the watches (`dcgmi health -s a`) and check again after a minute."
        if watches
        else "Look at nv-hostengine (`systemctl status nvidia-dcgm`); an unwatched GPU is unknown, not healthy.",
    )
