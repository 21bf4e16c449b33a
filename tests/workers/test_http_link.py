"""What a coordinator makes of answers that are not those of its worker."""

from __future__ import annotations

import asyncio
import gzip
import socket
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import cast

import pytest

from muster.certify.runners import http_link
from muster.certify.runners.http_link import HttpWorkerLink
from muster.certify.runners.worker_link import (
    RunPhase,
    WorkerAddress,
    WorkerRefusedError,
    WorkerUnreachableError,
)
from muster.clock import SystemClock
from muster.workloads.run_spec import RunSpec
from muster.workloads.signing import Gate, sign_answer
from muster.workloads.worker_http import CONNECTIONS, Server, Worker
from muster.workloads.worker_runs import ConflictError, Run, Runs

TOKEN = "t" * 32
SPEC = RunSpec(run="r1", test="host", program="host", nodes=("n1",))
Story = Callable[[HttpWorkerLink, WorkerAddress], Awaitable[None]]


def against(answer: bytes, story: Story) -> None:
    """Play `story` against a server that sends `answer` to everybody, {NONCE} replaced by that of the request."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        await writer.drain()
        writer.close()

    async def main() -> None:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        link = HttpWorkerLink(SystemClock())
        async with server:
            await story(link, WorkerAddress("n1", "127.0.0.1", server.sockets[0].getsockname()[1], TOKEN))
            await link.aclose()

    asyncio.run(main())


def http(body: bytes, *headers: str, status: int = 200) -> bytes:
    lines = [f"HTTP/1.1 {status} X", f"Content-Length: {len(body)}", "Connection: close", *headers, "", ""]
    return "\r\n".join(lines).encode() + body


STATE = b'{"node": "n1", "incarnation": "i"}'


@pytest.mark.parametrize(
    "answer",
    [
        http(STATE),
        http(STATE, "X-Muster-Signature: 00"),
        http(STATE, f"X-Muster-Signature: {sign_answer(TOKEN, 200, 'an older nonce', STATE)}"),
        http(b"", "Location: http://169.254.169.254/", status=302),
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"",
    ],
    ids=["unsigned", "wrong", "of-another-request", "redirect", "another-protocol", "nothing"],
)
def test_an_answer_without_the_right_signature_is_none(answer: bytes) -> None:
    async def story(link: HttpWorkerLink, worker: WorkerAddress) -> None:
        with pytest.raises(WorkerUnreachableError):
            await link.state(worker)

    against(answer, story)


def test_an_answer_without_end_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_link, "ANSWER_LIMIT_BYTES", 1000)

    async def story(link: HttpWorkerLink, worker: WorkerAddress) -> None:
        with pytest.raises(WorkerUnreachableError, match="too many bytes"):
            await link.state(worker)

    against(http(b"x" * 5000), story)


def test_an_answer_that_is_packed_is_not_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_link, "ANSWER_LIMIT_BYTES", 10_000)

    async def story(link: HttpWorkerLink, worker: WorkerAddress) -> None:
        with pytest.raises(WorkerUnreachableError, match="token"):
            await link.state(worker)

    against(http(gzip.compress(b"0" * 1_000_000), "Content-Encoding: gzip"), story)


def test_an_answer_whose_end_does_not_come_is_given_up_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each read has a limit of its own, which a byte now and then would never reach."""
    monkeypatch.setattr(http_link, "BODY_WITHIN_S", 0.3 - http_link.ANSWER_WITHIN_S)

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(http(b"x" * 1000)[:-900])
        await reader.read()
        writer.close()

    async def main() -> float:
        server = await asyncio.start_server(silent, "127.0.0.1", 0)
        link = HttpWorkerLink(SystemClock())
        begun = time.monotonic()
        async with server:
            with pytest.raises(WorkerUnreachableError):
                await link.state(WorkerAddress("n1", "127.0.0.1", server.sockets[0].getsockname()[1], TOKEN))
            took_s = time.monotonic() - begun
            await link.aclose()
        return took_s

    assert asyncio.run(main()) < http_link.ANSWER_WITHIN_S / 2


