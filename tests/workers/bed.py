"""A real worker process and a link to it."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from muster.certify.runners.http_link import HttpWorkerLink
from muster.certify.runners.worker_link import (
    RunAnswer,
    RunPhase,
    WorkerAddress,
    WorkerState,
    WorkerUnreachableError,
)
from muster.clock import SystemClock
from muster.workloads.run_spec import RunSpec

TOKEN = "s" * 40
READY_WITHIN_S = 60.0
CLOCK = SystemClock()


@dataclass
class RealWorker:
    """The worker of node `n1` on this machine."""

    process: subprocess.Popen[bytes]
    address: WorkerAddress
    link: HttpWorkerLink

    async def state(self) -> WorkerState:
        return await self.link.state(self.address)

    async def start(self, run: str, *command: str, timeout_s: float = 30.0, **more: object) -> None:
        await self.link.start(self.address, spec(run, *command, timeout_s=timeout_s, **more))

    async def ended(self, run: str) -> RunAnswer:
        for _ in range(60):
            answer = await self.link.result(self.address, run, 2.0)
            if answer.phase is not RunPhase.RUNNING:
                return answer
        raise AssertionError(f"{run} did not end")

    def end(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(timeout=10)


def spec(run: str, *command: str, timeout_s: float = 30.0, **more: object) -> RunSpec:
    fields = {"params": {"command": list(command)}, "nodes": ("n1",), "timeout_s": timeout_s, **more}
    return RunSpec(run=run, test="own", program="command", **fields)  # type: ignore[arg-type]  # fields by name


@asynccontextmanager
async def real_worker(
    folder: Path, *options: str, program: Sequence[str] = ("-m", "muster.workloads")
) -> AsyncIterator[RealWorker]:
    """A worker that is ready for runs. It is killed at the end, whatever became of it."""
    (folder / "token").write_text(TOKEN + "\n")
    port_file = folder / "port"
    command = [sys.executable, *program, "worker", "--listen", "127.0.0.1:0", "--node", "n1"]
    command += ["--token-file", str(folder / "token"), "--port-file", str(port_file), "--device", "cpu", *options]
    process = subprocess.Popen(command, env={**os.environ, "TMPDIR": str(folder)})  # noqa: ASYNC220 - brief
    link = HttpWorkerLink(CLOCK)
    try:
        left = READY_WITHIN_S
        while not port_file.exists() and process.poll() is None and left > 0:
            await asyncio.sleep(0.05)
            left -= 0.05
        address = WorkerAddress("n1", "127.0.0.1", int(port_file.read_text()), TOKEN)
        worker = RealWorker(process, address, link)
        await until_ready(worker)
        yield worker
    finally:
        process.kill()
        process.wait()
        await link.aclose()


async def until_ready(worker: RealWorker) -> None:
    for _ in range(int(READY_WITHIN_S / 0.1)):
        try:
            if (await worker.state()).ready:
                return
        except WorkerUnreachableError:
            pass
        await asyncio.sleep(0.1)
    raise AssertionError("the worker is not ready")


def processes_with(word: str) -> list[int]:
    """Processes that have `word` in their command line, this one left out."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
            if word.encode() in (entry / "cmdline").read_bytes() and state != "Z":
                found.append(int(entry.name))
        except OSError:
            continue
    return sorted(found)


async def gone(word: str, within_s: float = 5.0) -> bool:
    """No process with `word` is left, at the latest after `within_s`."""
    for _ in range(int(within_s / 0.1)):
        if not processes_with(word):
            return True
        await asyncio.sleep(0.1)
    return not processes_with(word)
