"""Behavioural model of isolation by bisection, the published way, to run on the same faults as ours.

    python benchmarks/isolation_reference.py    # the worked examples on 4 racks of 18 nodes

It follows the published state machine and its known defects, not any program: one job for each domain with NVLink
on, the same with NVLink off, one job over one representative of each domain, failed groups split in half down to two
nodes, halves that both pass looked at crosswise with NVLink off, every remaining suspect confirmed once with a
healthy node. One run decides; every node of a failed job is recorded as failed.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field

from muster.certify.isolation.plan import PlannedRun, Role
from muster.certify.truth import Truth
from muster.resources.certification import Outcome

LEAST_GROUP = 2
NARROWINGS = 4


@dataclass
class Bisection:
    """One diagnosis. Call `run` once."""

    truth: Truth
    domains: Sequence[Sequence[str]]
    jobs: int = 0
    rounds: int = 0
    healthy: set[str] = field(default_factory=set)
    suspects: list[str] = field(default_factory=list)
    recorded: set[str] = field(default_factory=set)
    """Nodes that the failed jobs name."""
    confirmed: list[str] = field(default_factory=list)
    paths: list[tuple[tuple[str, ...], tuple[str, ...]]] = field(default_factory=list)
    """Infrastructure faults: between which sets of nodes."""

    def run(self) -> None:
        groups = [tuple(d) for d in self.domains if d]
        with_nvlink = self._bad(groups, nvlink=True)
        without = self._bad(groups, nvlink=False)
        for group in without:
            self.healthy -= set(group)
        # Domains that failed without NVLink only are dropped when another one failed with it.
        failed, nvlink = (with_nvlink, True) if with_nvlink else (without, False)
        firsts = [next((n for n in group if n in self.healthy), "") for group in groups]
        representatives = tuple(name for name in firsts if name)
        work = [(group, nvlink) for group in failed]
        if len(representatives) >= 2 and self._bad([representatives], nvlink=True):
            work.append((representatives, True))
        while work:
            work = self._split(work)
        self._confirm()

    def _bad(self, groups: Sequence[tuple[str, ...]], *, nvlink: bool) -> list[tuple[str, ...]]:
        """Run the groups in one round; those that failed."""
        self.rounds += 1
        failed = []
        for group in groups:
            self.jobs += 1
            test = "all-to-all" if nvlink else "all-to-all-net"
            run = PlannedRun(f"job-{self.jobs}", self.rounds, test, group, Role.CONFIRM, 0)
            if self.truth.record(run).outcome is Outcome.FAIL:
                failed.append(group)
                self.recorded |= set(group)
            else:
                self.healthy |= set(group)
        return failed

    def _split(self, work: list[tuple[tuple[str, ...], bool]]) -> list[tuple[tuple[str, ...], bool]]:
        """One round of halves. Halves that both pass are looked at crosswise before the next one."""
        for group, _ in work:
            if len(group) <= LEAST_GROUP:
                self.suspects += group
        work = [(group, nvlink) for group, nvlink in work if len(group) > LEAST_GROUP]
        if not work:
            return []
        halves = [(tuple(sorted(g)[: len(g) // 2]), tuple(sorted(g)[len(g) // 2 :]), nvl) for g, nvl in work]
        failed: list[tuple[str, ...]] = []
        before = self.rounds
        for nvlink in (True, False):
            both = [half for a, b, nvl in halves if nvl is nvlink for half in (a, b) if len(half) > 1]
            failed += self._bad(both, nvlink=nvlink) if both else []
        self.rounds = before + 1
        crossing = [(a, b) for a, b, _ in halves if a not in failed and b not in failed]
        for a, b in crossing:
            self._crosswise(a, b)
        left = [(half, nvl) for a, b, nvl in halves for half in (a, b) if half in failed]
        if crossing:
            # What could still be split is discarded when a sibling pair passes.
            self.suspects += [n for group, _ in left if len(group) <= LEAST_GROUP for n in group]
            return []
        return left

    def _crosswise(self, a: tuple[str, ...], b: tuple[str, ...]) -> None:
        self.healthy -= {*a, *b}
        for _ in range(NARROWINGS):
            if len(a) <= LEAST_GROUP and len(b) <= LEAST_GROUP:
                break
            first, second = (a[: len(a) // 2], b[: len(b) // 2]), (a[len(a) // 2 :], b[len(b) // 2 :])
            mixed = [(*x, *y) for x, y in (first, second) if len(x) + len(y) >= 2]
            failed = self._bad(mixed, nvlink=False)
            if not failed:
                self.healthy |= {*a, *b}
                return
            if len(failed) == 2:
                break
            a, b = first if failed[0] == mixed[0] else second
        self.paths.append((a, b))

    def _confirm(self) -> None:
        left = [name for name in dict.fromkeys(self.suspects) if name not in self.healthy]
        partners = sorted(self.healthy)
        if not partners:
            self.confirmed = left
            return
        if not left:
            return
        start = self.rounds
        for index, name in enumerate(left):
            if self._bad([(name, partners[index % len(partners)])], nvlink=True):
                self.confirmed.append(name)
        # Confirmations that share no partner run at the same time.
        self.rounds = start + -(-len(left) // len(partners))


def diagnose(truth: Truth, domains: Sequence[Sequence[str]]) -> Bisection:
    """The end of one diagnosis."""
    found = Bisection(truth, domains)
    found.run()
    return found


def main() -> int:
    domains = [[f"rack-{d}-{i:02d}" for i in range(18)] for d in range(4)]
    where = {name: f"rack-{i}" for i, names in enumerate(domains) for name in names}
    plants = {
        "none": Truth(),
        "1 node": Truth(nodes={domains[1][5]: 1.0}),
        "5 nodes in 3 racks": Truth(nodes={domains[d][i]: 1.0 for d, i in ((0, 1), (0, 9), (1, 3), (3, 4), (3, 12))}),
        "NVLink of a node": Truth(nvlink={domains[2][7]: 1.0}, domains=where),
        "network of a node": Truth(network={domains[2][7]: 1.0}, domains=where),
    }
    print(f"{'faults':<22}{'jobs':>6}{'rounds':>8}{'named':>7}{'recorded':>10}")
    for label, truth in plants.items():
        found = diagnose(truth, domains)
        print(f"{label:<22}{found.jobs:>6}{found.rounds:>8}{len(found.confirmed):>7}{len(found.recorded):>10}")
    links = [(a, b) for i, a in enumerate(domains[0]) for b in domains[0][i + 1 :]]
    missed = sum(not diagnose(Truth(links={link: 1.0}), domains).paths for link in links)
    print(f"single bad link in a rack: nothing found in {missed} of {len(links)} cases")
    return 0


if __name__ == "__main__":
    sys.exit(main())
