"""What the recipe demands of the cluster and of its GPU nodes, held against what they are. Pure.

Readings come from the node's agent (`NodeHealth`), and where no agent runs, from what the kubelet tells of operating
system and kernel. Figures of tests (bandwidth, throughput) are for certification and not looked at here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import assert_never

from muster.configure.constraints import KINDS, NODE_NAMES, Kind, kind_of, label_holds, scheme_of
from muster.configure.live.agents import silent
from muster.configure.live.check import FAILED, PASSED, WELL, Check, Verdict, failed, unknown, worst
from muster.configure.live.kinds import LiveNode
from muster.configure.live.state import LiveState
from muster.configure.recipe import Recipe
from muster.configure.values import get
from muster.configure.versions import Range, Version
from muster.errors import BadInputError
from muster.resources.baseline import DriftClass
from muster.resources.fingerprint import Change, ReadingClass, changes
from muster.resources.node_health import NodeHealth, Standing

_NAMED = 3
_READING_NAMES: Mapping[str, tuple[str, ...]] = {
    "kernel.version": ("kernel.version", "kernel.release"),
    "driver.version": ("driver.version",),
    "os.id": ("os.id",),
    "os.version_id": ("os.version_id",),
}
"""Constraint -> readings that tell of it, the first that is there counts."""
_OS_IMAGES: tuple[tuple[str, str], ...] = (
    ("Ubuntu", "ubuntu"),
    ("Amazon Linux", "amzn"),
    ("Bottlerocket", "bottlerocket"),
    ("Container-Optimized OS", "cos"),
    ("Red Hat Enterprise Linux CoreOS", "rhcos"),
    ("Red Hat Enterprise Linux", "rhel"),
    ("Oracle Linux", "ol"),
    ("Rocky Linux", "rocky"),
    ("Talos", "talos"),
    ("Debian", "debian"),
    ("Flatcar", "flatcar"),
)
"""How the kubelet's osImage (PRETTY_NAME of os-release) begins -> ID of os-release."""
_CLASSES = {
    ReadingClass.IDENTITY: DriftClass.NODE_IDENTITY,
    ReadingClass.STACK: DriftClass.NODE_STACK,
    ReadingClass.CONFIG: DriftClass.NODE_CONFIG,
}
_LABEL_CONSTRAINT, _CHART_CONSTRAINT, _VERSION_CONSTRAINT = (
    "nodes.gpu.label",
    "gpu-operator.version",
    "kubernetes.version",
)


CONFIRMABLE = tuple(sorted(NODE_NAMES - {*_READING_NAMES, _LABEL_CONSTRAINT}))
"""Constraints on nodes that only a cloud's own settings tell."""


def read_confirmed(texts: Sequence[str]) -> dict[str, str]:
    """Read `name=value` texts. Raises BadInputError, also for what the cluster itself tells."""
    found: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not value or name in found:
            raise BadInputError(f"--confirm {text[:80]!r} is malformed or given twice; write it as NAME=VALUE.")
        if name not in CONFIRMABLE:
            raise BadInputError(
                f"--confirm {text[:80]!r}: only {', '.join(CONFIRMABLE)} can be confirmed; the rest is read."
            )
        found[name] = value
    return found


@dataclass(frozen=True)
class NodeDrift:
    """One reading of one node that is not what it should be."""

    node: str
    drift: DriftClass
    path: str
    expected: str
    found: str
    remedy: str


def constraint_checks(recipe: Recipe, live: LiveState) -> list[Check]:
    """One check for each constraint of the cluster and of each pool, by name."""
    found = [
        _check(f"constraint/{name}", name, _cluster(name, recipe.constraints[name], recipe, live))
        for name in sorted(recipe.constraints)
        if _is_cluster(name)
    ]
    pools: list[tuple[str, Mapping[str, str], Sequence[LiveNode]]] = [("", recipe.constraints, live.gpu_nodes())]
    if recipe.pools:
        pools += [
            (pool.name, pool.constraints, [n for n in live.gpu_nodes() if _in_pool(n, pool.node_selector)])
            for pool in recipe.pools
        ]
    for pool, constraints, nodes in pools:
        for name in sorted(constraints):
            if _is_of_nodes(name):
                title = f"constraint/{pool}/{name}" if pool else f"constraint/{name}"
                found.append(_check(title, name, _over_nodes(name, constraints[name], nodes, live)))
    return found


def node_readings(node: LiveNode, health: NodeHealth | None) -> dict[str, str]:
    """The readings of one node by constraint name; what nobody tells is absent."""
    told: dict[str, str] = {}
    observed = health.status.observed if health is not None and not silent(health) else None
    by_name = {r.name: r.value for r in observed.fingerprint.readings} if observed is not None else {}
    for name, sources in _READING_NAMES.items():
        value = next((by_name[source] for source in sources if by_name.get(source)), "")
        if value:
            told[name] = value
    info = node.status.node_info
    if info.kernel_version:
        told.setdefault("kernel.version", info.kernel_version)
    for beginning, os_id in _OS_IMAGES:
        if info.os_image.startswith(beginning):
            told.setdefault("os.id", os_id)
            if version := re.search(r"\d+(?:\.\d+)*", info.os_image[len(beginning) :]):
                # "Ubuntu 24.04.1 LTS" has the VERSION_ID 24.04.
                told.setdefault("os.version_id", ".".join(version[0].split(".")[:2]))
            break
    return told


