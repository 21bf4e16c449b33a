"""Signatures through sigstore: an identity that an OIDC issuer vouches for signs, no key is kept.

Needs the extra `sign`. Signing needs the network; verifying does not when the trusted root is given as a file.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from muster.errors import BadInputError, NotSatisfiedError, UnreachableError

MAX_BYTES = 1024 * 1024
T = TypeVar("T")


@dataclass(frozen=True)
class Who:
    """`identity` (an e-mail address or the URI of a workflow), vouched for by `issuer`, must have signed.

    `trusted_root`: a file of sigstore's trusted root, so that no network is needed; otherwise it is fetched.
    """

    identity: str
    issuer: str
    trusted_root: Path | None = None


def sign_artifact(content: bytes, what: str, identity_token: str | None = None) -> str:
    """Sign `content`; the sigstore bundle as JSON. `what` names it in errors.

    The identity is `identity_token` (an OIDC token), else one that the environment offers (CI, workload identity); no
    browser is opened. Raises BadInputError, UnreachableError.
    """
    return _sign(lambda signer: signer.sign_artifact(content), what, identity_token)


def sign_statement(statement: bytes, what: str, identity_token: str | None = None) -> str:
    """The same for an in-toto statement, which then lies in the sigstore bundle, in a DSSE envelope."""
    require_sigstore()
    from sigstore.dsse import Statement

    return _sign(lambda signer: signer.sign_dsse(Statement(statement)), what, identity_token)


def verify_artifact(content: bytes, raw: bytes, source: str, what: str, who: Who) -> None:
    """Check that `who` signed `content`. `raw` is the sigstore bundle, read from `source`; `what` names the content.

    Raises NotSatisfiedError when the signature does not hold, BadInputError for files that cannot be used,
    UnreachableError.
    """

    def act(verifier: Any, bundle: Any, policy: Any) -> None:
        verifier.verify_artifact(content, bundle, policy)

    _verify(act, raw, source, what, who)


def verify_statement(raw: bytes, source: str, what: str, who: Who) -> tuple[str, bytes]:
    """(Type, payload) of the envelope in the sigstore bundle `raw`, checked like `verify_artifact`."""

    def act(verifier: Any, bundle: Any, policy: Any) -> tuple[str, bytes]:
        kind, payload = verifier.verify_dsse(bundle, policy)
        return str(kind), bytes(payload)

    return _verify(act, raw, source, what, who)


def read(path: Path) -> bytes:
    """A file of sigstore. Raises BadInputError."""
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise BadInputError(f"Cannot read {path}: {error.strerror or error}.") from error
    if len(content) > MAX_BYTES:
        raise BadInputError(f"{path} is larger than 1 MiB; it is no file of sigstore.")
    return content


def require_sigstore() -> None:
    """Raises BadInputError where the extra is not installed."""
    try:
        import sigstore  # noqa: F401 - only whether it is there
    except ImportError as error:
        raise BadInputError(
            "Signatures through sigstore need the extra 'sign', which is not installed; "
            "run pip install 'muster-gpu[sign]'."
        ) from error


def _sign(act: Callable[[Any], Any], what: str, identity_token: str | None) -> str:
    require_sigstore()
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
    try:
        context = SigningContext.from_trust_config(ClientTrustConfig.production())
        with context.signer(token) as signer:
            return str(act(signer).to_json())
    except (Error, OSError) as error:
        raise UnreachableError(f"The services of sigstore did not sign {what}: {_first_line(error)}.") from error


def _verify(act: Callable[[Any, Any, Any], T], raw: bytes, source: str, what: str, who: Who) -> T:
    require_sigstore()
    from sigstore.errors import Error, VerificationError
    from sigstore.models import Bundle
    from sigstore.verify import policy

    try:
        parsed = Bundle.from_json(raw)
    except Exception as error:
        # The parser lets errors of several libraries through for malformed input.
        raise BadInputError(f"{source} is no sigstore bundle: {_first_line(error)}.") from error
    verifier = _verifier(who.trusted_root)
    try:
        return act(verifier, parsed, policy.Identity(identity=who.identity, issuer=who.issuer))
    except VerificationError as error:
        raise NotSatisfiedError(
            f"The signature {source} does not hold for {what} and {who.identity[:120]}: {_first_line(error)}."
        ) from error
    except (Error, ValueError) as error:
        raise BadInputError(f"The signature {source} cannot be checked: {_first_line(error)}.") from error


def _verifier(trusted_root: Path | None) -> Any:
    from sigstore.errors import Error
    from sigstore.models import TrustedRoot
    from sigstore.verify import Verifier

    if trusted_root is not None:
        read(trusted_root)
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


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0][:200].rstrip(".")
