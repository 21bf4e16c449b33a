"""Heterogeneous clusters: several pools of GPU nodes over shared components. Pure and deterministic.

Each pool is resolved by itself, then the recipes are merged: `pool_merge.py`. The order of the pools does not matter.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from muster.configure import criteria as criteria_module
from muster.configure.catalogue import Catalogue
from muster.configure.constraints import NODE_NAMES, Constraint, narrow
from muster.configure.criteria import Criteria, Dimension, parse_criteria
from muster.configure.infer import infer
from muster.configure.order import order
from muster.configure.pool_merge import Merged, Settlement, merge_components, parse_settlements
from muster.configure.provenance import Setting, edge_settings, provenance_of
from muster.configure.recipe import Pool, Recipe, check_recipe
from muster.configure.resolve import Resolution, profile_names, resolve, with_inferred_edges
from muster.errors import BadInputError

POOL_LABEL = "muster.dev/pool"
"""Label of the nodes of a pool for which no selector was given; its value is the name of the pool."""
MAX_POOLS = 16
_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,18}[a-z0-9])?", re.ASCII)
_LABEL_PART = r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"
_LABEL_KEY = re.compile(rf"([a-z0-9]([a-z0-9.-]{{0,251}}[a-z0-9])?/)?{_LABEL_PART}", re.ASCII)
_LABEL_VALUE = re.compile(rf"({_LABEL_PART})?", re.ASCII)


@dataclass(frozen=True, slots=True)
class PoolChoice:
    """A pool as somebody stated it."""

    name: str
    criteria: Criteria
    """All that holds for the pool, those of the whole cluster included."""
    selector: Mapping[str, str] = field(default_factory=dict)
    """Labels of its nodes; empty: `POOL_LABEL`."""
    profiles: Mapping[str, str] = field(default_factory=dict)

    @property
    def node_selector(self) -> dict[str, str]:
        return dict(sorted(self.selector.items())) or {POOL_LABEL: self.name}


def parse_pools(
    texts: Iterable[str], selectors: Iterable[str], shared: Mapping[str, str | None], catalogue: Catalogue
) -> tuple[PoolChoice, ...]:
    """Read the texts of `--pool` (`train:accelerator=h100,os=ubuntu`) and `--pool-selector` (`train:key=value`).

    `shared` holds what is stated for the whole cluster, by dimension. Raises BadInputError.
    """
    stated = _by_pool(texts, "--pool", "name:dimension=value,dimension=value")
    chosen = _by_pool(selectors, "--pool-selector", "name:label=value,label=value")
    for name in chosen:
        if name not in stated:
            raise BadInputError(
                f"--pool-selector names {name[:60]!r}, which no --pool does; add --pool {name[:60]}:..."
            )
    return tuple(
        PoolChoice(name, _criteria(name, own, shared, catalogue), _checked_labels(name, chosen.get(name, {})))
        for name, own in sorted(stated.items())
    )


def _by_pool(texts: Iterable[str], flag: str, form: str) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    for text in texts:
        name, colon, rest = text.partition(":")
        pairs = [part.partition("=") for part in rest.split(",")]
        if not colon or not all(key and equals for key, equals, _ in pairs):
            raise BadInputError(f"{flag} {text[:80]!r} is malformed; write it as {form}.")
        if not _NAME.fullmatch(name):
            raise BadInputError(
                f"{flag} {text[:80]!r}: the name of a pool has at most 20 small letters, digits and '-', for example "
                "train."
            )
        if name in found or len({key for key, _, _ in pairs}) < len(pairs):
            raise BadInputError(f"{flag} {text[:80]!r} states something twice; state each pool and key once.")
        found[name] = {key: value for key, _, value in pairs}
    return found


def _criteria(
    name: str, own: Mapping[str, str], shared: Mapping[str, str | None], catalogue: Catalogue
) -> dict[Dimension, str]:
    if Dimension.SERVICE.value in own:
        raise BadInputError(f"Pool {name!r} states a service; one cluster has one service, so use --service.")
    for dimension in sorted(own):
        if (shared.get(dimension) or "any").strip().lower() not in ("any", own[dimension].strip().lower()):
            raise BadInputError(
                f"Pool {name!r} states {dimension}={own[dimension][:60]} and --{dimension} differs; state it once."
            )
    try:
        return parse_criteria({**shared, **own}, catalogue)
    except BadInputError as error:
        raise BadInputError(f"Pool {name!r}: {error}") from error


def _checked_labels(pool: str, labels: Mapping[str, str]) -> Mapping[str, str]:
    for key, value in labels.items():
        if not _LABEL_KEY.fullmatch(key) or not _LABEL_VALUE.fullmatch(value):
            raise BadInputError(
                f"--pool-selector of {pool!r}: {f'{key}={value}'[:80]!r} is no label; write it like "
                "node.kubernetes.io/instance-type=p5.48xlarge."
            )
    return labels


def resolve_pools(
    shared: Criteria,
    pools: Iterable[PoolChoice],
    catalogue: Catalogue,
    profiles: Mapping[str, str] | None = None,
    nodes: int | None = None,
    settle: Iterable[str] = (),
) -> Resolution:
    """Resolve each pool and merge the recipes. One pool alone gives the plain recipe of its criteria.

    `shared` are the criteria of the whole cluster; `profiles` go to every pool that has a profile of that name;
    `settle` are texts `component:path=value`, or `=@pool` for what that pool has. Raises BadInputError.
    """
    chosen = sorted(pools, key=lambda pool: pool.name)
    settlements = parse_settlements(settle, [pool.name for pool in chosen])
    _require_distinct(chosen)
    wanted = _profiles_by_pool(chosen, profiles or {}, catalogue)
    if len(chosen) == 1:
        if settlements or chosen[0].selector:
            raise BadInputError(
                "One pool holds all GPU nodes, so there is nothing to settle or to select; leave --settle and "
                "--pool-selector out."
            )
        return resolve(chosen[0].criteria, catalogue, wanted[chosen[0].name], nodes)
    resolutions = {pool.name: _resolve_pool(pool, catalogue, wanted[pool.name], nodes) for pool in chosen}
    return _merge(shared, chosen, resolutions, catalogue, settlements, nodes)


def _resolve_pool(
    pool: PoolChoice, catalogue: Catalogue, profiles: Mapping[str, str], nodes: int | None
) -> Resolution:
    try:
        return resolve(pool.criteria, catalogue, profiles, nodes)
    except BadInputError as error:
        raise BadInputError(f"Pool {pool.name!r} ({criteria_module.text(pool.criteria)}): {error}") from error


def _require_distinct(pools: list[PoolChoice]) -> None:
    if not 1 <= len(pools) <= MAX_POOLS or len({pool.name for pool in pools}) < len(pools):
        raise BadInputError(f"Give 1 to {MAX_POOLS} pools, each with a name of its own.")
    seen: dict[str, str] = {}
    for pool in pools:
        text = ",".join(f"{key}={value}" for key, value in pool.node_selector.items())
        if text in seen:
            raise BadInputError(
                f"Pools {seen[text]!r} and {pool.name!r} select the same nodes ({text}); give each its own "
                "--pool-selector."
            )
        seen[text] = pool.name


def _profiles_by_pool(
    pools: list[PoolChoice], profiles: Mapping[str, str], catalogue: Catalogue
) -> dict[str, dict[str, str]]:
    known = {pool.name: profile_names(pool.criteria, catalogue) for pool in pools}
    unknown = sorted(set(profiles) - {name for names in known.values() for name in names})
    if unknown:
        listed = ", ".join(sorted({name for names in known.values() for name in names})) or "none"
        raise BadInputError(f"No pool has a profile {unknown[0][:60]!r}; profiles here: {listed}.")
    return {
        pool.name: {name: value for name, value in {**profiles, **pool.profiles}.items() if name in known[pool.name]}
        for pool in pools
    }


def _merge(
    shared: Criteria,
    pools: list[PoolChoice],
    resolutions: Mapping[str, Resolution],
    catalogue: Catalogue,
    settlements: Mapping[str, Settlement],
    nodes: int | None,
) -> Resolution:
    selectors = {pool.name: pool.node_selector for pool in pools}
    merged = merge_components(resolutions, selectors, catalogue, settlements)
    inference = infer(merged.components.values(), shared.get(Dimension.SERVICE, ""))
    if inference.unmet:
        raise BadInputError(str(inference.unmet[0]))
    components = with_inferred_edges(merged.components, shared.get(Dimension.SERVICE, ""))
    found = order({name: c.depends_on for name, c in components.items()})
    constraints, constraint_settings = _constraints(resolutions)
    recipes = {name: resolution.recipe for name, resolution in resolutions.items()}
    recipe = Recipe(
        catalogue=catalogue.digest,
        layers=next(iter(recipes.values())).layers,
        criteria={d.value: shared[d] for d in Dimension if d in shared},
        nodes=nodes,
        overlays=tuple(dict.fromkeys(name for r in recipes.values() for name in r.overlays)),
        mixins=tuple(dict.fromkeys(name for r in recipes.values() for name in r.mixins)),
        constraints=constraints,
        pools=tuple(_pool(pool, recipes[pool.name]) for pool in pools),
        settled={target: settlement.text for target, settlement in sorted(settlements.items())},
        components=tuple(components[name] for name in found.sequence),
        disabled=_disabled(recipes, merged),
        levels=found.levels,
    )
    check_recipe(recipe, "The resolved recipe")
    settings: dict[str, list[Setting]] = {**merged.settings, **constraint_settings}
    for path, setting in edge_settings(recipe.components, inference).items():
        settings.setdefault(path, []).append(setting)
    return Resolution(recipe, provenance_of(recipe.components, settings))


def _pool(pool: PoolChoice, recipe: Recipe) -> Pool:
    return Pool(
        name=pool.name,
        criteria=recipe.criteria,
        node_selector=pool.node_selector,
        overlays=recipe.overlays,
        profiles=recipe.profiles,
        constraints={name: text for name, text in recipe.constraints.items() if name in NODE_NAMES},
        checks=recipe.checks,
    )


def _disabled(recipes: Mapping[str, Recipe], merged: Merged) -> tuple[str, ...]:
    present = {c.catalogue_name for c in merged.components.values()}
    return tuple(sorted({name for r in recipes.values() for name in r.disabled} - present | {*merged.turned_off}))


def _constraints(resolutions: Mapping[str, Resolution]) -> tuple[dict[str, str], dict[str, list[Setting]]]:
    """Constraints of the cluster, which hold for all pools together; those of nodes are only explained here."""
    both: dict[str, Constraint] = {}
    settings: dict[str, list[Setting]] = {}
    for pool, resolution in resolutions.items():
        for name, text in resolution.recipe.constraints.items():
            own = resolution.provenance[f"constraint:{name}"]
            if name in NODE_NAMES:
                settings[f"pools.{pool}.constraint:{name}"] = list(own)
                continue
            source = f"{own[-1].source} in pool {pool}"
            before = both.get(name)
            both[name] = narrow(before, name, text, source)
            if before is None or before.value != both[name].value:
                replaced = None if before is None else (before.value, settings[f"constraint:{name}"][-1].source)
                settings.setdefault(f"constraint:{name}", []).append(Setting(source, both[name].value, replaced))
    return {name: constraint.value for name, constraint in sorted(both.items())}, settings


def choices_of(recipe: Recipe) -> tuple[PoolChoice, ...]:
    """The pools of a locked recipe as they were stated, to resolve it again."""
    return tuple(
        PoolChoice(
            pool.name,
            {Dimension(d): value for d, value in pool.criteria.items()},
            {} if pool.node_selector == {POOL_LABEL: pool.name} else pool.node_selector,
            pool.profiles,
        )
        for pool in recipe.pools
    )


def settle_texts(recipe: Recipe) -> tuple[str, ...]:
    """The texts of `--settle` of a locked recipe."""
    return tuple(f"{target}={text}" for target, text in recipe.settled.items())
