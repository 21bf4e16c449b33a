"""The objects that keep the workers of a certification: Secret, Service, one Indexed Job per number of GPUs. Pure.

All of them share a name that follows from the certification and its UID, so that whoever leads next finds them, and
another certification of the same name never does. The pods of a Job differ in nothing but their index, and an index
is no node: which worker is on which node is read from the pods.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from muster import __version__
from muster.certify.runners import Owner
from muster.certify.runners.gang import marks
from muster.certify.runners.placement import (
    container_security,
    one_per_node,
    pod_security,
    resource_claims,
    resources,
    tolerations,
)
from muster.certify.runners.worker_phase import TOKEN_ANNOTATION
from muster.kube.api import Object
from muster.resources.base import API_VERSION, CERTIFICATION_LABEL, SYSTEM_NAMESPACE, WORKERS_LABEL
from muster.resources.certification import Pods

MUSTER_IMAGE = f"muster:{__version__}"
"""Image whose programs the init container copies, unless the controller is told another."""
ARCHIVE = "muster-workloads.pyz"
ARCHIVE_IN_IMAGE = f"/opt/muster/share/{ARCHIVE}"
"""Where the Dockerfile puts the programs."""
PORT = 7470
TOKEN_BYTES = 32
TOKEN_KEY = "token"  # noqa: S105 - the name of the entry
STOP_S = 10
"""Grace period: a worker has nothing to save, it only ends its child."""
RESTARTS = 3
"""How often a worker that dies is started again; whoever dies more often is not waited for."""
DEADLINE_SLACK_S = 900
"""What the Job may outlive the certification's time before the cluster ends it by itself."""
LASTS_LIMIT_S = 1e9
"""Any budget may be given, but the field has 64 bits."""
FOREGROUND = "foregroundDeletion"
"""The API server's own finalizer: however the Job is deleted, it goes only after its pods."""
SLUG_LIMIT = 34
"""With the hash, the number of the Job and an index of up to 5 digits a name stays within the 63 of a DNS label."""


@dataclass(frozen=True)
class Images:
    """`test` has PyTorch and runs the programs unless the certification names another; `muster` brings them."""

    test: str
    muster: str = MUSTER_IMAGE


def common_name(owner: Owner) -> str:
    """The name of everything that keeps the workers of this certification: a DNS label of up to 49 characters."""
    slug = re.sub(r"[^a-z0-9]+", "-", owner.name.lower())[:SLUG_LIMIT].strip("-")
    digest = hashlib.sha256(f"{owner.uid}/{owner.name}".encode()).hexdigest()[:10]
    return f"mw-{slug}-{digest}" if slug else f"mw-{digest}"


def job_name(common: str, gpus: int) -> str:
    """The name of the Job for nodes with so many GPUs."""
    return f"{common}-{gpus}g"


def by_gpus(gpus: Mapping[str, int]) -> dict[int, tuple[str, ...]]:
    """Number of GPUs -> nodes, both sorted: what one Job asks for is the same on each of its nodes."""
    return {
        count: tuple(sorted(node for node, mine in gpus.items() if mine == count))
        for count in sorted(set(gpus.values()))
    }


