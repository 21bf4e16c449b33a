"""Certificates: what a change of the node, of the recipe or of the tests means for them, grace, and issuing one."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache

from msgspec.structs import replace

from muster.moments import after
from muster.operate.age import expiry
from muster.operate.coverage import BRINGUP as BRINGUP
from muster.operate.coverage import IDLE as IDLE
from muster.operate.coverage import NOTHING_REQUIRED, NodeStandard, carried, hole_key, short_digest
from muster.operate.coverage import REPAIR as REPAIR
from muster.operate.coverage import STACK as STACK
from muster.operate.model import CertificationView
from muster.plain_text import plain
from muster.resources.fault_policy import CertificationPolicy, DriftAction, DriftPolicy
from muster.resources.fingerprint import Change, Fingerprint, ReadingClass, changes, class_digest
from muster.resources.node_health import Cause, CauseKind, Certificate, Observed, Standing

COUNTED = (ReadingClass.IDENTITY, ReadingClass.STACK)
"""Classes that must stay the same while a node is being certified."""

NAME_LIMIT = 120
SENTENCE_LIMIT = 400
SHOWN = 3
_INDEX = re.compile(r"\.\d+\.")


@dataclass(frozen=True)
class Staleness:
    """Why a certificate no longer describes its node, and what the policy makes of it."""

    action: DriftAction
    profile: str
    cause: Cause
    insists: bool = True
    """The node is held at the end of its grace, budget or not. False: it may take its turn though it has work."""


def counted_digest(fingerprint: Fingerprint) -> str:
    """Digest over the readings that must not change during a certification."""
    return class_digest(fingerprint.readings, COUNTED)


def drift_of(certificate: Certificate, observed: Observed) -> tuple[Change, ...]:
    """Every reading that differs between the certificate and the node, sorted by name."""
    before, after = certificate.fingerprint, observed.fingerprint
    if before.digest == after.digest:
        return ()
    return _changes(_Pair(before.digest, after.digest, before, after))


@dataclass(frozen=True)
class _Pair:
    """Two fingerprints, told apart by their digests alone."""

    old: str
    new: str
    before: Fingerprint = field(compare=False)
    after: Fingerprint = field(compare=False)


@lru_cache(maxsize=4096)
def _changes(pair: _Pair) -> tuple[Change, ...]:
    # Asked in every decision about every node under grace, for thousands of nodes with hundreds of readings.
    return changes(pair.before, pair.after)


@dataclass(frozen=True)
class Rules:
    """What the policy in force and the cluster ask of the certificate of one node."""

    drift: DriftPolicy
    certification: CertificationPolicy = field(default_factory=CertificationPolicy)
    standard: NodeStandard = NOTHING_REQUIRED


def staleness(
    certificate: Certificate, observed: Observed | None, rules: Rules, node: str, now: datetime
) -> Staleness | None:
    """The strongest reason why `certificate` of `node` is not valid any more, or None.

    Without an observation of the node nothing is concluded from readings: unknown is not drift.
    """
    if certificate.adopted:
        return Staleness(DriftAction.ROLL, BRINGUP, ADOPTED, insists=False)
    found = drift_of(certificate, observed) if observed is not None else ()
    policy = rules.drift
    for kind, action, profile in (
        (ReadingClass.IDENTITY, policy.identity, BRINGUP),
        (ReadingClass.STACK, policy.stack, STACK),
        (ReadingClass.CONFIG, policy.config, STACK),
    ):
        changed = tuple(c for c in found if c.reading_class is kind)
        if changed and action is not DriftAction.REPORT:
            return Staleness(action, profile, drift_cause(changed))
    if policy.baseline is not DriftAction.REPORT and (said := other_recipe(certificate, rules.standard)):
        name = f"recipe={short_digest(rules.standard.recipe)}"
        return Staleness(policy.baseline, STACK, Cause(kind=CauseKind.DRIFT, name=name, message=f"{said}."))
    if policy.coverage is not DriftAction.REPORT:
        open_tests = rules.standard.unfilled(certificate)
        if not open_tests.complete:
            name = plain(f"coverage={','.join(open_tests.holes)}", NAME_LIMIT)
            message = f"{plain(open_tests.sentence(), SENTENCE_LIMIT)}."
            return Staleness(policy.coverage, STACK, Cause(kind=CauseKind.DRIFT, name=name, message=message))
    return _of_age(certificate, rules, node, now)


ADOPTED = Cause(
    kind=CauseKind.DRIFT,
    name="adopted",
    message="The node was at work when Muster saw it first and has never been certified.",
)


def _of_age(certificate: Certificate, rules: Rules, node: str, now: datetime) -> Staleness | None:
    action = rules.certification.age_action
    if action is DriftAction.REPORT or not expired(certificate, rules, node, now):
        return None
    cause = Cause(kind=CauseKind.AGE, name="expired", message=_expired(certificate))
    return Staleness(DriftAction.ROLL, IDLE, cause, insists=action is DriftAction.HOLD)


def expired(certificate: Certificate, rules: Rules, node: str, now: datetime) -> bool:
    """Whether the certificate is older than it may get."""
    ends = expiry(certificate, node, rules.certification)
    return ends is not None and now >= ends


def _expired(certificate: Certificate) -> str:
    return f"The certificate of {certificate.issued_at:%Y-%m-%d %H:%M} UTC expired."


def other_recipe(certificate: Certificate, standard: NodeStandard) -> str:
    """That the node was certified under another recipe than its Baseline names; empty when it was not."""
    if not standard.recipe or certificate.recipe_digest == standard.recipe:
        return ""
    before = f"recipe {short_digest(certificate.recipe_digest)}" if certificate.recipe_digest else "no recipe"
    return f"Certified under {before}, Baseline {standard.baseline} says {short_digest(standard.recipe)}"


def reported_only(
    certificate: Certificate, observed: Observed | None, rules: Rules, node: str, now: datetime
) -> tuple[str, ...]:
    """What would put the certificate in doubt if the policy did not only report it: one sentence each."""
    policy = rules.drift
    actions = {
        ReadingClass.IDENTITY: policy.identity,
        ReadingClass.STACK: policy.stack,
        ReadingClass.CONFIG: policy.config,
    }
    found: list[str] = []
    if certificate.adopted:
        return ()
    if rules.standard.disputed:
        names = ", ".join(rules.standard.disputed[:SHOWN])
        found.append(f"Baselines {names} name different recipes for it; none counts")
    if policy.baseline is DriftAction.REPORT and (said := other_recipe(certificate, rules.standard)):
        found.append(said)
    open_tests = rules.standard.still_open(certificate)
    if not open_tests.complete:
        found.append(open_tests.sentence())
    if rules.certification.age_action is DriftAction.REPORT and expired(certificate, rules, node, now):
        found.append(_expired(certificate).rstrip("."))
    drifted = drift_of(certificate, observed) if observed is not None else ()
    changed = [c for c in drifted if actions.get(c.reading_class) is DriftAction.REPORT]
    if changed:
        more = f" and {len(changed) - 1} more" if len(changed) > 1 else ""
        found.append(f"{changed[0].sentence()}{more}")
    return tuple(found)


def drift_cause(changed: tuple[Change, ...]) -> Cause:
    """Names the change by what the readings became: equal on every node that the same roll-out reached.

    Readings that differ by an index alone (`gpu.0.firmware`, `gpu.1.firmware`) count as one.
    """
    names = sorted({f"{_INDEX.sub('.*.', c.name)}={c.after or 'absent'}" for c in changed})
    first: dict[str, Change] = {}
    for change in changed:
        first.setdefault(_INDEX.sub(".*.", change.name), change)
    sentences = [c.sentence() for c in first.values()]
    more = f" and {len(sentences) - SHOWN} more" if len(sentences) > SHOWN else ""
    message = "; ".join(sentences[:SHOWN]) + more
    name = plain(";".join(names), NAME_LIMIT)
    return Cause(kind=CauseKind.DRIFT, name=name, message=f"{plain(message, SENTENCE_LIMIT)}.")


def in_grace(certificate: Certificate, because: str, now: datetime, *, anew: bool = False) -> Certificate:
    """The certificate in grace; the moment at which an earlier grace began stays.

    `anew`: the earlier one did not insist on its end, and this one does. It begins now: the earlier may be long over,
    for many nodes at once, and they would all be held in one moment.
    """
    started = certificate.voided_at if certificate.standing is Standing.GRACE and not anew else now
    return replace(certificate, standing=Standing.GRACE, voided_at=started, voided_because=because[:SENTENCE_LIMIT])


def restored(certificate: Certificate) -> Certificate:
    """The certificate whose reason for grace went away (the change was undone)."""
    return replace(certificate, standing=Standing.VALID, voided_at=None, voided_because="")


def voided(certificate: Certificate | None, because: str, now: datetime) -> Certificate | None:
    """The certificate marked as worthless; one that is void already keeps its reason."""
    if certificate is None or certificate.standing is Standing.VOID:
        return certificate
    return replace(certificate, standing=Standing.VOID, voided_at=now, voided_because=because[:SENTENCE_LIMIT])


def without_failed(certificate: Certificate | None, failed: CertificationView) -> Certificate | None:
    """The certificate without what the node has failed since: nothing of that may be carried over any more.

    A verdict does not tell which of the tests it rests on, and a bad node passes some runs. So every test that
    `failed` set out to run goes; all of them where that is not known.
    """
    if certificate is None:
        return None
    kept = tuple(test for test in certificate.tests if failed.asked and test.name not in failed.asked)
    return certificate if kept == certificate.tests else replace(certificate, tests=kept)


def grace_ends(certificate: Certificate, policy: DriftPolicy) -> datetime | None:
    """Until when the node may work on under grace; None when the certificate is not in grace."""
    if certificate.standing is not Standing.GRACE or certificate.voided_at is None:
        return None
    return after(certificate.voided_at, policy.max_grace_s)


def issue(
    node: str,
    node_uid: str,
    observed: Observed,
    passed: CertificationView,
    rules: Rules,
    earlier: Certificate | None,
    now: datetime,
) -> Certificate:
    """The certificate for a pass of `passed` by the node as `observed`.

    What `passed` did not test is carried over from `earlier`, where that one was earned by the same hardware.
    """
    names = {test.name for test in passed.tests}
    kept = tuple(
        replace(test, carried_from=test.carried_from or earlier.certification)
        for test in carried(earlier, node_uid, observed.fingerprint)
        if earlier is not None and test.name not in names
    )
    made = Certificate(
        node_uid=node_uid,
        fingerprint=observed.fingerprint,
        recipe_digest=passed.recipe_digest,
        profile=passed.profile,
        tests=tuple(sorted((*passed.tests, *kept), key=lambda test: test.name)),
        certification=passed.name,
        issued_at=now,
    )
    required = rules.standard.required
    holes = rules.standard.still_open(made).holes
    lacks = tuple(hole_key(n, required[n]) for n in holes if n in passed.asked and passed.asked[n] == required[n])
    return replace(made, lacks=lacks, expires_at=expiry(made, node, rules.certification))


def adopt(node_uid: str, fingerprint: Fingerprint, now: datetime) -> Certificate:
    """What a node works on under that had work when Muster saw it first: grace from the beginning, no tests."""
    return Certificate(
        node_uid=node_uid,
        fingerprint=fingerprint,
        profile="",
        tests=(),
        certification="",
        issued_at=now,
        standing=Standing.GRACE,
        voided_at=now,
        voided_because=ADOPTED.message,
        adopted=True,
    )
