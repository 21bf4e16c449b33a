"""`muster snapshot`: record what this node is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from muster.cli.output import Format, emit, format_option
from muster.errors import BadInputError


@click.command()
@click.option("--node", is_flag=True, help="Record the node that this command runs on.")
@click.option("--file", metavar="FILE", help="Write there (YAML, or JSON with -o json) instead of to stdout.")
@format_option
def snapshot(node: bool, file: str | None, output: Format) -> None:
    """Record what this node is: system, GPUs, network, settings; and its fingerprint."""
    import json
    import socket

    from muster import yamlio
    from muster.clock import SystemClock
    from muster.configure.snapshot.node import take, this_machine
    from muster.resources.base import API_VERSION, to_object

    if not node:
        raise BadInputError("Say what to record: --node records the node that this command runs on.")
    content: dict[str, Any] = {"apiVersion": API_VERSION, "kind": "Snapshot"}
    content |= to_object(take(this_machine(), socket.gethostname(), SystemClock().now()))
    if file is None:
        emit(content, output, _print_table)
        return
    from muster.cli.recipe import write_file

    as_json = json.dumps(content, indent=2, ensure_ascii=False) + "\n"
    write_file(Path(file), as_json if output is Format.JSON else yamlio.dumps(content))


def _print_table(content: dict[str, Any]) -> None:
    width = max(len(reading["name"]) for reading in content["readings"])
    for reading in content["readings"]:
        click.echo(f"{reading['name']:<{width}}  {reading['readingClass']:<8}  {reading['value']}")
    for unknown in content.get("unknown", []):
        click.echo(f"{unknown['name']:<{width}}  unknown   {unknown['reason']}")
    click.echo(f"fingerprint of {content['node']}: {content['fingerprint']}")
