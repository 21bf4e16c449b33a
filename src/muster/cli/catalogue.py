"""`muster catalogue`: check layers of the catalogue, push them to a registry and pull them from it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from muster.cli.output import Format, emit, format_option

if TYPE_CHECKING:
    from muster.configure.layers.review import Review

F = TypeVar("F", bound=Callable[..., Any])


def below_option(command: F) -> F:
    """Adds `--catalogue`, for layers that lie below the one that is meant."""
    option = click.option(
        "--catalogue",
        "below",
        multiple=True,
        metavar="REF",
        help="A layer below this one: a folder, or oci://host/repository@sha256:...; repeat it, lowest first.",
    )
    return option(command)


@click.group()
def catalogue() -> None:
    """Check a layer of the catalogue, push it to a registry, pull it from there.

    A layer is a folder of patches on top of the built-in catalogue; 'muster recipe --catalogue FOLDER' uses it.
    """


@catalogue.command()
@click.argument("folder", metavar="FOLDER")
@below_option
@format_option
def lint(folder: str, below: tuple[str, ...], output: Format) -> int:
    """Check the layer in FOLDER: its files, what they say, and every recipe that they touch.

    Exit code 2 when the layer does not fit the catalogue, 3 when it does and something in it must be mended.
    """
    from muster.errors import ExitCode

    found = _review(folder, below)
    summary = {
        "layer": found.layer,
        "digest": found.digest,
        "catalogue": found.catalogue,
        "recipes": list(found.recipes),
        "findings": [
            {"file": f.where, "rule": f.rule.value, "severity": f.severity.value, "message": f.message}
            for f in found.findings
        ],
    }
    emit(summary, output, _print_review)
    return ExitCode.OK if found.is_fine else ExitCode.NOT_SATISFIED


def _review(folder: str, below: Sequence[str]) -> Review:
    from muster.configure.catalogue import load
    from muster.configure.known_paths import known_paths
    from muster.configure.layers.opening import open_layer, read_layer
    from muster.configure.layers.review import review

    return review(read_layer(Path(folder)), load(), [open_layer(ref) for ref in below], known_paths)


def _print_review(summary: dict[str, Any]) -> None:
    for finding in summary["findings"]:
        click.echo(f"{finding['severity']}: {finding['file']} {finding['message']} [{finding['rule']}]")
    count = len(summary["recipes"])
    resolved = f"{count} recipe{'' if count == 1 else 's'} touched and resolved"
    errors = sum(1 for f in summary["findings"] if f["severity"] == "error")
    verdict = f"{errors} to mend" if errors else "fine"
    click.echo(f"layer {summary['layer']}: {verdict}, {resolved}, {summary['digest']}")


@catalogue.command()
@click.argument("folder", metavar="FOLDER")
@click.argument("reference", metavar="oci://HOST/REPOSITORY[:TAG]")
@below_option
@click.option("--plain-http", is_flag=True, help="Speak HTTP without TLS; a registry on this machine needs no flag.")
@format_option
def push(folder: str, reference: str, below: tuple[str, ...], plain_http: bool, output: Format) -> None:
    """Push the layer in FOLDER to a registry, and print the reference with the digest that recipes need.

    What 'muster catalogue lint' would have mended is not pushed. The same files have the same digest.
    """
    from muster.configure.layers.opening import MEDIA_TYPE
    from muster.configure.registry.artifacts import parse_reference, push_folder
    from muster.errors import NotSatisfiedError

    parsed = parse_reference(reference)
    found = _review(folder, below)
    if not found.is_fine:
        raise NotSatisfiedError(
            f"The layer in {folder} was not pushed, something in it must be mended: muster catalogue lint {folder}"
        )
    digest = push_folder(Path(folder), reference, media_type=MEDIA_TYPE, plain_http=plain_http)
    result = {"layer": found.layer, "reference": parsed.at(digest), "digest": digest}
    emit(result, output, lambda r: click.echo(r["reference"]))


@catalogue.command()
@click.argument("reference", metavar="oci://HOST/REPOSITORY[:TAG|@DIGEST]")
@click.option("-o", "--output", required=True, metavar="DIR", help="Where to put it; a new or empty folder.")
@click.option("--plain-http", is_flag=True, help="Speak HTTP without TLS; a registry on this machine needs no flag.")
def pull(reference: str, output: str, plain_http: bool) -> None:
    """Pull a layer into a folder, to read it or to use it without the registry."""
    from muster.configure.layers.opening import MEDIA_TYPE
    from muster.configure.registry.artifacts import parse_reference, pull_folder

    digest = pull_folder(reference, Path(output), media_type=MEDIA_TYPE, plain_http=plain_http)
    click.echo(f"{output}: {parse_reference(reference).at(digest)}", err=True)
