"""Provider `job` end to end on the simulated API server, with a stand-in for the node's kubelet."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any, ClassVar

import pytest

from muster.kube.api import JOBS, NODES, PODS, REPAIRS, NotFoundError, Object, PatchType
from muster.operate.providers.config import JobSettings
from muster.operate.providers.job.clients import BEFORE_ANNOTATION, OFF_LABEL
from muster.operate.providers.job.objects import job_name
from muster.operate.providers.job.provider import JobProvider
from muster.resources.base import SYSTEM_NAMESPACE
from muster.resources.repair import RepairPhase, Rung
from muster.sim.virtual import VirtualClock, run_virtual
from tests.providers.bed import GPUS, NODE, Bed, bed, running
from tests.providers.contract import Bench, ProviderContract
from tests.providers.flaky import FlakyApi

LABEL = "nvidia.com/gpu.deploy.device-plugin"
DCGM = "nvidia.com/gpu.deploy.dcgm"


class Kubelet:
    """Job controller and kubelet in one: makes the pod of each Job, runs it, ends both; obeys the deploy labels."""

    work_s = 30.0

    def __init__(self, on: Bed, works: list[str], ok: Any) -> None:
        self.bed = on
        self.works = works
        self.ok = ok
        self.message = ("ok reset: GPU-1", "failed the GPU is in use by another client: python3 (pid 77)")
        self.pods_run = True
        self._started: dict[str, datetime] = {}

    async def list(self, res: Any, namespace: str = "") -> list[Object]:
        return [json.loads(raw) for raw in (await self.bed.api.list_page(res, namespace)).items]

    async def run(self) -> None:
        while True:
            await self.serve_jobs()
            await self.obey_labels()
            await self.bed.clock.sleep(2.0)

    async def serve_jobs(self) -> None:
        for job in await self.list(JOBS, SYSTEM_NAMESPACE):
            name = job["metadata"]["name"]
            if job["metadata"].get("deletionTimestamp") or (job.get("status") or {}).get("conditions"):
                continue
            if name not in self._started:
                self._started[name] = self.bed.clock.now()
                await self._make_pod(job)
                if self.pods_run:
                    self.works.append(name)
            elif self.pods_run and (self.bed.clock.now() - self._started[name]).total_seconds() >= self.work_s:
                await self.finish(name)

    async def _make_pod(self, job: Object) -> None:
        name = job["metadata"]["name"]
        template = job["spec"]["template"]
        spec = {k: v for k, v in template["spec"].items() if k != "priorityClassName"}
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"{name}-0", "labels": template["metadata"]["labels"]},
            "spec": spec,
        }
        await self.bed.api.create(PODS, pod, SYSTEM_NAMESPACE)
        if self.pods_run:
            await self._pod_status(name, {"phase": "Running"})

    async def _pod_status(self, name: str, status: Object) -> None:
        await self.bed.api.patch(
            PODS, f"{name}-0", {"status": status}, PatchType.STRATEGIC, SYSTEM_NAMESPACE, subresource="status"
        )

    async def finish(self, name: str) -> None:
        ok = self.ok()
        if ok is None:
            return
        ended = {"exitCode": 0 if ok else 1, "message": self.message[0 if ok else 1]}
        status = {"name": "repair", "state": {"terminated": ended}, "image": "x", "imageID": "", "ready": False}
        phase = "Succeeded" if ok else "Failed"
        await self._pod_status(name, {"phase": phase, "containerStatuses": [{**status, "restartCount": 0}]})
        await self.end_job(name, ok)

    async def end_job(self, name: str, ok: bool, reason: str = "BackoffLimitExceeded") -> None:
        at = self.bed.clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")
        kinds = ("SuccessCriteriaMet", "Complete") if ok else ("FailureTarget", "Failed")
        why = {} if ok else {"reason": reason, "message": reason}
        conditions = [{"type": kind, "status": "True", "lastTransitionTime": at, **why} for kind in kinds]
        status: Object = {"conditions": conditions, "startTime": at}
        status |= {"completionTime": at, "succeeded": 1} if ok else {"failed": 1}
        await self.bed.api.patch(
            JOBS, name, {"status": status}, PatchType.MERGE, SYSTEM_NAMESPACE, subresource="status"
        )

    async def obey_labels(self) -> None:
        """The operator's DaemonSet: its pod is on the node while the label says true."""
        try:
            labels = (await self.bed.node())["metadata"]["labels"]
        except NotFoundError:
            return
        try:
            await self.bed.api.get(PODS, "plugin", "gpu-operator")
            there = True
        except NotFoundError:
            there = False
        if labels.get(LABEL) == "true" and not there:
            pod = {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": "plugin", "labels": {"app": "nvidia-device-plugin-daemonset"}},
                "spec": {"nodeName": NODE, "containers": [{"name": "c", "image": "x"}]},
            }
            await self.bed.api.create(PODS, pod, "gpu-operator")
        elif labels.get(LABEL) != "true" and there:
            await self.bed.api.delete(PODS, "plugin", "gpu-operator", grace_period_s=0)


