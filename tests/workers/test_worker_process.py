"""Real worker processes: they live through what their programs do, and leave nothing running."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
import urllib.error
import urllib.request
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pytest

from muster.certify.runners.http_link import HttpWorkerLink
from muster.certify.runners.worker_link import (
    HowRunEnded,
    RunPhase,
    WorkerRefusedError,
    WorkerUnreachableError,
)
from muster.workloads.archive import build_pyz
from tests.workers.bed import CLOCK, RealWorker, gone, processes_with, real_worker, spec, until_ready

pytestmark = pytest.mark.full

GOOD = ("/bin/sh", "-c", 'echo \'{"node": "n1", "ok": true, "value": 3.5, "unit": "GB/s"}\'')
Story = Callable[[RealWorker], Awaitable[None]]


def play(folder: Path, story: Story, *options: str) -> None:
    async def main() -> None:
        async with real_worker(folder, *options) as worker:
            await story(worker)

    asyncio.run(main())


def sleeper() -> tuple[str, tuple[str, ...]]:
    """A word that no other process has, and a command that starts a grandchild with it in a session of its own."""
    word = f"9{uuid4().int % 10**12:012d}"
    return word, ("/bin/sh", "-c", f"setsid sleep {word} & setsid sleep {word} & sleep {word}")


async def running(word: str, count: int) -> None:
    for _ in range(100):
        if len(processes_with(f"sleep\0{word}")) >= count:
            return
        await asyncio.sleep(0.05)
    raise AssertionError("the program did not start")


def test_a_run_is_carried_out_once_however_often_it_is_started(tmp_path: Path) -> None:
    counter = tmp_path / "count"
    command = ("/bin/sh", "-c", f"echo x >> {counter}; {GOOD[2]}")

    async def story(worker: RealWorker) -> None:
        for _ in range(3):
            await worker.start("r1", *command)
        answer = await worker.ended("r1")
        await worker.start("r1", *command)
        assert answer.how is HowRunEnded.REPORTED
        assert json.loads(answer.report)["value"] == 3.5
        assert counter.read_text() == "x\n"
        assert (await worker.state()).runs == {"r1": "ended"}

    play(tmp_path, story)


def test_another_description_and_another_run_are_refused_while_one_goes_on(tmp_path: Path) -> None:
    async def story(worker: RealWorker) -> None:
        word, command = sleeper()
        await worker.start("r1", *command)
        with pytest.raises(WorkerRefusedError, match="another description"):
            await worker.start("r1", *GOOD)
        with pytest.raises(WorkerRefusedError) as caught:
            await worker.start("r2", *GOOD)
        assert caught.value.busy == "r1"
        await worker.link.stop(worker.address, "r1")
        assert processes_with(word) == []
        await worker.start("r2", *GOOD)
        assert (await worker.ended("r2")).how is HowRunEnded.REPORTED

    play(tmp_path, story)


def test_stopping_ends_grandchildren_in_sessions_of_their_own(tmp_path: Path) -> None:
    async def story(worker: RealWorker) -> None:
        word, command = sleeper()
        await worker.start("r1", *command)
        await running(word, 3)
        await worker.link.stop(worker.address, "r1")
        assert processes_with(word) == []
        assert (await worker.ended("r1")).how is HowRunEnded.STOPPED
        await worker.link.stop(worker.address, "never-heard-of")

    play(tmp_path, story)


def test_what_a_program_leaves_behind_is_gone_before_its_end_is_told(tmp_path: Path) -> None:
    async def story(worker: RealWorker) -> None:
        word, _ = sleeper()
        await worker.start("r1", "/bin/sh", "-c", f"setsid sleep {word} >/dev/null 2>&1 & {GOOD[2]}")
        assert (await worker.ended("r1")).how is HowRunEnded.REPORTED
        assert processes_with(word) == []

    play(tmp_path, story)


def test_a_program_past_its_time_is_ended_and_said_to_be(tmp_path: Path) -> None:
    async def story(worker: RealWorker) -> None:
        word, command = sleeper()
        begun = time.monotonic()
        await worker.start("r1", *command, timeout_s=2.0)
        answer = await worker.ended("r1")
        assert time.monotonic() - begun < 12.0
        report = json.loads(answer.report)
        assert (report["ok"], report["reason"] in ("hang", "timeout")) == (False, True)
        assert processes_with(word) == []

    play(tmp_path, story)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV])
def test_a_run_whose_process_is_killed_is_a_crash_and_the_worker_goes_on(tmp_path: Path, number: int) -> None:
    async def story(worker: RealWorker) -> None:
        word, command = sleeper()
        await worker.start("r1", *command)
        await running(word, 3)
        os.kill(_run_process(worker.process.pid), number)
        answer = await worker.ended("r1")
        assert answer.how is HowRunEnded.CRASHED
        assert f"signal {int(number)}" in answer.message
        assert processes_with(word) == []
        await worker.start("r2", *GOOD)
        assert (await worker.ended("r2")).how is HowRunEnded.REPORTED

    play(tmp_path, story)


def test_the_worker_lives_through_the_death_of_the_process_that_starts_runs(tmp_path: Path) -> None:
    async def story(worker: RealWorker) -> None:
        word, command = sleeper()
        await worker.start("r1", *command)
        await running(word, 3)
        os.kill(_children(worker.process.pid)[0], signal.SIGKILL)
        assert (await worker.ended("r1")).how is HowRunEnded.CRASHED
        assert processes_with(word) == []
        await until_ready(worker)
        await worker.start("r2", *GOOD)
        assert (await worker.ended("r2")).how is HowRunEnded.REPORTED

    play(tmp_path, story)


def test_sigterm_ends_the_run_and_the_worker_within_five_seconds(tmp_path: Path) -> None:
    async def story(worker: RealWorker) -> None:
        word, command = sleeper()
        await worker.start("r1", *command)
        await running(word, 3)
        begun = time.monotonic()
        assert worker.end() == 0
        assert time.monotonic() - begun < 5.0
        assert await gone(word)
        assert list(tmp_path.glob("muster-*")) == []

    play(tmp_path, story)


def test_a_worker_that_is_killed_takes_its_ranks_with_it(tmp_path: Path) -> None:
    async def story(worker: RealWorker) -> None:
        word = sleeper()[0]
        await worker.start("r1", "/bin/sleep", word)
        await running(word, 1)
        ranks = [_children(worker.process.pid)[0], _run_process(worker.process.pid)]
        worker.end(signal.SIGKILL)
        for _ in range(50):
            if not any(_alive(pid) for pid in ranks):
                break
            await asyncio.sleep(0.1)
        assert [pid for pid in ranks if _alive(pid)] == []
        for pid in processes_with(f"sleep\0{word}"):
            os.kill(pid, signal.SIGKILL)

    play(tmp_path, story)


def test_who_does_not_know_the_token_learns_and_changes_nothing(tmp_path: Path) -> None:
    async def story(worker: RealWorker) -> None:
        link = HttpWorkerLink(CLOCK)
        with pytest.raises(WorkerUnreachableError, match="token"):
            await link.start(replace(worker.address, token="x" * 40), spec("r1", *GOOD))
        await link.aclose()
        base = f"http://127.0.0.1:{worker.address.port}"
        for method, path in (("GET", "/state"), ("POST", "/runs"), ("DELETE", "/runs/r1")):
            request = urllib.request.Request(base + path, method=method, data=b"{}" if method == "POST" else None)
            with pytest.raises(urllib.error.HTTPError) as caught:
                await asyncio.to_thread(urllib.request.urlopen, request, timeout=5)
            with caught.value as error:
                assert (error.code, error.read()) == (401, b"")
        assert (await worker.state()).runs == {}

    play(tmp_path, story)


def test_a_request_for_another_node_is_not_taken(tmp_path: Path) -> None:
    async def story(worker: RealWorker) -> None:
        with pytest.raises(WorkerUnreachableError, match="worker of n1"):
            await worker.link.state(replace(worker.address, node="n2"))

    play(tmp_path, story)


def test_a_fault_is_acted_out_only_where_that_is_allowed(tmp_path: Path) -> None:
    async def story(worker: RealWorker) -> None:
        with pytest.raises(WorkerRefusedError, match="fault"):
            await worker.start("r1", *GOOD, inject={"exit_at": 0})
        assert (await worker.state()).runs == {}

    play(tmp_path, story)


def test_a_restarted_worker_is_told_apart_and_knows_nothing_of_old_runs(tmp_path: Path) -> None:
    async def main() -> None:
        async with real_worker(tmp_path) as first:
            await first.start("r1", *GOOD)
            await first.ended("r1")
            address, link = first.address, first.link
            first.end()
            (tmp_path / "port").unlink()
            async with real_worker(tmp_path, "--listen", f"127.0.0.1:{address.port}") as second:
                assert (await link.result(second.address, "r1", 0.0)).phase is RunPhase.UNKNOWN
                await link.start(second.address, spec("r1", *GOOD))
                assert (await second.ended("r1")).how is HowRunEnded.REPORTED

    asyncio.run(main())


def test_a_worker_runs_from_one_archive_without_the_rest_of_muster(tmp_path: Path) -> None:
    archive = build_pyz(tmp_path / "muster-workloads.pyz")

    async def main() -> None:
        async with real_worker(tmp_path, program=("-I", str(archive))) as worker:
            await worker.start("r1", *GOOD)
            assert json.loads((await worker.ended("r1")).report)["value"] == 3.5

    asyncio.run(main())


def test_nonsense_on_the_socket_does_not_keep_the_worker_from_answering(tmp_path: Path) -> None:
    async def story(worker: RealWorker) -> None:
        writers = []
        for text in (
            b"\x00\xff" * 1000,
            b"GET /state HTTP/1.1\r\nContent-Length: 99999999\r\n\r\n",
            b"POST /runs HTTP/1.1\r\n",
        ):
            _, writer = await asyncio.open_connection("127.0.0.1", worker.address.port)
            writer.write(text)
            await writer.drain()
            writers.append(writer)
        await worker.start("r1", *GOOD)
        assert (await worker.ended("r1")).how is HowRunEnded.REPORTED
        for writer in writers:
            writer.close()

    play(tmp_path, story)


def _children(pid: int) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[1]) == pid and fields[0] != "Z":
                found.append(int(entry.name))
    return sorted(found)


def _run_process(worker: int) -> int:
    """The process of the run that goes on: a child of the template, which is a child of the worker."""
    return _children(_children(worker)[0])[0]


def _alive(pid: int) -> bool:
    try:
        return (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
