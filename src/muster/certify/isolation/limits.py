"""How much evidence blame takes: thresholds that keep the allowed probability of a false blame."""

from __future__ import annotations

from dataclasses import dataclass

from muster.certify.isolation.plan import Plan

SHARE_LOCAL, SHARE_PAIR, SHARE_GROUP, SHARE_LINK = 0.15, 0.55, 0.15, 0.15
"""How the allowed probability of false blame is split over the kinds of verdict."""


@dataclass(frozen=True)
class Limits:
    """Ratios from which on a suspect is condemned, so that the error bound of the whole certification holds."""

    local: float
    pair: float
    group: float
    link: float
    link_odds: float
    """Least odds of a bad link against a bad end. The link to any partner of a flaky node may look bad by chance, and
    there are as many partners as matchings and a few more."""

    @classmethod
    def of(cls, plan: Plan) -> Limits:
        nodes = max(1, sum(len(cell.targets) + len(cell.partners) for cell in plan.cells))
        links = max(1.0, nodes / 2 * (plan.matchings + 1))
        error = plan.budget.max_false_blame
        tests = max(1, len(plan.local_tests()))
        groups = max(1, len(plan.group_tests()))
        return cls(
            local=nodes * tests / (error * SHARE_LOCAL),
            pair=nodes / (error * SHARE_PAIR),
            group=nodes * groups / (error * SHARE_GROUP),
            link=links / (error * SHARE_LINK),
            link_odds=(plan.matchings + 2) / error,
        )
