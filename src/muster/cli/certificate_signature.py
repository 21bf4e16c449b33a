"""Who signed an exported certificate: the check that `muster certificate verify` begins with."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from muster.certify.attestation.judge import Check, Result
from muster.cli.certificate_files import Exported, Kind, payload_of, public_keys, unverified_payload
from muster.errors import BadInputError, NotSatisfiedError
from muster.plain_text import plain
from muster.signing import dsse, keyless

_NONE = "Say who must have signed it: --key PUB.pem, or --identity WHO and --issuer URL; or --unsigned to not ask."


@dataclass(frozen=True)
class Wanted:
    """Whose signature the reader takes."""

    keys: tuple[str, ...]
    identity: str | None
    issuer: str | None
    trusted_root: str | None
    unsigned: bool

    def require_one(self) -> None:
        """Raises BadInputError unless there is exactly one way to check."""
        if bool(self.identity) != bool(self.issuer):
            raise BadInputError("--identity and --issuer belong together; give both.")
        if self.trusted_root and not self.identity:
            raise BadInputError("--trusted-root belongs to --identity and --issuer; give all three.")
        ways = bool(self.keys) + bool(self.identity) + self.unsigned
        if ways == 0:
            raise BadInputError(_NONE)
        if ways > 1:
            raise BadInputError("--key, --identity and --unsigned exclude each other; give one.")


def verified(exported: Exported, wanted: Wanted) -> tuple[bytes | None, Check]:
    """(Payload, check). Without a signature that holds there is no payload: nothing in it is worth reading.

    Raises BadInputError when the file is signed in another way than is asked for, or cannot be read.
    """
    if wanted.unsigned:
        return unverified_payload(exported), _unchecked(exported.kind)
    if exported.kind is Kind.UNSIGNED:
        return None, Check("signature", Result.FAILS, "It is not signed: anybody could have written it.")
    if wanted.identity and wanted.issuer:
        if exported.kind is not Kind.KEYLESS:
            raise BadInputError(f"{exported.path} is signed with a key, not through sigstore; give --key PUB.pem.")
        root = Path(wanted.trusted_root) if wanted.trusted_root else None
        return _by_identity(exported, keyless.Who(wanted.identity, wanted.issuer, root))
    if exported.kind is not Kind.KEY:
        raise BadInputError(f"{exported.path} is signed through sigstore; give --identity and --issuer, not --key.")
    return _by_key(exported, wanted.keys)


def _unchecked(kind: Kind) -> Check:
    if kind is Kind.UNSIGNED:
        sentence = "It is not signed: anybody could have written it."
    else:
        sentence = f"It is signed {kind.value}; who signed was not asked, so anybody could have written it."
    return Check("signature", Result.UNCHECKED, sentence)


def _by_key(exported: Exported, paths: tuple[str, ...]) -> tuple[bytes | None, Check]:
    envelope = dsse.decode(exported.raw, str(exported.path))
    signed = dsse.pae(envelope.payload_type, envelope.payload)
    for path, key in public_keys(paths):
        for signature in envelope.signatures:
            # A key ID that lies about the key proves nothing either way; an envelope of ours has none.
            if signature.key_id in ("", key.key_id) and key.holds(signature.value, signed):
                payload = payload_of(envelope.payload_type, envelope.payload, str(exported.path))
                return payload, Check("signature", Result.HOLDS, f"Signed with the key {path} ({key.key_id}).")
    named = ", ".join(plain(s.key_id, 80) or "a key without a name" for s in envelope.signatures[:3])
    which = "the given key" if len(paths) == 1 else "any of the given keys"
    sentence = f"It was not signed with {which}, or was changed afterwards; it names {named}."
    return None, Check("signature", Result.FAILS, sentence)


def _by_identity(exported: Exported, who: keyless.Who) -> tuple[bytes | None, Check]:
    source = str(exported.path)
    if len(exported.raw) > keyless.MAX_BYTES:
        raise BadInputError(f"{source} is larger than 1 MiB; it is no file of sigstore.")
    try:
        kind, payload = keyless.verify_statement(exported.raw, source, "the statement", who)
    except NotSatisfiedError as error:
        return None, Check("signature", Result.FAILS, str(error))
    sentence = f"Signed by {plain(who.identity, 120)}, vouched for by {plain(who.issuer, 120)}, in sigstore's log."
    return payload_of(kind, payload, source), Check("signature", Result.HOLDS, sentence)
