"""From a certificate and its certification to documents of evidence, and from those to the statement. Pure.

The statement is a function of the documents: whoever has them can make it again and compare.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import msgspec

from muster.certify.attestation.canonical import canonical
from muster.certify.attestation.statement import (
    MAX_DOCUMENTS,
    PREDICATE_TYPE,
    STATEMENT_TYPE,
    Predicate,
    RunCounts,
    Sha256,
    StatedCertification,
    StatedDocument,
    StatedNode,
    StatedReading,
    StatedTest,
    Statement,
    Subject,
    decode,
    encode,
    gpus_of,
)
from muster.certify.isolation.plan import WITHDRAWN
from muster.errors import BadInputError, NotSatisfiedError
from muster.plain_text import plain
from muster.resources.base import (
    PLAN_ANNOTATION,
    REQUESTS_ANNOTATION,
    TEST_DIGESTS_ANNOTATION,
    Model,
    ObjectMeta,
    to_object,
)
from muster.resources.certification import (
    Certification,
    CertificationPart,
    NodeResult,
    NodeVerdict,
    Outcome,
    Phase,
    RunRecord,
)
from muster.resources.fingerprint import ReadingClass, class_digest
from muster.resources.node_health import Certificate, NodeHealth, Standing

CERTIFICATE, CERTIFICATION = "certificate.json", "certification.json"
_KEPT = (PLAN_ANNOTATION, REQUESTS_ANNOTATION, TEST_DIGESTS_ANNOTATION)
_DECIDED = (Outcome.PASS, Outcome.WARN)


class CertificateDocument(Model, frozen=True, kw_only=True):
    """The first document: the certificate as it stood in the NodeHealth."""

    node: str
    certificate: Certificate


@dataclass(frozen=True)
class Export:
    """Who makes the statement, and when."""

    at: datetime
    version: str


@dataclass(frozen=True)
class _Proof:
    document: CertificateDocument
    certification: Certification
    parts: tuple[CertificationPart, ...]

    @property
    def node(self) -> str:
        return self.document.node

    @property
    def runs(self) -> tuple[RunRecord, ...]:
        """Of all nodes, in their order, without the marks that a node was withdrawn."""
        found = (*(r for part in self.parts for r in part.spec.runs), *self.certification.status.runs)
        return tuple(r for r in found if r.test != WITHDRAWN)

    @property
    def result(self) -> NodeResult | None:
        found = (*self.certification.status.nodes, *(n for part in self.parts for n in part.spec.nodes))
        return next((n for n in found if n.name == self.node), None)


def valid_certificate(health: NodeHealth, now: datetime) -> Certificate:
    """The certificate of a node, if it is worth something now. Raises NotSatisfiedError."""
    name = plain(health.metadata.name, 80)
    life = health.status.lifecycle
    certificate = life.certificate if life else None
    if certificate is None:
        raise NotSatisfiedError(f"The node {name} has no certificate; 'muster node {name}' says what it needs.")
    if certificate.adopted:
        raise NotSatisfiedError(f"The node {name} was never tested: it was at work when Muster saw it first.")
    if certificate.standing is not Standing.VALID:
        word = "void" if certificate.standing is Standing.VOID else "in grace, no longer valid"
        because = plain(certificate.voided_because, 300).rstrip(".") or "no reason is told"
        raise NotSatisfiedError(
            f"The certificate of {name} is {word} ({because}); export it once the node is certified again."
        )
    if certificate.expires_at is not None and certificate.expires_at <= now:
        raise NotSatisfiedError(
            f"The certificate of {name} expired at {certificate.expires_at:%Y-%m-%d %H:%M} UTC; export it once the "
            "node is certified again."
        )
    return certificate


def documents_of(
    node: str, certificate: Certificate, certification: Certification, parts: Sequence[CertificationPart]
) -> dict[str, bytes]:
    """The documents of evidence by name, each as canonical JSON. Raises BadInputError, NotSatisfiedError."""
    meta = certification.metadata
    wanted = certification.status.parts
    if wanted > MAX_DOCUMENTS - 2:
        raise BadInputError(f"The certification {plain(meta.name, 80)} has {wanted} parts, too many for a statement.")
    by_number = {p.spec.number: p for p in parts if p.spec.certification == meta.name}
    missing = [n for n in range(wanted) if n not in by_number]
    if missing:
        raise NotSatisfiedError(
            f"The certification {plain(meta.name, 80)} is not whole: {len(missing)} of its {wanted} parts are "
            f"missing, the first is {plain(meta.name, 80)}-{missing[0]}."
        )
    bare = msgspec.structs.replace(
        certification,
        metadata=ObjectMeta(
            name=meta.name,
            uid=meta.uid,
            creation_timestamp=meta.creation_timestamp,
            annotations={k: v for k, v in meta.annotations.items() if k in _KEPT},
        ),
    )
    models: dict[str, Model] = {CERTIFICATE: CertificateDocument(node=node, certificate=certificate)}
    models[CERTIFICATION] = bare
    for number in range(wanted):
        part = by_number[number]
        models[f"certification-part-{number}.json"] = msgspec.structs.replace(
            part, metadata=ObjectMeta(name=part.metadata.name)
        )
    try:
        return {name: canonical(to_object(model)) for name, model in models.items()}
    except (ValueError, msgspec.MsgspecError) as error:
        name = plain(meta.name, 80)
        raise BadInputError(f"The certification {name} cannot be written as JSON: {error}.") from error


def statement_of(documents: Mapping[str, bytes], export: Export) -> Statement:
    """The statement that `documents` support.

    Raises BadInputError for documents that cannot be read, NotSatisfiedError when they do not support the
    certificate.
    """
    proof = _read(documents)
    certificate, certification = proof.document.certificate, proof.certification
    result = _supported(proof)
    _tests_supported(proof, result)
    meta, status = certification.metadata, certification.status
    readings = tuple(sorted(certificate.fingerprint.readings, key=lambda r: r.name))
    statement = Statement(
        type=STATEMENT_TYPE,
        subject=(Subject(name=proof.node, digest=Sha256(sha256=certificate.fingerprint.digest[len("sha256:") :])),),
        predicate_type=PREDICATE_TYPE,
        predicate=Predicate(
            node=StatedNode(
                uid=certificate.node_uid,
                gpus=gpus_of(readings),
                readings=tuple(
                    StatedReading(name=r.name, value=r.value, reading_class=r.reading_class) for r in readings
                ),
            ),
            certification=StatedCertification(
                name=meta.name,
                uid=meta.uid,
                profile=certificate.profile,
                purpose=certification.spec.purpose,
                verdict=result.verdict,
                started_at=status.started_at,
                finished_at=status.finished_at,
                rounds=status.cost.rounds or status.round,
                runs=len(proof.runs),
                runs_of_node=_counted(proof),
            ),
            tests=tuple(
                StatedTest(name=t.name, digest=t.digest, metrics=t.metrics, carried_from=t.carried_from)
                for t in certificate.tests
            ),
            lacks=certificate.lacks,
            recipe_digest=certificate.recipe_digest,
            issued_at=certificate.issued_at,
            expires_at=certificate.expires_at,
            exported_at=export.at,
            exported_by=export.version,
            evidence=tuple(
                StatedDocument(name=name, sha256=hashlib.sha256(raw).hexdigest(), size_bytes=len(raw))
                for name, raw in documents.items()
            ),
        ),
    )
    return _readable(statement)


def _readable(statement: Statement) -> Statement:
    node = plain(statement.node, 80)
    try:
        raw = encode(statement)
    except ValueError as error:
        raise BadInputError(f"The certificate of {node} cannot be stated: {error}.") from error
    # Nothing leaves that a reader would refuse.
    return decode(raw, f"The statement about {node}")


def _read(documents: Mapping[str, bytes]) -> _Proof:
    name = ""
    try:
        name = CERTIFICATE
        document = msgspec.json.decode(documents[name], type=CertificateDocument)
        name = CERTIFICATION
        certification = msgspec.json.decode(documents[name], type=Certification)
        parts = []
        for number in range(len(documents) - 2):
            name = f"certification-part-{number}.json"
            parts.append(msgspec.json.decode(documents[name], type=CertificationPart))
    except (msgspec.MsgspecError, KeyError, RecursionError) as error:
        raise BadInputError(f"The document {name} of the evidence is missing or cannot be read ({error}).") from error
    moments = (document.certificate.issued_at, document.certificate.expires_at, certification.status.started_at)
    if any(m is not None and m.tzinfo is None for m in moments):
        raise BadInputError("A time in the evidence has no time zone; export the certificate again.")
    return _Proof(document, certification, tuple(parts))


def _supported(proof: _Proof) -> NodeResult:
    """The verdict on the node, if it supports the certificate. Raises NotSatisfiedError."""
    certificate, certification = proof.document.certificate, proof.certification
    node, name = plain(proof.node, 80), plain(certification.metadata.name, 80)
    status, fingerprint = certification.status, certificate.fingerprint
    if certificate.certification != certification.metadata.name:
        raise NotSatisfiedError(
            f"The certificate of {node} rests on {plain(certificate.certification, 80)}, not on {name}; give that "
            "certification."
        )
    if certificate.profile != certification.spec.profile:
        raise NotSatisfiedError(
            f"The certificate of {node} is for the profile {plain(certificate.profile, 60)}; {name} tested "
            f"{plain(certification.spec.profile, 60)}."
        )
    if certificate.recipe_digest != certification.spec.recipe_digest:
        raise NotSatisfiedError(f"The certificate of {node} names another recipe than {name} does.")
    if status.started_at is not None and certificate.issued_at < status.started_at:
        raise NotSatisfiedError(f"The certificate of {node} is older than {name}: another one had that name.")
    result = proof.result
    if status.phase not in (Phase.SUCCEEDED, Phase.FAILED) or result is None:
        raise NotSatisfiedError(f"The certification {name} has no verdict on {node} (it is {status.phase.value}).")
    if result.verdict is not NodeVerdict.PASSED:
        raise NotSatisfiedError(f"The certification {name} did not pass {node}: it is {result.verdict.value}.")
    if class_digest(fingerprint.readings, tuple(ReadingClass)) != fingerprint.digest:
        raise NotSatisfiedError(f"The fingerprint in the certificate of {node} is not that of its readings.")
    if len(proof.parts) != status.parts:
        raise NotSatisfiedError(f"The evidence has {len(proof.parts)} parts of {name}; it counts {status.parts}.")
    return result


def _tests_supported(proof: _Proof, result: NodeResult) -> None:
    """Each test of the certificate, with its numbers, is one that the certification says this node passed.

    A test that is carried over from an earlier certification is stated as such; here nothing supports it.
    """
    raw = proof.certification.metadata.annotations.get(TEST_DIGESTS_ANNOTATION, "") or "{}"
    try:
        digests = msgspec.json.decode(raw, type=dict[str, str])
    except (msgspec.MsgspecError, RecursionError):
        digests = {}
    seen = {r.test for r in proof.runs if proof.node in r.nodes and r.outcome in _DECIDED}
    passed = set(result.tests) or seen
    name = plain(proof.certification.metadata.name, 80)
    own = [test for test in proof.document.certificate.tests if not test.carried_from]
    if not own:
        raise NotSatisfiedError(f"The certificate of {plain(proof.node, 80)} names no test that {name} passed.")
    for test in own:
        known = (digests.get(test.name, ""), {k: result.metrics.get(k) for k in test.metrics})
        if test.name not in passed or known != (test.digest, test.metrics):
            raise NotSatisfiedError(
                f"The certificate of {plain(proof.node, 80)} says more about the test {plain(test.name, 60)} than "
                f"{name} does."
            )


def _counted(proof: _Proof) -> RunCounts:
    outcomes = [r.outcome for r in proof.runs if proof.node in r.nodes]
    passed, failed = sum(o in _DECIDED for o in outcomes), outcomes.count(Outcome.FAIL)
    return RunCounts(passed=passed, failed=failed, unusable=len(outcomes) - passed - failed)
