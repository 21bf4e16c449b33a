"""How much evidence blame takes: thresholds that keep the allowed probability of a false blame."""

from __future__ import annotations

from dataclasses import dataclass

from muster.certify.isolation.plan import Plan

SHARE_LOCAL, SHARE_NUMBER, SHARE_PAIR, SHARE_GROUP, SHARE_LINK, SHARE_SHARED = 0.1, 0.05, 0.55, 0.1, 0.15, 0.05
"""How the allowed probability of false blame is split over the kinds of verdict."""


@dataclass(frozen=True)
class Limits:
    """Ratios from which on a suspect is condemned, so that the error bound of the whole certification holds."""

    local: float
    number: float
    """Of nodes whose numbers lie low on average."""
    number_blame: float
    """Probability of false blame that the numbers of one test may use up."""
    pair: float
    group: float
    link: float
    link_odds: float
    """Least odds of a bad link against a bad end. The link to any partner of a flaky node may look bad by chance, and
    there are as many partners as matchings and a few more."""
    shared: float
    """Of trunks, ways out, racks, and all that lies between domains."""

    @classmethod
    def of(cls, plan: Plan) -> Limits:
        nodes = max(1, sum(len(cell.targets) + len(cell.partners) for cell in plan.cells))
        links = max(1.0, nodes / 2 * (plan.matchings + 1))
        error = plan.budget.max_false_blame
        tests = max(1, len(plan.local_tests()))
        groups = max(1, len(plan.group_tests()))
        domains = len({m.domain for cell in plan.cells for m in (*cell.targets, *cell.partners)})
        return cls(
            local=nodes * tests / (error * SHARE_LOCAL),
            number=2 * nodes * tests / (error * SHARE_NUMBER),
            number_blame=error * SHARE_NUMBER / (2 * tests),
            pair=nodes / (error * SHARE_PAIR),
            group=nodes * groups / (error * SHARE_GROUP),
            link=links / (error * SHARE_LINK),
            link_odds=(plan.matchings + 2) / error,
            shared=(domains * (domains + 3) / 2 + 1) / (error * SHARE_SHARED),
        )
