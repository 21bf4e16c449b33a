"""The deployment plan: what every deployer renders. Releases, edges, levels, gates, CRD policy, timeouts, retries."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import msgspec

from muster.configure.catalogue import Entry, Gate, SourceKind
from muster.configure.order import order
from muster.configure.parameters import filled
from muster.configure.recipe import ManifestFile, Recipe, RecipeComponent
from muster.configure.values import ABSENT, get, parse_path
from muster.errors import BadInputError

RETRIES = 5
MAX_RELEASE_NAME = 53
"""Helm's limit for the name of a release."""


class Role(StrEnum):
    """Which part of a component a release is; they start in this order."""

    PRE = "pre"
    MAIN = "main"
    POST = "post"


class CrdPolicy(StrEnum):
    """What happens to the CRDs of a chart."""

    INSTALL = "install"
    """Installed with the release; upgrades are left to the chart."""
    REPLACE = "replace"
    """Brought to the version of the chart on every deployment."""
    KEEP = "keep"
    """As `replace`, and never removed: other components hold objects of these kinds."""


class Secret(Entry, frozen=True, kw_only=True):
    """A secret that has to be there before the first release starts."""

    namespace: str
    name: str
    keys: tuple[str, ...]
    components: tuple[str, ...] = ()
    """Who needs it, in deployment order."""


class Release(Entry, frozen=True, kw_only=True):
    """One Helm release, under the same name and namespace with every deployer."""

    name: str
    component: str
    role: Role
    namespace: str
    repository: str = ""
    """Empty: a chart inside the bundle that holds `manifests`."""
    chart: str = ""
    version: str = ""
    depends_on: tuple[str, ...] = ()
    level: int = 0
    gate: Gate = Gate.RELEASE_READY
    timeout_s: int = 600
    retries: int = RETRIES
    crds: CrdPolicy = CrdPolicy.INSTALL
    self_referencing: bool = False
    provides: tuple[str, ...] = ()
    """Full names of the CRDs that the release installs, where known."""
    values: dict[str, Any] = {}
    manifests: tuple[ManifestFile, ...] = ()

    @property
    def is_local(self) -> bool:
        return not self.chart

    @property
    def missing(self) -> tuple[str, ...]:
        """Manifests of which only the name is known."""
        return tuple(f"{self.component}/{f.name}" for f in self.manifests if f.objects is None)


class Plan(Entry, frozen=True, kw_only=True):
    releases: tuple[Release, ...]
    """In an order that respects every edge."""
    namespaces: dict[str, dict[str, str]]
    """Namespace -> labels that it needs."""
    secrets: tuple[Secret, ...] = ()
    recipe_digest: str

    @property
    def missing(self) -> tuple[str, ...]:
        return tuple(name for release in self.releases for name in release.missing)

    def of(self, component: str) -> tuple[Release, ...]:
        """The releases of a component, in their order."""
        return tuple(release for release in self.releases if release.component == component)

    def folder(self, release: Release) -> str:
        """`007-gpu-operator`: place in the order, then the name."""
        return f"{self.releases.index(release) + 1:03d}-{release.name}"


def plan(recipe: Recipe) -> Plan:
    """Plan the deployment of `recipe`. Raises BadInputError when a release name is taken or too long."""
    releases: dict[str, Release] = {}
    last = {component.name: _last_release(component) for component in recipe.components}
    for component in recipe.components:
        for release in _releases(component, tuple(last[needed] for needed in component.depends_on)):
            if release.name in releases:
                raise BadInputError(f"Two components would be installed as {release.name!r}; rename one of them.")
            if len(release.name) > MAX_RELEASE_NAME:
                raise BadInputError(
                    f"The release name {release.name!r} is longer than {MAX_RELEASE_NAME} characters; "
                    "shorten the component's name."
                )
            releases[release.name] = release
    found = order({name: release.depends_on for name, release in releases.items()})
    depth = {name: at for at, names in enumerate(found.levels) for name in names}
    return Plan(
        releases=tuple(msgspec.structs.replace(releases[name], level=depth[name]) for name in found.sequence),
        namespaces=_namespaces(recipe),
        secrets=_all_secrets(recipe),
        recipe_digest=recipe.digest,
    )


