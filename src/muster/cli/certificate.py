"""`muster certificate`: export a node's certificate as an in-toto statement, show one, verify one offline."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from muster.cli.cluster import cluster_options, with_cluster
from muster.cli.environment import clock_from_environment
from muster.cli.output import Format, emit, format_option
from muster.errors import BadInputError, NotSatisfiedError
from muster.plain_text import counted, plain

if TYPE_CHECKING:
    from muster.certify.attestation.judge import Check
    from muster.certify.attestation.statement import Statement
    from muster.cli.certificate_files import Exported
    from muster.signing.keys import SigningKey


@click.group()
def certificate() -> None:
    """A node's certificate as a file that others can check without the cluster.

    export writes it, signed with a key or through sigstore; verify checks signature, evidence and age offline, and on
    request whether it is still in force; show prints what a file says and checks nothing.
    """


@certificate.command()
@click.argument("node", metavar="NODE")
@click.option("-o", "--output", "target", metavar="FILE", help="File to write; the terminal unless given.")
@click.option("--evidence", is_flag=True, help="Write the documents of evidence too, into the folder FILE.evidence.")
@click.option("--sign-key", metavar="FILE", help="Sign with this private key (PEM; Ed25519 or EC on P-256).")
@click.option("--key-password-file", metavar="FILE", help="Password of the key; else $MUSTER_KEY_PASSWORD, or asked.")
@click.option("--keyless", is_flag=True, help="Sign through sigstore, with the identity that the environment offers.")
@click.option("--identity-token-file", metavar="FILE", help="OIDC token to sign with through sigstore; - is stdin.")
@click.option("--file", "files", multiple=True, metavar="FILE", help="Read saved objects instead of the cluster.")
@cluster_options
def export(
    node: str,
    target: str | None,
    evidence: bool,
    sign_key: str | None,
    key_password_file: str | None,
    keyless: bool,
    identity_token_file: str | None,
    files: tuple[str, ...],
    kubeconfig: str | None,
    context: str | None,
) -> None:
    """Write the certificate of NODE as an in-toto statement, with the digests of its evidence.

    Exit code 3 when the node has no valid certificate, or the evidence for it is not whole.
    """
    from muster import __version__
    from muster.certify.attestation.build import Export, documents_of, statement_of, valid_certificate
    from muster.certify.attestation.statement import encode
    from muster.cli import certificate_files
    from muster.cli.bundle import read_token
    from muster.cli.certificate_source import from_cluster, from_files

    _check_export(target, evidence, sign_key, key_password_file, keyless, identity_token_file)
    if target is not None:
        # Also without --evidence: the documents of an older file would be taken for those of this one.
        certificate_files.require_new(certificate_files.evidence_beside(Path(target)))
    folder = certificate_files.evidence_beside(Path(target)) if target and evidence else None
    key = certificate_files.signing_key(sign_key, key_password_file) if sign_key else None
    token = read_token(identity_token_file) if identity_token_file else None
    if files:
        source = from_files(files, node)
    else:
        source = with_cluster(kubeconfig, context, lambda api: from_cluster(api, node))
    now = clock_from_environment().now()
    found = valid_certificate(source.health, now)
    documents = documents_of(node, found, source.certification, source.parts)
    _check_size(documents)
    payload = encode(statement_of(documents, Export(now, __version__)))
    if key is not None:
        signed, how = _with_key(payload, key), f"signed with the key {key.public.key_id}"
    elif keyless:
        from muster.signing import keyless as sigstore

        signed = sigstore.sign_statement(payload, "the statement", token).encode() + b"\n"
        how = "signed through sigstore"
    else:
        signed, how = payload + b"\n", "NOT signed: anybody could have written it; sign with --sign-key or --keyless"
    if folder is not None:
        certificate_files.write_evidence(folder, documents)
    if target is None:
        click.echo(signed, nl=False)
    else:
        certificate_files.write(Path(target), signed)
    more = f", {counted(len(documents), 'document')} of evidence in {folder}" if folder else ""
    click.echo(f"{target or 'stdout'}: certificate of {plain(node, 80)}, {how}{more}", err=True)


def _check_export(
    target: str | None,
    evidence: bool,
    sign_key: str | None,
    key_password_file: str | None,
    keyless: bool,
    identity_token_file: str | None,
) -> None:
    if sign_key and keyless:
        raise BadInputError("--sign-key and --keyless exclude each other; give one.")
    if evidence and target is None:
        raise BadInputError("--evidence writes a folder beside the file; give the file with -o FILE.")
    if key_password_file and not sign_key:
        raise BadInputError("--key-password-file belongs to --sign-key; give both.")
    if identity_token_file and not keyless:
        raise BadInputError("--identity-token-file belongs to --keyless; give both.")


def _check_size(documents: Mapping[str, bytes]) -> None:
    from muster.cli.certificate_files import MAX_EVIDENCE_BYTES

    size = sum(map(len, documents.values()))
    if size > MAX_EVIDENCE_BYTES:
        raise BadInputError(
            f"The evidence takes {size} bytes, more than the {MAX_EVIDENCE_BYTES} that may be exported."
        )


def _with_key(payload: bytes, key: SigningKey) -> bytes:
    from muster.certify.attestation.statement import PAYLOAD_TYPE
    from muster.signing import dsse

    signature = dsse.Signature(key.public.key_id, key.sign(dsse.pae(PAYLOAD_TYPE, payload)))
    return dsse.encode(dsse.Envelope(PAYLOAD_TYPE, payload, (signature,)))


@certificate.command()
@click.argument("file", metavar="FILE")
@format_option
def show(file: str, output: Format) -> None:
    """Print what FILE says. Nothing is verified: neither who signed it nor whether it is true."""
    from muster.cli.certificate_files import opened, unverified_payload

    exported = opened(Path(file))
    statement = _statement(unverified_payload(exported), exported)
    emit(_plain_values(statement), output, lambda _: _print_statement(statement, exported))


def _statement(payload: bytes, exported: Exported) -> Statement:
    from muster.certify.attestation.statement import decode

    return decode(payload, str(exported.path))


def _plain_values(statement: Statement) -> dict[str, Any]:
    from muster.resources.base import to_object

    return to_object(statement)


def _print_statement(statement: Statement, exported: Exported) -> None:
    from muster.plain_text import aligned

    stated, told = statement.predicate, statement.predicate.certification
    of_node = told.runs_of_node
    rows = [
        ("node", f"{statement.node}, UID {stated.node.uid}"),
        ("fingerprint", f"sha256:{statement.subject[0].digest.sha256}, {len(stated.node.readings)} readings"),
        ("GPUs", ", ".join(stated.node.gpus) or "none told"),
        ("profile", told.profile),
        ("certification", f"{told.name}, {told.rounds} rounds, {told.runs} runs of all nodes"),
        ("runs of the node", f"{of_node.passed} passed, {of_node.failed} failed, {of_node.unusable} unusable"),
        ("recipe", stated.recipe_digest or "none told"),
        ("issued", stated.issued_at.isoformat()),
        ("expires", stated.expires_at.isoformat() if stated.expires_at else "never by itself"),
        ("exported", f"{stated.exported_at.isoformat()}, Muster {stated.exported_by}"),
        ("evidence", counted(len(stated.evidence), "document")),
        ("signed", exported.kind.value),
    ]
    for test in stated.tests:
        numbers = ", ".join(f"{key} {value:g}" for key, value in sorted(test.metrics.items()))
        carried = f", carried over from {test.carried_from}" if test.carried_from else ""
        rows.append((f"test {test.name}", f"{numbers or 'passed'}{carried}"))
    rows += [("not proven", name) for name in stated.lacks]
    for line in aligned([(plain(key, 80), plain(value, 600)) for key, value in rows]):
        click.echo(line)
    click.echo("Nothing of this was verified; 'muster certificate verify' does.", err=True)


@certificate.command()
@click.argument("file", metavar="FILE")
@click.option(
    "--key", "keys", multiple=True, metavar="FILE", help="Public key (PEM) that must have signed; or one of."
)
@click.option("--identity", metavar="WHO", help="Who must have signed through sigstore; with --issuer.")
@click.option("--issuer", metavar="URL", help="Who must vouch for that identity.")
@click.option("--trusted-root", metavar="FILE", help="Trusted root of sigstore; fetched unless given.")
@click.option("--unsigned", is_flag=True, help="Do not ask who signed it.")
@click.option("--node", "expected", default="", metavar="NAME", help="The node that it must be about.")
@click.option("--test", "tests", multiple=True, metavar="NAME", help="A test that it must state; may be repeated.")
@click.option(
    "--max-age", metavar="DAYS", type=click.FloatRange(0, 36500, min_open=True), help="Oldest that is taken."
)
@click.option("--evidence", metavar="DIR", help="The documents of evidence; FILE.evidence where that exists.")
@click.option("--node-health", metavar="FILE", help="Saved NodeHealth of the node: is it still in force?")
@click.option("--against-cluster", is_flag=True, help="The same, asked of the cluster.")
@format_option
@cluster_options
def verify(
    file: str,
    keys: tuple[str, ...],
    identity: str | None,
    issuer: str | None,
    trusted_root: str | None,
    unsigned: bool,
    expected: str,
    tests: tuple[str, ...],
    max_age: float | None,
    evidence: str | None,
    node_health: str | None,
    against_cluster: bool,
    output: Format,
    kubeconfig: str | None,
    context: str | None,
) -> None:
    """Check FILE and say what was checked and what was not. Exit code 3 when something does not hold.

    Needs no cluster and no network, except for --against-cluster, and for sigstore without --trusted-root.
    """
    from muster.certify.attestation import judge
    from muster.cli.certificate_files import opened
    from muster.cli.certificate_signature import Wanted, verified

    wanted = Wanted(keys, identity, issuer, trusted_root, unsigned)
    wanted.require_one()
    if node_health and against_cluster:
        raise BadInputError("--node-health and --against-cluster exclude each other; give one.")
    exported = opened(Path(file))
    payload, signature = verified(exported, wanted)
    checks = [signature]
    statement = None
    if payload is not None:
        statement = _statement(payload, exported)
        checks.append(judge.Check("statement", judge.Result.HOLDS, "It is complete and agrees with itself."))
        checks.append(judge.about(statement, expected))
        checks.append(judge.tests(statement, tests))
        longest = timedelta(days=max_age) if max_age is not None else None
        checks.append(judge.age(statement, clock_from_environment().now(), longest))
        checks.append(_evidence(statement, exported, evidence))
        checks.append(_standing(statement, node_health, against_cluster, kubeconfig, context))
    _conclude(file, statement, checks, output)


def _evidence(statement: Statement, exported: Exported, given: str | None) -> Check:
    from muster.certify.attestation import judge
    from muster.cli.certificate_files import evidence_beside, read_evidence

    folder = Path(given) if given else evidence_beside(exported.path)
    if not given and not folder.exists():
        return judge.evidence(statement, None)
    return judge.evidence(statement, read_evidence(folder, statement))


def _standing(
    statement: Statement, node_health: str | None, against_cluster: bool, kubeconfig: str | None, context: str | None
) -> Check:
    from muster.certify.attestation import judge
    from muster.cli.certificate_source import health_in, health_of

    if node_health:
        return judge.standing(statement, health_in(node_health, statement.node), node_health)
    if against_cluster:
        health = with_cluster(kubeconfig, context, lambda api: health_of(api, statement.node))
        return judge.standing(statement, health, "the cluster")
    return judge.standing_unchecked(statement)


def _conclude(file: str, statement: Statement | None, checks: list[Check], output: Format) -> None:
    """Print the checks. Raises NotSatisfiedError when one fails."""
    from muster.certify.attestation.judge import Result

    failed = [c for c in checks if c.result is Result.FAILS]
    content = {
        "file": file,
        "node": statement.node if statement else "",
        "holds": not failed,
        "checks": [{"check": c.what, "result": c.result.value, "sentence": c.sentence} for c in checks],
    }
    emit(content, output, _print_checks)
    if failed:
        raise NotSatisfiedError(f"{file} does not hold: {failed[0].sentence}")


def _print_checks(content: dict[str, Any]) -> None:
    for check in content["checks"]:
        click.echo(f"{check['result']:<12} {check['check']:<10} {check['sentence']}")
    open_ = [c["check"] for c in content["checks"] if c["result"] == "not checked"]
    if content["holds"]:
        rest = f"; NOT checked: {', '.join(open_)}" if open_ else ""
        click.echo(f"{plain(content['file'], 200)}: what was checked holds for {plain(content['node'], 80)}{rest}.")