class JobBench(Bench):
    rung: ClassVar[Rung] = Rung.RESET_GPU
    node: ClassVar[dict[str, Any]] = {"labels": {LABEL: "true", DCGM: "paused"}}

    async def start(self) -> None:
        self.kubelet = self.make_kubelet()
        self.api = FlakyApi(self.bed.api)
        await self.kubelet.obey_labels()

    def make_kubelet(self) -> Kubelet:
        return Kubelet(self.bed, self.works, lambda: self.ok)

    def provider(self) -> JobProvider:
        return JobProvider(JobSettings(name="p"), self.api, self.bed.clock)

    def break_next(self, times: int, how: str) -> None:
        self.api.left, self.api.how = times, how

    async def run(self) -> None:
        await self.kubelet.run()


class TestResetGpu(ProviderContract):
    bench = JobBench


class _Machine(Kubelet):
    """A machine that boots when its Job runs; the Job and its pod die with it and say nothing."""

    async def finish(self, name: str) -> None:
        ok = self.ok()
        if ok is None:
            return
        if ok:
            await self.bed.boot(f"boot-{len(self.works) + 1}")
            await self._pod_status(name, {"phase": "Failed"})
            await self.end_job(name, False)
        else:
            await super().finish(name)


class RebootBench(JobBench):
    rung = Rung.REBOOT
    node: ClassVar[dict[str, Any]] = {}

    def make_kubelet(self) -> Kubelet:
        return _Machine(self.bed, self.works, lambda: self.ok)


class TestReboot(ProviderContract):
    bench = RebootBench


def play(act: Any, node: dict[str, Any] | None = None) -> None:
    async def main(clock: VirtualClock) -> None:
        on = await bed(clock, JobBench.node if node is None else node)
        behind = JobBench(on)
        await behind.start()
        async with running(behind.run()):
            await act(behind)

    run_virtual(main)


async def deploy_labels(b: Bench) -> dict[str, str]:
    labels = (await b.bed.node())["metadata"]["labels"]
    return {key: labels.get(key, "") for key in (LABEL, DCGM, OFF_LABEL)}


BEFORE = {LABEL: "true", DCGM: "paused", OFF_LABEL: ""}


@pytest.mark.parametrize("ok", [True, False])
def test_labels_are_off_during_the_reset_and_back_after_it(ok: bool) -> None:
    async def act(b: JobBench) -> None:
        b.ok = ok
        await b.bed.ask("r1", "p", Rung.RESET_GPU, gpu_uuids=GPUS)

        async def at_work() -> bool:
            return bool(b.works)

        async with running(b.bed.controller([b.provider()]).run()):
            await b.bed.until(at_work)
            assert await deploy_labels(b) == {LABEL: "false", DCGM: "false", OFF_LABEL: "true"}
            with pytest.raises(NotFoundError):
                await b.bed.api.get(PODS, "plugin", "gpu-operator")
            done = await b.bed.ended("r1")
        assert done.status.phase is (RepairPhase.DONE if ok else RepairPhase.FAILED)
        assert ok or "python3 (pid 77)" in done.status.message
        assert await deploy_labels(b) == BEFORE
        assert BEFORE_ANNOTATION not in (await b.bed.node())["metadata"].get("annotations", {})
        job = await b.bed.api.get(JOBS, job_name("r1"), SYSTEM_NAMESPACE)
        env = {e["name"]: e.get("value", "") for e in job["spec"]["template"]["spec"]["containers"][0]["env"]}
        assert env["GPU_UUIDS"].split() == list(GPUS)

    play(act)


