"""What can be wrong with a locked recipe although its digest is right. Pure, except for the paths of charts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

from muster.configure.constraints import demand
from muster.configure.infer import infer
from muster.configure.lint import lint_component
from muster.configure.recipe import Pool, Recipe, RecipeComponent
from muster.configure.values import Path, path_text, whole_leaves
from muster.errors import BadInputError


class Paths(Protocol):
    """Value paths that a chart knows."""

    def unknown(self, path: Path) -> str | None:
        """A suggestion, or an empty text, when the chart knows no such path; None when it does."""
        ...


def require_sound(recipe: Recipe, source: str, paths_of: Callable[[str], Paths | None]) -> None:
    """Raise BadInputError for the first meaningless constraint, literal secret, wrong inferred edge, unmet need or
    unknown value path.

    Names, versions, addresses, edges and levels are verified when the recipe is read.
    """
    _require_constraints(recipe, source)
    for component in recipe.components:
        lint_component(component, source)
    _require_inferred(recipe, source)
    for component in recipe.components:
        known = paths_of(component.catalogue_name)
        if known is not None:
            _require_known(component, known, source)


def _require_constraints(recipe: Recipe, source: str) -> None:
    holders: tuple[Recipe | Pool, ...] = (recipe, *recipe.pools)
    checked = (constraints for holder in holders for _, constraints in sorted(holder.checks.items()))
    for constraints in (*(holder.constraints for holder in holders), *(c.constraints for c in checked)):
        for name, text in constraints.items():
            try:
                demand(name, text, source)
            except BadInputError as error:
                raise BadInputError(f"{source}, constraint {name[:60]!r}: {error}") from error


def _require_inferred(recipe: Recipe, source: str) -> None:
    inference = infer(recipe.components, recipe.criteria.get("service", ""))
    if inference.unmet:
        raise BadInputError(f"{source}: {inference.unmet[0]}")
    for component in recipe.components:
        wanted = inference.edges.get(component.name, {})
        if list(wanted) != sorted(component.inferred):
            raise BadInputError(
                f"{source}, component {component.name!r}: its inferred edges are "
                f"{', '.join(sorted(component.inferred)) or 'none'} and should be {', '.join(wanted) or 'none'}; "
                "resolve the recipe again with 'muster recipe'."
            )


def _require_known(component: RecipeComponent, known: Paths, source: str) -> None:
    found = list(_unknown(component, known))
    if found:
        path, suggestion = found[0]
        hint = f"did you mean {suggestion}?" if suggestion else "correct or remove it."
        more = f" ({len(found) - 1} more such paths follow)" if len(found) > 1 else ""
        raise BadInputError(
            f"{source}: the chart of {component.name} has no value {component.name}:{path_text(path)}{more}; {hint}"
        )


def _unknown(component: RecipeComponent, known: Paths) -> Iterator[tuple[Path, str]]:
    for path, _ in whole_leaves(component.values):
        suggestion = known.unknown(path)
        if suggestion is not None:
            yield path, suggestion
