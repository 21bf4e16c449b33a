"""`UNINSTALL.md` of a bundle: exact commands, in order, for the deployer of the bundle."""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_never

from muster.configure.bundles.uninstall import Action, Step, uninstall_steps
from muster.configure.plan import Plan

# What the renderers of these deployers call their own objects; a test compares.
ARGOCD_NAMESPACE = "argocd"
FLUX_NAMESPACE = "flux-system"
PARENT = "muster-bundle"
GATE_SUFFIX = "-gate"
_OBJECTS = {
    "argocd": ("application.argoproj.io", ARGOCD_NAMESPACE),
    "argocd-helm": ("application.argoproj.io", ARGOCD_NAMESPACE),
    "flux": ("helmrelease.helm.toolkit.fluxcd.io", FLUX_NAMESPACE),
}
"""Deployer -> kind and namespace of the object that stands for a release; Helm itself has none."""


@dataclass(frozen=True, slots=True)
class _Words:
    """How a deployer removes things. `before` and `after` are Markdown."""

    before: tuple[str, ...]
    after: tuple[str, ...]
    kept: str


_HELM = _Words(
    before=("`./uninstall.sh` does the steps below that remove releases, in the same order.",),
    after=(),
    kept="helm uninstall {name} --namespace {namespace}",
)
_HELMFILE = _Words(
    before=(
        "Helmfile keeps no state of its own, so plain Helm removes the releases. `helmfile destroy` would remove",
        "releases side by side and leave no time to delete objects before their controller.",
    ),
    after=(),
    kept="helm uninstall {name} --namespace {namespace}",
)
_PARENT_FIRST = (
    "Take the parent away first, without its children; while it is there it brings back what you delete:",
    "",
    f"    kubectl patch application.argoproj.io {PARENT} --namespace {ARGOCD_NAMESPACE} --type merge \\",
    '      --patch \'{"metadata":{"finalizers":null}}\'',
    f"    kubectl delete application.argoproj.io {PARENT} --namespace {ARGOCD_NAMESPACE} --cascade=orphan",
)
_ARGOCD = _Words(
    before=_PARENT_FIRST,
    after=(),
    kept=f"kubectl delete application.argoproj.io {{name}} --namespace {ARGOCD_NAMESPACE}",
)
_ARGOCD_HELM = _Words(
    before=(
        *_PARENT_FIRST,
        "",
        "Where the chart was installed with other namespaces or names, use those.",
    ),
    after=(
        "If the parent was installed with `helm upgrade --install`, remove Helm's record of it too:",
        f"`helm uninstall {PARENT} --namespace {ARGOCD_NAMESPACE} --ignore-not-found`.",
    ),
    kept=_ARGOCD.kept,
)
_FLUX = _Words(
    before=(
        "Stop Flux from bringing back what you delete, and from deleting everything at once:",
        "",
        f"    kubectl patch kustomization.kustomize.toolkit.fluxcd.io {PARENT} --namespace {FLUX_NAMESPACE} \\",
        '      --type merge --patch \'{"spec":{"suspend":true,"prune":false}}\'',
    ),
    after=("Then remove what fetched the bundle: `kubectl delete -f flux-bundle.yaml`.",),
    kept=f"kubectl delete helmrelease.helm.toolkit.fluxcd.io {{name}} --namespace {FLUX_NAMESPACE}",
)
_WORDS = {"helm": _HELM, "helmfile": _HELMFILE, "argocd": _ARGOCD, "argocd-helm": _ARGOCD_HELM, "flux": _FLUX}