def test_labels_come_back_when_the_repair_is_deleted_halfway() -> None:
    async def act(b: JobBench) -> None:
        b.ok = None
        await b.bed.ask("r1", "p", Rung.RESET_GPU)

        async def at_work() -> bool:
            return bool(b.works)

        async def back() -> bool:
            return await deploy_labels(b) == BEFORE

        async with running(b.bed.controller([b.provider()]).run()):
            await b.bed.until(at_work)
            await b.bed.api.delete(REPAIRS, "r1")
            await b.bed.until(back, 60)

    play(act)


def test_labels_come_back_when_the_controller_died_and_the_repair_went_meanwhile() -> None:
    async def act(b: JobBench) -> None:
        b.ok = None
        await b.bed.ask("r1", "p", Rung.RESET_GPU)

        async def at_work() -> bool:
            return bool(b.works)

        async def back() -> bool:
            return await deploy_labels(b) == BEFORE

        async with running(b.bed.controller([b.provider()]).run()):
            await b.bed.until(at_work)
        await b.bed.api.delete(REPAIRS, "r1")
        async with running(b.bed.controller([b.provider()]).run()):
            await b.bed.until(back, 60)

    play(act)


def test_tidying_up_with_an_old_list_leaves_a_repair_that_runs_alone() -> None:
    async def act(b: JobBench) -> None:
        b.ok = None
        await b.bed.ask("r1", "p", Rung.RESET_GPU)

        async def at_work() -> bool:
            return bool(b.works)

        async with running(b.bed.controller([b.provider()]).run()):
            await b.bed.until(at_work)
            await b.provider().tidy(())
            assert await deploy_labels(b) == {LABEL: "false", DCGM: "false", OFF_LABEL: "true"}
            assert not await b.bed.gone(JOBS, job_name("r1"), SYSTEM_NAMESPACE)

    play(act)


def test_an_annotation_of_nonsense_is_taken_off() -> None:
    async def act(b: JobBench) -> None:
        annotations = {BEFORE_ANNOTATION: '{"labels": ["\\u001b"]}'}
        patch = {"metadata": {"labels": {OFF_LABEL: "true"}, "annotations": annotations}}
        await b.bed.api.patch(NODES, NODE, patch, PatchType.MERGE)
        await b.provider().tidy(())
        node = await b.bed.node()
        assert OFF_LABEL not in node["metadata"]["labels"]
        assert BEFORE_ANNOTATION not in node["metadata"].get("annotations", {})

    play(act)


def test_a_label_that_somebody_changed_meanwhile_stays() -> None:
    async def act(b: JobBench) -> None:
        await b.bed.ask("r1", "p", Rung.RESET_GPU)

        async def at_work() -> bool:
            return bool(b.works)

        async with running(b.bed.controller([b.provider()]).run()):
            await b.bed.until(at_work)
            await b.bed.api.patch(NODES, NODE, {"metadata": {"labels": {DCGM: "other"}}}, PatchType.MERGE)
            await b.bed.ended("r1")
        assert await deploy_labels(b) == {LABEL: "true", DCGM: "other", OFF_LABEL: ""}

    play(act)


def test_clients_that_do_not_leave_are_named() -> None:
    async def act(b: JobBench) -> None:
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "stuck", "labels": {"app": "nvidia-dcgm"}},
            "spec": {"nodeName": NODE, "containers": [{"name": "c", "image": "x"}]},
        }
        await b.bed.api.create(PODS, pod, "gpu-operator")
        await b.bed.ask("r1", "p", Rung.RESET_GPU)
        async with running(b.bed.controller([b.provider()]).run()):
            done = await b.bed.ended("r1", 400)
        assert done.status.phase is RepairPhase.FAILED
        assert "gpu-operator/stuck" in done.status.message
        assert b.works == []
        assert await deploy_labels(b) == BEFORE

    play(act)


