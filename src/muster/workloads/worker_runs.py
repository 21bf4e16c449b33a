"""The runs of one worker: the one that goes on, and the results of the last ones.

A supervisor of the standard library alone. Whatever the programs do, it lives: they run in forks of a template
process, and when that dies too, it is started again.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from muster.workloads.report import REPORT_LIMIT_BYTES, NodeReport, ReportError
from muster.workloads.run_spec import RunSpec
from muster.workloads.worker_processes import children_among, kill_children, read_regular

KEPT_RUNS = 256
KEPT_BYTES = 32 * 1024 * 1024
"""Reports that are kept; the oldest go first. A coordinator asks within minutes."""
END_GRACE_S = 15.0
"""Time after a run's deadline in which its child must have left a report; then it is killed."""
LOG_TAIL = 1000
GONE_WITHIN_S = 30.0
STUCK_AFTER_S = GONE_WITHIN_S + 15.0
"""A template that has not seen a killed run gone by then is stuck itself (a program may stop it), and is killed."""
PAUSES_S = (0.5, 2.0, 10.0, 60.0)
"""Before a template that died is started again: longer each time until one comes up."""


@dataclass(frozen=True)
class Run:
    """What is known of one run. `how` is empty while it goes on."""

    spec: str
    phase: str = "running"
    how: str = ""
    report: str = ""
    message: str = ""


class ConflictError(Exception):
    """The run cannot be started. `busy`: the run in its way, if one is."""

    def __init__(self, why: str, busy: str = "") -> None:
        super().__init__(why)
        self.busy = busy


