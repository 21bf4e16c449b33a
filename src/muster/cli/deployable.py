"""What the two `run` verbs of the deployables have in common: log lines, health and metrics, the way to stop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import signal
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

import click

from muster.errors import BadInputError, ExitCode, MusterError
from muster.telemetry.log_lines import LogFormat

if TYPE_CHECKING:
    from muster.telemetry.metrics import Metrics

F = TypeVar("F", bound=Callable[..., Any])
M = TypeVar("M", bound="Metrics")
log = logging.getLogger(__name__)

STOP_S = 5.0
"""Real seconds that a process has to stop in once it was told to. A kubelet kills after 30 by default."""


def deployable_options(command: F) -> F:
    """Adds `--listen` and `--log-format`; the command receives `listen: str | None` and `log_format: LogFormat`."""
    command = click.option(
        "--log-format",
        type=click.Choice([f.value for f in LogFormat]),
        default=LogFormat.TEXT.value,
        show_default=True,
        callback=lambda _ctx, _param, value: LogFormat(value),
        help="Log lines for people, or one JSON object a line.",
    )(command)
    return click.option(
        "--listen",
        metavar="ADDRESS:PORT",
        default=None,
        help="Serve /healthz, /readyz and /metrics there; ':8080' means every address.  [default: off]",
    )(command)


def finite(_ctx: click.Context, parameter: click.Parameter, value: float | None) -> float | None:
    """Callback for options of type float: click itself lets `nan` and `inf` pass. Raises BadInputError."""
    if value is not None and not math.isfinite(value):
        raise BadInputError(f"{parameter.opts[0]} must be a finite number; give another one.")
    return value


@contextlib.asynccontextmanager
async def telemetry(
    listen: str | None, make: Callable[[], M], not_ready: Callable[[], str]
) -> AsyncIterator[M | None]:
    """Serve health and metrics while the block runs; does and imports nothing without `listen`.

    `make` builds the metrics. Raises BadInputError when the address cannot be used.
    """
    if listen is None:
        yield None
        return
    from muster.telemetry.endpoint import Address, Endpoint
    from muster.telemetry.health import Health

    address = Address.parse(listen)
    metrics = make()
    endpoint = Endpoint(address, Health(not_ready, metrics.lag), metrics.exposition)
    async with endpoint.serving():
        log.info("serves /healthz, /readyz and /metrics on %s", endpoint.address)
        yield metrics


def run_until_told(work: Callable[[], Coroutine[Any, Any, None]], log_format: LogFormat) -> int:
    """Run `work` to its end, or until SIGTERM or SIGINT; it then has STOP_S to stop. Returns the exit code.

    Raises MusterErrors of `work`; with JSON lines they are such a line, so that nothing else is written.
    """
    try:
        asyncio.run(_until_told(work()))
    except MusterError as error:
        if log_format is LogFormat.TEXT:
            raise
        log.error("%s", error)
        return error.exit_code
    return ExitCode.OK


async def _until_told(work: Coroutine[Any, Any, None]) -> None:
    task = asyncio.ensure_future(work)
    told = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, told.set)
    waiting = asyncio.ensure_future(told.wait())
    await asyncio.wait({task, waiting}, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    if task.done():
        task.result()
        return
    task.cancel()
    # Of the event loop's time: who told us to stop counts real seconds.
    await asyncio.wait({task}, timeout=STOP_S)
    if not task.done():
        log.warning("not everything could be tidied up within %g s; what was held expires by itself", STOP_S)
    elif not task.cancelled() and (error := task.exception()) is not None:
        log.warning("while stopping: %s", error)
