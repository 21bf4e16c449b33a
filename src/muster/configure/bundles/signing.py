"""Signatures of bundles through sigstore: keyless, optional, off by default.

What is signed is `checksums.txt`, which covers every other file. The signature lies beside the bundle, not in it,
because the bundle is a closed world.
"""

from __future__ import annotations

from pathlib import Path

from muster.configure.bundles import build as bundles
from muster.errors import BadInputError
from muster.signing import keyless

SUFFIX = ".sigstore.json"


def signature_beside(folder: Path) -> Path:
    """`BUNDLE.sigstore.json` for the folder `BUNDLE`."""
    return folder.with_name(folder.name + SUFFIX)


def sign(folder: Path, identity_token: str | None = None) -> Path:
    """Sign the bundle at `folder`; returns the file that was written.

    The identity is `identity_token` (an OIDC token), else one that the environment offers (CI, workload identity); no
    browser is opened. Needs the network. Raises BadInputError, NotSatisfiedError, UnreachableError.
    """
    bundles.verify(folder)
    signature = keyless.sign_artifact((folder / bundles.CHECKSUMS).read_bytes(), "the bundle", identity_token)
    path = signature_beside(folder)
    partial = path.with_name(f".{path.name}.partial")
    try:
        partial.write_text(signature, encoding="utf-8")
        partial.replace(path)
    except OSError as error:
        raise BadInputError(f"Cannot write {path}: {error.strerror}.") from error
    finally:
        partial.unlink(missing_ok=True)
    return path


def verify_signature(
    folder: Path, signature: Path, identity: str, issuer: str, trusted_root: Path | None = None
) -> None:
    """Check that `identity` (an e-mail address or the URI of a workflow), vouched for by `issuer`, signed the bundle.

    `trusted_root`: a file of sigstore's trusted root, so that no network is needed; otherwise it is fetched. Raises
    NotSatisfiedError when the signature does not hold, BadInputError for files that cannot be used, UnreachableError.
    """
    raw = keyless.read(signature)
    listing = (folder / bundles.CHECKSUMS).read_bytes()
    who = keyless.Who(identity, issuer, trusted_root)
    keyless.verify_artifact(listing, raw, str(signature), f"the bundle {folder}", who)
