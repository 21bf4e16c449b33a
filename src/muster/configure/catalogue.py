"""The catalogue: components, overlays and mixins as data, and how the built-in one is loaded.

The sources are YAML files under `data/`; `data/catalogue.json` is compiled from them (`python -m
muster.configure.compile`), so that a verb starts without parsing some 200 YAML files. A test fails when the
two differ. Layers of users go on top, see `layering`.
"""

from __future__ import annotations

from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from muster.configure.criteria import VOCABULARY, Dimension
from muster.configure.values import leaves


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


class DaemonTolerations(Entry, frozen=True, kw_only=True):
    """Where the tolerations of a DaemonSet stand that prepares or watches nodes, and so must run on held ones."""

    path: str
    default: tuple[dict[str, Any], ...] = ()
    """What the chart has there where nobody sets it; a list replaces it, so it must be carried over."""
    source: str
    """Where the default was read: a file of the chart with its version or commit, or the manifest."""


class Placement(Entry, frozen=True, kw_only=True):
    """Value paths that place the pods of a chart."""

    system_selectors: tuple[str, ...] = ()
    system_tolerations: tuple[str, ...] = ()
    accelerated_selectors: tuple[str, ...] = ()
    accelerated_tolerations: tuple[str, ...] = ()
    daemon_tolerations: tuple[DaemonTolerations, ...] = ()
    """Of DaemonSets alone, never of work; one of them may be among the others too."""
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
    when: str = ""
    """Value path; the rule holds while the value there is true. Empty: it always holds."""
    default: bool = True
    """What the chart has at `when` where nobody sets it."""


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


class Layer(Entry, frozen=True, kw_only=True):
    """A user's layer on top of the built-in catalogue."""

    name: str
    digest: str
    """`sha256:<hex>` over what the files of the layer say; comments, layout and the order of files do not count."""


class Origin(Entry, frozen=True, kw_only=True):
    """One setting of one value: who, and to what (a constraint: what was demanded)."""

    source: str
    """A file of the built-in catalogue (`overlays/eks.yaml`), or `layer <name>: <file>`."""
    value: Any


class Catalogue(Entry, frozen=True, kw_only=True):
    components: dict[str, Component]
    overlays: dict[str, Overlay]
    mixins: dict[str, Mixin]
    manifests: dict[str, list[dict[str, Any]]] = {}
    """Our own manifests, keyed `component/file`."""
    digest: str = ""
    layers: tuple[Layer, ...] = ()
    """Lowest first."""
    vocabularies: dict[str, tuple[str, ...]] = {}
    """Values of a dimension that only the layers know, sorted."""
    origins: dict[str, dict[str, tuple[Origin, ...]]] = {}
    """What layers set, in order: source text of resolution (`overlays/eks.yaml`) -> provenance path -> settings, what
    was there before the layers first."""

    def chain(self, name: str) -> tuple[str, ...]:
        """The overlay's ancestors and itself, root first."""
        names = [name]
        while base := self.overlays[names[-1]].base:
            names.append(base)
        return tuple(reversed(names))

    def settings(self, source: str, path: str, value: Any) -> tuple[Origin, ...]:
        """Who set `path` in the merged file `source` to what, in order; `value` is what the file holds now.

        `path` is written as in the provenance of resolution: `component:path` for values, `component.field` for other
        fields (`gpu-operator.version`, `gpu-operator.enabled`, `gpu-operator.dependsOn`), `constraint:<name>`, and
        `<phase>:constraint:<name>` for a constraint of checks. The values of a constraint are the demands, those of
        a list of names what was added; all of them hold.
        """
        return self.origins.get(source, {}).get(path) or (Origin(source=source, value=value),)

    def vocabulary(self, dimension: Dimension) -> tuple[str, ...]:
        """Every value that `dimension` can have, sorted."""
        more = self.vocabularies.get(dimension.value, ())
        return tuple(sorted({*VOCABULARY[dimension], *more})) if more else VOCABULARY[dimension]


ROOT = "base"


def data_folder() -> Path:
    return Path(__file__).parent / "data"


@cache
def load() -> Catalogue:
    """The built-in catalogue, from its compiled form."""
    return msgspec.json.decode((data_folder() / "catalogue.json").read_bytes(), type=Catalogue)


def owned_paths(value: ProfileValue) -> tuple[str, ...]:
    """What a profile value sets: `component:path` and constraint names, sorted."""
    paths = [
        f"{name}:{'.'.join(path)}" for name, patch in value.components.items() for path, _ in leaves(patch.values)
    ]
    paths += [f"{name}:enabled" for name, patch in value.components.items() if patch.enabled is not None]
    return tuple(sorted([*paths, *value.constraints]))
