"""`muster snapshot`: record what a machine or a cluster is, and compare two records."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from muster.cli.cluster import cluster_options
from muster.cli.output import Format, emit, format_option
from muster.errors import BadInputError, ExitCode, NotSatisfiedError

if TYPE_CHECKING:
    from muster.configure.snapshot.model import ClusterSnapshot, NodeEntry
    from muster.configure.snapshot.read import SnapshotApi
    from muster.inventory.record import NodeSnapshot

T = TypeVar("T")
HERE = "\0here"


@click.group(invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--node",
    metavar="[NAME]",
    is_flag=False,
    flag_value=HERE,
    default=None,
    help="Record the machine that this command runs on; with NAME, that node of the cluster as its agent sees it.",
)
@click.option("--all-nodes", is_flag=True, help="Record every node of the cluster as Muster's agents see them.")
@click.option("--cluster", is_flag=True, help="Record the cluster: server, nodes, images, releases, policies.")
@click.option(
    "--expect-gpus",
    type=click.IntRange(min=1),
    default=None,
    help="With --node: fail (exit code 3) unless so many GPUs are found.",
)
@click.option(
    "-o",
    "--output",
    default=Format.TABLE.value,
    metavar="FILE|table|json|yaml",
    show_default=True,
    help="A file to write, or how to print; - prints yaml. A file named *.json gets JSON.",
)
@click.option("--file", metavar="FILE", help="The file to write, when -o says its format: -o json --file FILE.")
@cluster_options
@click.pass_context
def snapshot(
    context_: click.Context,
    node: str | None,
    all_nodes: bool,
    cluster: bool,
    expect_gpus: int | None,
    output: str,
    file: str | None,
    kubeconfig: str | None,
    context: str | None,
) -> int:
    """Record what a machine or a cluster is: system, GPUs, network, settings; images, releases, policies.

    Each reading is of class identity, stack, config or volatile. What cannot be read is listed as unknown.
    """
    if context_.invoked_subcommand is not None:
        given = node is not None or all_nodes or cluster or expect_gpus or file or kubeconfig or context
        if given or output != Format.TABLE.value:
            raise BadInputError(
                f"'muster snapshot {context_.invoked_subcommand}' takes its own options; give them after it."
            )
        return ExitCode.OK
    if (node is None) == (not (cluster or all_nodes)):
        raise BadInputError(
            "Say what to record: --node (this machine), --node NAME, --all-nodes or --cluster; "
            "the last two go together."
        )
    if expect_gpus is not None and node is None:
        raise BadInputError("--expect-gpus is about one machine; give it with --node.")
    path, form = _destination(output, file)
    if node == HERE:
        taken: NodeSnapshot | ClusterSnapshot = _this_machine()
    elif node is not None:
        taken = _one_node(kubeconfig, context, node)
    else:
        taken = _cluster(kubeconfig, context, whole=cluster, agents=all_nodes)
    _write(taken, path, form)
    return _gpus_missing(taken, expect_gpus)


@snapshot.command()
@click.argument("before", type=click.Path(path_type=Path))
@click.argument("after", type=click.Path(path_type=Path))
@click.option("--all", "everything", is_flag=True, help="Show volatile readings too; they never count.")
@format_option
def diff(before: Path, after: Path, everything: bool, output: Format) -> int:
    """What changed from snapshot BEFORE to snapshot AFTER, by class. Exit code 3 when anything that counts did.

    A reading that only one of the two could read is not compared, and counts.
    """
    from muster.configure.snapshot.difference import changes
    from muster.configure.snapshot.file import read_snapshot
    from muster.resources.base import to_object

    found = changes(read_snapshot(before), read_snapshot(after))
    counted = [change for change in found if change.counts()]
    shown = found if everything else counted
    emit({"changed": bool(counted), "changes": [to_object(change) for change in shown]}, output, _print_changes)
    return ExitCode.NOT_SATISFIED if counted else ExitCode.OK


def _destination(output: str, file: str | None) -> tuple[str | None, Format]:
    """The file to write, None for stdout, and the format. Raises BadInputError when two files are named."""
    if output == "-":
        output = Format.YAML.value
    if output in list(Format):
        as_json = file is not None and file.endswith(".json")
        return file, Format.JSON if as_json else Format(output)
    if file is not None:
        raise BadInputError(f"Both -o {output[:80]} and --file {file[:80]} name a file; give one of them.")
    return output, Format.JSON if output.endswith(".json") else Format.YAML


def _this_machine() -> NodeSnapshot:
    import socket

    from muster.clock import SystemClock
    from muster.inventory import nvml
    from muster.inventory.node import take, this_machine

    return take(this_machine(), socket.gethostname(), SystemClock().now(), ask_nvml=nvml.ask)


def _one_node(kubeconfig: str | None, context: str | None, name: str) -> ClusterSnapshot:
    from muster.cli.environment import clock_from_environment
    from muster.configure.snapshot.model import ClusterSnapshot
    from muster.configure.snapshot.read import take_node

    now = clock_from_environment().now()

    async def work(api: SnapshotApi) -> NodeEntry:
        return await take_node(api, name, now)

    return ClusterSnapshot(taken_at=now, nodes=(_with_api(kubeconfig, context, work),))


def _cluster(kubeconfig: str | None, context: str | None, *, whole: bool, agents: bool) -> ClusterSnapshot:
    from muster.cli.environment import clock_from_environment
    from muster.configure.snapshot.read import take_cluster, take_nodes

    now = clock_from_environment().now()

    async def work(api: SnapshotApi) -> ClusterSnapshot:
        return await take_cluster(api, now, agents=agents) if whole else await take_nodes(api, now)

    return _with_api(kubeconfig, context, work)


def _with_api(kubeconfig: str | None, context: str | None, work: Callable[[SnapshotApi], Awaitable[T]]) -> T:
    import asyncio

    from muster.configure.snapshot.read import SnapshotApi

    async def main() -> T:
        async with SnapshotApi.from_kubeconfig(kubeconfig, context) as api:
            assert isinstance(api, SnapshotApi)  # noqa: S101 - a class method of it made it
            return await work(api)

    return asyncio.run(main())


def _write(taken: NodeSnapshot | ClusterSnapshot, file: str | None, output: Format) -> None:
    from muster.configure.snapshot.file import content_of, json_text
    from muster.inventory.record import NodeSnapshot

    if file is None:
        emit(content_of(taken), output, _print_machine if isinstance(taken, NodeSnapshot) else _print_cluster)
        return
    from muster import yamlio
    from muster.cli.recipe import write_file

    as_json = output is Format.JSON
    text = json_text(taken) if as_json else yamlio.dumps(content_of(taken))
    if not as_json and len(text) > yamlio.MAX_BYTES:
        raise BadInputError(f"{file} would be larger than a YAML file may be; name it *.json.")
    write_file(Path(file), text)


def _gpus_missing(taken: NodeSnapshot | ClusterSnapshot, expected: int | None) -> int:
    """Raise NotSatisfiedError when GPUs that should be there were not found."""
    from muster.configure.snapshot.agents import GPU
    from muster.inventory.record import NodeSnapshot

    if isinstance(taken, NodeSnapshot):
        where, found = f"This machine ({taken.node})", taken.gpu_count()
    elif expected is not None:
        entry = taken.nodes[0]
        count = next((r.value for r in entry.readings if r.name == "gpu.count"), "")
        where, found = f"Node {entry.node}", int(count) if count.isdigit() else None
    else:
        where, found = "", 0
    if expected is not None and (found is None or found < expected):
        number = "an unknown number of them" if found is None else found or "none"
        verb = "was" if found == 1 else "were"
        raise NotSatisfiedError(
            f"{where} was expected to have {expected} GPU(s) and {number} {verb} found; "
            "look at the readings gpu.* and at the driver."
        )
    empty = [e.node for e in getattr(taken, "nodes", ()) if any(u.name == GPU for u in e.unknown)]
    if empty:
        raise NotSatisfiedError(
            f"{len(empty)} node(s) should have GPUs by their Node objects and none were found: {', '.join(empty[:5])}"
            f"{' and more' if len(empty) > 5 else ''}; look at their drivers."
        )
    return ExitCode.OK


def _line(name: str, kind: str, value: str) -> str:
    return f"{_plain(name):<44}  {kind:<8}  {_plain(value)}".rstrip()


def _plain(text: str) -> str:
    from muster.plain_text import plain

    return plain(text, 400)


def _print_readings(content: dict[str, Any], keys: tuple[str, ...] = ("readings",)) -> None:
    for key in keys:
        for reading in content.get(key, []):
            click.echo(_line(reading["name"], reading["readingClass"], reading["value"]))
    for unknown in content.get("unknown", []):
        click.echo(_line(unknown["name"], "unknown", unknown["reason"]))


def _print_machine(content: dict[str, Any]) -> None:
    _print_readings(content)
    click.echo(f"fingerprint of {content['node']}: {content['fingerprint']}")


def _print_cluster(content: dict[str, Any]) -> None:
    _print_readings(content)
    for entry in content.get("nodes", []):
        click.echo(f"\nnode {_plain(entry['node'])}")
        _print_readings(entry, ("reported", "readings"))
    for key, title in (
        ("releases", "release"),
        ("crds", "definition"),
        ("policies", "policy"),
        ("storageClasses", "storage class"),
        ("images", "image"),
    ):
        for item in content.get(key, []):
            name = f"{item['namespace']}/{item['name']}" if item.get("namespace") else item["name"]
            click.echo(f"\n{title} {_plain(name)}")
            _print_readings(item)


def _print_changes(content: dict[str, Any]) -> None:
    if not content["changes"]:
        click.echo("Nothing changed.")
        return
    for change in content["changes"]:
        told = f"{change.get('before', '(absent)')} -> {change.get('after', '(absent)')}"
        if change.get("notCompared"):
            told = f"not compared: {change['notCompared']}"
        click.echo(_line(f"{change['subject']}: {change['name']}", change["readingClass"], told))
    if not content["changed"]:
        click.echo("Only volatile readings differ: nothing that counts changed.")
