"""The statement about a node: what it says, that it is a function of its evidence, and what is refused."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from muster.certify.attestation.build import documents_of, statement_of, valid_certificate
from muster.certify.attestation.canonical import canonical
from muster.certify.attestation.judge import Check, Result, about, age, evidence, standing, standing_unchecked
from muster.certify.attestation.judge import tests as checked_tests
from muster.certify.attestation.statement import PREDICATE_TYPE, STATEMENT_TYPE, Statement, decode, encode
from muster.certify.isolation.plan import WITHDRAWN
from muster.errors import BadInputError, NotSatisfiedError
from muster.resources.certification import NodeVerdict, Outcome, Phase
from muster.resources.fingerprint import Reading, ReadingClass, fingerprint
from muster.resources.node_health import CertifiedTest, Standing
from tests.certify.attestation_samples import (
    EXPORT,
    ISSUED,
    NODE,
    NOW,
    OTHER,
    READINGS,
    Certified,
    certified,
    health,
    with_certificate,
)

SAMPLE = certified()
STATEMENT = SAMPLE.statement()
DOCUMENTS = SAMPLE.documents()


# Canonical JSON

_numbers = st.integers(-(2**53) + 1, 2**53 - 1) | st.floats(allow_nan=False, allow_infinity=False)
_values = st.recursive(
    st.none() | st.booleans() | _numbers | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
    max_leaves=12,
)


@given(_values)
def test_canonical_json_is_that_of_another_implementation(value: Any) -> None:
    assert canonical(value) == rfc8785.dumps(value)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_numbers_read_back_as_they_were(value: float) -> None:
    assert float(canonical(value)) == value


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 2**53, -(2**53), "\ud800", {"a": {1}}])
def test_what_json_cannot_hold(value: object) -> None:
    with pytest.raises(ValueError):
        canonical({"key": value})


def test_json_that_nests_without_end() -> None:
    value: list[Any] = []
    for _ in range(200):
        value = [value]
    with pytest.raises(ValueError, match="nests"):
        canonical(value)


# What it says


def test_the_statement_says_what_was_certified() -> None:
    wire = json.loads(encode(STATEMENT))
    assert wire["_type"] == STATEMENT_TYPE == "https://in-toto.io/Statement/v1"
    assert wire["predicateType"] == PREDICATE_TYPE
    digest = SAMPLE.certificate.fingerprint.digest.removeprefix("sha256:")
    assert wire["subject"] == [{"name": NODE, "digest": {"sha256": digest}}]
    said = wire["predicate"]
    assert said["node"]["uid"] == f"uid-of-{NODE}"
    assert said["node"]["gpus"] == ["GPU-a", "GPU-b"]
    assert len(said["node"]["readings"]) == len(READINGS)
    assert said["recipeDigest"] == "sha256:recipe"
    assert said["issuedAt"] == "2026-11-03T14:00:00Z"
    assert said["expiresAt"] == "2027-02-01T14:00:00Z"
    assert (said["exportedAt"], said["exportedBy"]) == ("2026-11-04T14:00:00Z", "1.2.3")
    by_name = {t["name"]: t for t in said["tests"]}
    assert by_name.keys() == {t.name for t in SAMPLE.certificate.tests}
    assert all(t["digest"].startswith("sha256:") for t in by_name.values())
    assert by_name["gpu-burn"]["metrics"].keys() == {"gpu-burn.throughput_tflop_per_s"}
    told = said["certification"]
    assert (told["name"], told["verdict"], told["profile"]) == ("accept-1", "Passed", "bringup")
    runs = [r for part in SAMPLE.parts for r in part.spec.runs]
    assert told["runs"] == len(runs)
    assert told["runsOfNode"]["passed"] == sum(NODE in r.nodes for r in runs)
    names = ["certificate.json", "certification.json", "certification-part-0.json", "certification-part-1.json"]
    assert [d["name"] for d in said["evidence"]] == names
    assert [d["sizeBytes"] for d in said["evidence"]] == [len(DOCUMENTS[n]) for n in names]


def test_the_same_certificate_gives_the_same_bytes() -> None:
    again = certified(readings=tuple(reversed(READINGS)))
    assert encode(again.statement()) == encode(STATEMENT)
    assert decode(encode(STATEMENT), "x") == STATEMENT


def test_what_a_server_adds_to_an_object_is_no_evidence() -> None:
    meta = replace(SAMPLE.certification.metadata, resource_version="7", labels={"a": "b"}, finalizers=("x",))
    meta = replace(meta, annotations={**meta.annotations, "kubectl.kubernetes.io/last-applied-configuration": "{}"})
    other = replace(SAMPLE.certification, metadata=meta)
    assert documents_of(NODE, SAMPLE.certificate, other, SAMPLE.parts) == DOCUMENTS


def test_a_certification_without_parts() -> None:
    found = certified(parts=0).statement()
    assert [d.name for d in found.predicate.evidence] == ["certificate.json", "certification.json"]
    assert found.predicate.certification.runs_of_node == STATEMENT.predicate.certification.runs_of_node


def test_a_node_that_was_withdrawn_is_no_run() -> None:
    mark = replace(SAMPLE.parts[0].spec.runs[0], id="w", test=WITHDRAWN, outcome=Outcome.INVALID, nodes=(NODE,))
    told = with_status(SAMPLE, runs=(mark,)).statement().predicate.certification
    assert told.runs_of_node == STATEMENT.predicate.certification.runs_of_node
    assert told.runs == STATEMENT.predicate.certification.runs


# What is not exported

NO_LONGER = [
    (None, "has no certificate"),
    (replace(SAMPLE.certificate, standing=Standing.VOID, voided_because="the driver\x1b changed."), "is void"),
    (replace(SAMPLE.certificate, standing=Standing.GRACE), "is in grace"),
    (replace(SAMPLE.certificate, adopted=True), "was never tested"),
    (replace(SAMPLE.certificate, expires_at=NOW), "expired at 2026-11-04 14:00 UTC"),
]


@pytest.mark.parametrize(("passed", "said"), NO_LONGER)
def test_only_a_certificate_in_force_is_exported(passed: Any, said: str) -> None:
    assert valid_certificate(SAMPLE.health, NOW) is SAMPLE.certificate
    with pytest.raises(NotSatisfiedError, match=said) as caught:
        valid_certificate(with_certificate(SAMPLE.health, passed), NOW)
    assert str(caught.value).isprintable()


def changed(sample: Certified, **certificate: Any) -> Certified:
    """`sample` with another certificate."""
    return replace_sample(sample, health=with_certificate(sample.health, replace(sample.certificate, **certificate)))


def replace_sample(sample: Certified, **fields: Any) -> Certified:
    fields = {"health": sample.health, "certification": sample.certification, "parts": sample.parts} | fields
    return Certified(**fields)


def with_status(sample: Certified, **fields: Any) -> Certified:
    made = sample.certification
    return replace_sample(sample, certification=replace(made, status=replace(made.status, **fields)))


def verdict(sample: Certified, node: str, found: NodeVerdict) -> Certified:
    nodes = tuple(replace(n, verdict=found) if n.name == node else n for n in sample.certification.status.nodes)
    return with_status(sample, nodes=nodes)


def with_tests(sample: Certified, act: Callable[[Any], Any]) -> Certified:
    return changed(sample, tests=tuple(act(t) for t in sample.certificate.tests))


UNSUPPORTED = {
    "another certification": (changed(SAMPLE, certification="accept-0"), "rests on accept-0, not on accept-1"),
    "another profile": (changed(SAMPLE, profile="idle"), "is for the profile idle; accept-1 tested bringup"),
    "another recipe": (changed(SAMPLE, recipe_digest="sha256:x"), "names another recipe than accept-1 does"),
    "a name used again": (changed(SAMPLE, issued_at=ISSUED - timedelta(days=9)), "is older than accept-1"),
    "failed": (verdict(SAMPLE, NODE, NodeVerdict.FAILED), "did not pass gpu-0001: it is Failed"),
    "undetermined": (verdict(SAMPLE, NODE, NodeVerdict.UNDETERMINED), "did not pass gpu-0001"),
    "no verdict": (with_status(SAMPLE, nodes=()), "has no verdict on gpu-0001"),
    "aborted": (with_status(SAMPLE, phase=Phase.ABORTED), r"no verdict on gpu-0001 \(it is Aborted\)"),
    "a reading": (
        changed(SAMPLE, fingerprint=replace(SAMPLE.certificate.fingerprint, readings=READINGS[:2])),
        "is not that of its readings",
    ),
    "a better number": (
        with_tests(SAMPLE, lambda t: replace(t, metrics={k: v + 1 for k, v in t.metrics.items()})),
        "says more about the test",
    ),
    "another test": (with_tests(SAMPLE, lambda t: replace(t, name=f"{t.name}x")), "says more about the test"),
    "another definition": (with_tests(SAMPLE, lambda t: replace(t, digest="sha256:0")), "says more about the test"),
    "no test": (changed(SAMPLE, tests=()), "names no test that accept-1 passed"),
    "carried tests only": (
        with_tests(SAMPLE, lambda t: replace(t, carried_from="bringup-0")),
        "names no test that accept-1 passed",
    ),
    "a part is missing": (
        replace_sample(SAMPLE, parts=SAMPLE.parts[:1]),
        "1 of its 2 parts are missing, .*accept-1-1",
    ),
    "parts of another": (
        replace_sample(
            SAMPLE, parts=tuple(replace(p, spec=replace(p.spec, certification="other")) for p in SAMPLE.parts)
        ),
        "2 of its 2 parts are missing",
    ),
}


@pytest.mark.parametrize("name", UNSUPPORTED)
def test_what_the_evidence_does_not_support_is_not_stated(name: str) -> None:
    sample, said = UNSUPPORTED[name]
    with pytest.raises(NotSatisfiedError, match=said) as caught:
        sample.statement()
    assert "\n" not in str(caught.value)


def test_that_another_node_failed_is_no_matter() -> None:
    sample = with_status(verdict(SAMPLE, OTHER, NodeVerdict.FAILED), phase=Phase.FAILED)
    assert sample.statement().node == NODE


def test_what_cannot_be_written_as_json_is_bad_input() -> None:
    seen = fingerprint([Reading(name="driver.version", value="5", reading_class=ReadingClass.STACK)])
    sample = changed(SAMPLE, fingerprint=seen, node_uid="\ud800")
    with pytest.raises(BadInputError):
        sample.statement()
    with pytest.raises(BadInputError, match="The statement about"):
        changed(SAMPLE, node_uid="").statement()


def test_evidence_that_cannot_be_read() -> None:
    for name in DOCUMENTS:
        with pytest.raises(BadInputError, match=f"document {name} of the evidence"):
            statement_of({**DOCUMENTS, name: b"{}"[:1]}, EXPORT)
    naive = DOCUMENTS["certificate.json"].replace(b"2026-11-03T14:00:00Z", b"2026-11-03T14:00:00")
    with pytest.raises(BadInputError, match="no time zone"):
        statement_of({**DOCUMENTS, "certificate.json": naive}, EXPORT)


def test_evidence_of_fewer_parts_than_there_were() -> None:
    fewer = {k: v for k, v in DOCUMENTS.items() if k != "certification-part-1.json"}
    with pytest.raises(NotSatisfiedError, match="has 1 parts of accept-1; it counts 2"):
        statement_of(fewer, EXPORT)


def test_more_parts_than_a_statement_can_name() -> None:
    with pytest.raises(BadInputError, match="has 1025 parts, too many"):
        with_status(SAMPLE, parts=1025).statement()


# What is read


def edited(**predicate: Any) -> bytes:
    wire = json.loads(encode(STATEMENT))
    wire["predicate"] |= predicate
    return canonical(wire)


REFUSED = {
    "not canonical": (json.dumps(json.loads(encode(STATEMENT))).encode(), "not written in canonical JSON"),
    "a key twice": (b'{"_type":"x",' + encode(STATEMENT)[1:], "not written in canonical JSON"),
    "another type": (encode(STATEMENT).replace(b"Statement/v1", b"Statement/v9"), "no in-toto Statement v1"),
    "another predicate": (encode(STATEMENT).replace(b"certificate/v1", b"certificate/v9"), "states something else"),
    "an unknown field": (edited(more=1), "no statement that can be read"),
    "no evidence": (edited(evidence=[]), "no statement that can be read"),
    "a document elsewhere": (
        edited(evidence=[{"name": "../x.json", "sha256": "0" * 64, "sizeBytes": 1}] * 2),
        "no statement that can be read",
    ),
    "a document twice": (
        edited(evidence=[{"name": "certificate.json", "sha256": "0" * 64, "sizeBytes": 1}] * 2),
        "a document of the evidence occurs twice",
    ),
    "a time without a zone": (edited(issuedAt="2026-11-03T14:00:00"), "no statement that can be read"),
    "readings": (edited(node={"uid": "u", "readings": []}), "the readings are not those of the subject's digest"),
    "GPUs": (
        edited(node={**json.loads(encode(STATEMENT))["predicate"]["node"], "gpus": ["GPU-z"]}),
        "the GPUs are not those of the readings",
    ),
    "not passed": (
        edited(certification={"name": "c", "profile": "p", "purpose": "bringup", "verdict": "Failed"}),
        "the node did not pass",
    ),
    "two subjects": (
        canonical({**json.loads(encode(STATEMENT)), "subject": json.loads(encode(STATEMENT))["subject"] * 2}),
        "no statement that can be read",
    ),
    "too large": (b" " * (4 * 1024 * 1024 + 1), "larger than 4 MiB"),
    "too deep": (b"[" * 9999, "no statement that can be read"),
    "empty": (b"", "no statement that can be read"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_statement(name: str) -> None:
    raw, said = REFUSED[name]
    with pytest.raises(BadInputError, match=f"^the file .*{said}") as caught:
        decode(raw, "the file")
    assert "\n" not in str(caught.value)


@given(st.integers(0, len(encode(STATEMENT)) - 1), st.integers(1, 255))
def test_a_changed_byte_is_another_statement_or_none(position: int, bits: int) -> None:
    raw = bytearray(encode(STATEMENT))
    raw[position] ^= bits
    try:
        found = decode(bytes(raw), "the file")
    except BadInputError:
        return
    assert found != STATEMENT


# What is said about it


def words(check: Check) -> tuple[Result, str]:
    return check.result, check.sentence


def test_about_the_node_that_was_asked_for() -> None:
    assert about(STATEMENT, NODE).result is Result.HOLDS
    assert words(about(STATEMENT, OTHER)) == (Result.FAILS, "It is about gpu-0001, not about gpu-0002.")
    assert about(STATEMENT, "").result is Result.UNCHECKED


@pytest.mark.parametrize(
    ("days", "longest", "result", "said"),
    [
        (1, None, Result.HOLDS, "expires at 2027-02-01 14:00 UTC"),
        (-1, None, Result.FAILS, "is in the future"),
        (89.99, None, Result.HOLDS, "expires at"),
        (90, None, Result.FAILS, "It expired at 2027-02-01 14:00 UTC."),
        (7, 7, Result.HOLDS, "expires at"),
        (7.01, 7, Result.FAILS, "more than 7 days ago"),
    ],
)
def test_age(days: float, longest: float | None, result: Result, said: str) -> None:
    limit = timedelta(days=longest) if longest else None
    check = age(STATEMENT, ISSUED + timedelta(days=days), limit)
    assert check.result is result
    assert said in check.sentence


OLDER = CertifiedTest(
    name="storage", digest="sha256:9", metrics={"storage.read_gb_per_s": 9.0}, carried_from="bringup-0"
)


def test_a_test_that_was_carried_over_is_stated_as_such() -> None:
    """It rests on another certification: the evidence here says nothing about it, and that is said."""
    sample = changed(SAMPLE, tests=(*SAMPLE.certificate.tests, OLDER), lacks=("pair-x@12ab",))
    statement = sample.statement()
    assert json.loads(encode(statement))["predicate"]["tests"][-1]["carriedFrom"] == "bringup-0"
    assert evidence(statement, sample.documents()).result is Result.HOLDS
    check = checked_tests(statement, ())
    assert check.result is Result.UNCHECKED
    assert "Carried over, without evidence here: storage (from bringup-0)." in check.sentence
    assert "Not proven, though the cluster asks for it: pair-x@12ab." in check.sentence
    claimed = stating(tests=[*json.loads(encode(STATEMENT))["predicate"]["tests"], {"name": "storage"}])
    assert evidence(claimed, DOCUMENTS).result is Result.FAILS


def test_tests_that_the_reader_asks_for() -> None:
    assert checked_tests(STATEMENT, ("pair", "gpu-burn")).result is Result.HOLDS
    check = checked_tests(STATEMENT, ("pair", "storage"))
    assert words(check) == (Result.FAILS, "It does not say that storage was passed.")


def test_a_certificate_without_an_end() -> None:
    check = age(changed(SAMPLE, expires_at=None).statement(), ISSUED + timedelta(days=9999), None)
    assert words(check) == (Result.HOLDS, "It was issued at 2026-11-03 14:00 UTC and never expires by itself.")


def test_evidence_that_is_whole() -> None:
    assert evidence(STATEMENT, DOCUMENTS).result is Result.HOLDS
    assert evidence(STATEMENT, None).result is Result.UNCHECKED


@given(st.sampled_from(sorted(DOCUMENTS)), st.integers(0, 10**9), st.integers(1, 255))
def test_a_changed_byte_of_evidence(name: str, position: int, bits: int) -> None:
    raw = bytearray(DOCUMENTS[name])
    raw[position % len(raw)] ^= bits
    check = evidence(STATEMENT, {**DOCUMENTS, name: bytes(raw)})
    assert words(check) == (Result.FAILS, f"The document {name} was changed.")


@pytest.mark.parametrize("name", sorted(DOCUMENTS))
def test_evidence_that_is_missing_longer_or_extra(name: str) -> None:
    without = {k: v for k, v in DOCUMENTS.items() if k != name}
    assert words(evidence(STATEMENT, without)) == (Result.FAILS, f"The document {name} is missing.")
    longer = {**DOCUMENTS, name: DOCUMENTS[name] + b" "}
    assert words(evidence(STATEMENT, longer)) == (Result.FAILS, f"The document {name} was changed.")
    extra = evidence(STATEMENT, {**DOCUMENTS, "z\x1b": b""})
    assert words(extra) == (Result.FAILS, "The document z does not belong to the evidence.")


def stating(**predicate: Any) -> Statement:
    """A statement whose digests are right and whose words are not: what a signer could claim."""
    return decode(edited(**predicate), "x")


def test_a_claim_that_the_evidence_does_not_make() -> None:
    wire = json.loads(encode(STATEMENT))["predicate"]
    claims: list[dict[str, Any]] = [
        {"recipeDigest": "sha256:other"},
        {"expiresAt": "2037-02-01T14:00:00Z"},
        {"issuedAt": "2026-11-03T15:00:00Z"},
        {"tests": wire["tests"][1:]},
        {"tests": [{**t, "digest": "sha256:0"} for t in wire["tests"]]},
        {"tests": [t | {"metrics": {f"{t['name']}.x": 1}} for t in wire["tests"]]},
        {"certification": {**wire["certification"], "runs": 9999}},
    ]
    for claim in claims:
        check = evidence(stating(**claim), DOCUMENTS)
        assert words(check) == (Result.FAILS, "The evidence supports another statement than this one."), claim


def test_evidence_of_a_node_that_failed() -> None:
    failed = verdict(SAMPLE, NODE, NodeVerdict.FAILED).documents()
    named = [
        {"name": n, "sha256": hashlib.sha256(raw).hexdigest(), "sizeBytes": len(raw)} for n, raw in failed.items()
    ]
    check = evidence(stating(evidence=named), failed)
    assert check.result is Result.FAILS
    assert "did not pass gpu-0001: it is Failed" in check.sentence


DRIVER = (replace(READINGS[0], value="590.1"), *READINGS[1:])
NEWER = replace(SAMPLE.certificate, certification="stack-2", issued_at=ISSUED + timedelta(days=1))
STANDING = {
    "in force": (
        SAMPLE.health,
        Result.HOLDS,
        "the certificate is valid and gpu-0001 is as it was certified: InService",
    ),
    "no node": (None, Result.FAILS, "There is no node gpu-0001 in nh.yaml."),
    "another node": (certified(OTHER).health, Result.FAILS, "It is about gpu-0001, and nh.yaml is about gpu-0002."),
    "another stack": (
        health(NODE, SAMPLE.certificate, DRIVER),
        Result.FAILS,
        "driver.version changed from 580.65.06 to 590.1",
    ),
    "an older certificate": (
        health(NODE, replace(NEWER, fingerprint=fingerprint(DRIVER)), DRIVER),
        Result.FAILS,
        "driver.version changed from 580.65.06 to 590.1",
    ),
    "many readings": (
        health(NODE, SAMPLE.certificate, [replace(r, name=f"{r.name}.x") for r in READINGS]),
        Result.FAILS,
        "and 5 more",
    ),
    "replaced": (
        with_certificate(SAMPLE.health, NEWER),
        Result.FAILS,
        "was replaced: gpu-0001 now has one of 2026-11-04 14:00 UTC from stack-2",
    ),
    "revoked": (
        with_certificate(
            SAMPLE.health, replace(SAMPLE.certificate, standing=Standing.VOID, voided_because="XID 79.")
        ),
        Result.FAILS,
        "The certificate was revoked: XID 79.",
    ),
    "in grace": (
        with_certificate(
            SAMPLE.health, replace(SAMPLE.certificate, standing=Standing.GRACE, voided_because="new kernel")
        ),
        Result.FAILS,
        "is in grace, no longer valid: new kernel.",
    ),
    "none any more": (with_certificate(SAMPLE.health, None), Result.FAILS, "has no certificate any more"),
    "a new machine": (
        replace(
            SAMPLE.health,
            status=replace(
                SAMPLE.health.status,
                observed=replace(SAMPLE.health.status.observed, node_uid="new"),
            ),
        ),
        Result.FAILS,
        "another one of the same name",
    ),
    "silent": (
        replace(SAMPLE.health, status=replace(SAMPLE.health.status, observed=None)),
        Result.FAILS,
        "The agent of gpu-0001 has reported nothing",
    ),
}


@pytest.mark.parametrize("name", STANDING)
def test_standing(name: str) -> None:
    found, result, said = STANDING[name]
    check = standing(STATEMENT, found, "nh.yaml")
    assert check.result is result
    assert said in check.sentence


def test_without_a_node_health_the_standing_is_said_to_be_unknown() -> None:
    check = standing_unchecked(STATEMENT)
    assert check.result is Result.UNCHECKED
    assert "since the export at 2026-11-04 14:00 UTC is not known" in check.sentence


def test_the_statement_of_a_foreign_object_is_printable() -> None:
    hostile = "\x1b[31m"
    sample = changed(SAMPLE, certification=hostile)
    with pytest.raises(NotSatisfiedError) as caught:
        sample.statement()
    assert str(caught.value).isprintable()
