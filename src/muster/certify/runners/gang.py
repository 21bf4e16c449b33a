"""Gang scheduling: what a Job needs so that Kueue, KAI or Volcano queue its pods and start them together. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import assert_never

from muster.kube.api import Object, ResourceType
from muster.resources.base import SYSTEM_NAMESPACE
from muster.resources.certification import Gang, GangScheduler

KUEUE_QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
KAI_SCHEDULER = "kai-scheduler"
KAI_QUEUE_LABEL = "kai.scheduler/queue"
KAI_MEMBERS_ANNOTATION = "kai.scheduler/batch-min-member"
"""Without it KAI takes the pods of a Job one by one."""
VOLCANO_SCHEDULER = "volcano"
VOLCANO_GROUP_ANNOTATION = "scheduling.k8s.io/group-name"
VOLCANO_QUEUE_ANNOTATION = "scheduling.volcano.sh/queue-name"
POD_GROUPS = ResourceType("scheduling.volcano.sh", "v1beta1", "podgroups", "PodGroup", True)


@dataclass(frozen=True)
class GangMarks:
    """What is added to a Job and to the template of its pods."""

    suspend: bool = False
    """The Job is created suspended; the queue starts it."""
    scheduler: str = ""
    job_labels: dict[str, str] = field(default_factory=dict)
    job_annotations: dict[str, str] = field(default_factory=dict)
    pod_labels: dict[str, str] = field(default_factory=dict)
    pod_annotations: dict[str, str] = field(default_factory=dict)


def marks(gang: Gang | None, name: str, members: int) -> GangMarks:
    """The marks of Job `name` with `members` pods."""
    if gang is None:
        return GangMarks()
    match gang.scheduler:
        case GangScheduler.KUEUE:
            # Kueue would suspend it anyway. Where Kueue is not installed nothing may start past the queue.
            return GangMarks(suspend=True, job_labels={KUEUE_QUEUE_LABEL: gang.queue})
        case GangScheduler.KAI:
            return GangMarks(
                scheduler=KAI_SCHEDULER,
                job_labels={KAI_QUEUE_LABEL: gang.queue},
                job_annotations={KAI_MEMBERS_ANNOTATION: str(members)},
                pod_labels={KAI_QUEUE_LABEL: gang.queue},
            )
        case GangScheduler.VOLCANO:
            return GangMarks(
                scheduler=VOLCANO_SCHEDULER,
                pod_annotations={VOLCANO_GROUP_ANNOTATION: name, VOLCANO_QUEUE_ANNOTATION: gang.queue},
            )
        case _:
            assert_never(gang.scheduler)


def pod_group(gang: Gang | None, metadata: Object, members: int) -> Object | None:
    """The PodGroup beside the Job; None where the scheduler makes its own or none is needed."""
    if gang is None or gang.scheduler is not GangScheduler.VOLCANO:
        return None
    return {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": {**metadata, "namespace": SYSTEM_NAMESPACE},
        "spec": {"minMember": members, "queue": gang.queue},
    }
