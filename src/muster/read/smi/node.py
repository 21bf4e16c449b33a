"""The picture of a node as a report: faults, verdicts, values, one sentence what to do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from muster.errors import BadInputError
from muster.read import pci
from muster.read.report import HINT_RANK, SEVERITY_RANK, Incident, ReadFault, Report, Result, Value, Verdict
from muster.read.smi import fabric, faults, joins, lost, values
from muster.read.smi.document import Shape, Trouble
from muster.read.smi.figures import NodeFigures
from muster.read.smi.judge import Limits, judge
from muster.read.smi.picture import Picture, evidence_of
from muster.read.smi.state import GpuReading
from muster.read.source import Context
from muster.resources.fault import Hint, Scope, Severity

_OF_THE_NODE = (Scope.GPU, Scope.NODE, Scope.LINK, Scope.FABRIC, Scope.CONFIG, Scope.SOFTWARE)
_ORDER = (Result.PASS, Result.WARN, Result.UNKNOWN, Result.INVALID, Result.FAIL)
_NAMES_ONLY = (Shape.LIST, Shape.TOPOLOGY, Shape.MONITOR)


@dataclass
class Parts:
    """What an assembly starts from. `more_faults`: of other tools; `kernel`: the report of the logs beside it."""

    picture: Picture
    figures: NodeFigures | None = None
    kernel: Report | None = None
    more_faults: Sequence[ReadFault] = ()
    more_verdicts: Sequence[Verdict] = ()
    more_values: Mapping[str, Value] = field(default_factory=dict)
    truncated: bool = False
    judged_elsewhere: bool = False
    """Another tool's reading stands for the node, so the absence of readings here is no lack."""


def limits_of(context: Context) -> Limits:
    """`sram_uncorrectable_limit` and `retired_pages_limit` of the context. Raises BadInputError."""
    usual = Limits()
    found = {}
    for key, default in (
        ("sram_uncorrectable_limit", usual.sram_uncorrectable),
        ("retired_pages_limit", usual.retired_pages),
    ):
        told = context.get(key, default)
        if isinstance(told, bool) or not isinstance(told, int) or told < 0:
            raise BadInputError(f"{key} in the context must be a whole number, not {told!r:.40}.")
        found[key] = told
    return Limits(sram_uncorrectable=found["sram_uncorrectable_limit"], retired_pages=found["retired_pages_limit"])


def assemble(kind: str, files: Sequence[str], parts: Parts, context: Context) -> Report:
    """The report. Raises BadInputError for a context that cannot be used."""
    picture, limits = parts.picture, limits_of(context)
    if parts.figures is not None:
        context = {**parts.figures.inventory, **context}
    readings = [gpu.reading() for gpu in picture.gpus]
    state = fabric.judge(readings)
    stock = _stock(picture, readings, context)
    gone = lost.find([m for m in picture.messages if m.trouble is Trouble.NO_HANDLE], stock)
    found = _gpu_faults(picture, readings, limits)
    found = [f for f in found if not (f.code == "gpu-lost" and f.entity.get("pci") in [g.address for g in gone])]
    found += faults.of_fabric(state, picture.gpus, parts.figures)
    found += [faults.of_lost(item, stock) for item in gone]
    found += _message_faults(picture, bool(gone)) + _topology_faults(picture)
    if parts.figures is not None:
        found += faults.of_figures(parts.figures, bool(state.wrong))
    found = joins.join_codes(found, parts.more_faults, _same_code)
    if parts.kernel is not None:
        found = joins.join(parts.kernel.faults, found)
    verdicts = _gpu_verdicts(found, parts.kernel)
    verdicts += [v for v in parts.more_verdicts if v.of != "node"]
    verdicts.append(_node_verdict(found, parts, readings, stock))
    report_values = {**(parts.kernel.values if parts.kernel else {}), **parts.more_values}
    report_values |= values.of_picture(picture, readings, state, limits)
    report_values |= _stock_values(stock, gone) | _figure_values(parts.figures)
    incidents: tuple[Incident, ...] = parts.kernel.incidents if parts.kernel else ()
    return Report(
        kind=kind,
        files=tuple(files),
        truncated=parts.truncated or bool(picture.cut) or bool(parts.kernel and parts.kernel.truncated),
        faults=tuple(found),
        incidents=incidents,
        verdicts=tuple(verdicts),
        values=report_values,
        next=_next(found, verdicts),
    )