@pytest.mark.parametrize("host", ["", "a b", "worker..invalid", "x" * 300, "n\u00f6 node", "worker.invalid"])
def test_an_address_that_is_none_is_out_of_reach(host: str) -> None:
    async def main() -> None:
        link = HttpWorkerLink(SystemClock())
        with pytest.raises(WorkerUnreachableError):
            await link.state(WorkerAddress("n1", host, 7470, TOKEN))
        await link.aclose()

    asyncio.run(main())


def test_nobody_listening_is_out_of_reach() -> None:
    async def main() -> None:
        link = HttpWorkerLink(SystemClock())
        with pytest.raises(WorkerUnreachableError):
            await link.state(WorkerAddress("n1", "127.0.0.1", 1, TOKEN))
        await link.aclose()

    asyncio.run(main())


class FewRuns:
    """Runs of a worker whose programs end at once."""

    def __init__(self) -> None:
        self.known: dict[str, Run] = {}
        self.ready = True
        self.gpus = 0
        self.versions = {"python": "3.10.0"}

    def start(self, spec: RunSpec) -> bool:
        if spec.test == "full":
            raise OSError(28, "No space left on device")
        if spec.test == "busy":
            raise ConflictError("The run old is not over.", "old")
        new = spec.run not in self.known
        self.known[spec.run] = Run(spec.to_json(), "ended", "crashed", "", "ended by signal 9")
        return new

    def look(self, run: str, wait_s: float) -> Run | None:
        return self.known.get(run)

    stop = look

    def phases(self) -> dict[str, str]:
        return {name: run.phase for name, run in self.known.items()}


def beside(
    story: Callable[[HttpWorkerLink, WorkerAddress, FewRuns, Worker], Awaitable[None]], skew_s: float = 0.0
) -> None:
    """Play `story` against the real server with the model of the runs."""
    runs = FewRuns()
    gate = Gate(TOKEN, "n1", "inc-1", lambda: SystemClock().now().timestamp() + skew_s)
    worker = Worker(cast(Runs, runs), gate, TOKEN, "n1", "inc-1", "auto", 0, False)
    server = Server(("127.0.0.1", 0), worker)

    async def main() -> None:
        serving = asyncio.create_task(asyncio.to_thread(server.serve_forever, 0.02))
        link = HttpWorkerLink(SystemClock())
        try:
            address = WorkerAddress("n1", "127.0.0.1", int(server.server_address[1]), TOKEN)
            await story(link, address, runs, worker)
        finally:
            await link.aclose()
            await asyncio.to_thread(server.shutdown)
            await serving
            server.server_close()

    asyncio.run(main())


def test_state_start_result_and_stop() -> None:
    async def story(link: HttpWorkerLink, address: WorkerAddress, runs: FewRuns, worker: Worker) -> None:
        assert (await link.result(address, "r1", 0.0)).phase is RunPhase.UNKNOWN
        await link.start(address, SPEC)
        await link.start(address, SPEC)
        answer = await link.result(address, "r1", 5.0)
        assert (answer.phase, answer.how.value, answer.message) == (RunPhase.ENDED, "crashed", "ended by signal 9")
        await link.stop(address, "r1")
        state = await link.state(address)
        assert (state.runs, state.device, state.ranks, state.ready) == ({"r1": "ended"}, "cpu", 1, True)

    beside(story)


def test_a_worker_that_is_not_ready_is_asked_again_later() -> None:
    async def story(link: HttpWorkerLink, address: WorkerAddress, runs: FewRuns, worker: Worker) -> None:
        runs.ready = False
        with pytest.raises(WorkerUnreachableError, match="not ready"):
            await link.start(address, SPEC)

    beside(story)


def test_a_busy_worker_names_what_it_runs() -> None:
    async def story(link: HttpWorkerLink, address: WorkerAddress, runs: FewRuns, worker: Worker) -> None:
        with pytest.raises(WorkerRefusedError) as caught:
            await link.start(address, RunSpec(run="r2", test="busy", program="host", nodes=("n1",)))
        assert caught.value.busy == "old"

    beside(story)


