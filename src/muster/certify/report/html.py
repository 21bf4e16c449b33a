"""The report as one HTML file: no script, nothing from outside, readable in light and dark and on paper. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from muster.certify.report.html_pieces import Row, esc, run_table, table, tag
from muster.certify.report.model import LinkView, NodeView, ReportModel, RunView, TestView
from muster.certify.report.style import STYLE
from muster.certify.report.svg import bandwidth, bytes_text, heat_map, waterfall
from muster.certify.report.words import chance, link_step, next_step, todo
from muster.plain_text import counted
from muster.resources.certification import NodeVerdict, Outcome, Phase

OPEN_NODES = 40
"""Failed nodes that are shown unfolded; the others are there, folded."""
EVIDENCE = 12
NODE_ROWS = 5000
RUN_ROWS = 1500
"""Rows of the table of runs. JSON has all of them; failed ones are shown first."""
CHARTS = 12
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"

_PLACEMENTS = {"in": "in place", "out": "out of place"}


def html(report: ReportModel) -> str:
    """The whole page, well-formed as XML too. Whatever others wrote is text in it, never markup."""
    by_id = {run.id: run for run in report.runs}
    body = [
        f"<h1>Certification {esc(report.name)}</h1>",
        *_verdict(report),
        *_todo(report),
        *_asked(report),
        *_failed(report, by_id),
        *_paths(report, by_id),
        *_others(report, by_id),
        *_tests(report),
        *_matrices(report),
        *_bandwidth(report),
        *_stragglers(report),
        *_goodput(report),
        *_cost(report),
        *_passed(report),
        *_runs(report),
        *_versions(report),
        *_provenance(report),
    ]
    return (
        '<!DOCTYPE html>\n<html lang="en" xmlns="http://www.w3.org/1999/xhtml">\n<head><meta charset="utf-8"/>'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}"/>'
        '<meta name="viewport" content="width=device-width, initial-scale=1"/>'
        f"<title>Certification {esc(report.name)}: {esc(report.phase)}</title><style>{STYLE}</style></head>\n<body>\n"
        + "\n".join(body)
        + "\n</body>\n</html>\n"
    )


def _verdict(report: ReportModel) -> Iterable[str]:
    ended = report.phase in (Phase.SUCCEEDED.value, Phase.FAILED.value, Phase.ABORTED.value)
    look = " pass" if report.passed else " fail" if ended else ""
    yield f'<p class="verdict{look}">{esc(report.verdict, 3000)}</p>'
    if report.problems:
        yield f'<div class="note"><ul>{"".join(f"<li>{esc(p)}</li>" for p in report.problems)}</ul></div>'
    counts = report.counts
    tiles = (
        ("passed", counts.passed),
        ("failed", counts.failed),
        ("undetermined", counts.undetermined),
        ("untested", counts.untested),
        ("paths at fault", sum(link.verdict == NodeVerdict.FAILED.value for link in report.links)),
        ("runs", report.cost.spent_runs),
    )
    yield f'<ul class="tiles">{"".join(f"<li><b>{n}</b>{name}</li>" for name, n in tiles)}</ul>'


def _todo(report: ReportModel) -> Iterable[str]:
    if lines := todo(report):
        yield f"<h2>What to do</h2><ul>{''.join(f'<li>{esc(line, 600)}</li>' for line in lines)}</ul>"


def _asked(report: ReportModel) -> Iterable[str]:
    asked = report.requested
    selector = ", ".join(f"{k}={v}" if v else k for k, v in sorted(asked.node_selector.items()))
    facts = [
        f"Asked for: profile {asked.profile}, purpose {asked.purpose}, {asked.nodes} named node(s)"
        + (f", those with {selector}" if selector else "")
        + f", {asked.partners} partner(s). {asked.targets} node(s) get a verdict.",
        f"Tests: {', '.join(asked.tests) or 'none'}.",
        f"Expected transport: {asked.expected_transport}." if asked.expected_transport else "",
        f"An innocent node or path is named with a probability of at most {asked.max_false_blame:g}.",
    ]
    if report.started_at is not None:
        until = f" to {report.finished_at:%Y-%m-%d %H:%M:%S} UTC" if report.finished_at is not None else ""
        facts.append(f"Ran from {report.started_at:%Y-%m-%d %H:%M:%S} UTC{until}.")
    yield f'<p class="soft">{" ".join(esc(f, 2000) for f in facts if f)}</p>'
    if report.message:
        yield f"<details><summary>Message of the certification</summary><p>{esc(report.message, 4000)}</p></details>"


def _failed(report: ReportModel, by_id: Mapping[str, RunView]) -> Iterable[str]:
    failed = [n for n in report.nodes if n.verdict == NodeVerdict.FAILED.value]
    if not failed:
        return
    yield f"<h2>Failed nodes ({len(failed)})</h2>"
    for node in failed[:OPEN_NODES]:
        yield f"<h3>{esc(node.name)} {tag(node.verdict)} {esc(_why(node))}</h3>{_node(node, by_id)}"
    if rest := failed[OPEN_NODES:]:
        rows = "".join(f"<h3>{esc(n.name)} {esc(_why(n))}</h3>{_node(n, by_id)}" for n in rest)
        yield f"<details><summary>{len(rest)} more failed nodes</summary>{rows}</details>"


def _why(node: NodeView) -> str:
    return ", ".join(w for w in (node.reason, f"layer {node.layer}" if node.layer else "") if w)


def _node(node: NodeView, by_id: Mapping[str, RunView]) -> str:
    bound = (
        f" The probability that this is wrong is {chance(node.error_bound)}." if node.error_bound is not None else ""
    )
    place = ", ".join(esc(p) for p in (node.domain and f"domain {node.domain}", node.product) if p)
    parts = [f"<p>{esc(node.message, 1000)}{bound}{f' ({place})' if place else ''}</p>"]
    parts.append(_evidence("Evidence for", node.evidence_for, by_id))
    if node.evidence_against:
        more = _evidence("Runs that speak against it", node.evidence_against, by_id)
        parts.append(
            f"<details><summary>{counted(len(node.evidence_against), 'run')} against it</summary>{more}</details>"
        )
    parts.append(f"<p><b>Next:</b> {esc(next_step(node.verdict, node.reason, node.layer, node.name))}</p>")
    return "".join(parts)


def _evidence(title: str, ids: Sequence[str], by_id: Mapping[str, RunView]) -> str:
    found = [by_id[i] for i in ids if i in by_id]
    missing = len(ids) - len(found)
    if not ids:
        return f'<p class="soft">{title}: no run.</p>'
    note = f'<p class="soft">{missing} cited runs are not in this report.</p>' if missing else ""
    cut = len(found) - EVIDENCE
    note += f'<p class="soft">The last {EVIDENCE} of {len(found)} are shown.</p>' if cut > 0 else ""
    return f'<p class="soft">{title}:</p>{run_table(found[-EVIDENCE:])}{note}'


def _paths(report: ReportModel, by_id: Mapping[str, RunView]) -> Iterable[str]:
    if not report.links:
        return
    yield f"<h2>Links, rails and trunks ({len(report.links)})</h2>"
    yield '<p class="soft">The nodes at the ends of these are not blamed for them.</p>'
    for link in report.links[:OPEN_NODES]:
        yield _path(link, by_id)
    if rest := report.links[OPEN_NODES:]:
        inside = "".join(_path(link, by_id) for link in rest)
        yield f"<details><summary>{len(rest)} more</summary>{inside}</details>"


def _path(link: LinkView, by_id: Mapping[str, RunView]) -> str:
    layer = f", layer {link.layer}" if link.layer else ""
    bound = (
        f" The probability that this is wrong is {chance(link.error_bound)}." if link.error_bound is not None else ""
    )
    head = f"<h3>{esc(link.title)} {tag(link.verdict)} {esc(link.reason + layer)}</h3>"
    step = f"<p><b>Next:</b> {esc(link_step(link.verdict, link.layer))}</p>" if link.verdict != "Passed" else ""
    return f"{head}<p>{esc(link.message, 1000)}{bound}</p>{_evidence('Evidence', link.evidence, by_id)}{step}"


def _others(report: ReportModel, by_id: Mapping[str, RunView]) -> Iterable[str]:
    for verdict, title, text in (
        (NodeVerdict.UNDETERMINED, "Undetermined nodes", "There is evidence, but not enough to name or clear them."),
        (NodeVerdict.UNTESTED, "Untested nodes", "These were not measured. They hold no certificate from this."),
    ):
        found = [n for n in report.nodes if n.verdict == verdict.value]
        if not found:
            continue
        yield f'<h2>{title} ({len(found)})</h2><p class="soft">{text}</p>'
        reasons: dict[str, int] = {}
        for node in found:
            reasons[node.reason or "no reason"] = reasons.get(node.reason or "no reason", 0) + 1
        told = ", ".join(f"{reasons[reason]} {reason}" for reason in sorted(reasons))
        rows = ((esc(n.name), esc(_why(n)), esc(n.message), esc(_cited(n, by_id))) for n in found[:NODE_ROWS])
        shown = table(("node", "reason", "why", "failed runs"), rows)
        yield shown if len(found) <= OPEN_NODES else f"<details><summary>{esc(told)}</summary>{shown}</details>"


def _cited(node: NodeView, by_id: Mapping[str, RunView]) -> str:
    ids = [i for i in (*node.evidence_for, *node.evidence_against) if i in by_id]
    failed = [i for i in ids if by_id[i].outcome == Outcome.FAIL.value]
    return ", ".join(failed[:6]) + (f" and {len(failed) - 6} more" if len(failed) > 6 else "") or "-"


def _tests(report: ReportModel) -> Iterable[str]:
    if not report.tests:
        return
    yield "<h2>Tests</h2>"
    head = (
        "test",
        "#runs",
        "#passed",
        "#failed",
        "#unusable",
        "#least",
        "#median",
        "#most",
        "#floor",
        "unit",
        "nodes",
    )
    yield table((*head, "transport"), (_test_row(t) for t in report.tests if not t.left_out))
    if out := [t for t in report.tests if t.left_out]:
        items = "".join(f"<li><b>{esc(t.name)}</b>: {esc(t.left_out)}</li>" for t in out)
        yield f"<p>Not run, and so not certified:</p><ul>{items}</ul>"


def _test_row(test: TestView) -> Row:
    numbers = tuple("-" if v is None else f"{v:.4g}" for v in (test.least, test.median, test.most))
    floor = "none known" if test.floor is None and test.unit else "-" if test.floor is None else f"{test.floor:.4g}"
    sizes = ", ".join(map(str, test.nodes_per_run[:6]))
    cells = (test.name, str(test.runs), str(test.passed), str(test.failed), str(test.unusable), *numbers, floor)
    rest = (test.unit or "-", sizes or "-", ", ".join(test.transports) or "-")
    return tuple(esc(cell) for cell in (*cells, *rest))


def _matrices(report: ReportModel) -> Iterable[str]:
    for matrix in report.matrices:
        yield f"<h2>Pairs: {esc(matrix.test)}</h2>"
        middle = "" if matrix.median is None else f" Median of all: {matrix.median:.4g} {matrix.unit}."
        caption = (
            f"One row and column a {matrix.grouped_by}; only pairs that were run are filled. F failed, f failed at "
            f"times, s slower than the median, ? nothing usable.{middle}"
        )
        yield f"<figure>{heat_map(matrix)}<figcaption>{esc(caption)}</figcaption></figure>"


def _bandwidth(report: ReportModel) -> Iterable[str]:
    if not report.curves:
        return
    yield "<h2>Bandwidth by message size</h2>"
    for curve in report.curves[:CHARTS]:
        variant = f", {curve.variant}" if curve.variant else ""
        shape = (
            f"{curve.test}{variant}: {curve.nodes} node(s) a run, {_PLACEMENTS.get(curve.placement, curve.placement)}"
        )
        floor = "" if curve.floor is not None else " No floor is known for this shape."
        caption = f"{shape}. Line: median of the runs; band: least to most.{floor}"
        rows = (
            (
                bytes_text(p.size_bytes),
                *(f"{v:.4g}" for v in (p.least_gb_per_s, p.median_gb_per_s, p.most_gb_per_s)),
                str(p.runs),
                str(p.wrong),
            )
            for p in curve.points
        )
        numbers = table(("#size", "#least GB/s", "#median GB/s", "#most GB/s", "#runs", "#wrong values"), rows)
        yield (
            f"<figure>{bandwidth(curve)}<figcaption>{esc(caption)}</figcaption></figure>"
            f"<details><summary>Numbers of {esc(shape)}</summary>{numbers}</details>"
        )
    if len(report.curves) > CHARTS:
        yield f'<p class="soft">{len(report.curves) - CHARTS} more shapes are in the JSON report.</p>'


def _stragglers(report: ReportModel) -> Iterable[str]:
    if not report.stragglers:
        return
    yield "<h2>Slow ranks</h2>"
    yield (
        '<p class="soft">Ranks that compute longer than the median of their run. A list to look at: the '
        "verdict on a node is above.</p>"
    )
    head = ("node", "#rank", "#GPU", "run", "test", "#compute s", "#median s", "#times the median", "#wait s")
    rows = (
        (
            esc(s.node),
            str(s.rank),
            "-" if s.gpu is None else str(s.gpu),
            esc(s.run),
            esc(s.test),
            f"{s.compute_s:.4g}",
            f"{s.median_s:.4g}",
            f"{s.ratio:.3f}",
            "-" if s.wait_s is None else f"{s.wait_s:.4g}",
        )
        for s in report.stragglers
    )
    yield table(head, rows)


def _goodput(report: ReportModel) -> Iterable[str]:
    if not report.waterfalls:
        return
    yield "<h2>Goodput</h2>"
    for shown in report.waterfalls:
        yield f"<figure>{waterfall(shown)}<figcaption>{esc(shown.title)}, summed over its runs.</figcaption></figure>"


def _cost(report: ReportModel) -> Iterable[str]:
    cost = report.cost

    def row(name: str, planned: float | None, spent: float, limit: float, scale: float = 1.0) -> Row:
        told = "-" if planned is None else _amount(planned / scale)
        return (name, told, _amount(spent / scale), _amount(limit / scale))

    yield "<h2>Cost</h2>"
    yield table(
        ("", "#planned without a failure", "#spent", "#limit"),
        (
            row("rounds", cost.expected_rounds, cost.spent_rounds, cost.limit_rounds),
            row("runs", cost.expected_runs, cost.spent_runs, cost.limit_runs),
            row("node-hours", cost.expected_node_minutes, cost.spent_node_minutes, cost.limit_node_minutes, 60.0),
            row("minutes", cost.expected_wall_minutes, cost.spent_wall_minutes, cost.limit_wall_minutes),
            row("minutes blocked", None, cost.spent_blocked_minutes, cost.limit_blocked_minutes),
        ),
    )


def _amount(value: float) -> str:
    """Never with an exponent: 20,000 runs are not 2e+04."""
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.3g}"


def _passed(report: ReportModel) -> Iterable[str]:
    passed = [n for n in report.nodes if n.verdict == NodeVerdict.PASSED.value]
    if not passed:
        return
    keys = sorted({key for n in passed for key in n.metrics})[:8]
    rows = (
        (
            esc(n.name),
            esc(n.domain) or "-",
            *("-" if (value := n.metrics.get(key)) is None else f"{value:.4g}" for key in keys),
            esc(n.message),
        )
        for n in passed[:NODE_ROWS]
    )
    shown = table(("node", "domain", *(f"#{esc(key)}" for key in keys), "in words"), rows)
    yield f"<h2>Passed nodes ({len(passed)})</h2>"
    yield f"<details><summary>Each with its best numbers</summary>{shown}</details>"


def _runs(report: ReportModel) -> Iterable[str]:
    if not report.runs:
        return
    rank = {Outcome.FAIL.value: 0, Outcome.UNKNOWN.value: 1, Outcome.INVALID.value: 1, Outcome.WARN.value: 2}
    ordered = sorted(enumerate(report.runs), key=lambda pair: (rank.get(pair[1].outcome, 3), pair[0]))
    shown = [run for _, run in ordered[:RUN_ROWS]]
    cut = len(report.runs) - len(shown)
    note = f'<p class="soft">{cut} passed runs are left out here; -o json has all.</p>' if cut > 0 else ""
    yield f"<h2>Runs ({len(report.runs)})</h2>"
    yield f"<details><summary>Every run, failed ones first</summary>{run_table(shown)}{note}</details>"


def _versions(report: ReportModel) -> Iterable[str]:
    if not report.versions:
        return
    yield "<h2>Software</h2>"
    rows = []
    for view in report.versions:
        mixed = " (more than one)" if len(view.versions) > 1 else ""
        told = ", ".join(f"{version} ({count} runs)" for version, count in sorted(view.versions.items())[:8])
        rows.append((esc(view.name + mixed), esc(told)))
    yield table(("what", "version"), rows)


def _provenance(report: ReportModel) -> Iterable[str]:
    made = report.provenance
    seed = "not known" if made.plan_seed is None else str(made.plan_seed)
    rows = [
        ("Muster", made.muster),
        ("certification", f"UID {made.uid or 'not known'}, generation {made.generation}"),
        ("plan", f"seed {seed}, {made.plan_digest or 'no digest'}"),
        ("parts", f"{made.parts_read} of {made.parts_expected} read"),
        *((f"test {t.name}", t.digest or "no digest recorded") for t in report.tests if not t.left_out),
    ]
    listed = table(("what", "which"), ((esc(a), esc(b)) for a, b in rows))
    yield f"<h2>Provenance</h2><details><summary>Plan, tests, versions</summary>{listed}</details>"
