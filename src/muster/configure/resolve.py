"""Resolution: criteria and a catalogue in, a recipe and the provenance of every value out. Pure and deterministic."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from muster.configure.catalogue import ROOT, Catalogue, Checks, Overlay, Profile, SourceKind
from muster.configure.criteria import Criteria, Dimension
from muster.configure.drafts import Draft, Drafts
from muster.configure.held_nodes import REASON, on_held_nodes
from muster.configure.infer import Inference, infer
from muster.configure.lint import lint_component
from muster.configure.matching import maximal_leaves, require_coverage
from muster.configure.order import order
from muster.configure.provenance import LEFT_OUT, Provenance, edge_settings, provenance_of
from muster.configure.recipe import ManifestFile, Recipe, RecipeComponent, check_recipe
from muster.configure.values import sort_keys
from muster.configure.versions import Range, Scheme, Version
from muster.errors import BadInputError


class Resolution(msgspec.Struct, frozen=True):
    recipe: Recipe
    provenance: Provenance


def resolve(
    criteria: Criteria, catalogue: Catalogue, profiles: Mapping[str, str] | None = None, nodes: int | None = None
) -> Resolution:
    """Resolve `criteria` (dimensions that the user stated) against `catalogue`.

    Raises BadInputError when no overlay carries everything that was stated, when constraints exclude each other, when
    dependencies do not hold together, or when a pin that is needed is not confirmed.
    """
    leaves = maximal_leaves(criteria, catalogue)
    require_coverage(criteria, leaves, catalogue)
    overlays = _overlays(leaves, catalogue)
    state = Drafts(catalogue)
    for overlay in overlays:
        state.apply_overlay(overlay)
    mixins = list(dict.fromkeys(mixin for overlay in overlays for mixin in overlay.mixins))
    for name in mixins:
        mixin = catalogue.mixins[name]
        state.apply(f"mixins/{name}.yaml", mixin.constraints, mixin.components)
    chosen = _choose_profiles(overlays, profiles or {})
    for owner, profile, value in chosen:
        source = f"profile {profile.name}={value} of overlays/{owner}.yaml"
        state.apply(source, profile.values[value].constraints, profile.values[value].components)
    if nodes is not None:
        state.set_node_count(nodes)
    recipe = _finish(
        state,
        criteria,
        catalogue,
        {p.name: v for _, p, v in chosen},
        nodes,
        tuple(o.name for o in overlays),
        tuple(mixins),
    )
    return Resolution(recipe, provenance_of(recipe.components, state.settings))


def _overlays(leaves: Iterable[str], catalogue: Catalogue) -> tuple[Overlay, ...]:
    """The chains of `leaves`, each overlay once, parents first."""
    names = dict.fromkeys(name for leaf in leaves for name in catalogue.chain(leaf))
    return tuple(catalogue.overlays[name] for name in names)


def profile_names(criteria: Criteria, catalogue: Catalogue) -> tuple[str, ...]:
    """Profiles that a recipe for `criteria` has, in the order of its overlays."""
    overlays = _overlays(maximal_leaves(criteria, catalogue), catalogue)
    return tuple(o.profile.name for o in overlays if o.profile is not None)


def _choose_profiles(overlays: Iterable[Overlay], wanted: Mapping[str, str]) -> list[tuple[str, Profile, str]]:
    chosen: list[tuple[str, Profile, str]] = []
    for overlay in overlays:
        profile = overlay.profile
        if profile is None:
            continue
        if any(profile.name == other.name for _, other, _ in chosen):
            raise BadInputError(
                f"Two overlays of this recipe define the profile {profile.name!r}; the catalogue must be mended."
            )
        value = wanted.get(profile.name, profile.default)
        if value not in profile.values:
            raise BadInputError(
                f"Profile {profile.name} has no value {value[:60]!r}; choose {' or '.join(profile.values)}."
            )
        chosen.append((overlay.name, profile, value))
    unknown = sorted(set(wanted) - {p.name for _, p, _ in chosen})
    if unknown:
        known = ", ".join(p.name for _, p, _ in chosen) or "none"
        raise BadInputError(f"This recipe has no profile {unknown[0][:60]!r}; profiles here: {known}.")
    return chosen


def _finish(
    state: Drafts,
    criteria: Criteria,
    catalogue: Catalogue,
    profiles: Mapping[str, str],
    nodes: int | None,
    overlays: tuple[str, ...],
    mixins: tuple[str, ...],
) -> Recipe:
    enabled = {name: draft for name, draft in sorted(state.drafts.items()) if draft.enabled}
    for name, draft in enabled.items():
        if draft.component.unavailable:
            raise BadInputError(
                f"This recipe needs the component {name}, which is not usable yet: {draft.component.unavailable}."
            )
        if draft.component.kube_version:
            state.demand_kubernetes(draft.component)
    components = {name: _component(draft, enabled, state, catalogue) for name, draft in enabled.items()}
    components = {name: _on_held_nodes(component, state) for name, component in components.items()}
    inference = infer(components.values(), criteria.get(Dimension.SERVICE, ""))
    if inference.unmet:
        raise BadInputError(str(inference.unmet[0]))
    components = _with_edges(components, inference)
    _record_edges(state, components, inference)
    _require_pins(state, components)
    for component in components.values():
        lint_component(component, "catalogue")
    found = order({name: c.depends_on for name, c in components.items()})
    recipe = Recipe(
        catalogue=catalogue.digest,
        layers=catalogue.layers,
        criteria={d.value: criteria[d] for d in Dimension if d in criteria},
        nodes=nodes,
        profiles=dict(sorted(profiles.items())),
        overlays=overlays,
        mixins=mixins,
        constraints={name: c.value for name, c in sorted(state.constraints.items())},
        checks={
            phase: Checks(checks=tuple(names), constraints={n: c.value for n, c in sorted(constraints.items())})
            for phase, (names, constraints) in sorted(state.checks.items())
            if names or constraints
        },
        components=tuple(components[name] for name in found.sequence),
        disabled=tuple(sorted(name for name, draft in state.drafts.items() if not draft.enabled)),
        levels=found.levels,
    )
    check_recipe(recipe, "The resolved recipe")
    return recipe


def _component(draft: Draft, enabled: Mapping[str, Draft], state: Drafts, catalogue: Catalogue) -> RecipeComponent:
    entry = draft.component
    source = entry.source
    if source.kind is SourceKind.HELM:
        source = type(source)(
            kind=source.kind, repository=source.repository, chart=source.chart, version=draft.version
        )
    for needed in draft.depends_on:
        if needed not in state.drafts:
            import difflib

            close = difflib.get_close_matches(needed, state.drafts, n=1)
            hint = f"did you mean {close[0]!r}" if close else "add it or drop the dependency"
            raise BadInputError(
                f"Component {entry.name!r} depends on {needed!r}, which is not part of the recipe; {hint}."
            )

    def files(names: Iterable[str]) -> tuple[ManifestFile, ...]:
        return tuple(ManifestFile(name=n, objects=catalogue.manifests.get(f"{entry.name}/{n}")) for n in names)

    return RecipeComponent(
        name=entry.name,
        source=source,
        namespace=entry.namespace,
        # A component that the recipe turned off is not waited for.
        depends_on=tuple(sorted(n for n in draft.depends_on if n in enabled)),
        gate=entry.gate,
        timeout_s=entry.timeout_s,
        crds=entry.crds,
        storage=entry.storage,
        needs=entry.needs,
        health=entry.health,
        placement=entry.placement,
        secrets=entry.secrets,
        aliases=entry.aliases,
        namespace_labels=dict(sorted(draft.namespace_labels.items())),
        pre_manifests=files(draft.pre),
        post_manifests=files(draft.post),
        values=sort_keys(draft.values),
    )


def _on_held_nodes(component: RecipeComponent, state: Drafts) -> RecipeComponent:
    changed, written = on_held_nodes(component)
    for entry in written:
        carried = f", added to the chart's own ({entry.default_source})" if entry.default_source else ""
        state.record(f"{component.name}:{entry.path}", f"{REASON}{carried}", entry.value, entry.before)
    return changed


def with_inferred_edges(components: Mapping[str, RecipeComponent], service: str = "") -> dict[str, RecipeComponent]:
    """The components with every inferred edge that nobody declared, worked out anew."""
    return _with_edges(components, infer(components.values(), service))


def _with_edges(components: Mapping[str, RecipeComponent], inference: Inference) -> dict[str, RecipeComponent]:
    result: dict[str, RecipeComponent] = {}
    for name, component in components.items():
        declared = [n for n in component.depends_on if n not in component.inferred]
        added = dict(inference.edges.get(name, {}))
        result[name] = msgspec.structs.replace(
            component, depends_on=tuple(sorted([*declared, *added])), inferred=added
        )
    return result


def _record_edges(state: Drafts, components: Mapping[str, RecipeComponent], inference: Inference) -> None:
    for path, setting in edge_settings(components.values(), inference).items():
        state.record(path, setting.source, setting.value)
    for name in components:
        for needed in state.drafts[name].depends_on:
            if needed not in components:
                state.record(f"{name}.dependsOn.{needed}", f"{needed} is turned off in this recipe", LEFT_OUT)


def _require_pins(state: Drafts, components: Mapping[str, RecipeComponent]) -> None:
    """A floor such as `gpu-operator.version` must hold for the version that the recipe pins."""
    demanded = [
        *state.constraints.values(),
        *(c for _, constraints in state.checks.values() for c in constraints.values()),
    ]
    for constraint in demanded:
        component = components.get(constraint.name.removesuffix(".version"))
        if component is None or component.source.kind is not SourceKind.HELM:
            continue
        try:
            pinned = Version.parse(component.source.version, Scheme.CHART)
        except BadInputError as error:
            raise BadInputError(
                f"{component.name} has the version {component.source.version[:60]!r}, which is no exact version; pin "
                "one, for example v1.20.2."
            ) from error
        if not Range.parse(constraint.value, Scheme.CHART).contains(pinned):
            who = ", ".join(d.source for d in constraint.demands)
            raise BadInputError(
                f"{component.name} is pinned to {component.source.version}, but {who} demands {constraint.value}; "
                "change the pin or the demand."
            )


def leaf_names(catalogue: Catalogue) -> tuple[str, ...]:
    """Overlays that no other overlay is based on, the ones that stand for everything (no criteria) left out."""
    bases = {o.base for o in catalogue.overlays.values()}
    return tuple(sorted(n for n, o in catalogue.overlays.items() if n not in bases and n != ROOT and o.criteria))
