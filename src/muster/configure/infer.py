"""Edges that nobody wrote down but that follow from what a component needs: CRDs, and provisioners of volumes.

A declared edge always wins: an inferred one that contradicts declared ones is left out, and `explain` says so.
Inferred edges that contradict each other are an error with the path, because nobody decided which should hold.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from muster.configure.order import order
from muster.configure.parameters import filled
from muster.configure.recipe import ManifestFile, RecipeComponent
from muster.configure.values import ABSENT, get, is_on, parse_path
from muster.errors import BadInputError


class LeftOut(msgspec.Struct, frozen=True):
    """An inferred edge that declared edges contradict. `path` is the circle that it would close."""

    component: str
    needed: str
    reason: str
    path: tuple[str, ...]


class Unmet(msgspec.Struct, frozen=True):
    """A CRD that a component needs and no component of the recipe provides."""

    component: str
    crd: str
    turned_on_by: str
    """The value that makes the component need it, or empty when it always does."""

    def __str__(self) -> str:
        cause = f" (turned on by {self.component}:{self.turned_on_by})" if self.turned_on_by else ""
        remedy = f"set {self.component}:{self.turned_on_by} to false or " if self.turned_on_by else ""
        return (
            f"Component {self.component!r} needs the CRD {self.crd}{cause}, which no component of the recipe "
            f"provides; {remedy}add a component that provides it."
        )


class Inference(msgspec.Struct, frozen=True):
    """`edges`: component -> {needed component: reason}, without those that are declared."""

    edges: Mapping[str, Mapping[str, str]]
    left_out: tuple[LeftOut, ...] = ()
    unmet: tuple[Unmet, ...] = ()


CRD_KIND = "CustomResourceDefinition"
_BUILT_IN_GROUPS = frozenset(
    f"{group}.k8s.io"
    for group in (
        "admissionregistration", "apiextensions", "apiregistration", "authentication", "authorization",
        "certificates", "coordination", "discovery", "events", "flowcontrol.apiserver", "internal.apiserver",
        "networking", "node", "rbac.authorization", "resource", "scheduling", "storage", "storagemigration",
    )
)  # fmt: skip
"""API groups that kube-apiserver itself serves (1.25 to 1.37); every group without a dot is one too."""

OUTSIDE: Mapping[str, tuple[str, ...]] = {
    "aks": ("snapshot.storage.k8s.io",),
    "eks": ("crd.k8s.amazonaws.com", "networking.k8s.aws", "vpcresources.k8s.aws"),
    "gke": ("cloud.google.com", "monitoring.googleapis.com", "networking.gke.io", "snapshot.storage.k8s.io"),
    # The Gateway API is part of OpenShift from 4.19, which is Kubernetes 1.32.
    "ocp": (
        "gateway.networking.k8s.io", "metal3.io", "monitoring.coreos.com", "openshift.io", "operators.coreos.com",
        "snapshot.storage.k8s.io",
    ),
}  # fmt: skip
"""Service -> groups whose CRDs its clusters hold before anything is installed; a group covers those below it.

From the services' own manuals: CSI snapshots of AKS and GKE, the VPC CNI of EKS, networking and managed Prometheus of
GKE, operators and monitoring of OpenShift. What a service brings only when it is asked to is left out.
"""


def infer(components: Iterable[RecipeComponent], service: str = "") -> Inference:
    """What the enabled components need of each other, from their merged values and their manifests.

    - CRD: whoever holds objects of a kind comes after whoever defines the kind. A kind is unmet when no component,
      not the service (`OUTSIDE`) and no declared dependency of which no CRDs are recorded can bring it.
    - Volume: a claim stays pending until its provisioner runs, and a release that waits for its pods then fails.

    Raises BadInputError with the path when inferred edges contradict each other.
    """
    ordered = sorted(components, key=lambda c: c.name)
    declared = {c.name: tuple(n for n in c.depends_on if n not in c.inferred) for c in ordered}
    found: dict[str, dict[str, str]] = {}
    unmet: list[Unmet] = []
    providers = _Providers(ordered)
    for component in ordered:
        reasons: dict[str, str] = {}
        for crd, turned_on_by, reason in _wanted(component, providers):
            needed = providers.of(crd, component)
            if not needed and not provided_outside(crd, service) and not providers.may_bring(component):
                unmet.append(Unmet(component.name, crd, turned_on_by))
            for name in needed:
                if name != component.name:
                    reasons.setdefault(name, reason)
        if claim := _claim(component):
            for name in providers.of_volumes(component):
                reasons.setdefault(name, f"{claim} needs a provisioner")
        new = {name: reasons[name] for name in sorted(reasons) if name not in declared[component.name]}
        if new:
            found[component.name] = new
    return _settle(declared, found, unmet)


def provided_outside(crd: str, service: str) -> bool:
    """Whether the API server itself or the clusters of `service` have the kind before anything is installed."""
    group = crd.partition(".")[2]
    if "." not in group or group in _BUILT_IN_GROUPS:
        return True
    return any(group == g or group.endswith(f".{g}") for g in OUTSIDE.get(service, ()))


class _Providers:
    """Which components define which CRDs; those of another pool do not count for a component of one pool."""

    def __init__(self, components: Sequence[RecipeComponent]) -> None:
        self.components = components
        self.objects = {c.name: tuple(_objects(c)) for c in components}
        self.by_crd: dict[str, list[RecipeComponent]] = {}
        for component in components:
            for crd in sorted({*component.crds.provides, *_defined(self.objects[component.name])}):
                self.by_crd.setdefault(crd, []).append(component)

    def of(self, crd: str, user: RecipeComponent) -> list[str]:
        """Names of the providers; the user alone when it defines the kind itself."""
        names = [c.name for c in self.by_crd.get(crd, ()) if _serves(c, user)]
        return [user.name] if user.name in names else names

    def of_volumes(self, user: RecipeComponent) -> list[str]:
        return [c.name for c in self.components if c.storage.provides and c.name != user.name and _serves(c, user)]

    def may_bring(self, user: RecipeComponent) -> bool:
        """Whether the user's own chart, or what it declares to come after, may define kinds that nobody recorded."""
        own = user.crds.used_by_manifests or user.crds.self_referencing
        declared = [n for n in user.depends_on if n not in user.inferred]
        return own or any(c.name in declared and not c.crds.provides for c in self.components)

    def full_name(self, group: str, kind: str) -> str:
        """The CRD of `kind`: the known one, or its name as plurals are formed in nearly every case."""
        guesses = [f"{plural}.{group}" for plural in _plurals(kind.lower())]
        return next((guess for guess in guesses if guess in self.by_crd), guesses[0])


