"""One comparison for a Baseline: what may not be read is unknown, a refused login is an error."""

from __future__ import annotations

import pytest

from muster.configure import lock
from muster.controller.baseline_compare import ClusterComparison
from muster.controller.baseline_report import Comparison
from muster.kube.api import ForbiddenError
from muster.resources.baseline import AssertionResult, BaselineSpec
from muster.sim.virtual import VirtualClock, run_virtual
from tests.live.bed import World, component, recipe_of

RECIPE = recipe_of(component("op"), constraints={"kubernetes.version": ">= 1.30"})


def compared(code: int) -> Comparison:
    async def version() -> str:
        if code:
            raise ForbiddenError(code, "Forbidden", "no")
        return "v1.34.1"

    async def main(clock: VirtualClock) -> Comparison:
        world = World(clock, RECIPE)
        await world.install("op")
        return await ClusterComparison(world.api, clock, version)(BaselineSpec(recipe=lock.write(RECIPE)))

    return run_virtual(main)


@pytest.mark.parametrize(("code", "result"), [(0, AssertionResult.PASSED), (403, AssertionResult.UNKNOWN)])
def test_a_version_that_may_not_be_read_is_unknown_and_the_rest_is_compared(
    code: int, result: AssertionResult
) -> None:
    found = compared(code)
    results = {a.name: a.result for a in found.assertions}
    assert results["constraint/kubernetes.version"] is result
    assert results["op/Release/op/op"] is AssertionResult.PASSED
    assert found.drifts == ()


def test_a_refused_login_is_no_comparison() -> None:
    with pytest.raises(ForbiddenError):
        compared(401)
