"""`muster drift`: how does the live cluster differ from its locked recipe?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from muster.cli.assert_ import kubernetes_version
from muster.cli.cluster import cluster_options, with_cluster, without_watch_warnings
from muster.cli.output import Format, emit, format_option
from muster.errors import BadInputError, ExitCode

if TYPE_CHECKING:
    from muster.clock import Clock
    from muster.configure.bundles.opened import OpenedBundle
    from muster.configure.live.snapshot import Recorded
    from muster.configure.live.state import LiveState
    from muster.kube.api import KubeApi
    from muster.resources.baseline import Drift


@click.command()
@click.argument("recipe", metavar="RECIPE|BUNDLE")
@click.option("--snapshot", metavar="FILE", help="Compare nodes with what 'muster snapshot' recorded of them, too.")
@click.option("--watch", is_flag=True, help="Go on, and print each drift as it comes and goes.")
@click.option(
    "--interval",
    "interval_s",
    type=click.FloatRange(1, 86400),
    default=None,
    metavar="SECONDS",
    help="With --watch: look at everything anew after so long, also when nothing changed; 300 unless given.",
)
@format_option
@cluster_options
def drift(
    recipe: str,
    snapshot: str | None,
    watch: bool,
    interval_s: float | None,
    output: Format,
    kubeconfig: str | None,
    context: str | None,
) -> int:
    """Compare the live cluster with RECIPE, or with a bundle with its changes (--set and the like).

    Exit code 0 when nothing differs, 3 when something does or a part could not be read, 4 when the cluster cannot be
    reached. Secret values are never printed.
    """
    from muster.cli.environment import clock_from_environment
    from muster.configure.bundles.opened import open_either
    from muster.configure.live.snapshot import read_recorded

    if interval_s is not None and not watch:
        raise BadInputError("--interval belongs to --watch; give both or neither.")
    opened = open_either(Path(recipe))
    recorded = read_recorded(Path(snapshot)) if snapshot is not None else ()
    clock = clock_from_environment()
    if watch:
        with without_watch_warnings():
            with_cluster(kubeconfig, context, lambda api: _watch(api, opened, recorded, clock, interval_s, output))
        return ExitCode.OK  # a watch has no end but Ctrl-C

    async def work(api: KubeApi) -> LiveState:
        from muster.configure.live.read import read

        version = await kubernetes_version(api)
        return await read(api, opened.recipe, opened.plan, now=clock.now(), kubernetes_version=version)

    state = with_cluster(kubeconfig, context, work)
    found = compare(opened, state, recorded)
    gaps = {"/".join(part for part in place if part): why for place, why in state.unread.items()}
    content = {
        "source": recipe,
        "recipe": opened.locked.digest,
        "drifts": [as_plain(d) for d in found],
        **({"unread": gaps} if gaps else {}),
    }
    emit(content, output, _print_table)
    return ExitCode.NOT_SATISFIED if found or gaps else ExitCode.OK


def compare(opened: OpenedBundle, state: LiveState, recorded: Sequence[Recorded]) -> tuple[Drift, ...]:
    """Recipe against cluster, and recorded nodes against nodes."""
    from muster.configure.live.drift import drift as drift_of
    from muster.configure.live.snapshot import against

    return (*drift_of(opened.recipe, opened.plan, state), *against(recorded, state))


async def _watch(
    api: KubeApi,
    opened: OpenedBundle,
    recorded: Sequence[Recorded],
    clock: Clock,
    interval_s: float | None,
    output: Format,
) -> None:
    from contextlib import aclosing
    from functools import partial

    from muster.configure.live.follow import RESYNC_S, Outage, follow

    version = partial(kubernetes_version, api)
    resync_s = RESYNC_S if interval_s is None else interval_s
    told = Told(output)
    states = follow(api, opened.recipe, opened.plan, clock, version=version, resync_s=resync_s)
    lost = False
    async with aclosing(states):
        async for state in states:
            if isinstance(state, Outage):
                click.echo(f"muster: {state.reason} Waiting for it.", err=True)
                lost = True
            else:
                if lost:
                    click.echo("muster: the API server answers again.", err=True)
                lost = False
                told.update(clock.now(), compare(opened, state, recorded), state.unread)


class Told:
    """What a watch has printed, so that only changes follow."""

    def __init__(self, output: Format) -> None:
        self._output = output
        self._drifts: dict[tuple[str, str, str, str], Drift] = {}
        self._gaps: dict[tuple[str, str], str] = {}
        self._first = True

    def update(self, now: datetime, drifts: Sequence[Drift], unread: Mapping[tuple[str, str], str]) -> None:
        """Print what is new, changed or gone. A failed assertion whose words change (counts, ages) is no news."""
        from muster.resources.baseline import DriftClass

        at = now.strftime("%Y-%m-%dT%H:%M:%SZ")
        found = {(d.drift_class.value, d.component, d.node, d.path): d for d in drifts}
        for key, each in self._drifts.items():
            if key not in found:
                _print_change(at, "gone", each, self._output)
        for key, each in found.items():
            if key not in self._drifts:
                _print_change(at, "new", each, self._output)
            elif self._drifts[key] != each and each.drift_class is not DriftClass.ASSERTION:
                _print_change(at, "changed", each, self._output)
        for place, why in unread.items():
            if self._gaps.get(place) != why:
                click.echo(f"muster: {' in '.join(p for p in place if p)} cannot be read: {why}.", err=True)
        if self._first and not found:
            click.echo("muster: nothing differs; watching.", err=True)
        self._drifts, self._gaps, self._first = found, dict(unread), False


def as_plain(each: Drift) -> dict[str, Any]:
    """What the machine-readable formats show."""
    from muster.configure.live.drift import severity

    plain = {"class": each.drift_class.value, "severity": severity(each.drift_class).value}
    for name in ("component", "node", "path", "expected", "found", "remedy"):
        if value := getattr(each, name):
            plain[name] = value
    return plain


def _print_change(at: str, change: str, each: Drift, output: Format) -> None:
    """One line a change, so that a pipe can follow."""
    import json
    import sys

    if output is Format.TABLE:
        click.echo(f"{at}  {change:<7}  {_line(as_plain(each))}")
    elif output is Format.JSON:
        click.echo(json.dumps({"at": at, "change": change, **as_plain(each)}, ensure_ascii=False))
    else:
        from muster import yamlio

        click.echo(yamlio.dumps_all([{"at": at, "change": change, **as_plain(each)}]), nl=False)
    sys.stdout.flush()


def _print_table(content: dict[str, Any]) -> None:
    for entry in content["drifts"]:
        click.echo(_line(entry))
        if entry.get("remedy"):
            click.echo(f"{'':<10}{entry['remedy']}")
    for place, why in content.get("unread", {}).items():
        click.echo(f"{'unread':<8}  {place}: {why}; what differs there cannot be told")
    if not content["drifts"]:
        click.echo("Nothing differs." if not content.get("unread") else "Nothing differs in what could be read.")


def _line(entry: dict[str, Any]) -> str:
    subject = entry.get("component") or entry.get("node") or "cluster"
    change = f"{entry.get('expected', '')} -> {entry.get('found', '')}"
    return f"{entry['severity']:<8}  {entry['class']:<13}  {subject}: {entry['path']}: {change}"
