"""Keys in PEM files: which are taken, and what is said about the others."""

from __future__ import annotations

import base64
import hashlib

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from muster.errors import BadInputError
from muster.signing.keys import PasswordNeededError, private_key, public_key

KINDS = {
    "ed25519": ed25519.Ed25519PrivateKey.generate(),
    "p256": ec.generate_private_key(ec.SECP256R1()),
}
OTHERS = {
    "p384": ec.generate_private_key(ec.SECP384R1()),
    "rsa": rsa.generate_private_key(65537, 2048),
}
AnyKey = ed25519.Ed25519PrivateKey | ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey


def private_pem(key: AnyKey, how: KeySerializationEncryption | None = None) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, how or NoEncryption())


def public_pem(key: AnyKey) -> bytes:
    return key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_a_signature_holds_for_its_key_and_its_data_alone(kind: str) -> None:
    key, other = private_key(private_pem(KINDS[kind]), "k"), ed25519.Ed25519PrivateKey.generate()
    public = public_key(public_pem(KINDS[kind]), "p")
    signature = key.sign(b"data")
    assert public.holds(signature, b"data")
    assert not public.holds(signature, b"dat")
    assert not public.holds(signature[:-1], b"data")
    assert not public.holds(b"", b"data")
    assert not public_key(public_pem(other), "o").holds(signature, b"data")
    assert key.public.key_id == public.key_id
    assert len(public.key_id) == 64


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_encrypted_keys(kind: str) -> None:
    pem = private_pem(KINDS[kind], BestAvailableEncryption(b"secret"))
    assert private_key(pem, "k", b"secret").public.key_id == private_key(private_pem(KINDS[kind]), "k").public.key_id
    with pytest.raises(PasswordNeededError, match=r"^The key k is encrypted"):
        private_key(pem, "k")
    with pytest.raises(BadInputError, match="or the password is wrong"):
        private_key(pem, "k", b"wrong")


def test_a_password_that_is_not_needed_does_no_harm() -> None:
    assert private_key(private_pem(KINDS["p256"]), "k", b"secret").sign(b"x")


@pytest.mark.parametrize("kind", sorted(OTHERS))
def test_keys_of_another_kind(kind: str) -> None:
    with pytest.raises(BadInputError, match=r"^k is a key of another kind; give an Ed25519 key"):
        private_key(private_pem(OTHERS[kind]), "k")
    with pytest.raises(BadInputError, match=r"^k is a key of another kind; give an Ed25519 key"):
        public_key(public_pem(OTHERS[kind]), "k")


def test_the_wrong_half() -> None:
    with pytest.raises(BadInputError, match=r"^k is a private key; give the public one: openssl"):
        public_key(private_pem(KINDS["p256"]), "k")
    with pytest.raises(BadInputError, match=r"^k holds no private key"):
        private_key(public_pem(KINDS["p256"]), "k")


@pytest.mark.parametrize("raw", [b"", b"\xff\x00", b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"])
def test_what_is_no_key(raw: bytes) -> None:
    with pytest.raises(BadInputError, match="private key") as caught:
        private_key(raw, "k")
    assert "\n" not in str(caught.value)
    with pytest.raises(BadInputError, match="k "):
        public_key(raw, "k")


def test_the_key_id_is_the_digest_of_the_key_in_the_file() -> None:
    pem = public_pem(KINDS["p256"])
    der = base64.b64decode(b"".join(pem.splitlines()[1:-1]))
    assert public_key(pem, "p").key_id == hashlib.sha256(der).hexdigest()
