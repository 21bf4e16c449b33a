"""Asking whether we still lead: one question for many, never an answer from before the question."""

from __future__ import annotations

import asyncio

import pytest

from muster.operate.carry_out import NotLeadingError, Writer
from muster.sim.inprocess import InProcessApi
from muster.sim.store import Store
from muster.sim.virtual import VirtualClock, run_virtual

ASK_S = 1.0


class Lease:
    """Answers after a second with what was true when it was asked."""

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self.ours = True
        self.asked = 0
        self.error: Exception | None = None

    async def __call__(self) -> bool:
        self.asked += 1
        truth = self.ours
        await self._clock.sleep(ASK_S)
        if self.error is not None:
            raise self.error
        return truth


def writer(clock: VirtualClock, lease: Lease) -> Writer:
    return Writer(InProcessApi(Store(clock)), clock, lease)


def test_many_share_one_question() -> None:
    async def main(clock: VirtualClock) -> tuple[int, float]:
        lease = Lease(clock)
        w = writer(clock, lease)
        first = asyncio.ensure_future(w.fence())
        await clock.sleep(ASK_S / 2)
        await asyncio.gather(first, *(w.fence() for _ in range(20)))
        return lease.asked, clock.elapsed_s

    # The first had been put already; the twenty that came later share the second.
    assert run_virtual(main) == (2, 2 * ASK_S)


def test_who_asks_after_the_loss_is_never_told_the_answer_from_before() -> None:
    async def main(clock: VirtualClock) -> None:
        lease = Lease(clock)
        w = writer(clock, lease)
        before = asyncio.ensure_future(w.fence())
        await clock.sleep(ASK_S / 2)
        lease.ours = False
        after = asyncio.ensure_future(w.fence())
        await before
        with pytest.raises(NotLeadingError):
            await after

    run_virtual(main)


def test_a_cancelled_caller_leaves_the_others_their_answer() -> None:
    async def main(clock: VirtualClock) -> int:
        lease = Lease(clock)
        w = writer(clock, lease)
        gone, waits = asyncio.ensure_future(w.fence()), asyncio.ensure_future(w.fence())
        await clock.sleep(ASK_S / 2)
        gone.cancel()
        await waits
        return lease.asked

    assert run_virtual(main) == 1


def test_an_error_reaches_everybody_who_asked_and_nobody_later() -> None:
    async def main(clock: VirtualClock) -> None:
        lease = Lease(clock)
        w = writer(clock, lease)
        lease.error = ConnectionError("away")
        both = await asyncio.gather(w.fence(), w.fence(), return_exceptions=True)
        assert [type(error) for error in both] == [ConnectionError, ConnectionError]
        lease.error = None
        await w.fence()

    run_virtual(main)
