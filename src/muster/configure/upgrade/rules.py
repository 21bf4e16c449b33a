"""What changes in one component mean for a cluster that runs it: a list of reasons for each pair of old and new."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from muster.configure.plan import CrdPolicy, Plan, Release
from muster.configure.recipe import Recipe, RecipeComponent
from muster.configure.upgrade.manifests import manifest_changes
from muster.configure.upgrade.renames import NAMESPACE_MOVES, Rename
from muster.configure.upgrade.storage import claims, storage_changes
from muster.configure.upgrade.values import value_changes
from muster.configure.upgrade.verdicts import Reason, UpgradeVerdict, blocked, care, safe
from muster.configure.versions import Scheme, Version
from muster.errors import BadInputError

_NUMBERS = re.compile(r"v?(\d+)\.(\d+)", re.ASCII)
_SHOWN = 6


@dataclass(frozen=True, slots=True)
class Side:
    """All of one bundle, for rules that look at more than one component."""

    recipe: Recipe
    plan: Plan

    def provider_of(self, crd: str) -> str:
        """The component that installs the CRD, or an empty text."""
        return next((c.name for c in self.recipe.components if crd in c.crds.provides), "")

    def needing(self, crds: tuple[str, ...]) -> tuple[str, ...]:
        """Components that hold objects of one of these kinds, as far as it is recorded."""
        return tuple(c.name for c in self.recipe.components if any(need.crd in crds for need in c.needs))


def version_of(component: RecipeComponent) -> str:
    """The chart's version, or `manifests`."""
    return component.source.version or "manifests"


def changed(old: RecipeComponent, new: RecipeComponent, before: Side, after: Side) -> list[Reason]:
    """A component under the same name on both sides."""
    return [
        *_identity(old, new),
        *_version(old, new),
        *_crds(old, new, before, after),
        *storage_changes(old, new),
        *value_changes(old, new),
        *_releases(before.plan.of(old.name), after.plan.of(new.name)),
        *_secrets(old, new, before.plan, after.plan),
        *_edges(old, new),
    ]


def moved(old: RecipeComponent, new: RecipeComponent, rename: Rename, before: Side, after: Side) -> list[Reason]:
    """A component under another name: its release cannot be renamed in place."""
    what = f"{old.name} is part of {new.name} now" if rename.folded else f"{old.name} is called {new.name} now"
    place = f" and moves from namespace {old.namespace} to {new.namespace}" if old.namespace != new.namespace else ""
    found = [blocked(f"{what}{place}; a Helm release cannot be renamed", rename.remedy)]
    if not rename.folded:
        found += [*_version(old, new), *storage_changes(old, new), *_secrets(old, new, before.plan, after.plan)]
    return found


def added(component: RecipeComponent, before: Side, after: Side) -> list[Reason]:
    """A component that only the new side has."""
    followers = [c.name for c in after.recipe.components if component.name in c.depends_on]
    order = f", before {_some(followers)}" if followers else ""
    found = [safe(f"new{order}")]
    taken = {crd: before.provider_of(crd) for crd in component.crds.provides}
    owners = sorted({owner for owner in taken.values() if owner and not _still_provides(after, owner, taken)})
    if owners:
        found.append(
            care(
                f"it takes over CRDs of {_some(owners)}",
                f"annotate them with meta.helm.sh/release-name={component.name} and "
                f"meta.helm.sh/release-namespace={component.namespace} first",
            )
        )
    found += _new_secrets(component.name, before.plan, after.plan)
    return found


def _still_provides(side: Side, owner: str, taken: Mapping[str, str]) -> bool:
    component = side.recipe.component(owner)
    return component is not None and any(
        crd in component.crds.provides for crd, name in taken.items() if name == owner
    )


def removed(component: RecipeComponent, before: Side, after: Side, by_itself: bool) -> list[Reason]:
    """A component that only the old side has. `by_itself`: the deployer removes what is no longer in the bundle."""
    crds = component.crds
    remedy = (
        "the deployer removes it with its objects as soon as it sees the new bundle; keep it in the bundle if that "
        "is not meant"
        if by_itself
        else f"nothing removes it by itself: follow the steps for {component.name} in UNINSTALL.md of the old bundle"
    )
    found: list[Reason] = []
    lost = tuple(crd for crd in crds.provides if not after.provider_of(crd))
    needing = after.needing(lost)
    if needing:
        found.append(
            blocked(f"{_some(needing)} need its CRDs {_some(lost)}, and nothing else provides them", "keep it")
        )
    elif crds.only:
        found.append(care("removed; its CRDs stay, with every object of their kinds", remedy))
    elif crds.owned or lost:
        kinds = _some(lost) if lost else "that it owns"
        found.append(
            blocked(
                f"removed with the CRDs {kinds}: every object of these kinds goes too",
                "save or move these objects, or annotate the CRDs with helm.sh/resource-policy=keep; then " + remedy,
            )
        )
    else:
        found.append(care("removed", remedy))
    if claims(component):
        found.append(blocked("its volumes may go with it", "back up what they hold first"))
    objects = manifest_changes(before.plan.of(component.name), ())
    found += [reason for reason in objects if reason.verdict is UpgradeVerdict.BLOCKED]
    if component.storage.provides:
        users = [c.name for c in after.recipe.components if claims(c)]
        if users:
            found.append(
                blocked(
                    f"it provisions volumes, and {_some(users)} claim some",
                    "keep it, or have another provisioner and a storage class of its own in place first",
                )
            )
    followers = [c.name for c in before.recipe.components if component.name in c.depends_on]
    followers = [name for name in followers if after.recipe.component(name) is not None]
    if followers:
        found.append(care(f"{_some(followers)} came after it", "make sure that they do without it"))
    return found


