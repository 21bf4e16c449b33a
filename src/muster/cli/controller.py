"""`muster controller run`: the deployable that certifies, holds, drains, repairs and re-admits nodes."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
from typing import TYPE_CHECKING

import click

from muster.cli.cluster import cluster_options
from muster.cli.environment import clock_from_environment
from muster.errors import BadInputError
from muster.kube.api import (
    CERTIFICATIONS,
    FAULT_POLICIES,
    LEASES,
    NODE_HEALTHS,
    NODES,
    PODS,
    REPAIRS,
    ForbiddenError,
    NotFoundError,
)
from muster.resources.base import SYSTEM_NAMESPACE

if TYPE_CHECKING:
    from muster.clock import Clock
    from muster.kube.api import KubeApi

IDENTITY_LIMIT = 128


@click.group()
def controller() -> None:
    """Run the controller."""


@controller.command()
@cluster_options
@click.option("--identity", default=None, help="Name in the election.  [default: host name and process ID]")
@click.option("-v", "--verbose", is_flag=True, help="Log retries and conflicts too.")
def run(kubeconfig: str | None, context: str | None, identity: str | None, verbose: bool) -> None:
    """Run until stopped (SIGTERM or Ctrl-C). Several may run: one leads, the others wait for its lease.

    Logs one line to standard error for each transition of a node.
    """
    name = identity if identity is not None else f"{socket.gethostname()}-{os.getpid()}"
    if not name.strip() or len(name) > IDENTITY_LIMIT or not name.isprintable():
        raise BadInputError(f"--identity must be 1 to {IDENTITY_LIMIT} printable characters; give another name.")
    clock = clock_from_environment()
    logging.basicConfig(
        level=logging.DEBUG if verbose else logging.WARNING, format="%(levelname)s %(name)s: %(message)s"
    )
    # The client libraries log every request at these levels.
    for noisy in ("httpx", "httpx2", "httpcore", "httpcore2", "asyncio"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    asyncio.run(_run(kubeconfig, context, name, clock))


async def check_access(api: KubeApi, server: str) -> None:
    """Ask once for what the controllers need, so that what is missing is one sentence now and not a silent wait.

    Raises BadInputError when the server does not let us in or does not know Muster's resources, or what `api` raises.
    """
    needed = (NODES, PODS, LEASES, NODE_HEALTHS, CERTIFICATIONS, REPAIRS, FAULT_POLICIES)
    for resource in needed:
        try:
            # The Leases are watched in one namespace only, and no role need allow more.
            await api.list_page(resource, SYSTEM_NAMESPACE if resource is LEASES else "", limit=1)
        except NotFoundError as error:
            name = f"{resource.plural}.{resource.group}"
            raise BadInputError(
                f"The API server {server} does not know {name}; install Muster's resource definitions first."
            ) from error
        except ForbiddenError as error:
            raise BadInputError(
                f"The API server {server} does not let the controller list {resource.plural} "
                f"({str(error).rstrip('.')}); check the credentials of the kubeconfig and its roles."
            ) from error


async def _run(kubeconfig: str | None, context: str | None, identity: str, clock: Clock) -> None:
    from muster.controller.process import ControllerProcess
    from muster.kube.http import HttpApi

    async with HttpApi.from_kubeconfig(kubeconfig, context) as api, api.separate() as second:
        await check_access(api, api.server)
        clients = [second, api]
        process = ControllerProcess(clients.pop, clock, identity, tell=lambda line: click.echo(line, err=True))
        work = asyncio.ensure_future(process.run())
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, work.cancel)
        try:
            await work
        except asyncio.CancelledError:
            click.echo(f"controller {identity} stopped", err=True)
