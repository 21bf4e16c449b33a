"""Reads a cluster through its API server, page by page. What it refuses becomes unknown with the reason.

An API server that does not answer, or does not accept the login, is an error: there is no partial snapshot.
"""

from __future__ import annotations

import difflib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol, TypeVar

import msgspec

from muster.configure.live.helm_release import OWNER_SELECTOR, SECRET_TYPE, decode_release, revision_of
from muster.configure.snapshot.agents import READINGS, published, with_agent
from muster.configure.snapshot.model import ClusterSnapshot, Item, NodeEntry
from muster.configure.snapshot.nodes import entry_of, reported, service_of
from muster.configure.snapshot.objects import (
    POLICIES,
    crd_item,
    definition_of,
    images_of,
    policy_item,
    release_item,
    storage_class_item,
    stored_version,
    uses_of,
)
from muster.errors import BadInputError, UnreachableError
from muster.inventory.record import UnknownReading
from muster.kube.api import (
    CRDS,
    LEASES,
    NODE_HEALTHS,
    NODES,
    PODS,
    SECRETS,
    ApiError,
    GoneError,
    KubeApi,
    NotFoundError,
    Object,
    ResourceType,
)
from muster.kube.http import HttpApi
from muster.kube.wire import read_object
from muster.resources.base import SYSTEM_NAMESPACE, agent_lease
from muster.resources.fingerprint import Reading, ReadingClass

T = TypeVar("T")
PAGE = 250
LARGE_PAGE = 20
"""Secrets of Helm and definitions are up to a megabyte each."""
MAX_OBJECTS = 200_000
STORAGE_CLASSES = ResourceType("storage.k8s.io", "v1", "storageclasses", "StorageClass", False)
GPU_OPERATOR = "gpu-operator"


class VersionedApi(KubeApi, Protocol):
    """A client that also asks the server what it is."""

    async def server_info(self) -> Object:
        """The answer of `/version`."""
        ...


class SnapshotApi(HttpApi):
    """The client for snapshots."""

    async def server_info(self) -> Object:
        return read_object(await self._request("GET", "version"))


@dataclass
class _Taken:
    """What was read so far, and what was refused."""

    readings: list[Reading] = field(default_factory=list)
    unknown: list[UnknownReading] = field(default_factory=list)
    answered: int = 0
    error: ApiError | None = None

    async def part(self, name: str, read: Callable[[], Awaitable[T]], otherwise: T) -> T:
        """One part of the snapshot; a refusal is noted under `name`."""
        try:
            value = await read()
        except ApiError as error:
            if error.code == 401:
                raise
            self.error = self.error or error
            self.miss(name, f"{_reason(error)}: {' '.join(str(error).split())[:300]}")
            return otherwise
        self.answered += 1
        return value

    def miss(self, name: str, reason: str) -> None:
        self.unknown.append(UnknownReading(name=name, reason=reason))

    def add(self, name: str, value: str, kind: ReadingClass = ReadingClass.STACK) -> None:
        self.readings.append(Reading(name=name, value=value, reading_class=kind))


def _reason(error: ApiError) -> str:
    return {403: "not allowed", 404: "not served"}.get(error.code, f"refused ({error.code})")


async def list_all(
    api: KubeApi,
    res: ResourceType,
    project: Callable[[bytes], T],
    *,
    namespace: str = "",
    page: int = PAGE,
    label_selector: str = "",
    field_selector: str = "",
) -> list[T]:
    """Every object, projected one by one. Starts again once when the server forgot the place in the list.

    Raises ApiError, UnreachableError; BadInputError when there are more than MAX_OBJECTS.
    """
    for attempt in (1, 2):
        found: list[T] = []
        token = ""
        try:
            while True:
                answer = await api.list_page(
                    res,
                    namespace,
                    label_selector=label_selector,
                    field_selector=field_selector,
                    limit=page,
                    continue_token=token,
                )
                found += [project(raw) for raw in answer.items]
                token = answer.continue_token
                if not token:
                    return found
                if len(found) > MAX_OBJECTS:
                    raise BadInputError(
                        f"The cluster has more than {MAX_OBJECTS} {res.plural}; it cannot be recorded."
                    )
        except GoneError:
            if attempt == 2:
                raise
    raise AssertionError("unreachable")


