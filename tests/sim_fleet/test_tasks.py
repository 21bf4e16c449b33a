"""Tasks that fail as one, and waits with a limit on the injected clock."""

import asyncio

import pytest

from muster.kube.api import ConflictError, ServerError, TooManyRequestsError
from muster.sim.retry import persist
from muster.sim.tasks import TaskSet, first_of, run_until
from muster.sim.virtual import VirtualClock, run_virtual


def test_the_first_error_ends_the_set_and_cancels_the_rest() -> None:
    seen: list[str] = []

    async def forever() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            seen.append("cancelled")

    async def fail(clock: VirtualClock) -> None:
        await clock.sleep(5)
        raise RuntimeError("broken")

    async def main(clock: VirtualClock) -> float:
        tasks = TaskSet()
        tasks.start(forever())
        tasks.start(fail(clock))
        with pytest.raises(RuntimeError, match="broken"):
            await tasks.run()
        return clock.elapsed_s

    assert run_virtual(main) == 5.0
    assert seen == ["cancelled"]


def test_an_error_before_the_set_runs_is_not_lost() -> None:
    async def fail() -> None:
        raise RuntimeError("early")

    async def main(clock: VirtualClock) -> None:
        tasks = TaskSet()
        tasks.start(fail())
        await clock.sleep(1)
        await tasks.run()

    with pytest.raises(RuntimeError, match="early"):
        run_virtual(main)


def test_first_of_tells_result_from_time_out() -> None:
    async def main(clock: VirtualClock) -> tuple[int | None, int | None, float]:
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        late = await first_of(clock, future, 10.0)
        asyncio.get_running_loop().call_later(3.0, future.set_result, 7)
        return late, await first_of(clock, future, 10.0), clock.elapsed_s

    assert run_virtual(main) == (None, 7, 13.0)


def test_run_until_stops_the_work_and_passes_its_errors_on() -> None:
    async def main(clock: VirtualClock) -> float:
        stop = asyncio.Event()
        asyncio.get_running_loop().call_later(4.0, stop.set)
        await run_until(asyncio.sleep(100), stop)

        async def fail() -> None:
            raise ValueError("mine")

        with pytest.raises(ValueError, match="mine"):
            await run_until(fail(), asyncio.Event())
        return clock.elapsed_s

    assert run_virtual(main) == 4.0


def test_writes_outlast_an_outage_and_do_not_hide_a_refusal() -> None:
    answers: list[Exception] = [
        ServerError(500, "InternalError", "boom"),
        TooManyRequestsError(429, "TooManyRequests", "slow down", retry_after_s=20.0),
    ]

    async def write() -> str:
        if answers:
            raise answers.pop(0)
        return "written"

    async def refused() -> None:
        raise ConflictError(409, "Conflict", "no")

    async def main(clock: VirtualClock) -> tuple[str, float]:
        result = await persist(clock, write)
        with pytest.raises(ConflictError):
            await persist(clock, refused)
        return result, clock.elapsed_s

    assert run_virtual(main) == ("written", 21.0)