def _gpu_faults(picture: Picture, readings: Sequence[GpuReading], limits: Limits) -> list[ReadFault]:
    found = []
    for gpu, reading in zip(picture.gpus, readings, strict=True):
        entity = gpu.entity(reading)
        for finding in judge(reading, limits):
            fault = faults.of_finding(finding, gpu, entity)
            if fault.code == "gpu-recovery-action" and reading.last_xid:
                details = {**fault.details, "with_xid": reading.last_xid}
                seen = evidence_of(faults.cells_of(gpu, "last_xid"))
                fault = faults.replaced(fault, details=details, evidence=(*fault.evidence, *seen))
            found.append(fault)
    return found


def _topology_faults(picture: Picture) -> list[ReadFault]:
    """GPUs that reach fewer others over NVLink than the rest of their node."""
    told = [(n, gpu.cells["nvlink_peers"].text) for n, gpu in enumerate(picture.gpus) if "nvlink_peers" in gpu.cells]
    counts = {n: int(text) for n, text in told}
    most = max(counts.values(), default=0)
    # The neighbours of a GPU that is cut off miss it too; the one that misses most is told.
    short = [n for n, count in counts.items() if count < most - 1 or (count == 0 < most)]
    return [faults.of_topology(picture.gpus[n], counts[n], most) for n in short]


def _message_faults(picture: Picture, gone: bool) -> list[ReadFault]:
    """`gone`: a lost GPU is told already, and "no devices" is what it leaves behind."""
    found: dict[tuple[str, str | None], ReadFault] = {}
    for message in picture.messages:
        if gone and message.trouble is Trouble.NO_DEVICES:
            continue
        address = pci.normalise(message.address) if message.address else None
        fault = faults.of_message(message, address)
        if fault is not None:
            found.setdefault((message.trouble.value, address), fault)
    return list(found.values())


def _stock(picture: Picture, readings: Sequence[GpuReading], context: Context) -> lost.Inventory:
    seen = [r.pci for r in readings if r.pci is not None and "lost" not in r.trouble.values()]
    count = picture.attached if picture.attached is not None else picture.listed
    if any(m.trouble is Trouble.NO_DEVICES for m in picture.messages) and not readings:
        count = 0
    whole = picture.listed == count and not picture.cut
    return lost.inventory(context, seen if whole else [], count)


def _same_code(fault: ReadFault, other: ReadFault) -> bool:
    named = fault.details.get("same_as")
    return fault.code == other.code or (named is not None and named in (other.code, other.details.get("same_as")))


# ---------------------------------------------------------------- verdicts


def _gpu_verdicts(found: Sequence[ReadFault], kernel: Report | None) -> list[Verdict]:
    verdicts = {v.of: v for v in (kernel.verdicts if kernel else ()) if v.of.startswith("gpu ")}
    for fault in found:
        if fault.entity.get("kind") != "gpu" or fault.cleared:
            continue
        of = gpu_name(fault.entity)
        result = _result(fault)
        if result is None or (of in verdicts and not _heavier(result, verdicts[of].result)):
            continue
        verdicts[of] = Verdict(of, result, reason_of(fault), more=_confidence(fault))
    return list(verdicts.values())


def gpu_name(entity: Mapping[str, Any]) -> str:
    """`gpu 0000:9b:00.0`, `gpu 3`, `gpu`."""
    for key in ("pci", "index", "uuid"):
        if entity.get(key) is not None:
            return f"gpu {entity[key]}"
    return "gpu"


def _confidence(fault: ReadFault) -> dict[str, Any]:
    return {"confidence": fault.confidence} if fault.confidence else {}


def _result(fault: ReadFault) -> Result | None:
    match fault.severity:
        case Severity.FATAL:
            return Result.FAIL
        case Severity.WARNING:
            return Result.WARN if fault.scope is not Scope.APPLICATION else None
        case Severity.UNKNOWN:
            return Result.UNKNOWN
        case Severity.INFO:
            return None


def _heavier(one: Result, other: Result) -> bool:
    return _ORDER.index(one) > _ORDER.index(other)


def reason_of(fault: ReadFault) -> str:
    """The word of the verdict about a fault."""
    reason = fault.details.get("reason") or fault.details.get("same_as")
    if reason:
        return str(reason)
    return f"{fault.kind}-{fault.code}" if isinstance(fault.code, int) else str(fault.code)


