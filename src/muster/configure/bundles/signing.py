"""Signatures of bundles through sigstore: keyless, optional, off by default.

What is signed is `checksums.txt`, which covers every other file. The signature lies beside the bundle, not in it,
because the bundle is a closed world.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from muster.configure.bundles import build as bundles
from muster.errors import BadInputError, NotSatisfiedError, UnreachableError

SUFFIX = ".sigstore.json"
_MAX_SIGNATURE_BYTES = 1024 * 1024


def signature_beside(folder: Path) -> Path:
    """`BUNDLE.sigstore.json` for the folder `BUNDLE`."""
    return folder.with_name(folder.name + SUFFIX)


def sign(folder: Path, identity_token: str | None = None) -> Path:
    """Sign the bundle at `folder`; returns the file that was written.

    The identity is `identity_token` (an OIDC token), else one that the environment offers (CI, workload identity); no
    browser is opened. Needs the network. Raises BadInputError, NotSatisfiedError, UnreachableError.
    """
    bundles.verify(folder)
    _require_sigstore()
    from sigstore.errors import Error
    from sigstore.models import ClientTrustConfig
    from sigstore.oidc import IdentityError, IdentityToken, detect_credential
    from sigstore.sign import SigningContext

    try:
        found = identity_token or detect_credential()
        if not found:
            raise BadInputError(
                "No identity to sign with: give an OIDC token with --identity-token-file, or run where one is "
                "offered, such as a CI job that may write identity tokens."
            )
        token = IdentityToken(found)
    except IdentityError as error:
        raise BadInputError(f"The identity token cannot be used ({_first_line(error)}); fetch a new one.") from error
    listing = (folder / bundles.CHECKSUMS).read_bytes()
    try:
        context = SigningContext.from_trust_config(ClientTrustConfig.production())
        with context.signer(token) as signer:
            signature = signer.sign_artifact(listing).to_json()
    except (Error, OSError) as error:
        raise UnreachableError(f"The services of sigstore did not sign the bundle: {_first_line(error)}.") from error
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
    raw = _read(signature)
    listing = (folder / bundles.CHECKSUMS).read_bytes()
    _require_sigstore()
    from sigstore.errors import Error, VerificationError
    from sigstore.models import Bundle
    from sigstore.verify import policy

    try:
        parsed = Bundle.from_json(raw)
    except Exception as error:
        # The parser lets errors of several libraries through for malformed input.
        raise BadInputError(f"{signature} is no sigstore bundle: {_first_line(error)}.") from error
    verifier = _verifier(trusted_root)
    try:
        verifier.verify_artifact(listing, parsed, policy.Identity(identity=identity, issuer=issuer))
    except VerificationError as error:
        raise NotSatisfiedError(
            f"The signature {signature} does not hold for the bundle {folder} and {identity[:120]}: "
            f"{_first_line(error)}."
        ) from error
    except (Error, ValueError) as error:
        raise BadInputError(f"The signature {signature} cannot be checked: {_first_line(error)}.") from error


def _verifier(trusted_root: Path | None) -> Any:
    from sigstore.errors import Error
    from sigstore.models import TrustedRoot
    from sigstore.verify import Verifier

    if trusted_root is not None:
        _read(trusted_root)
        try:
            return Verifier(trusted_root=TrustedRoot.from_file(str(trusted_root)))
        except Exception as error:
            raise BadInputError(f"{trusted_root} is no trusted root of sigstore: {_first_line(error)}.") from error
    try:
        return Verifier.production()
    except (Error, OSError) as error:
        raise UnreachableError(
            f"The trusted root of sigstore could not be fetched ({_first_line(error)}); give one with --trusted-root."
        ) from error


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            content = file.read(_MAX_SIGNATURE_BYTES + 1)
    except OSError as error:
        raise BadInputError(f"Cannot read {path}: {error.strerror or error}.") from error
    if len(content) > _MAX_SIGNATURE_BYTES:
        raise BadInputError(f"{path} is larger than 1 MiB; it is no file of sigstore.")
    return content


def _require_sigstore() -> None:
    try:
        import sigstore  # noqa: F401 - only whether it is there
    except ImportError as error:
        raise BadInputError(
            "Signatures need the extra 'sign', which is not installed; run pip install 'muster-gpu[sign]'."
        ) from error


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0][:200].rstrip(".")
