"""Writing until it is done: what is tried again, for how long, and what is a refusal."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from muster.errors import UnreachableError
from muster.kube.api import ForbiddenError, InvalidError, ServerError, TooManyRequestsError
from muster.sim.retry import persist
from muster.sim.virtual import VirtualClock, run_virtual

FORBIDDEN = ForbiddenError(403, "Forbidden", "serviceaccount default not found")


class Server:
    """Answers with `errors` one after the other, then with success."""

    def __init__(self, *errors: Exception) -> None:
        self._errors: Iterator[Exception] = iter(errors)
        self.asked = 0

    async def write(self) -> str:
        self.asked += 1
        for error in self._errors:
            raise error
        return "written"


@pytest.mark.parametrize(
    "error", [UnreachableError("away"), ServerError(503, "ServiceUnavailable", "starting"), FORBIDDEN]
)
def test_what_may_pass_is_tried_again(error: Exception) -> None:
    server = Server(error, error)

    async def main(clock: VirtualClock) -> str:
        return await persist(clock, server.write, forbidden_s=60.0)

    assert run_virtual(main) == "written"
    assert server.asked == 3


def test_a_busy_server_says_how_long_to_wait() -> None:
    server = Server(TooManyRequestsError(429, "TooManyRequests", "busy", retry_after_s=40.0))

    async def main(clock: VirtualClock) -> float:
        await persist(clock, server.write)
        return clock.elapsed_s

    assert run_virtual(main) == 40.0


@pytest.mark.parametrize("error", [FORBIDDEN, InvalidError(422, "Invalid", "no")])
def test_a_refusal_is_raised_at_once(error: Exception) -> None:
    server = Server(error)

    async def main(clock: VirtualClock) -> None:
        await persist(clock, server.write)

    with pytest.raises(type(error)):
        run_virtual(main)
    assert server.asked == 1


def test_what_stays_forbidden_is_a_refusal_in_the_end() -> None:
    server = Server(*[FORBIDDEN] * 100)

    async def main(clock: VirtualClock) -> None:
        with pytest.raises(ForbiddenError):
            await persist(clock, server.write, forbidden_s=60.0)
        assert 60.0 <= clock.elapsed_s <= 120.0

    run_virtual(main)