def test_a_job_that_waits_for_its_pod_is_stopped_by_cancel() -> None:
    async def act(b: JobBench) -> None:
        b.kubelet.pods_run = False
        await b.bed.ask("r1", "p", Rung.REBOOT)
        async with running(b.bed.controller([b.provider()]).run()):
            await b.bed.clock.sleep(20)
            await b.bed.cancel("r1")
            done = await b.bed.ended("r1", 60)
        assert done.status.phase is RepairPhase.CANCELLED
        # Job and pod are marked: the pod has its grace period, and the Job goes after it.
        doomed = [
            await b.bed.api.get(res, name, SYSTEM_NAMESPACE)
            for res, name in ((JOBS, job_name("r1")), (PODS, f"{job_name('r1')}-0"))
            if not await b.bed.gone(res, name, SYSTEM_NAMESPACE)
        ]
        assert all(one["metadata"].get("deletionTimestamp") for one in doomed), doomed

    play(act)


def test_a_job_that_somebody_deletes_at_work_fails() -> None:
    async def act(b: JobBench) -> None:
        b.ok = None
        await b.bed.ask("r1", "p", Rung.RESET_GPU)
        name = job_name("r1")
        async with running(b.bed.controller([b.provider()]).run()):
            await b.bed.clock.sleep(40)
            await b.bed.api.patch(JOBS, name, {"metadata": {"finalizers": None}}, PatchType.MERGE, SYSTEM_NAMESPACE)
            await b.bed.api.delete(JOBS, name, SYSTEM_NAMESPACE)
            done = await b.bed.ended("r1", 60)
        assert done.status.phase is RepairPhase.FAILED
        assert "deleted" in done.status.message
        assert await deploy_labels(b) == BEFORE

    play(act)


def test_the_operators_driver_pod_is_deleted_once_and_waited_for() -> None:
    async def act(b: JobBench) -> None:
        def pod(name: str) -> Object:
            return {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": name, "labels": {"app": "nvidia-driver-daemonset"}},
                "spec": {"nodeName": NODE, "containers": [{"name": "c", "image": "x"}]},
            }

        await b.bed.api.create(PODS, pod("driver-a"), "gpu-operator")
        await b.bed.clock.sleep(5)
        await b.bed.ask("r1", "p", Rung.RESTART_DRIVER)

        async def deleted() -> bool:
            found = [p for p in await b.kubelet.list(PODS, "gpu-operator") if p["metadata"]["name"] == "driver-a"]
            return not found or "deletionTimestamp" in found[0]["metadata"]

        async with running(b.bed.controller([b.provider()]).run()):
            await b.bed.until(deleted)
            try:
                await b.bed.api.delete(PODS, "driver-a", "gpu-operator", grace_period_s=0)
            except NotFoundError:
                pass
            await b.bed.api.create(PODS, pod("driver-b"), "gpu-operator")
            await b.bed.clock.sleep(60)
            assert (await b.bed.repair("r1")).status.phase is RepairPhase.RUNNING
            ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
            await b.bed.api.patch(
                PODS, "driver-b", {"status": ready}, PatchType.STRATEGIC, "gpu-operator", subresource="status"
            )
            done = await b.bed.ended("r1")
        assert done.status.phase is RepairPhase.DONE

    play(act)


def test_without_a_driver_pod_the_remedy_is_named() -> None:
    async def act(b: JobBench) -> None:
        await b.bed.ask("r1", "p", Rung.RESTART_DRIVER)
        async with running(b.bed.controller([b.provider()]).run()):
            done = await b.bed.ended("r1", 60)
        assert done.status.phase is RepairPhase.FAILED
        assert "host-services" in done.status.message

    play(act)


def test_what_is_no_gpu_never_reaches_a_shell() -> None:
    async def act(b: JobBench) -> None:
        await b.bed.ask("r1", "p", Rung.RESET_GPU, gpu_uuids=("GPU-1; reboot",))
        async with running(b.bed.controller([b.provider()]).run()):
            done = await b.bed.ended("r1", 60)
        assert (done.status.phase, b.works) == (RepairPhase.FAILED, [])
        assert await deploy_labels(b) == BEFORE

    play(act)