def _identity(old: RecipeComponent, new: RecipeComponent) -> Iterator[Reason]:
    uninstall = (
        f"uninstall {old.name} from {old.namespace} by UNINSTALL.md of the old bundle, then deploy the new one"
    )
    if old.namespace != new.namespace:
        known = NAMESPACE_MOVES.get((old.namespace, new.namespace))
        yield blocked(
            f"namespace {old.namespace} -> {new.namespace}; a Helm release cannot be moved", known or uninstall
        )
    if old.source.kind is not new.source.kind:
        yield blocked(
            f"from {old.source.kind.value} to {new.source.kind.value}: everything in it is replaced", uninstall
        )
        return
    if old.source.chart != new.source.chart:
        yield blocked(f"another chart: {old.source.chart} -> {new.source.chart}", uninstall)
    elif old.source.repository != new.source.repository:
        yield care(
            f"chart from {new.source.repository}, until now from {old.source.repository}",
            "make sure that both are the same chart (compare `helm show chart` of both)",
        )


def _version(old: RecipeComponent, new: RecipeComponent) -> Iterator[Reason]:
    before, after = old.source.version, new.source.version
    if before == after or not before or not after:
        return
    try:
        first, second = Version.parse(before, Scheme.CHART), Version.parse(after, Scheme.CHART)
    except BadInputError:
        yield care(f"version {before} -> {after}, which cannot be compared", "read the release notes")
        return
    if second < first:
        holds = bool(old.crds.owned or old.crds.provides or claims(old))
        remedy = "CRDs and stored data do not go back; uninstall first, or stay on the newer version"
        if holds:
            yield blocked(f"downgrade {before} -> {after}", remedy)
        else:
            yield care(
                f"downgrade {before} -> {after}", "read the release notes of the newer version for what changed"
            )
    elif _step(before) != _step(after):
        yield care(f"major step {before} -> {after}", "read the release notes for changed values and objects")
    else:
        yield safe(f"version {before} -> {after}")


def _step(version: str) -> tuple[int, int]:
    """What SemVer calls incompatible: the major number, and below 1.0 the minor one."""
    match = _NUMBERS.match(version)
    major, minor = (int(match[1]), int(match[2])) if match else (0, 0)
    return (major, 0 if major else minor)


def _crds(old: RecipeComponent, new: RecipeComponent, before: Side, after: Side) -> Iterator[Reason]:
    lost = tuple(crd for crd in old.crds.provides if not after.provider_of(crd))
    # An empty list on the new side means that nobody recorded them, not that there are none.
    if lost and new.crds.provides:
        yield blocked(
            f"the CRDs {_some(lost)} go, with every object of these kinds",
            "move the objects to their new kind or delete them, then deploy",
        )
    first, second = _policy(before.plan, old.name), _policy(after.plan, new.name)
    if first is second or first is None or second is None:
        return
    what = f"CRD policy {first.value} -> {second.value}"
    if first is CrdPolicy.KEEP:
        yield blocked(
            f"{what}: shared CRDs would go with the release",
            "keep the policy, or annotate the CRDs with helm.sh/resource-policy=keep first",
        )
    elif second is CrdPolicy.INSTALL:
        yield care(what, "from now on only the chart upgrades its CRDs; check their version after the upgrade")
    else:
        yield care(what, "CRDs are replaced on every deployment; make sure that nobody has changed them by hand")


def _policy(plan: Plan, component: str) -> CrdPolicy | None:
    return next((r.crds for r in plan.of(component) if r.name == component), None)


def _releases(before: tuple[Release, ...], after: tuple[Release, ...]) -> Iterator[Reason]:
    remaining = {release.name for release in after}
    gone = [release.name for release in before if release.name not in remaining]
    if gone:
        yield care(
            f"the release {_some(gone)} goes, with the objects in it",
            "where nothing removes releases by itself, uninstall it by hand after deploying",
        )
    yield from manifest_changes(before, after)


def _secrets(old: RecipeComponent, new: RecipeComponent, before: Plan, after: Plan) -> Iterator[Reason]:
    yield from _new_secrets(new.name, before, after) if old.name == new.name else ()


def _new_secrets(component: str, before: Plan, after: Plan) -> list[Reason]:
    """Secrets in the namespaces of the component that the old bundle did not need; the first to need one says so."""
    had = {(s.namespace, s.name): set(s.keys) for s in before.secrets}
    found: list[Reason] = []
    for secret in after.secrets:
        fresh = [key for key in secret.keys if key not in had.get((secret.namespace, secret.name), set())]
        if fresh and component in secret.components[:1]:
            what = f"it needs the secret {secret.namespace}/{secret.name} with the keys {', '.join(fresh)}"
            found.append(care(what, "create it before deploying"))
    return found


def _edges(old: RecipeComponent, new: RecipeComponent) -> Iterator[Reason]:
    more = [name for name in new.depends_on if name not in old.depends_on]
    less = [name for name in old.depends_on if name not in new.depends_on]
    if more:
        yield safe(f"comes after {_some(more)} now")
    if less:
        yield safe(f"no longer waits for {_some(less)}")


def _some(names: Any) -> str:
    listed = list(names)
    more = f" and {len(listed) - _SHOWN} more" if len(listed) > _SHOWN else ""
    return ", ".join(listed[:_SHOWN]) + more
