"""`muster nodes` and `muster node`: the fleet, one node explained, and a person's decisions about it."""

from __future__ import annotations

import difflib
import getpass
import re
import secrets
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import click
import msgspec

from muster.cli.cluster import cluster_options, decoder, read_all, with_cluster
from muster.cli.environment import clock_from_environment
from muster.cli.output import Format, emit, format_option
from muster.errors import BadInputError
from muster.kube.api import (
    CERTIFICATIONS,
    MAINTENANCES,
    NODE_HEALTHS,
    NODES,
    REPAIRS,
    KubeApi,
    NotFoundError,
    PatchType,
)
from muster.operate.phrases import duration
from muster.plain_text import aligned, plain
from muster.resources.certification import Certification
from muster.resources.fault import Severity
from muster.resources.maintenance import Maintenance
from muster.resources.node_health import Cause, CauseKind, Lifecycle, NodeHealth, Standing, State, Verb
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
@click.option(
    "--waits", "waits", multiple=True, metavar="KIND", help="Only nodes that wait for this: budget, pod, ..."
)
@click.option(
    "--fault", "fault", default="", metavar="TEXT", help="Only nodes with an open fault whose key has TEXT."
)
@click.option(
    "-l", "--selector", default="", metavar="LABELS", help="Only nodes with these labels, as kubectl has it."
)
@format_option
@cluster_options
def nodes(
    states: tuple[str, ...],
    waits: tuple[str, ...],
    fault: str,
    selector: str,
    output: Format,
    kubeconfig: str | None,
    context: str | None,
) -> None:
    """The fleet, one line a node, and how many nodes are in which state."""
    from muster.operate.model import BlockerKind

    unknown = sorted(set(waits) - {kind.value for kind in BlockerKind})
    if unknown:
        known = ", ".join(kind.value for kind in BlockerKind)
        raise BadInputError(f"--waits {plain(unknown[0], 40)} is nothing that a node waits for; give one of {known}.")

    async def work(api: KubeApi) -> tuple[list[NodeHealth], frozenset[str] | None]:
        from muster.operate.views import node_health, node_record

        healths = await read_all(api, NODE_HEALTHS, node_health)
        if not selector:
            return healths, None
        chosen = await read_all(api, NODES, node_record, label_selector=selector)
        return healths, frozenset(record.name for record in chosen)

    healths, chosen = with_cluster(kubeconfig, context, work)
    rows = [row(health) for health in sorted(healths, key=lambda h: h.metadata.name)]
    wanted = [state.lower() for state in states]
    emit(
        [
            r
            for r in rows
            if (not wanted or r["state"].lower() in wanted)
            and (not waits or any(kind in waits for kind in r["waits"]))
            and (not fault or any(fault in key for key in r["faultKeys"]))
            and (chosen is None or r["node"] in chosen)
        ],
        output,
        _print_rows,
    )


def row(health: NodeHealth) -> dict[str, Any]:
    """One node as plain values: what the table and the machine-readable formats show."""
    life = health.status.lifecycle
    observed = health.status.observed.faults if health.status.observed else ()
    faults = sorted(
        (*observed, *(life.derived if life else ())), key=lambda f: (_HEAVIEST.index(f.severity), f.key())
    )
    found: dict[str, Any] = {
        "node": health.metadata.name,
        "state": "unknown",
        "since": None,
        "held": False,
        "certificate": "",
        "faults": len(faults),
        "faultKeys": [plain(f.key(), 200) for f in faults],
        "waits": [],
        "cause": "",
        "next": "Nothing until a controller runs.",
    }
    if life is None:
        return found
    cause = _cause(life)
    return found | {
        "state": life.state.value,
        "since": life.since.isoformat(),
        "held": life.held,
        "certificate": life.certificate.standing.value if life.certificate else "",
        "waits": [b.kind for b in life.blockers],
        "cause": plain(cause.message or cause.name or cause.kind.value) if cause else "",
        "next": plain(life.next),
    }


def _cause(life: Lifecycle) -> Cause | None:
    """What took it out: what opened its episode, or the tests that it failed if that was no trouble by itself."""
    episode = life.episode
    if episode is None or episode.cause.kind not in _NO_TROUBLE:
        return episode.cause if episode else None
    failed = (
        step.cause
        for step in reversed(life.history)
        if step.episode == episode.id
        and step.state is State.QUARANTINED
        and step.cause.kind is CauseKind.CERTIFICATION
    )
    return next(failed, episode.cause)


_NO_TROUBLE = (CauseKind.NEW_NODE, CauseKind.DRIFT, CauseKind.AGE, CauseKind.MAINTENANCE)
_HEAVIEST = (Severity.FATAL, Severity.WARNING, Severity.UNKNOWN, Severity.INFO)


