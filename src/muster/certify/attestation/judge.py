"""What can be said about a statement: one check after the other, each with a sentence. Pure.

What was not checked is said as plainly as what was: a reader at night must not take silence for a pass.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from muster.certify.attestation.build import Export, statement_of
from muster.certify.attestation.statement import Statement
from muster.errors import MusterError
from muster.plain_text import counted, plain
from muster.resources.fingerprint import Change, changes
from muster.resources.node_health import Certificate, NodeHealth, Standing

CLOCK_MARGIN = timedelta(minutes=5)
"""How far the clock of the cluster may be ahead of the reader's."""
SHOWN = 3
LISTED = 8


class Result(StrEnum):
    HOLDS = "holds"
    FAILS = "fails"
    UNCHECKED = "not checked"


@dataclass(frozen=True)
class Check:
    """`what` is one of signature, statement, node, tests, age, evidence, standing."""

    what: str
    result: Result
    sentence: str


def about(statement: Statement, expected: str) -> Check:
    """Whether it is about the node that the reader asks for; without `expected` the reader must look."""
    node = plain(statement.node, 80)
    if not expected:
        return Check("node", Result.UNCHECKED, f"It is about {node}; no node was asked for with --node.")
    if expected != statement.node:
        return Check("node", Result.FAILS, f"It is about {node}, not about {plain(expected, 80)}.")
    return Check("node", Result.HOLDS, f"It is about {node}.")


def tests(statement: Statement, required: Sequence[str]) -> Check:
    """Whether it states the tests that the reader asks for, and what of the tests rests on other certifications."""
    stated = statement.predicate.tests
    absent = [name for name in required if all(test.name != name for test in stated)]
    if absent:
        return Check("tests", Result.FAILS, f"It does not say that {_listed(absent)} was passed.")
    certification = plain(statement.predicate.certification.name, 80)
    own = [test.name for test in stated if not test.carried_from]
    said = f"It says that {certification} passed {_listed(own)}."
    if statement.predicate.lacks:
        said += f" Not proven, though the cluster asks for it: {_listed(statement.predicate.lacks)}."
    carried = [f"{test.name} (from {test.carried_from})" for test in stated if test.carried_from]
    if not carried:
        return Check("tests", Result.HOLDS, said)
    return Check("tests", Result.UNCHECKED, f"{said} Carried over, without evidence here: {_listed(carried)}.")


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
    return ", ".join(plain(name, 120) for name in names[:LISTED]) + more


def age(statement: Statement, now: datetime, longest: timedelta | None) -> Check:
    """Whether it has expired, or is older than the reader takes."""
    stated = statement.predicate
    issued, expires = _time(stated.issued_at), stated.expires_at
    if stated.issued_at > now + CLOCK_MARGIN:
        return Check("age", Result.FAILS, f"It was issued at {issued}, which is in the future; check the clocks.")
    if expires is not None and expires <= now:
        return Check("age", Result.FAILS, f"It expired at {_time(expires)}.")
    if longest is not None and now - stated.issued_at > longest:
        days = f"{longest.total_seconds() / 86400:g} days"
        return Check("age", Result.FAILS, f"It was issued at {issued}, more than {days} ago.")
    until = f"expires at {_time(expires)}" if expires else "never expires by itself"
    return Check("age", Result.HOLDS, f"It was issued at {issued} and {until}.")


