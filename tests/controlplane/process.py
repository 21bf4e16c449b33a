"""One program of the control plane as a child process that never outlives the tests."""

from __future__ import annotations

import contextlib
import socket
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path

from muster.sim.agent_processes import die_with_parent

START_LIMIT_S = 90.0
STOP_LIMIT_S = 20.0
POLL_S = 0.05


class StartError(Exception):
    """A program did not come up; the text ends with its last words."""


def free_port() -> int:
    """A loopback port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Program:
    """Started by `start`, stopped by `stop`; what it prints is in `log`."""

    def __init__(self, name: str, command: Sequence[str], log: Path) -> None:
        self.name = name
        self.log = log
        self._command = list(command)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        with self.log.open("ab") as out:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, preexec_fn=die_with_parent
            )

    def wait_for(self, ready: Callable[[], bool]) -> None:
        """Until `ready` says so. Raises StartError when the program ends or takes too long."""
        deadline = time.monotonic() + START_LIMIT_S
        while not ready():
            assert self._process is not None
            code = self._process.poll()
            if code is not None:
                raise StartError(f"{self.name} ended with {code}: {self.last_words()}")
            if time.monotonic() > deadline:
                raise StartError(f"{self.name} is not ready after {START_LIMIT_S:.0f} s: {self.last_words()}")
            time.sleep(POLL_S)

    def stop(self, *, kill: bool = False) -> None:
        """End it and wait; with `kill` without asking."""
        process, self._process = self._process, None
        if process is None:
            return
        process.kill() if kill else process.terminate()
        try:
            process.wait(STOP_LIMIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def last_words(self) -> str:
        lines = self.log.read_text(errors="replace").splitlines() if self.log.exists() else []
        return " / ".join(lines[-4:])[-1500:] or "it said nothing"


def answers(url: str, ca_pem: str = "", token: str = "") -> bool:
    """Whether a GET of `url` is answered with 200. `ca_pem` is the authority to trust."""
    context = ssl.create_default_context(cadata=ca_pem) if ca_pem else None
    handlers = (urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context))
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"} if token else {})
    opener = urllib.request.build_opener(*handlers)
    with contextlib.suppress(urllib.error.URLError, OSError), opener.open(request, timeout=5) as answer:
        return bool(answer.status == 200)
    return False


def listens(port: int) -> bool:
    """Whether somebody accepts connections on a loopback port."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