def _print_rows(rows: list[dict[str, Any]]) -> None:
    if not rows:
        click.echo("No nodes.")
        return
    now = clock_from_environment().now()
    table = [("NODE", "STATE", "SINCE", "CERTIFICATE", "FAULTS", "WAITS", "CAUSE", "NEXT")]
    for r in rows:
        since = duration(now - datetime.fromisoformat(r["since"])) if r["since"] else "-"
        worst = "/".join(r["faultKeys"][0].split("/")[:2]) if r["faultKeys"] else ""
        table.append(
            (
                r["node"],
                r["state"],
                since,
                r["certificate"] or "-",
                f"{r['faults']} ({plain(worst, 24)})" if worst else "-",
                ",".join(r["waits"]) or "-",
                plain(r["cause"], 60) or "-",
                plain(r["next"], 80),
            )
        )
    for line in aligned(table):
        click.echo(line)
    states = Counter(r["state"] for r in rows)
    counts = ", ".join(f"{states[name]} {name}" for name in (*(s.value for s in State), "unknown") if states[name])
    click.echo(f"\n{len(rows)} node{'' if len(rows) == 1 else 's'}: {counts}.")


@click.command()
@click.argument("name")
@click.argument("verb", required=False, type=click.Choice(["hold", *(v.value for v in Verb)]))
@click.option("--reason", default="", help="Why; required to hold.")
@click.option("--by", default="", help="Who decides; your user name if left out.")
@click.option(
    "--until", default="", metavar="TIME", help="To defer: not before 2026-12-01T08:00Z, or 6h, 2d from now."
)
@format_option
@cluster_options
def node(
    name: str,
    verb: str | None,
    reason: str,
    by: str,
    until: str,
    output: Format,
    kubeconfig: str | None,
    context: str | None,
) -> None:
    """Explain node NAME, or decide about it.

    hold keeps it out of service until released; release ends a hold or an episode (the node must still pass its
    tests); approve lets a step go on that asks for approval; retry starts the repair ladder again; defer puts planned
    maintenance off; retire gives the node up.
    """
    if verb is None:
        if reason or by or until:
            raise BadInputError(
                "--reason, --by and --until belong to a decision; add hold, release, approve, retry, defer or retire."
            )
        emit_explanation(with_cluster(kubeconfig, context, lambda api: explained(api, name)), output)
        return
    if verb == "hold" and not reason.strip():
        raise BadInputError("A hold needs a reason that others can read: add --reason TEXT.")
    if (verb == Verb.DEFER.value) != bool(until):
        raise BadInputError("To defer needs --until TIME (2026-12-01T08:00Z, 6h, 2d), which belongs to defer alone.")
    now = clock_from_environment().now()
    patch = decision_patch(
        verb, by.strip() or _user(), reason.strip(), now, until=_moment(until, now) if until else None
    )
    with_cluster(kubeconfig, context, lambda api: decide(api, name, patch))
    emit({"node": name, "spec": patch["spec"]}, output, lambda _: click.echo(_filed(name, verb)))


def _filed(name: str, verb: str) -> str:
    refused = ", a refusal is an Event on the node" if verb == Verb.DEFER.value else ""
    return f"{name}: {verb} is filed; 'muster node {name}' says what comes of it{refused}."


_SPAN = re.compile(r"([0-9]{1,5})([mhd])")


def _moment(text: str, now: datetime) -> datetime:
    """A time as people give it. Raises BadInputError for one that cannot be read or is not to come."""
    span = _SPAN.fullmatch(text.strip())
    try:
        if span is not None:
            unit = {"m": "minutes", "h": "hours", "d": "days"}[span[2]]
            at = now + timedelta(**{unit: int(span[1])})
        else:
            at = datetime.fromisoformat(text.strip())
    except (ValueError, OverflowError) as error:
        raise BadInputError(
            f"--until {plain(text, 40)} is no time; give 2026-12-01T08:00Z, 90m, 6h or 2d."
        ) from error
    at = (at if at.tzinfo is not None else at.replace(tzinfo=UTC)).astimezone(UTC)
    if at <= now:
        raise BadInputError(f"--until {plain(text, 40)} is not to come; give a later time.")
    return at


def decision_patch(
    verb: str, by: str, reason: str, now: datetime, *, until: datetime | None = None
) -> dict[str, Any]:
    """The merge patch of NodeHealth.spec for a person's decision. Each decision has a fresh ID and acts once."""
    at = now.isoformat()
    if verb == "hold":
        return {"spec": {"hold": {"by": by, "reason": reason, "at": at}}}
    decision: dict[str, Any] = {
        "id": f"{verb}-{secrets.token_hex(6)}",
        "verb": verb,
        "by": by,
        "at": at,
        "reason": reason,
    }
    if until is not None:
        decision["until"] = until.isoformat()
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
    maintenances = await read_all(api, MAINTENANCES, decoder(Maintenance))
    now = clock_from_environment().now()
    return explain(health, certifications, repairs, now=now, maintenances=maintenances)


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
