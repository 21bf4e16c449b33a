"""`muster certify local`: a certification of worker processes on this machine, with real programs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from muster.errors import BadInputError, ExitCode, NotSatisfiedError

if TYPE_CHECKING:
    from muster.certify.local_fleet import LocalOutcome, LocalRound
    from muster.certify.report.model import ReportModel


@click.command()
@click.option("--workers", type=click.IntRange(2, 64), default=8, show_default=True, help="Worker processes.")
@click.option("--tests", default="", metavar="A,B", help="Tests to run; gpu-burn, pair and all-to-all if left out.")
@click.option(
    "--inject",
    multiple=True,
    metavar="node=N,fault=WORD",
    help="Make worker N act out a fault: exit, hang, corrupt, sleep or slow-send.",
)
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Who is tested with whom.")
@click.option("--python", default="", metavar="FILE", help="Python with PyTorch that runs the workers.")
@click.option("-o", "--output", type=click.Choice(("text", "html", "json", "junit")), default="text", help="Format.")
@click.option("--to", metavar="FILE", help="Write the report to FILE.")
def local(
    workers: int, tests: str, inject: tuple[str, ...], seed: int, python: str, output: str, to: str | None
) -> int:
    """Certify worker processes on this machine: real programs, real faults, no cluster.

    For learning and for trying a test. Needs PyTorch: pip install 'muster-gpu[workloads]'. Exit code 0 when every
    worker passed, else 3.
    """
    import asyncio
    from pathlib import Path

    from muster.certify.local_fleet import LOCAL_TESTS, certify_locally
    from muster.cli.certify_show import save, writer

    wanted = tuple(part.strip() for part in tests.split(",") if part.strip()) or LOCAL_TESTS
    interpreter = Path(python) if python else None
    if interpreter is not None and not interpreter.is_file():
        raise BadInputError(f"There is no Python {python[:200]}; give the path of one that has PyTorch.")

    def told(done: LocalRound) -> None:
        failed = [run for run in done.records if run.outcome.value == "FAIL"]
        words = f"round {done.number}: {len(done.records)} runs, {len(failed)} failed, {done.wall_s:.1f} s"
        click.echo(words, err=True)

    coroutine = certify_locally(workers, wanted, faults(inject), told, interpreter, None, seed)
    try:
        outcome = asyncio.run(coroutine)
    except ModuleNotFoundError as error:
        raise NotSatisfiedError(f"{error.name} is missing; pip install 'muster-gpu[workloads]'.") from error
    made = report_of(outcome)
    written = writer(output)(made)
    if to is None:
        click.echo(written, nl=False)
    else:
        save(Path(to), written)
        click.echo(made.verdict)
    return ExitCode.OK if made.passed else ExitCode.NOT_SATISFIED


def faults(texts: tuple[str, ...]) -> dict[int, str]:
    """`node=3,fault=exit` several times, as worker -> fault. Raises BadInputError."""
    from muster.certify.local_fleet import parse_injection

    found: dict[int, str] = {}
    for text in texts:
        number, fault = parse_injection(text)
        if number in found:
            raise BadInputError(f"--inject names worker {number} twice; one fault for each.")
        found[number] = fault
    return found


def report_of(outcome: LocalOutcome) -> ReportModel:
    """The report, by the builder that serves clusters."""
    import msgspec

    from muster.certify.conclusion import progress, summary
    from muster.certify.report.build import build
    from muster.resources.base import PLAN_ANNOTATION, ObjectMeta
    from muster.resources.certification import (
        Certification,
        CertificationPart,
        CertificationPartSpec,
        CertificationSpec,
        CertificationStatus,
        NodeVerdict,
        Phase,
    )

    verdicts, name = outcome.verdicts, "local"
    good = all(n.verdict is NodeVerdict.PASSED for n in verdicts.nodes) and not verdicts.links
    status = CertificationStatus(
        phase=Phase.SUCCEEDED if good and not verdicts.unresolved else Phase.FAILED,
        message=summary(verdicts.nodes, verdicts),
        runs=outcome.records,
        nodes=verdicts.nodes,
        links=verdicts.links,
        cost=msgspec.structs.replace(verdicts.cost, wall_minutes=round(outcome.wall_s / 60, 3)),
        parts=1,
        tests=progress(outcome.records),
    )
    certification = Certification(
        metadata=ObjectMeta(name=name, annotations={PLAN_ANNOTATION: msgspec.json.encode(outcome.plan).decode()}),
        spec=CertificationSpec(
            nodes=tuple(n.name for n in verdicts.nodes),
            profile="bringup",
            tests=tuple(test.name for test in outcome.plan.tests),
            budget=outcome.plan.budget,
        ),
        status=status,
    )
    details = CertificationPartSpec(certification=name, number=0, details=outcome.details)
    return build(certification, [CertificationPart(metadata=ObjectMeta(name=f"{name}-0"), spec=details)])
