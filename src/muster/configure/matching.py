"""Which overlays apply to what was stated, and what to say when none carries all of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from muster.configure import criteria as criteria_module
from muster.configure.catalogue import Catalogue
from muster.configure.criteria import Criteria, Dimension
from muster.errors import BadInputError


def matching(criteria: Criteria, catalogue: Catalogue) -> tuple[str, ...]:
    """Overlays of which every criterion was stated; a dimension that was not stated matches no criterion on it."""
    stated = {d.value: v for d, v in criteria.items()}
    return tuple(
        sorted(n for n, o in catalogue.overlays.items() if all(stated.get(d) == v for d, v in o.criteria.items()))
    )


def maximal_leaves(criteria: Criteria, catalogue: Catalogue) -> tuple[str, ...]:
    """Matching overlays that are no ancestor of another match, least specific first, then by name."""
    matches = matching(criteria, catalogue)
    ancestors = {name for match in matches for name in catalogue.chain(match)[:-1]}
    leaves = (name for name in matches if name not in ancestors)
    return tuple(sorted(leaves, key=lambda name: (len(catalogue.overlays[name].criteria), name)))


def completions(criteria: Criteria, catalogue: Catalogue) -> tuple[Mapping[str, str], ...]:
    """Criteria of usable overlays that hold everything stated and more, smallest first."""
    stated = {d.value: v for d, v in criteria.items()}
    found = [
        o.criteria
        for o in catalogue.overlays.values()
        if stated.items() < o.criteria.items() and not unavailable(o.name, catalogue)
    ]
    return tuple(sorted(found, key=lambda c: (len(c), sorted(c.items()))))


def unavailable(name: str, catalogue: Catalogue) -> str:
    """Why the overlay or one of its ancestors cannot be used yet, or an empty text."""
    return next((why for link in catalogue.chain(name) if (why := catalogue.overlays[link].unavailable)), "")


def require_coverage(criteria: Criteria, leaves: Iterable[str], catalogue: Catalogue) -> None:
    """One applied overlay must carry everything that was stated together.

    Raises BadInputError naming what is missing, with the completions, or what does not fit, with the closest recipes.
    """
    stated = {d.value: v for d, v in criteria.items()}
    for leaf in leaves:
        if catalogue.overlays[leaf].criteria == stated:
            if why := unavailable(leaf, catalogue):
                raise BadInputError(f"The recipe for {criteria_module.text(criteria)} is not usable yet: {why}.")
            return
    said = criteria_module.text(criteria)
    more = completions(criteria, catalogue)
    if more:
        missing = [d.value for d in Dimension if any(d.value in c for c in more) and d.value not in stated]
        needed = [d for d in missing if all(d in c for c in more)] or missing
        listed = "; ".join(" ".join(f"{d}={c[d]}" for d in missing if d in c) for c in more[:12])
        rest = f"; and {len(more) - 12} more" if len(more) > 12 else ""
        raise BadInputError(
            f"No recipe is for {said} alone; state also {' and '.join(needed)}. Add one of: {listed}{rest}."
        )
    if why := _waiting(stated, catalogue):
        raise BadInputError(f"Every recipe for {said} is not usable yet, for example: {why}.")
    closest = _closest(stated, catalogue)
    if not closest:
        raise BadInputError(f"No recipe is for {said}; 'muster recipe list' shows what there is.")
    dropped = [d.value for d in Dimension if d.value in stated and closest[0].get(d.value) != stated[d.value]]
    uncovered = " ".join(f"{d}={stated[d]}" for d in dropped)
    listed = "; ".join(" ".join(f"{d.value}={c[d.value]}" for d in Dimension if d.value in c) for c in closest[:12])
    raise BadInputError(f"No recipe carries {uncovered} in {said}; recipes that come closest: {listed}.")


def _waiting(stated: Mapping[str, str], catalogue: Catalogue) -> str:
    """Why the first recipe that would hold everything stated cannot be used yet, or an empty text."""
    names = sorted(n for n, o in catalogue.overlays.items() if stated.items() <= o.criteria.items())
    return next((why for name in names if (why := unavailable(name, catalogue))), "")


def _closest(stated: Mapping[str, str], catalogue: Catalogue) -> list[Mapping[str, str]]:
    """Criteria that share the most with what was stated and, among those, contradict the least of it."""

    found: dict[tuple[int, int], list[str]] = {}
    for overlay in catalogue.overlays.values():
        shared = len(overlay.criteria.items() & stated.items())
        if shared:
            known = len(overlay.criteria.keys() & stated.keys())
            found.setdefault((-shared, known - shared), []).append(overlay.name)
    for distance in sorted(found):
        usable = [catalogue.overlays[n].criteria for n in found[distance] if not unavailable(n, catalogue)]
        if usable:
            return sorted(usable, key=lambda c: (len(c), sorted(c.items())))
    return []
