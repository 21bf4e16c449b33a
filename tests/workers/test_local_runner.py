"""The processes of the local runner: what they are told in secret, and what becomes of those that do not come up."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from muster.certify.runners import local
from muster.certify.runners.local import LocalRunner, Place
from muster.certify.runners.worker_link import WorkerUnreachableError
from muster.clock import SystemClock
from muster.errors import UnreachableError
from tests.workers.bed import gone

NODE = "n1"


def play(folder: Path, story: Callable[[LocalRunner], Awaitable[None]]) -> None:
    async def main() -> None:
        runner = LocalRunner(SystemClock(), {NODE: Place()}, python=Path(sys.executable), folder=folder)
        async with runner:
            await story(runner)

    asyncio.run(main())


def test_a_python_that_is_not_there_is_told_in_a_sentence(tmp_path: Path) -> None:
    async def main() -> None:
        places = {"n1": Place(), "n2": Place()}
        async with LocalRunner(SystemClock(), places, python=tmp_path / "absent", folder=tmp_path):
            raise AssertionError("the workers started")

    with pytest.raises(UnreachableError, match=r"does not start: .*absent.*\.$"):
        asyncio.run(main())


def test_after_one_worker_failed_no_other_one_is_started() -> None:
    begun: list[str] = []

    async def fails() -> None:
        raise UnreachableError("no.")

    async def slow() -> None:
        await asyncio.get_running_loop().run_in_executor(None, lambda: None)
        await asyncio.Event().wait()
        begun.append("slow")

    async def main() -> int:
        with pytest.raises(UnreachableError):
            await local._all([slow(), fails()])
        return len(asyncio.all_tasks())

    assert asyncio.run(main()) == 1
    assert begun == []


def test_a_process_that_hides_its_memory_is_not_dumpable() -> None:
    program = (
        "import ctypes\n"
        "from muster.workloads.worker_processes import hide_memory\n"
        "get = lambda: ctypes.CDLL(None).prctl(3, 0, 0, 0, 0)\n"
        "print(get(), hide_memory(), get())\n"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["1", "True", "0"]


@pytest.mark.full
def test_the_token_stands_in_no_file_argument_or_environment(tmp_path: Path) -> None:
    async def story(runner: LocalRunner) -> None:
        token = runner.workers[NODE].token.encode()
        found = [p for p in tmp_path.rglob("*") if p.is_file() and token in p.read_bytes()]
        assert found == []
        process = Path("/proc") / str(runner.pids[NODE])
        assert token not in (process / "cmdline").read_bytes()
        assert token not in (process / "environ").read_bytes()
        templates = [pid for each in process.glob("task/*/children") for pid in each.read_text().split()]
        assert templates != []
        assert all(token not in (Path("/proc") / pid / "environ").read_bytes() for pid in templates)

    play(tmp_path, story)


@pytest.mark.full
def test_a_worker_whose_port_was_taken_comes_back_on_another_one(tmp_path: Path) -> None:
    async def story(runner: LocalRunner) -> None:
        old = runner.workers[NODE].port
        os.kill(runner.pids[NODE], signal.SIGKILL)
        with socket.socket() as taken:
            taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            while taken.getsockname()[1] != old:
                try:
                    taken.bind(("127.0.0.1", old))
                except OSError:
                    await asyncio.sleep(0.01)
            taken.listen()
            for _ in range(200):
                if runner.workers[NODE].port != old and await up(runner):
                    break
                await asyncio.sleep(0.1)
            assert runner.workers[NODE].port not in (0, old)
            assert (await runner.state(NODE)).node == NODE

    play(tmp_path, story)
    assert asyncio.run(gone(str(tmp_path)))


async def up(runner: LocalRunner) -> bool:
    try:
        return (await runner.state(NODE)).ready
    except WorkerUnreachableError:
        return False
