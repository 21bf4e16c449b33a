"""The sentences of a report: what was found, and what to do next. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, assert_never

from muster.resources.certification import (
    Certification,
    FaultAt,
    Layer,
    LinkResult,
    NodeResult,
    NodeVerdict,
    Phase,
    Reason,
)

if TYPE_CHECKING:
    from muster.certify.report.model import ReportModel

SHOWN = 6
PARTNER = "Partner"
"""The word for a node that was only borrowed: it gets no verdict."""


def verdict_sentence(certification: Certification, nodes: Sequence[NodeResult], problems: Sequence[str]) -> str:
    """The verdict in one sentence, with the names of those at fault."""
    status = certification.status
    links = [link for link in status.links if link.verdict is not NodeVerdict.PASSED]
    match status.phase:
        case Phase.PENDING:
            return f"Pending: nothing has run yet{_blocked(status.blocked)}."
        case Phase.RUNNING:
            return (
                f"Running: round {status.round}, {status.cost.runs} runs done, {status.current_runs} under way"
                f"{_so_far(nodes, links)}{_blocked(status.blocked)}."
            )
        case Phase.ABORTED:
            why = status.message.strip() or "no reason is recorded"
            return f"Aborted, nothing is certified: {why.rstrip('.')}."
        case Phase.SUCCEEDED | Phase.FAILED:
            pass
        case _:
            assert_never(status.phase)
    seen = Counter(n.verdict for n in nodes)
    total = len(nodes)
    bad = seen[NodeVerdict.FAILED] + seen[NodeVerdict.UNDETERMINED] + seen[NodeVerdict.UNTESTED]
    if status.phase is Phase.SUCCEEDED and total and not bad and not links:
        incomplete = " This report is incomplete, see its problems." if problems else ""
        noun = "node passed" if total == 1 else "nodes passed"
        return f"Passed: {_all(total)} {noun} every test of {_asked(certification)}.{incomplete}"
    pieces = [f"{seen[NodeVerdict.PASSED]} of {total} nodes passed"]
    for verdict in (NodeVerdict.FAILED, NodeVerdict.UNDETERMINED, NodeVerdict.UNTESTED):
        if seen[verdict]:
            names = [n.name for n in nodes if n.verdict is verdict]
            pieces.append(f"{seen[verdict]} {verdict.value.lower()} ({_some(names)})")
    for at_fault, words in _BETWEEN:
        named = [link_title(link) for link in links if (link.verdict is NodeVerdict.FAILED) is at_fault]
        if named:
            pieces.append(f"{len(named)} {words} between good nodes ({_some(named)})")
    if not bad and not links:
        # Nobody is named, and yet it did not pass: the message says what was not narrowed down.
        pieces.append(status.message.strip().rstrip(".") or "a failure could not be put down to any node or link")
    return f"Not passed: {', '.join(pieces)}."


def link_title(link: LinkResult) -> str:
    """What a link verdict names, for people: `n1 - n2`, `rail 3 of n1`, `trunk d0 - d1`, `domain d0`."""
    match link.at:
        case FaultAt.LINK:
            return f"{link.a} - {link.b}" + ("" if link.rail is None else f", rail {link.rail}")
        case FaultAt.RAIL:
            rail = "a rail" if link.rail is None else f"rail {link.rail}"
            return f"{rail} of {link.a}" if link.a else f"{rail} of every node"
        case FaultAt.TRUNK:
            return f"trunk {link.a} - {link.b}"
        case FaultAt.DOMAIN:
            return f"domain {link.a}"
        case _:
            assert_never(link.at)


def chance(bound: float) -> str:
    """A small probability without an exponent.

    >>> chance(0.00018), chance(1e-113)
    ('at most 0.00018', 'less than one in a million')
    """
    if bound < 1e-6:
        return "less than one in a million"
    digits = f"{bound:.2g}"
    return f"at most {f'{float(digits):.10f}'.rstrip('0').rstrip('.') if 'e' in digits else digits}"


def next_step(verdict: str, reason: str, layer: str, name: str) -> str:
    """What a person does about a verdict on node `name`."""
    if verdict == PARTNER:
        return "Nothing. It only helped to test others."
    if verdict == NodeVerdict.PASSED.value:
        return "Nothing. The node works, and holds a certificate if it was asked for by its lifecycle."
    if verdict == NodeVerdict.UNTESTED.value:
        return f"Remove what kept the node out (see the reason), then certify it: muster certify run --nodes {name}."
    if verdict == NodeVerdict.UNDETERMINED.value:
        return f"{_UNDECIDED.get(reason, 'Certify it again')}: muster certify run --nodes {name} --partners ..."
    where = _LAYERS.get(layer, "")
    what = _FAILED.get(reason, "Look at the evidence")
    return f"{what}{where}. Keep it out of service until it passes: muster node {name}."


def link_step(verdict: str, layer: str) -> str:
    """What a person does about a path that is at fault or in doubt."""
    if verdict != NodeVerdict.FAILED.value:
        return "Certify the nodes at its ends again, with a larger budget."
    where = _PATHS.get(layer, "check the cables, ports and switches of this path")
    return f"Leave the nodes at its ends in service; {where}, then certify them again."


def todo(report: ReportModel) -> tuple[str, ...]:
    """What a person does now, the most urgent first; one line for each name, or for many of one kind."""
    lines: list[str] = []
    failed = [node for node in report.nodes if node.verdict == NodeVerdict.FAILED.value]
    lines += [f"{n.name}: {next_step(n.verdict, n.reason, n.layer, n.name)}" for n in failed[:TODO]]
    if len(failed) > TODO:
        lines.append(f"{len(failed) - TODO} more failed nodes: see them one by one; look for what they share.")
    links = [link for link in report.links if link.verdict != NodeVerdict.PASSED.value]
    lines += [f"{link.title}: {link_step(link.verdict, link.layer)}" for link in links[:TODO]]
    if len(links) > TODO:
        lines.append(f"{len(links) - TODO} more paths: see them one by one; look for what they share.")
    if report.phase in (Phase.PENDING.value, Phase.RUNNING.value):
        return (*lines, "It is not finished: look again later.")
    if report.problems:
        lines.append("This report is incomplete: see its problems before you rely on it.")
    for verdict in (NodeVerdict.UNDETERMINED, NodeVerdict.UNTESTED):
        by_reason: dict[str, list[str]] = {}
        for node in report.nodes:
            if node.verdict == verdict.value:
                by_reason.setdefault(node.reason, []).append(node.name)
        for reason in sorted(by_reason):
            names = by_reason[reason]
            step = next_step(verdict.value, reason, "", ",".join(names) if len(names) <= SHOWN else "NAME,NAME")
            lines.append(f"{_some(names)}: {step}")
    return tuple(lines)


TODO = 8
"""Names with a line of their own in the list of what to do."""
_PATHS = {
    Layer.NVLINK.value: "check NVLink and its switches between them",
    Layer.NETWORK.value: "have cables, ports and switches of this path checked",
}
_BETWEEN = ((True, "at fault"), (False, "in doubt"))
_UNDECIDED = {
    Reason.BUDGET.value: "The budget was spent; certify it again with a larger one",
    Reason.NO_PARTNER.value: "Certify it again with proven partners",
    Reason.HARNESS.value: "The tests themselves went wrong; see the runs, then certify it again",
    Reason.LINK.value: "A path that it shares with others is at fault; mend that, then certify it again",
    Reason.SCHEDULING.value: "Its pods did not start; see why, then certify it again",
}
_FAILED = {
    Reason.HARDWARE.value: "Something is broken or missing; see what the node's own check says",
    Reason.BANDWIDTH.value: "Communication is slow or broken",
    Reason.COMPUTE.value: "Its GPUs compute too slowly; look for throttling, power and temperature",
    Reason.TRANSPORT.value: "Traffic takes another way than it should; check the network plugin and NCCL settings",
    Reason.NUMERIC.value: "It computes wrong results; do not use it, replace the GPU or its memory",
    Reason.STRAGGLER.value: "It holds up training; compare clocks, power and temperature with its peers",
    Reason.TIMEOUT.value: "It does not finish in time",
    Reason.HANG.value: "It hangs; see the kernel log for Xid errors",
    Reason.CRASH.value: "Programs die on it; see the kernel log for Xid errors",
}
_LAYERS = {
    Layer.HOST.value: " (look at the host)",
    Layer.GPU.value: " (look at its GPUs)",
    Layer.NVLINK.value: " (look at NVLink: its network works)",
    Layer.NETWORK.value: " (look at its NICs and cables: NVLink works)",
}


def _asked(certification: Certification) -> str:
    tests = certification.spec.tests
    return f"{', '.join(tests[:SHOWN])}" if tests else f"the profile {certification.spec.profile}"


def _all(total: int) -> str:
    return "the one" if total == 1 else f"all {total}"


def _so_far(nodes: Sequence[NodeResult], links: Sequence[LinkResult]) -> str:
    named = [n.name for n in nodes if n.verdict is NodeVerdict.FAILED] + [link_title(link) for link in links]
    return f"; named so far: {_some(named)}" if named else "; nobody is named so far"


def _blocked(why: str) -> str:
    return f"; blocked: {why.rstrip('.')}" if why else ""


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more