def evidence(statement: Statement, found: Mapping[str, bytes] | None) -> Check:
    """Whether the documents are those that the statement names, and support every word of it. None: not at hand."""
    stated = statement.predicate.evidence
    if found is None:
        return Check("evidence", Result.UNCHECKED, f"Its {len(stated)} documents of evidence are not at hand.")
    for document in stated:
        raw = found.get(document.name)
        if raw is None:
            return Check("evidence", Result.FAILS, f"The document {document.name} is missing.")
        if len(raw) != document.size_bytes or hashlib.sha256(raw).hexdigest() != document.sha256:
            return Check("evidence", Result.FAILS, f"The document {document.name} was changed.")
    extra = sorted(found.keys() - {d.name for d in stated})
    if extra:
        return Check("evidence", Result.FAILS, f"The document {plain(extra[0], 80)} does not belong to the evidence.")
    export = Export(statement.predicate.exported_at, statement.predicate.exported_by)
    try:
        again = statement_of({d.name: found[d.name] for d in stated}, export)
    except MusterError as error:
        return Check("evidence", Result.FAILS, f"The evidence does not support it: {error}")
    if again != statement:
        return Check("evidence", Result.FAILS, "The evidence supports another statement than this one.")
    count = counted(len(stated), "document")
    return Check("evidence", Result.HOLDS, f"{count} unchanged, and the statement made from them is this one.")


def standing(statement: Statement, health: NodeHealth | None, source: str) -> Check:
    """Whether the certificate is still in force on its node, as `source` shows it, and the node is still the same.

    `health` None: there is none. The first thing that is wrong is said.
    """
    node = plain(statement.node, 80)
    if health is None:
        return Check("standing", Result.FAILS, f"There is no node {node} in {source}.")
    if health.metadata.name != statement.node:
        other = plain(health.metadata.name, 80)
        return Check("standing", Result.FAILS, f"It is about {node}, and {source} is about {other}.")
    wrong = _wrong(statement, health)
    if wrong:
        return Check("standing", Result.FAILS, wrong)
    life, observed = health.status.lifecycle, health.status.observed
    assert life is not None and observed is not None  # noqa: S101, PT018 - else something is wrong
    return Check(
        "standing",
        Result.HOLDS,
        f"In {source} the certificate is valid and {node} is as it was certified: {life.state.value}, last change "
        f"seen by its agent at {_time(observed.observed_at)}.",
    )


def standing_unchecked(statement: Statement) -> Check:
    """The check that needs a NodeHealth, when there is none at hand."""
    at = _time(statement.predicate.exported_at)
    return Check(
        "standing",
        Result.UNCHECKED,
        f"Whether it was revoked or the node changed since the export at {at} is not known; give --node-health or "
        "--against-cluster.",
    )


def _wrong(statement: Statement, health: NodeHealth) -> str:
    """What the NodeHealth says against the statement; empty when nothing."""
    node, observed, life = plain(statement.node, 80), health.status.observed, health.status.lifecycle
    if observed is None:
        return f"The agent of {node} has reported nothing: whether the node is the same is not known."
    if observed.node_uid != statement.predicate.node.uid:
        return f"The node {node} is another one of the same name: its UID changed."
    changed = changes(statement.fingerprint(), observed.fingerprint)
    if changed:
        return f"The node {node} is not as it was certified: {_changes(changed)}."
    certificate = life.certificate if life else None
    if certificate is None:
        return f"The node {node} has no certificate any more."
    if not _same(statement, certificate):
        return (
            f"The certificate was replaced: {node} now has one of {_time(certificate.issued_at)} from "
            f"{plain(certificate.certification, 80)}."
        )
    because = plain(certificate.voided_because, 300).rstrip(".") or "no reason is told"
    if certificate.standing is Standing.VOID:
        return f"The certificate was revoked: {because}."
    if certificate.standing is Standing.GRACE:
        return f"The certificate is in grace, no longer valid: {because}."
    return ""


def _same(statement: Statement, certificate: Certificate) -> bool:
    stated = statement.predicate
    return (
        certificate.node_uid == stated.node.uid
        and certificate.certification == stated.certification.name
        and certificate.issued_at == stated.issued_at
        and certificate.fingerprint.digest == statement.fingerprint().digest
    )


def _changes(changed: Iterable[Change]) -> str:
    sentences = [plain(c.sentence(), 200) for c in changed]
    more = f" and {len(sentences) - SHOWN} more" if len(sentences) > SHOWN else ""
    return "; ".join(sentences[:SHOWN]) + more


def _time(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M} UTC"
