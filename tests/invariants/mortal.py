"""A client that dies: after its k-th write nothing gets through any more, as when the process is killed."""

from __future__ import annotations

from typing import Any

from muster.kube.api import KubeApi

WRITES = ("create", "replace", "patch", "apply", "delete", "evict")


class KilledError(Exception):
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