def _has_chart(component: RecipeComponent) -> bool:
    return component.source.kind is SourceKind.HELM


def _last_release(component: RecipeComponent) -> str:
    """The release after which the component is complete."""
    return f"{component.name}-post" if _has_chart(component) and component.post_manifests else component.name


def _releases(component: RecipeComponent, needed: tuple[str, ...]) -> list[Release]:
    """The releases of a component, each depending on the one before it."""

    def local(name: str, role: Role, files: tuple[ManifestFile, ...], values: dict[str, Any]) -> Release:
        return Release(
            name=name,
            component=component.name,
            role=role,
            namespace=component.namespace,
            timeout_s=component.timeout_s,
            manifests=files,
            values=values,
        )

    before, after = filled(component.pre_manifests, component), filled(component.post_manifests, component)
    if not _has_chart(component):
        main = local(component.name, Role.MAIN, before + after, component.values)
        chain = [msgspec.structs.replace(main, gate=component.gate, crds=_policy(component))]
    else:
        chain = [_main(component)]
        if before:
            chain.insert(0, local(f"{component.name}-pre", Role.PRE, before, {}))
        if after:
            chain.append(local(f"{component.name}-post", Role.POST, after, {}))
    # Every part waits for what the component needs, so that no part relies on another deployer's transitivity.
    return [
        msgspec.structs.replace(release, depends_on=tuple(sorted({*needed, *(c.name for c in chain[:at])})))
        for at, release in enumerate(chain)
    ]


def _policy(component: RecipeComponent) -> CrdPolicy:
    if not component.crds.owned:
        return CrdPolicy.INSTALL
    return CrdPolicy.KEEP if component.crds.only else CrdPolicy.REPLACE


def _main(component: RecipeComponent) -> Release:
    return Release(
        name=component.name,
        component=component.name,
        role=Role.MAIN,
        namespace=component.namespace,
        repository=component.source.repository,
        chart=component.source.chart,
        version=component.source.version,
        gate=component.gate,
        timeout_s=component.timeout_s,
        crds=_policy(component),
        self_referencing=component.crds.self_referencing,
        provides=component.crds.provides,
        values=component.values,
    )


def _namespaces(recipe: Recipe) -> dict[str, dict[str, str]]:
    namespaces: dict[str, dict[str, str]] = {}
    for component in recipe.components:
        labels = namespaces.setdefault(component.namespace, {})
        for key, value in component.namespace_labels.items():
            if labels.setdefault(key, value) != value:
                raise BadInputError(
                    f"The namespace {component.namespace} needs the label {key} with two values, {labels[key]!r} and "
                    f"{value!r} (for {component.name}); mend the catalogue so that they agree."
                )
    return {name: dict(sorted(namespaces[name].items())) for name in sorted(namespaces)}


def _all_secrets(recipe: Recipe) -> tuple[Secret, ...]:
    """Each secret once, with every key that somebody needs in it."""
    found: dict[tuple[str, str], tuple[list[str], list[str]]] = {}
    for component in recipe.components:
        for secret in _secrets(component):
            keys, names = found.setdefault((secret.namespace, secret.name), ([], []))
            keys.extend(key for key in secret.keys if key not in keys)
            names.append(component.name)
    return tuple(
        Secret(namespace=namespace, name=name, keys=tuple(keys), components=tuple(names))
        for (namespace, name), (keys, names) in found.items()
    )


def _secrets(component: RecipeComponent) -> list[Secret]:
    return [
        Secret(namespace=component.namespace, name=need.name, keys=need.keys)
        for need in component.secrets
        if not need.unless_false or get(component.values, parse_path(need.unless_false)) in (ABSENT, True)
    ]
