"""A real PostgreSQL server of our own, and the summary line that says whether there was one."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

MARKER = "real_postgresql"
ABSENT = "no PostgreSQL server: "
LIMIT_S = 60


class Server:
    """Runs as a user without rights where we are root, which PostgreSQL refuses; listens on a Unix socket only."""

    def __init__(self, programs: Path, folder: Path) -> None:
        self._programs, self._folder = programs, folder
        self._as: list[str] = []
        if os.getuid() == 0:
            user = pwd.getpwnam("nobody")
            os.chown(folder, user.pw_uid, user.pw_gid)
            self._as = ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]
        self._run("initdb", "-D", f"{folder}/data", "-U", "muster", "-A", "trust", "-E", "UTF8", "--no-sync")
        self.start()

    def start(self) -> None:
        options = f"-k {self._folder} -c listen_addresses='' -c fsync=off"
        log = f"{self._folder}/log"
        self._run("pg_ctl", "-D", f"{self._folder}/data", "-w", "-l", log, "-o", options, "start")

    def stop(self, how: str = "fast") -> None:
        """`immediate` is what a crash is like."""
        self._run("pg_ctl", "-D", f"{self._folder}/data", "-w", "-m", how, "stop")

    def url(self, database: str = "muster") -> str:
        """Address of a database; `create` makes it."""
        return f"postgresql://muster@/{database}?host={self._folder}"

    def create(self, database: str) -> str:
        self._run("createdb", "-h", str(self._folder), "-U", "muster", database)
        return self.url(database)

    def _run(self, program: str, *arguments: str) -> None:
        command = [*self._as, str(self._programs / program), *arguments]
        # A server that inherits our pipes would keep them open.
        with (self._folder.parent / f"{self._folder.name}.out").open("a+") as out:
            done = subprocess.run(
                command, cwd="/", stdout=out, stderr=out, timeout=LIMIT_S, check=False, env={"LC_ALL": "C.UTF-8"}
            )
            if done.returncode != 0:
                out.seek(0)
                raise RuntimeError(f"{program} ended with {done.returncode}: {out.read()[-2000:]}")


def _programs() -> Path:
    """Where initdb and pg_ctl are: on the PATH, or where Debian's package has them, the newest version."""
    on_path = shutil.which("initdb")
    if on_path:
        return Path(on_path).resolve().parent
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda p: float(p.parent.parent.name))
    if not found:
        pytest.skip(f"{ABSENT}install the package postgresql")
    return found[-1].parent


@pytest.fixture(scope="session")
def postgresql() -> Iterator[Server]:
    """A server of our own, empty at first."""
    programs = _programs()
    # The path of a Unix socket has 107 characters at most, less than pytest's folders.
    with tempfile.TemporaryDirectory(prefix="pg", dir="/tmp") as outer:
        Path(outer).chmod(0o755)
        folder = Path(outer) / "s"
        folder.mkdir()
        server = Server(programs, folder)
        try:
            yield server
        finally:
            with contextlib.suppress(RuntimeError):
                server.stop("immediate")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What needs the real server belongs to the fuller suite."""
    for item in items:
        if "postgresql" in getattr(item, "fixturenames", ()):
            item.add_marker(MARKER)
            item.add_marker("full")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """One line when the tests against a real server were selected and did not run."""
    skipped = [r for r in terminalreporter.stats.get("skipped", ()) if MARKER in getattr(r, "keywords", ())]
    if skipped:
        terminalreporter.write_line(f"NOT RUN against a real PostgreSQL: {len(skipped)} tests.", yellow=True)
