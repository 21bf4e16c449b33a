"""Work queue: coalescing, order, delays and backoff on virtual time."""

from __future__ import annotations

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from muster.kube.queue import WorkQueue
from muster.sim.virtual import VirtualClock, run_virtual


def test_a_key_added_many_times_is_handed_out_once() -> None:
    async def main(clock: VirtualClock) -> tuple[list[str], int]:
        queue = WorkQueue(clock)
        for key in ("a", "b", "a", "a"):
            queue.add(key)
        return [await queue.get(), await queue.get()], len(queue)

    assert run_virtual(main) == (["a", "b"], 0)


def test_a_key_added_while_in_work_is_handed_out_once_more_after_done() -> None:
    async def main(clock: VirtualClock) -> tuple[int, int, str]:
        queue = WorkQueue(clock)
        queue.add("a")
        key = await queue.get()
        queue.add("a")
        queue.add("a")
        during = len(queue)
        queue.done(key)
        after = len(queue)
        return during, after, await queue.get()

    assert run_virtual(main) == (0, 1, "a")


def test_delayed_keys_come_when_due_and_the_earliest_delay_counts() -> None:
    async def main(clock: VirtualClock) -> list[tuple[str, float]]:
        queue = WorkQueue(clock)
        queue.add_after("late", 30)
        queue.add_after("late", 60)
        queue.add_after("early", 20)
        queue.add_after("early", 5)
        seen = []
        for _ in range(2):
            key = await queue.get()
            seen.append((key, round(clock.elapsed_s, 1)))
            queue.done(key)
        await clock.sleep(100)
        assert len(queue) == 0
        return seen

    assert run_virtual(main) == [("early", 5.0), ("late", 30.0)]


def test_retry_doubles_until_forget() -> None:
    async def main(clock: VirtualClock) -> list[float]:
        queue = WorkQueue(clock, retry_base_s=1, retry_cap_s=8)
        waits = []
        for attempt in range(6):
            if attempt == 5:
                queue.forget("a")
            queue.retry("a")
            start = clock.elapsed_s
            queue.done(await queue.get())
            waits.append(clock.elapsed_s - start)
        return waits

    waits = run_virtual(main)
    for wait, full in zip(waits, (1, 2, 4, 8, 8, 1), strict=True):
        assert full / 2 <= wait <= full + 0.01


def test_close_forgets_delayed_keys() -> None:
    async def main(clock: VirtualClock) -> int:
        queue = WorkQueue(clock)
        queue.add_after("a", 1)
        queue.close()
        await clock.sleep(10)
        return len(queue)

    assert run_virtual(main) == 0


operation = st.tuples(st.sampled_from(["add", "after", "retry"]), st.sampled_from("abc"), st.integers(0, 20))


@given(st.lists(operation, max_size=30), st.integers(1, 3))
def test_every_added_key_is_worked_on_after_its_last_add_and_never_twice_at_once(
    operations: list[tuple[str, str, int]], workers: int
) -> None:
    async def main(clock: VirtualClock) -> None:
        queue = WorkQueue(clock, retry_base_s=1, retry_cap_s=4)
        working: list[str] = []
        last_start: dict[str, float] = {}

        async def worker() -> None:
            while True:
                key = await queue.get()
                assert key not in working
                working.append(key)
                last_start[key] = clock.elapsed_s
                await clock.sleep(3)
                working.remove(key)
                queue.done(key)

        tasks = [asyncio.ensure_future(worker()) for _ in range(workers)]
        due: dict[str, float] = {}
        for kind, key, number in operations:
            if kind == "add":
                queue.add(key)
                due[key] = max(due.get(key, 0), clock.elapsed_s)
            elif kind == "after":
                queue.add_after(key, number)
                due[key] = max(due.get(key, 0), clock.elapsed_s)
            else:
                queue.retry(key)
                due[key] = max(due.get(key, 0), clock.elapsed_s)
            await clock.sleep(number / 10)
        await clock.sleep(1000)
        for key, added in due.items():
            assert last_start[key] >= added
        for task in tasks:
            assert not task.done(), task.exception()
            task.cancel()

    run_virtual(main)
