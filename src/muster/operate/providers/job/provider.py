"""Carries out reset-gpu, restart-driver and reboot by Jobs in the cluster.

Every step follows from what the cluster shows: the annotation on the Node, the Job of the Repair's name, the pods of
the node. So a step is taken once however often it is asked for, and nothing has to be remembered.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import Any

from muster.clock import Clock
from muster.kube.api import (
    JOBS,
    NODES,
    PODS,
    REPAIRS,
    AlreadyExistsError,
    ConflictError,
    ForbiddenError,
    InvalidError,
    KubeApi,
    NotFoundError,
    Object,
    PatchType,
)
from muster.moments import after
from muster.operate.carry_out import NotLeadingError, always_leading
from muster.operate.providers.config import DriverRestart, JobSettings
from muster.operate.providers.job.clients import OFF_LABEL, before_of, give_back, take_off
from muster.operate.providers.job.objects import (
    REPAIR_ANNOTATION,
    REPAIR_LABEL,
    JobState,
    JobView,
    job,
    job_name,
    view,
)
from muster.operate.providers.provider import (
    NodeFactsForRepair,
    PermanentProviderError,
    Progress,
    TransientProviderError,
    chosen,
)
from muster.resources.repair import Repair, RepairPhase, Rung

MANAGER = "muster-repairer"
POLL_S = 5.0
PATCHES = 4


class JobProvider:
    """In-cluster Jobs. See `JobSettings` for what can be told."""

    def __init__(
        self,
        settings: JobSettings,
        api: KubeApi,
        clock: Clock,
        still_leading: Callable[[], Awaitable[bool]] = always_leading,
    ) -> None:
        self.name = settings.name
        self.rungs = chosen(settings.rungs, frozenset({Rung.RESET_GPU, Rung.RESTART_DRIVER, Rung.REBOOT}))
        self._settings = settings
        self._api = api
        self._clock = clock
        self._still_leading = still_leading

    async def close(self) -> None:
        return

    # The contract

    async def begin(self, repair: Repair, node: NodeFactsForRepair) -> Progress:
        job(repair, self._settings)  # what cannot be made fails before anything is touched
        if self._by_pod(repair):
            return await self._delete_driver_pods(repair)
        if repair.spec.rung is Rung.REBOOT:
            if node.booted_since(repair):
                return Progress(phase=RepairPhase.DONE, message="The node has booted.")
            return await self._create(repair)
        await self._take_clients_off(repair)
        return await self._when_clients_are_gone(repair, node)

    async def look(self, repair: Repair, node: NodeFactsForRepair) -> Progress:
        if self._by_pod(repair):
            return await self._driver_pod(repair)
        if repair.spec.rung is Rung.REBOOT and node.booted_since(repair):
            return Progress(phase=RepairPhase.DONE, message="The node has booted.")
        found = await self._view(repair)
        if found is None:
            if repair.status.external_id == _job_id(repair):
                return await self._end(repair, RepairPhase.FAILED, "Its Job was deleted before it ended.")
            return await self._when_clients_are_gone(repair, node)
        if repair.spec.rung is Rung.REBOOT:
            return self._rebooting(repair, found)
        if not found.over:
            words = found.message or "The Job is at work." if found.state is JobState.WORKING else _waits(found)
            return Progress(
                phase=RepairPhase.RUNNING, external_id=_job_id(repair), message=words, retry_after_s=POLL_S
            )
        phase = RepairPhase.DONE if found.state is JobState.SUCCEEDED else RepairPhase.FAILED
        return await self._end(repair, phase, f"{repair.spec.rung.value}: {found.message}")

    async def cancel(self, repair: Repair, node: NodeFactsForRepair) -> Progress:
        """A Job whose container does not run yet is deleted. One at work on a GPU or a driver is not interrupted."""
        if self._by_pod(repair):
            return await self._driver_pod(repair)
        found = await self._view(repair)
        if found is None or found.state is JobState.WAITING:
            if found is not None:
                await self._delete_job(job_name(repair.metadata.name))
            return await self._end(repair, RepairPhase.CANCELLED, "Stopped before anything was done to the machine.")
        return await self.look(repair, node)

    async def tidy(self, running: Sequence[Repair]) -> None:
        """Give back the labels of nodes whose Repair is over, and delete Jobs of such that have not begun."""
        alive = {repair.metadata.name for repair in running}
        page = await self._api.list_page(NODES, label_selector=OFF_LABEL)
        for raw in page.items:
            node = json.loads(raw)
            before = before_of(node["metadata"].get("annotations") or {})
            if before is None or (before.repair not in alive and not await self._runs(before.repair)):
                await self._patch_node(node["metadata"]["name"], None)
        page = await self._api.list_page(JOBS, self._settings.namespace, label_selector=REPAIR_LABEL)
        for raw in page.items:
            found = json.loads(raw)
            repair = (found["metadata"].get("annotations") or {}).get(REPAIR_ANNOTATION, "")
            name = found["metadata"]["name"]
            ours = bool(repair) and repair not in alive and name == job_name(repair)
            if (
                ours
                and not await self._runs(repair)
                and view(found, await self._job_pods(name)).state is JobState.WAITING
            ):
                await self._delete_job(name)

    async def _runs(self, repair: str) -> bool:
        """Asked of the API server: since tidying up began, a Repair may have been taken up."""
        if not repair:
            return False
        try:
            found = await self._api.get(REPAIRS, repair)
        except NotFoundError:
            return False
        return (found.get("status") or {}).get("phase") == RepairPhase.RUNNING

    # GPU clients

    async def _take_clients_off(self, repair: Repair) -> None:
        await self._patch_node(repair.spec.node_name, repair.metadata.name)

    async def _patch_node(self, name: str, repair: str | None) -> None:
        """Take the clients off for `repair`, or give them back (None), on the Node just as it was read."""
        for _ in range(PATCHES):
            try:
                node = await self._api.get(NODES, name)
            except NotFoundError:
                return
            meta = node["metadata"]
            labels, before = meta.get("labels") or {}, before_of(meta.get("annotations") or {})
            names = self._settings.deploy_labels
            if repair is None:
                if before is None and OFF_LABEL not in labels:
                    return
                change = give_back(labels, before, names) if before is not None else {"labels": {OFF_LABEL: None}}
            elif before is not None and before.repair == repair:
                return
            elif before is not None:
                change = give_back(labels, before, names)  # of an earlier one that is over; ours come next
            else:
                change = take_off(repair, labels, names)
            await self._fence()
            patch = {"metadata": {**change, "uid": meta["uid"], "resourceVersion": meta["resourceVersion"]}}
            try:
                await self._api.patch(NODES, name, patch, PatchType.MERGE, manager=MANAGER)
            except ConflictError:
                continue
            except NotFoundError:
                return
            if repair is None or before is None:
                return
        raise TransientProviderError(f"Node {name} is being changed by somebody else all the time")

    async def _when_clients_are_gone(self, repair: Repair, node: NodeFactsForRepair) -> Progress:
        left = await self._client_pods(node.name)
        if not left:
            return await self._create(repair)
        began = repair.status.started_at or self._clock.now()
        listed = ", ".join(left[:4])
        if self._clock.now() >= after(began, self._settings.clients_gone_s):
            text = f"GPU clients did not leave the node within {self._settings.clients_gone_s:g} s: {listed}"
            return await self._end(repair, RepairPhase.FAILED, text)
        return Progress(
            phase=RepairPhase.RUNNING,
            external_id=f"clients/{node.name}",
            message=f"Waits until GPU clients have left the node: {listed}.",
            retry_after_s=POLL_S,
        )

    async def _client_pods(self, node: str) -> list[str]:
        apps = ",".join(self._settings.client_apps)
        if not apps:
            return []
        found: list[str] = []
        for namespace in self._settings.client_namespaces:
            pods = await self._pods(namespace, f"app in ({apps})", node)
            found += [f"{namespace}/{pod['metadata']['name']}" for pod in pods if _alive(pod)]
        return sorted(found)

    # Jobs

    async def _create(self, repair: Repair) -> Progress:
        body = job(repair, self._settings)
        name = body["metadata"]["name"]
        await self._fence()
        try:
            await self._api.create(JOBS, body, self._settings.namespace, manager=MANAGER)
        except AlreadyExistsError:
            found = await self._api.get(JOBS, name, self._settings.namespace)
            if (found["metadata"].get("annotations") or {}).get(REPAIR_ANNOTATION) != repair.metadata.name:
                text = f"The Job {name} in {self._settings.namespace} is not of this repair; delete it."
                await self._end(repair, RepairPhase.FAILED, text)
                raise PermanentProviderError(text) from None
        except (ForbiddenError, InvalidError, NotFoundError) as error:
            await self._end(repair, RepairPhase.FAILED, "")
            text = f"The cluster refuses the Job of {self.name} in {self._settings.namespace}: {error}"
            raise PermanentProviderError(text) from error
        return Progress(
            phase=RepairPhase.RUNNING,
            external_id=_job_id(repair),
            message=f"Job {self._settings.namespace}/{name} was created.",
            retry_after_s=POLL_S,
        )

    async def _view(self, repair: Repair) -> JobView | None:
        name = job_name(repair.metadata.name)
        try:
            found = await self._api.get(JOBS, name, self._settings.namespace)
        except NotFoundError:
            return None
        return view(found, await self._job_pods(name))

    async def _job_pods(self, name: str) -> list[Object]:
        return await self._pods(self._settings.namespace, f"{REPAIR_LABEL}={name}", "")

    async def _pods(self, namespace: str, selector: str, node: str) -> list[Object]:
        fields = f"spec.nodeName={node}" if node else ""
        page = await self._api.list_page(PODS, namespace, label_selector=selector, field_selector=fields)
        return [json.loads(raw) for raw in page.items]

    async def _delete_job(self, name: str) -> None:
        """The Job and its pod: by itself, a Job leaves its pods behind."""
        namespace = self._settings.namespace
        doomed = [(JOBS, name, "")]
        doomed += [(PODS, pod["metadata"]["name"], pod["metadata"]["uid"]) for pod in await self._job_pods(name)]
        for res, one, uid in doomed:
            await self._fence()
            try:
                await self._api.delete(res, one, namespace, uid=uid)
            except (NotFoundError, ConflictError):
                continue

    def _rebooting(self, repair: Repair, found: JobView) -> Progress:
        """The Job dies with the machine, so its end says little; the boot ID is the sign."""
        if found.state is JobState.FAILED and found.said:
            return Progress(phase=RepairPhase.FAILED, message=f"reboot: {found.message}")
        never_ran = found.state is JobState.FAILED and "DeadlineExceeded" in found.message
        if never_ran:
            return Progress(phase=RepairPhase.FAILED, message=f"The Job did not end in time: {found.message}")
        words = _waits(found) if found.state is JobState.WAITING else "Waits until the node has booted."
        return Progress(phase=RepairPhase.RUNNING, external_id=_job_id(repair), message=words, retry_after_s=POLL_S)

    async def _end(self, repair: Repair, phase: RepairPhase, message: str) -> Progress:
        """Nothing ends before the clients were given back."""
        if repair.spec.rung is not Rung.REBOOT:
            await self._patch_node(repair.spec.node_name, None)
        return Progress(phase=phase, message=message)

    # The operator's driver pod

    def _by_pod(self, repair: Repair) -> bool:
        by_pod = self._settings.driver_restart is DriverRestart.OPERATOR_POD
        return repair.spec.rung is Rung.RESTART_DRIVER and by_pod

    async def _driver_pods(self, repair: Repair) -> tuple[list[Object], list[Object]]:
        """Driver pods of the node: those from before the repair, and those made since."""
        found: list[Object] = []
        for namespace in self._settings.client_namespaces:
            found += await self._pods(namespace, f"app={self._settings.driver_app}", repair.spec.node_name)
        asked = repair.metadata.creation_timestamp
        old = [pod for pod in found if asked is None or _created(pod) < asked]
        return old, [pod for pod in found if pod not in old]

    async def _delete_driver_pods(self, repair: Repair) -> Progress:
        old, new = await self._driver_pods(repair)
        if not old and not new and repair.status.phase is RepairPhase.PENDING:
            where = ", ".join(self._settings.client_namespaces)
            raise PermanentProviderError(
                f"{repair.spec.node_name} has no driver pod (app={self._settings.driver_app} in {where}); "
                "with drivers on the host set driverRestart: host-services."
            )
        for pod in old:
            meta = pod["metadata"]
            await self._fence()
            try:
                await self._api.delete(PODS, meta["name"], meta["namespace"], uid=meta["uid"])
            except (NotFoundError, ConflictError):
                continue
        return Progress(
            phase=RepairPhase.RUNNING,
            external_id=f"driver-pod/{repair.spec.node_name}",
            message="The driver pod was deleted; waits for the next one.",
            retry_after_s=POLL_S,
        )

    async def _driver_pod(self, repair: Repair) -> Progress:
        old, new = await self._driver_pods(repair)
        if not old and any(_ready(pod) for pod in new):
            return Progress(phase=RepairPhase.DONE, message="The driver pod was made anew and is ready.")
        words = "Waits until the old driver pod is gone." if old else "Waits until the new driver pod is ready."
        return Progress(phase=RepairPhase.RUNNING, message=words, retry_after_s=POLL_S)

    async def _fence(self) -> None:
        if not await self._still_leading():
            raise NotLeadingError("This controller has lost its lease and stops; another one goes on.")


def _job_id(repair: Repair) -> str:
    return f"job/{job_name(repair.metadata.name)}"


def _waits(found: JobView) -> str:
    return f"Waits for its pod: {found.message}." if found.message else "Waits for its pod."


def _alive(pod: dict[str, Any]) -> bool:
    return (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed")


def _ready(pod: dict[str, Any]) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or []
    return any(c.get("type") == "Ready" and c.get("status") == "True" for c in conditions)


def _created(pod: dict[str, Any]) -> datetime:
    return datetime.fromisoformat(str(pod["metadata"]["creationTimestamp"]).replace("Z", "+00:00"))
