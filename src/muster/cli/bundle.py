"""`muster bundle`: render a recipe for a deployer, verify a bundle."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from muster.cli.output import Format, emit, format_option
from muster.cli.recipe import DefaultGroup
from muster.errors import BadInputError

_DEPLOYERS = ("helm", "argocd", "argocd-helm", "flux", "helmfile")


class _BundleGroup(DefaultGroup):
    default = "render"


@click.group(cls=_BundleGroup)
def bundle() -> None:
    """Render a recipe for Helm or Argo CD, verify a bundle.

    'muster bundle recipe.yaml --deployer helm -o DIR' is short for 'muster bundle render ...'.
    """


@bundle.command()
@click.argument("recipe", metavar="RECIPE")
@click.option("--deployer", type=click.Choice(_DEPLOYERS), required=True, help="What the bundle is deployed with.")
@click.option("-o", "--output", required=True, metavar="DIR", help="Folder to write; new or empty.")
@click.option("--set", "sets", multiple=True, metavar="COMPONENT:PATH=VALUE", help="Set a value: JSON or plain text.")
@click.option(
    "--manifest", "manifests", multiple=True, metavar="NAME=FILE", help="Supply a manifest the recipe names."
)
@click.option("--repo", metavar="URL", help="Argo CD: Git repository that the bundle will lie in.")
@click.option("--revision", metavar="REF", help="Argo CD: revision in that repository; HEAD unless given.")
@click.option("--repo-path", metavar="PATH", help="Argo CD: folder in that repository; its root unless given.")
@click.option("--force", is_flag=True, help="Replace an older, unchanged bundle at DIR.")
def render(
    recipe: str,
    deployer: str,
    output: str,
    sets: tuple[str, ...],
    manifests: tuple[str, ...],
    repo: str | None,
    revision: str | None,
    repo_path: str | None,
    force: bool,
) -> None:
    """Render RECIPE into a folder.

    --set takes JSON (true, 3, null, [], {...}) or plain text; text that looks like a number needs inner quotes,
    --set 'x:image.tag="1.30"'. A map or list replaces the one that is there, null drops it, a dot inside a key is
    written as \\., and COMPONENT:enabled=false leaves a component out.
    """
    from muster.configure import bundle as bundles
    from muster.configure import lock
    from muster.configure.overrides import doubts, parse_overrides, with_manifests, with_overrides
    from muster.configure.render.repository import UNSET_REPOSITORY, Repository, check_repository

    chosen = bundles.Deployer(deployer)
    if chosen is not bundles.Deployer.ARGOCD and (repo or revision or repo_path):
        raise BadInputError(f"--repo, --revision and --repo-path belong to the deployer argocd, not to {deployer}.")
    locked = lock.read(Path(recipe))
    overrides = parse_overrides(sets, locked)
    changed = with_manifests(with_overrides(locked, overrides), _read_manifests(manifests))
    repository = Repository(repo or UNSET_REPOSITORY, revision or "HEAD", repo_path or ".")
    check_repository(repository)
    planned, files = bundles.build(locked, changed, chosen, overrides, repository)
    bundles.write(Path(output), files, force)
    click.echo(f"{output}: {len(planned.releases)} releases for {deployer}, {len(files)} files.", err=True)
    for doubt in doubts(locked, overrides):
        click.echo(doubt, err=True)
    if planned.missing:
        click.echo(f"Supply with --manifest before deploying: {', '.join(planned.missing)}.", err=True)
    if chosen is bundles.Deployer.ARGOCD and repo is None:
        click.echo("The Git repository is not set; build again with --repo URL before deploying.", err=True)


def _read_manifests(texts: Sequence[str]) -> dict[str, list[dict[str, Any]]]:
    from muster import yamlio
    from muster.configure import values

    supplied: dict[str, list[dict[str, Any]]] = {}
    for text in texts:
        name, equals, file = text.partition("=")
        if not equals or not name or not file or name in supplied:
            raise BadInputError(
                f"--manifest {text[:80]!r} is malformed or given twice; write it as component/name.yaml=FILE."
            )
        path = Path(file)
        try:
            if path.stat().st_size > yamlio.MAX_BYTES:
                raise BadInputError(f"{file} is larger than {yamlio.MAX_BYTES // 1024 // 1024} MiB; split it.")
            content = path.read_bytes()
        except OSError as error:
            raise BadInputError(f"Cannot read {file}: {error.strerror or error}.") from error
        objects = [document for document in yamlio.loads_all(content, file) if document is not None]
        for document in objects:
            if not isinstance(document, dict) or not document.get("kind") or not document.get("apiVersion"):
                raise BadInputError(
                    f"{file} holds something that is no Kubernetes object; each needs apiVersion and kind."
                )
            values.check(document, file)
        if not objects:
            raise BadInputError(f"{file} holds no Kubernetes object; give a file that does.")
        supplied[name] = objects
    return supplied


@bundle.command()
@click.argument("folder", metavar="DIR")
@format_option
def verify(folder: str, output: Format) -> None:
    """Check a bundle: no file in DIR is changed, missing or extra. Exit code 3 when one is."""
    from muster.configure import bundle as bundles

    count, digest = bundles.verify(Path(folder))
    result = {"bundle": folder, "files": count, "digest": digest}
    emit(result, output, lambda r: click.echo(f"{folder}: unchanged, {r['files']} files, {r['digest']}"))
