"""Certifications for tests of the report: real courses over imaginary fleets, with numbers and measurements."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache

import msgspec

from muster.certify import catalogue
from muster.certify.conclusion import progress
from muster.certify.isolate import begin, next_round, observe
from muster.certify.isolation.plan import Cell, Member, Plan, PlannedRun, Round, UntestedNode, Verdicts
from muster.resources.base import PLAN_ANNOTATION, TEST_DIGESTS_ANNOTATION, ObjectMeta
from muster.resources.certification import (
    Certification,
    CertificationPart,
    CertificationPartSpec,
    CertificationSpec,
    CertificationStatus,
    NodeVerdict,
    Outcome,
    Phase,
    RankFigures,
    Reason,
    RunDetail,
    RunRecord,
    SizeFigures,
)

T0 = datetime(2026, 11, 3, 8, 0, tzinfo=UTC)
USUAL = {"gpu-burn": 612.0, "nvlink-loopback": 471.0, "pair": 352.0, "all-to-all": 41.0, "all-reduce": 349.0}
HOSTILE = '<script>alert(1)</script>\x1b[31m & "quoted" \x00 ]]>'


@dataclass(frozen=True)
class Fleet:
    """What is wrong. Every test has its own small deterministic scatter."""

    nodes: int = 16
    bad: tuple[str, ...] = ()
    slow: tuple[str, ...] = ()
    links: tuple[tuple[str, str], ...] = ()
    untested: tuple[str, ...] = ()
    seed: int = 7
    tests: tuple[str, ...] = ("host", "gpu-burn", "nvlink-loopback", "pair", "all-to-all", "all-reduce")
    message: str = "busbw far under the floor; NCCL WARN net plugin timed out"
    domains: int = 4
    names: tuple[str, ...] = field(default=())

    def all_names(self) -> tuple[str, ...]:
        return self.names or tuple(f"gpu-{i:04d}" for i in range(self.nodes))

    def plan(self) -> Plan:
        names = self.all_names()
        size = max(1, -(-len(names) // self.domains))
        members = tuple(Member(name=n, domain=f"rack-{i // size:02d}") for i, n in enumerate(names))
        return Plan(
            seed=self.seed,
            tests=tuple(catalogue.tests()[t] for t in self.tests),
            matchings=3,
            weakest_rate=0.5,
            cells=(
                Cell(
                    product="NVIDIA-H100-80GB-HBM3",
                    platform="aws",
                    gpus=8,
                    targets=tuple(m for m in members if m.name not in self.untested),
                ),
            ),
            untested=tuple(
                UntestedNode(name=n, reason=Reason.SCHEDULING, message="The node is not Ready.")
                for n in self.untested
            ),
        )

    def record(self, run: PlannedRun) -> RunRecord:
        test = catalogue.tests()[run.test]
        scatter = int(hashlib.sha256(f"{self.seed}/{run.id}".encode()).hexdigest()[:4], 16) / 0xFFFF - 0.5
        linked = any(a in run.nodes and b in run.nodes for a, b in self.links)
        failed = any(n in run.nodes for n in self.bad) and run.test != "host"
        slow = any(n in run.nodes for n in self.slow) and run.test != "host"
        value = None
        if test.metric:
            factor = 0.25 if failed or linked else 0.72 if slow else 1.0
            value = round(USUAL[run.test] * factor * (1.0 + 0.02 * scatter), 3)
        wrong = failed or slow or (linked and test.scope is not catalogue.Scope.NODE)
        return RunRecord(
            id=run.id,
            round=run.round,
            test=run.test,
            nodes=run.nodes,
            outcome=Outcome.FAIL if wrong else Outcome.PASS,
            reason=test.below if wrong else Reason.NONE,
            value=value,
            unit=test.unit,
            floor=300.0 if run.test in ("pair", "all-reduce") else None,
            message=self.message if wrong else "",
            transport="EFA" if len(run.nodes) > 1 else "",
        )


def detail(record: RunRecord, fleet: Fleet) -> RunDetail:
    """What the run measured: a sweep for collectives, ranks for groups, the parts of the time of one training."""
    top = record.value or 0.0
    swept = catalogue.tests()[record.test].collective
    sizes = tuple(
        SizeFigures(
            size_bytes=2**power,
            placement=placement,
            time_us=10.0 + 2**power / (top * 1000 + 1),
            busbw_gb_per_s=round(top * (2**power / (2**power + 2**24)), 4),
            wrong=0,
        )
        for power in range(20, 34)
        for placement in ("out", "in")
    )
    ranks = tuple(
        RankFigures(
            rank=i,
            node=n,
            gpu=i % 8,
            compute_s=0.131 if n in fleet.slow else 0.100 + 0.0001 * (i % 5),
            wait_s=0.004 if n in fleet.slow else 0.034,
        )
        for i, n in enumerate(record.nodes)
    )
    return RunDetail(
        run=record.id,
        sizes=sizes if swept else (),
        ranks=ranks if len(record.nodes) > 2 else (),
        transport=record.transport,
        versions={"nccl": "2.27.3", "torch": "2.9.0", "driver": "580.65.06"},
        facts={"productive_s": 91.5, "startup_s": 12.25, "checkpoint_s": 4.0} if record.test == "all-reduce" else {},
        started_at=T0,
        ended_at=T0 + timedelta(seconds=60),
    )


@cache
def course(fleet: Fleet) -> tuple[Plan, tuple[RunRecord, ...], Verdicts]:
    """Play the whole certification."""
    plan = fleet.plan()
    state = begin(plan)
    while isinstance(step := next_round(state), Round):
        state = observe(state, [fleet.record(run) for run in step.runs])
    return plan, state.records, step


def certification(
    fleet: Fleet | None = None, *, rounds: int | None = None, parts: int = 0, name: str = "accept-1"
) -> tuple[Certification, list[CertificationPart]]:
    """A certification that ended, or (`rounds`) one that is under way, with its parts."""
    fleet = fleet or Fleet()
    plan, records, verdicts = course(fleet)
    running = rounds is not None
    if rounds is not None:
        records = tuple(r for r in records if r.round <= rounds)
    good = all(n.verdict is NodeVerdict.PASSED for n in verdicts.nodes) and not verdicts.links
    stored, kept = _split(records, parts)
    objects = [
        CertificationPart(
            metadata=ObjectMeta(name=f"{name}-{number}"),
            spec=CertificationPartSpec(
                certification=name,
                number=number,
                runs=tuple(chunk),
                details=tuple(detail(r, fleet) for r in chunk),
            ),
        )
        for number, chunk in enumerate(stored)
    ]
    status = CertificationStatus(
        phase=Phase.RUNNING if running else Phase.SUCCEEDED if good else Phase.FAILED,
        started_at=T0,
        finished_at=None if running else T0 + timedelta(minutes=verdicts.cost.wall_minutes),
        message="" if running else "The end in words.",
        round=max((r.round for r in records), default=0),
        current_runs=4 if running else 0,
        runs=tuple(kept),
        nodes=() if running else verdicts.nodes,
        links=() if running else verdicts.links,
        cost=msgspec.structs.replace(verdicts.cost, runs=len(records)),
        parts=len(objects),
        tests=progress(records),
    )
    annotations = {
        PLAN_ANNOTATION: msgspec.json.encode(plan).decode(),
        TEST_DIGESTS_ANNOTATION: json.dumps({t.name: t.digest for t in plan.tests}),
    }
    made = Certification(
        metadata=ObjectMeta(name=name, uid="11111111-2222-3333-4444-555555555555", annotations=annotations),
        spec=CertificationSpec(nodes=fleet.all_names(), profile="bringup", expected_transport="EFA"),
        status=status,
    )
    return made, objects


def _split(records: Sequence[RunRecord], parts: int) -> tuple[list[Sequence[RunRecord]], Sequence[RunRecord]]:
    if not parts:
        return [], records
    size = max(1, -(-len(records) // parts))
    chunks = [records[i : i + size] for i in range(0, len(records), size)]
    return chunks, ()
