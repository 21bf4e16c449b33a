"""The Job of a repair, and what its object says about how far it is. Pure."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from muster.kube.api import Object
from muster.operate.providers.config import JobSettings
from muster.operate.providers.job import scripts
from muster.operate.providers.provider import PermanentProviderError
from muster.resources.base import API_VERSION
from muster.resources.repair import Repair, Rung

REPAIR_LABEL = "muster.dev/repair-job"
REPAIR_ANNOTATION = "muster.dev/repair"
_UUID = re.compile(r"(GPU|MIG)-[0-9A-Fa-f-]{8,64}")
_BOOT_ID = re.compile(r"[0-9A-Za-z-]{0,64}")


def job_name(repair: str) -> str:
    """Follows from the name of the Repair alone: a DNS label, so that the Job's pods can bear it as a label."""
    slug = re.sub(r"[^a-z0-9]+", "-", repair.lower())[:40].strip("-")
    return f"mr-{slug}-{hashlib.sha256(repair.encode()).hexdigest()[:10]}"


def job(repair: Repair, settings: JobSettings) -> Object:
    """The Job. Raises PermanentProviderError when the Repair names something that is no GPU."""
    spec = repair.spec
    name = job_name(repair.metadata.name)
    labels = {REPAIR_LABEL: name, "app.kubernetes.io/managed-by": "muster"}
    # A node that reboots is away for as long as the repair may take; what has not begun by then must never begin.
    deadline_s = spec.timeout_s if spec.rung is Rung.REBOOT else min(spec.timeout_s, settings.job_deadline_s)
    script, env = _work(repair, settings)
    body: Object = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": name,
            "namespace": settings.namespace,
            "labels": labels,
            "annotations": {REPAIR_ANNOTATION: repair.metadata.name},
            # However the Job is deleted, it goes only after its pod.
            "finalizers": ["foregroundDeletion"],
            "ownerReferences": [
                {
                    "apiVersion": API_VERSION,
                    "kind": "Repair",
                    "name": repair.metadata.name,
                    "uid": repair.metadata.uid,
                }
            ],
        },
        "spec": {
            "backoffLimit": 0,
            "completions": 1,
            "parallelism": 1,
            "podReplacementPolicy": "Failed",
            "activeDeadlineSeconds": max(1, int(deadline_s)),
            "ttlSecondsAfterFinished": settings.kept_s,
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    # Past the scheduler: the node is held, cordoned, perhaps not Ready, and this pod is for it alone.
                    "nodeName": spec.node_name,
                    "tolerations": [{"operator": "Exists"}],
                    "restartPolicy": "Never",
                    "hostPID": True,
                    "automountServiceAccountToken": False,
                    "enableServiceLinks": False,
                    "priorityClassName": "system-node-critical",
                    "terminationGracePeriodSeconds": 30,
                    "containers": [
                        {
                            "name": "repair",
                            "image": settings.image,
                            "imagePullPolicy": "IfNotPresent",
                            "command": ["/bin/sh", "-c", script],
                            "env": [{"name": key, "value": env[key]} for key in sorted(env)],
                            "securityContext": {"privileged": True, "runAsUser": 0},
                            "terminationMessagePolicy": "FallbackToLogsOnError",
                        }
                    ],
                },
            },
        },
    }
    if settings.image_pull_secrets:
        secrets = [{"name": secret} for secret in settings.image_pull_secrets]
        body["spec"]["template"]["spec"]["imagePullSecrets"] = secrets
    return body


def _work(repair: Repair, settings: JobSettings) -> tuple[str, dict[str, str]]:
    spec = repair.spec
    for uuid in spec.gpu_uuids:
        if not _UUID.fullmatch(uuid):
            raise PermanentProviderError(
                f"{uuid[:80]!r} is no UUID of a GPU; spec.gpuUuids takes what nvidia-smi -L says."
            )
    gpu = {
        "GPU_UUIDS": " ".join(spec.gpu_uuids),
        "DRIVER_ROOT": settings.driver_root,
        "SERVICES": " ".join(settings.stop_services),
        "SMI_LIMIT_S": str(max(30, settings.job_deadline_s // 3)),
    }
    match spec.rung:
        case Rung.RESET_GPU:
            return scripts.reset_gpu(), gpu
        case Rung.RESTART_DRIVER:
            return scripts.restart_driver(), gpu
        case Rung.REBOOT:
            before = spec.boot_id_before
            return scripts.reboot(), {"BOOT_ID_BEFORE": before if _BOOT_ID.fullmatch(before) else ""}
        case _:
            raise PermanentProviderError(f"A Job cannot do {spec.rung.value}.")


class JobState(StrEnum):
    WAITING = "waiting"
    """No container of it runs yet."""
    WORKING = "working"
    SUCCEEDED = "succeeded"
    FAILED = "failed"


@dataclass(frozen=True)
class JobView:
    """How far a Job is; `message` is what its script said, else why Kubernetes ended it."""

    state: JobState
    message: str = ""
    said: bool = False
    """Whether the words are the script's own."""

    @property
    def over(self) -> bool:
        return self.state in (JobState.SUCCEEDED, JobState.FAILED)


def view(job_object: Mapping[str, Any], pods: Sequence[Mapping[str, Any]]) -> JobView:
    """What the Job and its pods show."""
    said = next((result for pod in pods if (result := _said(pod)) is not None), None)
    conditions = {c.get("type"): c for c in (job_object.get("status") or {}).get("conditions") or []}
    for kind, state in (("Complete", JobState.SUCCEEDED), ("Failed", JobState.FAILED)):
        condition = conditions.get(kind)
        if condition is None or condition.get("status") != "True":
            continue
        if said is not None:
            return JobView(JobState.SUCCEEDED if said[0] else JobState.FAILED, said[1], said=True)
        words = f"{condition.get('reason', '')}: {condition.get('message', '')}".strip(": ")
        return JobView(state, words)
    started = any(_started(pod) for pod in pods)
    return JobView(JobState.WORKING if started else JobState.WAITING, _why_waiting(pods))


def _statuses(pod: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return list((pod.get("status") or {}).get("containerStatuses") or [])


def _said(pod: Mapping[str, Any]) -> tuple[bool, str] | None:
    for status in _statuses(pod):
        ended = (status.get("state") or {}).get("terminated") or {}
        result = scripts.read_result(str(ended.get("message") or ""))
        if result is not None:
            return result
    return None


def _started(pod: Mapping[str, Any]) -> bool:
    phase = (pod.get("status") or {}).get("phase")
    return phase in ("Running", "Succeeded", "Failed")


def _why_waiting(pods: Sequence[Mapping[str, Any]]) -> str:
    for pod in pods:
        for status in _statuses(pod):
            waiting = (status.get("state") or {}).get("waiting") or {}
            if waiting.get("reason"):
                return f"{waiting['reason']}: {waiting.get('message', '')}".strip(": ")
    return ""
