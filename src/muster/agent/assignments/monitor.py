"""Assignments of GPUs as a shell: files of the kubelet, its API where they cannot be read, NVML for MIG devices."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

import msgspec

from muster.agent.assignments import checkpoints, pod_resources
from muster.agent.assignments.assemble import (
    Held,
    Unassignable,
    assignments,
    from_checkpoints,
    from_pod_resources,
    unknown_migs,
)
from muster.agent.assignments.config import AssignmentsConfig, Source
from muster.agent.assignments.devices import KnownGpus, minor_of
from muster.agent.assignments.pods import PodNames, from_log_folders
from muster.agent.host.blocking import Blocking
from muster.agent.host.child import run_child
from muster.agent.monitor import Look, NodeFacts
from muster.clock import Clock
from muster.errors import BadInputError, MusterError, UnreachableError
from muster.inventory.machine import Machine
from muster.plain_text import plain

CHILD_INTERVAL_S = 60.0
"""A child costs a tenth of a second of a core: the API and NVML are asked at most so often."""
_CHILD_S = 8.0
_MAX_ANSWER_BYTES = 16 * 1024 * 1024
_LOGS = "var/log/pods"


@dataclass(frozen=True)
class _Files:
    """What the files of the node tell. `held` None: the checkpoints cannot be read, for the reason given."""

    held: tuple[Held, ...] | None
    reason: str
    names: PodNames
    present: frozenset[str] | None
    minors: dict[int, str]


class AssignmentsMonitor:
    """Which pods hold which GPUs. What cannot be told is told as unknown, never as no pods."""

    name = "assignments"

    def __init__(
        self, config: AssignmentsConfig, root: Path, clock: Clock, python: tuple[str, ...] = (sys.executable, "-I")
    ) -> None:
        """`python` starts the children."""
        alone = config.source is Source.POD_RESOURCES
        self.interval_s = max(config.interval_s, CHILD_INTERVAL_S) if alone else config.interval_s
        self.deadline_s = max(config.deadline_s, 3 * _CHILD_S)
        self._config = config
        self._machine = Machine(root)
        self._python = python
        self._blocking = Blocking("the look at the kubelet's files", clock)
        self._migs: dict[str, str] = {}
        self._migs_asked: datetime | None = None
        self._pods: tuple[pod_resources.PodResources, ...] = ()
        self._pods_asked: datetime | None = None
        self._pods_refused = ""

    async def look(self, facts: NodeFacts, now: datetime) -> Look:  # noqa: ARG002 - the protocol of monitors
        files = await self._blocking.run(self._read)
        try:
            held = files.held if files.held is not None else await self._from_api(files, now)
            known = KnownGpus(files.minors, self._migs)
            if unknown_migs(held, known):
                await self._ask_migs(now)
                known = KnownGpus(files.minors, self._migs)
            found = assignments(held, known, files.names)
        except (Unassignable, MusterError, OSError) as error:
            return Look(unknown=(f"which pods hold which GPUs: {plain(str(error), 300)}",))
        return Look(assignments=found)

    def _read(self) -> _Files:
        kubelet = self._config.kubelet_dir.strip("/")
        present = self._entries(f"{kubelet}/pods")
        names = from_log_folders(self._entries(_LOGS) or ())
        held, reason = None, "the configuration asks the kubelet's API only"
        if self._config.source is not Source.POD_RESOURCES:
            try:
                held, reason = self._checkpoints(kubelet, present), ""
            except (OSError, BadInputError) as error:
                reason = str(error) if isinstance(error, BadInputError) else f"{error.filename}: {error.strerror}"
        return _Files(held, reason, names, present, self._minors())

    def _checkpoints(self, kubelet: str, present: frozenset[str] | None) -> tuple[Held, ...]:
        claims_file = f"{kubelet}/dra_manager_state"
        has_claims = self._machine.exists(claims_file)
        try:
            plugin = checkpoints.plugin_devices(self._bytes(f"{kubelet}/device-plugins/kubelet_internal_checkpoint"))
        except FileNotFoundError:
            # Without device plugins the kubelet writes none; where claims are used, that is one way to run.
            if not has_claims:
                raise
            plugin = ()
        claims = checkpoints.claim_devices(self._bytes(claims_file), self._config.dra_drivers) if has_claims else ()
        return from_checkpoints(plugin, claims, present, self._config)

    def _minors(self) -> dict[int, str]:
        folder = "proc/driver/nvidia/gpus"
        found: dict[int, str] = {}
        for address in sorted(self._entries(folder) or ()):
            try:
                told = minor_of(self._machine.read(f"{folder}/{address}/information"))
            except OSError:
                continue
            if told is not None:
                found[told[0]] = told[1]
        return found

    async def _from_api(self, files: _Files, now: datetime) -> tuple[Held, ...]:
        """From the PodResources API, asked now or not long ago. Raises UnreachableError, Unassignable."""
        if self._config.source is Source.CHECKPOINT:
            raise UnreachableError(f"The kubelet's checkpoint cannot be read ({files.reason}).")
        if self._pods_asked is None or not _is_recent(self._pods_asked, now):
            self._pods_asked = now
            try:
                self._pods, self._pods_refused = await self._ask_pods(), ""
            except MusterError as error:
                self._pods_refused = str(error)
        if self._pods_refused:
            # A kubelet that refuses is asked again as seldom as one that answers.
            raise UnreachableError(self._pods_refused)
        return from_pod_resources(self._pods, files.names, files.present, self._config)

    async def _ask_pods(self) -> tuple[pod_resources.PodResources, ...]:
        kubelet = self._config.kubelet_dir.strip("/")
        place = f"{kubelet}/pod-resources/kubelet.sock"
        if not self._machine.exists(place):
            raise UnreachableError(f"The kubelet's checkpoint cannot be read, and there is no socket /{place}.")
        return pod_resources.decode(await self._child("pod_resources_child", str(self._machine.root / place)))

    async def _ask_migs(self, now: datetime) -> None:
        if self._migs_asked is not None and _is_recent(self._migs_asked, now):
            return
        self._migs_asked = now
        try:
            self._migs = msgspec.json.decode(await self._child("mig_child"), type=dict[str, str])
        except msgspec.MsgspecError as error:
            raise UnreachableError("NVML's list of MIG devices cannot be read.") from error

    async def _child(self, module: str, *arguments: str) -> bytes:
        """What a program of this folder writes. Raises UnreachableError with its reason."""
        finished = await run_child(
            # As a file, so that the child imports nothing of Muster: half of its time would go there.
            (*self._python, str(Path(__file__).with_name(f"{module}.py")), *arguments),
            timeout_s=_CHILD_S,
            max_bytes=_MAX_ANSWER_BYTES,
        )
        if finished.code is None:
            raise UnreachableError(f"{module} did not end within {_CHILD_S:g} s.")
        if finished.code != 0 or finished.truncated:
            reason = plain(finished.output.decode("utf-8", errors="replace"), 200) or f"exit code {finished.code}"
            raise UnreachableError(f"{module}: {reason}")
        return finished.output

    def _bytes(self, path: str) -> bytes:
        with (self._machine.root / path).open("rb") as file:
            return file.read(checkpoints.MAX_BYTES + 1)

    def _entries(self, path: str) -> frozenset[str] | None:
        """Names in a folder, None when it cannot be read. They are sorted before anything comes of them."""
        try:
            return frozenset(self._machine.entries(path))
        except OSError:
            return None

    def keep(self) -> str:
        return ""

    def restore(self, kept: str) -> None:  # noqa: ARG002 - nothing is kept
        return None

    async def close(self) -> None:
        return None


def _is_recent(at: datetime, now: datetime) -> bool:
    return timedelta(0) <= now - at < timedelta(seconds=CHILD_INTERVAL_S)
