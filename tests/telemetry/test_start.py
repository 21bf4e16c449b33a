"""How the controller waits for its API server at the start: on virtual time."""

from __future__ import annotations

from typing import Any

import pytest

from muster.cli.controller import REFUSED_S, wait_for_access
from muster.errors import BadInputError
from muster.kube.api import (
    ConnectionLostError,
    ForbiddenError,
    ListPage,
    NotFoundError,
    ServerError,
    TooManyRequestsError,
)
from muster.sim.inprocess import InProcessApi
from muster.sim.store import Store
from muster.sim.virtual import VirtualClock, run_virtual


class Starting(InProcessApi):
    """Raises what `error` says until `ready_s` have passed, then answers."""

    def __init__(self, clock: VirtualClock, error: Exception, ready_s: float) -> None:
        super().__init__(Store(clock, seed=1))
        self.clock, self.error, self.ready_s = clock, error, ready_s

    async def list_page(self, *arguments: Any, **options: Any) -> ListPage:
        if self.clock.elapsed_s < self.ready_s:
            raise self.error
        return ListPage((), "1")


AWAY = [
    ConnectionLostError("No answer."),
    ServerError(503, "ServiceUnavailable", "starting"),
    TooManyRequestsError(429, "TooManyRequests", "later"),
]
REFUSALS = [ForbiddenError(403, "Forbidden", "RBAC: role not found"), NotFoundError(404, "NotFound", "no such kind")]


@pytest.mark.parametrize("error", AWAY)
def test_a_server_that_is_away_is_waited_for_however_long(error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    async def story(clock: VirtualClock) -> float:
        await wait_for_access(Starting(clock, error, 7200.0), "https://here", clock)
        return clock.elapsed_s

    assert 7200.0 <= run_virtual(story) <= 7260.0
    assert caplog.text.count("It is tried again until it works.") == 1


@pytest.mark.parametrize("error", REFUSALS)
def test_a_refusal_of_a_moment_passes(error: Exception) -> None:
    async def story(clock: VirtualClock) -> float:
        await wait_for_access(Starting(clock, error, 2.0), "https://here", clock)
        return clock.elapsed_s

    assert 2.0 <= run_virtual(story) <= 3.0


@pytest.mark.parametrize("error", REFUSALS)
def test_a_refusal_that_stays_is_one_sentence(error: Exception) -> None:
    async def story(clock: VirtualClock) -> None:
        with pytest.raises(BadInputError, match=r"The API server https://here does not .*\.$"):
            await wait_for_access(Starting(clock, error, 60.0), "https://here", clock)
        assert REFUSED_S <= clock.elapsed_s <= REFUSED_S + 1

    run_virtual(story)
