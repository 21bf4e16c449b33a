"""`muster baseline`: the object that keeps a cluster on its recipe."""

from __future__ import annotations

import re
from pathlib import Path

import click

from muster.errors import BadInputError

_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", re.ASCII)


@click.command()
@click.argument("source", metavar="RECIPE|BUNDLE")
@click.option("--name", default="cluster", show_default=True, help="Name of the object.")
@click.option(
    "--interval",
    "interval_s",
    type=click.FloatRange(min=10, max=86400),
    default=300.0,
    show_default=True,
    help="Seconds from one comparison to the next.",
)
@click.option(
    "--node-selector",
    "labels",
    multiple=True,
    metavar="KEY=VALUE",
    help="Compare only nodes with these labels; every node with GPUs without it.",
)
@click.option(
    "--confirm",
    "confirmed",
    multiple=True,
    metavar="NAME=VALUE",
    help="Vouch for a constraint that nothing in the cluster tells, such as aks.gpu-pools.gpu-driver=Install.",
)
def baseline(source: str, name: str, interval_s: float, labels: tuple[str, ...], confirmed: tuple[str, ...]) -> None:
    """Print a Baseline for RECIPE, or for BUNDLE with its --set values and manifests.

    Apply it with 'kubectl apply --server-side -f -'; the controller then compares the cluster with it for ever.
    """
    from muster import yamlio
    from muster.configure import lock
    from muster.configure.bundles.opened import open_either
    from muster.configure.live.nodes import read_confirmed
    from muster.resources.base import ObjectMeta, to_object
    from muster.resources.baseline import Baseline, BaselineSpec

    if not _NAME.fullmatch(name):
        raise BadInputError(f"--name {name[:80]!r} is no name of an object; use lower-case letters, digits and '-'.")
    selector: dict[str, str] = {}
    for text in labels:
        key, equals, value = text.partition("=")
        if not key or not equals or key in selector:
            raise BadInputError(f"--node-selector {text[:80]!r} is malformed or given twice; write it as key=value.")
        selector[key] = value
    text = lock.write(open_either(Path(source)).recipe)
    spec = BaselineSpec(
        recipe=text, node_selector=selector, interval_s=interval_s, confirmed=read_confirmed(confirmed)
    )
    made = Baseline(metadata=ObjectMeta(name=name), spec=spec)
    content = {"apiVersion": made.api_version, "kind": made.kind} | to_object(made)
    content.pop("status", None)
    click.echo(yamlio.dumps(content), nl=False)
