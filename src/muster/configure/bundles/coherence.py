"""Statements about merged values that must hold together, as data: who installs the driver, what exists only once.

A chart cannot know what another chart was told. Each rule says when it applies, what must then be true, why, and what
to do; one interpreter evaluates them all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from muster.configure.held_nodes import repelled
from muster.configure.recipe import Recipe, RecipeComponent
from muster.configure.values import ABSENT, get, parse_path
from muster.errors import BadInputError
from muster.resources.base import HOLD_TAINT


@dataclass(frozen=True, slots=True)
class At:
    """A value of a component and what the chart has where nobody sets it.

    `component` is the name in the catalogue. Where it is installed once for each pool, every copy is looked at.
    """

    component: str
    path: str
    default: Any = None


@dataclass(frozen=True, slots=True)
class Rule:
    """`when` all hold, `then` must hold. Conditions get the values of `at`, in order."""

    name: str
    at: tuple[At, ...]
    holds: Callable[..., bool]
    why: str
    remedy: str
    service: tuple[str, ...] = ()
    """Applies on these services alone; empty: on all."""
    except_on: tuple[str, ...] = ()
    """Does not apply on these services."""
    absent: tuple[str, ...] = ()
    """Applies only while none of these components is part of the recipe."""
    must: bool = True
    """False: a warning; the bundle is built."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """On a service, a component must carry a manifest."""

    name: str
    service: str
    component: str
    file: str
    why: str


_DRIVER = At("gpu-operator", "driver.enabled", True)
_ROOT = At("nvidia-dra-driver-gpu", "nvidiaDriverRoot", "/")
OPERATOR_ROOT: Final = "/run/nvidia/driver"
"""Where the driver container of the GPU operator puts the driver (NVIDIA GPU operator manual)."""
GKE_ROOT: Final = "/home/kubernetes/bin/nvidia"
"""Where Container-Optimized OS puts the driver (NVIDIA GPU operator manual, page on GKE)."""

HELD_NODES: Final = "held-nodes"
"""Name of the warning about DaemonSets that prepare nodes and are kept off held ones."""

RULES: Final[tuple[Rule, ...]] = (
    Rule(
        "driver-root",
        (_DRIVER, _ROOT),
        lambda driver, root: (root == OPERATOR_ROOT) == bool(driver),
        "the GPU operator installs a driver under /run/nvidia/driver and nowhere else, and only when driver.enabled "
        "is true",
        "set nvidia-dra-driver-gpu:nvidiaDriverRoot to /run/nvidia/driver when the operator installs the driver, to "
        "the host's root when the nodes' image has it",
    ),
    Rule(
        "gke-driver-directory",
        (_DRIVER, At("gpu-operator", "hostPaths.driverInstallDir", "/run/nvidia/driver")),
        lambda driver, directory: bool(driver) or directory == GKE_ROOT,
        "Container-Optimized OS keeps the driver in /home/kubernetes/bin/nvidia, and the operator looks elsewhere "
        "unless it is told",
        "set gpu-operator:hostPaths.driverInstallDir to /home/kubernetes/bin/nvidia",
        service=("gke",),
    ),
    Rule(
        "provider-owns-driver",
        (_DRIVER,),
        lambda driver: not driver,
        "the provider installs the driver there, and a second one over it breaks the node",
        "set gpu-operator:driver.enabled to false",
        service=("gke", "oke"),
    ),
    Rule(
        "driver-label",
        (_DRIVER, At("nvsentinel", "labeler.assumeDriverInstalled", False)),
        lambda driver, assumed: bool(assumed) != bool(driver),
        "NVSentinel finds a driver by the operator's driver pod; without that pod its DaemonSets match no node "
        "unless it assumes a driver",
        "set nvsentinel:labeler.assumeDriverInstalled to true exactly when gpu-operator:driver.enabled is false",
        must=False,
    ),
    Rule(
        "runtime-class",
        (
            At("gpu-operator", "operator.runtimeClass", "nvidia"),
            At("nvsentinel", "metadata-collector.runtimeClassName", "nvidia"),
        ),
        lambda operator, sentinel: operator == sentinel or not sentinel,
        "pods that name a RuntimeClass which does not exist are never created",
        "set nvsentinel:metadata-collector.runtimeClassName to the value of gpu-operator:operator.runtimeClass",
        must=False,
    ),
    Rule(
        "dcgm",
        (At("gpu-operator", "dcgm.enabled", False), At("nvsentinel", "global", {})),
        lambda dcgm, _: bool(dcgm),
        "NVSentinel reads GPU health from the operator's DCGM service, and without it sees no fault of any GPU",
        "set gpu-operator:dcgm.enabled to true",
        # No GPU there is real.
        except_on=("kind",),
        must=False,
    ),
    Rule(
        "metrics-address",
        (At("prometheus-adapter", "prometheus.url", ""), At("kube-prometheus-stack", "fullnameOverride", "")),
        lambda url, name: str(url).split("//")[-1].startswith(f"{name or 'kube-prometheus-stack'}-prometheus."),
        "the adapter asks a Prometheus that is not the one of kube-prometheus-stack, and custom metrics stay empty",
        "set prometheus-adapter:prometheus.url to the address of that Prometheus' Service",
        must=False,
    ),
    Rule(
        "accounting-database",
        (At("slinky-slurm", "accounting.enabled", False),),
        lambda accounting: not accounting,
        "Slurm keeps accounts in a database, and this recipe installs none",
        "make sure that accounting.storageConfig names a database of yours",
        absent=("slurm-accounting-mariadb",),
        must=False,
    ),
    Rule(
        "one-feature-discovery",
        (At("gpu-operator", "nfd.enabled", True), At("nfd", "worker", {})),
        lambda inner, _: inner is False,
        "two copies of Node Feature Discovery write the same labels and undo each other's",
        "set gpu-operator:nfd.enabled to false, or leave nfd out",
    ),
    Rule(
        "host-mofed",
        (At("gpu-operator", "driver.rdma.enabled", False), At("gpu-operator", "driver.rdma.useHostMofed", False)),
        lambda rdma, host: not rdma or bool(host),
        "the driver pod waits for a network driver that only the network operator installs",
        "set gpu-operator:driver.rdma.useHostMofed to true when the nodes' image has the network driver",
        absent=("network-operator",),
    ),
    Rule(
        "workload-selector",
        (At("nodewright-customizations", "workloadSelector", {}),),
        bool,
        "without it nodewright restarts nodes under running work, because it cannot tell work from other pods",
        "pass --workload-selector key=value with a label of the pods that do the work",
        must=False,
    ),
    Rule(
        "accelerated-selector",
        (At("nodewright-customizations", "acceleratedNodeSelector", {}),),
        bool,
        "without it nodewright prepares the nodes labelled nvidia.com/gpu.present=true, a label that comes only with "
        "the GPU operator",
        "pass --accelerated-node-selector key=value with a label that the GPU nodes have from the start",
        must=False,
    ),
    Rule(
        "wildcard-toleration",
        (
            At("nodewright-operator", "controllerManager.manager.env.runtimeRequiredTaint", ""),
            At("kubeflow-trainer", "acceleratedTolerations", []),
        ),
        lambda taint, tolerations: not taint or {"operator": "Exists"} not in (tolerations or []),
        "work that tolerates every taint starts on nodes that nodewright has not prepared, and on nodes that are "
        "held",
        "name the taints of the GPU nodes with --accelerated-node-toleration in place of Exists",
        must=False,
    ),
    Rule(
        "one-problem-detector",
        (At("node-problem-detector", "settings", {}),),
        lambda _: False,
        "the provider runs a node-problem-detector of its own, and two of them report each event twice",
        "leave it out with --set node-problem-detector:enabled=false",
        service=("gke", "aks"),
        must=False,
    ),
)

MANIFESTS: Final[tuple[Manifest, ...]] = (
    Manifest(
        "gke-critical-quota",
        "gke",
        "gpu-operator",
        "gke-critical-pods-quota.yaml",
        "GKE refuses pods of a system-critical priority outside kube-system unless a ResourceQuota allows them",
    ),
)


@dataclass(frozen=True, slots=True)
class Incoherence:
    """A rule that does not hold."""

    rule: str
    must: bool
    sentence: str


def incoherences(recipe: Recipe) -> tuple[Incoherence, ...]:
    """Every rule that does not hold for the values of `recipe`, in the order of the rules."""
    service = recipe.criteria.get("service", "")
    names = {c.catalogue_name for c in recipe.components}
    found: list[Incoherence] = []
    for rule in RULES:
        elsewhere = (rule.service and service not in rule.service) or service in rule.except_on
        if elsewhere or not names.isdisjoint(rule.absent):
            continue
        for copies in _copies(recipe, rule.at):
            values = [_value(component, at) for component, at in zip(copies, rule.at, strict=True)]
            if not rule.holds(*values):
                found.append(Incoherence(rule.name, rule.must, _sentence(rule, copies, values, service)))
    for manifest in MANIFESTS:
        component = next((c for c in recipe.components if c.catalogue_name == manifest.component), None)
        if service != manifest.service or component is None:
            continue
        if manifest.file not in {f.name for f in (*component.pre_manifests, *component.post_manifests)}:
            sentence = (
                f"{component.name} lacks the manifest {manifest.file}: {manifest.why}; resolve the recipe again."
            )
            found.append(Incoherence(manifest.name, True, sentence))
    return (*found, *_off_held_nodes(recipe))


def _off_held_nodes(recipe: Recipe) -> Iterable[Incoherence]:
    for component in recipe.components:
        for path in repelled(component):
            yield Incoherence(
                HELD_NODES,
                False,
                f"{component.name}:{path} does not tolerate {HOLD_TAINT}: every node is held until it is certified, "
                "so a new node never gets what that DaemonSet brings; add the toleration "
                f"{{key: {HOLD_TAINT}, operator: Exists}} unless nothing holds nodes.",
            )


def require_coherence(locked: Recipe, changed: Recipe, allow: bool = False) -> tuple[str, ...]:
    """Warnings about `changed`, which is `locked` with a person's choices.

    Raises BadInputError for the first rule that must hold and that the choices broke, unless `allow` is set. What the
    recipe itself breaks is a warning: the person who builds a bundle did not do it.
    """
    found = incoherences(changed)
    before = {(i.rule, i.sentence) for i in incoherences(locked)}
    broken = next((i for i in found if i.must and (i.rule, i.sentence) not in before), None)
    if broken is not None and not allow:
        raise BadInputError(f"{broken.sentence.rstrip('.')}; or pass --allow-incoherent.")
    return tuple(i.sentence for i in found)


def _copies(recipe: Recipe, ats: Iterable[At]) -> list[list[RecipeComponent]]:
    """The components that `ats` name, one list for each pool (one list where none of them is pooled)."""
    wanted = [at.component for at in ats]
    result: list[list[RecipeComponent]] = []
    for pool in [p.name for p in recipe.pools] or [""]:
        row = [
            next((c for c in recipe.components if c.catalogue_name == name and c.pool in ("", pool)), None)
            for name in wanted
        ]
        present = [c for c in row if c is not None]
        if len(present) == len(row) and present not in result:
            result.append(present)
    return result


def _value(component: RecipeComponent, at: At) -> Any:
    value = get(component.values, parse_path(at.path))
    return at.default if value is ABSENT else value


def _sentence(rule: Rule, copies: list[RecipeComponent], values: list[Any], service: str) -> str:
    import json

    shown = ", ".join(
        f"{component.name}:{at.path} is {json.dumps(value, ensure_ascii=False)[:60]}"
        for component, at, value in zip(copies, rule.at, values, strict=True)
    )
    where = f" on {service}" if rule.service else ""
    return f"{shown}{where}: {rule.why}; {rule.remedy}."
