"""The test programs of certification runs: the ranks meet, work, and report what the truth makes them measure."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from muster.clock import Clock
from muster.resources.base import CERTIFICATION_LABEL, RUN_SPEC_ANNOTATION
from muster.sim.kubelet import End, Kubelets
from muster.sim.pods import Pod
from muster.sim.tasks import TaskSet
from muster.sim.tests_model import WATCHDOG_S, Report, RunSpec, parse_run_spec, silent_rank_report, simulate_run
from muster.sim.world import World


@dataclass
class _Run:
    certification: str
    spec: RunSpec
    ranks: dict[int, Pod] = field(default_factory=dict)
    """Ranks whose containers run now."""
    work: asyncio.Task[None] | None = None
    broken: bool = False


class CertificationRuns:
    """Plays every test pod of the fleet. A run begins when all its ranks run; until then they wait for each other."""

    def __init__(self, clock: Clock, world: World, kubelets: Kubelets, tasks: TaskSet) -> None:
        self._clock = clock
        self._world = world
        self._kubelets = kubelets
        self._tasks = tasks
        self._runs: dict[tuple[str, str], _Run] = {}
        for signals in (world.on_gpu_fault, world.on_gpu_hang):  # test programs have a watchdog: they never hang
            signals.append(self._gpu_fault)

    def owns(self, pod: Pod) -> bool:
        return CERTIFICATION_LABEL in pod.labels

    def started(self, pod: Pod) -> None:
        spec = parse_run_spec(pod.annotations.get(RUN_SPEC_ANNOTATION, ""))
        if spec is None or spec.nodes[spec.rank] != pod.node:
            message = f"harness error: the annotation {RUN_SPEC_ANNOTATION} is missing or does not fit this pod"
            self._kubelets.exit(pod, 1, Report(pod.node, False, reason="harness", message=message).encode())
            return
        key = (pod.labels[CERTIFICATION_LABEL], spec.run)
        run = self._runs.setdefault(key, _Run(key[0], spec))
        run.ranks[spec.rank] = pod
        if len(run.ranks) == len(spec.nodes) and run.work is None:
            run.work = self._tasks.start(self._work(run))

    def stopped(self, pod: Pod, end: End) -> None:  # noqa: ARG002 - however a rank stops, the others miss it
        for key, run in list(self._runs.items()):
            rank = next((r for r, p in run.ranks.items() if p.uid == pod.uid), None)
            if rank is None:
                continue
            del run.ranks[rank]
            if not run.ranks:
                del self._runs[key]
            if run.work is not None and not run.work.done() and not run.broken:
                run.broken = True
                run.work.cancel()
                run.work = self._tasks.start(self._give_up(run, pod.node))

    def ignores_sigterm(self, pod: Pod) -> bool:  # noqa: ARG002 - the watchdog of a test program ends it
        return False

    async def _work(self, run: _Run) -> None:
        outcome = simulate_run(self._world, run.certification, run.spec)
        await self._clock.sleep(outcome.duration_s)
        run.broken = True  # from here on the ranks leave one by one, and nobody misses the others
        for rank, report in enumerate(outcome.reports):
            if rank in run.ranks:
                self._report(run.ranks[rank], report)

    async def _give_up(self, run: _Run, gone: str) -> None:
        """The remaining ranks wait for the one that went away until their watchdog ends them."""
        await self._clock.sleep(WATCHDOG_S)
        for _, pod in sorted(run.ranks.items()):
            self._report(pod, silent_rank_report(pod.node, gone))

    def _report(self, pod: Pod, report: Report) -> None:
        self._kubelets.exit(pod, 0 if report.ok else 1, report.encode())

    def _gpu_fault(self, node: str) -> None:
        """A GPU of the node fails now: the program on it dies with the driver's error."""
        for run in list(self._runs.values()):
            for pod in list(run.ranks.values()):
                if pod.node == node:
                    message = "the driver reported an error on a GPU of this node while the test ran"
                    self._report(pod, Report(node, False, reason="crash", suspects=(node,), message=message))
