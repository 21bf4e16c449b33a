"""How a plan is taken down again: reverse order, objects before the controller that finalizes them, shared CRDs kept.

A pure function over the plan; the page `UNINSTALL.md` and other readers print it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from muster.configure.catalogue import Gate
from muster.configure.plan import CrdPolicy, Plan, Release

BUILT_IN_NAMESPACES = frozenset({"default", "kube-node-lease", "kube-public", "kube-system"})


class Action(StrEnum):
    """What a step does."""

    DELETE_OBJECTS = "delete-objects"
    """Objects of kinds that the next release defines must be gone, because only its controller can finalize them."""
    REMOVE = "remove"
    """The release is uninstalled."""
    KEEP = "keep"
    """The release stays: it holds CRDs that other components, or people, have objects of."""
    NAMESPACE = "namespace"
    """The namespace is removed if nothing is left in it."""


@dataclass(frozen=True, slots=True)
class Step:
    """One step. `name` is a release, or a namespace for Action.NAMESPACE."""

    action: Action
    name: str
    namespace: str
    component: str = ""
    timeout_s: int = 0
    crds: tuple[str, ...] = ()
    """Full names of CRDs, for Action.DELETE_OBJECTS and Action.KEEP."""
    gated: bool = False
    """A gate stands behind the release; some deployers have it as an object of its own."""


def uninstall_steps(plan: Plan) -> tuple[Step, ...]:
    """Steps in the order in which they are done.

    Every release comes before those that it depends on, so a custom resource goes before its operator, and manifests
    after a chart before the chart. Releases that are kept, and then the namespaces, stand at the end.
    """
    steps: list[Step] = []
    kept: list[Step] = []
    for release in reversed(plan.releases):
        if release.crds is CrdPolicy.KEEP:
            kept.append(_step(Action.KEEP, release, release.provides))
            continue
        if release.provides:
            steps.append(_step(Action.DELETE_OBJECTS, release, release.provides))
        steps.append(_step(Action.REMOVE, release))
    held = {step.namespace for step in kept}
    namespaces = [
        Step(Action.NAMESPACE, name, name)
        for name in sorted(plan.namespaces, reverse=True)
        if name not in held and name not in BUILT_IN_NAMESPACES
    ]
    return (*steps, *kept, *namespaces)


def _step(action: Action, release: Release, crds: tuple[str, ...] = ()) -> Step:
    gated = release.gate is Gate.DEPLOYMENTS_AVAILABLE
    return Step(action, release.name, release.namespace, release.component, release.timeout_s, crds, gated)
