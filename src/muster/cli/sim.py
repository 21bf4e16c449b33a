"""`muster sim up`: a simulated cluster that keeps running, with a kubeconfig for kubectl."""

from __future__ import annotations

import asyncio
import os
import signal
import tempfile
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from muster.clock import ScaledClock
from muster.errors import BadInputError

if TYPE_CHECKING:
    from muster.kube.api import KubeApi
    from muster.sim.fleet import FleetEvent
    from muster.sim.plant import Plant
    from muster.sim.store import Store

MAX_SPEED = 3600.0
USER = "admin"


@dataclass(frozen=True)
class _Options:
    plant: Plant
    port: int
    speed: float
    kubeconfig: Path | None
    controller: bool


@click.group()
def sim() -> None:
    """A simulated cluster for kubectl, and what goes wrong in it."""


@sim.command()
@click.option("--nodes", type=int, help="Number of nodes, eight GPUs each.  [default: 64]")
@click.option("--domains", type=int, help="Number of failure domains.  [default: one for eight nodes]")
@click.option("--seed", type=int, help="What every random choice is drawn from.  [default: 1]")
@click.option("--port", type=int, default=0, help="Port of the API server; 0 takes a free one.", show_default=True)
@click.option("--kubeconfig", type=click.Path(path_type=Path, dir_okay=False), help="Where to write the kubeconfig.")
@click.option("--speed", type=float, default=30.0, show_default=True, help="Simulated seconds in a second.")
@click.option("--plant", "plant_file", type=click.Path(path_type=Path), help="Plant file: what goes wrong, and when.")
@click.option("--no-controller", is_flag=True, help="Run no controller, so that you can start your own.")
@click.option("--no-story", is_flag=True, help="A healthy fleet: no defects, no driver update.")
def up(
    nodes: int | None,
    domains: int | None,
    seed: int | None,
    port: int,
    kubeconfig: Path | None,
    speed: float,
    plant_file: Path | None,
    no_controller: bool,
    no_story: bool,
) -> None:
    """Run a simulated cluster until Ctrl-C: API server, fleet, agents and controller."""
    if not 0 <= port <= 65535:
        raise BadInputError(f"--port {port} is not a port; give a number from 0 to 65535.")
    if not 0 < speed <= MAX_SPEED:
        raise BadInputError(f"--speed {speed:g} is out of range; give a number above 0 and at most {MAX_SPEED:g}.")
    chosen = _plant(nodes, domains, seed, plant_file, no_story)
    asyncio.run(_run(_Options(chosen, port, speed, kubeconfig, not no_controller)))


@sim.command()
@click.option("--nodes", type=int, help="Number of nodes, eight GPUs each.  [default: 64]")
@click.option("--domains", type=int, help="Number of failure domains.  [default: one for eight nodes]")
@click.option("--seed", type=int, help="What every random choice is drawn from.  [default: 1]")
@click.option("--no-story", is_flag=True, help="A healthy fleet: no defects, no driver update.")
def plant(nodes: int | None, domains: int | None, seed: int | None, no_story: bool) -> None:
    """Print a plant file to start from: what goes wrong in a simulated cluster, and when."""
    from muster import yamlio
    from muster.resources.base import to_object

    click.echo(yamlio.dumps(to_object(_plant(nodes, domains, seed, None, no_story))), nl=False)


def _plant(nodes: int | None, domains: int | None, seed: int | None, file: Path | None, healthy: bool) -> Plant:
    from muster.sim.plant import default_plant, healthy_plant, load_plant

    if file is not None:
        given = {"--nodes": nodes, "--domains": domains, "--seed": seed, "--no-story": healthy or None}
        clash = [flag for flag, value in given.items() if value is not None]
        if clash:
            raise BadInputError(f"{clash[0]} and --plant cannot be combined; say it in {file}.")
        return load_plant(file)
    make = healthy_plant if healthy else default_plant
    return make(1 if seed is None else seed, 64 if nodes is None else nodes, domains)


