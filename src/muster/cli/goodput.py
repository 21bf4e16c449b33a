"""`muster goodput`: where the node-hours went, from a history, or from what a live cluster still knows."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import click

from muster.cli.cluster import cluster_options
from muster.cli.environment import clock_from_environment
from muster.cli.output import Format, emit, format_option
from muster.errors import BadInputError
from muster.plain_text import plain

if TYPE_CHECKING:
    from muster.cli.goodput_source import Source

_UNITS = {"m": 60, "h": 3600, "d": 86400}
BY = ("cause", "class", "fault", "node", "pool", "rung")
LONGEST = timedelta(days=3660)


@dataclass(frozen=True)
class _Window:
    start: datetime
    end: datetime


@click.command()
@click.option("--since", default=None, help="Window that ends now: a number with m, h or d.  [default: 24h]")
@click.option("--from", "start", metavar="TIME", help="Begin of the window, such as 2026-03-01 or 2026-03-01T08:00Z.")
@click.option("--to", "end", metavar="TIME", help="End of the window.  [default: now]")
@click.option("--pool", default="", help="Only nodes of this pool.")
@click.option("--node", default="", help="Only this node.")
@click.option("--by", type=click.Choice(BY), help="Show the same time in rows by this, the greatest loss first.")
@click.option(
    "--history",
    metavar="URL",
    envvar="MUSTER_HISTORY_URL",
    help="The history that the controller keeps (docs/how-to/keep-history.md); without it the cluster is asked.",
)
@click.option(
    "--job-log",
    "job_logs",
    multiple=True,
    metavar="JOB=FILE",
    help="Log of a job (namespace/name=FILE), to say what it made of its time; may be repeated.",
)
@click.option("--svg", metavar="FILE", help="Write the waterfall as a picture, too.")
@format_option
@cluster_options
def goodput(
    since: str | None,
    start: str | None,
    end: str | None,
    pool: str,
    node: str,
    by: str | None,
    history: str | None,
    job_logs: tuple[str, ...],
    svg: str | None,
    output: Format,
    kubeconfig: str | None,
    context: str | None,
) -> None:
    """Where the node-hours went, by cause.

    With --history from the database that the controller writes. Without it from what the cluster holds now: the
    history of each NodeHealth and the pods that still exist; time in service whose pods are gone counts as not known.
    Each node and second has one class, and the classes add up exactly.
    """
    from muster.cli import goodput_source
    from muster.operate.goodput_breakdown import By
    from muster.operate.goodput_report import goodput_values, render_goodput
    from muster.operate.goodput_svg import waterfall_svg
    from muster.operate.jobs import job_times

    now = clock_from_environment().now()
    window = _window(since, start, end, now)
    if job_logs and not history:
        raise BadInputError("--job-log needs --history: only there it stands when the job ran and on which nodes.")
    logs = goodput_source.read_job_logs(job_logs)
    if history:
        source = goodput_source.from_history(history, window.start, window.end)
    else:
        source = goodput_source.from_cluster(kubeconfig, context, now)
    source = _chosen(source, pool, node)
    jobs = None
    if source.work is not None:
        goodput_source.require_jobs(logs, source.work)
        jobs = job_times(source.work, logs, window.start, window.end)
    values = goodput_values(
        source.records,
        window.start,
        window.end,
        by=By(by) if by else None,
        jobs=jobs,
        waited=source.waits(window.start, window.end),
    )
    if svg is not None:
        title = f"Goodput {values['goodput']:.1%}, {window.start:%Y-%m-%d %H:%M} to {window.end:%Y-%m-%d %H:%M} UTC"
        _write(Path(svg), waterfall_svg(values, title, alone=True))
    emit(values, output, lambda shown: click.echo(render_goodput(shown)))
    for sentence in source.notes:
        click.echo(sentence, err=True)


def parse_window(text: str) -> timedelta:
    """`90m`, `24h`, `7d` as a span. Raises BadInputError."""
    match = re.fullmatch(r"([0-9]{1,6})([mhd])", text.strip())
    if match is None or int(match[1]) == 0:
        raise BadInputError(f'"{text[:40]}" is not a window; give a number above 0 with m, h or d, such as 24h.')
    span = timedelta(seconds=int(match[1]) * _UNITS[match[2]])
    if span > LONGEST:
        raise BadInputError(f"{text} is longer than ten years; give a shorter window.")
    return span


def parse_time(text: str, option: str) -> datetime:
    """A date or a time in ISO 8601, UTC unless it names another offset. Raises BadInputError."""
    try:
        found = datetime.fromisoformat(text.strip())
        return found.astimezone(UTC) if found.tzinfo else found.replace(tzinfo=UTC)
    except (ValueError, OverflowError) as error:
        raise BadInputError(
            f"{option} {plain(text, 40)!r} is not a time; write it like 2026-03-01 or 2026-03-01T08:00Z."
        ) from error


def _window(since: str | None, start: str | None, end: str | None, now: datetime) -> _Window:
    if since is not None and (start is not None or end is not None):
        raise BadInputError("--since ends now; give either --since, or --from and --to.")
    if end is not None and start is None:
        raise BadInputError("--to needs --from; give both.")
    if start is None:
        return _Window(now - parse_window(since or "24h"), now)
    first, last = parse_time(start, "--from"), parse_time(end, "--to") if end is not None else now
    if not first < last <= now:
        raise BadInputError("The window must begin before it ends, and end before now; check --from and --to.")
    if last - first > LONGEST:
        raise BadInputError("The window is longer than ten years; give a shorter one.")
    return _Window(first, last)


def _chosen(source: Source, pool: str, node: str) -> Source:
    """The part about one pool or node. Raises BadInputError when there is none."""
    records = source.records
    if pool:
        records = tuple(r for r in records if r.pool == pool)
        if not records:
            pools = ", ".join(sorted({plain(r.pool, 80) for r in source.records})[:20])
            raise BadInputError(f"No node is in pool {plain(pool, 80)}; pools with nodes: {pools or 'none'}.")
    if node:
        records = tuple(r for r in records if r.name == node)
        if not records:
            raise BadInputError(f"There is nothing about node {plain(node, 80)} in the window; check its name.")
    return source.only(records) if pool or node else source


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise BadInputError(f"Cannot write {path}: {error.strerror or error}.") from error
