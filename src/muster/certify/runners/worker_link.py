"""How the coordinator speaks with the workers: four requests, each safe to send again.

A worker is addressed by its node. Requests and answers are signed with the token of the certification, which itself
never travels (see `muster.workloads.signing`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from muster.workloads.run_spec import RunSpec


class WorkerUnreachableError(Exception):
    """The worker did not answer, or not with its signature. The request may have taken effect all the same."""


class WorkerRefusedError(Exception):
    """The worker understood the request and says no. `busy`: the run that keeps it from starting another one."""

    def __init__(self, why: str, *, busy: str = "") -> None:
        super().__init__(why)
        self.busy = busy


@dataclass(frozen=True)
class WorkerAddress:
    """Where the worker of `node` listens, and the token that both sides know."""

    node: str
    host: str
    port: int
    token: str = field(repr=False)


@dataclass(frozen=True)
class WorkerState:
    """What a worker says about itself."""

    node: str
    incarnation: str
    """Random for each process: another one means that the worker was started again."""
    device: str = "cpu"
    ranks: int = 1
    runs: Mapping[str, str] = field(default_factory=dict)
    """Run -> `running` or `ended`."""
    versions: Mapping[str, str] = field(default_factory=dict)
    ready: bool = True
    """A run can start."""
    skew_s: float = 0.0
    """Clock of the worker minus that of the coordinator."""


class RunPhase(Enum):
    RUNNING = "running"
    ENDED = "ended"
    UNKNOWN = "unknown"
    """The worker knows no such run: it was never asked, or it was started again since."""


class HowRunEnded(Enum):
    """What the worker saw of the end of its child."""

    NOT_ENDED = ""
    REPORTED = "reported"
    CRASHED = "crashed"
    """By a signal, or with an exit code other than 0 and without a report."""
    MUTE = "mute"
    """With exit code 0 and without a report that can be read."""
    TIMEOUT = "timeout"
    """The worker ended it at its deadline."""
    STOPPED = "stopped"
    """The coordinator asked for that."""


@dataclass(frozen=True)
class RunAnswer:
    """What a worker says about a run. `report`: the JSON of a NodeReport, foreign text until it is read."""

    phase: RunPhase
    how: HowRunEnded = HowRunEnded.NOT_ENDED
    report: bytes = b""
    message: str = ""


class WorkerLink(Protocol):
    """Each method raises WorkerUnreachableError and WorkerRefusedError, and may be called again after either."""

    async def state(self, worker: WorkerAddress) -> WorkerState:
        """What the worker is and what it runs."""
        ...

    async def start(self, worker: WorkerAddress, spec: RunSpec) -> bool:
        """Start the run. A run that the worker has already, running or ended, is left as it is: False."""
        ...

    async def result(self, worker: WorkerAddress, run: str, wait_s: float) -> RunAnswer:
        """How the run stands; waits up to `wait_s` seconds for its end."""
        ...

    async def stop(self, worker: WorkerAddress, run: str) -> None:
        """End the run; returns when all its processes are gone. Nothing happens when it has ended or is unknown."""
        ...
