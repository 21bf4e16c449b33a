"""Clocks: scaled time is one time in several processes; virtual time jumps and keeps order."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.clock import ScaledClock
from muster.sim.virtual import DEFAULT_START, StalledError, VirtualClock, run_virtual


@given(
    st.datetimes(min_value=datetime(2000, 1, 1), max_value=datetime(2100, 1, 1), timezones=st.just(UTC)),  # noqa: DTZ001
    st.floats(min_value=0, max_value=4e9),
    st.floats(min_value=0.001, max_value=1e6),
)
def test_a_scaled_clock_survives_the_environment(origin: datetime, unix_s: float, speed: float) -> None:
    clock = ScaledClock(origin, unix_s, speed)
    assert ScaledClock.decode(clock.encode()) == clock


@pytest.mark.parametrize("text", ["", "x", "2026-01-01T00:00:00,0,1", "2026-01-01T00:00:00+00:00,0,0", "a,b,c,d"])
def test_a_broken_clock_text_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        ScaledClock.decode(text)


def test_virtual_days_pass_in_order() -> None:
    seen: list[tuple[str, datetime]] = []

    async def ticker(clock: VirtualClock, name: str, every_s: float) -> None:
        for _ in range(3):
            await clock.sleep(every_s)
            seen.append((name, clock.now()))

    async def main(clock: VirtualClock) -> str:
        await asyncio.gather(ticker(clock, "a", 86_400), ticker(clock, "b", 100_000))
        return "done"

    assert run_virtual(main) == "done"
    assert [name for name, _ in seen] == ["a", "b", "a", "b", "a", "b"]
    assert seen[-1][1] == DEFAULT_START + timedelta(seconds=300_000)


def test_a_deadlock_is_reported_instead_of_hanging() -> None:
    async def main(_clock: VirtualClock) -> None:
        await asyncio.get_running_loop().create_future()

    with pytest.raises(StalledError):
        run_virtual(main)


def test_the_pace_is_asked_for_every_jump() -> None:
    jumps: list[float] = []

    def pace(seconds: float) -> float:
        jumps.append(seconds)
        return 0.0

    async def main(clock: VirtualClock) -> None:
        await clock.sleep(10)
        await clock.sleep(5)

    run_virtual(main, pace=pace)
    assert sum(jumps) == pytest.approx(15)
