"""A client that dies: after its k-th write nothing gets through any more, as when the process is killed."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from muster.kube.api import KubeApi
from muster.sim.inprocess import InProcessApi
from muster.sim.store import Store
from muster.sim.virtual import VirtualClock

WRITES = ("create", "replace", "patch", "apply", "delete", "evict")


class KilledError(BaseException):  # not one that a process may handle and live on
    """The process is dead. Not an error of the API: nothing in the controller may catch it."""


class MortalApi:
    """Passes everything on to `api` until `writes` writes were made.

    `lost`: the last write takes effect, its answer does not arrive. Otherwise it does not take effect.
    """

    def __init__(self, api: KubeApi, writes: int, *, lost: bool) -> None:
        self._api = api
        self._left = writes
        self._lost = lost
        self.dead = False
        self.made = 0

    def __getattr__(self, name: str) -> Any:
        target = getattr(self._api, name)
        if name == "watch":
            return target
        if name not in WRITES:

            async def read(*args: Any, **kwargs: Any) -> Any:
                self._alive()
                return await target(*args, **kwargs)

            return read

        async def write(*args: Any, **kwargs: Any) -> Any:
            self._alive()
            self.made += 1
            self._left -= 1
            if self._left == 0:
                self.dead = True
                if self._lost:
                    await target(*args, **kwargs)
                raise KilledError
            return await target(*args, **kwargs)

        return write

    def _alive(self) -> None:
        if self.dead:
            raise KilledError


class Supervisor:
    """Runs controllers one after another: each dies after its number of writes, the last one lives.

    `controller` makes the `run()` of one controller that talks through the API it is given.
    """

    def __init__(
        self,
        store: Store,
        clock: VirtualClock,
        controller: Callable[[MortalApi], Coroutine[Any, Any, None]],
        lives: Sequence[int],
        *,
        lost: bool,
    ) -> None:
        self._store = store
        self._clock = clock
        self._controller = controller
        self._lives = list(lives)
        self._lost = lost
        self.writes = 0
        self.deaths = 0

    async def run(self) -> None:
        while True:
            writes = self._lives.pop(0) if self._lives else 10**9
            api = MortalApi(InProcessApi(self._store, user="muster"), writes, lost=self._lost)
            try:
                await self._controller(api)
            except KilledError:
                self.deaths += 1
            finally:
                self.writes += api.made
            await self._clock.sleep(3.0)
