"""`muster agent run`: the node agent as a process."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from muster.cli.cluster import cluster_options
from muster.cli.deployable import deployable_options, finite, run_until_told, telemetry
from muster.cli.environment import clock_from_environment
from muster.telemetry.log_lines import LogFormat, configure

if TYPE_CHECKING:
    from muster.agent.agent import Agent
    from muster.clock import Clock
    from muster.telemetry.metrics import AgentMetrics
    from muster.telemetry.observer import AgentFigures


@dataclass(frozen=True)
class _Options:
    node: str
    kubeconfig: str | None
    context: str | None
    kernel_log: Path
    state_dir: Path
    host_root: Path
    interval_s: float
    heartbeat_s: float
    once: bool
    listen: str | None


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
@click.option(
    "--interval",
    type=click.FloatRange(min=1),
    default=30.0,
    show_default=True,
    callback=finite,
    help="Inventory, seconds.",
)
@click.option(
    "--heartbeat",
    type=click.FloatRange(min=1),
    default=60.0,
    show_default=True,
    callback=finite,
    help="Lease, seconds.",
)
@deployable_options
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
    listen: str | None,
    log_format: LogFormat,
    once: bool,
) -> int:
    """Watch this node and publish what it sees to NodeHealth/NODE.

    An API server that cannot be reached is waited for: the agent watches on and publishes the state of then.
    """
    clock = clock_from_environment()
    configure(log_format, clock, level=logging.INFO)
    options = _Options(node, kubeconfig, context, kernel_log, state_dir, host_root, interval, heartbeat, once, listen)
    return run_until_told(lambda: _run(options, clock), log_format)


class _Running:
    """What the endpoint asks about: the agent, once there is one."""

    agent: Agent | None = None

    def figures(self) -> AgentFigures | None:
        return self.agent.figures() if self.agent is not None else None

    def not_ready(self) -> str:
        return self.agent.not_ready() if self.agent is not None else "the agent has not begun yet"


async def _run(options: _Options, clock: Clock) -> None:
    from muster import __version__
    from muster.agent.agent import Agent
    from muster.agent.inventory import LinuxInventory
    from muster.agent.kernel_log import open_kernel_log
    from muster.agent.state import DirectoryStateStore
    from muster.kube.http import HttpApi
    from muster.kube.metered import MeteredApi

    running = _Running()

    def metrics() -> AgentMetrics:
        from muster.telemetry.metrics import AgentMetrics

        return AgentMetrics(__version__, clock, running.figures)

    inventory = LinuxInventory(options.host_root)
    boot_id = (await inventory.read()).boot_id
    source = open_kernel_log(options.kernel_log, boot_id, clock)
    state = DirectoryStateStore(options.state_dir)
    async with (
        telemetry(options.listen, metrics, running.not_ready) as counted,
        HttpApi.from_kubeconfig(options.kubeconfig, options.context) as api,
    ):
        agent = running.agent = Agent(
            MeteredApi(api, counted) if counted is not None else api,
            options.node,
            source,
            inventory,
            clock,
            state=state,
            interval_s=options.interval_s,
            heartbeat_s=options.heartbeat_s,
            version=__version__,
            observer=counted,
        )
        if not options.once:
            await agent.run()
            return
        observed = await agent.run_once()
        click.echo(
            f"{options.node}: {len(observed.gpus)} GPUs, {len(observed.faults)} open faults, "
            f"fingerprint {observed.fingerprint.digest[:19]}."
        )
