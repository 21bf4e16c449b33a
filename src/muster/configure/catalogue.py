"""The catalogue: components, overlays and mixins as data, and how it is loaded.

The sources are YAML files under `data/`; `data/catalogue.json` is compiled from them (`python -m
muster.configure.compile`), so that a verb starts without parsing some 200 YAML files. A test fails when the
two differ.
"""

from __future__ import annotations

import hashlib
from enum import StrEnum
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from muster import yamlio
from muster.configure.constraints import demand
from muster.configure.values import check, leaves
from muster.errors import BadInputError


class Entry(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, forbid_unknown_fields=True
):
    """Base of everything in the catalogue and the recipe: an unknown key is an error, never ignored."""


class SourceKind(StrEnum):
    HELM = "helm"
    MANIFESTS = "manifests"
    """No chart: only the manifests that are named."""


class Gate(StrEnum):
    """What must be true before the next level starts."""

    RELEASE_READY = "release-ready"
    """Every object of the release is ready."""
    DEPLOYMENTS_AVAILABLE = "deployments-available"
    """The chart returns early; every Deployment of the namespace must be available afterwards."""


class Source(Entry, frozen=True, kw_only=True):
    kind: SourceKind
    repository: str = ""
    """`https://...` or `oci://...`, without the chart's name."""
    chart: str = ""
    version: str = ""


class Pin(Entry, frozen=True, kw_only=True):
    """Where the pinned version comes from, and when it was read there (year and month)."""

    source: str
    date: str


class Placement(Entry, frozen=True, kw_only=True):
    """Value paths that place the pods of a chart."""

    system_selectors: tuple[str, ...] = ()
    system_tolerations: tuple[str, ...] = ()
    accelerated_selectors: tuple[str, ...] = ()
    accelerated_tolerations: tuple[str, ...] = ()
    accelerated_taints: tuple[str, ...] = ()
    workload_selectors: tuple[str, ...] = ()


class Scope(StrEnum):
    """How often a component is installed where the GPU nodes form several pools."""

    CLUSTER = "cluster"
    """Once, for all pools."""
    POOL = "pool"
    """Once for each pool, under a name of its own, on the nodes of that pool."""


class Need(Entry, frozen=True, kw_only=True):
    """Objects of the component are of a kind that another component defines."""

    crd: str
    """Full name of the CRD, for example `servicemonitors.monitoring.coreos.com`."""
    when: str = ""
    """Value path; the need holds while the value there is true. Empty: it always holds."""
    default: bool = True
    """What the chart has at `when` where nobody sets it."""


class Health(Entry, frozen=True, kw_only=True):
    """What only the component knows about its health: an object, and a CEL expression over it.

    Workloads and CRDs of the release are asserted without a rule.
    """

    api_version: str
    kind: str
    plural: str
    namespace: str = ""
    """Empty: the component's own, or none for a cluster-wide kind."""
    cluster_wide: bool = False
    name: str = ""
    """Empty: every object of the kind there, and at least one."""
    expect: str
    """CEL over `object`; true when all is well. An absent field makes the result unknown: guard it with `has()`."""
    why: str
    """What it means when it is not, in one sentence."""


class Storage(Entry, frozen=True, kw_only=True):
    class_paths: tuple[str, ...] = ()
    """Value paths of storage class names; the map around one, when set, is a claim."""
    shared_class_paths: tuple[str, ...] = ()
    """The same for volumes that many nodes write."""
    claims: bool = False
    """The chart claims volumes by default."""
    provides: bool = False
    """The component provisions block volumes."""


class Crds(Entry, frozen=True, kw_only=True):
    owned: bool = False
    """The release owns its CRDs: an upgrade replaces them."""
    only: bool = False
    """Nothing but CRDs; other components hold objects of these kinds, so removal keeps them."""
    self_referencing: bool = False
    """The chart holds objects of kinds that it defines itself."""
    used_by_manifests: bool = False
    provides: tuple[str, ...] = ()
    """Full names of the CRDs that the release installs, where known."""


class SecretNeed(Entry, frozen=True, kw_only=True):
    """A secret that must exist in the namespace of the component before it is installed."""

    name: str
    keys: tuple[str, ...]
    unless_false: str = ""
    """Value path; when it is false the secret is not needed."""


