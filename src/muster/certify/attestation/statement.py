"""The statement: its shape, its bytes, and reading one that somebody else wrote. Pure.

An in-toto Statement v1 (https://github.com/in-toto/attestation). The subject is the node: its name, and as digest the
SHA-256 of the fingerprint that was certified.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime
from typing import Annotated

import msgspec
from msgspec import Meta

from muster.certify.attestation.canonical import canonical
from muster.errors import BadInputError
from muster.resources.base import Model, to_object
from muster.resources.certification import NodeVerdict, Purpose
from muster.resources.fingerprint import Fingerprint, Reading, ReadingClass, class_digest

STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE = "https://muster.dev/attestation/node-certificate/v1"
PAYLOAD_TYPE = "application/vnd.in-toto+json"
MAX_BYTES = 4 * 1024 * 1024
MAX_DOCUMENTS = 1026
"""A certification has at most 1,024 parts here: 900 MB of measurements."""
_GPU = re.compile(r"gpu\.[0-9]+\.uuid")

Name = Annotated[str, Meta(min_length=1, max_length=253)]
Text = Annotated[str, Meta(max_length=4096)]
Hex = Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]
Time = Annotated[datetime, Meta(tz=True)]
Count = Annotated[int, Meta(ge=0, le=10**12)]
Amount = Annotated[float, Meta(ge=0)]
Document = Annotated[str, Meta(pattern=r"^(?:certificate|certification|certification-part-[0-9]{1,4})\.json$")]


class _Strict(Model, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A field that this version does not know is refused: it may be the one that matters."""


class Sha256(_Strict, frozen=True, kw_only=True):
    sha256: Hex


class Subject(_Strict, frozen=True, kw_only=True):
    """`name` is the node's; the digest is that of its fingerprint."""

    name: Name
    digest: Sha256


class StatedReading(_Strict, frozen=True, kw_only=True):
    """One reading of the fingerprint."""

    name: Name
    value: Text
    reading_class: ReadingClass = msgspec.field(name="class")


class StatedNode(_Strict, frozen=True, kw_only=True):
    """The machine that was certified, as its agent saw it then."""

    uid: Name
    """UID of the Node object."""
    gpus: Annotated[tuple[Name, ...], Meta(max_length=1024)] = ()
    """UUIDs, sorted."""
    readings: Annotated[tuple[StatedReading, ...], Meta(max_length=8192)]
    """What the fingerprint was made of, sorted by name."""


class StatedTest(_Strict, frozen=True, kw_only=True):
    """A test that was passed. `digest` is that of its definition, empty where it is not known."""

    name: Name
    digest: Text = ""
    metrics: Annotated[dict[Name, float], Meta(max_length=256)] = {}
    """Best numbers that the node reached, keyed with test and unit."""
    carried_from: Text = ""
    """The earlier certification of the same hardware that proved it; its evidence is not part of this statement."""


class RunCounts(_Strict, frozen=True, kw_only=True):
    """Runs in which the node took part. `unusable` ones are evidence for nothing."""

    passed: Count = 0
    failed: Count = 0
    unusable: Count = 0


class StatedCertification(_Strict, frozen=True, kw_only=True):
    """The certification that the certificate rests on. Rounds and runs are those of all its nodes."""

    name: Name
    uid: Text = ""
    profile: Name
    purpose: Purpose
    verdict: NodeVerdict
    """On this node."""
    started_at: Time | None = None
    finished_at: Time | None = None
    rounds: Count = 0
    runs: Count = 0
    runs_of_node: RunCounts = RunCounts()


class StatedDocument(_Strict, frozen=True, kw_only=True):
    """One file of the evidence."""

    name: Document
    sha256: Hex
    size_bytes: Count