class Runs:
    """Thread-safe. `tend` must run in a thread that lives as long as the process."""

    def __init__(self, scratch: Path) -> None:
        self._scratch = scratch
        self._changed = threading.Condition()
        self._runs: dict[str, Run] = {}
        self._active = ""
        self._deadline = 0.0
        self._why_killed = ""
        self._killed_at = 0.0
        self._left: tuple[int, ...] = ()
        """Processes of an earlier run that could not be killed: they may hold the GPU."""
        self._folder = scratch
        self._closing = False
        self._link: socket.socket | None = None
        self._template: subprocess.Popen[bytes] | None = None
        self.versions: Mapping[str, str] = {}
        self.gpus: int | None = None

    # What the coordinator asks for

    def start(self, spec: RunSpec) -> bool:
        """Start the run; False when it is known already. Raises ConflictError, and OSError for a full disk."""
        text = spec.to_json()
        with self._changed:
            known = self._runs.get(spec.run)
            if known is not None:
                if known.spec != text:
                    raise ConflictError(f"The run {spec.run} is known with another description.")
                return False
            if self._active:
                raise ConflictError(f"The run {self._active} is not over.", self._active)
            self._left = tuple(children_among(self._left, (self._template_pid, os.getpid())))
            if self._left:
                words = f"{len(self._left)} process(es) of an earlier run cannot be killed and may hold the GPU"
                raise ConflictError(f"No run starts: {words}.")
            if self._closing or self._link is None:
                raise ConflictError("The worker is not ready.")
            # A program may have taken that away too.
            self._scratch.mkdir(mode=0o700, parents=True, exist_ok=True)
            # A name that no earlier program could know: it may have left a report there for this run.
            folder = Path(tempfile.mkdtemp(prefix="run-", dir=self._scratch))
            try:
                (folder / "spec.json").write_text(text)
            except OSError:
                shutil.rmtree(folder, ignore_errors=True)
                raise
            self._active, self._why_killed, self._folder = spec.run, "", folder
            self._deadline = time.monotonic() + spec.timeout_s + END_GRACE_S
            self._runs[spec.run] = Run(text)
            order = {"run": spec.run, "folder": str(folder)}
            self._send({"start": order})
            return True

    def look(self, run: str, wait_s: float) -> Run | None:
        """The run, as soon as it has ended or `wait_s` have passed; None when it is not known."""
        with self._changed:
            self._changed.wait_for(lambda: run not in self._runs or self._runs[run].phase == "ended", wait_s)
            return self._runs.get(run)

    def stop(self, run: str, wait_s: float) -> Run | None:
        """End the run and wait until nothing of it is left; None when it is not known."""
        with self._changed:
            if self._active == run:
                self._kill("stopped")
        return self.look(run, wait_s)

    def phases(self) -> dict[str, str]:
        """Run -> `running` or `ended`, in the order in which they came."""
        with self._changed:
            return {name: run.phase for name, run in self._runs.items()}

    @property
    def ready(self) -> bool:
        return self._link is not None

    def close(self, within_s: float) -> None:
        """End the run that goes on and the template; no other run starts afterwards."""
        with self._changed:
            self._closing = True
            if self._active:
                self._kill("stopped")
            self._changed.wait_for(lambda: not self._active, within_s)
            if self._link is not None:
                self._link.shutdown(socket.SHUT_RDWR)

    # The template

    def tend(self, *, count_gpus: bool) -> None:
        """Keep a template alive and follow what it says, until `close`."""
        failures = 0
        while not self._closing:
            try:
                ours = self._new_template()
            except OSError as error:
                # Memory or processes are short: that may pass.
                print(f"The process that starts runs cannot be started: {error}", file=sys.stderr, flush=True)
                failures += 1
                time.sleep(PAUSES_S[min(failures, len(PAUSES_S) - 1)])
                continue
            self._follow(ours, count_gpus=count_gpus)
            if self._template is not None:
                self._template.kill()
                self._template.wait()
            # What its runs left behind came to this process.
            left = kill_children(frozenset(), GONE_WITHIN_S)
            with self._changed:
                failures = 0 if self._link is not None else failures + 1
                self._link = None
                self._left = tuple(left)
                if self._active:
                    also = f"; {len(left)} process(es) could not be killed" if left else ""
                    self._finish(self._why_killed or "crashed", "ended with the process that had started it" + also)
            ours.close()
            if not self._closing:
                time.sleep(PAUSES_S[min(failures, len(PAUSES_S) - 1)])

    @property
    def _template_pid(self) -> int:
        return self._template.pid if self._template is not None else 0

    def _new_template(self) -> socket.socket:
        """Start a template; our end of the socket to it."""
        ours, theirs = socket.socketpair()
        with theirs:
            program = [sys.executable, "-m", "muster.workloads.worker_template"]
            command = [*program, str(theirs.fileno()), str(os.getpid())]
            environment = {**os.environ, "PYTHONPATH": _search_path()}
            try:
                self._template = subprocess.Popen(
                    command, pass_fds=[theirs.fileno()], env=environment, stdin=subprocess.DEVNULL
                )
            except OSError:
                ours.close()
                raise
        return ours

    def _follow(self, link: socket.socket, *, count_gpus: bool) -> None:
        unread = b""
        while True:
            link.settimeout(self._next_look_s())
            try:
                data = link.recv(65_536)
            except TimeoutError:
                self._watch_deadline()
                continue
            except OSError:
                return
            if not data:
                return
            *lines, unread = (unread + data).split(b"\n")
            for line in lines:
                self._heard(link, json.loads(line), count_gpus=count_gpus)

    def _heard(self, link: socket.socket, event: Mapping[str, Any], *, count_gpus: bool) -> None:
        with self._changed:
            if "ready" in event:
                self.versions = event["ready"]
                self._link = link
                if count_gpus and self.gpus is None:
                    self._send({"count": True})
            elif "gpus" in event:
                self.gpus = int(event["gpus"])
            elif event.get("ended") == self._active and self._active:
                self._left = tuple(int(pid) for pid in event["left"])
                self._end(int(event["status"]), len(self._left))
            self._changed.notify_all()

    def _next_look_s(self) -> float:
        with self._changed:
            return 1.0 if not self._active else min(1.0, max(0.05, self._deadline - time.monotonic()))

    def _watch_deadline(self) -> None:
        with self._changed:
            now = time.monotonic()
            if self._active and now >= self._deadline and not self._why_killed:
                self._kill("timeout")
            elif self._active and self._why_killed and now >= self._killed_at + STUCK_AFTER_S and self._template:
                self._template.kill()

    def _kill(self, why: str) -> None:
        if not self._why_killed:
            self._why_killed, self._killed_at = why, time.monotonic()
        self._send({"kill": self._active})

    def _send(self, order: Mapping[str, Any]) -> None:
        if self._link is not None:
            try:
                self._link.sendall(json.dumps(order).encode() + b"\n")
            except OSError:
                return  # the template died; `tend` sees that and puts the run down as crashed

    # The end of a run

    def _end(self, status: int, left: int) -> None:
        tail = _tail(self._folder / "log")
        also = f"; {left} process(es) could not be killed" if left else ""
        # A child that ended badly by itself left no report: what lies there is by somebody else.
        text = _report(self._folder / "report.json") if status == 0 or self._why_killed else ""
        if text:
            self._finish("reported", also.removeprefix("; "), text)
        elif self._why_killed == "stopped":
            self._finish("stopped", "stopped on request" + also)
        elif self._why_killed == "timeout":
            self._finish("timeout", "killed at the deadline of the run" + also)
        elif status < 0:
            self._finish("crashed", f"ended by signal {-status}{tail}{also}")
        elif status > 0:
            self._finish("crashed", f"ended with exit code {status}{tail}{also}")
        else:
            self._finish("mute", f"ended without a readable report{tail}{also}")

    def _finish(self, how: str, message: str, report: str = "") -> None:
        run, self._active = self._active, ""
        self._runs[run] = replace(self._runs[run], phase="ended", how=how, report=report, message=message)
        shutil.rmtree(self._folder, ignore_errors=True)
        ended = [name for name, found in self._runs.items() if found.phase == "ended"]
        size = sum(len(self._runs[n].report) + len(self._runs[n].spec) for n in ended)
        while len(ended) > 1 and (len(ended) > KEPT_RUNS or size > KEPT_BYTES):
            gone = self._runs.pop(ended.pop(0))
            size -= len(gone.report) + len(gone.spec)
        self._changed.notify_all()


def _search_path() -> str:
    """The folder, or the archive, from which this package came, before what is set."""
    own = str(Path(__file__).resolve().parents[2])
    return os.pathsep.join([own, *filter(None, [os.environ.get("PYTHONPATH", "")])])


def _report(path: Path) -> str:
    """The report in our own words: what a program wrote itself may hold NaN, or more than anybody reads."""
    try:
        return NodeReport.from_json(read_regular(path, REPORT_LIMIT_BYTES + 1)).to_json()
    except (OSError, ReportError, RecursionError):
        return ""


def _tail(path: Path) -> str:
    try:
        text = " ".join(read_regular(path, LOG_TAIL, last=True).decode("utf-8", "replace").split())
    except OSError:
        return ""
    return f": {text}" if text else ""
