"""The assertions of a recipe against a live cluster. Pure: same state, same answer, in the same order.

Everything follows from the plan and from what the releases own; nothing is expected by a literal name. A result is
unknown wherever something that it rests on could not be read, and unknown is never a pass.
"""

from __future__ import annotations

from collections.abc import Mapping

from muster.configure.live.agents import agent_checks
from muster.configure.live.check import FAILED, PASSED, UNKNOWN, Check
from muster.configure.live.nodes import constraint_checks
from muster.configure.live.objects import object_checks
from muster.configure.live.ownership import Possessions, possessions
from muster.configure.live.releases import release_checks
from muster.configure.live.state import LiveState
from muster.configure.plan import Plan
from muster.configure.recipe import Recipe
from muster.plain_text import plain
from muster.resources.baseline import Assertion

MAX_NAME = 600
_RANK = {PASSED: 0, UNKNOWN: 1, FAILED: 2}


def checks(
    recipe: Recipe, plan: Plan, live: LiveState, belongings: Mapping[str, Possessions] | None = None
) -> tuple[Check, ...]:
    """Constraints first, then the components in the order of their deployment; each name once."""
    found = [*constraint_checks(recipe, live), *agent_checks(live)]
    releases = release_checks(plan, live)
    belongings = possessions(plan, live) if belongings is None else belongings
    for component in recipe.components:
        found += [check for check in releases if check.component == component.name]
        mine = belongings.get(component.name)
        if mine is not None:
            found += sorted(object_checks(recipe, component, mine, live), key=lambda check: check.name)
    by_name: dict[str, Check] = {}
    for check in found:
        other = by_name.get(check.name)
        # Two kinds of one name in different groups share a name here; the worse result speaks for both.
        by_name[check.name] = check if other is None else max(other, check, key=lambda c: _RANK[c.result])
    return tuple(by_name.values())


def assess(recipe: Recipe, plan: Plan, live: LiveState) -> tuple[Assertion, ...]:
    """Every assertion with its result; `plan` is the plan of `recipe`."""
    return tuple(
        Assertion(name=plain(check.name, MAX_NAME), result=check.result, message=check.message)
        for check in checks(recipe, plan, live)
    )
