"""`muster agent run`: the node agent as a process."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from muster.cli.cluster import cluster_options
from muster.cli.environment import clock_from_environment

if TYPE_CHECKING:
    from muster.agent.agent import Agent


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def agent() -> None:
    """Run the node agent."""


@agent.command()
@click.option("--node", envvar="NODE_NAME", required=True, help="Name of this node's Node object (or $NODE_NAME).")
@cluster_options
@click.option(
    "--kernel-log",
    type=click.Path(path_type=Path),
    default=Path("/dev/kmsg"),
    show_default=True,
    help="/dev/kmsg, a FIFO or file in its format, or a file of `journalctl -o json`.",
)
@click.option(
    "--state-dir",
    type=click.Path(path_type=Path),
    default=Path("/var/lib/muster"),
    show_default=True,
    help="Directory of the node that keeps the agent's place in the log and its open faults.",
)
@click.option(
    "--host-root",
    type=click.Path(path_type=Path),
    default=Path("/"),
    show_default=True,
    help="Where the node's file system is mounted.",
)
@click.option("--interval", type=click.FloatRange(min=1), default=30.0, show_default=True, help="Inventory, seconds.")
@click.option("--heartbeat", type=click.FloatRange(min=1), default=60.0, show_default=True, help="Lease, seconds.")
@click.option("--once", is_flag=True, help="Read everything once, publish it and exit.")
def run(
    node: str,
    kubeconfig: str | None,
    context: str | None,
    kernel_log: Path,
    state_dir: Path,
    host_root: Path,
    interval: float,
    heartbeat: float,
    once: bool,
) -> None:
    """Watch this node and publish what it sees to NodeHealth/NODE."""
    from muster import __version__
    from muster.agent.agent import Agent
    from muster.agent.inventory import LinuxInventory
    from muster.agent.kernel_log import open_kernel_log
    from muster.agent.state import DirectoryStateStore
    from muster.kube.http import HttpApi

    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("httpx2").setLevel(logging.WARNING)

    async def main() -> None:
        clock = clock_from_environment()
        inventory = LinuxInventory(host_root)
        boot_id = (await inventory.read()).boot_id
        source = open_kernel_log(kernel_log, boot_id, clock)
        state = DirectoryStateStore(state_dir)
        async with HttpApi.from_kubeconfig(kubeconfig, context) as api:
            this = Agent(
                api,
                node,
                source,
                inventory,
                clock,
                state=state,
                interval_s=interval,
                heartbeat_s=heartbeat,
                version=__version__,
            )
            if once:
                observed = await this.run_once()
                click.echo(
                    f"{node}: {len(observed.gpus)} GPUs, {len(observed.faults)} open faults, "
                    f"fingerprint {observed.fingerprint.digest[:19]}."
                )
            else:
                await _until_stopped(this)

    asyncio.run(main())


async def _until_stopped(this: Agent) -> None:
    """Run until SIGTERM or SIGINT; the agent then keeps its state and ends."""
    running = asyncio.ensure_future(this.run())
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, running.cancel)
    await asyncio.wait({running})
    if not running.cancelled() and (error := running.exception()) is not None:
        raise error
