"""Diagnostics of one node, read together: `dcgmi diag` and the NVLinks. Neither pass stands for the other."""

from __future__ import annotations

from collections.abc import Sequence

from muster.errors import BadInputError
from muster.read.diagnostics import detect, diag, diag_json, judge_diag, judge_nvlink, nvlink
from muster.read.report import ReadFault, Report, Result, Value, Verdict
from muster.read.source import Context, Input
from muster.read.tables.source import content
from muster.resources.fault import Hint, Scope, Severity


def parse(inputs: Sequence[Input], context: Context) -> Report:
    """Read all outputs of one node. Raises BadInputError for a context that cannot be used."""
    want, level = judge_nvlink.expected(context), _level(context)
    texts = [(item.name, content(item)) for item in inputs]
    runs = [name for name, text in texts if not _is_nvlink(text)]
    verdicts: list[Verdict] = []
    faults: list[ReadFault] = []
    values: dict[str, Value] = {}
    truncated = False
    for name, text in texts:
        if _is_nvlink(text):
            status = nvlink.parse_status(text)
            suffix = f" of {name}" if len(texts) - len(runs) > 1 else ""
            found, broken = judge_nvlink.judge(status, want, name, suffix)
            values |= {f"{key}{suffix}": value for key, value in judge_nvlink.values(status).items()}
            truncated = truncated or not status.complete
            faults += broken
            verdicts += found + _gpu_count(context, len(status.gpus), status.complete)
            continue
        run = diag_json.parse_json(text) if detect.is_diag_json(text) else diag.parse_table(text)
        several = len(runs) > 1
        verdicts += judge_diag.judge(run, level, f" of {name}" if several else "")
        values |= {(f"{key} of {name}" if several else key): value for key, value in judge_diag.values(run).items()}
        truncated = truncated or not (run.complete or run.error)
        failed = judge_diag.faults(run, name, text.split("\n"))
        faults += failed
        verdicts += judge_diag.gpu_verdicts(failed)
        verdicts += _gpu_count(context, len(run.device_ids), bool(run.device_ids))
    if want.nvlink and len(runs) == len(texts):
        verdicts.append(Verdict("nvlink", Result.UNKNOWN, "no-reading", "The diagnostic does not look at the links."))
    verdicts += _node(faults, verdicts)
    return Report(
        kind=detect.KIND,
        files=tuple(name for name, _ in texts),
        truncated=truncated,
        faults=tuple(faults),
        verdicts=tuple(v for n, v in enumerate(verdicts) if v not in verdicts[:n]),
        values=values,
        next=_next(faults, verdicts),
    )


def _is_nvlink(text: str) -> bool:
    head = text[:65536]
    return detect.is_nvlink_list(head) and not detect.is_diag_table(head) and not detect.is_diag_json(head)


def _level(context: Context) -> int | None:
    """Run level that the context tells (`diag_level`)."""
    level = context.get("diag_level")
    if level is not None and (isinstance(level, bool) or level not in judge_diag.LEVELS):
        raise BadInputError(f"diag_level in the context must be 1, 2, 3 or 4, not {level!r:.40}.")
    return level if isinstance(level, int) else None


def _gpu_count(context: Context, seen: int, told: bool) -> list[Verdict]:
    wanted = context.get("expected_gpus")
    if not told or not isinstance(wanted, int) or isinstance(wanted, bool) or seen >= wanted:
        return []
    return [Verdict("node", Result.FAIL, "gpu-count", f"{wanted - seen} GPU(s) are missing.")]


def _node(faults: Sequence[ReadFault], verdicts: Sequence[Verdict]) -> list[Verdict]:
    """A fatal fault of the diagnostic fails the node. A pass never passes it: see the module's first line."""
    if any(verdict.of == "node" for verdict in verdicts):
        return []
    fatal = [f for f in faults if f.severity is Severity.FATAL and f.scope in (Scope.GPU, Scope.NODE, Scope.FABRIC)]
    return [Verdict("node", Result.FAIL, str(fatal[0].code), fatal[0].name)] if fatal else []


def _next(faults: Sequence[ReadFault], verdicts: Sequence[Verdict]) -> str:
    serious = sorted(faults, key=lambda fault: fault.severity is not Severity.FATAL)
    actions = [fault.next for fault in serious if fault.hint is not Hint.NONE]
    if actions:
        return actions[0]
    for result in (Result.FAIL, Result.INVALID, Result.UNKNOWN, Result.WARN):
        found = next((verdict for verdict in verdicts if verdict.result is result), None)
        if found is not None:
            again = "Run the diagnostic again on an idle node. " if result is Result.INVALID else ""
            return again + (found.message or f"{found.of}: {found.reason}")
    return "Nothing has to be done."
