"""Where pods of a certification may run and what they take there: affinity, tolerations, devices, rights. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from muster.errors import BadInputError
from muster.kube.api import Object
from muster.resources.base import GPU_RESOURCE, HOLD_TAINT, to_object
from muster.resources.certification import Pods, Toleration

HOSTNAME_LABEL = "kubernetes.io/hostname"
UNSCHEDULABLE_TAINT = "node.kubernetes.io/unschedulable"
OWN_TOLERATIONS: tuple[Object, ...] = (
    {"key": HOLD_TAINT, "operator": "Exists"},
    {"key": UNSCHEDULABLE_TAINT, "operator": "Exists"},
    {"key": GPU_RESOURCE, "operator": "Exists"},
)
"""A node is tested while it is held and cordoned. Nothing else is tolerated but what the certification says."""
USER_ID = 65532
GPU_CLAIM, NIC_CLAIM = "gpus", "nics"


def tolerations(pods: Pods) -> list[Object]:
    """Those of Muster and those of the certification. Raises BadInputError for one that tolerates everything."""
    for index, toleration in enumerate(pods.tolerations):
        if not toleration.key:
            raise BadInputError(
                f"spec.pods.tolerations[{index}] has no key and would tolerate every taint; name the taint it is for."
            )
    return [*(dict(t) for t in OWN_TOLERATIONS), *(_toleration(t) for t in pods.tolerations)]


def _toleration(toleration: Toleration) -> Object:
    return {"operator": toleration.operator, **{k: v for k, v in to_object(toleration).items() if v}}


def one_per_node(nodes: Sequence[str], label: str, value: str) -> Object:
    """Affinity: on exactly these nodes, and never two pods with `label: value` on one.

    Nodes are chosen by their name (`metadata.name`), which unlike the hostname label is unique and always there.
    """
    return {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [
                    {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}]}
                    for name in sorted(nodes)
                ]
            }
        },
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {"topologyKey": HOSTNAME_LABEL, "labelSelector": {"matchLabels": {label: value}}}
            ]
        },
    }


def resources(pods: Pods, gpus: int) -> Object:
    """The devices of a node, by the device plugin's resources or by claims (DRA)."""
    amounts: dict[str, str] = {}
    claims = []
    if pods.gpu_claim_template:
        claims.append({"name": GPU_CLAIM})
    elif gpus:
        amounts[GPU_RESOURCE] = str(gpus)
    if pods.nic_claim_template:
        claims.append({"name": NIC_CLAIM})
    elif pods.nic_resource and pods.nics:
        amounts[pods.nic_resource] = str(pods.nics)
    found: dict[str, Any] = {}
    if amounts:
        found |= {"limits": amounts, "requests": dict(amounts)}
    if claims:
        found["claims"] = claims
    return found


def resource_claims(pods: Pods) -> list[Object]:
    """`spec.resourceClaims` of the pod: a claim of its own for each template."""
    templates = {GPU_CLAIM: pods.gpu_claim_template, NIC_CLAIM: pods.nic_claim_template}
    return [{"name": name, "resourceClaimTemplateName": template} for name, template in templates.items() if template]


def needs_locked_memory(pods: Pods) -> bool:
    """Whether the programs talk to NICs past the kernel, which pins memory."""
    return bool(pods.nic_claim_template or (pods.nic_resource and pods.nics))


def pod_security(pods: Pods) -> Object:
    """Not root, unless memory must be pinned: a capability works only for root, or as one of the image's files."""
    if needs_locked_memory(pods):
        return {"runAsUser": 0, "seccompProfile": {"type": "RuntimeDefault"}}
    return {
        "runAsNonRoot": True,
        "runAsUser": USER_ID,
        "runAsGroup": USER_ID,
        "fsGroup": USER_ID,
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def container_security(pods: Pods, *, devices: bool) -> Object:
    """What `restricted` of the Pod Security standards asks for; IPC_LOCK only where NICs are asked for."""
    capabilities: dict[str, list[str]] = {"drop": ["ALL"]}
    if devices and needs_locked_memory(pods):
        capabilities["add"] = ["IPC_LOCK"]
    return {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": capabilities}
