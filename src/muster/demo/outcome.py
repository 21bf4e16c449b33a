"""How a story ended: who was named, on what evidence, and whether that is what was planted. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec

from muster.operate.explain import Explanation, run_sentence
from muster.operate.ledger import NodeRecord
from muster.operate.phrases import counted, moment
from muster.plain_text import plain
from muster.resources.certification import Certification, NodeVerdict
from muster.resources.node_health import CauseKind, NodeHealth, State

MAX_EVIDENCE = 6


@dataclass(frozen=True)
class Planted:
    """One defect that the fleet was given: a node, or the two ends of a link (sorted)."""

    nodes: tuple[str, ...]
    sentence: str


@dataclass(frozen=True)
class Named:
    """A node (one name) or link (two, sorted) that Muster blamed.

    `source` is the certification or the fault key. `evidence` are sentences about the runs or the log line that
    decided; `error_bound` is the stated probability that the blame is wrong, None for a fault that was read.
    """

    nodes: tuple[str, ...]
    source: str
    reason: str
    message: str
    evidence: tuple[str, ...] = ()
    error_bound: float | None = None


@dataclass(frozen=True)
class Line:
    """One thing that happened, for the narration."""

    at: datetime
    chapter: str
    node: str
    text: str


@dataclass(frozen=True)
class FleetRow:
    node: str
    domain: str
    state: str
    ticket: str
    left_service: int
    """How often it left service."""
    trouble: bool
    """Whether anything was ever wrong with it, planned tests that passed not counted."""


@dataclass(frozen=True)
class Outcome:
    """The end of a story. `stuck` says what had not settled when time was up; empty when everything had."""

    seed: int
    start: datetime
    end: datetime
    fleet: tuple[FleetRow, ...]
    planted: tuple[Planted, ...]
    named: tuple[Named, ...]
    goodput: dict[str, Any]
    records: tuple[NodeRecord, ...]
    explanations: tuple[Explanation, ...]
    lines: tuple[Line, ...]
    stuck: tuple[str, ...] = ()

    @property
    def missed(self) -> tuple[Planted, ...]:
        """Planted defects that nobody named."""
        blamed = {n.nodes for n in self.named}
        return tuple(p for p in self.planted if p.nodes not in blamed)

    @property
    def innocents(self) -> tuple[Named, ...]:
        """Nodes and links that were named without a defect."""
        guilty = {p.nodes for p in self.planted}
        return tuple(n for n in self.named if n.nodes not in guilty)

    @property
    def exact(self) -> bool:
        """Everything planted was named and nothing else."""
        return not self.missed and not self.innocents


def named_by_certifications(certifications: Iterable[Certification]) -> list[Named]:
    """Every node and link that a certification found `Failed`, in the order of time."""
    found: list[Named] = []
    for certification in sorted(certifications, key=_by_time):
        source = certification.metadata.name
        runs = {run.id: run for run in certification.status.runs}
        for result in certification.status.nodes:
            if result.verdict is NodeVerdict.FAILED:
                evidence = tuple(run_sentence(runs[i]) for i in result.evidence_for[:MAX_EVIDENCE] if i in runs)
                message = plain(result.message)
                found.append(
                    Named((result.name,), source, result.reason.value, message, evidence, result.error_bound)
                )
        for link in certification.status.links:
            if link.verdict is NodeVerdict.FAILED:
                evidence = tuple(run_sentence(runs[i]) for i in link.evidence[:MAX_EVIDENCE] if i in runs)
                ends = tuple(sorted((link.a, link.b)))
                found.append(Named(ends, source, link.reason.value, plain(link.message), evidence, link.error_bound))
    return found


def named_by_faults(healths: Iterable[NodeHealth]) -> list[Named]:
    """Every node that left service because of a fault that its agent read."""
    found: dict[tuple[str, str], Named] = {}
    for health in sorted(healths, key=lambda h: h.metadata.name):
        life = health.status.lifecycle
        for step in life.history if life else ():
            if step.cause.kind is CauseKind.FAULT and step.state is State.QUARANTINED:
                name = health.metadata.name
                text = plain(step.cause.message)
                found.setdefault((name, step.cause.name), Named((name,), step.cause.name, "fault", text))
    return list(found.values())


def _by_time(certification: Certification) -> tuple[str, str]:
    started = certification.status.started_at
    return (started.isoformat() if started else "", certification.metadata.name)


def verdict_lines(outcome: Outcome) -> list[str]:
    """The verdicts as sentences: each planted defect beside who was named, then the innocents, then the sum."""
    lines = []
    for planted in outcome.planted:
        blames = [n for n in outcome.named if n.nodes == planted.nodes]
        if blames:
            how = "; ".join(_blame(n) for n in blames[:3])
            lines.append(f"named   {_names(planted.nodes)}: {how}. Planted: {planted.sentence}.")
        else:
            lines.append(f"MISSED  {_names(planted.nodes)}. Planted: {planted.sentence}.")
    lines += [f"WRONG   {_names(n.nodes)} was named by {_blame(n)}, and is innocent." for n in outcome.innocents]
    named = len(outcome.planted) - len(outcome.missed)
    wrong = len({n.nodes for n in outcome.innocents})
    lines.append(f"{named} of {counted(len(outcome.planted), 'planted defect')} named, {wrong} innocent.")
    return lines


def _names(nodes: Sequence[str]) -> str:
    return nodes[0] if len(nodes) == 1 else f"link {' - '.join(nodes)}"


def _blame(named: Named) -> str:
    return f"{named.source} ({named.reason})" if named.reason else named.source


def fleet_lines(outcome: Outcome) -> list[str]:
    """The fleet at the end: a count per state, then every node that is not in service or was out."""
    counts: dict[str, int] = {}
    for row in outcome.fleet:
        counts[row.state] = counts.get(row.state, 0) + 1
    lines = [", ".join(f"{counts[s]} {s}" for s in sorted(counts)) + "."]
    shown = [r for r in outcome.fleet if r.state != State.IN_SERVICE.value or r.ticket]
    if shown:
        width = max(len(r.node) for r in shown)
        lines.extend(f"{r.node:<{width}}  {r.state}  {r.ticket or '-'}" for r in shown)
    return lines


def to_values(outcome: Outcome) -> dict[str, Any]:
    """The outcome as plain JSON values; the same for the same seed, byte for byte when encoded."""
    return {
        "simulated": True,
        "seed": outcome.seed,
        "from": outcome.start.isoformat(),
        "to": outcome.end.isoformat(),
        "settled": not outcome.stuck,
        "stuck": list(outcome.stuck),
        "fleet": [msgspec.to_builtins(row) for row in outcome.fleet],
        "planted": [msgspec.to_builtins(p) for p in outcome.planted],
        "named": [msgspec.to_builtins(n) for n in outcome.named],
        "missed": [list(p.nodes) for p in outcome.missed],
        "innocents": [list(n.nodes) for n in outcome.innocents],
        "goodput": outcome.goodput,
        "explanations": [msgspec.to_builtins(e) for e in outcome.explanations],
        "events": [f"{moment(line.at)} {line.node} {line.text}" for line in outcome.lines],
    }
