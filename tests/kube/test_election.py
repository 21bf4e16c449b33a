"""Election: one leader at a time, whatever the API server does, and a new token for every term."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.kube.api import LEASES, ConnectionLostError, ServerError
from muster.kube.election import Election
from muster.sim.virtual import VirtualClock, run_virtual
from tests.kube.fake_api import FakeApi


def election(api: FakeApi, name: str, clock: VirtualClock) -> Election:
    return Election(api, "muster-controller", name, clock=clock)  # type: ignore[arg-type]


def recorder(
    name: str, clock: VirtualClock, log: list[tuple[str, str, float, int]]
) -> Callable[[int], Awaitable[None]]:
    async def lead(token: int) -> None:
        log.append(("start", name, clock.elapsed_s, token))
        try:
            await asyncio.Event().wait()
        finally:
            log.append(("stop", name, clock.elapsed_s, token))

    return lead


def test_the_first_candidate_leads_and_shows_its_token_only_while_leading() -> None:
    async def main(clock: VirtualClock) -> tuple[int | None, int | None, str]:
        api = FakeApi()
        candidate = election(api, "a", clock)
        task = asyncio.ensure_future(candidate.run(recorder("a", clock, [])))
        await clock.sleep(60)
        during = candidate.token
        task.cancel()
        await asyncio.wait({task})
        return during, candidate.token, api.objects["leases", "muster-controller"]["spec"]["holderIdentity"]

    assert run_virtual(main) == (1, None, "")


def test_a_successor_of_a_cancelled_leader_takes_over_at_once_with_a_higher_token() -> None:
    async def main(clock: VirtualClock) -> list[tuple[str, str, float, int]]:
        api, log = FakeApi(), []  # type: ignore[var-annotated]
        first = asyncio.ensure_future(election(api, "a", clock).run(recorder("a", clock, log)))
        await clock.sleep(5)
        second = asyncio.ensure_future(election(api, "b", clock).run(recorder("b", clock, log)))
        await clock.sleep(5)
        first.cancel()
        await clock.sleep(5)
        assert not second.done()
        return list(log)

    log = run_virtual(main)
    assert [(what, who, token) for what, who, _, token in log] == [
        ("start", "a", 1),
        ("stop", "a", 1),
        ("start", "b", 2),
    ]
    assert log[2][2] - log[1][2] <= 2.1


def test_a_leader_that_vanished_is_followed_after_the_lease_duration() -> None:
    async def main(clock: VirtualClock) -> list[tuple[str, str, float, int]]:
        api, log = FakeApi(), []  # type: ignore[var-annotated]
        await api.create(
            LEASES,
            {
                "metadata": {"name": "muster-controller"},
                "spec": {"holderIdentity": "dead", "leaseDurationSeconds": 15, "leaseTransitions": 7},
            },
        )
        task = asyncio.ensure_future(election(api, "b", clock).run(recorder("b", clock, log)))
        await clock.sleep(40)
        assert not task.done()
        return list(log)

    ((what, who, at, token),) = run_virtual(main)
    assert (what, who, token) == ("start", "b", 8)
    assert 15 < at <= 20


def test_a_predecessor_of_the_same_name_is_a_stranger() -> None:
    async def main(clock: VirtualClock) -> float:
        api, log = FakeApi(), []  # type: ignore[var-annotated]
        spec = {"holderIdentity": "a", "leaseDurationSeconds": 15, "leaseTransitions": 1}
        await api.create(LEASES, {"metadata": {"name": "muster-controller"}, "spec": spec})
        asyncio.ensure_future(election(api, "a", clock).run(recorder("a", clock, log)))  # noqa: RUF006
        await clock.sleep(40)
        return log[0][2]  # type: ignore[no-any-return]

    assert run_virtual(main) > 15


def test_leadership_ends_before_the_lease_does_when_renewals_hang() -> None:
    async def main(clock: VirtualClock) -> list[tuple[str, str, float, int]]:
        api, log = FakeApi(), []  # type: ignore[var-annotated]

        async def hang(verb: str) -> None:
            if clock.elapsed_s > 20:
                await asyncio.Event().wait()

        api.before = hang
        asyncio.ensure_future(election(api, "a", clock).run(recorder("a", clock, log)))  # noqa: RUF006
        await clock.sleep(60)
        return list(log)

    log = run_virtual(main)
    assert log[1][:2] == ("stop", "a")
    assert 20 < log[1][2] <= 31


def test_a_deleted_or_stolen_lease_ends_the_term() -> None:
    async def main(clock: VirtualClock) -> list[tuple[str, str, float, int]]:
        api, log = FakeApi(), []  # type: ignore[var-annotated]
        asyncio.ensure_future(election(api, "a", clock).run(recorder("a", clock, log)))  # noqa: RUF006
        await clock.sleep(5)
        lease = api.objects["leases", "muster-controller"]
        api.put(LEASES, {**lease, "spec": {**lease["spec"], "holderIdentity": "thief", "leaseTransitions": 5}})
        await clock.sleep(5)
        return list(log)

    assert [(what, token) for what, _, _, token in run_virtual(main)] == [("start", 1), ("stop", 1)]


def test_a_stranger_that_labels_the_lease_does_not_end_the_term() -> None:
    async def main(clock: VirtualClock) -> list[tuple[str, str, float, int]]:
        api, log = FakeApi(), []  # type: ignore[var-annotated]
        asyncio.ensure_future(election(api, "a", clock).run(recorder("a", clock, log)))  # noqa: RUF006
        for _ in range(20):
            await clock.sleep(1.5)
            lease = api.objects["leases", "muster-controller"]
            api.put(LEASES, {**lease, "metadata": {**lease["metadata"], "labels": {"at": str(clock.elapsed_s)}}})
        return list(log)

    assert [entry[0] for entry in run_virtual(main)] == ["start"]


def test_the_error_of_the_work_reaches_the_caller_and_the_lease_is_free() -> None:
    async def main(clock: VirtualClock) -> str:
        api = FakeApi()

        async def lead(token: int) -> None:
            await clock.sleep(3)
            raise RuntimeError("the work failed")

        with pytest.raises(RuntimeError, match="the work failed"):
            await election(api, "a", clock).run(lead)
        return api.objects["leases", "muster-controller"]["spec"]["holderIdentity"]  # type: ignore[no-any-return]

    assert run_virtual(main) == ""


def test_durations_that_leave_no_margin_are_refused() -> None:
    with pytest.raises(ValueError, match="retry_s < renew_s < duration_s"):
        Election(FakeApi(), "x", "a", clock=VirtualClock(), duration_s=10, renew_s=10)  # type: ignore[arg-type]


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    fail=st.sampled_from([0.0, 0.2, 0.5, 0.9]),
    lose_answer=st.sampled_from([0.0, 0.2, 0.5]),
    slow=st.sampled_from([0.0, 3.0, 12.0, 40.0]),
    restart_every=st.sampled_from([25.0, 90.0, 1e9]),
)
def test_never_two_leaders_and_tokens_only_grow(
    seed: int, fail: float, lose_answer: float, slow: float, restart_every: float
) -> None:
    """Three candidates, two of them restarted without notice, on a server that fails, hangs and loses answers."""
    random_ = random.Random(seed)

    async def main(clock: VirtualClock) -> list[tuple[str, str, float, int]]:
        api, log = FakeApi(), []  # type: ignore[var-annotated]

        async def before(verb: str) -> None:
            await clock.sleep(random_.uniform(0, slow))
            if random_.random() < fail:
                raise ServerError(500, "InternalError", "no")

        async def after(verb: str) -> None:
            await clock.sleep(random_.uniform(0, slow))
            if random_.random() < lose_answer:
                raise ConnectionLostError("lost")

        api.before, api.after = before, after

        async def candidate(name: str, restart_s: float) -> None:
            while True:
                await clock.sleep(random_.uniform(0, 3))
                task = asyncio.ensure_future(election(api, name, clock).run(recorder(name, clock, log)))
                await clock.sleep(random_.uniform(restart_s / 2, restart_s))
                task.cancel()
                await asyncio.wait({task})

        for name, restart_s in (("a", restart_every), ("b", restart_every), ("c", 1e9)):
            asyncio.ensure_future(candidate(name, restart_s))  # noqa: RUF006
        await clock.sleep(600)
        return list(log)

    log = run_virtual(main)
    leading: list[str] = []
    tokens = [0]
    for what, who, _, token in log:
        if what == "start":
            assert not leading, log
            leading.append(who)
            assert token > tokens[-1], log
            tokens.append(token)
        else:
            leading.remove(who)
    if not fail and not lose_answer and not slow:
        assert log, "nobody ever led on a server that works"
