"""Verdicts on the GPUs and nodes of a log. A log without faults says no more than that."""

from __future__ import annotations

from collections.abc import Sequence

from muster.read.kernel.aggregate import Tracked
from muster.read.report import Incident, Result, Value, Verdict
from muster.read.source import Context
from muster.resources.fault import Scope, Severity

ELSEWHERE, NOT_SEEN = "caused-elsewhere", "primary-not-seen"
_OF_THE_NODE = (Scope.GPU, Scope.NODE, Scope.LINK, Scope.FABRIC)


def gpu_verdicts(faults: Sequence[Tracked], incidents: Sequence[Incident]) -> tuple[Verdict, ...]:
    """Verdicts on single GPUs, where the log gives reason for one."""
    found: dict[str, Verdict] = {}
    for tracked in faults:
        if tracked.gpu is None or tracked.cleared:
            continue
        of = f"gpu {tracked.gpu}" + (f" on {tracked.host}" if tracked.host else "")
        verdict = _gpu_verdict(tracked, of, incidents)
        if verdict is not None and verdict.reason == NOT_SEEN and _own_primary(tracked, faults):
            continue
        if verdict is not None and _heavier(verdict, found.get(of)):
            found[of] = verdict
    return tuple(found.values())


def _gpu_verdict(tracked: Tracked, of: str, incidents: Sequence[Incident]) -> Verdict | None:
    details = tracked.details
    if details.get("escalated"):
        return Verdict(of, Result.UNKNOWN, "needs-diagnostic", "Run a diagnostic on this GPU and move the job.")
    if tracked.severity is Severity.FATAL:
        return Verdict(of, Result.FAIL, reason_of(tracked)) if not _owned_by_workload(tracked, incidents) else None
    if details.get("role") == "secondary":
        seen = any(74 in incident.members and incident.root != tracked.code for incident in incidents) or any(
            incident.root == 74 for incident in incidents
        )
        return Verdict(of, Result.UNKNOWN, ELSEWHERE if seen else NOT_SEEN)
    if details.get("urgency") == "when-idle":
        return Verdict(of, Result.WARN, reason_of(tracked))
    return None


def _own_primary(victim: Tracked, faults: Sequence[Tracked]) -> bool:
    """Another link of the same GPU tells the cause."""
    return any(t.gpu == victim.gpu and t.host == victim.host and t.details.get("role") == "primary" for t in faults)


def _heavier(verdict: Verdict, other: Verdict | None) -> bool:
    order = (Result.PASS, Result.WARN, Result.UNKNOWN, Result.INVALID, Result.FAIL)
    return other is None or order.index(verdict.result) > order.index(other.result)


def node_verdict(
    of: str, faults: Sequence[Tracked], incidents: Sequence[Incident], gpus: Sequence[Verdict], missing: int | None
) -> Verdict:
    """The verdict on one node. `missing`: GPUs that the context expects and does not see; None: it does not say."""
    open_faults = [t for t in faults if not t.cleared]
    if missing:
        return Verdict(of, Result.FAIL, "gpu-count", f"{missing} GPU(s) are missing.")
    fatal = [t for t in open_faults if t.severity is Severity.FATAL and t.detection.scope in _OF_THE_NODE]
    blamed = [t for t in fatal if not _owned_by_workload(t, incidents)]
    if blamed:
        return Verdict(of, Result.FAIL, reason_of(blamed[0]))
    if fatal:
        return Verdict(of, Result.WARN, "workload", "The application's own error explains the fault.")
    unsure = [verdict for verdict in gpus if verdict.result is Result.UNKNOWN and verdict.reason != ELSEWHERE]
    if unsure:
        return Verdict(of, Result.UNKNOWN, unsure[0].reason)
    warnings = [
        t for t in open_faults if t.severity is Severity.WARNING and t.detection.scope is not Scope.APPLICATION
    ]
    if warnings:
        return Verdict(of, Result.WARN, reason_of(warnings[0]))
    if any(t.severity is Severity.UNKNOWN for t in open_faults):
        return Verdict(of, Result.UNKNOWN, "unknown-code")
    if any(t.severity is Severity.WARNING for t in open_faults):
        return Verdict(of, Result.PASS, "application-only", "Only applications are affected.")
    return Verdict(of, Result.PASS, "no-faults", "This log tells of no fault; it proves no more than that.")


def reason_of(tracked: Tracked) -> str:
    """`xid-119`, `sxid-20034`, `gpu-off-bus`, `row-remap-pending`."""
    if tracked.details.get("urgency") == "when-idle":
        return str(tracked.details.get("same_as", "row-remap-pending"))
    check = tracked.detection.check
    if check == "gpu-reset-marker":
        return "gpu-reset-failed"
    if check in ("xid", "nvlink5", "xid-companion"):
        return f"xid-{tracked.code}"
    return f"sxid-{tracked.code}" if check == "sxid" else str(tracked.code or check)


def _owned_by_workload(tracked: Tracked, incidents: Sequence[Incident]) -> bool:
    return any(
        incident.fields.get("owner") == "workload"
        and tracked.code in incident.members
        and incident.fields.get("entity", {}).get("pci") == tracked.detection.entity.pci
        for incident in incidents
    )


def missing_gpus(context: Context) -> tuple[int | None, Value | None]:
    """GPUs that are expected and not seen, from the context's `expected_gpus` and `observed_gpus`."""
    expected, observed = context.get("expected_gpus"), context.get("observed_gpus")
    if not isinstance(expected, int) or not isinstance(observed, int):
        return None, None
    missing = max(0, expected - observed)
    return missing, Value(missing, more={"of": expected})