def node_drifts(recipe: Recipe, live: LiveState) -> list[NodeDrift]:
    """Nodes that break a constraint, run another driver than the recipe sets, or left their certificate behind."""
    healths = {h.metadata.name: h for h in live.node_healths}
    found: list[NodeDrift] = []
    for node in sorted(live.gpu_nodes(), key=lambda n: n.name):
        health = healths.get(node.name)
        of_node = _off_recipe(recipe, node, health)
        if health is not None:
            known = {(each.drift, each.path) for each in of_node}
            # A driver that is not the recipe's is told once, also when the certificate was issued with another.
            of_node += [e for e in _off_certificate(recipe, health) if (e.drift, e.path) not in known]
        found += of_node
    return found


def constraints_of(recipe: Recipe, node: LiveNode) -> dict[str, str]:
    """The constraints that hold for one node, those of its pool included."""
    wanted = {name: text for name, text in recipe.constraints.items() if _is_of_nodes(name)}
    for pool in recipe.pools:
        if _in_pool(node, pool.node_selector):
            wanted |= {name: text for name, text in pool.constraints.items() if _is_of_nodes(name)}
    return wanted


def _check(title: str, name: str, verdict: Verdict) -> Check:
    drift = None if _is_of_nodes(name) else DriftClass.ASSERTION
    return Check(title, "", verdict, drift=drift, path=title)


def _is_of_nodes(name: str) -> bool:
    return name in NODE_NAMES


def _is_cluster(name: str) -> bool:
    """Constraints of the cluster; those without a dot in their name are figures of tests."""
    return not _is_of_nodes(name) and "." in name


def _in_pool(node: LiveNode, selector: Mapping[str, str]) -> bool:
    return all(node.labels.get(key) == value for key, value in selector.items())


def _cluster(name: str, text: str, recipe: Recipe, live: LiveState) -> Verdict:
    if name == _VERSION_CONSTRAINT:
        if not live.kubernetes_version:
            return unknown("the version of the API server could not be read")
        return _holds(name, text, live.kubernetes_version)
    if name == _CHART_CONSTRAINT:
        operators = [c.name for c in recipe.components if c.source.chart == "gpu-operator"]
        versions = [i.chart_version for i in live.installed if i.name in operators and i.chart_version]
        if not versions:
            return unknown("no release of the GPU Operator could be read")
        return worst([_holds(name, text, version) for version in versions])
    return unknown("nothing in the cluster tells it; look at the cloud's own settings")


def _over_nodes(name: str, text: str, nodes: Sequence[LiveNode], live: LiveState) -> Verdict:
    needed = ("nodes",) if name == _LABEL_CONSTRAINT else ("nodes", "nodehealths.muster.dev")
    for resource in needed:
        if reason := live.why_unread(resource):
            return unknown(f"{resource} could not be read: {reason}")
    if not nodes:
        return unknown("the cluster has no node with GPUs that it holds for")
    healths = {h.metadata.name: h for h in live.node_healths}
    by_verdict: dict[Verdict, list[str]] = {}
    for node in sorted(nodes, key=lambda n: n.name):
        by_verdict.setdefault(_on_node(name, text, node, healths.get(node.name), live.confirmed), []).append(
            node.name
        )
    return worst(
        [
            Verdict(verdict.result, f"{verdict.why} on {_named(names)}") if verdict.result is not PASSED else WELL
            for verdict, names in by_verdict.items()
        ]
    )


def _on_node(
    name: str, text: str, node: LiveNode, health: NodeHealth | None, confirmed: Mapping[str, str]
) -> Verdict:
    if name == _LABEL_CONSTRAINT:
        return _labels(text, node)
    if name not in _READING_NAMES:
        if name in confirmed:
            return _holds(name, text, confirmed[name])
        return unknown(
            f"{name} is not visible in the cluster (it is {text!r} in the recipe); look at the cloud's settings, and "
            f"say what you found with --confirm {name}=VALUE"
        )
    value = node_readings(node, health).get(name)
    if value is None:
        return unknown(f"{name} is not known (no agent of Muster reports it)")
    return _holds(name, text, value)


def _labels(text: str, node: LiveNode) -> Verdict:
    for term in text.split():
        if label_holds(term, node.labels):
            continue
        if term.startswith("!"):
            key = term.removeprefix("!").partition("=")[0]
            return failed(f"the label {key}={node.labels[key]} must not be there")
        return failed(f"the label {term} is missing")
    return WELL