def _node_verdict(
    found: Sequence[ReadFault], parts: Parts, readings: Sequence[GpuReading], stock: lost.Inventory
) -> Verdict:
    picture = parts.picture
    if stock.missing_count:
        return Verdict("node", Result.FAIL, "gpu-count", f"{stock.missing_count} GPU(s) are missing.")
    open_faults = [f for f in found if not f.cleared and f.scope in _OF_THE_NODE]
    fatal = [f for f in open_faults if f.severity is Severity.FATAL]
    if fatal:
        return Verdict("node", Result.FAIL, reason_of(fatal[0]), fatal[0].name, _confidence(fatal[0]))
    warnings = [f for f in open_faults if f.severity is Severity.WARNING]
    if warnings:
        return Verdict("node", Result.WARN, reason_of(warnings[0]), warnings[0].name)
    unknown = [f for f in open_faults if f.severity is Severity.UNKNOWN]
    if unknown:
        return Verdict("node", Result.UNKNOWN, reason_of(unknown[0]), unknown[0].name)
    other = [v for v in parts.more_verdicts if v.of == "node"]
    if parts.kernel is not None:
        other += [v for v in parts.kernel.verdicts if v.of == "node" and v.result is not Result.PASS]
    if other and other[0].result is not Result.PASS:
        return other[0]
    return _quiet_verdict(parts, picture, readings, other)


def _quiet_verdict(
    parts: Parts, picture: Picture, readings: Sequence[GpuReading], other: Sequence[Verdict]
) -> Verdict:
    """No fault was found: is that because all is well, or because too little was read?"""
    if picture.cut or parts.truncated:
        where = ", ".join(picture.cut[:4]) or "The output"
        return Verdict("node", Result.UNKNOWN, "truncated-output", f"{where} breaks off; take it anew.")
    if picture.unnamed:
        message = (
            "The columns have no names: give the query in the context (query: index,uuid,...) or leave noheader out."
        )
        return Verdict("node", Result.UNKNOWN, "columns-not-named", message)
    odd = sorted({f"{r.fabric_state}" for r in readings if r.fabric_state and r.fabric_state.casefold() == "unknown"})
    if odd:
        return Verdict("node", Result.UNKNOWN, "fabric-state-unknown")
    attached = picture.attached
    if attached is not None and picture.listed is not None and picture.listed < attached:
        message = f"The text shows {picture.listed} of {attached} GPUs; the others are not judged."
        return Verdict("node", Result.UNKNOWN, "not-all-gpus-listed", message)
    if other:
        return other[0]
    judged = any(reading.told for reading in readings)
    if not judged and not parts.judged_elsewhere and parts.figures is None:
        message = "A list of GPUs says nothing about their health; read `nvidia-smi -q`."
        return Verdict("node", Result.UNKNOWN, "no-health-readings", message)
    if parts.figures is not None and not judged and parts.figures.cuda_error is None:
        return Verdict("node", Result.UNKNOWN, "no-health-readings", "No CUDA initialisation was tried.")
    return Verdict("node", Result.PASS, "no-faults", "These readings tell of no fault; they prove no more than that.")


# ---------------------------------------------------------------- values and advice


def _stock_values(stock: lost.Inventory, gone: Sequence[lost.Lost]) -> dict[str, Value]:
    found: dict[str, Value] = {}
    if stock.expected_count is not None:
        found["gpus"] = Value({"expected": stock.expected_count, "observed": stock.seen_count})
        found["missing_gpus"] = Value(stock.missing_count, more={"of": stock.expected_count})
    named = [item for item in gone if item.message is not None and item.plausible is not None]
    if named:
        first = named[0]
        found["address_plausible"] = Value(first.plausible, more={"reason": first.why_not} if first.why_not else {})
        found["address_matched_by"] = Value(first.matched_by)
    return found


def _figure_values(figures: NodeFigures | None) -> dict[str, Value]:
    if figures is None:
        return {}
    found: dict[str, Value] = {}
    if figures.cuda_error is not None:
        found["cuda_init_error"] = Value(figures.cuda_error)
    if figures.modules_told:
        found["missing_kernel_modules"] = Value(list(figures.missing_modules))
    if figures.stopped:
        found["stopped_processes"] = Value(list(figures.stopped))
    if figures.ready_pods:
        found["ready_pods"] = Value(len(figures.ready_pods))
    return found


def _next(found: Sequence[ReadFault], verdicts: Sequence[Verdict]) -> str:
    loud = [f for f in found if not f.cleared and f.hint is not Hint.NONE]
    top = max(loud, key=lambda f: (SEVERITY_RANK[f.severity], HINT_RANK[f.hint]), default=None)
    if top is not None:
        return top.next
    unsure = next((v for v in verdicts if v.result in (Result.FAIL, Result.UNKNOWN, Result.WARN)), None)
    return (unsure.message or f"{unsure.of}: {unsure.reason}") if unsure else "Nothing has to be done."
