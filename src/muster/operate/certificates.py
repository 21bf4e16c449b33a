"""Certificates: what a change of the node means for them, grace, and issuing one."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache

from msgspec.structs import replace

from muster.moments import after
from muster.operate.model import CertificationView
from muster.plain_text import plain
from muster.resources.fault_policy import DriftAction, DriftPolicy
from muster.resources.fingerprint import Change, Fingerprint, ReadingClass, changes, class_digest
from muster.resources.node_health import Cause, CauseKind, Certificate, Observed, Standing

BRINGUP, REPAIR, STACK, IDLE = "bringup", "repair", "stack", "idle"
"""Test profiles, by what voided the certificate."""

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


def staleness(
    certificate: Certificate, observed: Observed | None, policy: DriftPolicy, now: datetime
) -> Staleness | None:
    """The strongest reason why `certificate` is not valid any more, or None.

    Without an observation of the node nothing is concluded but age: unknown is not drift.
    """
    found = drift_of(certificate, observed) if observed is not None else ()
    for kind, action, profile in (
        (ReadingClass.IDENTITY, policy.identity, BRINGUP),
        (ReadingClass.STACK, policy.stack, STACK),
        (ReadingClass.CONFIG, policy.config, STACK),
    ):
        changed = tuple(c for c in found if c.reading_class is kind)
        if changed and action is not DriftAction.REPORT:
            return Staleness(action, profile, drift_cause(changed))
    if certificate.expires_at is not None and now >= certificate.expires_at:
        message = f"The certificate of {certificate.issued_at:%Y-%m-%d %H:%M} UTC expired."
        return Staleness(DriftAction.ROLL, IDLE, Cause(kind=CauseKind.AGE, name="expired", message=message))
    return None


def reported_only(certificate: Certificate, observed: Observed | None, policy: DriftPolicy) -> tuple[Change, ...]:
    """Changes that the policy only reports."""
    if observed is None:
        return ()
    actions = {
        ReadingClass.IDENTITY: policy.identity,
        ReadingClass.STACK: policy.stack,
        ReadingClass.CONFIG: policy.config,
    }
    return tuple(c for c in drift_of(certificate, observed) if actions.get(c.reading_class) is DriftAction.REPORT)


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


def in_grace(certificate: Certificate, because: str, now: datetime) -> Certificate:
    """The certificate in grace; the moment at which an earlier grace began stays."""
    started = certificate.voided_at if certificate.standing is Standing.GRACE else now
    return replace(certificate, standing=Standing.GRACE, voided_at=started, voided_because=because[:SENTENCE_LIMIT])


def restored(certificate: Certificate) -> Certificate:
    """The certificate whose reason for grace went away (the change was undone)."""
    return replace(certificate, standing=Standing.VALID, voided_at=None, voided_because="")


def voided(certificate: Certificate | None, because: str, now: datetime) -> Certificate | None:
    """The certificate marked as worthless; one that is void already keeps its reason."""
    if certificate is None or certificate.standing is Standing.VOID:
        return certificate
    return replace(certificate, standing=Standing.VOID, voided_at=now, voided_because=because[:SENTENCE_LIMIT])


def grace_ends(certificate: Certificate, policy: DriftPolicy) -> datetime | None:
    """Until when the node may work on under grace; None when the certificate is not in grace."""
    if certificate.standing is not Standing.GRACE or certificate.voided_at is None:
        return None
    return after(certificate.voided_at, policy.max_grace_s)


def issue(node_uid: str, observed: Observed, passed: CertificationView, now: datetime) -> Certificate:
    """The certificate for a pass of `passed` by the node as `observed`."""
    return Certificate(
        node_uid=node_uid,
        fingerprint=observed.fingerprint,
        recipe_digest=passed.recipe_digest,
        profile=passed.profile,
        tests=passed.tests,
        certification=passed.name,
        issued_at=now,
    )
