"""A sigstore of our own: certificate authority, certificate log and signature log, each a key in memory.

It signs as the public services do (X.509 with an embedded RFC 6962 timestamp, a log entry with an RFC 6962 proof in a
tree of one leaf, a signed checkpoint and a signed promise), so that verification can be tested without the network.
"""

from __future__ import annotations

import base64
import hashlib
import json
import struct
from datetime import UTC, datetime, timedelta
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID, ObjectIdentifier

NOW = datetime(2026, 6, 1, tzinfo=UTC)
_OIDC_ISSUER = ObjectIdentifier("1.3.6.1.4.1.57264.1.1")
_TIMESTAMPS = ObjectIdentifier("1.3.6.1.4.1.11129.2.4.2")
_SHA256_ECDSA = b"\x04\x03"
IN_TOTO = "application/vnd.in-toto+json"


def text(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


def _public(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.public_key().public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)


def _log_id(key: ec.EllipticCurvePrivateKey) -> bytes:
    return hashlib.sha256(_public(key)).digest()


def _sign(key: ec.EllipticCurvePrivateKey, data: bytes) -> bytes:
    return key.sign(data, ec.ECDSA(hashes.SHA256()))


def _pem(certificate: x509.Certificate) -> str:
    return text(certificate.public_bytes(serialization.Encoding.PEM))


def _bundle(certificate: x509.Certificate, entry: dict[str, Any], content: dict[str, Any]) -> str:
    raw = certificate.public_bytes(serialization.Encoding.DER)
    return json.dumps(
        {
            "mediaType": "application/vnd.dev.sigstore.bundle.v0.3+json",
            "verificationMaterial": {"certificate": {"rawBytes": text(raw)}, "tlogEntries": [entry]},
            **content,
        }
    )


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _usage(**allowed: bool) -> x509.KeyUsage:
    every = (
        "digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement",
        "key_cert_sign", "crl_sign", "encipher_only", "decipher_only",
    )  # fmt: skip
    return x509.KeyUsage(**{name: allowed.get(name, False) for name in every})


class OwnSigstore:
    """`trusted_root` is what verification trusts; `signed` makes the signature of an identity over some bytes."""

    def __init__(self) -> None:
        self.authority, self.certificates, self.log = (ec.generate_private_key(ec.SECP256R1()) for _ in range(3))
        name = _name("our own authority")
        self.root = (
            x509.CertificateBuilder(name, name, self.authority.public_key(), 1)
            .not_valid_before(NOW - timedelta(days=1))
            .not_valid_after(NOW + timedelta(days=365))
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(key_cert_sign=True, crl_sign=True), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(self.authority.public_key()), critical=False)
            .sign(self.authority, hashes.SHA256())
        )

    @property
    def trusted_root(self) -> str:
        valid = {"start": (NOW - timedelta(days=1)).isoformat().replace("+00:00", "Z")}

        def log(key: ec.EllipticCurvePrivateKey, url: str) -> dict[str, Any]:
            return {
                "baseUrl": url,
                "hashAlgorithm": "SHA2_256",
                "publicKey": {
                    "rawBytes": text(_public(key)),
                    "keyDetails": "PKIX_ECDSA_P256_SHA_256",
                    "validFor": valid,
                },
                "logId": {"keyId": text(_log_id(key))},
            }

        authority = {
            "subject": {"organization": "own", "commonName": "own"},
            "uri": "https://authority.invalid",
            "certChain": {"certificates": [{"rawBytes": text(self.root.public_bytes(serialization.Encoding.DER))}]},
            "validFor": valid,
        }
        return json.dumps(
            {
                "mediaType": "application/vnd.dev.sigstore.trustedroot+json;version=0.1",
                "tlogs": [log(self.log, "https://log.invalid")],
                "certificateAuthorities": [authority],
                "ctlogs": [log(self.certificates, "https://certificates.invalid")],
                "timestampAuthorities": [],
            }
        )

    def signed(self, content: bytes, identity: str, issuer: str) -> str:
        """A sigstore bundle over `content`."""
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = self._certificate(key, identity, issuer)
        signature, digest = _sign(key, content), hashlib.sha256(content).digest()
        spec = {
            "data": {"hash": {"algorithm": "sha256", "value": digest.hex()}},
            "signature": {"content": text(signature), "publicKey": {"content": _pem(certificate)}},
        }
        message = {
            "messageDigest": {"algorithm": "SHA2_256", "digest": text(digest)},
            "signature": text(signature),
        }
        return _bundle(certificate, self._entry("hashedrekord", spec), {"messageSignature": message})

    def signed_statement(self, statement: bytes, identity: str, issuer: str, kind: str = IN_TOTO) -> str:
        """A sigstore bundle that holds `statement` in a DSSE envelope."""
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = self._certificate(key, identity, issuer)
        signature = _sign(
            key, b" ".join([b"DSSEv1", b"%d" % len(kind), kind.encode(), b"%d" % len(statement), statement])
        )
        envelope = {"payload": text(statement), "payloadType": kind, "signatures": [{"sig": text(signature)}]}
        spec = {
            "envelopeHash": {"algorithm": "sha256", "value": hashlib.sha256(_canonical(envelope)).hexdigest()},
            "payloadHash": {"algorithm": "sha256", "value": hashlib.sha256(statement).hexdigest()},
            "signatures": [{"signature": text(signature), "verifier": _pem(certificate)}],
        }
        return _bundle(certificate, self._entry("dsse", spec), {"dsseEnvelope": envelope})

    def _certificate(self, key: ec.EllipticCurvePrivateKey, identity: str, issuer: str) -> x509.Certificate:
        own = self.authority.public_key()
        builder = (
            x509.CertificateBuilder(self.root.subject, _name("signer"), key.public_key(), 2)
            .not_valid_before(NOW)
            .not_valid_after(NOW + timedelta(minutes=10))
            .add_extension(_usage(digital_signature=True), critical=True)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CODE_SIGNING]), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(own), critical=False)
            .add_extension(x509.SubjectAlternativeName([x509.RFC822Name(identity)]), critical=False)
            .add_extension(x509.UnrecognizedExtension(_OIDC_ISSUER, issuer.encode()), critical=False)
        )
        before = builder.sign(self.authority, hashes.SHA256())
        stamp = self._timestamp(before.tbs_certificate_bytes)
        return builder.add_extension(x509.UnrecognizedExtension(_TIMESTAMPS, stamp), critical=False).sign(
            self.authority, hashes.SHA256()
        )

    def _timestamp(self, to_be_signed: bytes) -> bytes:
        """The list with one timestamp of the certificate log, as an OCTET STRING (RFC 6962, 3.2 and 3.3)."""
        milliseconds = int(NOW.timestamp() * 1000)
        length = struct.pack("!I", len(to_be_signed))[1:]
        signed = struct.pack("!BBQH", 0, 0, milliseconds, 1) + _log_id(self.authority) + length + to_be_signed
        signature = _sign(self.certificates, signed + struct.pack("!H", 0))
        stamp = struct.pack("!B32sQH", 0, _log_id(self.certificates), milliseconds, 0) + _SHA256_ECDSA
        stamp += struct.pack("!H", len(signature)) + signature
        listed = struct.pack("!HH", len(stamp) + 2, len(stamp)) + stamp
        assert len(listed) < 256
        prefix = b"\x04" + (bytes([len(listed)]) if len(listed) < 128 else bytes([0x81, len(listed)]))
        return prefix + listed

    def _entry(self, kind: str, spec: dict[str, Any]) -> dict[str, Any]:
        """The entry of the signature log, alone in its tree."""
        body = _canonical({"apiVersion": "0.0.1", "kind": kind, "spec": spec})
        seconds = int((NOW + timedelta(minutes=1)).timestamp())
        root = hashlib.sha256(b"\x00" + body).digest()
        note = f"log.invalid\n1\n{text(root)}\n"
        mark = text(_log_id(self.log)[:4] + _sign(self.log, note.encode()))
        promise = _canonical(
            {"body": text(body), "integratedTime": seconds, "logID": _log_id(self.log).hex(), "logIndex": 0}
        )
        return {
            "logIndex": "0",
            "logId": {"keyId": text(_log_id(self.log))},
            "kindVersion": {"kind": kind, "version": "0.0.1"},
            "integratedTime": str(seconds),
            "inclusionPromise": {"signedEntryTimestamp": text(_sign(self.log, promise))},
            "inclusionProof": {
                "logIndex": "0",
                "rootHash": text(root),
                "treeSize": "1",
                "hashes": [],
                "checkpoint": {"envelope": f"{note}\n\u2014 log.invalid {mark}\n"},
            },
            "canonicalizedBody": text(body),
        }


def _canonical(content: dict[str, Any]) -> bytes:
    return json.dumps(content, sort_keys=True, separators=(",", ":")).encode()
