"""What workers are made of, and how far they are: the objects, their marks for queues, and the phases of pods."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from muster.certify.runners import Owner
from muster.certify.runners.gang import marks, pod_group
from muster.certify.runners.placement import pod_security, tolerations
from muster.certify.runners.worker_phase import (
    Limits,
    Phase,
    WorkerJob,
    WorkerPod,
    project_job,
    project_pod,
    standings,
)
from muster.certify.runners.worker_pods import (
    Images,
    by_gpus,
    common_name,
    job,
    job_name,
    metadata,
    secret,
    service,
    token_of,
)
from muster.cli.controller import controller
from muster.errors import BadInputError
from muster.resources.certification import Gang, GangScheduler, Pods, Toleration

OWNER = Owner("bring-up.all", "uid-1")
IMAGES = Images("torch:1", "muster:1")
NODES = ("b", "a")


def made(pods: Pods = Pods(), gpus: int = 8) -> dict[str, Any]:  # noqa: B008 - frozen
    return job(OWNER, pods, NODES, gpus, IMAGES, 3600.0)


def container(body: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = body["spec"]["template"]["spec"]["containers"][0]
    return found


@given(st.text(min_size=1, max_size=63), st.text(max_size=40), st.integers(0, 99_999))
def test_names_are_dns_labels_however_the_certification_is_called(name: str, uid: str, index: int) -> None:
    common = common_name(Owner(name, uid))
    assert re.fullmatch(r"[a-z]([a-z0-9-]*[a-z0-9])?", common)
    hostname = f"{job_name(common, 16)}-{index}"
    assert len(hostname) <= 63
    assert common_name(Owner(name, uid)) == common
    assert common_name(Owner(name, uid + "x")) != common


def test_one_worker_on_each_node_and_nowhere_else() -> None:
    spec = made()["spec"]
    assert (spec["completionMode"], spec["completions"], spec["parallelism"]) == ("Indexed", 2, 2)
    assert (spec["podReplacementPolicy"], spec["backoffLimitPerIndex"], spec["suspend"]) == ("Failed", 3, False)
    affinity = spec["template"]["spec"]["affinity"]
    terms = affinity["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert [t["matchFields"][0]["values"] for t in terms] == [["a"], ["b"]]
    (apart,) = affinity["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    labels = spec["template"]["metadata"]["labels"]
    assert apart["labelSelector"]["matchLabels"].items() <= labels.items()
    assert by_gpus({"x": 8, "a": 4, "b": 8}) == {4: ("a",), 8: ("b", "x")}


def test_nothing_is_tolerated_but_holds_cordons_and_gpus_and_what_is_asked_for() -> None:
    assert {t["key"] for t in tolerations(Pods())} == {
        "muster.dev/hold",
        "node.kubernetes.io/unschedulable",
        "nvidia.com/gpu",
    }
    asked = Pods(tolerations=(Toleration(key="team", operator="Equal", value="x", effect="NoSchedule"),))
    assert tolerations(asked)[-1] == {"key": "team", "operator": "Equal", "value": "x", "effect": "NoSchedule"}
    with pytest.raises(BadInputError, match="every taint"):
        tolerations(Pods(tolerations=(Toleration(),)))


def test_rights_are_none_but_pinned_memory_where_nics_are_asked_for() -> None:
    plain = made()
    assert container(plain)["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert plain["spec"]["template"]["spec"]["securityContext"]["runAsNonRoot"] is True
    nics = Pods(nic_resource="rdma/ib", nics=8)
    assert container(made(nics))["securityContext"]["capabilities"] == {"drop": ["ALL"], "add": ["IPC_LOCK"]}
    assert pod_security(nics)["runAsUser"] == 0
    assert container(made(nics))["resources"]["limits"] == {"nvidia.com/gpu": "8", "rdma/ib": "8"}
    (first,) = made(nics)["spec"]["template"]["spec"]["initContainers"]
    assert "add" not in first["securityContext"]["capabilities"]
    assert plain["spec"]["template"]["spec"]["automountServiceAccountToken"] is False


def test_devices_may_be_claimed_instead() -> None:
    body = made(Pods(gpu_claim_template="gpus8", nic_claim_template="nics"))
    assert container(body)["resources"] == {"claims": [{"name": "gpus"}, {"name": "nics"}]}
    assert body["spec"]["template"]["spec"]["resourceClaims"] == [
        {"name": "gpus", "resourceClaimTemplateName": "gpus8"},
        {"name": "nics", "resourceClaimTemplateName": "nics"},
    ]


def test_the_token_is_in_a_file_and_nowhere_else() -> None:
    token = bytes(range(32))
    body = secret(OWNER, token)
    assert token_of(body) == token.hex()
    assert token.hex() not in json.dumps(made())
    assert token_of({"data": {"token": "bm9wZQ=="}}) is None
    assert token_of({}) is None
    assert service(OWNER)["spec"]["clusterIP"] == "None"


@pytest.mark.parametrize("kind", list(GangScheduler))
def test_each_queue_gets_its_marks(kind: GangScheduler) -> None:
    gang = Gang(scheduler=kind, queue="gpus")
    body = made(Pods(gang=gang))
    template = body["spec"]["template"]
    group = pod_group(gang, metadata(OWNER, common_name(OWNER)), 2)
    match kind:
        case GangScheduler.KUEUE:
            assert body["spec"]["suspend"] is True
            assert body["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "gpus"
            assert group is None
        case GangScheduler.KAI:
            assert template["spec"]["schedulerName"] == "kai-scheduler"
            assert template["metadata"]["labels"]["kai.scheduler/queue"] == "gpus"
            assert body["metadata"]["annotations"]["kai.scheduler/batch-min-member"] == "2"
            assert group is None
        case GangScheduler.VOLCANO:
            assert template["spec"]["schedulerName"] == "volcano"
            assert group is not None
            assert template["metadata"]["annotations"]["scheduling.k8s.io/group-name"] == group["metadata"]["name"]
            assert group["spec"] == {"minMember": 2, "queue": "gpus"}
            assert project_job(json.dumps(body).encode()).volcano
    assert marks(None, "n", 2).scheduler == ""


# Phases


def pod(spec: dict[str, Any] | None = None, **status: Any) -> bytes:
    meta = {
        "name": "p",
        "uid": "u",
        "labels": {"muster.dev/certification": "c", "muster.dev/workers": "w"},
        "annotations": {"batch.kubernetes.io/job-completion-index": "3"},
        "ownerReferences": [{"kind": "Job", "uid": "j"}],
    }
    return json.dumps({"metadata": meta, "spec": spec or {}, "status": status}).encode()


BOUND = {"nodeName": "n"}


def waiting(reason: str, message: str = "", kind: str = "containerStatuses") -> dict[str, Any]:
    return {kind: [{"state": {"waiting": {"reason": reason, "message": message}}, "ready": False}]}


def terminated(code: int, message: str) -> dict[str, Any]:
    return {"containerStatuses": [{"state": {"terminated": {"exitCode": code, "message": message}}}]}


@pytest.mark.parametrize(
    ("raw", "phase", "words"),
    [
        (pod(), Phase.SCHEDULING, "scheduler"),
        (
            pod(
                conditions=[{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3"}]
            ),
            Phase.SCHEDULING,
            "Unschedulable: 0/3",
        ),
        (
            pod(conditions=[{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}]),
            Phase.QUEUED,
            "SchedulingGated",
        ),
        (pod(BOUND), Phase.STARTING, "created"),
        (pod(BOUND, **waiting("ContainerCreating")), Phase.STARTING, "created"),
        (pod(BOUND, **waiting("ErrImagePull", "no such image")), Phase.PULLING, "no such image"),
        (pod(BOUND, **waiting("ImagePullBackOff", "x", "initContainerStatuses")), Phase.PULLING, "ImagePullBackOff"),
        (pod(BOUND, **waiting("CreateContainerConfigError", "secret not found")), Phase.STARTING, "secret not found"),
        (
            pod(BOUND, phase="Running", podIP="10.0.0.1", containerStatuses=[{"ready": False}]),
            Phase.STARTING,
            "listen",
        ),
        (pod(BOUND, phase="Running", podIP="10.0.0.1", containerStatuses=[{"ready": True}]), Phase.UP, ""),
        (
            pod(
                BOUND, phase="Failed", containerStatuses=[{"state": {"terminated": {"exitCode": 3, "message": "m"}}}]
            ),
            Phase.LOST,
            "exit code 3: m",
        ),
        (pod(BOUND, phase="Failed", reason="UnexpectedAdmissionError", message="gone"), Phase.LOST, "gone"),
    ],
)
def test_the_phase_of_a_pod_and_what_the_cluster_says(raw: bytes, phase: Phase, words: str) -> None:
    found = project_pod(raw)
    assert found.phase is phase
    assert words in found.words
    assert (found.index, found.job_uid, found.common) == (3, "j", "w")


def test_who_ended_a_pod_is_told_apart() -> None:
    target = [{"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}]
    assert project_pod(pod(BOUND, phase="Failed", conditions=target)).disturbed
    assert not project_pod(pod(BOUND, phase="Failed")).disturbed


JOB = WorkerJob("w-8g", "j", "c", "o", "w")


def worker(name: str, node: str, **fields: Any) -> WorkerPod:
    return WorkerPod(name, f"uid-{name}", "c", "w", "j", node, **fields)


def test_standings_of_nodes() -> None:
    pods = [
        worker("up", "a", phase=Phase.UP, ip="1"),
        worker("going", "b", phase=Phase.UP, deleting=True),
        worker("dead", "d", phase=Phase.LOST, ended=True, index=4, words="exit code 1"),
        worker("dead2", "e", phase=Phase.LOST, ended=True, index=5, words="exit code 1"),
        WorkerPod("foreign", "u", "c", "w", "another-job", "f", phase=Phase.UP),
    ]
    nodes = ["a", "b", "d", "e", "f"]
    of = dict.fromkeys(nodes, "w-8g")
    found = standings(nodes, {"w-8g": WorkerJob("w-8g", "j", "c", "o", "w", failed_indexes="1,3-4")}, pods, of)
    assert {n: s.phase for n, s in found.items()} == {
        "a": Phase.UP,
        "b": Phase.STARTING,
        "d": Phase.LOST,
        "e": Phase.STARTING,
        "f": Phase.ABSENT,
    }
    assert "again and again" in found["d"].words
    gone = standings(["a"], {}, pods, of)
    assert gone["a"].phase is Phase.ABSENT
    over = standings(["a"], {"w-8g": WorkerJob("w-8g", "j", "c", "o", "w", over="DeadlineExceeded")}, pods, of)
    assert over["a"].phase is Phase.LOST
    queued = standings(["f"], {"w-8g": WorkerJob("w-8g", "j", "c", "o", "w", suspended=True)}, [], of)
    assert queued["f"].phase is Phase.QUEUED


@given(st.text(max_size=30))
def test_what_a_job_says_of_indexes_is_bounded_and_never_breaks(text: str) -> None:
    pods = [worker("dead", "a", phase=Phase.LOST, ended=True, index=1)]
    jobs = {"w-8g": WorkerJob("w-8g", "j", "c", "o", "w", failed_indexes=text)}
    assert standings(["a"], jobs, pods, {"a": "w-8g"})["a"].phase in (Phase.LOST, Phase.STARTING)


def test_every_phase_has_its_clock_but_the_queue() -> None:
    limits = Limits()
    unlimited = [phase for phase in Phase if limits.of(phase) is None]
    assert unlimited == [Phase.QUEUED, Phase.UP]


def test_the_controller_runs_workers_unless_told_otherwise() -> None:
    told = CliRunner().invoke(controller, ["run", "--help"])
    assert told.exit_code == 0
    assert "--test-runner [workers|pods]" in told.output
    assert "default: workers" in " ".join(told.output.split())
    assert "--muster-image" in told.output


@pytest.mark.parametrize("arguments", [["--test-runner", "x"], ["--muster-image", "a b"]])
def test_a_wrong_runner_or_image_is_one_sentence(arguments: list[str]) -> None:
    assert CliRunner().invoke(controller, ["run", *arguments]).exit_code != 0
