"""`muster nodes` and `muster node`: the fleet, one node explained, and a person's decisions about it."""

from __future__ import annotations

import difflib
import getpass
import secrets
from datetime import datetime
from typing import Any

import click
import msgspec

from muster.cli.cluster import cluster_options, decoder, read_all, with_cluster
from muster.cli.environment import clock_from_environment
from muster.cli.output import Format, emit, format_option
from muster.errors import BadInputError
from muster.kube.api import CERTIFICATIONS, NODE_HEALTHS, REPAIRS, KubeApi, NotFoundError, PatchType
from muster.operate.phrases import duration
from muster.plain_text import plain
from muster.resources.certification import Certification
from muster.resources.node_health import NodeHealth, Standing, State, Verb
from muster.resources.repair import Repair

PERSON_MANAGER = "muster-cli"


@click.command()
@click.option(
    "--state",
    "states",
    multiple=True,
    type=click.Choice([s.value for s in State], case_sensitive=False),
    help="Only nodes in this state; may be given several times.",
)
@format_option
@cluster_options
def nodes(states: tuple[str, ...], output: Format, kubeconfig: str | None, context: str | None) -> None:
    """The fleet, one line a node."""

    async def work(api: KubeApi) -> list[NodeHealth]:
        from muster.operate.views import node_health

        return await read_all(api, NODE_HEALTHS, node_health)

    healths = with_cluster(kubeconfig, context, work)
    rows = [row(health) for health in sorted(healths, key=lambda h: h.metadata.name)]
    wanted = [state.lower() for state in states]
    emit([r for r in rows if not wanted or r["state"].lower() in wanted], output, _print_rows)


def row(health: NodeHealth) -> dict[str, Any]:
    """One node as plain values: what the table and the machine-readable formats show."""
    life = health.status.lifecycle
    faults = len(health.status.observed.faults) if health.status.observed else 0
    if life is None:
        return {
            "node": health.metadata.name,
            "state": "unknown",
            "since": None,
            "held": False,
            "faults": faults,
            "cause": "",
            "next": "A controller has to look at it.",
        }
    cause = life.episode.cause if life.episode else None
    return {
        "node": health.metadata.name,
        "state": life.state.value,
        "since": life.since.isoformat(),
        "held": life.held,
        "faults": faults,
        "cause": plain(cause.message or cause.name or cause.kind.value) if cause else "",
        "next": plain(life.next),
    }


def _print_rows(rows: list[dict[str, Any]]) -> None:
    if not rows:
        click.echo("No nodes.")
        return
    now = clock_from_environment().now()
    table = [("NODE", "STATE", "SINCE", "HELD", "FAULTS", "CAUSE", "NEXT")]
    for r in rows:
        since = duration(now - datetime.fromisoformat(r["since"])) if r["since"] else "-"
        held = "yes" if r["held"] else "no"
        table.append(
            (r["node"], r["state"], since, held, str(r["faults"]), plain(r["cause"], 60) or "-", plain(r["next"], 80))
        )
    widths = [max(len(line[column]) for line in table) for column in range(len(table[0]))]
    for line in table:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


@click.command()
@click.argument("name")
@click.argument("verb", required=False, type=click.Choice(["hold", *(v.value for v in Verb)]))
@click.option("--reason", default="", help="Why; required to hold.")
@click.option("--by", default="", help="Who decides; your user name if left out.")
@format_option
@cluster_options
def node(
    name: str, verb: str | None, reason: str, by: str, output: Format, kubeconfig: str | None, context: str | None
) -> None:
    """Explain node NAME, or decide about it.

    hold keeps it out of service until released; release ends a hold or an episode (the node must still pass its
    tests); approve lets a step go on that asks for approval; retry starts the repair ladder again; retire gives the
    node up.
    """
    if verb is None:
        if reason or by:
            raise BadInputError(
                "--reason and --by belong to a decision; add hold, release, approve, retry or retire."
            )
        emit_explanation(with_cluster(kubeconfig, context, lambda api: explained(api, name)), output)
        return
    if verb == "hold" and not reason.strip():
        raise BadInputError("A hold needs a reason that others can read: add --reason TEXT.")
    patch = decision_patch(verb, by.strip() or _user(), reason.strip(), clock_from_environment().now())
    with_cluster(kubeconfig, context, lambda api: decide(api, name, patch))
    emit({"node": name, "spec": patch["spec"]}, output, lambda _: click.echo(f"{name}: {verb} is filed."))