def removal_page(planned: Plan, deployer: str) -> str:
    """Markdown with the commands that remove `planned` from a cluster. Raises KeyError for an unknown deployer."""
    words = _WORDS[deployer]
    steps = uninstall_steps(planned)
    lines = [
        "# Uninstall",
        "",
        "Do the steps in this order: it is the reverse of the order of installation, so nothing loses what it still",
        "needs. A command that fails or hangs is a reason to stop and look, not to go on: an object whose controller",
        "is gone can never be finalized. Every step can be repeated; `NotFound` then means that it was done before.",
        "",
        *words.before,
        "",
        "## Releases",
        "",
    ]
    number = 0
    for step in steps:
        if step.action in (Action.DELETE_OBJECTS, Action.REMOVE):
            number += 1
            lines += [f"{number}. {_heading(step)}", "", *(f"       {c}" for c in commands(step, deployer)), ""]
    if words.after:
        lines += [*words.after, ""]
    lines += _kept([s for s in steps if s.action is Action.KEEP], words)
    lines += _namespaces([s for s in steps if s.action is Action.NAMESPACE])
    return "\n".join(lines).rstrip("\n") + "\n"


def commands(step: Step, deployer: str) -> tuple[str, ...]:
    """Shell commands of a step; none for a step that only a person decides."""
    match step.action:
        case Action.DELETE_OBJECTS:
            kinds = ",".join(step.crds)
            return (
                f"kubectl get {kinds} --all-namespaces --ignore-not-found",
                *_no_healing(step, deployer),
                *(
                    f"kubectl delete {crd} --all --all-namespaces --ignore-not-found --timeout={step.timeout_s}s"
                    for crd in step.crds
                ),
            )
        case Action.REMOVE:
            return _removals(step, deployer)
        case Action.KEEP | Action.NAMESPACE:
            return ()
        case _:
            assert_never(step.action)


def _removals(step: Step, deployer: str) -> tuple[str, ...]:
    """The gate of a release goes before the release."""
    wait = f"--wait --timeout={step.timeout_s}s"
    kind, namespace = _OBJECTS.get(deployer, ("", ""))
    if not kind:
        return (f"helm uninstall {step.name} --namespace {step.namespace} --ignore-not-found {wait}",)
    names = [f"{step.name}{GATE_SUFFIX}", step.name] if step.gated else [step.name]
    return tuple(f"kubectl delete {kind} {name} --namespace {namespace} --ignore-not-found {wait}" for name in names)


def _no_healing(step: Step, deployer: str) -> tuple[str, ...]:
    """Argo CD would bring deleted objects back at once."""
    if deployer not in ("argocd", "argocd-helm"):
        return ()
    return (
        f"kubectl patch {_OBJECTS[deployer][0]} {step.name} --namespace {ARGOCD_NAMESPACE} --type merge "
        '--patch \'{"spec":{"syncPolicy":{"automated":null}}}\'',
    )


def _heading(step: Step) -> str:
    if step.action is Action.DELETE_OBJECTS:
        return (
            f"**Objects of {step.component}.** Look at what the first command lists: all of it, yours included, goes "
            f"with `{step.name}`, and only `{step.name}` can finalize it. Ignore an error about an unknown kind."
        )
    return f"`{step.name}`"


def _kept(steps: list[Step], words: _Words) -> list[str]:
    if not steps:
        return []
    lines = [
        "## Shared CRDs stay",
        "",
        "These releases hold nothing but CRDs. Removing a CRD removes every object of its kind in the whole cluster,",
        "so they stay. When nobody has such objects any more, remove them in this order:",
        "",
    ]
    for step in steps:
        removal = words.kept.format(name=step.name, namespace=step.namespace)
        lines.append(f"- `{step.name}` in `{step.namespace}`: `{removal}`")
        lines += [f"  - {crd}" for crd in step.crds]
    return [*lines, ""]


def _namespaces(steps: list[Step]) -> list[str]:
    lines = [
        "## Namespaces",
        "",
        "A namespace may hold what others put there, such as volumes and secrets. Look first; delete it only when",
        "nothing is listed but the default ServiceAccount and `kube-root-ca.crt`:",
        "",
    ]
    for step in steps:
        lines += [
            f"    kubectl get all,configmap,secret,persistentvolumeclaim,serviceaccount --namespace {step.name}",
            f"    kubectl delete namespace {step.name}",
            "",
        ]
    return lines if steps else []
