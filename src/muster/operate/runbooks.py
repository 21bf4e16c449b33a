"""Which pages of the runbooks are about a node: those of its faults, and that of what it waits for. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from muster.faults.runbooks import Runbook, runbook
from muster.operate.model import BlockerKind
from muster.resources.fault import Severity
from muster.resources.node_health import CauseKind, Lifecycle, MonitorState, NodeHealth, State

PAGES_SHOWN = 3
_WEIGHT = (Severity.FATAL, Severity.WARNING, Severity.UNKNOWN)
"""Pages of information are not named: nothing has to be done."""
_WAITS = {
    BlockerKind.CORRELATION: Runbook.MANY_NODES,
    BlockerKind.MAINTENANCE: Runbook.MAINTENANCE,
    BlockerKind.AGENT: Runbook.SILENT_AGENT,
}


def runbooks_of(health: NodeHealth) -> tuple[Runbook, ...]:
    """The pages that matter most, at most PAGES_SHOWN: what it waits for first, then its faults, the worst first."""
    life = health.status.lifecycle
    found = [*(_of_lifecycle(life) if life is not None else ()), *_of_faults(health)]
    observed = health.status.observed
    if observed is not None and any(m.state is not MonitorState.OK for m in observed.monitors):
        found.append(Runbook.SILENT_AGENT)
    if observed is not None and observed.notices:
        found.append(Runbook.MAINTENANCE)
    return tuple(dict.fromkeys(found))[:PAGES_SHOWN]


def _of_lifecycle(life: Lifecycle) -> Iterator[Runbook]:
    waits = {b.kind for b in life.blockers}
    yield from (page for kind, page in _WAITS.items() if kind in waits)
    if life.state is State.DRAINING and BlockerKind.POD in waits:
        yield Runbook.DRAIN
    if life.state is State.OUT_OF_SERVICE:
        yield Runbook.REPAIRS_EXHAUSTED
    episode = life.episode.id if life.episode is not None else ""
    out = [t for t in life.history if t.episode == episode and t.state not in (State.CERTIFYING, State.IN_SERVICE)]
    if episode and any(t.cause.kind is CauseKind.CERTIFICATION for t in out):
        yield Runbook.CERTIFICATION_FAILED


def _of_faults(health: NodeHealth) -> Iterator[Runbook]:
    observed = health.status.observed
    life = health.status.lifecycle
    seen = [*(observed.faults if observed is not None else ()), *(life.derived if life is not None else ())]
    for fault in sorted(seen, key=lambda f: (_WEIGHT.index(f.severity) if f.severity in _WEIGHT else 9, f.key())):
        if fault.severity in _WEIGHT:
            yield runbook(fault.check, fault.code)
