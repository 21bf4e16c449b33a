"""The runner of a cluster: runs of Muster's own programs go to the workers, runs with an image of their own to pods.

A node's GPUs belong to one of them at a time: before pods with images of their own start, the workers go, and they
come back for the next run that needs them. Plans that keep such tests together pay for that once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace

from muster.certify.measure import RankEnd
from muster.certify.runners import Owner, Tell, Work
from muster.certify.runners.pods import PodRunner
from muster.certify.runners.workers import WorkerRunner


class ClusterRunner:
    """Sends each run to the runner that can carry it out."""

    def __init__(self, workers: WorkerRunner, pods: PodRunner) -> None:
        self._workers = workers
        self._pods = pods

    async def run(self) -> None:
        """Watch for ever what both have in the cluster."""
        watches = [asyncio.ensure_future(self._workers.run()), asyncio.ensure_future(self._pods.run())]
        try:
            await asyncio.gather(*watches)
        finally:
            for watch in watches:
                watch.cancel()
            await asyncio.gather(*watches, return_exceptions=True)

    async def wait_synced(self) -> None:
        """Return when everything that runs is known."""
        await self._workers.wait_synced()
        await self._pods.wait_synced()

    def certifications(self) -> tuple[str, ...]:
        """Names of the certifications that something in the cluster still belongs to, sorted."""
        return tuple(sorted({*self._workers.certifications(), *self._pods.certifications()}))

    def nodes_of(self, certification: str) -> tuple[str, ...]:
        """Nodes that it still uses, sorted."""
        return tuple(sorted({*self._workers.nodes_of(certification), *self._pods.nodes_of(certification)}))

    def forget(self, certification: str) -> None:
        """Nothing of the certification is under way here any more."""
        self._workers.forget(certification)
        self._pods.forget(certification)

    async def carry_out(self, work: Work, blocked: Tell) -> Mapping[str, tuple[RankEnd, ...]]:
        """First the runs in workers, then, with the workers gone, those with images of their own."""
        inside = tuple(run for run in work.runs if not work.tests[run.test].command)
        outside = tuple(run for run in work.runs if work.tests[run.test].command)
        ends: dict[str, tuple[RankEnd, ...]] = {}
        if inside:
            await self._pods.clean(work.owner, frozenset(), blocked)
            ends |= await self._workers.carry_out(replace(work, runs=inside), blocked)
        if outside:
            await self._workers.clean(work.owner, frozenset(), blocked)
            ends |= await self._pods.carry_out(replace(work, runs=outside), blocked)
        return {run.id: ends[run.id] for run in work.runs}

    async def clean(self, owner: Owner, keep: frozenset[str], blocked: Tell) -> None:
        """End everything of certifications of this name but what the runs `keep` of `owner` need; see it gone."""
        await self._pods.clean(owner, keep, blocked)
        await self._workers.clean(owner, keep, blocked)
