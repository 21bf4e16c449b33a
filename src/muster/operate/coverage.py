"""What a certificate must prove, and what of it one does not: compared test by test, by the digest of each. Pure.

A pass of other tests proves nothing about one that is missing, and a pass of an earlier definition of a test proves
nothing about the present one. Of which shape a node is (its GPUs, NICs, product) is part of its identity: what was
proven of another identity is never carried over.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from muster.resources.certification import ProfileTests
from muster.resources.fault_policy import CertificationPolicy
from muster.resources.fingerprint import Fingerprint, ReadingClass, class_digest
from muster.resources.node_health import Certificate, CertifiedTest

BRINGUP, REPAIR, STACK, IDLE = "bringup", "repair", "stack", "idle"
"""Test profiles, by what voided the certificate."""

PROFILES = (BRINGUP, REPAIR, STACK, IDLE)
SHOWN = 3
SHORT_DIGEST = 12
"""Hexadecimal digits of a digest that are shown to people."""

NO_TESTS: Mapping[str, str] = {}


@dataclass(frozen=True)
class Coverage:
    """What a certificate leaves open: `missing` tests, and `different` ones, passed in another definition."""

    missing: tuple[str, ...] = ()
    different: tuple[str, ...] = ()

    @property
    def complete(self) -> bool:
        return not self.missing and not self.different

    @property
    def holes(self) -> tuple[str, ...]:
        """Names of the tests that are not proven, sorted."""
        return tuple(sorted((*self.missing, *self.different)))

    def sentence(self) -> str:
        """One sentence for people; empty when nothing is open."""
        parts = []
        if self.missing:
            parts.append(f"does not cover {_listed(self.missing)}")
        if self.different:
            parts.append(f"covers {_listed(self.different)} in an earlier definition only")
        return f"The certificate {' and '.join(parts)}" if parts else ""


COMPLETE = Coverage()


def coverage(required: Mapping[str, str], held: Iterable[CertifiedTest]) -> Coverage:
    """Compare test by test. `required`: name -> digest of the definition, empty where any definition will do.

    A test that is held without a digest proves no particular definition.
    """
    if not required:
        return COMPLETE
    digests = {test.name: test.digest for test in held}
    return Coverage(
        missing=tuple(sorted(name for name in required if name not in digests)),
        different=tuple(sorted(n for n, digest in required.items() if digest and digests.get(n, digest) != digest)),
    )


@dataclass(frozen=True)
class NodeStandard:
    """What the certificate of one node is measured against now. Nothing is required where nothing is known."""

    required: Mapping[str, str] = field(default_factory=dict)
    """Test -> digest of its definition."""
    recipe: str = ""
    """Digest of the recipe that the one Baseline of the node names; empty: none, or several."""
    baseline: str = ""
    disputed: tuple[str, ...] = ()
    """Names of the Baselines of the node, where they name different recipes."""
    profiles: Mapping[str, ProfileTests] = field(default_factory=dict)
    known: Mapping[str, str] = field(default_factory=dict)
    """Every test that a certification of the controller can run -> digest."""

    def still_open(self, certificate: Certificate) -> Coverage:
        """What of the required tests the certificate does not prove."""
        return coverage(self.required, certificate.tests)

    def unfilled(self, certificate: Certificate) -> Coverage:
        """The part that a certification could prove and that was not tried in vain when it was issued."""
        found = self.still_open(certificate)
        if found.complete:
            return found

        def worth_it(name: str) -> bool:
            return name in self.known and hole_key(name, self.required[name]) not in certificate.lacks

        return Coverage(
            tuple(n for n in found.missing if worth_it(n)), tuple(n for n in found.different if worth_it(n))
        )

    def tests_for(self, profile: str, carried: Sequence[CertifiedTest]) -> tuple[str, ...]:
        """The tests to run so that nothing stays open; empty: those of the profile are enough."""
        known = self.profiles.get(profile)
        if known is None:
            return ()
        proven = [CertifiedTest(name=name, digest=digest) for name, digest in known.proves.items()]
        rest = [test for test in carried if test.name not in known.proves]
        more = [name for name in coverage(self.required, (*proven, *rest)).holes if name in self.known]
        return (*known.tests, *more) if more else ()


NOTHING_REQUIRED = NodeStandard()


@dataclass(frozen=True)
class InForce:
    """A Baseline as far as certificates go: which nodes it is about, and the digest of its recipe."""

    name: str
    selector: tuple[tuple[str, str], ...]
    recipe: str


@dataclass(frozen=True)
class Standard:
    """What certificates are measured against in this cluster."""

    profiles: Mapping[str, ProfileTests] = field(default_factory=dict)
    known: Mapping[str, str] = field(default_factory=dict)
    baselines: tuple[InForce, ...] = ()

    def of(self, labels: Mapping[str, str], policy: CertificationPolicy) -> NodeStandard:
        """The part that concerns a node with `labels` under `policy`."""
        if not (self.profiles or self.baselines or policy.require):
            return NOTHING_REQUIRED
        mine = [b for b in self.baselines if b.recipe and all(labels.get(k) == v for k, v in b.selector)]
        only = mine[0] if len({b.recipe for b in mine}) == 1 else None
        bringup = self.profiles.get(BRINGUP)
        required = bringup.proves if bringup is not None else NO_TESTS
        if policy.require:
            required = {**required, **{name: self.known.get(name, "") for name in policy.require}}
        return NodeStandard(
            required=required,
            recipe=only.recipe if only else "",
            baseline=only.name if only else "",
            disputed=tuple(b.name for b in mine) if only is None else (),
            profiles=self.profiles,
            known=self.known,
        )


NO_STANDARD = Standard()


def hole_key(name: str, digest: str) -> str:
    """How `Certificate.lacks` names a test that could not be proven."""
    return f"{name}@{short_digest(digest)}" if digest else name


def short_digest(digest: str) -> str:
    return digest.removeprefix("sha256:")[:SHORT_DIGEST]


def describes(certificate: Certificate | None, node_uid: str, fingerprint: Fingerprint) -> bool:
    """Whether `certificate`, whatever it is worth now, was earned by this very hardware."""
    if certificate is None or certificate.adopted or certificate.node_uid != node_uid:
        return False
    same = (ReadingClass.IDENTITY,)
    return class_digest(certificate.fingerprint.readings, same) == class_digest(fingerprint.readings, same)


def carried(earlier: Certificate | None, node_uid: str, fingerprint: Fingerprint) -> tuple[CertifiedTest, ...]:
    """What an earlier certificate still proves about the node as it is: all of it, or nothing."""
    if earlier is None or not describes(earlier, node_uid, fingerprint):
        return ()
    return earlier.tests


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more
