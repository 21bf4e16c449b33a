"""DSSE envelopes: a payload with its type and signatures over both. Pure.

The format is the DSSE specification 1.0 (https://github.com/secure-systems-lab/dsse). Reading is stricter: one way
of writing base64, no unknown fields, so that a changed byte is a changed envelope.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from typing import Annotated

import msgspec

from muster.errors import BadInputError

MAX_BYTES = 8 * 1024 * 1024
MAX_SIGNATURES = 16


@dataclass(frozen=True)
class Signature:
    """`key_id` names the key for people; nothing is believed because of it."""

    key_id: str
    value: bytes


@dataclass(frozen=True)
class Envelope:
    payload_type: str
    payload: bytes
    signatures: tuple[Signature, ...]


class _WireSignature(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    sig: Annotated[str, msgspec.Meta(min_length=1, max_length=1024)]
    keyid: Annotated[str, msgspec.Meta(max_length=256)] = ""


class _WireEnvelope(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    payload: Annotated[str, msgspec.Meta(max_length=MAX_BYTES)]
    payload_type: Annotated[str, msgspec.Meta(min_length=1, max_length=256)]
    signatures: Annotated[tuple[_WireSignature, ...], msgspec.Meta(min_length=1, max_length=MAX_SIGNATURES)]


_decoder = msgspec.json.Decoder(_WireEnvelope)


def pae(payload_type: str, payload: bytes) -> bytes:
    """What is signed: the pre-authentication encoding, which binds the type to the payload."""
    kind = payload_type.encode()
    return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)


def encode(envelope: Envelope) -> bytes:
    """The envelope as JSON on one line, always the same bytes for the same envelope."""
    wire = _WireEnvelope(
        payload=_text(envelope.payload),
        payload_type=envelope.payload_type,
        signatures=tuple(_WireSignature(sig=_text(s.value), keyid=s.key_id) for s in envelope.signatures),
    )
    return msgspec.json.encode(wire, order="sorted") + b"\n"


def decode(raw: bytes, source: str) -> Envelope:
    """Read an envelope that somebody else wrote; `source` names it in errors. Nothing is verified.

    Raises BadInputError.
    """
    if len(raw) > MAX_BYTES:
        raise BadInputError(f"{source} is larger than {MAX_BYTES // 1024 // 1024} MiB; it is no envelope of ours.")
    try:
        wire = _decoder.decode(raw)
        return Envelope(
            payload_type=wire.payload_type,
            payload=_bytes(wire.payload),
            signatures=tuple(Signature(s.keyid, _bytes(s.sig)) for s in wire.signatures),
        )
    except (msgspec.MsgspecError, RecursionError, ValueError) as error:
        raise BadInputError(f"{source} is no DSSE envelope ({error}); export the certificate again.") from error


def _text(raw: bytes) -> str:
    return base64.b64encode(raw).decode("ascii")


def _bytes(text: str) -> bytes:
    try:
        raw = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"a text that should be base64 is not: {error}") from error
    if _text(raw) != text:
        raise ValueError("a text in base64 is not written in its one proper way")
    return raw
