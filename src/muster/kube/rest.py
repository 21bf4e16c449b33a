"""The calls of a Kubernetes API as requests: paths, parameters and bodies, whatever carries them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Final

from muster.kube.api import PODS, ListPage, Object, PatchType, ResourceType
from muster.kube.wire import delete_options, namespace_of, path_of, read_list, read_object

APPLY: Final = "application/apply-patch+yaml"


class Rest(ABC):
    """`KubeApi` without `watch`, on top of one method that sends a request."""

    @abstractmethod
    async def _request(
        self,
        method: str,
        path: str,
        parameters: Mapping[str, str] | None = None,
        body: Any = None,
        content_type: str = "application/json",
    ) -> bytes:
        """The body of the answer. `parameters` that are empty are left out.

        Raises ApiError for an answer that is a failure, UnreachableError when there is none.
        """

    # Reading

    async def get(self, res: ResourceType, name: str, namespace: str = "") -> Object:
        return read_object(await self._request("GET", path_of(res, namespace, name)))

    async def list_page(
        self,
        res: ResourceType,
        namespace: str = "",
        *,
        label_selector: str = "",
        field_selector: str = "",
        limit: int = 0,
        continue_token: str = "",
        resource_version: str = "",
    ) -> ListPage:
        parameters = {
            "labelSelector": label_selector,
            "fieldSelector": field_selector,
            "limit": str(limit) if limit else "",
            "continue": continue_token,
            "resourceVersion": resource_version,
        }
        body = await self._request("GET", path_of(res, namespace), parameters)
        return read_list(body, res.plural)

    # Writing

    async def create(self, res: ResourceType, obj: Object, namespace: str = "", *, manager: str = "") -> Object:
        namespace = namespace or namespace_of(obj)
        body = await self._request("POST", path_of(res, namespace), {"fieldManager": manager}, obj)
        return read_object(body)

    async def replace(self, res: ResourceType, obj: Object, *, subresource: str = "", manager: str = "") -> Object:
        path = path_of(res, namespace_of(obj), obj["metadata"]["name"], subresource)
        return read_object(await self._request("PUT", path, {"fieldManager": manager}, obj))

    async def patch(
        self,
        res: ResourceType,
        name: str,
        patch: Mapping[str, Any] | list[Any],
        patch_type: PatchType,
        namespace: str = "",
        *,
        subresource: str = "",
        manager: str = "",
    ) -> Object:
        path = path_of(res, namespace, name, subresource)
        return read_object(await self._request("PATCH", path, {"fieldManager": manager}, patch, patch_type.value))

    async def apply(
        self,
        res: ResourceType,
        obj: Object,
        *,
        manager: str,
        force: bool = True,
        subresource: str = "",
    ) -> Object:
        path = path_of(res, namespace_of(obj), obj["metadata"]["name"], subresource)
        parameters = {"fieldManager": manager, "force": "true" if force else "false"}
        return read_object(await self._request("PATCH", path, parameters, obj, APPLY))

    async def delete(
        self,
        res: ResourceType,
        name: str,
        namespace: str = "",
        *,
        grace_period_s: int | None = None,
        uid: str = "",
        resource_version: str = "",
    ) -> None:
        options = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            **delete_options(grace_period_s, uid, resource_version),
        }
        await self._request("DELETE", path_of(res, namespace, name), {}, options)

    async def evict(self, pod: str, namespace: str, *, uid: str = "", grace_period_s: int | None = None) -> None:
        eviction = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod, "namespace": namespace},
            "deleteOptions": delete_options(grace_period_s, uid, ""),
        }
        await self._request("POST", path_of(PODS, namespace, pod, "eviction"), {}, eviction)
