"""Files of `muster certificate`: an exported statement, signed or not, the evidence beside it, and keys."""

from __future__ import annotations

import itertools
import os
import shutil
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import click
import msgspec

from muster.certify.attestation.statement import MAX_DOCUMENTS, PAYLOAD_TYPE, Statement
from muster.errors import BadInputError
from muster.signing import dsse, keys

PASSWORD_VARIABLE = "MUSTER_KEY_PASSWORD"  # noqa: S105 - the name of a variable
MAX_EVIDENCE_BYTES = 256 * 1024 * 1024
_SIGSTORE = "application/vnd.dev.sigstore.bundle"


class Kind(StrEnum):
    """How an exported file is signed."""

    UNSIGNED = "unsigned"
    KEY = "with a key"
    KEYLESS = "through sigstore"


@dataclass(frozen=True)
class Exported:
    """An exported file as it was read. Nothing in it is verified."""

    path: Path
    raw: bytes
    kind: Kind


class _Mark(msgspec.Struct, frozen=True):
    type: str = msgspec.field(name="_type", default="")
    payload_type: str = msgspec.field(name="payloadType", default="")
    media_type: str = msgspec.field(name="mediaType", default="")


class _Bundle(msgspec.Struct, frozen=True):
    envelope: msgspec.Raw = msgspec.field(name="dsseEnvelope")


def opened(path: Path) -> Exported:
    """Read an exported file and see how it is signed. Raises BadInputError."""
    raw = read_bounded(path, dsse.MAX_BYTES)
    try:
        mark = msgspec.json.decode(raw, type=_Mark)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise BadInputError(
            f"{path} is no JSON of ours ({error}); give a file of 'muster certificate export'."
        ) from error
    if mark.media_type.startswith(_SIGSTORE):
        return Exported(path, raw, Kind.KEYLESS)
    if mark.payload_type:
        return Exported(path, raw, Kind.KEY)
    if mark.type:
        return Exported(path, raw, Kind.UNSIGNED)
    raise BadInputError(f"{path} holds no statement; give a file of 'muster certificate export'.")


def unverified_payload(exported: Exported) -> bytes:
    """The statement's bytes, whoever wrote them. Raises BadInputError."""
    source = str(exported.path)
    if exported.kind is Kind.UNSIGNED:
        return exported.raw.removesuffix(b"\n")
    raw = exported.raw
    if exported.kind is Kind.KEYLESS:
        try:
            raw = bytes(msgspec.json.decode(raw, type=_Bundle).envelope)
        except (msgspec.MsgspecError, RecursionError) as error:
            raise BadInputError(f"{source} is a sigstore bundle without a statement ({error}).") from error
    envelope = dsse.decode(raw, source)
    return payload_of(envelope.payload_type, envelope.payload, source)


def payload_of(payload_type: str, payload: bytes, source: str) -> bytes:
    """`payload`, when it says that it is an in-toto statement. Raises BadInputError."""
    if payload_type != PAYLOAD_TYPE:
        raise BadInputError(f"{source} carries {payload_type[:80]!r}, not an in-toto statement.")
    return payload


def evidence_beside(path: Path) -> Path:
    """`FILE.evidence` for the exported file `FILE`."""
    return path.with_name(path.name + ".evidence")


def require_new(folder: Path) -> None:
    """Raises BadInputError when evidence would be written over something."""
    try:
        if folder.is_dir() and not any(folder.iterdir()):
            return
    except OSError as error:
        raise BadInputError(f"Cannot read {folder}: {error.strerror or error}.") from error
    if os.path.lexists(folder):
        raise BadInputError(f"{folder} is there already; remove it, or export to another file.")


def write_evidence(folder: Path, documents: Mapping[str, bytes]) -> None:
    """Write the documents, all or nothing. Raises BadInputError."""
    require_new(folder)
    partial = folder.with_name(f".{folder.name}.partial")
    try:
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir()
        for name, raw in documents.items():
            (partial / name).write_bytes(raw)
        partial.replace(folder)
    except OSError as error:
        raise BadInputError(f"Cannot write {folder}: {error.strerror or error}.") from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def write(path: Path, raw: bytes) -> None:
    """Write the exported file, all or nothing. Raises BadInputError."""
    partial = path.with_name(f".{path.name}.partial")
    try:
        partial.write_bytes(raw)
        partial.replace(path)
    except OSError as error:
        raise BadInputError(f"Cannot write {path}: {error.strerror or error}.") from error
    finally:
        partial.unlink(missing_ok=True)


def read_evidence(folder: Path, statement: Statement) -> dict[str, bytes]:
    """The documents in `folder`; of those that the statement does not name only the name. Raises BadInputError."""
    sizes = {d.name: d.size_bytes for d in statement.predicate.evidence}
    if sum(sizes.values()) > MAX_EVIDENCE_BYTES:
        raise BadInputError(f"The evidence in {folder} would be larger than {MAX_EVIDENCE_BYTES // 2**20} MiB.")
    try:
        there = sorted(p.name for p in itertools.islice(folder.iterdir(), MAX_DOCUMENTS + 1))
    except OSError as error:
        raise BadInputError(f"Cannot read the evidence in {folder}: {error.strerror or error}.") from error
    # One byte more than stated tells that a document grew; the rest of it does not matter.
    return {n: _start_of(folder / n, sizes[n] + 1) if n in sizes else b"" for n in there}


def public_keys(paths: Iterable[str]) -> list[tuple[str, keys.VerifyingKey]]:
    """Public keys with the file of each. Raises BadInputError."""
    return [(p, keys.public_key(read_bounded(Path(p), keys.MAX_BYTES), p)) for p in paths]


def signing_key(path: str, password_file: str | None) -> keys.SigningKey:
    """The private key in `path`; asks for a password only when one is needed. Raises BadInputError."""
    pem = read_bounded(Path(path), keys.MAX_BYTES)
    password = _password(password_file)
    try:
        return keys.private_key(pem, path, password)
    except keys.PasswordNeededError as error:
        if not sys.stdin.isatty():
            raise BadInputError(
                f"The key {path} is encrypted; give its password with --key-password-file or {PASSWORD_VARIABLE}."
            ) from error
    return keys.private_key(pem, path, click.prompt(f"Password of {path}", hide_input=True, err=True).encode())


def _password(path: str | None) -> bytes | None:
    if path is not None:
        return read_bounded(Path(path), 4096).rstrip(b"\r\n")
    return os.environ.get(PASSWORD_VARIABLE, "").encode() or None


def read_bounded(path: Path, limit_bytes: int) -> bytes:
    """A file of others. Raises BadInputError when it cannot be read or is larger than `limit_bytes`."""
    raw = _start_of(path, limit_bytes + 1)
    if len(raw) > limit_bytes:
        raise BadInputError(f"{path} is larger than {limit_bytes // 1024} KiB; it is not what is asked for here.")
    return raw


def _start_of(path: Path, size_bytes: int) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(size_bytes)
    except OSError as error:
        raise BadInputError(f"Cannot read {path}: {error.strerror or error}.") from error
