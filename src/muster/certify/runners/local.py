"""Runs on this machine: one worker process for each node, on 127.0.0.1 or wherever a placement says.

The workers are those that run in a cluster, and so is the coordinator's part; only what starts them differs. A worker
that dies is started again under the same address.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import socket
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import IO

from muster.certify.measure import RankEnd
from muster.certify.runners import Owner, Tell, Work
from muster.certify.runners.http_link import HttpWorkerLink
from muster.certify.runners.rounds import Launch, carry_out
from muster.certify.runners.worker_link import (
    WorkerAddress,
    WorkerRefusedError,
    WorkerState,
    WorkerUnreachableError,
)
from muster.clock import Clock
from muster.errors import UnreachableError

log = logging.getLogger(__name__)

UP_WITHIN_S = 120.0
"""Until a worker is ready: eight of them import PyTorch at the same time, on two cores."""
LOOK_S = 0.1
STOP_WITHIN_S = 6.0
RESTART_PAUSE_S = 0.2
PORT_BLOCKS = range(20_000, 32_000, 100)
"""Where rendezvous ports are taken from: below the ports that systems give to clients."""
PORTS = 100


@dataclass(frozen=True)
class Place:
    """Where the worker of one node runs."""

    host: str = "127.0.0.1"
    prefix: tuple[str, ...] = ()
    """Command that runs another one there, for example `ip netns exec NAME`."""
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass
class _Process:
    """The worker of one node."""

    node: str
    place: Place
    port: int = 0
    child: asyncio.subprocess.Process | None = None
    tending: asyncio.Task[None] | None = None
    starts: int = 0


class LocalRunner:
    """`Runner` over processes of this machine. Use it as an asynchronous context manager.

    `python` runs the workers and needs PyTorch for most tests; `folder` takes what the workers print.
    `inject`: faults to act out, by node.
    """

    def __init__(
        self,
        clock: Clock,
        places: Mapping[str, Place],
        *,
        python: Path,
        folder: Path,
        inject: Mapping[str, Mapping[str, object]] | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self._clock = clock
        self._python = python
        self._folder = folder
        self._token = secrets.token_hex(32)
        self._processes = {node: _Process(node, place) for node, place in places.items()}
        self._link = HttpWorkerLink(clock)
        self.launch = Launch(device="cpu", first_port=_free_block(), ports=PORTS, env=env or {}, inject=inject or {})

    async def __aenter__(self) -> LocalRunner:
        try:
            await _all(self._begin(process) for process in self._processes.values())
            await _all(self._until_ready(node) for node in self._processes)
        except BaseException:
            await self.aclose()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    @property
    def workers(self) -> Mapping[str, WorkerAddress]:
        """By node."""
        return {n: WorkerAddress(n, p.place.host, p.port, self._token) for n, p in self._processes.items()}

    @property
    def pids(self) -> Mapping[str, int]:
        """Process of each worker that runs, by node."""
        return {n: p.child.pid for n, p in self._processes.items() if p.child is not None}

    async def state(self, node: str) -> WorkerState:
        """What a worker says about itself. Raises WorkerUnreachableError and WorkerRefusedError."""
        return await self._link.state(self.workers[node])

    def begin(self, prefix: str, inject: Mapping[str, Mapping[str, object]]) -> None:
        """A new certification on the same workers: `prefix` goes before its run IDs; `inject`: faults by node."""
        self.launch = replace(self.launch, prefix=prefix, inject=dict(inject))

    async def carry_out(
        self,
        work: Work,
        blocked: Tell,  # noqa: ARG002 - part of the interface
    ) -> Mapping[str, tuple[RankEnd, ...]]:
        """See `Runner`. Nothing ever keeps a local run from starting, so `blocked` is not told anything."""
        # The machine itself is always there; a worker that is not comes back.
        return await carry_out(self._clock, self._link, self.workers, work, self.launch, lambda _: True)

    async def clean(
        self,
        owner: Owner,  # noqa: ARG002 - the workers belong to one certification
        keep: frozenset[str],
        blocked: Tell,  # noqa: ARG002 - part of the interface
    ) -> None:
        """See `Runner`: stop every run but those of `keep`."""
        for node, worker in self.workers.items():
            try:
                running = [r for r, phase in (await self._link.state(worker)).runs.items() if phase == "running"]
                kept = {self.launch.prefix + run for run in keep}
                for run in sorted(running):
                    if run not in kept:
                        await self._link.stop(worker, run)
            except (WorkerUnreachableError, WorkerRefusedError) as error:
                # A worker that died took its run with it.
                log.info("worker of %s: %s", node, error)

    async def aclose(self) -> None:
        """End all workers, with what they run, and see them gone."""
        for process in self._processes.values():
            if process.tending is not None:
                process.tending.cancel()
        await asyncio.gather(*(p.tending for p in self._processes.values() if p.tending), return_exceptions=True)
        await asyncio.gather(*(self._end(p) for p in self._processes.values()))
        await self._link.aclose()

    # Processes

    async def _begin(self, process: _Process) -> None:
        await self._spawn(process)
        process.tending = asyncio.create_task(self._tend(process))

    async def _spawn(self, process: _Process) -> None:
        port_file = self._folder / f"{process.node}.port"
        port_file.unlink(missing_ok=True)
        command = [
            *process.place.prefix,
            *(str(self._python), "-m", "muster.workloads", "worker"),
            *("--listen", f"{process.place.host}:{process.port}"),
            *("--token-file", "/dev/stdin"),
            *("--node", process.node),
            *("--device", "cpu"),
            *("--port-file", str(port_file)),
            *("--parent", str(os.getpid())),
            "--allow-injection",
        ]
        with (self._folder / f"{process.node}.log").open("ab") as output, _pipe_with(self._token) as token:
            try:
                process.child = await asyncio.create_subprocess_exec(
                    *command,
                    stdin=token,
                    stdout=output,
                    stderr=output,
                    env=_environment(process.place, self._folder),
                    start_new_session=True,
                )
            except OSError as error:
                raise UnreachableError(f"The worker of {process.node} does not start: {error}.") from error
        process.starts += 1
        limit_s = UP_WITHIN_S
        while not port_file.exists():
            if process.child.returncode is not None or limit_s <= 0:
                raise UnreachableError(f"The worker of {process.node} does not start: {self._said(process.node)}")
            await self._clock.sleep(LOOK_S)
            limit_s -= LOOK_S
        process.port = int(port_file.read_text())

    async def _tend(self, process: _Process) -> None:
        while process.child is not None:
            code = await process.child.wait()
            log.warning("the worker of %s ended with %s; it is started again", process.node, code)
            await self._clock.sleep(RESTART_PAUSE_S)
            try:
                await self._spawn(process)
            except UnreachableError as error:
                # Looked at again at once: the process that did not come up has ended, or is ended here. Another
                # program may have the port by now, so the next one takes any.
                log.warning("%s", error)
                await self._end(process)
                process.port = 0

    async def _until_ready(self, node: str) -> None:
        limit_s = UP_WITHIN_S
        why = "it imports PyTorch"
        while limit_s > 0:
            try:
                if (await self.state(node)).ready:
                    return
            except WorkerUnreachableError as error:
                why = str(error)
            await self._clock.sleep(LOOK_S)
            limit_s -= LOOK_S
        raise UnreachableError(f"The worker of {node} is not ready after {UP_WITHIN_S:.0f} s: {why}.")

    @staticmethod
    async def _end(process: _Process) -> None:
        child = process.child
        if child is None or child.returncode is not None:
            return
        child.terminate()
        try:
            await asyncio.wait_for(child.wait(), STOP_WITHIN_S)
        except TimeoutError:
            child.kill()
            await child.wait()

    def _said(self, node: str) -> str:
        text = (self._folder / f"{node}.log").read_bytes()[-300:].decode("utf-8", "replace")
        return " ".join(text.split()) or "it says nothing"


async def _all(steps: Iterable[Awaitable[None]]) -> None:
    """Take all steps at once. After the first error none of them goes on: it might start one more process."""
    tasks = [asyncio.ensure_future(step) for step in steps]
    try:
        await asyncio.gather(*tasks)
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise


def _pipe_with(text: str) -> IO[bytes]:
    """The reading end of a pipe that holds `text`: what a process is told lies in no file and in no argument."""
    reading, writing = os.pipe()
    with os.fdopen(writing, "wb") as pipe:
        pipe.write(text.encode())
    return os.fdopen(reading, "rb")


def _environment(place: Place, folder: Path) -> dict[str, str]:
    """The workers find this package wherever their Python is from; their ranks share the cores of one machine.

    What a worker writes goes into `folder`, which is taken away even after a worker that was killed.
    """
    own = str(Path(__file__).resolve().parents[3])
    return {
        **os.environ,
        "PYTHONPATH": own,
        "TMPDIR": str(folder),
        "OMP_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        **place.env,
    }


def _free_block() -> int:
    """The first of `PORTS` ports that are all free, beginning at a place of this process's own."""
    blocks: Sequence[int] = list(PORT_BLOCKS)
    offset = os.getpid() % len(blocks)
    for first in (*blocks[offset:], *blocks[:offset]):
        if all(_is_free(port) for port in range(first, first + PORTS)):
            return first
    raise UnreachableError(f"No {PORTS} ports in a row are free between {PORT_BLOCKS.start} and {PORT_BLOCKS.stop}.")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
