"""`muster certify run`: start a certification and follow it to its verdict."""

from __future__ import annotations

import re
import sys
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click
import msgspec

from muster.cli.certify_follow import Follower
from muster.cli.certify_spec import Asked, build_spec, parse_target, spec_options
from muster.cli.cluster import cluster_options, with_cluster
from muster.cli.environment import clock_from_environment
from muster.errors import BadInputError, ExitCode

if TYPE_CHECKING:
    from muster.kube.api import KubeApi, Object
    from muster.resources.certification import Certification, CertificationSpec

MANAGER = "muster-cli"
_NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
_SPAN = re.compile(r"([0-9]{1,6})([smh])")
_UNITS_S = {"s": 1, "m": 60, "h": 3600}


@click.command()
@spec_options
@click.option("--name", default="", help="Name of the certification; profile and time if left out.")
@click.option("--wait", is_flag=True, help="Follow it and end with its verdict.")
@click.option("--timeout", default="", metavar="TIME", help="With --wait: give up waiting after 90m, 2h or 600s.")
@click.option("--dry-run", is_flag=True, help="Print the object and create nothing.")
@click.option(
    "-o", "--output", type=click.Choice(["yaml", "json"]), default="yaml", help="With --dry-run: the format."
)
@cluster_options
def run(
    name: str,
    wait: bool,
    timeout: str,
    dry_run: bool,
    output: str,
    kubeconfig: str | None,
    context: str | None,
    **asked: Any,
) -> int:
    """Start a certification.

    It runs in the cluster: ending this command, with or without --wait, does not end it. Exit code with --wait: 0
    every node passed, 3 not passed, 4 the cluster could not be reached, 5 --timeout ran out.
    """
    wanted = Asked(**asked)
    unequal = parse_target(wanted.target)[1]
    spec = build_spec(wanted, ("placeholder",) if unequal else ())
    limit_s = timeout_s(timeout, spec, wait=wait)
    clock = clock_from_environment()
    named = name or default_name(spec.profile, clock.now())
    if not _NAME.fullmatch(named):
        raise BadInputError(f"--name {named[:80]!r} cannot be used; take at most 63 of a-z, 0-9 and '-'.")
    if dry_run and not unequal:
        _print(body(named, spec), output)
        return ExitCode.OK

    async def work(api: KubeApi) -> int:
        obj = body(named, await _selected(api, wanted) if unequal else spec)
        if dry_run:
            _print(obj, output)
            return ExitCode.OK
        created = await create(api, obj)
        click.echo(f"Certification {named} is created. Look at it: muster certify status {named}")
        if not wait:
            return ExitCode.OK
        return await Follower(api, clock, sys.stdout).follow(created, limit_s)

    try:
        return with_cluster(kubeconfig, context, work)
    except KeyboardInterrupt:
        click.echo(f"\nIt goes on in the cluster. Look again: muster certify status {named}", err=True)
        return 130


def _print(obj: Object, output: str) -> None:
    from muster.cli.output import Format, emit

    emit(obj, Format(output), lambda _: None)


def default_name(profile: str, now: datetime) -> str:
    """`bringup-20261103-081500`."""
    return f"{profile}-{now:%Y%m%d-%H%M%S}"


def body(name: str, spec: CertificationSpec) -> Object:
    """The object to create: what the user asked for, and nothing that was only detected."""
    from muster.resources.base import API_VERSION, to_object

    return {
        "apiVersion": API_VERSION,
        "kind": "Certification",
        "metadata": {"name": name},
        "spec": to_object(spec),
    }


def timeout_s(text: str, spec: CertificationSpec, *, wait: bool) -> float | None:
    """The limit of the waiting. Raises BadInputError for one that no certification can keep."""
    from muster.certify import catalogue
    from muster.certify.isolation.plan import ROUND_OVERHEAD_S

    if not text:
        return None
    match = _SPAN.fullmatch(text.strip())
    if match is None:
        raise BadInputError(f"--timeout {text[:40]!r} is no time; give a number with s, m or h, such as 90m.")
    if not wait:
        raise BadInputError("--timeout is about waiting; add --wait, or limit the certification with --max-minutes.")
    limit_s = int(match[1]) * _UNITS_S[match[2]]
    tests = [test for test in catalogue.tests_for(spec) if not test.variant_of]
    least_s = sum(test.duration_s + ROUND_OVERHEAD_S for test in tests)
    if limit_s < least_s:
        raise BadInputError(
            f"--timeout {text} is shorter than the tests themselves ({', '.join(t.name for t in tests)} take "
            f"{least_s:.0f} s when nothing fails); give a longer one."
        )
    return float(limit_s)


async def _selected(api: KubeApi, asked: Asked) -> CertificationSpec:
    from muster.cli.certify_cluster import read_fleet
    from muster.cli.certify_plan import resolved

    return resolved(asked, await read_fleet(api))


async def create(api: KubeApi, obj: Object) -> Certification:
    """Create it. Raises BadInputError when the name is taken or the cluster does not know certifications."""
    from muster.kube.api import CERTIFICATIONS, AlreadyExistsError, NotFoundError
    from muster.resources.base import from_object
    from muster.resources.certification import Certification

    name = obj["metadata"]["name"]
    try:
        return from_object(Certification, await api.create(CERTIFICATIONS, obj, manager=MANAGER))
    except AlreadyExistsError as error:
        raise BadInputError(
            f"There is a certification {name} already; give another --name, or see 'muster certify status {name}'."
        ) from error
    except NotFoundError as error:
        raise BadInputError(
            "The cluster does not know certifications.muster.dev; install Muster's CRDs first."
        ) from error
    except msgspec.ValidationError as error:
        raise BadInputError(f"The cluster answered with an object that cannot be read: {error}.") from error