class Predicate(_Strict, frozen=True, kw_only=True):
    node: StatedNode
    certification: StatedCertification
    tests: Annotated[tuple[StatedTest, ...], Meta(min_length=1, max_length=256)]
    lacks: Annotated[tuple[Name, ...], Meta(max_length=256)] = ()
    """Tests that the cluster asks for and that could not be proven."""
    recipe_digest: Text = ""
    issued_at: Time
    expires_at: Time | None = None
    """None: it does not expire by itself."""
    exported_at: Time
    """As of when the certificate was valid in the cluster."""
    exported_by: Name
    """Version of the Muster that wrote the statement."""
    evidence: Annotated[tuple[StatedDocument, ...], Meta(min_length=2, max_length=MAX_DOCUMENTS)]


class Statement(_Strict, frozen=True, kw_only=True):
    type: str = msgspec.field(name="_type")
    subject: Annotated[tuple[Subject, ...], Meta(min_length=1, max_length=1)]
    predicate_type: str
    predicate: Predicate

    @property
    def node(self) -> str:
        return self.subject[0].name

    def fingerprint(self) -> Fingerprint:
        """The fingerprint that was certified."""
        return Fingerprint(digest=f"sha256:{self.subject[0].digest.sha256}", readings=_readings(self.predicate.node))


class _Types(msgspec.Struct, frozen=True):
    type: str = msgspec.field(name="_type", default="")
    predicate_type: str = msgspec.field(name="predicateType", default="")


_types = msgspec.json.Decoder(_Types)
_statement = msgspec.json.Decoder(Statement)


def encode(statement: Statement) -> bytes:
    """The statement as canonical JSON. Raises ValueError for a number or text that JSON cannot hold."""
    return canonical(to_object(statement))


def decode(raw: bytes, source: str) -> Statement:
    """Read a statement and check that it agrees with itself; `source` names it in errors. Raises BadInputError."""
    if len(raw) > MAX_BYTES:
        raise BadInputError(f"{source} is larger than {MAX_BYTES // 1024 // 1024} MiB; it is no statement of ours.")
    try:
        types = _types.decode(raw)
        if types.type != STATEMENT_TYPE:
            raise BadInputError(f"{source} is no in-toto Statement v1; give a file of 'muster certificate export'.")
        if types.predicate_type != PREDICATE_TYPE:
            raise BadInputError(
                f"{source} states something else than a node's certificate ({types.predicate_type[:120]!r}); give a "
                "file of 'muster certificate export', or a newer Muster."
            )
        statement = _statement.decode(raw)
        same = encode(statement) == raw
    except (msgspec.MsgspecError, RecursionError, ValueError) as error:
        raise BadInputError(f"{source} is no statement that can be read ({error}); export it again.") from error
    if not same:
        raise BadInputError(f"{source} is not written in canonical JSON; export it again and do not reformat it.")
    _agrees(statement, source)
    return statement


def _agrees(statement: Statement, source: str) -> None:
    node, names = statement.predicate.node, [d.name for d in statement.predicate.evidence]
    if class_digest(_readings(node), tuple(ReadingClass)) != statement.fingerprint().digest:
        raise BadInputError(f"{source} contradicts itself: the readings are not those of the subject's digest.")
    if gpus_of(_readings(node)) != node.gpus:
        raise BadInputError(f"{source} contradicts itself: the GPUs are not those of the readings.")
    if len({r.name for r in node.readings}) != len(node.readings):
        raise BadInputError(f"{source} contradicts itself: a reading occurs twice.")
    if len(set(names)) != len(names):
        raise BadInputError(f"{source} contradicts itself: a document of the evidence occurs twice.")
    if statement.predicate.certification.verdict is not NodeVerdict.PASSED:
        raise BadInputError(f"{source} contradicts itself: the node did not pass.")


def gpus_of(readings: Iterable[Reading]) -> tuple[str, ...]:
    """UUIDs of the GPUs that a fingerprint names, sorted. A MIG device is none."""
    return tuple(sorted(r.value for r in readings if _GPU.fullmatch(r.name)))


def _readings(node: StatedNode) -> tuple[Reading, ...]:
    return tuple(Reading(name=r.name, value=r.value, reading_class=r.reading_class) for r in node.readings)
