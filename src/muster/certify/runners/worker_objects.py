"""Creates what keeps the workers of a certification, watches it, and sees it gone.

Crash-only: names follow from the certification, creating what is there is a no-op, and what somebody else made under
one of the names is neither used nor touched. Secrets are read only by name.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from muster.certify.durable import first_news, in_parallel, persist
from muster.certify.runners import Owner, Tell, Work
from muster.certify.runners.gang import POD_GROUPS, pod_group
from muster.certify.runners.worker_phase import WorkerJob, WorkerPod, project_job, project_pod
from muster.certify.runners.worker_pods import (
    STOP_S,
    TOKEN_BYTES,
    Images,
    by_gpus,
    common_name,
    job,
    job_name,
    metadata,
    secret,
    service,
    token_digest,
    token_of,
)
from muster.clock import Clock
from muster.errors import BadInputError
from muster.kube.api import (
    EVENTS,
    JOBS,
    PODS,
    SECRETS,
    SERVICES,
    AlreadyExistsError,
    ApiError,
    ConflictError,
    KubeApi,
    NotFoundError,
    Object,
    ResourceType,
)
from muster.kube.cache import WatchCache
from muster.resources.base import CERTIFICATION_LABEL, SYSTEM_NAMESPACE, WORKERS_LABEL

log = logging.getLogger(__name__)

MANAGER = "muster-certifier"
BLOCKED_AFTER_S = 45.0
FORCE_AFTER_S = 120.0
"""A pod on a node that is gone or not Ready is deleted by force after this time: nobody can confirm its end."""
EVENTS_LIMIT = 50


_Doomed = tuple[list[WorkerJob], list[WorkerPod]]


class ForeignObjectError(Exception):
    """Something of the name is there already and is not of this certification."""


@dataclass(frozen=True)
class Workers:
    """What is in place for a certification."""

    owner: Owner
    common: str
    token: str
    job_of: Mapping[str, str]
    """Node -> name of the Job with its worker."""


class WorkerObjects:
    """Jobs, Services, Secrets and pods of all workers of the cluster. `run` keeps the watches.

    `alive` tells whether a node exists and is Ready; `random_bytes` makes tokens.
    """

    def __init__(
        self,
        api: KubeApi,
        clock: Clock,
        images: Images,
        *,
        random_bytes: Callable[[int], bytes],
        alive: Callable[[str], bool],
        on_change: Callable[[str], None],
    ) -> None:
        self._api = api
        self._clock = clock
        self._images = images
        self._random_bytes = random_bytes
        self._alive = alive
        self._on_change = on_change
        self._news: dict[str, asyncio.Event] = {}
        self._certification_of: dict[str, str] = {}
        selector = f"{CERTIFICATION_LABEL},{WORKERS_LABEL}"
        self._jobs: WatchCache[WorkerJob] = WatchCache(
            api,
            JOBS,
            project_job,
            clock=clock,
            namespace=SYSTEM_NAMESPACE,
            label_selector=selector,
            on_change=partial(self._changed, "job"),
        )
        self._pods: WatchCache[WorkerPod] = WatchCache(
            api,
            PODS,
            project_pod,
            clock=clock,
            namespace=SYSTEM_NAMESPACE,
            label_selector=selector,
            on_change=partial(self._changed, "pod"),
        )

    async def run(self) -> None:
        """Watch for ever."""
        watches = [asyncio.ensure_future(self._jobs.run()), asyncio.ensure_future(self._pods.run())]
        try:
            await asyncio.gather(*watches)
        finally:
            for watch in watches:
                watch.cancel()
            await asyncio.gather(*watches, return_exceptions=True)

    async def wait_synced(self) -> None:
        """Return when all Jobs and pods of workers are known."""
        await self._jobs.wait_synced()
        await self._pods.wait_synced()

    def _changed(self, kind: str, key: str) -> None:
        found = self._jobs.get(key) if kind == "job" else self._pods.get(key)
        concerned = found.certification if found is not None else self._certification_of.pop(f"{kind}/{key}", "")
        if found is not None:
            self._certification_of[f"{kind}/{key}"] = concerned
        if concerned in self._news:
            self._news[concerned].set()
        if not self.jobs(concerned) and not self.pods(concerned):
            self._on_change(concerned)

    def news(self, certification: str) -> asyncio.Event:
        """Set whenever something of the certification changed."""
        return self._news.setdefault(certification, asyncio.Event())

    def forget(self, certification: str) -> None:
        """Nobody waits for news of the certification any more."""
        self._news.pop(certification, None)

    def certifications(self) -> tuple[str, ...]:
        """Names of the certifications that Jobs or pods of workers belong to, sorted."""
        names = sorted(set(self._certification_of.values()))
        return tuple(name for name in names if self.jobs(name) or self.pods(name))

    def jobs(self, certification: str) -> list[WorkerJob]:
        """Jobs of certifications of this name, by name. One that only bears the labels is none."""
        found = (j for j in self._jobs.items().values() if j.certification == certification and _is_ours(j))
        return sorted(found, key=_name)

    def pods(self, certification: str) -> list[WorkerPod]:
        """Pods that Jobs of certifications of this name made, by name."""
        found = (
            p
            for p in self._pods.items().values()
            if p.certification == certification and p.job_uid and p.common and p.name.startswith(f"{p.common}-")
        )
        return sorted(found, key=_name)

    def pod(self, name: str) -> WorkerPod | None:
        """The pod of that name."""
        return self._pods.get(f"{SYSTEM_NAMESPACE}/{name}")

    # Creating

    async def ensure(self, work: Work, tell: Tell) -> Workers:
        """Create what is missing; workers that know another token go first.

        Raises ForeignObjectError, BadInputError, and ApiErrors that do not pass.
        """
        owner, common = work.owner, common_name(work.owner)
        groups = by_gpus(work.gpus)
        job_of = {node: job_name(common, gpus) for gpus, nodes in groups.items() for node in nodes}
        lasts_s = (work.until - self._clock.now()).total_seconds() + (work.wait_s or 0.0)
        token = await self._secret(owner)
        wanted = {
            job_name(common, gpus): job(owner, work.pods, nodes, gpus, self._images, lasts_s, token)
            for gpus, nodes in groups.items()
        }
        known = ("", token_digest(token))
        await self._see_jobs_gone(owner, lambda one: one.token_digest not in known, tell)
        await self._create(SERVICES, owner, service(owner))
        group = pod_group(work.pods.gang, metadata(owner, common), len(job_of))
        if group is not None:
            try:
                await self._create(POD_GROUPS, owner, group)
            except NotFoundError as error:
                raise BadInputError(
                    "spec.pods.gang asks for Volcano, whose PodGroups this cluster does not know; install Volcano."
                ) from error
        there = {j.name for j in self.jobs(owner.name)}
        for name, body in wanted.items():
            if name not in there:
                await self._create(JOBS, owner, body)
        return Workers(owner, common, token, job_of)

    async def _secret(self, owner: Owner) -> str:
        name = common_name(owner)
        found = await self._find(SECRETS, name)
        if found is None:
            await self._create(SECRETS, owner, secret(owner, self._random_bytes(TOKEN_BYTES)))
            found = await self._find(SECRETS, name)
        token = token_of(found) if found is not None and _is_of(found, owner) else None
        if token is None:
            raise ForeignObjectError(f"the Secret {name} is not one of this certification")
        return token

    async def _create(self, res: ResourceType, owner: Owner, body: Object) -> None:
        name = body["metadata"]["name"]

        async def act() -> None:
            await self._api.create(res, body, SYSTEM_NAMESPACE, manager=MANAGER)

        try:
            await persist(self._clock, f"creation of {res.kind} {name}", act)
        except AlreadyExistsError:
            found = await self._find(res, name)
            if found is not None and not _is_of(found, owner):
                raise ForeignObjectError(f"the {res.kind} {name} is not one of this certification") from None

    async def _find(self, res: ResourceType, name: str) -> Object | None:
        try:
            return await persist(
                self._clock, f"reading {res.kind} {name}", partial(self._api.get, res, name, SYSTEM_NAMESPACE)
            )
        except NotFoundError:
            return None

    async def why_no_pods(self, job: str) -> str:
        """What the cluster last said about pods of the Job that it could not make; empty when it said nothing."""
        try:
            page = await self._api.list_page(
                EVENTS, SYSTEM_NAMESPACE, field_selector=f"regarding.name={job}", limit=EVENTS_LIMIT
            )
        except ApiError as error:
            log.info("events of Job %s cannot be read: %s", job, error)
            return ""
        told = []
        for raw in page.items:
            event = json.loads(raw)
            regarding = event.get("regarding") or {}
            if event.get("reason") == "FailedCreate" and regarding.get("name") == job:
                told.append((str(event.get("deprecatedLastTimestamp") or event.get("eventTime") or ""), event))
        if not told:
            return ""
        _, last = max(told, key=lambda pair: pair[0])
        return " ".join(f"FailedCreate: {last.get('note', '')}".split())[:300].rstrip(".")

    # Removing

    async def remove(self, owner: Owner, tell: Tell, *, others_only: bool = False) -> None:
        """Remove what certifications of this name have in the cluster, and see Jobs and pods gone.

        With `others_only` that of `owner` itself stays. The token goes first: while a Job is there, whoever leads
        next can find what else there is.
        """

        def doomed() -> _Doomed:
            spared = common_name(owner) if others_only else ""
            return (
                [j for j in self.jobs(owner.name) if j.common != spared],
                [p for p in self.pods(owner.name) if p.common != spared],
            )

        owners = {j.owner_uid: j.volcano for j in doomed()[0]}
        if owner.uid and not others_only:
            owners.setdefault(owner.uid, True)  # whoever made it may have died before the Job was there
        for uid, volcano in sorted(owners.items()):
            for res in (SECRETS, SERVICES, *((POD_GROUPS,) if volcano else ())):
                await self._remove_one(res, Owner(owner.name, uid))
        await self._see_gone(owner.name, doomed, tell)

    async def see_ended(self, owner: Owner, tell: Tell) -> None:
        """Wait until Jobs of `owner` that somebody deleted are gone, so that they can be made anew."""

        await self._see_jobs_gone(owner, lambda one: one.deleting, tell)

    async def _see_jobs_gone(self, owner: Owner, which: Callable[[WorkerJob], bool], tell: Tell) -> None:
        def going() -> _Doomed:
            jobs = [j for j in self.jobs(owner.name) if j.owner_uid == owner.uid and which(j)]
            uids = {j.uid for j in jobs}
            return jobs, [p for p in self.pods(owner.name) if p.job_uid in uids]

        await self._see_gone(owner.name, going, tell)

    async def _remove_one(self, res: ResourceType, owner: Owner) -> None:
        name = common_name(owner)
        found = await self._find(res, name)
        if found is not None and _is_of(found, owner):
            await self._delete(res, name, found["metadata"]["uid"], None)

    async def _see_gone(self, certification: str, doomed: Callable[[], _Doomed], tell: Tell) -> None:
        """Delete Jobs (pods go before them) and pods without a Job, until none is left."""
        news = self.news(certification)
        started = self._clock.now()
        asked: set[str] = set()
        said = ""
        while True:
            news.clear()
            jobs, pods = doomed()
            if not jobs and not pods:
                break
            waited_s = (self._clock.now() - started).total_seconds()
            todo = {key: act for key, act in self._deletions(jobs, pods, waited_s) if key not in asked}
            asked.update(todo)
            await in_parallel(todo.values())
            if waited_s >= BLOCKED_AFTER_S:
                what = f"pod {pods[0].name} on {pods[0].node or 'no node'}" if pods else f"Job {jobs[0].name}"
                text = f"Waits until the {what} is gone."
                if text != said:
                    said = text
                    await tell(text)
            # A node may fall silent without a word about the pod: look again after a while.
            await first_news(self._clock, news, BLOCKED_AFTER_S)
        if said:
            await tell("")

    def _deletions(
        self, jobs: Sequence[WorkerJob], pods: Sequence[WorkerPod], waited_s: float
    ) -> Iterator[tuple[str, Callable[[], Awaitable[None]]]]:
        """(key, request) of what is to be deleted now; each key is asked for once."""
        for one in jobs:
            yield one.uid, partial(self._delete, JOBS, one.name, one.uid, None)
        owned = {one.uid for one in jobs}
        for pod in pods:
            force = waited_s >= FORCE_AFTER_S and bool(pod.node) and not self._alive(pod.node)
            if force:
                yield f"{pod.uid}/force", partial(self._delete, PODS, pod.name, pod.uid, 0)
            elif pod.job_uid not in owned:
                yield pod.uid, partial(self._delete, PODS, pod.name, pod.uid, STOP_S)

    async def _delete(self, res: ResourceType, name: str, uid: str, grace_s: int | None) -> None:
        act = partial(self._api.delete, res, name, SYSTEM_NAMESPACE, grace_period_s=grace_s, uid=uid)
        try:
            await persist(self._clock, f"deletion of {res.kind} {name}", act)
        except (NotFoundError, ConflictError):
            return  # gone, or another object has the name


def _is_of(found: Object, owner: Owner) -> bool:
    references = found.get("metadata", {}).get("ownerReferences") or []
    return any(r.get("kind") == "Certification" and r.get("uid") == owner.uid for r in references)


def _is_ours(found: WorkerJob) -> bool:
    common = common_name(Owner(found.certification, found.owner_uid))
    return bool(found.owner_uid) and found.common == common and found.name.startswith(common)


def _name(found: WorkerJob | WorkerPod) -> str:
    return found.name