def _holds(name: str, text: str, value: str) -> Verdict:
    """Whether the reading `value` satisfies `text`. A reading that is no version is unknown, not a failure."""
    kind = kind_of(name)
    match kind:
        case Kind.KUBERNETES | Kind.CHART | Kind.DRIVER | Kind.KERNEL | Kind.NUMBER:
            scheme = scheme_of(kind)
            assert scheme is not None  # noqa: S101 - the kinds above are ordered
            if value == "not loaded":
                return failed(f"{name} must be {text} and no driver is loaded")
            try:
                holds = Range.parse(text, scheme).contains(Version.parse(value, scheme))
            except BadInputError as error:
                return unknown(f"{name} cannot be compared: {error}")
        case Kind.TEXT | Kind.LABEL:
            holds = value == text
        case _:
            assert_never(kind)
    return WELL if holds else failed(f"{name} must be {text} and is {value}")


def _off_recipe(recipe: Recipe, node: LiveNode, health: NodeHealth | None) -> list[NodeDrift]:
    found = []
    readings = node_readings(node, health)
    wanted = constraints_of(recipe, node)
    for name in sorted(wanted):
        if _on_node(name, wanted[name], node, health, {}).result is FAILED:
            told = readings.get(name, "") or ",".join(f"{k}={v}" for k, v in sorted(_relevant(wanted[name], node)))
            remedy = f"bring node {node.name} to {name} {wanted[name]}, then certify it again"
            found.append(NodeDrift(node.name, DriftClass.NODE_STACK, name, wanted[name], told, remedy))
    driver = _driver_of(recipe, node)
    loaded = readings.get("driver.version", "")
    if driver and loaded and not _same_driver(driver, loaded) and not any(d.path == "driver.version" for d in found):
        remedy = f"see why the driver pod of node {node.name} did not load {driver} (kubectl get pods -A -o wide)"
        found.append(NodeDrift(node.name, DriftClass.NODE_STACK, "driver.version", driver, loaded, remedy))
    return found


def _relevant(text: str, node: LiveNode) -> list[tuple[str, str]]:
    keys = [term.removeprefix("!").partition("=")[0] for term in text.split()]
    return [(key, node.labels[key]) for key in keys if key in node.labels]


def _driver_of(recipe: Recipe, node: LiveNode) -> str:
    """The driver that the GPU Operator is to install on `node`, where it installs one and the version is told."""
    selectors = {pool.name: pool.node_selector for pool in recipe.pools}
    operators = [
        c
        for c in recipe.components
        if c.source.chart == "gpu-operator" and (not c.pool or _in_pool(node, selectors.get(c.pool, {})))
    ]
    if len(operators) != 1:
        return ""
    values = operators[0].values
    version = get(values, ("driver", "version"))
    if get(values, ("driver", "enabled")) is False or not isinstance(version, str):
        return ""
    return version


def _same_driver(wanted: str, loaded: str) -> bool:
    scheme = scheme_of(KINDS["driver.version"])
    assert scheme is not None  # noqa: S101 - drivers are ordered
    try:
        return Version.parse(wanted, scheme) == Version.parse(loaded, scheme)
    except BadInputError:
        return wanted == loaded


def _off_certificate(recipe: Recipe, health: NodeHealth) -> list[NodeDrift]:
    """What changed since the certificate of the node was issued."""
    lifecycle, observed = health.status.lifecycle, health.status.observed
    certificate = lifecycle.certificate if lifecycle is not None else None
    if certificate is None or observed is None:
        return []
    node = health.metadata.name
    found = [_changed(node, change) for change in changes(certificate.fingerprint, observed.fingerprint)]
    if certificate.node_uid and observed.node_uid and certificate.node_uid != observed.node_uid:
        remedy = f"node {node} is another machine under the same name; let it be certified"
        found.append(
            NodeDrift(node, DriftClass.NODE_IDENTITY, "node.uid", certificate.node_uid, observed.node_uid, remedy)
        )
    if certificate.recipe_digest and certificate.recipe_digest != recipe.digest:
        remedy = f"certify node {node} again for the present recipe"
        found.append(
            NodeDrift(
                node, DriftClass.NODE_STACK, "certificate.recipe", recipe.digest, certificate.recipe_digest, remedy
            )
        )
    if certificate.standing is Standing.VOID and not found:
        remedy = f"see 'muster node {node}'"
        why = certificate.voided_because or "no reason told"
        found.append(NodeDrift(node, DriftClass.NODE_STACK, "certificate", "Valid", f"Void ({why})", remedy))
    return found


def _changed(node: str, change: Change) -> NodeDrift:
    remedy = f"if the change was meant, certify node {node} again; if not, undo it ('muster node {node}' shows more)"
    drift = _CLASSES.get(change.reading_class, DriftClass.NODE_CONFIG)
    return NodeDrift(node, drift, change.name, change.before or "absent", change.after or "absent", remedy)


def _named(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"{', '.join(names[:_NAMED])}{more}"