class Manifests(Entry, frozen=True, kw_only=True):
    """File names of manifests applied before and after the chart."""

    pre: tuple[str, ...] = ()
    post: tuple[str, ...] = ()


class Component(Entry, frozen=True, kw_only=True):
    name: str
    source: Source
    namespace: str = ""
    pin: Pin
    aliases: tuple[str, ...] = ()
    placement: Placement = Placement()
    node_count_paths: tuple[str, ...] = ()
    storage: Storage = Storage()
    crds: Crds = Crds()
    needs: tuple[Need, ...] = ()
    scope: Scope = Scope.CLUSTER
    health: tuple[Health, ...] = ()
    kube_version: str = ""
    """Range that the chart declares, where known."""
    secrets: tuple[SecretNeed, ...] = ()
    gate: Gate = Gate.RELEASE_READY
    timeout_s: int = 600
    manifests: Manifests = Manifests()
    values: dict[str, Any] = {}
    unavailable: str = ""
    """Why the component cannot be used yet (a pin that nobody confirmed)."""
    notes: str = ""


class Patch(Entry, frozen=True, kw_only=True):
    """What an overlay, mixin or profile value says about one component."""

    enabled: bool | None = None
    version: str = ""
    version_reason: str = ""
    depends_on: tuple[str, ...] = ()
    manifests: Manifests = Manifests()
    namespace_labels: dict[str, str] = {}
    values: dict[str, Any] = {}


class Checks(Entry, frozen=True, kw_only=True):
    checks: tuple[str, ...] = ()
    """Added to those of the parents; an empty list clears checks and constraints of the phase."""
    constraints: dict[str, str] = {}


class ProfileValue(Entry, frozen=True, kw_only=True):
    constraints: dict[str, str] = {}
    components: dict[str, Patch] = {}


class Profile(Entry, frozen=True, kw_only=True):
    """A named choice of an overlay; each value sets the same paths."""

    name: str
    default: str
    values: dict[str, ProfileValue]


class Overlay(Entry, frozen=True, kw_only=True):
    name: str
    base: str = ""
    criteria: dict[str, str] = {}
    mixins: tuple[str, ...] = ()
    constraints: dict[str, str] = {}
    profile: Profile | None = None
    components: dict[str, Patch] = {}
    checks: dict[str, Checks] = {}
    unavailable: str = ""
    notes: str = ""


class Mixin(Entry, frozen=True, kw_only=True):
    name: str
    constraints: dict[str, str] = {}
    components: dict[str, Patch] = {}


class Catalogue(Entry, frozen=True, kw_only=True):
    components: dict[str, Component]
    overlays: dict[str, Overlay]
    mixins: dict[str, Mixin]
    manifests: dict[str, list[dict[str, Any]]] = {}
    """Our own manifests, keyed `component/file`."""
    digest: str = ""

    def chain(self, name: str) -> tuple[str, ...]:
        """The overlay's ancestors and itself, root first."""
        names = [name]
        while base := self.overlays[names[-1]].base:
            names.append(base)
        return tuple(reversed(names))


ROOT = "base"


def data_folder() -> Path:
    return Path(str(resources.files("muster.configure"))) / "data"


@cache
def load() -> Catalogue:
    """The built-in catalogue, from its compiled form."""
    return msgspec.json.decode((data_folder() / "catalogue.json").read_bytes(), type=Catalogue)


def read_sources(folder: Path) -> Catalogue:
    """Build a catalogue from the YAML files of `folder` and check it. Raises BadInputError naming the file."""
    components = {c.name: c for c in _read_all(folder / "components", Component)}
    overlays = {o.name: o for o in _read_all(folder / "overlays", Overlay)}
    mixins = {m.name: m for m in _read_all(folder / "mixins", Mixin)}
    manifests: dict[str, list[dict[str, Any]]] = {}
    for path in sorted((folder / "manifests").glob("*/*.yaml")):
        manifests[f"{path.parent.name}/{path.name}"] = yamlio.loads_all(path.read_bytes(), str(path))
    catalogue = Catalogue(components=components, overlays=overlays, mixins=mixins, manifests=manifests)
    digest = hashlib.sha256(msgspec.json.encode(catalogue, order="sorted")).hexdigest()
    catalogue = msgspec.structs.replace(catalogue, digest=f"sha256:{digest}")
    check_catalogue(catalogue)
    return catalogue