def secret(owner: Owner, token: bytes) -> Object:
    """The token that coordinator and workers know each other by."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": metadata(owner, common_name(owner)),
        "type": "Opaque",
        "immutable": True,
        "data": {TOKEN_KEY: base64.b64encode(token_text(token).encode()).decode()},
    }


def token_text(token: bytes) -> str:
    """The token as both sides read it."""
    return token.hex()


def token_of(found: Object) -> str | None:
    """The token in a Secret; None when there is none that we wrote."""
    try:
        text = base64.b64decode(found.get("data", {}).get(TOKEN_KEY, ""), validate=True).decode("ascii")
    except (ValueError, TypeError, AttributeError):
        return None
    return text if re.fullmatch(r"[0-9a-f]{64}", text) else None


def service(owner: Owner) -> Object:
    """Headless: a name for each worker, `<job>-<index>.<service>`, from the moment its pod has an address."""
    common = common_name(owner)
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata(owner, common),
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {WORKERS_LABEL: common},
            "ports": [{"name": "worker", "port": PORT, "protocol": "TCP"}],
        },
    }


def token_digest(token: str) -> str:
    """Tells tokens apart; nobody finds one of 256 random bits by it."""
    return hashlib.sha256(token.encode()).hexdigest()[:16]


def job(
    owner: Owner, pods: Pods, nodes: Sequence[str], gpus: int, images: Images, lasts_s: float, token: str = ""
) -> Object:
    """One worker on each of `nodes`, with `gpus` GPUs. Raises BadInputError for tolerations without a key.

    `lasts_s`: seconds that the certification has left. `token`: the one in the Secret when the Job is made.
    """
    common = common_name(owner)
    gang = marks(pods.gang, common, len(nodes))
    own = metadata(owner, job_name(common, gpus))
    labels = own["labels"]
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            **own,
            "labels": {**labels, **gang.job_labels},
            "annotations": {**gang.job_annotations, **({TOKEN_ANNOTATION: token_digest(token)} if token else {})},
            "finalizers": [FOREGROUND],
        },
        "spec": {
            "completionMode": "Indexed",
            "completions": len(nodes),
            "parallelism": len(nodes),
            "backoffLimitPerIndex": RESTARTS,
            # A worker that somebody else ended may come back as often as that happens.
            "podFailurePolicy": {
                "rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}]
            },
            "podReplacementPolicy": "Failed",
            "activeDeadlineSeconds": int(min(max(1.0, lasts_s), LASTS_LIMIT_S)) + DEADLINE_SLACK_S,
            "suspend": gang.suspend,
            "template": {
                "metadata": {"labels": {**labels, **gang.pod_labels}, "annotations": {**gang.pod_annotations}},
                "spec": _pod(common, pods, nodes, gpus, images, gang.scheduler),
            },
        },
    }


def _pod(common: str, pods: Pods, nodes: Sequence[str], gpus: int, images: Images, scheduler: str) -> Object:
    spec: Object = {
        "restartPolicy": "Never",
        "subdomain": common,
        "terminationGracePeriodSeconds": STOP_S,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": pod_security(pods),
        "affinity": one_per_node(nodes, WORKERS_LABEL, common),
        "tolerations": tolerations(pods),
        "initContainers": [
            {
                "name": "programs",
                "image": images.muster,
                "imagePullPolicy": "IfNotPresent",
                "command": ["cp", ARCHIVE_IN_IMAGE, f"/programs/{ARCHIVE}"],
                "securityContext": container_security(pods, devices=False),
                "volumeMounts": [{"name": "programs", "mountPath": "/programs"}],
            }
        ],
        "containers": [_container(pods, gpus, images)],
        "volumes": _volumes(common, pods),
    }
    if claims := resource_claims(pods):
        spec["resourceClaims"] = claims
    if pods.image_pull_secrets:
        spec["imagePullSecrets"] = [{"name": name} for name in pods.image_pull_secrets]
    if pods.host_network:
        spec |= {"hostNetwork": True, "dnsPolicy": "ClusterFirstWithHostNet"}
    if scheduler:
        spec["schedulerName"] = scheduler
    return spec


def _container(pods: Pods, gpus: int, images: Images) -> Object:
    mounts: list[Object] = [
        {"name": "programs", "mountPath": "/programs", "readOnly": True},
        {"name": "token", "mountPath": "/token", "readOnly": True},
        {"name": "shm", "mountPath": "/dev/shm"},  # noqa: S108 - NCCL's shared memory
        {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108 - a volume of the pod's own
    ]
    if pods.storage_claim:
        mounts.append({"name": "storage", "mountPath": "/storage"})
    # Its own address, of whichever family: with the host's network the other addresses of the host are not its own.
    command = ["python3", f"/programs/{ARCHIVE}", "worker", f"--listen=[$(MUSTER_POD_IP)]:{PORT}"]
    command += [f"--token-file=/token/{TOKEN_KEY}", "--node=$(MUSTER_NODE)"]
    return {
        "name": "worker",
        "image": pods.image or images.test,
        "imagePullPolicy": "IfNotPresent",
        "command": [*command, *([f"--ranks={gpus}"] if gpus else [])],
        "env": [
            {"name": "MUSTER_NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
            {"name": "MUSTER_POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
            # The user has no entry in the image's /etc/passwd, and PyTorch asks for both.
            {"name": "USER", "value": "muster"},
            {"name": "HOME", "value": "/tmp"},  # noqa: S108 - as above
            {"name": "PYTHONUNBUFFERED", "value": "1"},
        ],
        "ports": [{"name": "worker", "containerPort": PORT, "protocol": "TCP"}],
        "readinessProbe": {"tcpSocket": {"port": PORT}, "periodSeconds": 2, "failureThreshold": 5},
        "resources": resources(pods, gpus),
        "securityContext": container_security(pods, devices=True),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": mounts,
    }


def _volumes(common: str, pods: Pods) -> list[Object]:
    volumes: list[Object] = [
        {"name": "programs", "emptyDir": {}},
        {"name": "token", "secret": {"secretName": common, "defaultMode": 0o440}},
        {"name": "shm", "emptyDir": {"medium": "Memory"}},
        {"name": "tmp", "emptyDir": {}},
    ]
    if pods.storage_claim:
        volumes.append({"name": "storage", "persistentVolumeClaim": {"claimName": pods.storage_claim}})
    return volumes


def metadata(owner: Owner, name: str) -> Object:
    """Of an object of this certification: found by its labels, removed with its owner."""
    return {
        "name": name,
        "namespace": SYSTEM_NAMESPACE,
        "labels": {CERTIFICATION_LABEL: owner.name, WORKERS_LABEL: common_name(owner)},
        "ownerReferences": [
            {"apiVersion": API_VERSION, "kind": "Certification", "name": owner.name, "uid": owner.uid}
        ],
    }
