"""`muster demo`: the whole lifecycle on an embedded, simulated cluster."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from muster.errors import BadInputError, ExitCode

if TYPE_CHECKING:
    from muster.demo.outcome import Outcome
    from muster.sim.plant import Plant

LIVE_SPEED = 900.0
"""Simulated seconds per real second on a terminal: half a day in about a minute."""


LEAST_NODES = 16


@click.command()
@click.option(
    "--seed", type=click.IntRange(0, 2**31 - 1), default=None, help="Draws what goes wrong where.  [default: 1]"
)
@click.option("--nodes", type=click.IntRange(1, 10_000), default=None, help="Size of the fleet.  [default: 64]")
@click.option(
    "--plant",
    "plant_file",
    type=click.Path(path_type=Path),
    default=None,
    help="What goes wrong, from a file (YAML).",
)
@click.option(
    "--report",
    "report_file",
    type=click.Path(path_type=Path),
    default=Path("muster-demo.html"),
    show_default=True,
    help="Where to write the report.",
)
@click.option(
    "--json", "json_file", type=click.Path(path_type=Path), default=None, help="Where to write the outcome."
)
@click.option("--plain", is_flag=True, help="Plain lines, also on a terminal.")
@click.option(
    "--pace",
    type=click.FloatRange(min=0.0),
    default=None,
    help=f"Simulated seconds per real second; 0: as fast as possible.  [default: {LIVE_SPEED:.0f} live, 0 plain]",
)
@click.option(
    "--controller",
    type=click.Choice(["in-process", "process"]),
    default="in-process",
    show_default=True,
    help="process: the controller runs as a process of its own over HTTPS and is restarted when it dies.",
)
def demo(
    seed: int | None,
    nodes: int | None,
    plant_file: Path | None,
    report_file: Path,
    json_file: Path | None,
    plain: bool,
    pace: float | None,
    controller: str,
) -> int:
    """Show the whole lifecycle on an embedded, simulated cluster, in about a minute.

    Nodes are certified at bring-up, jobs run, a fault is held, drained, repaired and recertified, and a driver update
    rolls through in waves within the budget. Everything is simulated except Muster itself. The same seed tells the
    same story. Exit code 3 when the story does not settle or a verdict is wrong.
    """
    plant = chosen_plant(seed, nodes, plant_file)
    for file in (report_file, json_file):
        _check_writable(file)
    live = not plain and sys.stdout.isatty() and controller == "in-process"
    outcome = _play(plant, live, pace, controller)
    _write(report_file, json_file, outcome)
    _print_end(outcome, report_file)
    return ExitCode.OK if outcome.exact and not outcome.stuck else ExitCode.NOT_SATISFIED


def chosen_plant(seed: int | None, nodes: int | None, plant_file: Path | None) -> Plant:
    """The plant of the flags. Raises BadInputError when they contradict each other."""
    from muster.sim.plant import default_plant, load_plant

    if plant_file is None:
        if nodes is not None and nodes < LEAST_NODES:
            raise BadInputError(
                f"The demo needs at least {LEAST_NODES} nodes, or seven bad ones leave nobody to test with; "
                f"{nodes} were asked for. Ask for more, or bring your own defects with --plant."
            )
        return default_plant(1 if seed is None else seed, 64 if nodes is None else nodes)
    if seed is not None or nodes is not None:
        raise BadInputError("--plant brings its own seed and nodes; leave out --seed and --nodes.")
    return load_plant(plant_file)


def _check_writable(file: Path | None) -> None:
    """Better now than after a minute."""
    if file is None:
        return
    if file.is_dir():
        raise BadInputError(f"{file} is a folder; name a file.")
    if not file.resolve().parent.is_dir():
        raise BadInputError(f"The folder of {file} does not exist; create it first.")


def _play(plant: Plant, live: bool, pace: float | None, controller: str) -> Outcome:
    from muster.demo.play import play_in_process, play_with_process

    if controller == "process":
        return play_with_process(plant, sys.stdout, speed=pace)
    return play_in_process(
        plant, sys.stdout, live=live, speed=pace if pace is not None else LIVE_SPEED if live else 0.0
    )


def _write(report_file: Path, json_file: Path | None, outcome: Outcome) -> None:
    from muster.demo.outcome import to_values
    from muster.demo.report import report_html

    try:
        report_file.write_text(report_html(outcome), encoding="utf-8")
        if json_file is not None:
            json_file.write_text(
                json.dumps(to_values(outcome), indent=2, ensure_ascii=False) + "\n", encoding="utf-8"
            )
    except OSError as error:
        raise BadInputError(f"Cannot write {error.filename}: {error.strerror}; choose another file.") from error


def _print_end(outcome: Outcome, report_file: Path) -> None:
    from muster.demo.outcome import fleet_lines, verdict_lines
    from muster.operate.explain_text import render
    from muster.operate.goodput_report import render_goodput

    sections = [
        ("Verdicts", "\n".join(verdict_lines(outcome))),
        ("Fleet (simulated)", "\n".join(fleet_lines(outcome))),
        ("Three nodes explained", "\n\n".join(render(e) for e in outcome.explanations)),
        ("Goodput (simulated)", render_goodput(outcome.goodput)),
    ]
    for title, body in sections:
        click.echo(f"\n== {title}\n{body}")
    if outcome.stuck:
        click.echo("\n== Not settled\n" + "\n".join(outcome.stuck))
    click.echo(f"\nReport: {report_file}")
