"""Signing and verifying with a key in a PEM file: Ed25519, or ECDSA on P-256 with SHA-256. Pure.

The key says which algorithm is used, never the file that is verified.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)

from muster.errors import BadInputError

MAX_BYTES = 64 * 1024
_KINDS = "an Ed25519 key, or an EC key on P-256"
_Public = ed25519.Ed25519PublicKey | ec.EllipticCurvePublicKey
_Private = ed25519.Ed25519PrivateKey | ec.EllipticCurvePrivateKey


class PasswordNeededError(BadInputError):
    """The private key is encrypted and no password was given."""


@dataclass(frozen=True)
class VerifyingKey:
    key: _Public

    @property
    def key_id(self) -> str:
        """SHA-256 of the public key as DER, in hex: `openssl pkey -pubin -in PUB.pem -outform DER | sha256sum`."""
        raw = self.key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        return hashlib.sha256(raw).hexdigest()

    def holds(self, signature: bytes, data: bytes) -> bool:
        """Whether `signature` over `data` was made with this key."""
        try:
            if isinstance(self.key, ed25519.Ed25519PublicKey):
                self.key.verify(signature, data)
            else:
                self.key.verify(signature, data, ec.ECDSA(hashes.SHA256()))
        except InvalidSignature:
            return False
        return True


@dataclass(frozen=True)
class SigningKey:
    key: _Private

    @property
    def public(self) -> VerifyingKey:
        return VerifyingKey(self.key.public_key())

    def sign(self, data: bytes) -> bytes:
        if isinstance(self.key, ed25519.Ed25519PrivateKey):
            return self.key.sign(data)
        return self.key.sign(data, ec.ECDSA(hashes.SHA256()))


def private_key(pem: bytes, source: str, password: bytes | None = None) -> SigningKey:
    """The private key in `pem`; `source` names the file. Raises PasswordNeededError, BadInputError."""
    if b"PRIVATE KEY-----" not in pem:
        raise BadInputError(f"{source} holds no private key in PEM; to sign, give {_KINDS}.")
    try:
        key = load_pem_private_key(pem, password or None)
    except TypeError as error:
        # A password where none is needed, or none where one is: the library tells them apart by text alone.
        if password:
            return private_key(pem, source)
        raise PasswordNeededError(f"The key {source} is encrypted; give its password.") from error
    except UnsupportedAlgorithm as error:
        raise BadInputError(f"{source} is a key of an unknown kind; give {_KINDS}.") from error
    except ValueError as error:
        doubt = " or the password is wrong" if password else ""
        raise BadInputError(f"The private key {source} cannot be read: it is damaged{doubt}.") from error
    if isinstance(key, ed25519.Ed25519PrivateKey) or (
        isinstance(key, ec.EllipticCurvePrivateKey) and isinstance(key.curve, ec.SECP256R1)
    ):
        return SigningKey(key)
    raise BadInputError(f"{source} is a key of another kind; give {_KINDS}.")


def public_key(pem: bytes, source: str) -> VerifyingKey:
    """The public key in `pem`; `source` names the file. Raises BadInputError."""
    if b"PRIVATE KEY-----" in pem:
        raise BadInputError(
            f"{source} is a private key; give the public one: openssl pkey -in KEY.pem -pubout -out PUB.pem."
        )
    try:
        key = load_pem_public_key(pem)
    except (ValueError, UnsupportedAlgorithm) as error:
        raise BadInputError(f"{source} holds no public key in PEM that can be read; give {_KINDS}.") from error
    if isinstance(key, ed25519.Ed25519PublicKey) or (
        isinstance(key, ec.EllipticCurvePublicKey) and isinstance(key.curve, ec.SECP256R1)
    ):
        return VerifyingKey(key)
    raise BadInputError(f"{source} is a key of another kind; give {_KINDS}.")
