"""`muster policy`: show what is in force, check files, test rules on cases, replay recorded history."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from muster.cli.output import Format, emit, format_option
from muster.cli.policy_files import load_documents, load_policies
from muster.cli.policy_history import backtest, export
from muster.cli.policy_show import show

if TYPE_CHECKING:
    from muster.operate.backtest.cases import Case, CaseResult


@click.group()
def policy() -> None:
    """Policies: from a fault to what is done about it.

    show says what is in force and where it comes from; lint checks files; test runs cases that you write; backtest
    replays the history of a cluster, live or from a file of 'muster policy export'.
    """


@policy.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option("--provider", "providers", multiple=True, help="A provider that exists; others are warned about.")
@format_option
def lint(files: tuple[str, ...], providers: tuple[str, ...], output: Format) -> int:
    """Check the FaultPolicies in FILE... ('-' reads the standard input).

    Exit code 2 when a file cannot be read, 3 when a policy could not be in force.
    """
    from muster.errors import ExitCode
    from muster.operate.policy_problems import problems, warnings

    rows = [
        {
            "file": source,
            "policy": one.metadata.name,
            "problems": list(problems(one)),
            "warnings": list(warnings(one, providers or None)),
        }
        for source, one in load_policies(files)
    ]
    emit(rows, output, _print_lint)
    return ExitCode.NOT_SATISFIED if any(row["problems"] for row in rows) else ExitCode.OK


def _print_lint(rows: list[dict[str, Any]]) -> None:
    from muster.plain_text import plain

    for row in rows:
        verdict = "cannot be in force" if row["problems"] else "is fine"
        click.echo(f"{plain(row['file'], 200)}: FaultPolicy {plain(row['policy'], 80)} {verdict}.")
        for kind in ("problems", "warnings"):
            for sentence in row[kind]:
                click.echo(f"  {kind[:-1]}: {plain(sentence, 400)}")


@policy.command()
@click.argument("files", nargs=-1, required=True, metavar="RULES.yaml... CASES.yaml")
@click.option("--shipped", default="", help="Test a policy that comes with Muster as well, by name.")
@format_option
def test(files: tuple[str, ...], shipped: str, output: Format) -> int:
    """Run the cases of CASES.yaml against the policies of RULES.yaml.

    A file is told by what it holds: FaultPolicies, or `cases`. The policies stand over the safe default, as in a
    cluster. Exit code 3 when a case fails.
    """
    from muster.errors import BadInputError, ExitCode
    from muster.operate.backtest.cases import read_cases, run_case
    from muster.operate.policy import load_shipped
    from muster.operate.policy_files import read_policy
    from muster.operate.policy_problems import problems

    policies = [load_shipped(shipped)] if shipped else []
    cases: list[tuple[Case, str]] = []
    for source, document in load_documents(files):
        if isinstance(document, dict) and "cases" in document:
            cases.extend((case, source) for case in read_cases(document, source))
        else:
            one = read_policy(document, source)
            if problems(one):
                raise BadInputError(f"{source}: {problems(one)[0]} Mend it before you test it.")
            policies.append(one)
    if not cases:
        raise BadInputError("No file holds cases; give one with a list `cases:`.")
    results = [run_case(case, policies, source) for case, source in cases]
    emit([_result(r) for r in results], output, _print_results)
    return ExitCode.NOT_SATISFIED if any(r.differences for r in results) else ExitCode.OK


def _result(result: CaseResult) -> dict[str, Any]:
    return {
        "case": result.name,
        "file": result.source,
        "passed": not result.differences,
        "differences": list(result.differences),
        "said": list(result.said),
    }


def _print_results(rows: list[dict[str, Any]]) -> None:
    from muster.plain_text import plain

    width = max(len(plain(row["case"], 70)) for row in rows)
    for row in rows:
        click.echo(f"{plain(row['case'], 70):<{width}}  {'passed' if row['passed'] else 'FAILED'}")
        for sentence in row["differences"]:
            click.echo(f"    {plain(sentence, 400)}")
        if not row["passed"]:
            for said in row["said"]:
                ladder = f" ({' -> '.join(said['ladder'])})" if said["ladder"] else ""
                rule = said["rule"] or "no rule"
                click.echo(f"    {plain(said['fault'], 100)}: {said['disposition']}{ladder} by {plain(rule, 60)}")
    failed = sum(not row["passed"] for row in rows)
    click.echo(f"\n{len(rows)} case{'' if len(rows) == 1 else 's'}, {failed} failed.")


policy.add_command(show)
policy.add_command(backtest)
policy.add_command(export)
