"""Envelopes: the specification's own vector, other people's libraries, and what is no envelope of ours."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from hypothesis import given
from hypothesis import strategies as st
from securesystemslib.dsse import Envelope as OtherEnvelope
from securesystemslib.exceptions import VerificationError
from securesystemslib.signer import SSlibKey

from muster.errors import BadInputError
from muster.signing import dsse
from muster.signing.dsse import Envelope, Signature
from muster.signing.keys import SigningKey, VerifyingKey

# protocol.md of the DSSE specification, "Test Vectors". Its signature is r and s side by side, not DER.
X = 46950820868899156662930047687818585632848591499744589407958293238635476079160
Y = 5640078356564379163099075877009565129882514886557779369047442380624545832820
PAE = b"DSSEv1 29 http://example.com/HelloWorld 11 hello world"
SIGNATURE = "A3JqsQGtVsJ2O2xqrI5IcnXip5GToJ3F+FnZ+O88SjtR6rDAajabZKciJTfUiHqJPcIAriEGAHTVeCUjW2JIZA=="
VECTOR = {
    "payload": "aGVsbG8gd29ybGQ=",
    "payloadType": "http://example.com/HelloWorld",
    "signatures": [{"sig": SIGNATURE}],
}
KEYS = [SigningKey(ed25519.Ed25519PrivateKey.generate()), SigningKey(ec.generate_private_key(ec.SECP256R1()))]


def signed(key: SigningKey, kind: str, payload: bytes) -> Envelope:
    return Envelope(kind, payload, (Signature(key.public.key_id, key.sign(dsse.pae(kind, payload))),))


def test_the_vector_of_the_specification() -> None:
    envelope = dsse.decode(json.dumps(VECTOR).encode(), "vector")
    assert dsse.pae(envelope.payload_type, envelope.payload) == PAE
    raw = envelope.signatures[0].value
    der = encode_dss_signature(int.from_bytes(raw[:32], "big"), int.from_bytes(raw[32:], "big"))
    key = VerifyingKey(ec.EllipticCurvePublicNumbers(X, Y, ec.SECP256R1()).public_key())
    assert key.holds(der, PAE)
    assert not key.holds(der, PAE + b" ")


@given(kind=st.text(max_size=20), payload=st.binary(max_size=40))
def test_what_is_signed_can_be_read_in_one_way_only(kind: str, payload: bytes) -> None:
    """The encoding taken apart as the specification says: by the lengths in it."""
    rest = dsse.pae(kind, payload)
    assert rest.startswith(b"DSSEv1 ")
    size, _, rest = rest[7:].partition(b" ")
    assert rest[: int(size)].decode() == kind
    assert rest[int(size) : int(size) + 1] == b" "
    size, _, rest = rest[int(size) + 1 :].partition(b" ")
    assert (int(size), rest) == (len(payload), payload)


@given(
    kind=st.text(min_size=1, max_size=50), payload=st.binary(max_size=200), value=st.binary(min_size=1, max_size=99)
)
def test_written_and_read_again(kind: str, payload: bytes, value: bytes) -> None:
    envelope = Envelope(kind, payload, (Signature("one", value), Signature("", value + b"x")))
    assert dsse.decode(dsse.encode(envelope), "x") == envelope
    assert dsse.encode(dsse.decode(dsse.encode(envelope), "x")) == dsse.encode(envelope)


@pytest.mark.parametrize("key", KEYS, ids=["ed25519", "p256"])
def test_securesystemslib_takes_our_signatures_and_refuses_changed_ones(key: SigningKey) -> None:
    wire: dict[str, Any] = json.loads(dsse.encode(signed(key, "application/x", b"some \x00 bytes")))
    other = SSlibKey.from_crypto(key.public.key, keyid=key.public.key_id)
    assert OtherEnvelope.from_dict(json.loads(json.dumps(wire))).verify([other], 1)
    wire["payload"] = base64.b64encode(b"other bytes").decode()
    with pytest.raises(VerificationError):
        OtherEnvelope.from_dict(wire).verify([other], 1)


GOOD = json.loads(dsse.encode(Envelope("t", b"ab", (Signature("k", b"s"),))))


@pytest.mark.parametrize(
    "wire",
    [
        {**GOOD, "more": 1},
        {**GOOD, "signatures": []},
        {**GOOD, "signatures": GOOD["signatures"] * 17},
        {**GOOD, "signatures": [{"sig": ""}]},
        {**GOOD, "payload": "YWJ="},  # bits that mean nothing are set
        {**GOOD, "payload": "YWI"},
        {**GOOD, "payload": "YWI=\n"},
        {**GOOD, "payload": "YW_="},
        {**GOOD, "payload": 1},
        {**GOOD, "payloadType": ""},
        {k: v for k, v in GOOD.items() if k != "payloadType"},
        [],
        None,
    ],
)
def test_what_is_no_envelope(wire: object) -> None:
    dsse.decode(json.dumps(GOOD).encode(), "good")
    with pytest.raises(BadInputError, match=r"^the file is no DSSE envelope") as caught:
        dsse.decode(json.dumps(wire).encode(), "the file")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("raw", [b"", b"\xff", b"[" * 5000, b" " * (dsse.MAX_BYTES + 1)])
def test_bytes_that_are_no_envelope(raw: bytes) -> None:
    with pytest.raises(BadInputError, match=r"^the file is"):
        dsse.decode(raw, "the file")
