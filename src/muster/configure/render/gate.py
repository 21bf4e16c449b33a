"""The gate between levels as objects in the cluster, for deployers that wait for releases and for nothing else.

A chart may return before its operator has created the Deployments that matter (`Gate.DEPLOYMENTS_AVAILABLE`). The
gate is a small release of its own after such a chart: a Helm hook runs a Job, and Helm calls the release deployed
only when the Job has ended well.
"""

from __future__ import annotations

from typing import Any

from muster import yamlio
from muster.configure.catalogue import Gate
from muster.configure.plan import MAX_RELEASE_NAME, Plan, Release
from muster.configure.render.chart import VERSION, chart_files
from muster.errors import BadInputError

IMAGE = "registry.k8s.io/kubectl:v1.34.3"
"""The image that the Kubernetes project publishes with each release; it holds kubectl and no shell."""
SETTLE_S = 30
"""An operator has this long to create its Deployments after the chart has returned."""
LABEL = "muster.dev/gate"
_SUFFIX = "-gate"
_HOOK = {"helm.sh/hook": "post-install,post-upgrade", "helm.sh/hook-delete-policy": "before-hook-creation"}


def gate_name(release: Release) -> str:
    """The name of the gate that stands after `release`."""
    return f"{release.name}{_SUFFIX}"


def gated(plan: Plan) -> tuple[Release, ...]:
    """The releases that need a gate. Raises BadInputError when the name of a gate is taken or too long."""
    names = {release.name for release in plan.releases}
    found = tuple(release for release in plan.releases if release.gate is Gate.DEPLOYMENTS_AVAILABLE)
    for release in found:
        if gate_name(release) in names or len(gate_name(release)) > MAX_RELEASE_NAME:
            raise BadInputError(
                f"The gate of {release.name!r} would be named {gate_name(release)!r}, which is taken or longer than "
                f"{MAX_RELEASE_NAME} characters; rename the component."
            )
    return found


def gate_chart(release: Release, folder: str, version: str = VERSION) -> dict[str, str]:
    """A chart whose installation ends when all Deployments in the namespace of `release` are available."""
    objects = gate_objects(release)
    # A hook, because the template of a Job cannot be changed and the gate has to run again after every upgrade.
    objects[-1]["metadata"] |= {"annotations": _HOOK}
    files = chart_files(gate_name(release), f"Waits until what {release.name} creates is available.", folder, version)
    return files | {
        f"{folder}/values.yaml": yamlio.dumps({}),
        f"{folder}/manifests/01-gate.yaml": yamlio.dumps_all(objects),
    }


def gate_objects(release: Release) -> list[dict[str, Any]]:
    """Who may look, and the Job (last) that looks: all available, a pause, still all available."""
    name, namespace = gate_name(release), release.namespace
    metadata = {"name": name, "namespace": namespace, "labels": {LABEL: release.name}}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name}
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata},
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "Role",
            "metadata": metadata,
            "rules": [{"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["get", "list", "watch"]}],
        },
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": metadata,
            "roleRef": role,
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": namespace}],
        },
        _job(metadata, release),
    ]


def _job(metadata: dict[str, Any], release: Release) -> dict[str, Any]:
    wait = [
        "wait", "deployment", "--all", f"--namespace={release.namespace}", "--for=condition=Available",
        f"--timeout={release.timeout_s}s",
    ]  # fmt: skip
    # The image has no shell and no sleep; a watch that the client ends is a pause.
    pause = [
        "get", "deployments", f"--namespace={release.namespace}", "--watch-only", f"--request-timeout={SETTLE_S}s",
    ]  # fmt: skip
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": dict(metadata),
        "spec": {
            "backoffLimit": release.retries,
            "activeDeadlineSeconds": release.timeout_s,
            "template": {
                "metadata": {"labels": {LABEL: release.name}},
                "spec": {
                    "serviceAccountName": metadata["name"],
                    "restartPolicy": "Never",
                    "securityContext": {
                        "runAsNonRoot": True,
                        "runAsUser": 65532,
                        "seccompProfile": {"type": "RuntimeDefault"},
                    },
                    # Where every node carries a taint of its own, the gate must still find a place.
                    "tolerations": [{"operator": "Exists"}],
                    "affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [_NO_GPU]}},
                    "initContainers": [_container("available", wait), _container("pause", pause)],
                    "containers": [_container("still-available", wait)],
                },
            },
        },
    }


_NO_GPU = {
    "weight": 100,
    "preference": {"matchExpressions": [{"key": "nvidia.com/gpu.present", "operator": "DoesNotExist"}]},
}


def _container(name: str, arguments: list[str]) -> dict[str, Any]:
    return {
        "name": name,
        "image": IMAGE,
        "args": arguments,
        "resources": {"requests": {"cpu": "10m", "memory": "32Mi"}, "limits": {"memory": "128Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
    }
