"""`muster read`: say what a log or a table of figures means."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from muster.cli.input_files import input_of
from muster.cli.output import Format, emit, format_option
from muster.errors import BadInputError
from muster.read.source import Context, check_context


@click.command(name="read")
@click.option("--kind", help="What the input is, where it cannot be told by itself.")
@click.option(
    "--context",
    "context_file",
    help="YAML told beside the text (expected_gpus, nics_per_node, world_size, ...): docs/how-to/read-a-log.md.",
)
@format_option
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
def read(kind: str | None, context_file: str | None, output: Format, files: tuple[str, ...]) -> None:
    """Say what a log means: faults, evidence, what to do.

    Several files are taken together; '-' is standard input. Kernel logs in any form (dmesg, /dev/kmsg, journalctl,
    syslog), Fabric Manager logs, PCIe bandwidth lines, tables of XID events; nvidia-smi (-q, -x, table, CSV, -L,
    topo, dmon), dcgmi diag, health, dmon, discovery, dcgm-exporter; InfiniBand, RoCE and Ethernet ports and their
    counters, optical modules (mlxlink, ethtool -m); kubectl describe, get and drain, device plugin logs; nccl-tests,
    nvbandwidth, pairs of nodes, library versions; NCCL logs, NCCL RAS, torch watchdogs; training logs and reports of
    slow ranks.
    """
    from muster.read import formats

    if kind is not None and kind not in formats.kinds():
        raise BadInputError(f"Unknown kind {kind!r}; the kinds are {', '.join(formats.kinds())}.")
    if files.count("-") > 1:
        raise BadInputError("Standard input ('-') can be given once.")
    context = _context(context_file)
    inputs = [input_of(name) for name in files]
    report = formats.read(inputs, context, kind)
    emit(report.plain(), output, _table)


def _context(name: str | None) -> Context:
    if name is None:
        return {}
    from muster import yamlio

    loaded = yamlio.load(Path(name))
    if loaded is None:
        return {}
    if not isinstance(loaded, dict):
        raise BadInputError(f"{name} must hold a mapping of names to values.")
    context = {str(key): value for key, value in loaded.items()}
    check_context(context, name)
    return context


def _table(report: dict[str, Any]) -> None:
    """One line a fault, its evidence, what to do; then incidents, verdicts and values."""
    from muster.faults.runbooks import runbook

    files = ", ".join(report["files"])
    click.echo(f"{report['kind']}: {files}" + (" (truncated: read as far as it goes)" if report["truncated"] else ""))
    if not report["faults"]:
        click.echo("No faults.")
    for fault in report["faults"]:
        click.echo("")
        click.echo(_fault_line(fault))
        for item in fault["evidence"]:
            numbers = ", ".join(str(n) for n in item["lines"][:6])
            total = item.get("lines_total", len(item["lines"]))
            more = f" ... ({total} lines)" if total > 6 else ""
            click.echo(f"  {item['file']}:{numbers}{more}")
            for text in item["text"][:3]:
                click.echo(f"    {text}")
        click.echo(f"  next: {fault['next']}")
        if fault["severity"] != "info":
            click.echo(f"  runbook: {runbook(str(fault['kind']), str(fault['code'])).path}")
    for incident in report["incidents"]:
        members = " -> ".join(str(member) for member in incident["members"]) or str(incident["root"])
        sure = " (an inference)" if incident.get("confidence") == "low" else ""
        click.echo(f"\nincident: {members}, root {incident['root']}, {incident['severity']}{sure}")
    if report["verdicts"]:
        click.echo("")
    for verdict in report["verdicts"]:
        message = f": {verdict['message']}" if verdict.get("message") else ""
        click.echo(f"verdict on {verdict['of']}: {verdict['result']} ({verdict['reason']}){message}")
    shown = {name: text for name, value in report["values"].items() if (text := _value(value))}
    if shown:
        click.echo("")
        width = max(len(name) for name in shown)
        for name, text in shown.items():
            click.echo(f"{name:<{width}}  {text}")
    click.echo(f"\nnext: {report['next']}")


VALUE_LIMIT = 100
"""Characters of a value on the terminal; what is longer (tables, rank lists) is in `-o json`."""


def _value(value: dict[str, Any]) -> str:
    """A reading as text, or nothing for one that is too long to read in a line."""
    text = _plain(value.get("value"))
    unit = f" {value['unit']}" if value.get("unit") and text != "-" else ""
    return text + unit if len(text) <= VALUE_LIMIT else ""


def _nested(value: Any) -> str:
    match value:
        case dict():
            return "{" + _plain(value) + "}"
        case list() | tuple():
            return f"[{_plain(value)}]"
        case _:
            return _plain(value)


def _plain(value: Any) -> str:
    match value:
        case None:
            return "-"
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:.6g}"
        case dict():
            return ", ".join(f"{name}: {_nested(item)}" for name, item in value.items()) or "-"
        case list() | tuple():
            return ", ".join(_nested(item) for item in value) or "-"
        case _:
            return str(value)


def _fault_line(fault: dict[str, Any]) -> str:
    from muster.read.advice import subject

    code = fault["kind"] if fault["code"] is None else f"{fault['kind']} {fault['code']}"
    if str(fault["code"]).startswith(fault["kind"]):
        code = str(fault["code"])
    at_least = "at least " if fault["count_is"] == "lower-bound" else ""
    times = f"{at_least}{fault['count']} time{'s' if fault['count'] != 1 else ''}"
    cleared = ", cleared since" if fault.get("cleared") else ""
    seen = _seen(fault)
    uuid = fault["entity"].get("uuid")
    who = subject(fault["entity"]) + (f" ({uuid})" if uuid and fault["entity"].get("pci") else "")
    return f"{fault['severity'].upper():<8} {code}  {who}: {fault['name']}, {times}{seen}{cleared}"


def _seen(fault: dict[str, Any]) -> str:
    if fault.get("first_seen_s") is not None:
        first, last, unit = fault["first_seen_s"], fault.get("last_seen_s"), " s after boot"
    else:
        first, last, unit = fault.get("first_seen"), fault.get("last_seen"), ""
    if first is None:
        return ""
    first, last = (at.removeprefix("--") if isinstance(at, str) else at for at in (first, last))
    return f", at {first}{unit}" if first == last or last is None else f", {first} to {last}{unit}"
