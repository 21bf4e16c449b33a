"""A client of the API server whose requests go wrong when told to."""

from __future__ import annotations

from typing import Any

from muster.kube.api import ConnectionLostError, ForbiddenError, KubeApi, Object, ServerError


class FlakyApi:
    """Of the next requests `left` go wrong: `transient` any, `lost` and `permanent` those that create."""

    def __init__(self, api: KubeApi) -> None:
        self._api = api
        self.left = 0
        self.how = ""

    def _due(self, *kinds: str) -> bool:
        if self.left > 0 and self.how in kinds:
            self.left -= 1
            return True
        return False

    def _may_break(self) -> None:
        if self._due("transient"):
            raise ServerError(503, "ServiceUnavailable", "the API server is starting")

    async def get(self, *args: Any, **kwargs: Any) -> Object:
        self._may_break()
        return await self._api.get(*args, **kwargs)

    async def list_page(self, *args: Any, **kwargs: Any) -> Any:
        self._may_break()
        return await self._api.list_page(*args, **kwargs)

    async def patch(self, *args: Any, **kwargs: Any) -> Object:
        self._may_break()
        return await self._api.patch(*args, **kwargs)

    async def delete(self, *args: Any, **kwargs: Any) -> None:
        self._may_break()
        if self._due("lost"):
            await self._api.delete(*args, **kwargs)
            raise ConnectionLostError("connection reset by peer")
        await self._api.delete(*args, **kwargs)

    async def create(self, *args: Any, **kwargs: Any) -> Object:
        self._may_break()
        if self._due("permanent"):
            raise ForbiddenError(403, "Forbidden", "violates PodSecurity baseline: privileged")
        made = await self._api.create(*args, **kwargs)
        if self._due("lost"):
            raise ConnectionLostError("connection reset by peer")
        return made
