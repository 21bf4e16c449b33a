"""`muster bundle`: render a recipe for a deployer; verify, compare, share and sign bundles."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from muster.cli.output import Format, emit, format_option
from muster.cli.recipe import DefaultGroup
from muster.errors import BadInputError, NotSatisfiedError

if TYPE_CHECKING:
    from muster.configure.bundles.choices import Choices
    from muster.configure.bundles.placement import PlacementChoice
    from muster.configure.recipe import Recipe
    from muster.configure.render.repository import Repository

F = TypeVar("F", bound=Callable[..., Any])
_DEPLOYERS = ("helm", "argocd", "argocd-helm", "flux", "helmfile")
_FETCHING = "argocd, argocd-helm, flux"


class _BundleGroup(DefaultGroup):
    default = "render"


@click.group(cls=_BundleGroup)
def bundle() -> None:
    """Render a recipe for a deployer; verify, compare, share and sign bundles.

    'muster bundle recipe.yaml --deployer helm -o DIR' is short for 'muster bundle render ...', whose --help lists
    every option.
    """


def placement_options(command: F) -> F:
    """Adds the options that say where pods and volumes go."""
    for option in (
        click.option(
            "--system-node-selector", multiple=True, metavar="K=V", help="Label of the nodes for controllers."
        ),
        click.option(
            "--system-node-toleration", multiple=True, metavar="K=V:EFFECT", help="Taint that controllers tolerate."
        ),
        click.option("--accelerated-node-selector", multiple=True, metavar="K=V", help="Label of the GPU nodes."),
        click.option(
            "--accelerated-node-toleration",
            multiple=True,
            metavar="K=V:EFFECT",
            help="Taint that pods on GPU nodes tolerate; also K:EFFECT, or Exists for all.",
        ),
        click.option("--workload-selector", multiple=True, metavar="K=V", help="Label of the pods that do the work."),
        click.option(
            "--workload-gate",
            metavar="K=V:EFFECT",
            help="Taint that keeps work off a node until it is prepared.",
        ),
        click.option("--storage-class", metavar="NAME", help="Storage class of the volumes that components claim."),
        click.option("--shared-storage-class", metavar="NAME", help="The same for volumes that many nodes write."),
    )[::-1]:
        command = option(command)
    return command


@bundle.command()
@click.argument("recipe", metavar="RECIPE")
@click.option("--deployer", type=click.Choice(_DEPLOYERS), help="What the bundle is deployed with; needed.")
@click.option("-o", "--output", required=True, metavar="DIR", help="Folder to write; new or empty.")
@click.option("--set", "sets", multiple=True, metavar="COMPONENT:PATH=VALUE", help="Set a value: JSON or plain text.")
@click.option(
    "--set-file", "set_files", multiple=True, metavar="COMPONENT=FILE", help="Merge a values file over a component."
)
@click.option("--allow-unknown", is_flag=True, help="Accept value paths that the recorded values of a chart lack.")
@click.option("--allow-incoherent", is_flag=True, help="Build even when values contradict each other; warn only.")
@placement_options
@click.option(
    "--manifest", "manifests", multiple=True, metavar="NAME=FILE", help="Supply a manifest the recipe names."
)
@click.option("--repo", metavar="URL", help=f"Repository that the bundle will lie in ({_FETCHING}).")
@click.option("--revision", metavar="REF", help="Revision in that repository; HEAD unless given.")
@click.option("--repo-path", metavar="PATH", help="Folder in that repository; its root unless given.")
@click.option("--force", is_flag=True, help="Replace an older, unchanged bundle at DIR.")
def render(
    recipe: str,
    deployer: str | None,
    output: str,
    sets: tuple[str, ...],
    set_files: tuple[str, ...],
    allow_unknown: bool,
    allow_incoherent: bool,
    manifests: tuple[str, ...],
    repo: str | None,
    revision: str | None,
    repo_path: str | None,
    force: bool,
    **placement: Any,
) -> None:
    """Render RECIPE into a folder.

    --set takes JSON (true, 3, null, [], {...}) or plain text; text that looks like a number, a truth value, a list or
    a map needs inner quotes, --set 'x:image.tag="1.30"'. A map or list replaces the one that is there, null drops it,
    a dot inside a key is written as \\., and COMPONENT:enabled=false leaves a component out.

    --set-file merges a file of values: maps merge, lists and scalars replace, null drops. --set wins over it, and
    what the recipe or these two set wins over the options that place pods and volumes.
    """
    from muster.configure import lock
    from muster.configure.bundles import build as bundles
    from muster.configure.bundles.choices import apply_choices
    from muster.configure.bundles.coherence import require_coherence
    from muster.configure.bundles.overrides import doubts

    if deployer is None:
        raise BadInputError(
            f"Say what the bundle is deployed with: --deployer {', '.join(_DEPLOYERS[:-1])} or helmfile."
        )
    chosen = bundles.Deployer(deployer)
    repository = _repository(chosen in bundles.FETCHING, deployer, repo, revision, repo_path)
    locked = lock.read(Path(recipe))
    choices = _choices(locked, sets, set_files, manifests, _placement(placement))
    applied = apply_choices(locked, choices, allow_unknown)
    warnings = require_coherence(locked, applied.recipe, allow_incoherent)
    planned, files = bundles.build(locked, applied.recipe, chosen, choices.overrides, repository, choices)
    bundles.write(Path(output), files, force)
    click.echo(f"{output}: {len(planned.releases)} releases for {deployer}, {len(files)} files.", err=True)
    for sentence in (*doubts(locked, choices.overrides), *applied.unmet, *warnings):
        click.echo(sentence, err=True)
    if applied.kept:
        more = f" and {len(applied.kept) - 8} more" if len(applied.kept) > 8 else ""
        shown = ", ".join(applied.kept[:8])
        click.echo(f"The recipe decides these itself, so they were left: {shown}{more}.", err=True)
    if planned.missing:
        click.echo(f"Supply with --manifest before deploying: {', '.join(planned.missing)}.", err=True)
    if chosen in (bundles.Deployer.ARGOCD, bundles.Deployer.FLUX) and repo is None:
        click.echo("The repository is not set; build again with --repo URL before deploying.", err=True)


def _repository(
    fetching: bool, deployer: str, repo: str | None, revision: str | None, repo_path: str | None
) -> Repository:
    from muster.configure.render.repository import UNSET_REPOSITORY, Repository, check_repository

    if not fetching and (repo or revision or repo_path):
        raise BadInputError(
            f"--repo, --revision and --repo-path belong to the deployers {_FETCHING}, not to {deployer}."
        )
    repository = Repository(repo or UNSET_REPOSITORY, revision or "HEAD", repo_path or ".")
    check_repository(repository)
    return repository


def _placement(options: dict[str, Any]) -> PlacementChoice:
    from muster.configure.bundles.placement import (
        PlacementChoice,
        parse_selector,
        parse_storage_class,
        parse_taint,
        parse_toleration,
    )

    def tolerations(flag: str, texts: Sequence[str]) -> tuple[dict[str, str], ...]:
        found: list[dict[str, str]] = []
        for text in texts:
            toleration = parse_toleration(flag, text)
            if toleration not in found:
                found.append(toleration)
        return tuple(found)

    gate, block, shared = options["workload_gate"], options["storage_class"], options["shared_storage_class"]
    return PlacementChoice(
        system_node_selector=parse_selector("--system-node-selector", options["system_node_selector"]),
        system_node_tolerations=tolerations("--system-node-toleration", options["system_node_toleration"]),
        accelerated_node_selector=parse_selector("--accelerated-node-selector", options["accelerated_node_selector"]),
        accelerated_node_tolerations=tolerations(
            "--accelerated-node-toleration", options["accelerated_node_toleration"]
        ),
        workload_selector=parse_selector("--workload-selector", options["workload_selector"]),
        workload_gate="" if gate is None else parse_taint("--workload-gate", gate),
        storage_class="" if block is None else parse_storage_class("--storage-class", block),
        shared_storage_class="" if shared is None else parse_storage_class("--shared-storage-class", shared),
    )


def _choices(
    locked: Recipe,
    sets: Sequence[str],
    set_files: Sequence[str],
    manifests: Sequence[str],
    placement: PlacementChoice,
) -> Choices:
    from muster import yamlio
    from muster.configure.bundles.choices import Choices
    from muster.configure.bundles.overrides import FileValues, file_values, parse_overrides

    files: list[FileValues] = []
    for text in set_files:
        name, equals, file = text.partition("=")
        if not equals or not name or not file:
            raise BadInputError(f"--set-file {text[:80]!r} is malformed; write it as component=FILE.")
        found = file_values(name, yamlio.load(Path(file)), file, locked)
        if any(found.component == other.component for other in files):
            raise BadInputError(f"--set-file is given twice for {found.component}; put both into one file.")
        files.append(found)
    return Choices(parse_overrides(sets, locked), tuple(files), placement, _read_manifests(manifests))


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
            with path.open("rb") as opened:
                content = opened.read(yamlio.MAX_BYTES + 1)
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
@click.option("--certificate-identity", metavar="WHO", help="Check the signature too: who must have signed.")
@click.option("--certificate-oidc-issuer", metavar="URL", help="Who must vouch for that identity.")
@click.option("--bundle", "signature", metavar="FILE", help="The signature; DIR.sigstore.json unless given.")
@click.option("--trusted-root", metavar="FILE", help="Trusted root of sigstore; fetched unless given.")
@format_option
def verify(
    folder: str,
    certificate_identity: str | None,
    certificate_oidc_issuer: str | None,
    signature: str | None,
    trusted_root: str | None,
    output: Format,
) -> None:
    """Check a bundle: no file in DIR is changed, missing or extra. Exit code 3 when one is.

    With --certificate-identity and --certificate-oidc-issuer its signature is checked as well.
    """
    from muster.configure.bundles import build as bundles

    if bool(certificate_identity) != bool(certificate_oidc_issuer):
        raise BadInputError("--certificate-identity and --certificate-oidc-issuer belong together; give both.")
    if (signature or trusted_root) and not certificate_identity:
        raise BadInputError("--bundle and --trusted-root need --certificate-identity and --certificate-oidc-issuer.")
    count, digest = bundles.verify(Path(folder))
    result: dict[str, Any] = {"bundle": folder, "files": count, "digest": digest}
    if certificate_identity and certificate_oidc_issuer:
        from muster.configure.bundles.signing import signature_beside, verify_signature

        found = Path(signature) if signature else signature_beside(Path(folder))
        root = Path(trusted_root) if trusted_root else None
        verify_signature(Path(folder), found, certificate_identity, certificate_oidc_issuer, root)
        result["signedBy"] = certificate_identity
    signed = f", signed by {certificate_identity}" if certificate_identity else ""
    emit(result, output, lambda r: click.echo(f"{folder}: unchanged, {r['files']} files, {r['digest']}{signed}"))


@bundle.command()
@click.argument("old", metavar="OLD")
@click.argument("new", metavar="NEW")
@format_option
def diff(old: str, new: str, output: Format) -> None:
    """Say what deploying bundle NEW over bundle OLD does, for each component: safe, needs-care or blocked.

    Both may be recipes too. Exit code 3 unless everything is safe.
    """
    from muster.configure.bundles.opened import open_either
    from muster.configure.upgrade.compare import UpgradeVerdict, compare

    found = compare(open_either(Path(old)), open_either(Path(new)))
    emit(found.as_dict(), output, _print_verdicts)
    if found.verdict is not UpgradeVerdict.SAFE:
        raise NotSatisfiedError(f"Deploying {new} over {old} is not safe as it is: {found.summary}.")


def _print_verdicts(found: dict[str, Any]) -> None:
    for reason in found["bundle"]:
        click.echo(f"{reason['verdict']:<10}  the bundle")
        _print_reason(reason)
    unchanged = 0
    for entry in found["components"]:
        if not entry["reasons"]:
            unchanged += 1
            continue
        versions = " -> ".join(dict.fromkeys(entry[side] for side in ("before", "after") if side in entry))
        click.echo(f"{entry['verdict']:<10}  {entry['component']} {versions}")
        for reason in entry["reasons"]:
            _print_reason(reason)
    click.echo(f"{unchanged} component{'' if unchanged == 1 else 's'} without a change.")


def _print_reason(reason: dict[str, str]) -> None:
    click.echo(f"{'':<12}{reason['verdict']}: {reason['what']}")
    if "remedy" in reason:
        click.echo(f"{'':<14}-> {reason['remedy']}")


@bundle.command()
@click.argument("folder", metavar="DIR")
@click.argument("reference", metavar="oci://HOST/REPOSITORY[:TAG]")
@click.option("--plain-http", is_flag=True, help="Talk HTTP to the registry, not HTTPS.")
@format_option
def push(folder: str, reference: str, plain_http: bool, output: Format) -> None:
    """Push the bundle in DIR to an OCI registry; a bundle that was changed is refused."""
    from muster.configure.bundles import sharing

    digest = sharing.push(Path(folder), reference, plain_http=plain_http)
    result = {"bundle": folder, "reference": reference, "digest": digest}
    emit(result, output, lambda r: click.echo(f"{r['reference']}: pushed, {r['digest']}"))


@bundle.command()
@click.argument("reference", metavar="oci://HOST/REPOSITORY[:TAG|@sha256:...]")
@click.option("-o", "--output", required=True, metavar="DIR", help="Folder to write; new or empty.")
@click.option("--require-digest", is_flag=True, help="Refuse a reference that is not pinned by digest.")
@click.option("--plain-http", is_flag=True, help="Talk HTTP to the registry, not HTTPS.")
def pull(reference: str, output: str, require_digest: bool, plain_http: bool) -> None:
    """Pull a bundle from an OCI registry into DIR and verify it; nothing is left behind when it is not whole."""
    from muster.configure.bundles import sharing

    digest, count = sharing.pull(reference, Path(output), plain_http=plain_http, require_digest=require_digest)
    click.echo(f"{output}: {count} files, {digest}", err=True)


@bundle.command()
@click.argument("folder", metavar="DIR")
@click.option("--identity-token-file", metavar="FILE", help="OIDC token to sign with; - is stdin.")
def sign(folder: str, identity_token_file: str | None) -> None:
    """Sign the bundle in DIR through sigstore and write DIR.sigstore.json beside it.

    Needs the extra 'sign' and the network; the identity that signs becomes public in sigstore's log.
    """
    from muster.configure.bundles import signing

    token = read_token(identity_token_file) if identity_token_file is not None else None
    click.echo(f"{signing.sign(Path(folder), token)}: written", err=True)


def read_token(path: str) -> str:
    """The OIDC token in the file `path`, `-` for stdin. Raises BadInputError."""
    try:
        with click.open_file(path) as file:
            return str(file.read(65536)).strip()
    except OSError as error:
        raise BadInputError(f"Cannot read the token from {path}: {error.strerror or error}.") from error
    except UnicodeDecodeError as error:
        raise BadInputError(f"{path} holds no token, but bytes that are no text.") from error
