"""One comparison of the cluster with a baseline: read, assess, find the drift."""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable, Mapping

from muster import yamlio
from muster.clock import Clock
from muster.configure import lock
from muster.configure.live.assess import assess
from muster.configure.live.drift import drift
from muster.configure.live.read import Memory, read
from muster.configure.live.state import LiveState
from muster.configure.plan import Plan, plan
from muster.configure.recipe import Recipe
from muster.controller.baseline_report import Comparison
from muster.kube.api import ForbiddenError, KubeApi
from muster.resources.baseline import BaselineSpec

SOURCE = "spec.recipe"
MAX_KEPT = 8
"""Recipes whose plan and Helm records are kept between comparisons."""


@dataclasses.dataclass
class _Kept:
    recipe: Recipe
    plan: Plan
    memory: Memory


class ClusterComparison:
    """Compares one cluster. `version` asks its API server for its version."""

    def __init__(self, api: KubeApi, clock: Clock, version: Callable[[], Awaitable[str]]) -> None:
        self._api = api
        self._clock = clock
        self._version = version
        self._kept: dict[str, _Kept] = {}

    async def __call__(self, spec: BaselineSpec) -> Comparison:
        """Raises BadInputError for a recipe that cannot be used, ApiError and UnreachableError for the cluster."""
        kept = self._recipe(spec.recipe)
        live = await read(
            self._api,
            kept.recipe,
            kept.plan,
            now=self._clock.now(),
            kubernetes_version=await self._version_told(),
            memory=kept.memory,
        )
        live = dataclasses.replace(on_nodes(live, spec.node_selector), confirmed=spec.confirmed)
        return Comparison(
            recipe_digest=kept.recipe.digest,
            assertions=assess(kept.recipe, kept.plan, live),
            drifts=drift(kept.recipe, kept.plan, live),
        )

    async def _version_told(self) -> str:
        """Empty where it may not be read: what rests on it is then unknown, and the rest is compared all the same."""
        try:
            return await self._version()
        except ForbiddenError as error:
            if error.code == 401:
                raise
            return ""

    def _recipe(self, text: str) -> _Kept:
        """Parsing takes longer than comparing, and a baseline seldom changes."""
        kept = self._kept.pop(text, None)
        if kept is None:
            recipe = lock.parse(yamlio.loads(text, SOURCE), SOURCE)
            kept = _Kept(recipe, plan(recipe), Memory())
        self._kept[text] = kept
        while len(self._kept) > MAX_KEPT:
            del self._kept[next(iter(self._kept))]
        return kept


def on_nodes(live: LiveState, selector: Mapping[str, str]) -> LiveState:
    """`live` with the nodes that carry every label of `selector` alone."""
    if not selector:
        return live
    nodes = tuple(node for node in live.nodes if selector.items() <= node.labels.items())
    names = {node.name for node in nodes}
    healths = tuple(health for health in live.node_healths if health.metadata.name in names)
    return dataclasses.replace(live, nodes=nodes, node_healths=healths)
