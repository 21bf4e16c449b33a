"""What happens when one bundle is deployed over another: pairs up their components and asks the rules about each."""

from __future__ import annotations

from collections.abc import Sequence

from muster.configure.bundles.build import Deployer
from muster.configure.bundles.opened import OpenedBundle
from muster.configure.recipe import Recipe, RecipeComponent
from muster.configure.upgrade.renames import Rename, renamed
from muster.configure.upgrade.rules import Side, added, changed, moved, removed, version_of
from muster.configure.upgrade.verdicts import Comparison, ComponentVerdict, Reason, UpgradeVerdict, blocked, care

__all__ = ["Comparison", "ComponentVerdict", "Reason", "UpgradeVerdict", "compare"]

_HELM_RECORDS = (Deployer.HELM, Deployer.HELMFILE, Deployer.FLUX)
"""Deployers that keep Helm's own record of each release."""


def compare(before: OpenedBundle, after: OpenedBundle) -> Comparison:
    """Verdicts for deploying `after` over `before`: new components in their order, then the removed ones."""
    old, new = Side(before.recipe, before.plan), Side(after.recipe, after.plan)
    pairs, gone, fresh, splits = _pairs(before.recipe, after.recipe)
    rows: dict[str, ComponentVerdict] = {}
    for earlier, later, rename in pairs:
        found = changed(earlier, later, old, new) if rename is None else moved(earlier, later, rename, old, new)
        name = later.name if earlier.name == later.name else f"{earlier.name} -> {later.name}"
        rows[later.name] = ComponentVerdict(name, tuple(found), version_of(earlier), version_of(later))
    for component in fresh:
        rows[component.name] = ComponentVerdict(
            component.name, tuple(added(component, old, new)), after=version_of(component)
        )
    ordered = [rows[c.name] for c in after.recipe.components if c.name in rows]
    for component, target in splits:
        found = moved(component, target[0], target[1], old, new)
        ordered.append(
            ComponentVerdict(f"{component.name} -> {target[0].name}", tuple(found), before=version_of(component))
        )
    for component in gone:
        found = removed(component, old, new, _goes_by_itself(after.deployer))
        ordered.append(ComponentVerdict(component.name, tuple(found), before=version_of(component)))
    return Comparison(before.source, after.source, tuple(_whole(before, after)), tuple(ordered))


_Pair = tuple[RecipeComponent, RecipeComponent, Rename | None]
_Split = tuple[RecipeComponent, tuple[RecipeComponent, Rename]]


def _pairs(
    before: Recipe, after: Recipe
) -> tuple[list[_Pair], list[RecipeComponent], list[RecipeComponent], list[_Split]]:
    """(pairs, removed, added, folded into one that was there already)."""
    old, new = {c.name: c for c in before.components}, {c.name: c for c in after.components}
    pairs: list[_Pair] = [(old[name], new[name], None) for name in new if name in old]
    taken = {later.name for _, later, _ in pairs}
    gone: list[RecipeComponent] = []
    splits: list[_Split] = []
    for component in before.components:
        if component.name in new:
            continue
        rename = renamed(component.catalogue_name) or _POOLED
        target = next((c for c in after.components if _becomes(component, c, rename)), None)
        if target is None:
            gone.append(component)
        elif target.name in taken:
            splits.append((component, (target, rename)))
        else:
            taken.add(target.name)
            pairs.append((component, target, rename))
    return pairs, gone, [c for c in after.components if c.name not in taken], splits


_POOLED = Rename(
    "",
    "",
    "uninstall the old release while no work runs on its nodes, then deploy the new bundle; the copies for each pool "
    "are releases of their own",
)


def _becomes(old: RecipeComponent, new: RecipeComponent, rename: Rename) -> bool:
    if rename is _POOLED:
        return old.catalogue_name == new.catalogue_name and old.pool != new.pool and new.name != old.name
    return new.catalogue_name == rename.new and (rename.folded or new.pool == old.pool)


def _goes_by_itself(deployer: Deployer | None) -> bool:
    return deployer in (Deployer.ARGOCD, Deployer.ARGOCD_HELM, Deployer.FLUX)


def _whole(before: OpenedBundle, after: OpenedBundle) -> list[Reason]:
    """Findings about the bundle as a whole."""
    found = _criteria(before.recipe, after.recipe) + _constraints(before.recipe, after.recipe)
    if before.deployer is not None and after.deployer is not None:
        found += _deployers(before.deployer, after.deployer)
    if after.deployer is not None and after.plan.missing:
        found.append(
            blocked(
                f"the new bundle lacks the manifests {', '.join(after.plan.missing)}",
                "build it again with --manifest NAME=FILE for each",
            )
        )
    return found


def _criteria(before: Recipe, after: Recipe) -> list[Reason]:
    found: list[Reason] = []
    for dimension in sorted(before.criteria.keys() | after.criteria.keys()):
        old, new = before.criteria.get(dimension, "any"), after.criteria.get(dimension, "any")
        if old == new:
            continue
        what = f"the recipe is for {dimension} {new}, the old one for {old}"
        if dimension == "service" and "any" not in (old, new):
            found.append(blocked(what, "a cluster does not change its service; resolve a recipe for the one it has"))
        else:
            found.append(care(what, "make sure that the nodes of this cluster are what the new recipe is for"))
    old_pools, new_pools = ({pool.name: pool.criteria for pool in recipe.pools} for recipe in (before, after))
    for name in sorted(old_pools.keys() | new_pools.keys()):
        if old_pools.get(name) != new_pools.get(name):
            what = "new" if name not in old_pools else "gone" if name not in new_pools else "for other nodes now"
            found.append(care(f"pool {name} is {what}", "make sure that the labels of the nodes say the same"))
    return found


def _constraints(before: Recipe, after: Recipe) -> list[Reason]:
    old = {name: value for name, value in before.constraints.items() if not name.endswith(".floor")}
    return [
        care(
            f"the new recipe demands {name} {after.constraints[name]}, the old one {old.get(name, 'nothing')}",
            "check that the cluster and its nodes satisfy it before deploying",
        )
        for name in sorted(after.constraints)
        if after.constraints[name] != old.get(name)
    ]


def _deployers(old: Deployer, new: Deployer) -> Sequence[Reason]:
    if old is new:
        return []
    what = f"the deployer changes from {old.value} to {new.value}"
    if (old in _HELM_RECORDS) is not (new in _HELM_RECORDS):
        return [
            blocked(
                what,
                "one keeps records of Helm releases and the other does not, so each would see the other's objects as "
                "foreign; take the old bundle down by its UNINSTALL.md first",
            )
        ]
    if old in (Deployer.HELM, Deployer.HELMFILE) and new in (Deployer.HELM, Deployer.HELMFILE):
        return []
    if Deployer.FLUX in (old, new):
        return [
            care(
                what,
                "release names and records are the same; suspend or remove the objects of the old deployer so that "
                "only one of the two acts",
            )
        ]
    return [care(what, "both call the parent muster-bundle; remove the old parent without its children first")]