async def take_cluster(api: VersionedApi, now: datetime, *, agents: bool = False) -> ClusterSnapshot:
    """The whole cluster; with `agents` also what the agents of its nodes publish.

    Raises UnreachableError when the server does not answer, ApiError when it refuses everything.
    """
    taken = _Taken()
    await taken.part("kubernetes.version", lambda: _version(api, taken), None)
    nothing: tuple[Item, ...] = ()
    nowhere: list[tuple[NodeEntry, str]] = []
    nodes = await taken.part("nodes", lambda: _nodes(api), nowhere)
    if agents and nodes:
        nodes = await _with_agents(api, nodes, now)
    _service(taken, [entry for entry, _ in nodes])
    images = await taken.part("images", lambda: _images(api, taken), nothing)
    releases = await taken.part("releases", lambda: _releases(api, taken), nothing)
    _operator(taken, releases)
    definitions = await taken.part("crds", lambda: _crds(api, taken), None)
    policies = await _policies(api, taken, definitions[1] if definitions is not None else None)
    classes = await taken.part("storageClasses", lambda: _storage_classes(api), nothing)
    if not taken.answered and taken.error is not None:
        raise taken.error
    return ClusterSnapshot(
        taken_at=now,
        readings=tuple(sorted(taken.readings, key=lambda r: r.name)),
        unknown=tuple(sorted(taken.unknown, key=lambda u: (u.name, u.reason))),
        nodes=tuple(sorted((entry for entry, _ in nodes), key=lambda entry: entry.node)),
        images=images,
        releases=releases,
        crds=definitions[0] if definitions is not None else (),
        policies=policies,
        storage_classes=classes,
    )


async def take_nodes(api: KubeApi, now: datetime) -> ClusterSnapshot:
    """Every node as its Node object and its agent tell. Raises ApiError, UnreachableError."""
    nodes = await _with_agents(api, await _nodes(api), now)
    return ClusterSnapshot(taken_at=now, nodes=tuple(sorted((e for e, _ in nodes), key=lambda e: e.node)))


async def take_node(api: KubeApi, name: str, now: datetime) -> NodeEntry:
    """One node as its agent tells. Raises BadInputError for an unknown node, UnreachableError for a silent one."""
    try:
        node = await api.get(NODES, name)
    except NotFoundError as error:
        names = [entry.node for entry, _ in await _nodes(api)]
        close = difflib.get_close_matches(name, names, n=1)
        hint = f"did you mean {close[0]}?" if close else f"it has {len(names)} nodes."
        raise BadInputError(f"The cluster has no node {name[:253]!r}; {hint}") from error
    health = await _optional(lambda: api.get(NODE_HEALTHS, name))
    lease = await _optional(lambda: api.get(LEASES, agent_lease(name), SYSTEM_NAMESPACE))
    observed = published(msgspec.json.encode(health), {})[1] if health is not None else None
    entry = with_agent(entry_of(node), _uid(node), observed, lease, now)
    silent = next((u.reason for u in entry.unknown if u.name == READINGS), "")
    if silent:
        raise UnreachableError(
            f"Node {name} cannot be recorded: {silent}; 'muster snapshot --node' on the machine needs no agent."
        )
    return entry


async def _optional(read: Callable[[], Awaitable[Object]]) -> Object | None:
    try:
        return await read()
    except NotFoundError:
        return None


async def _version(api: VersionedApi, taken: _Taken) -> None:
    info = await api.server_info()
    for key, name in (("gitVersion", "kubernetes.version"), ("platform", "kubernetes.platform")):
        if isinstance(info.get(key), str) and info[key]:
            taken.add(name, str(info[key])[:253])
        else:
            taken.miss(name, "the server does not tell")


async def _nodes(api: KubeApi) -> list[tuple[NodeEntry, str]]:
    """Entries and the UIDs of their Node objects."""
    found = await list_all(api, NODES, lambda raw: _node(msgspec.json.decode(raw)))
    return [pair for pair in found if pair[0].node]


def _node(node: Object) -> tuple[NodeEntry, str]:
    return entry_of(node), _uid(node)


def _uid(node: Object) -> str:
    return str((node.get("metadata") or {}).get("uid", ""))


async def _with_agents(
    api: KubeApi, nodes: list[tuple[NodeEntry, str]], now: datetime
) -> list[tuple[NodeEntry, str]]:
    """Nodes with what their agents say. Where that cannot be read at all, each node says so."""
    try:
        shared: dict[Reading, Reading] = {}
        observed = dict(await list_all(api, NODE_HEALTHS, lambda raw: published(raw, shared)))
        leases: dict[str, Mapping[str, Any]] = {
            str((lease.get("metadata") or {}).get("name")): lease
            for lease in await list_all(api, LEASES, msgspec.json.decode, namespace=SYSTEM_NAMESPACE)
        }
    except ApiError as error:
        if error.code == 401:
            raise
        what = "Muster is not installed in this cluster" if error.code == 404 else f"{_reason(error)}: {error}"[:400]
        gap = UnknownReading(name=READINGS, reason=what)
        return [(msgspec.structs.replace(entry, unknown=(*entry.unknown, gap)), uid) for entry, uid in nodes]
    return [
        (with_agent(entry, uid, observed.get(entry.node), leases.get(agent_lease(entry.node)), now), uid)
        for entry, uid in nodes
    ]