def test_a_worker_whose_disk_is_full_says_so() -> None:
    async def story(link: HttpWorkerLink, address: WorkerAddress, runs: FewRuns, worker: Worker) -> None:
        with pytest.raises(WorkerUnreachableError, match="No space left"):
            await link.start(address, RunSpec(run="r2", test="full", program="host", nodes=("n1",)))

    beside(story)


def test_a_worker_listens_without_asking_the_dns(monkeypatch: pytest.MonkeyPatch) -> None:
    def asked(_: str = "") -> str:
        raise AssertionError("the DNS was asked")

    monkeypatch.setattr(socket, "getfqdn", asked)
    worker = Worker(cast(Runs, FewRuns()), Gate(TOKEN, "n1", "i", time.time), TOKEN, "n1", "i", "cpu", 0, False)
    with Server(("127.0.0.1", 0), worker) as server:
        assert server.server_port > 0


def test_a_connection_that_gets_no_thread_takes_no_place(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_thread(_: object) -> None:
        raise RuntimeError("can't start new thread")

    worker = Worker(cast(Runs, FewRuns()), Gate(TOKEN, "n1", "i", time.time), TOKEN, "n1", "i", "cpu", 0, False)
    with Server(("127.0.0.1", 0), worker) as server:
        monkeypatch.setattr(threading.Thread, "start", no_thread)
        for _ in range(2 * CONNECTIONS):
            with pytest.raises(RuntimeError):
                server.process_request(None, ("127.0.0.1", 1))


def test_one_client_that_takes_all_connections_does_not_keep_the_coordinator_out() -> None:
    async def story(link: HttpWorkerLink, address: WorkerAddress, runs: FewRuns, worker: Worker) -> None:
        idle = []
        for _ in range(CONNECTIONS + 1):
            place = ("127.0.0.2", 0)
            _, writer = await asyncio.open_connection(address.host, address.port, local_addr=place)
            writer.write(b"GET /state HTTP/1.1\r\n")
            idle.append(writer)
        assert (await link.state(address)).node == "n1"
        for writer in idle:
            writer.close()

    beside(story)


def test_a_worker_started_again_under_the_same_address_is_found_by_its_new_name() -> None:
    async def story(link: HttpWorkerLink, address: WorkerAddress, runs: FewRuns, worker: Worker) -> None:
        await link.start(address, SPEC)
        runs.known.clear()
        worker.incarnation = "inc-2"
        worker.gate = Gate(TOKEN, "n1", "inc-2", lambda: SystemClock().now().timestamp())
        assert (await link.result(address, "r1", 0.0)).phase is RunPhase.UNKNOWN

    beside(story)


@pytest.mark.parametrize("skew_s", [-200.0, 200.0])
def test_clocks_that_differ_a_little_are_told_and_tolerated(skew_s: float) -> None:
    async def story(link: HttpWorkerLink, address: WorkerAddress, runs: FewRuns, worker: Worker) -> None:
        assert (await link.state(address)).skew_s == pytest.approx(skew_s, abs=5.0)

    beside(story, skew_s)


def test_clocks_that_differ_a_lot_are_the_reason_that_is_told() -> None:
    async def story(link: HttpWorkerLink, address: WorkerAddress, runs: FewRuns, worker: Worker) -> None:
        with pytest.raises(WorkerRefusedError, match="clocks"):
            await link.start(address, SPEC)

    beside(story, 900.0)


def test_a_spec_for_another_node_is_refused(tmp_path: Path) -> None:
    async def story(link: HttpWorkerLink, address: WorkerAddress, runs: FewRuns, worker: Worker) -> None:
        with pytest.raises(WorkerRefusedError, match="meant for n2"):
            await link.start(address, RunSpec(run="r1", test="host", program="host", nodes=("n2",)))
        assert runs.known == {}

    beside(story)