def decision_patch(verb: str, by: str, reason: str, now: datetime) -> dict[str, Any]:
    """The merge patch of NodeHealth.spec for a person's decision. Each decision has a fresh ID and acts once."""
    at = now.isoformat()
    if verb == "hold":
        return {"spec": {"hold": {"by": by, "reason": reason, "at": at}}}
    decision = {"id": f"{verb}-{secrets.token_hex(6)}", "verb": verb, "by": by, "at": at, "reason": reason}
    spec: dict[str, Any] = {"decision": decision}
    if verb == Verb.RELEASE.value:
        spec["hold"] = None
    return {"spec": spec}


async def decide(api: KubeApi, name: str, patch: dict[str, Any]) -> None:
    """Write a decision. Raises BadInputError when there is no such node or nothing to decide."""
    from muster.operate.views import node_health_of

    try:
        _check_use(node_health_of(await api.get(NODE_HEALTHS, name)), patch)
        await api.patch(NODE_HEALTHS, name, patch, PatchType.MERGE, manager=PERSON_MANAGER)
    except NotFoundError as error:
        raise await _unknown_node(api, name) from error


def _check_use(health: NodeHealth, patch: dict[str, Any]) -> None:
    """A node that works on a valid certificate waits for nothing, so there is nothing to approve or to retry."""
    verb = patch["spec"].get("decision", {}).get("verb", "")
    life = health.status.lifecycle
    certificate = life.certificate if life is not None else None
    works = life is not None and life.state is State.IN_SERVICE and not life.blockers
    if verb in (Verb.APPROVE, Verb.RETRY) and works and certificate and certificate.standing is Standing.VALID:
        raise BadInputError(
            f"{health.metadata.name} is in service with a valid certificate: there is nothing to {verb}; "
            f"'muster node {health.metadata.name}' explains it."
        )


async def explained(api: KubeApi, name: str) -> Any:
    """The explanation of one node from the live cluster. Raises BadInputError when there is no such node."""
    from muster.operate.explain import explain
    from muster.operate.views import node_health_of

    try:
        health = node_health_of(await api.get(NODE_HEALTHS, name))
    except NotFoundError as error:
        raise await _unknown_node(api, name) from error
    except msgspec.ValidationError as error:
        raise BadInputError(f"The NodeHealth of {name} cannot be read: {error}.") from error
    certifications = await read_all(api, CERTIFICATIONS, decoder(Certification))
    repairs = await read_all(api, REPAIRS, decoder(Repair))
    return explain(health, certifications, repairs, now=clock_from_environment().now())


def emit_explanation(explanation: Any, output: Format) -> None:
    from muster.operate.explain_text import render

    emit(msgspec.to_builtins(explanation), output, lambda _: click.echo(render(explanation)))


async def _unknown_node(api: KubeApi, name: str) -> BadInputError:
    from muster.operate.views import node_health

    names = sorted(h.metadata.name for h in await read_all(api, NODE_HEALTHS, node_health))
    close = difflib.get_close_matches(name, names, n=1)
    shown = plain(name, 80)
    if close:
        return BadInputError(f"There is no node {shown} that Muster knows; did you mean {close[0]}?")
    return BadInputError(f"There is no node {shown} that Muster knows; 'muster nodes' lists them.")


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):
        return "unknown"
