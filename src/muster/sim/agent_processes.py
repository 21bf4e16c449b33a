"""Agents of the simulated fleet as processes of their own: `muster agent run` on the files of each machine."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

from muster.clock import ScaledClock
from muster.errors import MusterError
from muster.sim.machine_files import MachineFiles

RESTART_S = 0.5
"""Real seconds from the death of an agent to the start of the next."""
QUICK_S = 5.0
MAX_QUICK_DEATHS = 5
"""An agent that dies so often in a row without having run QUICK_S will not get better by itself."""
_PR_SET_PDEATHSIG = 1
CONFIG = "".join(
    f"{section}: {{enabled: false}}\n" for section in ("assignments", "gpu", "host", "maintenance", "network")
)
"""A simulated machine has a kernel log and the files of an inventory. Its monitors of hardware would look at the
machine that simulates it, and on a fast clock hundreds of times a second."""


class AgentDiesError(MusterError):
    """The agent process of a node does not stay up."""


def die_with_parent() -> None:
    """For a child before it becomes another program: the kernel ends it when its parent is gone."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


class AgentProcesses:
    """Runs the agents of a world whose machines are mirrored in `files`.

    `kubeconfig` names the file with the credentials of a node's agent. `interval_s` and `heartbeat_s` are in the time
    of `clock`, which the processes share.
    """

    def __init__(
        self,
        files: MachineFiles,
        kubeconfig: Callable[[str], Path],
        clock: ScaledClock,
        *,
        interval_s: float,
        heartbeat_s: float,
    ) -> None:
        self._files = files
        self._kubeconfig = kubeconfig
        self._clock = clock
        self._options = ("--interval", f"{interval_s:g}", "--heartbeat", f"{heartbeat_s:g}")
        self.pids: dict[str, int] = {}
        """Processes that run now, by node."""

    async def live(self, node: str) -> None:
        """Keep the agent of `node` running, as a DaemonSet would, until this is cancelled: then the machine is off.

        Raises AgentDiesError when starting it again does not help.
        """
        deaths = 0
        while True:
            started = time.monotonic()
            code = await self._one(node)
            deaths = deaths + 1 if time.monotonic() - started < QUICK_S else 0
            if deaths >= MAX_QUICK_DEATHS:
                raise AgentDiesError(
                    f"The agent of {node} does not stay up (exit code {code}); its last words: {self._last(node)}"
                )
            await asyncio.sleep(RESTART_S)

    def log(self, node: str) -> Path:
        """What the agents of `node` said."""
        return self._files.state(node).with_name("agent.log")

    async def _one(self, node: str) -> int:
        config = self._files.state(node).with_name("agent.yaml")
        config.write_text(CONFIG)
        with self.log(node).open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                *("-m", "muster.cli.main", "agent", "run", "--node", node),
                *("--kubeconfig", str(self._kubeconfig(node))),
                *("--kernel-log", str(self._files.kernel_log(node))),
                *("--state-dir", str(self._files.state(node))),
                *("--host-root", str(self._files.root(node))),
                *("--config", str(config)),
                *self._options,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, "MUSTER_CLOCK": self._clock.encode()},
                preexec_fn=die_with_parent,
            )
        self.pids[node] = process.pid
        try:
            return await process.wait()
        finally:
            if self.pids.get(node) == process.pid:
                del self.pids[node]
            if process.returncode is None:
                # The power is off: nobody is asked.
                process.kill()
                await process.wait()

    def _last(self, node: str) -> str:
        lines = self.log(node).read_text(errors="replace").splitlines()
        return " / ".join(lines[-3:]) or "none"
