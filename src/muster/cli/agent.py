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
    from muster.agent.config import AgentConfig
    from muster.clock import Clock
    from muster.kube.http import HttpApi
    from muster.kube.pod_api import PodApi
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
    config: AgentConfig
    service_account: Path


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
@click.option(
    "--config",
    "config_file",
    type=click.Path(path_type=Path),
    help="YAML file that says what the monitors look at; without one the node is watched as an HGX node is.",
)
@click.option(
    "--service-account",
    type=click.Path(path_type=Path),
    default=Path("/var/run/secrets/kubernetes.io/serviceaccount"),
    show_default=True,
    help="In a pod: folder with its token and the cluster's authority.",
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
    config_file: Path | None,
    service_account: Path,
    listen: str | None,
    log_format: LogFormat,
    once: bool,
) -> int:
    """Watch this node and publish what it sees to NodeHealth/NODE.

    An API server that cannot be reached is waited for: the agent watches on and publishes the state of then.
    """
    from muster.agent.config import AgentConfig, load

    clock = clock_from_environment()
    config = load(config_file) if config_file is not None else AgentConfig()
    configure(log_format, clock, level=logging.INFO)
    options = _Options(
        node,
        kubeconfig,
        context,
        kernel_log,
        state_dir,
        host_root,
        interval,
        heartbeat,
        once,
        listen,
        config,
        service_account,
    )
    return run_until_told(lambda: _run(options, clock), log_format)


class _Running:
    """What the endpoint asks about: the agent, once there is one."""

    agent: Agent | None = None

    def figures(self) -> AgentFigures | None:
        return self.agent.figures() if self.agent is not None else None

    def not_ready(self) -> str:
        return self.agent.not_ready() if self.agent is not None else "the agent has not begun yet"


def _client(options: _Options) -> PodApi | HttpApi:
    """The small client in a pod, where agents run; else the one that knows kubeconfigs. Raises BadInputError."""
    from muster.kube.service_account import account_of_pod

    asked = options.kubeconfig is not None or options.context is not None
    account = None if asked else account_of_pod(options.service_account)
    if account is not None:
        from muster.kube.pod_api import PodApi

        return PodApi(account)
    from muster.kube.http import HttpApi

    return HttpApi.from_kubeconfig(options.kubeconfig, options.context)


async def _run(options: _Options, clock: Clock) -> None:
    from muster import __version__
    from muster.agent.agent import Agent
    from muster.agent.config import monitors
    from muster.agent.inventory import LinuxInventory
    from muster.agent.kernel_log import open_kernel_log
    from muster.agent.state import DirectoryStateStore
    from muster.agent.timing import limits
    from muster.kube.metered import MeteredApi

    running = _Running()

    def metrics() -> AgentMetrics:
        from muster.telemetry.metrics import AgentMetrics

        return AgentMetrics(__version__, clock, running.figures)

    inventory = LinuxInventory(options.host_root, clock=clock)
    boot_id = await inventory.boot_id()
    source = open_kernel_log(options.kernel_log, boot_id, clock)
    state = DirectoryStateStore(options.state_dir)
    async with (
        telemetry(options.listen, metrics, running.not_ready) as counted,
        _client(options) as api,
    ):
        client = MeteredApi(api, counted) if counted is not None else api
        agent = running.agent = Agent(
            client,
            options.node,
            source,
            inventory,
            clock,
            state=state,
            interval_s=options.interval_s,
            heartbeat_s=options.heartbeat_s,
            version=__version__,
            observer=counted,
            monitors=monitors(options.config, options.host_root, clock, client, options.node),
            limits=limits(options.config.timing, options.config.gpu.interval_s),
        )
        if not options.once:
            await agent.run()
            return
        observed = await agent.run_once()
        click.echo(
            f"{options.node}: {len(observed.gpus)} GPUs, {len(observed.faults)} open faults, "
            f"fingerprint {observed.fingerprint.digest[:19]}."
        )
