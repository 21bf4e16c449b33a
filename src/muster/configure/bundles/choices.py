"""Everything a person chooses when building a bundle, applied to a recipe in one place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from muster.configure.bundles.overrides import (
    FileValues,
    Override,
    parse_overrides,
    require_known_paths,
    with_manifests,
    with_overrides,
)
from muster.configure.bundles.placement import PlacementChoice, placed
from muster.configure.catalogue import Entry
from muster.configure.recipe import Recipe
from muster.errors import BadInputError

Objects = list[dict[str, Any]]
NOWHERE = PlacementChoice()
"""Chooses no place."""


@dataclass(frozen=True, slots=True)
class Choices:
    """Choices about one recipe. `--set` wins over `--set-file`, and both over the placement."""

    overrides: tuple[Override, ...] = ()
    files: tuple[FileValues, ...] = ()
    placement: PlacementChoice = NOWHERE
    manifests: Mapping[str, Objects] = field(default_factory=dict)


class RecordedChoices(Entry, frozen=True, kw_only=True):
    """Choices as `bundle.yaml` holds them."""

    set: tuple[str, ...] = ()
    set_files: dict[str, dict[str, Any]] = {}
    placement: PlacementChoice = PlacementChoice()
    manifests: tuple[str, ...] = ()
    """Names of supplied manifests; the bundle holds them under `supplied/`."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """A recipe with choices applied.

    `kept`: paths that a placement left as the recipe sets them. `unmet`: sentences about CRDs that a component which
    was left out would have brought.
    """

    recipe: Recipe
    kept: tuple[str, ...] = ()
    unmet: tuple[str, ...] = ()


def apply_choices(recipe: Recipe, choices: Choices, allow_unknown: bool = True) -> Chosen:
    """Apply `choices`. Raises BadInputError when one of them cannot be used.

    `allow_unknown`: accept value paths that the recorded values of a chart lack.
    """
    changed = recipe
    if choices.overrides or choices.files:
        changed = with_overrides(recipe, choices.overrides, choices.files)
        if not allow_unknown:
            require_known_paths(recipe, choices.overrides, choices.files)
    found = placed(changed, choices.placement)
    result = with_manifests(found.recipe, choices.manifests)
    return Chosen(result, found.kept, () if changed is recipe and not choices.manifests else _unmet(recipe, result))


def _unmet(locked: Recipe, changed: Recipe) -> tuple[str, ...]:
    """Needs that nobody meets since a component was left out; the cluster may have the CRDs from elsewhere.

    Raises BadInputError for a need that no component of `locked` would meet: its release could never start.
    """
    # Inference is a quarter of what a plain bundle would import.
    from muster.configure.infer import infer

    provided = {crd for component in locked.components for crd in component.crds.provides}
    service = changed.criteria.get("service", "")
    before = {str(unmet) for unmet in infer(locked.components, service).unmet}
    fresh = [u for u in infer(changed.components, service).unmet if str(u) not in before]
    for unmet in fresh:
        if unmet.crd not in provided:
            raise BadInputError(str(unmet))
    return tuple(f"{unmet} Or make sure that the cluster has it already." for unmet in fresh)


def record(choices: Choices) -> RecordedChoices:
    """Choices in the form that is written into a bundle."""
    return RecordedChoices(
        set=tuple(str(override) for override in choices.overrides),
        set_files={file.component: dict(file.values) for file in choices.files},
        placement=choices.placement,
        manifests=tuple(sorted(choices.manifests)),
    )


def recall(recorded: RecordedChoices, manifests: Mapping[str, Objects], recipe: Recipe) -> Choices:
    """The choices of a bundle; `manifests` holds the supplied ones. Raises BadInputError."""
    names = {component.name for component in recipe.components}
    if unknown := sorted(set(recorded.set_files) - names):
        raise BadInputError(f"The bundle sets values of {unknown[0][:60]!r}, which its recipe lacks; build it again.")
    return Choices(
        overrides=parse_overrides(recorded.set, recipe),
        files=tuple(FileValues(name, values) for name, values in recorded.set_files.items()),
        placement=recorded.placement,
        manifests=manifests,
    )
