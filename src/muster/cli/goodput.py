"""`muster goodput`: where the node-hours of a live cluster went."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import Any

import click
import msgspec

from muster.cli.cluster import cluster_options, decoder, read_all, with_cluster
from muster.cli.environment import clock_from_environment
from muster.cli.output import Format, emit, format_option
from muster.errors import BadInputError
from muster.kube.api import NODE_HEALTHS, NODES, PODS, REPAIRS, KubeApi
from muster.operate.ledger import NodeRecord
from muster.resources.base import ObjectMeta
from muster.resources.repair import Repair

_UNITS = {"m": 60, "h": 3600, "d": 86400}


class _Node(msgspec.Struct):
    metadata: ObjectMeta


@click.command()
@click.option("--since", default="24h", show_default=True, help="Window that ends now: a number with m, h or d.")
@click.option("--pool", default="", help="Only nodes of this pool.")
@format_option
@cluster_options
def goodput(since: str, pool: str, output: Format, kubeconfig: str | None, context: str | None) -> None:
    """Where the node-hours went, by cause.

    Read from what the cluster holds now: the history of each NodeHealth and the pods that still exist. Time in
    service whose pods are gone counts as not known.
    """
    from muster.operate.goodput_report import goodput_values, render_goodput

    window = parse_window(since)
    records, now = with_cluster(kubeconfig, context, lambda api: _read(api, clock_from_environment().now()))
    if pool:
        pools = sorted({r.pool for r in records})
        records = tuple(r for r in records if r.pool == pool)
        if not records:
            raise BadInputError(f"No node is in pool {pool}; pools with nodes: {', '.join(pools) or 'none'}.")
    values = goodput_values(records, now - window, now)
    emit(values, output, lambda shown: click.echo(render_goodput(shown)))


def parse_window(text: str) -> timedelta:
    """`90m`, `24h`, `7d` as a span. Raises BadInputError."""
    match = re.fullmatch(r"([0-9]{1,6})([mhd])", text.strip())
    if match is None or int(match[1]) == 0:
        raise BadInputError(f'"{text[:40]}" is not a window; give a number above 0 with m, h or d, such as 24h.')
    return timedelta(seconds=int(match[1]) * _UNITS[match[2]])


async def _read(api: KubeApi, now: datetime) -> tuple[tuple[NodeRecord, ...], datetime]:
    from muster.operate.records import pod_use, snapshot_records
    from muster.operate.views import node_health
    from muster.resources.topology import pool_of

    healths = await read_all(api, NODE_HEALTHS, node_health)
    uses = await read_all(api, PODS, pod_use)
    repairs = await read_all(api, REPAIRS, decoder(Repair))
    found: list[Any] = await read_all(api, NODES, decoder(_Node))
    pools = {n.metadata.name: pool_of(n.metadata.labels) for n in found}
    return snapshot_records(healths, uses, repairs, pools, now), now
