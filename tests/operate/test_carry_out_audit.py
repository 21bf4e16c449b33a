"""What could not be done stands in the audit log too: a right that is missing, an answer that was lost."""

from __future__ import annotations

from typing import Any

import pytest

from muster.clock import Clock
from muster.kube.api import ApiError, ConnectionLostError, ForbiddenError, KubeApi, ServerError, TooManyRequestsError
from muster.operate.carry_out import NotLeadingError, Writer
from muster.operate.model import DeletePod, EvictPod, Intent
from muster.operate.outputs.action import Action, Result
from muster.sim.virtual import run_virtual
from tests.operate.worlds import pod


class Failing:
    """An API server that answers every write with one error."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def __getattr__(self, _: str) -> Any:
        async def fail(*_: Any, **__: Any) -> None:
            raise self._error

        return fail


def tried(intent: Intent, error: Exception, *, leads: bool = True) -> list[Action]:
    actions: list[Action] = []

    async def leading() -> bool:
        return leads

    async def work(clock: Clock) -> None:
        api: KubeApi = Failing(error)  # type: ignore[assignment]  # only what a write needs
        writer = Writer(api, clock, leading, actor="muster-1", on_action=actions.append)
        with pytest.raises((ApiError, ConnectionLostError, NotLeadingError)):
            await writer.intent(intent)

    run_virtual(work)
    return actions


@pytest.mark.parametrize(
    "error",
    [
        ForbiddenError(403, "Forbidden", "muster may not evict"),
        ServerError(500, "InternalError", "etcd"),
        ConnectionLostError("reset"),
    ],
)
@pytest.mark.parametrize(
    ("intent", "word"), [(EvictPod(pod(), "e1"), "evict"), (DeletePod(pod(), "e1"), "delete-pod")]
)
def test_what_failed_is_told(intent: Intent, word: str, error: Exception) -> None:
    (told,) = tried(intent, error)
    assert (told.action, told.target, told.node, told.episode) == (word, "Pod/work/train-0", "n1", "e1")
    assert told.result is Result.FAILED
    assert str(error) in told.message


def test_being_asked_to_slow_down_and_having_lost_the_lease_are_no_actions() -> None:
    slower = TooManyRequestsError(429, "TooManyRequests", "slow down")
    assert tried(EvictPod(pod(), "e1"), slower) == []
    assert tried(EvictPod(pod(), "e1"), slower, leads=False) == []
