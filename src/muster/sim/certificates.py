"""A certificate authority of its own and a server certificate for the simulated API server."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from datetime import timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from muster.clock import SystemClock

_VALID_FOR = timedelta(days=365)


@dataclass(frozen=True)
class ServerCertificate:
    """PEM texts. The authority's key is thrown away after signing."""

    ca_pem: str
    certificate_pem: str
    key_pem: str


def issue(host: str) -> ServerCertificate:
    """A new authority and a certificate for `host`, localhost and the loopback addresses, valid for a year.

    Validity is in the machine's time, because that is what TLS clients compare it with.
    """
    now = SystemClock().now()
    ca_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    ca_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "muster-sim-ca")])
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "muster-sim")])

    def builder(subject: x509.Name, public: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(ca_name)
            .public_key(public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=1))
            .not_valid_after(now + _VALID_FOR)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()), critical=False)
        )

    ca = (
        builder(ca_name, ca_key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .sign(ca_key, hashes.SHA256())
    )
    certificate = (
        builder(name, key.public_key())
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(_names(host)), critical=False)
        .sign(ca_key, hashes.SHA256())
    )
    key_pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    encoding = serialization.Encoding.PEM
    return ServerCertificate(
        ca.public_bytes(encoding).decode(), certificate.public_bytes(encoding).decode(), key_pem.decode()
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _names(host: str) -> list[x509.GeneralName]:
    names: list[x509.GeneralName] = [x509.DNSName("localhost"), x509.DNSName("kubernetes.default.svc")]
    addresses = ["127.0.0.1", "::1"]
    try:
        ipaddress.ip_address(host)
    except ValueError:
        if host != "localhost":
            names.append(x509.DNSName(host))
    else:
        if host not in (*addresses, "0.0.0.0"):  # noqa: S104 - compared, not bound
            addresses.append(host)
    return names + [x509.IPAddress(ipaddress.ip_address(address)) for address in addresses]
