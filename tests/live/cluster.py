"""A server, simulated or real, with the small recipe installed in a namespace of its own, for what goes over HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

from muster.configure import lock
from muster.configure.recipe import Recipe
from muster.kube.api import Object, PatchType, ResourceType
from muster.kube.http import HttpApi
from tests.contract.server import Server

T = TypeVar("T")


def on(server: Server, work: Callable[[HttpApi], Coroutine[Any, Any, T]]) -> T:
    """The result of `work` with a client of the server."""

    async def main() -> T:
        async with HttpApi.from_kubeconfig(server.kubeconfig) as api:
            return await work(api)

    return asyncio.run(main())


def create(server: Server, res: ResourceType, obj: Object, status: dict[str, Any] | None = None) -> Object:
    """Create an object, and write its status through the status subresource."""

    async def work(api: HttpApi) -> Object:
        made = await api.create(res, obj)
        return await _status(api, res, made, status) if status is not None else made

    return on(server, work)


def set_status(server: Server, res: ResourceType, name: str, namespace: str, status: dict[str, Any]) -> None:
    obj = {"metadata": {"name": name, "namespace": namespace}}
    on(server, lambda api: _status(api, res, obj, status))


async def _status(api: HttpApi, res: ResourceType, obj: Object, status: dict[str, Any]) -> Object:
    metadata = obj["metadata"]
    place = metadata.get("namespace", "")
    return await api.patch(res, metadata["name"], {"status": status}, PatchType.MERGE, place, subresource="status")


def save(recipe: Recipe, folder: Path) -> Path:
    path = folder / "recipe.yaml"
    path.write_text(lock.write(recipe))
    return path
