"""`muster certify plan`: what would run, how long it takes and what it costs, before anything runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from muster.cli.certify_spec import Asked, build_spec, matches, parse_target, spec_options
from muster.cli.cluster import cluster_options, with_cluster
from muster.cli.output import Format, emit, format_option
from muster.errors import BadInputError, ExitCode

if TYPE_CHECKING:
    from muster.certify.isolation.plan import Plan
    from muster.cli.certify_cluster import Fleet
    from muster.kube.api import KubeApi
    from muster.resources.certification import CertificationSpec


@click.command()
@spec_options
@click.option("--from", "source", metavar="FILE", help="Nodes from 'kubectl get nodes -o json' instead of a cluster.")
@click.option("--name", default="plan", show_default=True, help="Name of the certification; it seeds the plan.")
@format_option
@cluster_options
def plan(
    source: str | None, name: str, output: Format, kubeconfig: str | None, context: str | None, **asked: Any
) -> int:
    """Say what a certification would run, how long, at what cost. Changes nothing.

    Exit code 0 when at least one node can be tested within the budget, else 3.
    """
    from muster.certify import catalogue
    from muster.certify.report.forecast import forecast, forecast_text
    from muster.cli.certify_cluster import fleet_from_file, read_fleet

    wanted = Asked(**asked)
    build_spec(wanted, ("placeholder",) if wanted.target else ())

    async def work(api: KubeApi) -> Fleet:
        return await read_fleet(api)

    fleet = fleet_from_file(Path(source)) if source is not None else with_cluster(kubeconfig, context, work)
    spec = resolved(wanted, fleet)
    shown = forecast(planned(name, spec, fleet), catalogue.left_out(spec))
    emit(msgspec.to_builtins(shown), output, lambda _: click.echo(forecast_text(shown)))
    return ExitCode.OK if shown.enough and shown.expected_runs else ExitCode.NOT_SATISFIED


def resolved(asked: Asked, fleet: Fleet) -> CertificationSpec:
    """The spec with the nodes of --target by name. Raises BadInputError when no node has the labels."""
    equal, unequal = parse_target(asked.target)
    nodes = sorted(fleet.nodes) if equal or unequal else []
    selected = [n for n in nodes if matches(fleet.nodes[n].labels, equal, unequal)]
    if (equal or unequal) and not selected:
        raise BadInputError(f"No node matches --target {asked.target[:200]!r}; {_hint(equal, fleet)}")
    return msgspec.structs.replace(build_spec(asked, selected), node_selector={})


def _hint(equal: dict[str, str], fleet: Fleet) -> str:
    """Which term nobody meets, with the values that there are."""
    for key, value in equal.items():
        values = sorted({facts.labels[key] for facts in fleet.nodes.values() if key in facts.labels})
        if not values:
            return f"none of {len(fleet.nodes)} nodes has the label {key}."
        if value not in values:
            return f"the label {key} has the values {', '.join(values[:6])}."
    return "each label alone occurs, all of them together do not."


def planned(name: str, spec: CertificationSpec, fleet: Fleet) -> Plan:
    """The plan that the controller would make of the nodes as they are now."""
    from muster.certify import catalogue
    from muster.certify.claimed_gpus import with_claims
    from muster.certify.grouping import make_plan

    nodes = with_claims(fleet.nodes, fleet.claimed) if spec.pods.gpu_claim_template else fleet.nodes
    return make_plan(name, spec, catalogue.profile(spec.profile), nodes, fleet.healths, busy=fleet.busy)
