"""The story with the controller as a process of its own, over HTTPS, on accelerated real time."""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import TextIO

from muster.clock import Clock, ScaledClock
from muster.demo.cluster import Cluster
from muster.demo.outcome import Outcome
from muster.demo.story import prepare
from muster.demo.view import PlainView
from muster.errors import MusterError
from muster.sim.plant import Plant
from muster.sim.server import ApiServer
from muster.sim.virtual import DEFAULT_START

DEFAULT_SPEED = 60.0
"""Simulated seconds per real second: leases must still be renewed in time on a small machine."""

RESTART_S = 0.5
"""Real seconds from the death of a controller to the start of the next."""

QUICK_S = 5.0
MAX_QUICK_DEATHS = 5
"""A controller that dies so often in a row without having run QUICK_S will not get better by itself."""

STOP_S = 10.0
USER = "admin"


class ControllerDiesError(MusterError):
    """The controller process does not stay up."""


Beside = Callable[[Cluster, Clock], Awaitable[None]]
"""Something that a caller does in the cluster while the story goes on."""


async def play(plant: Plant, out: TextIO, speed: float, beside: Beside | None = None) -> Outcome:
    """Play `plant` with `muster controller run` as a child process that is started again whenever it dies."""
    clock = ScaledClock(DEFAULT_START, time.time(), speed)
    view = PlainView(out, DEFAULT_START, 0.0)
    story = await prepare(plant, clock, view.line)
    with tempfile.TemporaryDirectory(prefix="muster-demo-") as folder:
        async with ApiServer(story.cluster.store, port=0) as server:
            kubeconfig = Path(folder) / "kubeconfig"
            _write_private(kubeconfig, server.kubeconfig(USER))
            keeper = _Keeper(kubeconfig, Path(folder) / "controller.log", clock, out)

            async def controllers(cluster: Cluster, clock: Clock) -> None:
                work = [keeper.run(), *([beside(cluster, clock)] if beside is not None else [])]
                await _together([asyncio.ensure_future(w) for w in work])

            return await story.play(controllers)


async def _together(tasks: Sequence[asyncio.Future[None]]) -> None:
    """Until one fails, which is raised as it is, or all end."""
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _write_private(path: Path, text: str) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(text)


class _Keeper:
    """Keeps one controller process running, as a Deployment would."""

    def __init__(self, kubeconfig: Path, log: Path, clock: ScaledClock, out: TextIO) -> None:
        self._kubeconfig = kubeconfig
        self._log = log
        self._clock = clock
        self._out = out

    async def run(self) -> None:
        """Start, wait, start again, for ever. Raises ControllerDiesError when that does not help."""
        deaths = 0
        number = 0
        while True:
            started = time.monotonic()
            code = await self._one(number)
            number += 1
            deaths = deaths + 1 if time.monotonic() - started < QUICK_S else 0
            if deaths >= MAX_QUICK_DEATHS:
                raise ControllerDiesError(f"The controller process does not stay up; its last words: {self._last()}")
            self._say(f"the controller process ended with code {code}; another one starts.")
            await asyncio.sleep(RESTART_S)

    async def _one(self, number: int) -> int:
        command = [
            "-m",
            "muster.cli.main",
            "controller",
            "run",
            "--test-runner",
            "pods",
            "--kubeconfig",
            str(self._kubeconfig),
        ]
        with self._log.open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                *command,
                "--identity",
                f"muster-controller-{number}",
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._environment(),
            )
        self._say(f"the controller runs as process {process.pid}.")
        try:
            return await process.wait()
        finally:
            if process.returncode is None:
                await _stop(process)

    def _environment(self) -> Mapping[str, str]:
        return {**os.environ, "MUSTER_CLOCK": self._clock.encode()}

    def _say(self, text: str) -> None:
        self._out.write(f"(controller) {text}\n")
        self._out.flush()

    def _last(self) -> str:
        lines = self._log.read_text(errors="replace").splitlines()
        return " / ".join(lines[-3:]) or "none"


async def _stop(process: asyncio.subprocess.Process) -> None:
    """Ask it to end, then make it."""
    process.terminate()
    try:
        await asyncio.wait_for(process.wait(), STOP_S)
    except TimeoutError:
        process.kill()
        await process.wait()
