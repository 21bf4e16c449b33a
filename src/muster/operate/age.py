"""The age of certificates: when one expires, and from when on its node is recertified while it is idle. Pure.

Nodes that were certified in one hour must not expire in one hour: each node's certificate lives a little shorter than
the policy allows, by an amount that follows from the node's name alone.
"""

from __future__ import annotations

import hashlib
from datetime import datetime, timedelta

from muster.moments import after
from muster.resources.fault_policy import CertificationPolicy
from muster.resources.node_health import CauseKind, Certificate, Lifecycle, Standing, State

SPREAD = 0.25
"""Certificates live between this share less than the greatest age and the greatest age."""

LEAD = 0.25
"""An idle node is recertified from this share of its certificate's life before the expiry on."""

PAUSE_S = 3600
"""So long a node is left alone after a renewal that gave way or ended without a verdict."""

GAVE_WAY = "gave-way"
"""Name in a cause of kind `age`: the node went back to work on its certificate, which is still good."""

RENEWAL = "renewal"
"""Name in a cause of kind `age`: the certificate is good, and renewed before it expires."""


def jitter(node: str) -> float:
    """A number in [0, 1) that follows from the name of the node."""
    return int.from_bytes(hashlib.sha256(node.encode()).digest()[:8], "big") / 2**64


def expiry(certificate: Certificate, node: str, policy: CertificationPolicy) -> datetime | None:
    """When the certificate expires; None: never. A limit that came or was lowered after the issue holds for it too.

    A limit that was raised or taken away since does not: the certificate, which others may have as a file, says when
    it ends.
    """
    if policy.max_age_s <= 0 or certificate.adopted:
        return certificate.expires_at
    limit = after(certificate.issued_at, policy.max_age_s * (1 - SPREAD * jitter(node)))
    return limit if certificate.expires_at is None else min(limit, certificate.expires_at)


def renewal_due(node: str, life: Lifecycle, policy: CertificationPolicy) -> datetime | None:
    """From when on the node, in service with a valid certificate, is to be recertified while it is idle."""
    certificate = life.certificate
    if certificate is None or certificate.standing is not Standing.VALID:
        return None
    ends = expiry(certificate, node, policy)
    if ends is None:
        return None
    due = ends - LEAD * max(ends - certificate.issued_at, timedelta())
    last = next((e for e in reversed(life.history) if e.state is State.IN_SERVICE), None)
    if last is not None and (last.cause.kind, last.cause.name) == (CauseKind.AGE, GAVE_WAY):
        due = max(due, after(last.at, PAUSE_S))
    return due


def renewing(node: str, life: Lifecycle, policy: CertificationPolicy, now: datetime) -> bool:
    """Whether the node only waits to have a good certificate renewed: then it gives way to work."""
    certificate, episode = life.certificate, life.episode
    if life.state is not State.UNCERTIFIED or certificate is None or episode is None:
        return False
    if certificate.standing is not Standing.VALID or (episode.cause.kind, episode.cause.name) != (
        CauseKind.AGE,
        RENEWAL,
    ):
        return False
    ends = expiry(certificate, node, policy)
    out = (State.QUARANTINED, State.DRAINING, State.REPAIRING, State.OUT_OF_SERVICE)
    troubled = any(entry.episode == episode.id and entry.state in out for entry in life.history)
    return not troubled and (ends is None or now < ends)
