"""The report for a terminal. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from muster.certify.report.live import NOT_YET
from muster.certify.report.model import LinkView, NodeView, ReportModel, RunView
from muster.certify.report.words import chance, next_step, todo
from muster.plain_text import aligned, counted, plain
from muster.resources.certification import NodeVerdict

RUNS_SHOWN = 40
NODES_SHOWN = 40


def text(report: ReportModel) -> str:
    """What was asked, what was found, with what evidence, at what cost. Foreign text is made harmless."""
    blocks = [
        [f"{plain(report.name, 80)}: {plain(report.verdict, 2000)}"],
        [f"problem: {plain(p, 500)}" for p in report.problems],
        _asked(report),
        _nodes(report),
        _links(report),
        _todo(report),
        _tests(report),
        _cost(report),
    ]
    return "\n\n".join("\n".join(block) for block in blocks if block) + "\n"


def explanation(report: ReportModel, node: NodeView) -> str:
    """The evidence for and against the verdict on one node, every run that it took part in, and what next."""
    lines = [f"{node.name}: {_verdict(node)}"]
    if node.message:
        lines.append(f"  {plain(node.message, 1000)}")
    place = [f"domain {node.domain}" if node.domain else "", node.product]
    if any(place):
        lines.append("  " + ", ".join(plain(p, 80) for p in place if p))
    runs = [run for run in report.runs if node.name in run.nodes]
    by_id = {run.id: run for run in runs}
    for title, ids in (("For the verdict", node.evidence_for), ("Against it", node.evidence_against)):
        lines += ["", f"{title}:"]
        lines += [f"  {_run_line(by_id[i], node.name)}" for i in ids if i in by_id]
        lines += [f"  {i} (not in this report)" for i in ids if i not in by_id]
        lines += [] if ids else ["  nothing"]
    cited = {*node.evidence_for, *node.evidence_against}
    others = [run for run in runs if run.id not in cited]
    if others:
        lines += ["", "Other runs of this node:", *(f"  {_run_line(run, node.name)}" for run in others)]
    near = (node.name, node.domain) if node.domain else (node.name,)
    touching = [link for link in report.links if link.a in near or link.b in near]
    if touching:
        lines += ["", "Paths:", *(f"  {_link_line(link)}" for link in touching)]
    if node.metrics:
        lines += ["", "Best numbers:", *(f"  {key}: {value:.6g}" for key, value in sorted(node.metrics.items()))]
    step = next_step(node.verdict, node.reason, node.layer, node.name)
    waiting = "Nothing yet: the certification goes on; look again later."
    return "\n".join((*lines, "", f"Next: {waiting if node.message == NOT_YET else step}"))


def _verdict(node: NodeView) -> str:
    why = ", ".join(w for w in (node.reason, f"layer {node.layer}" if node.layer else "") if w)
    bound = "" if node.error_bound is None else f"; the probability that this is wrong is {chance(node.error_bound)}"
    return f"{node.verdict}{f' ({why})' if why else ''}{bound}"


def _run_line(run: RunView, of: str = "") -> str:
    others = [n for n in run.nodes if n != of]
    whom = "alone" if of and not others else _names(others if of else run.nodes)
    variant = f" {run.variant}" if run.variant else ""
    number = "" if run.value is None else f" {run.value:.4g} {run.unit}"
    floor = "" if run.floor is None else f" (floor {run.floor:.4g})"
    why = f" {run.reason}" if run.reason else ""
    said = f": {plain(run.message, 300)}" if run.message else ""
    transport = f" over {run.transport}" if run.transport else ""
    with_ = f" with {whom}" if of and others else f" {whom}"
    return plain(f"{run.id} {run.test}{variant}{with_}{transport}: {run.outcome}{why}{number}{floor}{said}", 600)


def _names(names: Sequence[str]) -> str:
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")


def _asked(report: ReportModel) -> list[str]:
    asked = report.requested
    selected = f" plus those with {_labels(asked.node_selector)}" if asked.node_selector else ""
    lines = [
        f"Asked for: profile {asked.profile} ({', '.join(asked.tests) or 'no tests'}) on {asked.nodes} named "
        f"node(s){selected}; {asked.targets} get a verdict."
    ]
    if asked.expected_transport:
        lines.append(f"Expected transport: {asked.expected_transport}.")
    if report.started_at is not None:
        until = f" to {report.finished_at:%Y-%m-%d %H:%M:%S} UTC" if report.finished_at else ""
        lines.append(f"Ran from {report.started_at:%Y-%m-%d %H:%M:%S} UTC{until}.")
    return [plain(line, 2000) for line in lines]


def _labels(labels: dict[str, str]) -> str:
    return ", ".join(f"{key}={value}" if value else key for key, value in sorted(labels.items()))


def _nodes(report: ReportModel) -> list[str]:
    lines: list[str] = []
    by_id = {run.id: run for run in report.runs}
    undecided = sum(n.message == NOT_YET for n in report.nodes)
    shown = [n for n in report.nodes if n.verdict != NodeVerdict.PASSED.value and n.message != NOT_YET]
    for node in shown[:NODES_SHOWN]:
        words = f"{plain(node.name, 80)}  {node.reason}  {plain(node.message, 300)}"
        lines.append(f"{node.verdict:<12}  {words}".rstrip())
        if node.verdict == NodeVerdict.FAILED.value:
            found = [by_id[i] for i in node.evidence_for if i in by_id]
            lines += [f"                {_run_line(run, node.name)}" for run in found[-4:]]
    if len(shown) > NODES_SHOWN:
        lines.append(f"... and {len(shown) - NODES_SHOWN} more; -o json has all of them.")
    return lines + ([f"{counted(undecided, 'node')} not decided yet."] if undecided else [])


def _todo(report: ReportModel) -> list[str]:
    lines = [f"  {plain(line, 500)}" for line in todo(report)]
    return ["What to do:", *lines] if lines else []


def _links(report: ReportModel) -> list[str]:
    return [_link_line(link) for link in report.links]


def _link_line(link: LinkView) -> str:
    layer = f" (layer {link.layer})" if link.layer else ""
    return f"{link.verdict:<12}  {plain(f'{link.title}{layer}: {link.message}', 500)}"


def _tests(report: ReportModel) -> list[str]:
    rows: list[Sequence[str]] = [
        ("TEST", "RUNS", "PASSED", "FAILED", "UNUSABLE", "LEAST", "MEDIAN", "MOST", "FLOOR", "UNIT")
    ]
    for test in report.tests:
        if test.left_out:
            continue
        numbers = tuple("-" if v is None else f"{v:.4g}" for v in (test.least, test.median, test.most, test.floor))
        counts = (str(test.runs), str(test.passed), str(test.failed), str(test.unusable))
        rows.append((plain(test.name, 60), *counts, *numbers, plain(test.unit, 20) or "-"))
    lines = list(aligned(rows))
    return lines + [f"not run: {t.name}: {plain(t.left_out, 200)}" for t in report.tests if t.left_out]


def _cost(report: ReportModel) -> list[str]:
    cost = report.cost
    spent = (
        f"{counted(cost.spent_rounds, 'round')}, {counted(cost.spent_runs, 'run')}, "
        f"{cost.spent_node_minutes / 60:.1f} node-hours, {cost.spent_wall_minutes:.0f} min"
    )
    if cost.expected_rounds is None:
        return [f"Cost: {spent}."]
    planned = (
        f"{counted(cost.expected_rounds, 'round')}, {counted(cost.expected_runs or 0, 'run')}, "
        f"{(cost.expected_node_minutes or 0) / 60:.1f} "
        f"node-hours, {cost.expected_wall_minutes or 0:.0f} min"
    )
    return [f"Cost: {spent}; planned without any failure: {planned}."]
