"""The process from which a worker starts its runs: PyTorch is imported here once, and each run is a fork of it.

Importing PyTorch takes seconds, a fork milliseconds. Nothing of CUDA is touched here, so that a child may use it.
The supervisor speaks with it over a socket, one JSON object a line: `{"start": {"run", "folder"}}`,
`{"kill": run}` and `{"count": true}` (GPUs); it answers `{"ready": versions}`, `{"started": run}`, `{"ended": run,
"status": code, "left": pids}` and `{"gpus": n}`. `ended` is said when no process of the run is left.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from muster.workloads.exec import execute
from muster.workloads.pytorch import has_torch, load_torch
from muster.workloads.run_spec import RunSpec
from muster.workloads.worker_processes import become_subreaper, die_with_parent, kill_children

GONE_WITHIN_S = 30.0
"""How long killed processes may take to go. One that hangs in the kernel (driver, file system) stays longer."""


class Template:
    """Starts and reaps one run at a time. `link` is this end of the socket."""

    def __init__(self, link: socket.socket) -> None:
        self._link = link
        self._running: tuple[str, int] | None = None
        self._unread = b""

    def serve(self, versions: Mapping[str, str]) -> None:
        """Work until the supervisor closes the socket; then end whatever runs."""
        wake_read, wake_write = os.pipe()
        for fd in (wake_read, wake_write):
            os.set_blocking(fd, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.set_wakeup_fd(wake_write)
        self._tell({"ready": dict(versions)})
        open_ = True
        while open_:
            waiting: list[socket.socket | int] = [self._link, wake_read]
            select.select(waiting, [], [])
            with contextlib.suppress(BlockingIOError):
                os.read(wake_read, 4096)
            self._reap()
            if select.select([self._link], [], [], 0)[0]:
                open_ = self._take()
        kill_children(frozenset(), GONE_WITHIN_S)

    def _take(self) -> bool:
        data = self._link.recv(65_536)
        self._unread += data
        *lines, self._unread = self._unread.split(b"\n")
        for line in lines:
            order = json.loads(line)
            if "start" in order:
                self._start(order["start"])
            elif self._running is not None and order.get("kill") == self._running[0]:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self._running[1], signal.SIGKILL)
            elif "count" in order:
                self._tell({"gpus": _gpus()})
        return bool(data)

    def _start(self, order: Mapping[str, str]) -> None:
        parent = os.getpid()
        pid = os.fork()
        if pid:
            with contextlib.suppress(PermissionError, ProcessLookupError):
                os.setpgid(pid, pid)
            self._running = (order["run"], pid)
            self._tell({"started": order["run"]})
            return
        code = 1
        try:
            folder = Path(order["folder"])
            _into_child(parent, self._link, folder / "log")
            execute(RunSpec.from_json((folder / "spec.json").read_bytes()), folder / "report.json")
            code = 0
        except BaseException as error:
            print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
        finally:
            os._exit(code)

    def _reap(self) -> None:
        if self._running is None:
            _reap_orphans()
            return
        run, running = self._running
        pid, status = os.waitpid(running, os.WNOHANG)
        if not pid:
            return
        # Whatever the run started and did not end is a child of this process now, or a child of one.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(running, signal.SIGKILL)
        left = kill_children(frozenset(), GONE_WITHIN_S)
        self._running = None
        self._tell({"ended": run, "status": os.waitstatus_to_exitcode(status), "left": left})

    def _tell(self, event: Mapping[str, Any]) -> None:
        self._link.sendall(json.dumps(event).encode() + b"\n")


def _into_child(parent: int, link: socket.socket, log: Path) -> None:
    die_with_parent(parent)
    with contextlib.suppress(PermissionError):
        os.setpgid(0, 0)
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    link.close()
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    for fd in (1, 2):
        os.dup2(output, fd)
    os.close(output)
    become_subreaper()


def _reap_orphans() -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _gpus() -> int:
    """GPUs that PyTorch sees; asked in a child, because asking may begin CUDA, and a fork must not inherit that."""
    reading, writing = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            os.write(writing, str(load_torch().cuda.device_count()).encode())
        finally:
            os._exit(0)
    os.close(writing)
    os.waitpid(pid, 0)
    with os.fdopen(reading, "rb") as pipe:
        text = pipe.read(20)
    return int(text) if text.isdigit() else 0


def main(arguments: list[str]) -> int:
    """`arguments`: the number of the inherited socket and the process of the supervisor."""
    die_with_parent(int(arguments[1]))
    become_subreaper()
    versions = {"python": ".".join(str(n) for n in sys.version_info[:3])}
    if has_torch():
        try:
            versions["torch"] = str(load_torch().__version__)
        except Exception as error:
            # A broken installation is no reason to be without a worker: programs that need PyTorch will say so.
            versions["torch"] = f"cannot be imported: {type(error).__name__}"
    Template(socket.socket(fileno=int(arguments[0]))).serve(versions)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
