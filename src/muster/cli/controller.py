"""`muster controller run`: the deployable that certifies, holds, drains, repairs and re-admits nodes."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
import socket
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from muster.cli.cluster import cluster_options
from muster.cli.deployable import deployable_options, finite, run_until_told, telemetry
from muster.cli.environment import clock_from_environment
from muster.errors import BadInputError, UnreachableError
from muster.kube.api import (
    CERTIFICATIONS,
    FAULT_POLICIES,
    JOBS,
    LEASES,
    MAINTENANCES,
    NODE_HEALTHS,
    NODES,
    PODS,
    REPAIRS,
    ForbiddenError,
    NotFoundError,
    ServerError,
    TooManyRequestsError,
)
from muster.kube.backoff import Backoff
from muster.resources.base import SYSTEM_NAMESPACE
from muster.telemetry.log_lines import LogFormat, configure

if TYPE_CHECKING:
    from collections.abc import Callable

    from muster.certify.runners.program_jobs import ClusterRunner
    from muster.certify.runners.worker_link import WorkerLink
    from muster.certify.runners.worker_pods import Images
    from muster.clock import Clock
    from muster.controller.process import ControllerProcess, MakeHistory
    from muster.kube.api import KubeApi
    from muster.operate.history.keep import HistoryKeeper
    from muster.telemetry.metrics import ControllerMetrics
    from muster.telemetry.observer import ControllerObserver, FleetFigures

log = logging.getLogger("muster.controller")

IDENTITY_LIMIT = 128
START_RETRY_S = 30.0
"""Longest pause between two attempts to reach the API server at the start."""
REFUSED_S = 10.0
"""Of the machine's time. An API server that has just started refuses for a moment what its roles allow, and a new
resource definition is served a moment after it was accepted."""
REFUSED_RETRY_S = 0.5
_IMAGE = re.compile(r"[A-Za-z0-9\[][A-Za-z0-9._:/@\[\]-]{0,511}")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ ")


@dataclass(frozen=True)
class _Options:
    kubeconfig: str | None
    context: str | None
    identity: str
    listen: str | None
    test_image: str | None
    muster_image: str | None
    test_runner: str
    baselines: bool
    outputs: Path | None
    providers: Path | None
    history: str | None
    retention_days: int
    requests: dict[str, Any]
    """Request rate of each client, where the user gave one."""


@click.group()
def controller() -> None:
    """Run the controller."""


@controller.command()
@cluster_options
@click.option("--identity", default=None, help="Name in the election.  [default: host name and process ID]")
@deployable_options
@click.option(
    "--requests-per-second",
    type=click.FloatRange(min=0, min_open=True),
    callback=finite,
    help="Requests to the API server in the long run.  [default: 300]",
)
@click.option("--burst", type=click.IntRange(min=1), help="Requests at once.  [default: 600]")
@click.option(
    "--test-image",
    envvar="MUSTER_TEST_IMAGE",
    help="Image in which tests run, with PyTorch (or $MUSTER_TEST_IMAGE).  [default: the one of this version]",
)
@click.option(
    "--muster-image",
    envvar="MUSTER_IMAGE",
    help="Image of Muster that brings the test programs (or $MUSTER_IMAGE).  [default: the one of this version]",
)
@click.option(
    "--test-runner",
    type=click.Choice(["workers", "pods"]),
    default="workers",
    show_default=True,
    help="workers: one long-lived pod per node runs all tests. pods: a pod for each run and node, with programs that "
    "the image brings itself (the simulated fleet).",
)
@click.option(
    "--baselines",
    is_flag=True,
    help="Compare the cluster with its Baselines; needs to read the Secrets that are Helm's release records.",
)
@click.option(
    "--outputs",
    type=click.Path(path_type=Path, dir_okay=False),
    help="File that says where events and the audit log go (docs/how-to/outputs.md).",
)
@click.option(
    "--providers",
    type=click.Path(path_type=Path, dir_okay=False),
    help="File that says who carries out repairs (docs/how-to/repairs.md).  [default: nobody in this process]",
)
@click.option(
    "--history",
    metavar="URL",
    envvar="MUSTER_HISTORY_URL",
    help="Database in which the history is kept: sqlite:///PATH or postgresql://... (docs/how-to/keep-history.md).  "
    "[default: none is kept]",
)
@click.option(
    "--history-retention",
    "retention_days",
    metavar="DAYS",
    type=click.IntRange(0, 36500),
    default=400,
    show_default=True,
    help="Delete history that is older; 0: never.",
)
@click.option("-v", "--verbose", is_flag=True, help="Log retries and conflicts too.")
def run(
    kubeconfig: str | None,
    context: str | None,
    identity: str | None,
    listen: str | None,
    log_format: LogFormat,
    requests_per_second: float | None,
    burst: int | None,
    test_image: str | None,
    muster_image: str | None,
    test_runner: str,
    baselines: bool,
    outputs: Path | None,
    providers: Path | None,
    history: str | None,
    retention_days: int,
    verbose: bool,
) -> int:
    """Run until stopped (SIGTERM or Ctrl-C). Several may run: one leads, the others wait for its lease.

    Logs one line to standard error for each transition of a node. An API server that cannot be reached at the start
    is waited for.
    """
    name = identity if identity is not None else f"{socket.gethostname()}-{os.getpid()}"
    if not name.strip() or len(name) > IDENTITY_LIMIT or not name.isprintable():
        raise BadInputError(f"--identity must be 1 to {IDENTITY_LIMIT} printable characters; give another name.")
    for option, image in (("--test-image", test_image), ("--muster-image", muster_image)):
        if image is not None and not _IMAGE.fullmatch(image):
            raise BadInputError(f"{option} is not the name of an image; give one such as registry.example/tests:1.0.")
    clock = clock_from_environment()
    configure(log_format, clock, level=logging.DEBUG if verbose else logging.WARNING)
    for told in (log, logging.getLogger("muster.cli.deployable")):
        told.setLevel(logging.DEBUG if verbose else logging.INFO)
    rates = {"rate_per_s": requests_per_second, "burst": burst}
    given = {key: value for key, value in rates.items() if value is not None}
    options = _Options(
        kubeconfig,
        context,
        name,
        listen,
        test_image,
        muster_image,
        test_runner,
        baselines,
        outputs,
        providers,
        history,
        retention_days,
        given,
    )
    return run_until_told(lambda: _run(options, clock), log_format)


async def check_access(api: KubeApi, server: str, *, workers: bool = False) -> None:
    """Ask once for what the controllers need, so that what is missing is one sentence now and not a silent wait.

    `workers`: tests run in workers. Raises BadInputError when the server does not let us in or does not know Muster's
    resources, or what `api` raises.
    """
    needed = [NODES, PODS, LEASES, NODE_HEALTHS, CERTIFICATIONS, REPAIRS, FAULT_POLICIES, MAINTENANCES]
    needed += [JOBS] if workers else []
    for resource in needed:
        try:
            # Leases and Jobs are watched in one namespace only, and no role need allow more.
            await api.list_page(resource, SYSTEM_NAMESPACE if resource in (LEASES, JOBS) else "", limit=1)
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


async def wait_for_access(api: KubeApi, server: str, clock: Clock, *, workers: bool = False) -> None:
    """`check_access`, tried again until the server answers; says so once. Raises BadInputError as it does.

    A process that ended here would be started again by its Deployment, with the same result and a louder noise. A
    server that refuses is believed after REFUSED_S.
    """
    loop = asyncio.get_running_loop()
    backoff = Backoff("start", base_s=1.0, cap_s=START_RETRY_S)
    said = False
    refused_since: float | None = None
    while True:
        try:
            await check_access(api, server, workers=workers)
        except (UnreachableError, ServerError, TooManyRequestsError) as error:
            log.log(logging.DEBUG if said else logging.WARNING, "%s It is tried again until it works.", error)
            said, refused_since = True, None
            await clock.sleep(backoff.next_s())
        except BadInputError as error:
            refused_since = loop.time() if refused_since is None else refused_since
            if loop.time() - refused_since >= REFUSED_S:
                raise
            log.debug("%s It is tried again for a moment.", error)
            await asyncio.sleep(REFUSED_RETRY_S)
        else:
            break
    if said:
        log.info("the API server %s answers", server)


class _Running:
    """What the endpoint asks about: the process, once there is one."""

    process: ControllerProcess | None = None

    def figures(self) -> FleetFigures | None:
        return self.process.figures() if self.process is not None else None

    def not_ready(self) -> str:
        return self.process.not_ready() if self.process is not None else "the API server has not answered yet"


async def _run(options: _Options, clock: Clock) -> None:
    from muster.certify.runners.http_link import HttpWorkerLink
    from muster.certify.runners.test_pod import DEFAULT_IMAGE
    from muster.certify.runners.worker_pods import MUSTER_IMAGE, Images
    from muster.controller.baseline_compare import ClusterComparison
    from muster.controller.process import ControllerProcess
    from muster.kube.http import HttpApi
    from muster.operate.outputs.config import load as load_outputs
    from muster.operate.providers.assembly import make_providers
    from muster.operate.providers.config import load_config as load_providers

    # Both are read and tried before the cluster is asked for anything: what is wrong in them is one sentence now.
    outputs = load_outputs(options.outputs) if options.outputs is not None else None
    providers = load_providers(options.providers) if options.providers is not None else None
    history = _history(options)
    running = _Running()
    images = Images(options.test_image or DEFAULT_IMAGE, options.muster_image or MUSTER_IMAGE)

    def metrics() -> ControllerMetrics:
        from muster import __version__
        from muster.telemetry.metrics import ControllerMetrics

        return ControllerMetrics(__version__, running.figures)

    async with (
        telemetry(options.listen, metrics, running.not_ready) as counted,
        HttpApi.from_kubeconfig(options.kubeconfig, options.context, **options.requests) as api,
        api.separate() as second,
        contextlib.aclosing(HttpWorkerLink(clock)) as link,
    ):
        await wait_for_access(api, api.server, clock, workers=options.test_runner == "workers")
        clients = [second, api]
        running.process = ControllerProcess(
            clients.pop,
            clock,
            options.identity,
            tell=_tell,
            test_image=images.test,
            make_runner=partial(_workers, link, images) if options.test_runner == "workers" else None,
            observer=counted,
            compare=partial(ClusterComparison, clock=clock, version=api.server_version)
            if options.baselines
            else None,
            providers=partial(make_providers, providers) if providers is not None else None,
            outputs=outputs,
            history=history,
        )
        try:
            await running.process.run()
        finally:
            log.info("controller %s stopped", options.identity)


def _history(options: _Options) -> MakeHistory | None:
    """What keeps the history; its address is read now, the database may be away. Raises BadInputError."""
    if not options.history:
        return None
    from muster.operate.history.address import parse
    from muster.operate.history.keep import HistoryKeeper
    from muster.operate.history.store import open_store, require_driver

    address = parse(options.history)
    require_driver(address)
    opened = partial(open_store, address, create=True)

    def make(api: KubeApi, clock: Clock, observer: ControllerObserver) -> HistoryKeeper:
        return HistoryKeeper(api, clock, opened, retention_days=options.retention_days, observer=observer)

    log.info("the history is kept in %s", address.shown)
    return make


def _workers(
    link: WorkerLink,
    images: Images,
    api: KubeApi,
    clock: Clock,
    alive: Callable[[str], bool],
    on_change: Callable[[str], None],
) -> ClusterRunner:
    """The runner of a real cluster."""
    from muster.certify.runners.pods import PodRunner
    from muster.certify.runners.program_jobs import ClusterRunner
    from muster.certify.runners.workers import WorkerRunner

    return ClusterRunner(
        WorkerRunner(api, clock, link, images, alive=alive, on_change=on_change),
        PodRunner(api, clock, image=images.test, alive=alive, on_change=on_change),
    )


def _tell(line: str) -> None:
    """A line for each transition; its time is that of the log line."""
    log.info("%s", _TIME.sub("", line, count=1) if _TIME.match(line) else line)
