"""`muster policy export` and `backtest`: the history of a cluster as a file, and policies replayed on it."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from muster.cli.cluster import cluster_options, read_all, with_cluster
from muster.cli.environment import clock_from_environment
from muster.cli.output import Format, emit, format_option
from muster.cli.policy_files import load_policies, read_bytes
from muster.errors import BadInputError
from muster.plain_text import counted

if TYPE_CHECKING:
    from muster.kube.api import KubeApi
    from muster.operate.backtest.recording import Recording

MAX_RECORDING_BYTES = 2 * 1024**3
SHOWN = 40
"""Rows of each kind that the table shows."""


@click.command()
@click.option(
    "--to", "target", default="-", metavar="FILE", help="Where to write it; the standard output if not given."
)
@cluster_options
def export(target: str, kubeconfig: str | None, context: str | None) -> None:
    """Write the history that the cluster keeps (nodes, faults of the last week, policies) as JSON.

    It holds node names, labels and log lines of faults, and no secrets.
    """
    from muster.operate.backtest.recording import encode

    recording = with_cluster(kubeconfig, context, _record)
    data = encode(recording)
    if target == "-":
        click.echo(data.decode(), nl=False)
        return
    try:
        Path(target).write_bytes(data)
    except OSError as error:
        raise BadInputError(f"{target} cannot be written ({error.strerror}); give another file.") from error
    policies = "1 policy" if len(recording.policies) == 1 else f"{len(recording.policies)} policies"
    click.echo(f"{target}: {counted(len(recording.nodes), 'node')}, {policies}.")


@click.command()
@click.argument("files", nargs=-1, required=True, metavar="RULES.yaml...")
@click.option("--history", default="", metavar="FILE", help="A file of 'muster policy export'.")
@click.option("--cluster", is_flag=True, help="The history that the live cluster keeps.")
@click.option("--since", default="", help="Only what happened in the last 90m, 24h or 7d.")
@click.option("--alone", is_flag=True, help="Without the policies that are in force now.")
@format_option
@cluster_options
def backtest(
    files: tuple[str, ...],
    history: str,
    cluster: bool,
    since: str,
    alone: bool,
    output: Format,
    kubeconfig: str | None,
    context: str | None,
) -> None:
    """What the policies of RULES.yaml would have asked for, against those in force.

    They join the policies of the recording; one of the same name takes the place of its elder.
    """
    from muster.cli.goodput import parse_window
    from muster.operate.backtest.compare import compare
    from muster.operate.backtest.recording import decode
    from muster.operate.backtest.replay import not_all_of, replay
    from muster.operate.policy import problems

    if bool(history) == cluster:
        raise BadInputError("Say where the history comes from: --history FILE or --cluster, one of them.")
    given = [one for _, one in load_policies(files)]
    for one in given:
        if problems(one):
            raise BadInputError(f"{problems(one)[0]} Mend it before you replay it.")
    if cluster:
        recording = with_cluster(kubeconfig, context, _record)
    else:
        recording = decode(read_bytes(history, MAX_RECORDING_BYTES), history)
    begin = recording.exported_at - parse_window(since) if since else None
    names = {one.metadata.name for one in given}
    kept = [] if alone else [one for one in recording.policies if one.metadata.name not in names]
    values = compare(
        recording,
        replay(recording, [*kept, *given], begin),
        replay(recording, recording.policies, begin),
        begin,
        cut=not_all_of(recording, [*kept, *given], begin),
    )
    emit(values, output, _print)


async def _record(api: KubeApi) -> Recording:
    from muster.kube.api import FAULT_POLICIES, NODE_HEALTHS, NODES
    from muster.operate.backtest.recording import record
    from muster.operate.views import fault_policy, node_health, node_record

    healths = await read_all(api, NODE_HEALTHS, node_health)
    nodes = await read_all(api, NODES, node_record)
    policies = await read_all(api, FAULT_POLICIES, fault_policy.decode)
    return record(healths, {n.name: n.labels for n in nodes}, policies, clock_from_environment().now())


def _print(values: dict[str, Any]) -> None:
    from muster.plain_text import plain

    span = (
        f"{_at(values['from'])} to {_at(values['to'])}" if values["from"] else f"no fault up to {_at(values['to'])}"
    )
    click.echo(f"{counted(values['nodes'], 'node')}, {span}")
    for who in ("present", "candidate"):
        t = values[who]
        click.echo(
            f"{who:<10} {counted(t['faults'], 'fault')} judged: {counted(t['holds'], 'hold')}, "
            f"{counted(t['drains'], 'drain')}, {counted(t['repairs'], 'repair')} on {counted(t['nodes'], 'node')}"
        )
    click.echo("\nRULE                            HOLDS  DRAINS  REPAIRS   (present: holds, drains, repairs)")
    for row in values["rules"]:
        p = row["present"]
        click.echo(
            f"{plain(row['rule'], 30):<30} {row['holds']:>6} {row['drains']:>7} {row['repairs']:>8}   "
            f"({p['holds']}, {p['drains']}, {p['repairs']})"
        )
    for title, key in (("Acts where the present policy does not", "new"), ("Held back by a correlation", "heldBack")):
        if values[key]:
            click.echo(f"\n{title}:")
            for row in values[key][:SHOWN]:
                why = f" ({plain(row['cappedBy'], 100)})" if row["cappedBy"] else ""
                click.echo(
                    f"  {_at(row['at'])}  {plain(row['node'], 40)}  {plain(row['fault'], 60)}: {row['disposition']} "
                    f"by {plain(row['rule'], 40)}{why}"
                )
            _more(values[key])
    if values["missed"]:
        click.echo("\nWould have missed:")
        for row in values["missed"][:SHOWN]:
            click.echo(
                f"  {_at(row['at'])}  {plain(row['node'], 40)}  {plain(row['fault'], 60)}  "
                f"{plain(row['because'], 200)}"
            )
        _more(values["missed"])
    if values["unknown"]:
        click.echo("\nNobody can tell from this recording:")
        for sentence in values["unknown"]:
            click.echo(f"  {sentence}")
    click.echo(f"\n{values['note']}")


def _at(stamp: str) -> str:
    from muster.operate.phrases import moment

    return moment(datetime.fromisoformat(stamp).astimezone(UTC))


def _more(rows: list[dict[str, Any]]) -> None:
    if len(rows) > SHOWN:
        click.echo(f"  and {len(rows) - SHOWN} more; '-o json' lists them (at most 200 of each kind)")