def _serves(provider: RecipeComponent, user: RecipeComponent) -> bool:
    return not provider.pool or not user.pool or provider.pool == user.pool


def _plurals(kind: str) -> tuple[str, ...]:
    if kind.endswith("y") and kind[-2:-1] not in tuple("aeiou"):
        return f"{kind[:-1]}ies", f"{kind}s", kind
    if kind.endswith(("s", "x", "z", "ch", "sh")):
        return f"{kind}es", kind, f"{kind}s"
    return f"{kind}s", kind, f"{kind}es"


def _objects(component: RecipeComponent) -> Iterator[tuple[str, dict[str, Any]]]:
    """(file, what identifies the object) of the manifests that are there with the values of the component."""
    files = component.pre_manifests + component.post_manifests
    for file in filled(tuple(_bare(file) for file in files if file.objects), component):
        for entry in file.objects or ():
            yield file.name, entry


def _bare(file: ManifestFile) -> ManifestFile:
    """The file without what inference does not look at: guards, kind and name stay."""
    objects = []
    for entry in file.objects or ():
        bare = {key: value for key, value in entry.items() if key.startswith("$") or key in ("apiVersion", "kind")}
        metadata = entry.get("metadata")
        if entry.get("kind") == CRD_KIND and isinstance(metadata, dict):
            bare["metadata"] = {"name": metadata.get("name")}
        objects.append(bare)
    return ManifestFile(name=file.name, objects=objects)


def _defined(objects: Iterable[tuple[str, dict[str, Any]]]) -> Iterator[str]:
    """CRDs among the manifests of a component."""
    for _, entry in objects:
        if entry.get("kind") == CRD_KIND and "metadata" in entry:
            yield str(entry["metadata"]["name"])


def _wanted(component: RecipeComponent, providers: _Providers) -> Iterator[tuple[str, str, str]]:
    """(CRD, value that turns it on, reason) of everything that the component needs."""
    for need in component.needs:
        if not need.when:
            yield need.crd, "", f"its chart holds objects of {need.crd}"
        elif is_on(component.values, need.when, need.default):
            yield need.crd, need.when, f"{need.when} makes objects of {need.crd}"
    for file, entry in providers.objects[component.name]:
        group, slash, _ = str(entry.get("apiVersion", "")).partition("/")
        kind = str(entry.get("kind", ""))
        if slash and kind:
            crd = providers.full_name(group, kind)
            yield crd, "", f"its manifest {file} holds objects of {crd}"


def _claim(component: RecipeComponent) -> str:
    """What claims a volume, or an empty text."""
    for text in component.storage.class_paths:
        around = parse_path(text)[:-1]
        value = get(component.values, around)
        if value is not ABSENT and isinstance(value, Mapping) and value:
            return f"the volume claim at {'.'.join(around)}"
    return "a volume claim of the chart" if component.storage.claims else ""


def _settle(
    declared: Mapping[str, Sequence[str]], found: Mapping[str, Mapping[str, str]], unmet: Iterable[Unmet]
) -> Inference:
    """Leave out what contradicts declared edges, and refuse what contradicts itself."""
    edges: dict[str, dict[str, str]] = {}
    left_out: list[LeftOut] = []
    for name, reasons in found.items():
        for needed, reason in reasons.items():
            if back := _way(declared, needed, name):
                left_out.append(LeftOut(name, needed, reason, (name, *back)))
            else:
                edges.setdefault(name, {})[needed] = reason
    if edges:
        both = {
            name: [n for n in (*needed, *edges.get(name, {})) if n in declared] for name, needed in declared.items()
        }
        try:
            order(both)
        except BadInputError as error:
            # Declared edges alone may form a circle; then the error of the resolution names it.
            order({name: [n for n in needed if n in declared] for name, needed in declared.items()})
            raise BadInputError(
                f"{str(error).rstrip('.')}. Some of them are inferred; declare the one that should hold with "
                "dependsOn, and the inferred one gives way."
            ) from error
    return Inference(edges, tuple(left_out), tuple(unmet))


def _way(edges: Mapping[str, Sequence[str]], start: str, goal: str) -> tuple[str, ...]:
    """A shortest way from `start` to `goal` along `edges`, or nothing. Same edges, same way."""
    came_from = {start: ""}
    waiting = [start]
    for name in waiting:
        if name == goal:
            way = [name]
            while came_from[way[-1]]:
                way.append(came_from[way[-1]])
            return tuple(reversed(way))
        for needed in sorted(edges.get(name, ())):
            if needed not in came_from:
                came_from[needed] = name
                waiting.append(needed)
    return ()