def _service(taken: _Taken, nodes: list[NodeEntry]) -> None:
    found = sorted({service_of(value) for entry in nodes if (value := reported(entry, "provider_id"))})
    if found:
        taken.add("cluster.service", ",".join(found), ReadingClass.IDENTITY)
    elif nodes:
        taken.miss("cluster.service", "no node has a provider ID")


async def _images(api: KubeApi, taken: _Taken) -> tuple[Item, ...]:
    broken = 0

    def uses(raw: bytes) -> tuple[Any, ...]:
        nonlocal broken
        try:
            return uses_of(raw)
        except msgspec.MsgspecError:
            broken += 1
            return ()

    found = await list_all(api, PODS, uses)
    if broken:
        taken.miss("images", f"{broken} pods cannot be read")
    # The same few images run in thousands of pods.
    return images_of(sorted({use for pod in found for use in pod}, key=repr))


async def _releases(api: KubeApi, taken: _Taken) -> tuple[Item, ...]:
    """The newest revision of each release, decoded one at a time."""
    newest: dict[tuple[str, str], tuple[int, Item | None]] = {}

    def keep(raw: bytes) -> None:
        secret = msgspec.json.decode(raw)
        metadata = secret.get("metadata") or {}
        found = revision_of(str(metadata.get("name", "")))
        key = (str(metadata.get("namespace", "")), found[0] if found else str(metadata.get("name", "")))
        revision = found[1] if found else 0
        if secret.get("type") != SECRET_TYPE or newest.get(key, (-1, None))[0] >= revision:
            return
        try:
            newest[key] = (revision, release_item(decode_release(secret)))
        except BadInputError as error:
            newest[key] = (revision, None)
            taken.miss(f"release {key[0]}/{key[1]}", str(error))

    selector = f"{OWNER_SELECTOR},status!=superseded"
    fields = f"type={SECRET_TYPE}"
    await list_all(api, SECRETS, keep, page=LARGE_PAGE, label_selector=selector, field_selector=fields)
    return tuple(item for key in sorted(newest) if (item := newest[key][1]) is not None)


def _operator(taken: _Taken, releases: tuple[Item, ...]) -> None:
    """The version of the GPU Operator, which constraints of recipes ask for."""
    versions = {
        values["chart_version"]
        for item in releases
        if (values := {r.name: r.value for r in item.readings}).get("chart") == GPU_OPERATOR
        and "chart_version" in values
    }
    if versions:
        taken.add("gpu-operator.version", ",".join(sorted(versions)))


async def _crds(api: KubeApi, taken: _Taken) -> tuple[tuple[Item, ...], dict[tuple[str, str], str]]:
    """Items of the definitions, and (group, plural) -> stored version."""
    broken = 0

    def read(raw: bytes) -> Any:
        nonlocal broken
        try:
            return definition_of(raw)
        except msgspec.MsgspecError:
            broken += 1
            return None

    found = [c for c in await list_all(api, CRDS, read, page=LARGE_PAGE) if c is not None]
    if broken:
        taken.miss("crds", f"{broken} definitions cannot be read")
    items = sorted((crd_item(crd) for crd in found), key=lambda item: item.name)
    return tuple(items), {(crd.spec.group, crd.spec.names.plural): stored_version(crd) for crd in found}


async def _policies(api: KubeApi, taken: _Taken, served: dict[tuple[str, str], str] | None) -> tuple[Item, ...]:
    found: list[Item] = []
    for group, version, plural in POLICIES:
        resource = f"{plural}.{group}"
        if served is not None:
            version = served.get((group, plural), "")
            if not version:
                taken.add(f"policy.{resource}", "not installed")
                continue
        res = ResourceType(group, version, plural, plural, False)

        async def read(res: ResourceType = res, resource: str = resource) -> list[Item]:
            return await list_all(
                api, res, lambda raw: policy_item(resource, msgspec.json.decode(raw)), page=LARGE_PAGE
            )

        items = await taken.part(f"policy.{resource}", read, None)
        if items is not None:
            taken.add(f"policy.{resource}", "installed")
            found += items
    return tuple(sorted(found, key=lambda item: (item.namespace, item.name)))


async def _storage_classes(api: KubeApi) -> tuple[Item, ...]:
    found = await list_all(api, STORAGE_CLASSES, lambda raw: storage_class_item(msgspec.json.decode(raw)))
    return tuple(sorted(found, key=lambda item: item.name))
