"""Controller processes of the bed: started, started again when they die, killed by the tests."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from muster.clock import ScaledClock
from muster.kube.api import LEASES, KubeApi, NotFoundError
from muster.resources.base import CONTROLLER_LEASE, SYSTEM_NAMESPACE
from muster.sim.agent_processes import die_with_parent

RESTART_S = 0.5
QUICK_S = 3.0
MAX_QUICK_DEATHS = 5
STOP_S = 15.0


class Controllers:
    """One `muster controller run` for each kubeconfig, kept running as a Deployment would.

    Each process has an identity of its own in the election, `<slot>.<generation>`.
    """

    def __init__(self, kubeconfigs: Sequence[Path], folder: Path, clock: ScaledClock) -> None:
        self._kubeconfigs = {f"controller-{number}": path for number, path in enumerate(kubeconfigs)}
        self._folder = folder
        self._clock = clock
        self.history_url = f"sqlite://{folder}/history.db"
        """Where whoever leads keeps the history."""
        self._processes: dict[str, asyncio.subprocess.Process] = {}
        self.killed = 0
        self.ends: list[tuple[str, int]] = []
        """Identity and exit code of every process that ended before the bed did."""

    async def run(self) -> None:
        """Keep all of them running for ever; on the way out they are asked to end."""
        async with asyncio.TaskGroup() as group:
            for slot in self._kubeconfigs:
                group.create_task(self._keep(slot))

    async def leader(self, api: KubeApi) -> str:
        """The identity that holds the lease, empty when no process that runs does."""
        try:
            lease = await api.get(LEASES, CONTROLLER_LEASE, SYSTEM_NAMESPACE)
        except NotFoundError:
            return ""
        holder = str((lease.get("spec") or {}).get("holderIdentity") or "")
        return holder if holder in self._processes else ""

    def kill(self, identity: str) -> None:
        """SIGKILL: no lease is given back, nothing is finished."""
        self.killed += 1
        self._processes[identity].send_signal(signal.SIGKILL)

    def told(self) -> str:
        """Everything that the processes said."""
        return "\n".join(f"== {p.stem}\n{p.read_text(errors='replace')}" for p in sorted(self._folder.glob("*.log")))

    async def _keep(self, slot: str) -> None:
        quick = generation = 0
        while True:
            started = time.monotonic()
            identity = f"{slot}.{generation}"
            code = await self._one(identity, self._kubeconfigs[slot])
            self.ends.append((identity, code))
            lived_s = time.monotonic() - started
            quick = quick + 1 if lived_s < QUICK_S and code != -signal.SIGKILL else 0
            assert quick < MAX_QUICK_DEATHS, f"{slot} does not stay up (exit code {code}): {self.told()[-3000:]}"
            generation += 1
            await asyncio.sleep(RESTART_S)

    async def _one(self, identity: str, kubeconfig: Path) -> int:
        with (self._folder / f"{identity}.log").open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                *("-m", "muster.cli.main", "controller", "run", "--test-runner", "pods"),
                *("--kubeconfig", str(kubeconfig), "--identity", identity),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, "MUSTER_CLOCK": self._clock.encode(), "MUSTER_HISTORY_URL": self.history_url},
                preexec_fn=die_with_parent,
            )
        self._processes[identity] = process
        try:
            return await process.wait()
        finally:
            del self._processes[identity]
            if process.returncode is None:
                await _stop(process)


async def _stop(process: asyncio.subprocess.Process) -> None:
    """Ask it to end, then make it."""
    process.terminate()
    try:
        await asyncio.wait_for(process.wait(), STOP_S)
    except TimeoutError:
        process.kill()
        await process.wait()
