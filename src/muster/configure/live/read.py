"""Reads the live cluster for a plan: releases, what they own, nodes. Writes nothing.

What cannot be read does not end the reading: it is noted with its reason, and every assertion that rests on it is
unknown. Only a server that does not answer at all, or refuses the login, is an error.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeVar

import msgspec

from muster.configure.live.helm_release import OWNER_SELECTOR, decode_release
from muster.configure.live.installed import (
    ArgoApplication,
    FluxRelease,
    FluxRepository,
    from_argo,
    from_flux,
    from_helm,
)
from muster.configure.live.kinds import (
    Conditioned,
    Crd,
    EndpointSlice,
    LiveNode,
    Pod,
    WebhookConfiguration,
    Workload,
    WorkloadKind,
)
from muster.configure.live.pods import plainly_well
from muster.configure.live.source import Lists, Source, TooManyError
from muster.configure.live.state import Custom, Installed, LiveState, Place
from muster.configure.plan import Plan
from muster.configure.recipe import Recipe
from muster.errors import BadInputError
from muster.kube.api import (
    API_SERVICES,
    ARGO_APPLICATIONS,
    CRDS,
    DAEMON_SETS,
    DEPLOYMENTS,
    ENDPOINT_SLICES,
    FLUX_HELM_RELEASES,
    FLUX_HELM_REPOSITORIES,
    JOBS,
    MUTATING_WEBHOOKS,
    NODE_HEALTHS,
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PODS,
    SECRETS,
    STATEFUL_SETS,
    VALIDATING_WEBHOOKS,
    ApiError,
    ForbiddenError,
    KubeApi,
    NotFoundError,
    ResourceType,
)
from muster.resources.node_health import NodeHealth

T = TypeVar("T")
AT_ONCE = 8
"""Requests that run at the same time."""
MAX_NAMESPACES = 200
HELM_SELECTOR = f"{OWNER_SELECTOR},status!=superseded"
"""The newest revision of a release is never superseded, so old revisions stay on the server."""
WORKLOADS = {
    WorkloadKind.DEPLOYMENT: DEPLOYMENTS,
    WorkloadKind.STATEFUL_SET: STATEFUL_SETS,
    WorkloadKind.DAEMON_SET: DAEMON_SETS,
    WorkloadKind.JOB: JOBS,
}
_WITHOUT_HEALTH = frozenset(
    {"alertmanagerconfigs", "podmonitors", "probes", "prometheusrules", "scrapeconfigs", "servicemonitors"}
)
"""Plurals of custom resources that are many and say nothing about themselves."""


@dataclass
class Memory:
    """Helm records that were decoded already, by uid and version: a record never changes but for its status."""

    releases: dict[tuple[str, str], tuple[int, Installed]] = field(default_factory=dict)


class _SecretMeta(msgspec.Struct):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = msgspec.field(name="resourceVersion", default="")


class _SecretHead(msgspec.Struct):
    metadata: _SecretMeta


_secret_head = msgspec.json.Decoder(_SecretHead)


@dataclass(frozen=True)
class _Record:
    """A Helm record: which revision of which release, and the release itself or why it cannot be read."""

    namespace: str
    name: str
    revision: int
    key: tuple[str, str]
    installed: Installed | None
    problem: str = ""


async def read(
    api: KubeApi,
    recipe: Recipe,
    plan: Plan,
    *,
    now: datetime,
    kubernetes_version: str = "",
    source: Source | None = None,
    memory: Memory | None = None,
) -> LiveState:
    """Read what `assess` and `drift` need. `source` may keep watches between calls, `memory` decoded records.

    Raises UnreachableError when the server does not answer, ForbiddenError when it refuses the login (401).
    """
    reader = _Reader(source or Lists(api), memory or Memory())
    nodes, healths, crds, helm = await asyncio.gather(
        reader.all(NODES, _decode(LiveNode)),
        reader.all(NODE_HEALTHS, _decode(NodeHealth), absent_is_empty=True),
        reader.all(CRDS, _decode(Crd)),
        reader.helm(plan),
    )
    argo, flux = await asyncio.gather(reader.argo(), reader.flux())
    installed = tuple(sorted((*helm, *argo, *flux), key=lambda i: (i.namespace, i.name, i.via.value)))
    mine = _of_plan(plan, installed)
    namespaces, left_out = _namespaces(plan, mine)
    for namespace in left_out:
        for res in (*WORKLOADS.values(), PODS):
            reader.unread[(resource_name(res), namespace)] = (
                f"the releases own objects in more than {MAX_NAMESPACES} namespaces"
            )
    listed = {(o.group, o.kind) for i in mine for o in i.owned or ()}
    workloads = {kind: await reader.each(WORKLOADS[kind], namespaces, _decode(Workload)) for kind in WorkloadKind}
    webhooks = {
        kind: await reader.all(res, _decode(WebhookConfiguration))
        for kind, res in (
            ("ValidatingWebhookConfiguration", VALIDATING_WEBHOOKS),
            ("MutatingWebhookConfiguration", MUTATING_WEBHOOKS),
        )
        if ("admissionregistration.k8s.io", kind) in listed
    }
    named = {(o.kind, o.name) for i in mine for o in i.owned or ()}
    services = sorted(
        {
            w.client_config.service.namespace
            for kind, configurations in webhooks.items()
            for c in configurations
            if (kind, c.metadata.name) in named
            for w in c.webhooks or ()
            if w.client_config.service is not None
        }
    )[:MAX_NAMESPACES]
    claims = sorted({o.namespace or i.namespace for i in mine for o in i.owned or () if _is_claim(o.group, o.kind)})
    needs_services = ("apiregistration.k8s.io", "APIService") in listed
    customs = await reader.customs(recipe, mine, crds)
    return LiveState(
        now=now,
        kubernetes_version=kubernetes_version,
        installed=installed,
        workloads=workloads,
        pods=await reader.each(PODS, namespaces, _troubled),
        crds=crds,
        claims=await reader.each(PERSISTENT_VOLUME_CLAIMS, claims, _decode(Conditioned)),
        api_services=await reader.all(API_SERVICES, _decode(Conditioned)) if needs_services else (),
        webhooks=webhooks,
        endpoint_slices=await reader.each(ENDPOINT_SLICES, services, _decode(EndpointSlice)),
        customs=customs,
        nodes=nodes,
        node_healths=healths,
        looked_at=frozenset(reader.looked_at),
        unread=dict(sorted(reader.unread.items())),
    )


def _decode(model: type[T]) -> Callable[[bytes], T]:
    return msgspec.json.Decoder(model, strict=False).decode


_decode_pod = _decode(Pod)


def _troubled(raw: bytes) -> Pod | None:
    pod = _decode_pod(raw)
    return None if plainly_well(pod) else pod


def _of_plan(plan: Plan, installed: Iterable[Installed]) -> list[Installed]:
    planned = {(release.namespace, release.name) for release in plan.releases}
    return [i for i in installed if (i.namespace, i.name) in planned]


def _namespaces(plan: Plan, mine: Iterable[Installed]) -> tuple[list[str], list[str]]:
    """Those of the releases and of the objects that they own; and those that are too many."""
    found = {release.namespace: None for release in plan.releases}
    found |= dict.fromkeys(sorted({o.namespace for i in mine for o in i.owned or () if o.namespace}))
    names = list(found)
    return sorted(names[:MAX_NAMESPACES]), sorted(names[MAX_NAMESPACES:])


def _is_claim(group: str, kind: str) -> bool:
    return (group, kind) == ("", "PersistentVolumeClaim")


def resource_name(res: ResourceType) -> str:
    return f"{res.plural}.{res.group}" if res.group else res.plural


class _Reader:
    """One reading: notes what could not be read."""

    def __init__(self, source: Source, memory: Memory) -> None:
        self._source = source
        self._memory = memory
        self._turn = asyncio.Semaphore(AT_ONCE)
        self.unread: dict[Place, str] = {}
        self.looked_at: set[Place] = set()

    async def all(
        self,
        res: ResourceType,
        project: Callable[[bytes], T | None],
        namespace: str = "",
        *,
        label_selector: str = "",
        absent_is_empty: bool = False,
    ) -> tuple[T, ...]:
        """Every object of a kind, or nothing and a note. `absent_is_empty`: a kind that is not served is no gap."""
        place = (resource_name(res), namespace)
        try:
            async with self._turn:
                return await self._source.objects(res, namespace, project, label_selector)
        except NotFoundError:
            if not absent_is_empty:
                self.unread[place] = "the API server does not serve this kind"
        except ForbiddenError as error:
            if error.code == 401:
                raise
            self.unread[place] = "reading it is not allowed (RBAC)"
        except (ApiError, TooManyError) as error:
            self.unread[place] = " ".join(str(error).split())[:200]
        except msgspec.MsgspecError as error:
            self.unread[place] = f"an object has a form that is not understood ({error})"[:200]
        return ()

    async def each(
        self, res: ResourceType, namespaces: Iterable[str], project: Callable[[bytes], T | None]
    ) -> tuple[T, ...]:
        """The objects of a kind in several namespaces, in the order of these."""
        pages = await asyncio.gather(*(self.all(res, project, namespace) for namespace in namespaces))
        return tuple(item for page in pages for item in page)

    async def helm(self, plan: Plan) -> list[Installed]:
        """The newest revision of every release; of the plan's namespaces alone where no more may be read."""
        kept: dict[tuple[str, str], tuple[int, Installed]] = {}
        project = self._record_projector()
        records = await self.all(SECRETS, project, label_selector=HELM_SELECTOR)
        refused = self.unread.pop((SECRETS.plural, ""), None)
        if refused is not None:
            namespaces = sorted({release.namespace for release in plan.releases})
            pages = await asyncio.gather(
                *(self.all(SECRETS, project, namespace, label_selector=HELM_SELECTOR) for namespace in namespaces)
            )
            records = tuple(record for page in pages for record in page)
        newest: dict[tuple[str, str], _Record] = {}
        for record in records:
            place = (record.namespace, record.name)
            if place not in newest or record.revision > newest[place].revision:
                newest[place] = record
        found = []
        for record in newest.values():
            if record.installed is None:
                self.unread[(SECRETS.plural, record.namespace)] = record.problem[:200]
                continue
            kept[record.key] = (record.revision, record.installed)
            found.append(record.installed)
        self._memory.releases = kept
        return found

    def _record_projector(self) -> Callable[[bytes], _Record]:
        known = self._memory.releases

        def project(raw: bytes) -> _Record:
            metadata = _secret_head.decode(raw).metadata
            key = (metadata.uid, metadata.resource_version)
            if key in known:
                revision, installed = known[key]
                return _Record(installed.namespace, installed.name, revision, key, installed)
            try:
                release = decode_release(msgspec.json.decode(raw))
            except BadInputError as error:
                return _Record(metadata.namespace, metadata.name, 0, key, None, str(error))
            return _Record(release.namespace, release.name, release.revision, key, from_helm(release))

        return project

    async def argo(self) -> list[Installed]:
        applications = await self.all(ARGO_APPLICATIONS, _decode(ArgoApplication), absent_is_empty=True)
        return [i for application in applications if (i := from_argo(application)) is not None]

    async def flux(self) -> list[Installed]:
        releases = await self.all(FLUX_HELM_RELEASES, _decode(FluxRelease), absent_is_empty=True)
        if not releases:
            return []
        repositories = await self.all(FLUX_HELM_REPOSITORIES, _decode(FluxRepository), absent_is_empty=True)
        addresses = {(r.metadata.namespace, r.metadata.name): r.spec.url for r in repositories}
        return [from_flux(release, addresses) for release in releases]

    async def customs(self, recipe: Recipe, mine: list[Installed], crds: tuple[Crd, ...]) -> tuple[Custom, ...]:
        """Custom resources that a rule speaks of, and those that a release owns."""
        wanted: dict[Place, ResourceType] = {}
        for component in recipe.components:
            for rule in component.health:
                group, _, version = rule.api_version.rpartition("/")
                res = ResourceType(group, version, rule.plural, rule.kind, not rule.cluster_wide)
                place = "" if rule.cluster_wide else rule.namespace or component.namespace
                wanted.setdefault((resource_name(res), place), res)
        by_kind = {(crd.spec.group, crd.spec.names.kind): crd for crd in crds}
        for installed in mine:
            for owned in installed.owned or ():
                crd = by_kind.get((owned.group, owned.kind))
                if crd is None or crd.spec.names.plural in _WITHOUT_HEALTH:
                    continue
                version = next((v.name for v in crd.spec.versions or () if v.served), "")
                namespaced = crd.spec.scope == "Namespaced"
                res = ResourceType(owned.group, version, crd.spec.names.plural, owned.kind, namespaced)
                place = owned.namespace or installed.namespace if namespaced else ""
                wanted.setdefault((resource_name(res), place), res)
        pages = await asyncio.gather(
            *(self.all(res, _custom(res), place) for (_, place), res in sorted(wanted.items(), key=lambda w: w[0]))
        )
        self.looked_at |= set(wanted)
        return tuple(custom for page in pages for custom in page)


def _custom(res: ResourceType) -> Callable[[bytes], Custom]:
    def project(raw: bytes) -> Custom:
        decoded: dict[str, Any] = msgspec.json.decode(raw)
        decoded.get("metadata", {}).pop("managedFields", None)
        return Custom(res.group, res.kind, res.plural, decoded)

    return project
