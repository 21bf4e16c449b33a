"""Resolution: criteria and a catalogue in, a recipe and the provenance of every value out. Pure and deterministic."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from muster.configure.catalogue import (
    ROOT,
    Catalogue,
    Checks,
    Component,
    Overlay,
    Patch,
    Profile,
    SourceKind,
)  # fmt: skip
from muster.configure.constraints import Constraint, narrow
from muster.configure.criteria import Criteria, Dimension
from muster.configure.infer import inferred_edges
from muster.configure.lint import lint_values
from muster.configure.matching import maximal_leaves, require_coverage
from muster.configure.order import order
from muster.configure.recipe import ManifestFile, Recipe, RecipeComponent, check_recipe
from muster.configure.values import ABSENT, Path, Values, merge, parse_path, path_text, put, sort_keys
from muster.configure.versions import Range, Scheme, Version
from muster.errors import BadInputError


@dataclass(frozen=True, slots=True)
class Setting:
    """Somebody set a value: which file, to what, and what it replaced (None: nothing was there)."""

    source: str
    value: Any
    replaced: tuple[Any, str] | None = None


Provenance = Mapping[str, tuple[Setting, ...]]
"""`component:path` -> settings, the deciding one last. Constraints are keyed `constraint:<name>`."""


@dataclass(frozen=True, slots=True)
class Resolution:
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
    names = list(dict.fromkeys(name for leaf in leaves for name in catalogue.chain(leaf)))
    state = _State(catalogue)
    for name in names:
        state.apply_overlay(catalogue.overlays[name])
    mixins = list(dict.fromkeys(mixin for name in names for mixin in catalogue.overlays[name].mixins))
    for name in mixins:
        mixin = catalogue.mixins[name]
        state.apply(f"mixins/{name}.yaml", mixin.constraints, mixin.components)
    chosen = _choose_profiles([catalogue.overlays[name] for name in names], profiles or {})
    for overlay, profile, value in chosen:
        source = f"profile {profile.name}={value} of overlays/{overlay}.yaml"
        state.apply(source, profile.values[value].constraints, profile.values[value].components)
    if nodes is not None:
        state.set_node_count(nodes)
    recipe = _finish(
        state, criteria, catalogue, {p.name: v for _, p, v in chosen}, nodes, tuple(names), tuple(mixins)
    )
    return Resolution(recipe, {path: tuple(settings) for path, settings in sorted(state.settings.items())})


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


@dataclass
class _Draft:
    """A component while overlays are merged into it."""

    component: Component
    enabled: bool = True
    version: str = ""
    depends_on: list[str] = field(default_factory=list)
    pre: list[str] = field(default_factory=list)
    post: list[str] = field(default_factory=list)
    namespace_labels: dict[str, str] = field(default_factory=dict)
    values: Values = field(default_factory=dict)


class _State:
    """Everything merged so far."""

    def __init__(self, catalogue: Catalogue) -> None:
        self.catalogue = catalogue
        self.drafts: dict[str, _Draft] = {}
        self.constraints: dict[str, Constraint] = {}
        self.checks: dict[str, tuple[list[str], dict[str, Constraint]]] = {}
        self.settings: dict[str, list[Setting]] = {}

    def apply_overlay(self, overlay: Overlay) -> None:
        source = f"overlays/{overlay.name}.yaml"
        self.apply(source, overlay.constraints, overlay.components)
        for phase, wanted in overlay.checks.items():
            self._apply_checks(phase, wanted, source)

    def apply(self, source: str, constraints: Mapping[str, str], components: Mapping[str, Patch]) -> None:
        for name, text in constraints.items():
            self._narrow(self.constraints, name, text, source)
        for name, patch in components.items():
            self._apply_patch(self._draft(name), patch, source)

    def set_node_count(self, nodes: int) -> None:
        for name in sorted(self.drafts):
            for text in self.drafts[name].component.node_count_paths:
                put(self.drafts[name].values, parse_path(text), nodes)
                self._record(f"{name}:{text}", "--nodes", nodes)

    def demand_kubernetes(self, text: str, source: str) -> None:
        self._narrow(self.constraints, "kubernetes.version", text, source)

    def _draft(self, name: str) -> _Draft:
        if name not in self.drafts:
            component = self.catalogue.components[name]
            draft = self.drafts[name] = _Draft(component, version=component.source.version)
            source = f"components/{name}.yaml"
            if draft.version:
                self._record(f"{name}:version", source, draft.version)
            draft.pre.extend(component.manifests.pre)
            draft.post.extend(component.manifests.post)
            merge(draft.values, component.values, self._recorder(name, source))
        return self.drafts[name]

    def _apply_patch(self, draft: _Draft, patch: Patch, source: str) -> None:
        name = draft.component.name
        if patch.enabled is not None:
            draft.enabled = patch.enabled
            self._record(f"{name}:enabled", source, patch.enabled)
        if patch.version:
            draft.version = patch.version
            self._record(f"{name}:version", source, patch.version)
        for target, added in (
            (draft.depends_on, patch.depends_on),
            (draft.pre, patch.manifests.pre),
            (draft.post, patch.manifests.post),
        ):
            target.extend(item for item in added if item not in target)
        draft.namespace_labels.update(patch.namespace_labels)
        merge(draft.values, patch.values, self._recorder(name, source))

    def _apply_checks(self, phase: str, wanted: Checks, source: str) -> None:
        names, constraints = self.checks.setdefault(phase, ([], {}))
        if not wanted.checks:
            names.clear()
            constraints.clear()
        names.extend(name for name in wanted.checks if name not in names)
        for name, text in wanted.constraints.items():
            self._narrow(constraints, name, text, source)

    def _narrow(self, constraints: dict[str, Constraint], name: str, text: str, source: str) -> None:
        before = constraints.get(name)
        constraints[name] = narrow(before, name, text, source)
        # A demand that changes nothing did not set the value.
        if before is None or before.value != constraints[name].value:
            self._record(f"constraint:{name}", source, constraints[name].value)

    def _recorder(self, component: str, source: str) -> Any:
        def record(path: Path, value: Any, present: Any) -> None:
            self._record(f"{component}:{path_text(path)}", source, value, present)

        return record

    def _record(self, path: str, source: str, value: Any, present: Any = ABSENT) -> None:
        settings = self.settings.setdefault(path, [])
        replaced = None
        if settings:
            replaced = (settings[-1].value, settings[-1].source)
        elif present is not ABSENT:
            replaced = (present, "a map or value around it")
        settings.append(Setting(source, value, replaced))


def _finish(
    state: _State,
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
            state.demand_kubernetes(
                draft.component.kube_version, f"kubeVersion of the chart in components/{name}.yaml"
            )
    components = {name: _component(draft, enabled, state, catalogue) for name, draft in enabled.items()}
    components = with_inferred_edges(components)
    _require_pins(state, components)
    for name, component in components.items():
        lint_values(name, component.values, "catalogue")
    found = order({name: c.depends_on for name, c in components.items()})
    recipe = Recipe(
        catalogue=catalogue.digest,
        criteria={d.value: criteria[d] for d in Dimension if d in criteria},
        nodes=nodes,
        profiles=dict(sorted(profiles.items())),
        overlays=overlays,
        mixins=mixins,
        constraints={name: c.value for name, c in sorted(state.constraints.items())},
        checks={
            phase: Checks(checks=tuple(names), constraints={n: c.value for n, c in sorted(constraints.items())})
            for phase, (names, constraints) in sorted(state.checks.items())
        },
        components=tuple(components[name] for name in found.sequence),
        disabled=tuple(sorted(name for name, draft in state.drafts.items() if not draft.enabled)),
        levels=found.levels,
    )
    check_recipe(recipe, "The resolved recipe")
    return recipe


def _component(draft: _Draft, enabled: Mapping[str, _Draft], state: _State, catalogue: Catalogue) -> RecipeComponent:
    entry = draft.component
    source = entry.source
    if source.kind is SourceKind.HELM:
        source = type(source)(
            kind=source.kind, repository=source.repository, chart=source.chart, version=draft.version
        )
    for needed in draft.depends_on:
        if needed not in state.drafts:
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


def with_inferred_edges(components: Mapping[str, RecipeComponent]) -> dict[str, RecipeComponent]:
    """The components with every inferred edge that nobody declared."""
    import msgspec

    edges = inferred_edges(list(components.values()))
    result: dict[str, RecipeComponent] = {}
    for name, component in components.items():
        declared = tuple(n for n in component.depends_on if n not in component.inferred)
        added = {needed: why for needed, why in sorted(edges.get(name, {}).items()) if needed not in declared}
        depends_on = tuple(sorted([*declared, *added]))
        result[name] = msgspec.structs.replace(component, depends_on=depends_on, inferred=added)
    return result


def _require_pins(state: _State, components: Mapping[str, RecipeComponent]) -> None:
    """A floor such as `gpu-operator.version` must hold for the version that the recipe pins."""
    demanded = [
        *state.constraints.values(),
        *(c for _, constraints in state.checks.values() for c in constraints.values()),
    ]
    for constraint in demanded:
        component = components.get(constraint.name.removesuffix(".version"))
        if component is None or component.source.kind is not SourceKind.HELM:
            continue
        pinned = Version.parse(component.source.version, Scheme.CHART)
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
