"""`muster assert`: does the live cluster hold what a recipe promises?"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from muster.cli.cluster import cluster_options, with_cluster, without_watch_warnings
from muster.cli.output import Format, emit, format_option
from muster.errors import ExitCode

if TYPE_CHECKING:
    from muster.clock import Clock
    from muster.configure.bundles.opened import OpenedBundle
    from muster.kube.api import KubeApi
    from muster.resources.baseline import Assertion


@click.command("assert")
@click.argument("recipe", metavar="RECIPE|BUNDLE")
@click.option(
    "--wait",
    "wait_s",
    type=click.FloatRange(0, 86400),
    metavar="SECONDS",
    help="Wait until all hold, at most so long; exit code 5 when the time runs out.",
)
@click.option(
    "--confirm",
    "confirmed",
    multiple=True,
    metavar="NAME=VALUE",
    help="Vouch for a constraint that nothing in the cluster tells, such as aks.gpu-pools.gpu-driver=Install.",
)
@click.option("--all", "everything", is_flag=True, help="Show in the table what passed, too.")
@format_option
@cluster_options
def assert_(
    recipe: str,
    wait_s: float | None,
    confirmed: tuple[str, ...],
    everything: bool,
    output: Format,
    kubeconfig: str | None,
    context: str | None,
) -> int:
    """Check the live cluster against RECIPE, or against a bundle with its changes (--set and the like).

    Every assertion passes, fails or is unknown; unknown is never a pass. Exit code 0 when all passed, 3 when one
    failed or is unknown, 4 when the cluster cannot be reached, 5 when --wait ran out.
    """
    from muster.cli.environment import clock_from_environment
    from muster.configure.bundles.opened import open_either
    from muster.configure.live.nodes import read_confirmed

    vouched = read_confirmed(confirmed)
    opened = open_either(Path(recipe))
    clock = clock_from_environment()

    async def work(api: KubeApi) -> tuple[Sequence[Assertion], bool]:
        return await look(api, opened, clock, wait_s, lambda line: click.echo(f"muster: {line}", err=True), vouched)

    with without_watch_warnings():
        found, late = with_cluster(kubeconfig, context, work)
    emit(as_plain(recipe, opened, found), output, lambda content: _print_table(content, everything))
    if all(a.result.value == "passed" for a in found):
        return ExitCode.OK
    if late:
        click.echo(f"muster: not all assertions passed within {wait_s:g} s.", err=True)
        return ExitCode.TIMEOUT
    return ExitCode.NOT_SATISFIED


async def look(
    api: KubeApi,
    opened: OpenedBundle,
    clock: Clock,
    wait_s: float | None,
    tell: Callable[[str], None],
    confirmed: Mapping[str, str] | None = None,
) -> tuple[Sequence[Assertion], bool]:
    """The assertions, and whether `wait_s` ran out before all of them passed. `tell` receives the progress."""
    import asyncio
    from contextlib import aclosing
    from dataclasses import replace
    from functools import partial

    from muster.configure.live.assess import assess
    from muster.configure.live.follow import Outage, follow
    from muster.configure.live.read import read
    from muster.resources.baseline import AssertionResult

    if wait_s is None:
        version = await kubernetes_version(api)
        state = await read(api, opened.recipe, opened.plan, now=clock.now(), kubernetes_version=version)
        return assess(opened.recipe, opened.plan, replace(state, confirmed=confirmed or {})), False
    found: Sequence[Assertion] = ()
    looked, done = asyncio.Event(), asyncio.Event()

    async def until_all_pass() -> None:
        nonlocal found
        states = follow(api, opened.recipe, opened.plan, clock, version=partial(kubernetes_version, api))
        async with aclosing(states):
            async for state in states:
                if isinstance(state, Outage):
                    tell(state.reason)
                    continue
                found = assess(opened.recipe, opened.plan, replace(state, confirmed=confirmed or {}))
                looked.set()
                open_ = [a for a in found if a.result is not AssertionResult.PASSED]
                if not open_:
                    done.set()
                    return
                tell(f"{len(found) - len(open_)} of {len(found)} pass; waiting for {open_[0].name}")

    watching = asyncio.ensure_future(until_all_pass())
    timer = asyncio.ensure_future(clock.sleep(wait_s))
    first = asyncio.ensure_future(looked.wait())
    try:
        # However short the wait: one look is always taken.
        await asyncio.wait((watching, first), return_when=asyncio.FIRST_COMPLETED)
        await asyncio.wait((watching, timer), return_when=asyncio.FIRST_COMPLETED)
        if watching.done():
            watching.result()
        return found, not done.is_set()
    finally:
        for task in (watching, timer, first):
            task.cancel()
        await asyncio.gather(watching, timer, first, return_exceptions=True)


async def kubernetes_version(api: KubeApi) -> str:
    """The version of the API server, as it tells it; empty when it may not be read (constraints are then unknown)."""
    from muster.kube.api import ForbiddenError
    from muster.kube.http import HttpApi

    if not isinstance(api, HttpApi):
        return ""
    try:
        return await api.server_version()
    except ForbiddenError as error:
        if error.code == 401:
            raise
        return ""


def as_plain(source: str, opened: OpenedBundle, found: Sequence[Assertion]) -> dict[str, Any]:
    """What the machine-readable formats show."""
    counts = {word: sum(1 for a in found if a.result.value == word) for word in ("passed", "failed", "unknown")}
    return {
        "source": source,
        "recipe": opened.locked.digest,
        **counts,
        "assertions": [
            {"name": a.name, "result": a.result.value, **({"message": a.message} if a.message else {})} for a in found
        ],
    }


def _print_table(content: dict[str, Any], everything: bool) -> None:
    rank = {"failed": 0, "unknown": 1, "passed": 2}
    for entry in sorted(content["assertions"], key=lambda a: rank[a["result"]]):
        if entry["result"] != "passed" or everything:
            click.echo(f"{entry['result']:<7}  {entry['name']}")
            if entry.get("message"):
                click.echo(f"         {entry['message']}")
    click.echo(f"{content['passed']} passed, {content['failed']} failed, {content['unknown']} unknown")