async def _run(options: _Options) -> None:
    from muster.sim.fleet import Fleet
    from muster.sim.inprocess import InProcessApi
    from muster.sim.plant import build_world
    from muster.sim.server import ApiServer
    from muster.sim.store import Store
    from muster.sim.tasks import TaskSet, run_until

    clock = ScaledClock(datetime.now(UTC).replace(microsecond=0), time.time(), options.speed)
    store = Store(clock, options.plant.seed)
    api = InProcessApi(store)
    await _prepare(api)
    fleet = Fleet(
        api, clock, build_world(options.plant, clock.now()), options.plant, register_held=True, on_event=_print_event
    )
    tasks = TaskSet()
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(ApiServer(store, port=options.port))
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="muster-sim-"))
        path = (options.kubeconfig or Path(folder) / "kubeconfig").absolute()
        _write_private(path, server.kubeconfig(USER))
        tasks.start(fleet.run())
        if options.controller:
            tasks.start(_controller(store, clock))
        _welcome(options, server.url, path, clock)
        await run_until(tasks.run(), stop)
    click.echo("The simulated cluster is gone.")


async def _prepare(api: KubeApi) -> None:
    """Install the resource definitions and a policy that lets the simulated cloud repair."""
    import msgspec

    from muster.kube.api import CRDS, FAULT_POLICIES
    from muster.operate.policy import FULL_AUTOMATION
    from muster.resources.base import to_object
    from muster.resources.crd import manifests
    from muster.sim.cloud import PROVIDER

    for manifest in manifests():
        await api.create(CRDS, manifest, manager="muster-sim")
    spec = msgspec.structs.replace(FULL_AUTOMATION.spec, repair_provider=PROVIDER)
    await api.create(
        FAULT_POLICIES, to_object(msgspec.structs.replace(FULL_AUTOMATION, spec=spec)), manager="muster-sim"
    )


async def _controller(store: Store, clock: ScaledClock) -> None:
    from muster.controller.process import ControllerProcess
    from muster.sim.inprocess import InProcessApi

    await ControllerProcess(lambda: InProcessApi(store), clock, "muster-sim", tell=click.echo).run()


def _write_private(path: Path, text: str) -> None:
    """The kubeconfig holds a token: only its owner may read it. A file that is about another cluster is kept."""
    try:
        _keep_foreign(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            file.write(text)
    except OSError as error:
        raise BadInputError(f"Cannot write {path}: {error.strerror or error}; give another --kubeconfig.") from error


def _keep_foreign(path: Path) -> None:
    """Refuse to write over anything but a kubeconfig of an earlier simulation. Raises BadInputError or OSError."""
    from muster import yamlio
    from muster.sim.kubeconfig import NAME

    if not path.exists() or path.stat().st_size == 0:
        return
    try:
        found = yamlio.load(path)
    except BadInputError:
        found = None
    clusters = found.get("clusters") if isinstance(found, dict) else None
    names = [c.get("name") for c in clusters if isinstance(c, dict)] if isinstance(clusters, list) else []
    if names != [NAME]:
        raise BadInputError(f"{path} exists and is not the kubeconfig of a simulation; give another --kubeconfig.")


def _welcome(options: _Options, url: str, path: Path, clock: ScaledClock) -> None:
    plant = options.plant
    lines = [
        f"A simulated cluster of {plant.nodes} nodes in {plant.domains} domain(s) runs at {url}.",
        f"A second of real time is {options.speed:g} s in it; MUSTER_CLOCK tells muster so. Ctrl-C ends it.",
        "Everything in it is simulated.",
        "",
        f"  export KUBECONFIG={path}",
        f"  export MUSTER_CLOCK={clock.encode()}",
        "  kubectl get nodes",
        "  kubectl get nodehealths",
        "  kubectl get certifications,repairs",
        f"  muster node {_first_node()}",
    ]
    if not options.controller:
        lines += [
            "",
            "No controller runs. Start one; MUSTER_CLOCK lets it live in the simulated time:",
            "",
            f"  muster controller run --test-runner pods --kubeconfig {path}",
        ]
    click.echo("\n".join([*lines, ""]))


def _first_node() -> str:
    from muster.sim.world import node_names

    return node_names(1)[0]


def _print_event(event: FleetEvent) -> None:
    click.echo(f"{event.at:%Y-%m-%dT%H:%M:%SZ} {event.kind}: {event.message}")