E = TypeVar("E", Component, Overlay, Mixin)


def _read_all(folder: Path, kind: type[E]) -> list[E]:
    entries = []
    for path in sorted(folder.glob("*.yaml")):
        try:
            entry = msgspec.convert(yamlio.load(path), kind)
        except msgspec.ValidationError as error:
            raise BadInputError(f"{path} does not fit the catalogue: {error}.") from error
        if entry.name != path.stem:
            raise BadInputError(f"{path} holds the name {entry.name!r}; name and file must agree.")
        entries.append(entry)
    return entries


def check_catalogue(catalogue: Catalogue) -> None:
    """Raise BadInputError for the first thing that does not hang together: bases, mixins, components, constraints."""
    for overlay in catalogue.overlays.values():
        where = f"Overlay {overlay.name!r}"
        _check_ancestors(catalogue, overlay)
        for mixin in overlay.mixins:
            if mixin not in catalogue.mixins:
                raise BadInputError(f"{where} names the mixin {mixin!r}, which does not exist.")
        _check_patches(catalogue, overlay.components, where)
        for name, value in overlay.constraints.items():
            _check_demand(name, value, where)
        for phase in overlay.checks.values():
            for name, value in phase.constraints.items():
                _check_demand(name, value, where)
        if overlay.profile is not None:
            _check_profile(catalogue, overlay.profile, where)
    for mixin_entry in catalogue.mixins.values():
        _check_patches(catalogue, mixin_entry.components, f"Mixin {mixin_entry.name!r}")
        for name, value in mixin_entry.constraints.items():
            _check_demand(name, value, f"Mixin {mixin_entry.name!r}")
    for component in catalogue.components.values():
        check(component.values, f"Component {component.name!r}")
        if component.kube_version:
            _check_demand("kubernetes.version", component.kube_version, f"Component {component.name!r}")


def _check_demand(name: str, text: str, where: str) -> None:
    try:
        demand(name, text, where)
    except BadInputError as error:
        raise BadInputError(f"{where}, constraint {name!r}: {error}") from error


def _check_ancestors(catalogue: Catalogue, overlay: Overlay) -> None:
    seen = [overlay.name]
    while base := catalogue.overlays[seen[-1]].base:
        if base not in catalogue.overlays:
            raise BadInputError(f"Overlay {seen[-1]!r} is based on {base!r}, which does not exist.")
        if base in seen:
            raise BadInputError(f"Overlays are based on each other in a circle: {' -> '.join([*seen, base])}.")
        seen.append(base)
    if seen[-1] != ROOT:
        raise BadInputError(f"Overlay {overlay.name!r} does not lead to {ROOT!r}.")


def _check_patches(catalogue: Catalogue, patches: dict[str, Patch], where: str) -> None:
    for name, patch in patches.items():
        if name not in catalogue.components:
            raise BadInputError(f"{where} names the component {name!r}, which does not exist.")
        if patch.version and not patch.version_reason:
            raise BadInputError(f"{where} overrides the version of {name!r} without a versionReason.")
        check(patch.values, f"{where}, component {name!r}")


def owned_paths(value: ProfileValue) -> tuple[str, ...]:
    """What a profile value sets: `component:path` and constraint names, sorted."""
    paths = [
        f"{name}:{'.'.join(path)}" for name, patch in value.components.items() for path, _ in leaves(patch.values)
    ]
    paths += [f"{name}:enabled" for name, patch in value.components.items() if patch.enabled is not None]
    return tuple(sorted([*paths, *value.constraints]))


def _check_profile(catalogue: Catalogue, profile: Profile, where: str) -> None:
    if profile.default not in profile.values:
        raise BadInputError(f"{where}: profile {profile.name!r} has no value {profile.default!r} to default to.")
    for value in profile.values.values():
        _check_patches(catalogue, value.components, where)
        if owned_paths(value) != owned_paths(profile.values[profile.default]):
            raise BadInputError(f"{where}: the values of profile {profile.name!r} must set the same paths.")
