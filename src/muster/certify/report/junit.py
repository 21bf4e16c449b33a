"""The report as JUnit XML, for CI. A node that was not tested is an error: skipped would look green. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from xml.sax.saxutils import escape, quoteattr

from muster.certify.report.model import LinkView, NodeView, ReportModel, RunView
from muster.resources.certification import NodeVerdict, Phase

_ILLEGAL = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML 1.0 does not have, not even escaped."""
TEXT_LIMIT = 4000


def junit(report: ReportModel) -> str:
    """One suite for the certification itself, the nodes, the paths and the tests."""
    by_id = {run.id: run for run in report.runs}
    suites = (
        _suite("certification", [_whole(report)]),
        _suite("nodes", [_node(by_id, node) for node in report.nodes]),
        _suite("paths", [_link(link) for link in report.links]),
        _suite("tests", [_case(t.name, "tests", _tag("skipped", t.left_out)) for t in report.tests if t.left_out]),
    )
    body = [suite for suite in suites if suite]
    text = "\n".join(body)
    seconds = report.cost.spent_wall_minutes * 60
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        f"<testsuites name={_attribute(report.name)} {_counts(text)} time={_attribute(f'{seconds:.1f}')}>\n"
        f"{text}\n</testsuites>\n"
    )


def _whole(report: ReportModel) -> str:
    problems = "\n".join((report.verdict, *report.problems))
    if report.passed:
        return _case(report.name, "certification", "")
    ended = report.phase in (Phase.SUCCEEDED.value, Phase.FAILED.value)
    return _case(report.name, "certification", _tag("failure" if ended else "error", problems, report.phase))


def _node(by_id: Mapping[str, RunView], node: NodeView) -> str:
    if node.verdict == NodeVerdict.PASSED.value:
        return _case(node.name, "nodes", "")
    failed = node.verdict == NodeVerdict.FAILED.value
    cited = [by_id[i] for i in node.evidence_for if i in by_id] if failed else []
    lines = [node.message, *(_evidence(run, node.name) for run in cited)]
    kind = "failure" if failed else "error"
    return _case(node.name, "nodes", _tag(kind, "\n".join(lines), f"{node.verdict} {node.reason}".strip()))


def _evidence(run: RunView, name: str) -> str:
    others = ", ".join(n for n in run.nodes[:8] if n != name) or "nobody"
    return f"{run.id} {run.test} with {others}: {run.outcome} {run.reason} {run.message}"


def _link(link: LinkView) -> str:
    if link.verdict == NodeVerdict.PASSED.value:
        return _case(link.title, "paths", "")
    kind = "failure" if link.verdict == NodeVerdict.FAILED.value else "error"
    return _case(link.title, "paths", _tag(kind, link.message, f"{link.verdict} {link.reason}".strip()))


def _suite(name: str, cases: list[str]) -> str:
    if not cases:
        return ""
    text = "\n".join(cases)
    return f"  <testsuite name={_attribute(name)} {_counts(text)}>\n{text}\n  </testsuite>"


def _counts(text: str) -> str:
    # The text is our own: foreign text in it is escaped, so "<" begins nothing but our tags.
    counts = {
        "tests": text.count("<testcase "),
        "failures": text.count("<failure "),
        "errors": text.count("<error "),
        "skipped": text.count("<skipped "),
    }
    return " ".join(f'{key}="{count}"' for key, count in counts.items())


def _case(name: str, kind: str, inside: str) -> str:
    opening = f"    <testcase classname={_attribute(kind)} name={_attribute(name)}"
    return f"{opening}>{inside}</testcase>" if inside else f"{opening}/>"


def _tag(tag: str, text: str, kind: str = "") -> str:
    clean = _clean(text)
    first = clean.strip().split("\n", 1)[0][:300]
    what = f" type={_attribute(kind)}" if kind else ""
    return f"<{tag} message={_attribute(first)}{what}>{escape(clean)}</{tag}>"


def _attribute(text: str) -> str:
    return quoteattr(_clean(text))


def _clean(text: str) -> str:
    return _ILLEGAL.sub(" ", text[:TEXT_LIMIT])
