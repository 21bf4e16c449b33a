"""`muster maintenance`: planned work at one look, and the record of all work on machines for export."""

from __future__ import annotations

from typing import Any

import click

from muster.cli.cluster import cluster_options, decoder, read_all, with_cluster
from muster.cli.output import Format, emit, format_option
from muster.kube.api import MAINTENANCES, NODE_HEALTHS, REPAIRS, KubeApi
from muster.plain_text import aligned, plain
from muster.resources.base import ConditionStatus
from muster.resources.maintenance import Maintenance
from muster.resources.node_health import NodeHealth
from muster.resources.repair import Repair


@click.group()
def maintenance() -> None:
    """Planned work on nodes (docs/how-to/planned-maintenance.md says how to declare it)."""


@maintenance.command(name="list")
@format_option
@cluster_options
def list_(output: Format, kubeconfig: str | None, context: str | None) -> None:
    """Every Maintenance: its window, where it stands, and how many nodes are where."""

    async def work(api: KubeApi) -> list[Maintenance]:
        return await read_all(api, MAINTENANCES, decoder(Maintenance))

    found = with_cluster(kubeconfig, context, work)
    found.sort(key=lambda m: (m.spec.opens_at, m.metadata.name))
    emit([row(m) for m in found], output, _print_rows)


def row(found: Maintenance) -> dict[str, Any]:
    """One Maintenance as plain values."""
    nodes: dict[str, int] = {}
    for node in found.status.nodes:
        nodes[node.progress.value] = nodes.get(node.progress.value, 0) + 1
    return {
        "name": found.metadata.name,
        "phase": found.status.phase.value,
        "opensAt": found.spec.opens_at.isoformat(),
        "closesAt": found.spec.closes_at.isoformat(),
        "emergency": found.spec.emergency,
        "requestedBy": plain(found.spec.requested_by),
        "reason": plain(found.spec.reason),
        "nodes": dict(sorted(nodes.items())),
        "problem": plain(_problem(found), 200),
    }


def _problem(found: Maintenance) -> str:
    """Why it moves no node: it cannot be carried out, or concerns none; empty where all is well."""
    valid = next((c for c in found.status.conditions if c.type == "Valid"), None)
    if valid is None or (valid.status is ConditionStatus.TRUE and found.status.nodes):
        return ""
    return valid.message


def _print_rows(rows: list[dict[str, Any]]) -> None:
    if not rows:
        click.echo("No maintenance is declared.")
        return
    table = [("NAME", "PHASE", "OPENS", "CLOSES", "NODES", "REASON")]
    for r in rows:
        nodes = ", ".join(f"{count} {name}" for name, count in r["nodes"].items()) or "-"
        opens, closes = (r[key][:16].replace("T", " ") + "Z" for key in ("opensAt", "closesAt"))
        table.append((r["name"], r["phase"], opens, closes, nodes, plain(r["reason"], 60)))
    for line in aligned(table):
        click.echo(line)
    for r in rows:
        if r["problem"]:
            click.echo(f"{r['name']}: {r['problem']}")


@maintenance.command(name="records")
@click.option("--account", default="", help="Account or tenant that the records are filed under.")
@format_option
@cluster_options
def records_(account: str, output: Format, kubeconfig: str | None, context: str | None) -> None:
    """Repairs, maintenance and notices of every machine, past, present and to come, with their times and tickets."""

    async def work(api: KubeApi) -> tuple[list[Maintenance], list[Repair], list[NodeHealth]]:
        from muster.operate.views import node_health

        return (
            await read_all(api, MAINTENANCES, decoder(Maintenance)),
            await read_all(api, REPAIRS, decoder(Repair)),
            await read_all(api, NODE_HEALTHS, node_health),
        )

    from muster.operate.maintenance.records import records
    from muster.resources.base import to_object

    maintenances, repairs, healths = with_cluster(kubeconfig, context, work)
    found = records(maintenances, repairs, healths, account=account)
    emit([{name: to_object(r).get(name) for name in _FIELDS} for r in found], output, _print_records)


_FIELDS = (
    "opened",
    "updated",
    "closed",
    "hardwareId",
    "category",
    "faultText",
    "actionClass",
    "account",
    "ticketId",
    "handover",
)


def _print_records(rows: list[dict[str, Any]]) -> None:
    if not rows:
        click.echo("No repair, no maintenance and no notice is known.")
        return
    table = [("MACHINE", "CATEGORY", "ACTION", "OPENED", "CLOSED", "TICKET", "WHY")]
    for r in rows:
        opened, closed = ((r[key] or "")[:16].replace("T", " ") or "-" for key in ("opened", "closed"))
        machine, category, action = (str(r[key] or "-") for key in ("hardwareId", "category", "actionClass"))
        table.append(
            (machine, category, action, opened, closed, r["ticketId"] or "-", plain(r["faultText"] or "", 60))
        )
    for line in aligned(table):
        click.echo(line)
