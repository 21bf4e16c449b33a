"""A certification that still runs: who is named or cleared so far, how far it is, and what is new since. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import msgspec

from muster.certify.isolate import next_round, replay
from muster.certify.isolation.plan import Plan, Verdicts
from muster.certify.report.words import link_title
from muster.resources.certification import (
    Certification,
    LinkResult,
    NodeResult,
    NodeVerdict,
    Phase,
    Reason,
    RunRecord,
)

BAR_WIDTH = 24
NOT_YET = "Not decided yet."


@dataclass(frozen=True)
class SoFar:
    """Verdicts on the evidence so far. Only who is `Failed` is named; the rest may still change."""

    nodes: tuple[NodeResult, ...] = ()
    links: tuple[LinkResult, ...] = ()


def so_far(plan: Plan | None, runs: Sequence[RunRecord]) -> SoFar:
    """What the runs say already; nothing when they do not follow from the plan (another version of Muster)."""
    if plan is None:
        return SoFar()
    try:
        state = replay(plan, runs)
        step = next_round(replace(state, pending=None))
    except (ValueError, LookupError, StopIteration):
        return SoFar()
    if not isinstance(step, Verdicts):
        return SoFar()
    nodes = tuple(_open(node) for node in step.nodes)
    return SoFar(nodes, tuple(link for link in step.links if link.verdict is NodeVerdict.FAILED))


def _open(node: NodeResult) -> NodeResult:
    """What is not decided yet is not the end of it; who was never to be tested stays Untested."""
    if node.verdict in (NodeVerdict.FAILED, NodeVerdict.PASSED):
        return node
    if node.verdict is NodeVerdict.UNTESTED and not node.evidence_for and node.reason.value not in _OPEN_REASONS:
        return node
    return msgspec.structs.replace(node, verdict=NodeVerdict.UNDETERMINED, reason=Reason.NONE, message=NOT_YET)


_OPEN_REASONS = ("budget", "no-partner")
"""What verdicts give as the reason while runs are still to come."""


def progress_line(certification: Certification, expected_runs: int | None, *, narrow: bool = False) -> str:
    """One line: a bar against the runs expected when nothing fails, the round, and how the runs ended.

    `narrow`: without the bar, which says nothing that the numbers do not say.
    """
    status = certification.status
    done = status.cost.runs
    ended = status.phase not in (Phase.PENDING, Phase.RUNNING)
    share = done / expected_runs if expected_runs else 0.0
    full = BAR_WIDTH if ended else min(BAR_WIDTH - 1, int(share * BAR_WIDTH))
    bar = "#" * full + "." * (BAR_WIDTH - full)
    failed = sum(test.failed for test in status.tests)
    unusable = sum(test.unusable for test in status.tests)
    of = f"/{expected_runs}" if expected_runs is not None and done <= expected_runs else ""
    parts = [
        status.phase.value if narrow else f"[{bar}] {status.phase.value}",
        f"round {status.round}",
        f"{done}{of} runs",
    ]
    parts += [f"{failed} failed"] if failed else []
    parts += [f"{unusable} unusable"] if unusable else []
    parts += [f"{status.current_runs} under way"] if status.current_runs and not ended else []
    parts += [f"blocked: {status.blocked}"] if status.blocked else []
    return ", ".join(parts)


def news(before: SoFar, now: SoFar, was_blocked: str, blocked: str) -> tuple[str, ...]:
    """Sentences about what is new: nodes and paths that are named now, and why nothing runs."""
    known = {node.name: node.verdict for node in before.nodes}
    lines = [
        f"{node.name}: {node.verdict.value} ({node.reason.value}). {node.message}"
        for node in now.nodes
        if node.verdict is NodeVerdict.FAILED and known.get(node.name) is not NodeVerdict.FAILED
    ]
    lines += [
        f"{name}: no longer {NodeVerdict.FAILED.value}; later runs speak against it."
        for name, verdict in sorted(known.items())
        if verdict is NodeVerdict.FAILED
        and not any(n.name == name and n.verdict is NodeVerdict.FAILED for n in now.nodes)
    ]
    old = {link_title(link) for link in before.links}
    lines += [f"{link_title(k)}: {k.verdict.value}. {k.message}" for k in now.links if link_title(k) not in old]
    if blocked and blocked != was_blocked:
        lines.append(f"Blocked: {blocked}")
    if was_blocked and not blocked:
        lines.append("No longer blocked.")
    return tuple(lines)
