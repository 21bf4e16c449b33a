"""The report of a story: one HTML file that needs nothing else, no script, no network. Pure."""

from __future__ import annotations

from decimal import Decimal
from html import escape

from muster.demo.figures import legend_html, timeline_svg
from muster.demo.outcome import Named, Outcome, fleet_lines, verdict_lines
from muster.operate.explain_text import render
from muster.operate.goodput_report import render_goodput
from muster.operate.goodput_svg import waterfall_svg
from muster.operate.ledger import Ledger, build
from muster.operate.phrases import duration, moment
from muster.resources.node_health import State

_STYLE = """
body { font-family: system-ui, sans-serif; line-height: 1.45; color: #111; background: #fff; margin: 2rem auto;
  max-width: 62rem; padding: 0 1rem; }
h1 { font-size: 1.7rem; } h2 { font-size: 1.25rem; margin-top: 2.2rem; border-bottom: 1px solid #999; }
h3 { font-size: 1rem; margin-bottom: 0.3rem; }
table { border-collapse: collapse; width: 100%; font-size: 0.9rem; }
th, td { text-align: left; padding: 0.25rem 0.6rem; border-bottom: 1px solid #ccc; vertical-align: top; }
pre { background: #f4f4f4; padding: 0.8rem; overflow-x: auto; font-size: 0.82rem; white-space: pre-wrap; }
figure { margin: 1rem 0; } figcaption { font-size: 0.85rem; color: #444; }
.legend { list-style: none; padding: 0; display: flex; flex-wrap: wrap; gap: 0.4rem 1.2rem; font-size: 0.85rem; }
.whole { white-space: nowrap; }
.key { display: inline-block; width: 1.4em; text-align: center; font-weight: bold; }
.note { background: #fff6d6; border-left: 4px solid #E69F00; padding: 0.5rem 0.8rem; }
"""
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def report_html(outcome: Outcome) -> str:
    """The whole report, well-formed as XML too."""
    took = duration(outcome.end - outcome.start)
    body = [
        "<h1>Muster: one fleet, from bring-up to recertification</h1>",
        '<p class="note">Everything here is simulated: nodes, faults, repairs, jobs and all figures. The controllers '
        "and agents that decided are the real ones.</p>",
        f"<p>{len(outcome.fleet)} nodes, seed {outcome.seed}, {took} of simulated time: "
        f"{moment(outcome.start)} to {moment(outcome.end)}.</p>",
        *_stuck(outcome),
        "<h2>Verdicts</h2>",
        _pre("\n".join(verdict_lines(outcome))),
        *_named(outcome),
        "<h2>Goodput</h2>",
        f"<figure>{waterfall_svg(outcome.goodput, _waterfall_title(outcome))}<figcaption>Simulated. Goodput is the "
        f"{escape(outcome.goodput['definition'])}.</figcaption></figure>",
        _pre(render_goodput(outcome.goodput)),
        "<h2>Nodes in trouble</h2>",
        legend_html(),
        *_timelines(outcome),
        "<h2>Fleet at the end</h2>",
        _pre("\n".join(fleet_lines(outcome))),
        _fleet_table(outcome),
        "<h2>Nodes explained</h2>",
        *(f"<h3>{escape(e.node)}</h3>{_pre(render(e))}" for e in outcome.explanations),
        "<h2>What happened</h2>",
        _events(outcome),
    ]
    return (
        '<!DOCTYPE html>\n<html lang="en" xmlns="http://www.w3.org/1999/xhtml">\n<head><meta charset="utf-8"/>'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}"/>'
        '<meta name="viewport" content="width=device-width, initial-scale=1"/>'
        f"<title>Muster: simulated fleet, seed {outcome.seed}</title><style>{_STYLE}</style></head>\n<body>\n"
        + "\n".join(body)
        + "\n</body>\n</html>\n"
    )


def _pre(text: str) -> str:
    return f"<pre>{escape(text)}</pre>"


def _stuck(outcome: Outcome) -> list[str]:
    if not outcome.stuck:
        return []
    items = "".join(f"<li>{escape(s)}</li>" for s in outcome.stuck)
    return [f'<div class="note">The story did not settle in time:<ul>{items}</ul></div>']


def _named(outcome: Outcome) -> list[str]:
    rows = [_named_row(named) for named in outcome.named]
    if not rows:
        return ["<p>Nobody was named.</p>"]
    head = "<tr><th>named</th><th>by</th><th>reason</th><th>wrong with probability</th><th>evidence</th></tr>"
    return [f"<h3>Evidence (simulated measurements)</h3><table>{head}{''.join(rows)}</table>"]


def _named_row(named: Named) -> str:
    bound = "read, not inferred" if named.error_bound is None else f"at most {_plain_figure(named.error_bound)}"
    evidence = "<br/>".join(escape(s) for s in (named.message, *named.evidence) if s)
    nodes = f'<span class="whole">{" -<br/>".join(escape(node) for node in named.nodes)}</span>'
    cells = (nodes, escape(named.source), escape(named.reason), escape(bound), evidence)
    return f"<tr>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"


def _plain_figure(value: float) -> str:
    """Two significant digits without an exponent: 0.000076."""
    text = f"{Decimal(f'{value:.2g}'):f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _timelines(outcome: Outcome) -> list[str]:
    ledger: Ledger = build(outcome.records, outcome.start, outcome.end)
    shown = [row.node for row in outcome.fleet if row.trouble or row.state != State.IN_SERVICE.value]
    figures = []
    for node in shown:
        spans = [s for s in ledger.spans if s.node == node]
        svg = timeline_svg(node, spans, ledger.start_us, ledger.end_us)
        figures.append(
            f"<h3>{escape(node)}</h3><figure>{svg}<figcaption>{escape(node)}, simulated.</figcaption></figure>"
        )
    return figures or ["<p>No node was in trouble.</p>"]


def _fleet_table(outcome: Outcome) -> str:
    head = "<tr><th>node</th><th>domain</th><th>state</th><th>left service</th><th>ticket</th></tr>"
    rows = (
        f"<tr><td>{escape(r.node)}</td><td>{escape(r.domain)}</td><td>{escape(r.state)}</td><td>{r.left_service}</td>"
        f"<td>{escape(r.ticket or '-')}</td></tr>"
        for r in outcome.fleet
    )
    return f"<table>{head}{''.join(rows)}</table>"


def _events(outcome: Outcome) -> str:
    head = "<tr><th>simulated time</th><th>chapter</th><th>node</th><th>what</th></tr>"
    rows = (
        f"<tr><td>{moment(line.at)}</td><td>{escape(line.chapter)}</td><td>{escape(line.node)}</td>"
        f"<td>{escape(line.text)}</td></tr>"
        for line in outcome.lines
    )
    return f"<table>{head}{''.join(rows)}</table>"


def _waterfall_title(outcome: Outcome) -> str:
    return f"Simulated goodput waterfall: {outcome.goodput['goodput']:.1%} goodput"
