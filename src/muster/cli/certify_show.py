"""`muster certify status|report|explain|tests`: what certifications there are, and what one of them found."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from muster.cli.cluster import cluster_options, decoder, read_all, with_cluster
from muster.cli.environment import clock_from_environment
from muster.cli.output import Format, emit, format_option
from muster.errors import BadInputError, ExitCode
from muster.plain_text import plain

if TYPE_CHECKING:
    from muster.certify.report.model import NodeView, ReportModel
    from muster.kube.api import KubeApi
    from muster.resources.certification import Certification

FORMATS = ("text", "html", "json", "junit")


@click.command()
@click.argument("name", required=False)
@format_option
@cluster_options
def status(name: str | None, output: Format, kubeconfig: str | None, context: str | None) -> int:
    """All certifications, or how far NAME is and who is named so far.

    With NAME the exit code is 0 while it runs or when it passed, else 3.
    """
    if name is None:
        found = with_cluster(kubeconfig, context, _all)
        emit([row(c) for c in found], output, _print_rows)
        return ExitCode.OK
    report = with_cluster(kubeconfig, context, lambda api: _report(api, name))
    emit(_short(report), output, lambda _: click.echo(writer("text")(report), nl=False))
    unfinished = report.phase in ("Pending", "Running")
    return ExitCode.OK if unfinished or report.passed else ExitCode.NOT_SATISFIED


async def _all(api: KubeApi) -> list[Certification]:
    from muster.kube.api import CERTIFICATIONS
    from muster.resources.certification import Certification

    found = await read_all(api, CERTIFICATIONS, decoder(Certification))
    return sorted(found, key=lambda c: (str(c.metadata.creation_timestamp or ""), c.metadata.name))


def row(certification: Certification) -> dict[str, Any]:
    """One certification as plain values."""
    status = certification.status
    words = [node.verdict.value for node in status.nodes]
    return {
        "name": certification.metadata.name,
        "phase": status.phase.value,
        "profile": certification.spec.profile,
        "purpose": certification.spec.purpose.value,
        "round": status.round,
        "runs": status.cost.runs,
        "passed": words.count("Passed"),
        "failed": words.count("Failed"),
        "open": words.count("Undetermined") + words.count("Untested"),
        "started": status.started_at.isoformat() if status.started_at else None,
        "blocked": plain(status.blocked, 300),
        "message": plain(status.message, 500),
    }


def _print_rows(rows: list[dict[str, Any]]) -> None:
    from datetime import datetime

    from muster.operate.phrases import duration
    from muster.plain_text import aligned

    if not rows:
        click.echo("No certifications. 'muster certify run' starts one.")
        return
    now = clock_from_environment().now()
    lines = [("NAME", "PHASE", "PROFILE", "ROUND", "RUNS", "PASSED", "FAILED", "OPEN", "STARTED", "WHY")]
    for r in rows:
        since = f"{duration(now - datetime.fromisoformat(r['started']))} ago" if r["started"] else "-"
        why = plain(f"blocked: {r['blocked']}" if r["blocked"] else r["message"], 60) or "-"
        counts = (str(r["round"]), str(r["runs"]), str(r["passed"]), str(r["failed"]), str(r["open"]))
        lines.append((plain(r["name"], 80), r["phase"], plain(r["profile"], 40), *counts, since, why))
    for line in aligned(lines):
        click.echo(line)


def _short(report: ReportModel) -> dict[str, Any]:
    """The report without the runs and figures, for `status -o json`."""
    full: dict[str, Any] = msgspec.to_builtins(report)
    return {
        k: v for k, v in full.items() if k not in ("runs", "matrices", "curves", "stragglers", "waterfalls", "schema")
    }


@click.command()
@click.argument("name", required=False)
@click.option(
    "--file", "source", metavar="FILE", help="Read it from a file (YAML, or JSON of kubectl) and no cluster."
)
@click.option("-o", "--output", type=click.Choice(FORMATS), default="text", show_default=True, help="Format.")
@click.option("--to", metavar="FILE", help="Write it to FILE instead of the terminal.")
@cluster_options
def report(
    name: str | None, source: str | None, output: str, to: str | None, kubeconfig: str | None, context: str | None
) -> int:
    """The report of certification NAME as text, HTML, JSON or JUnit.

    Exit code 0 when every node passed, else 3, also while it still runs.
    """
    if source is not None:
        from muster.certify.report.build import build
        from muster.cli.certify_cluster import read_file

        made = build(*read_file(Path(source), name or ""))
    elif name is None:
        raise BadInputError("Say which certification: its NAME, or --file FILE; 'muster certify status' lists them.")
    else:
        wanted = name
        made = with_cluster(kubeconfig, context, lambda api: _report(api, wanted))
    written = writer(output)(made)
    if to is None:
        click.echo(written, nl=False)
    else:
        save(Path(to), written)
        click.echo(made.verdict if made.verdict.isprintable() else plain(made.verdict, 2000))
    return ExitCode.OK if made.passed else ExitCode.NOT_SATISFIED


def save(path: Path, text: str) -> None:
    """Write a report. Raises BadInputError."""
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise BadInputError(f"Cannot write {path}: {error.strerror or error}.") from error


def writer(output: str) -> Callable[[ReportModel], str]:
    """The writer of a format of FORMATS."""
    if output == "html":
        from muster.certify.report.html import html

        return html
    if output == "json":
        from muster.certify.report.json_ import json_text

        return json_text
    if output == "junit":
        from muster.certify.report.junit import junit

        return junit
    from muster.certify.report.text import text

    return text


@click.command()
@click.argument("name")
@click.argument("node")
@click.option(
    "--file", "source", metavar="FILE", help="Read it from a file (YAML, or JSON of kubectl) and no cluster."
)
@format_option
@cluster_options
def explain(
    name: str, node: str, source: str | None, output: Format, kubeconfig: str | None, context: str | None
) -> None:
    """The evidence for and against the verdict of certification NAME on NODE, and what to do next."""
    from muster.certify.report.build import build
    from muster.certify.report.text import explanation
    from muster.cli.certify_cluster import read_file

    if source is not None:
        made = build(*read_file(Path(source), name))
    else:
        made = with_cluster(kubeconfig, context, lambda api: _report(api, name))
    found = made.node(node) or _not_there(made, node)
    runs = [run for run in made.runs if node in run.nodes]
    content = {"node": msgspec.to_builtins(found), "runs": msgspec.to_builtins(runs)}
    emit(content, output, lambda _: click.echo(explanation(made, found)))


def _not_there(report: ReportModel, node: str) -> NodeView:
    """A partner that ran and gets no verdict. Raises BadInputError for a node that has no part in it."""
    from muster.certify.report.model import NodeView
    from muster.certify.report.words import PARTNER

    runs = [run for run in report.runs if node in run.nodes]
    if runs:
        return NodeView(
            name=node,
            verdict=PARTNER,
            message="Borrowed as a partner: it gets no verdict here.",
            evidence_for=tuple(run.id for run in runs if run.outcome in ("PASS", "WARN")),
            evidence_against=tuple(run.id for run in runs if run.outcome == "FAIL"),
        )
    close = difflib.get_close_matches(node, [n.name for n in report.nodes], n=1)
    hint = f"did you mean {close[0]}?" if close else f"'muster certify report {report.name}' lists its nodes."
    raise BadInputError(f"The certification {plain(report.name, 80)} has no node {plain(node, 80)}; {hint}")


async def _report(api: KubeApi, name: str) -> ReportModel:
    from muster.certify.report.build import build
    from muster.cli.certify_cluster import read_certification, read_parts

    certification = await read_certification(api, name)
    return build(certification, list((await read_parts(api, certification)).values()))


@click.command()
@format_option
def tests(output: Format) -> None:
    """The tests and profiles that there are."""
    from muster.certify import catalogue

    content = {
        "tests": [{**msgspec.to_builtins(test), "digest": test.digest} for test in catalogue.tests().values()],
        "profiles": [msgspec.to_builtins(profile) for profile in catalogue.profiles().values()],
    }
    emit(content, output, _print_tests)


def _print_tests(content: dict[str, Any]) -> None:
    from muster.plain_text import aligned

    rows = [("TEST", "SCOPE", "SECONDS", "UNIT", "LAYER", "WHAT")]
    for test in content["tests"]:
        cells = (str(test["duration_s"]), test.get("unit") or "-", test.get("layer") or "-")
        rows.append((test["name"], test["scope"], *cells, test.get("description", "")))
    for line in aligned(rows):
        click.echo(line)
    click.echo("")
    for profile in content["profiles"]:
        click.echo(f"profile {profile['name']}: {', '.join(profile['tests'])}")
        click.echo(f"  {profile.get('description', '')}")
