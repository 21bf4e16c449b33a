"""The snapshot of the machine that Muster runs on: every collector, and NVML."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

from muster.inventory import nvml
from muster.inventory.collect import COLLECTORS, collect
from muster.inventory.machine import Findings, Machine
from muster.inventory.record import NodeSnapshot, snapshot_of

PROGRAM_TIMEOUT_S = 10.0


def take(
    machine: Machine, node: str, now: datetime, *, ask_nvml: Callable[[], nvml.Answer] | None = None
) -> NodeSnapshot:
    """Run every collector over `machine`, and ask NVML where it is this machine's (`ask_nvml`)."""
    found = collect(machine, COLLECTORS)
    if ask_nvml is not None:
        found = _with_nvml(found, ask_nvml)
    return snapshot_of(found, node, now)


def _with_nvml(found: Findings, ask_nvml: Callable[[], nvml.Answer]) -> Findings:
    try:
        return nvml.merge(found, ask_nvml())
    except Exception as error:  # whatever NVML does, the readings of the files stay
        found.miss("nvml", f"NVML could not be asked: {type(error).__name__}")
        return found


def this_machine() -> Machine:
    """The machine that this process runs on."""
    return Machine(Path("/"), _run)


def _run(command: list[str]) -> str:
    program = shutil.which(command[0])
    if program is None:
        raise OSError(2, f"{command[0]} is not installed")
    try:
        done = subprocess.run(
            [program, *command[1:]],
            capture_output=True,
            timeout=PROGRAM_TIMEOUT_S,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired as error:
        raise OSError(110, f"{command[0]} did not answer within {PROGRAM_TIMEOUT_S:g} s") from error
    if done.returncode != 0:
        raise OSError(5, f"{command[0]} failed with exit code {done.returncode}")
    return done.stdout.decode("utf-8", errors="replace")
