"""A certified node with everything that its certificate rests on, and the statement about it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from msgspec.structs import replace

from muster.certify.attestation.build import Export, documents_of, statement_of
from muster.certify.attestation.statement import Statement
from muster.certify.conclusion import passed_tests
from muster.resources.base import TEST_DIGESTS_ANNOTATION, ObjectMeta
from muster.resources.certification import Certification, CertificationPart
from muster.resources.fingerprint import Reading, ReadingClass, fingerprint
from muster.resources.node_health import (
    Certificate,
    CertifiedTest,
    Lifecycle,
    NodeHealth,
    NodeHealthStatus,
    Observed,
    State,
)
from tests.certify.report_samples import Fleet, certification, course

NODE, OTHER = "gpu-0001", "gpu-0002"
ISSUED = datetime(2026, 11, 3, 14, 0, tzinfo=UTC)
NOW = ISSUED + timedelta(days=1)
EXPORT = Export(NOW, "1.2.3")
READINGS = (
    Reading(name="driver.version", value="580.65.06", reading_class=ReadingClass.STACK),
    Reading(name="gpu.0.uuid", value="GPU-b", reading_class=ReadingClass.IDENTITY),
    Reading(name="gpu.1.uuid", value="GPU-a", reading_class=ReadingClass.IDENTITY),
    Reading(name="gpu.0.mig.1.0.uuid", value="MIG-1", reading_class=ReadingClass.CONFIG),
)


@dataclass(frozen=True)
class Certified:
    """`health` carries the certificate."""

    health: NodeHealth
    certification: Certification
    parts: Sequence[CertificationPart]

    @property
    def certificate(self) -> Certificate:
        life = self.health.status.lifecycle
        assert life is not None
        assert life.certificate is not None
        return life.certificate

    def documents(self) -> dict[str, bytes]:
        return documents_of(self.health.metadata.name, self.certificate, self.certification, self.parts)

    def statement(self) -> Statement:
        return statement_of(self.documents(), EXPORT)


def certified(node: str = NODE, parts: int = 2, readings: Sequence[Reading] = READINGS) -> Certified:
    """A node that passed among four, as the controllers leave it behind."""
    fleet = Fleet(nodes=4, domains=2)
    made, objects = certification(fleet, parts=parts)
    plan, records, _ = course(fleet)
    passed_by = passed_tests(records, plan)
    results = tuple(replace(n, tests=passed_by[n.name]) for n in made.status.nodes)
    spec = replace(made.spec, recipe_digest="sha256:recipe")
    made = replace(made, spec=spec, status=replace(made.status, nodes=results))
    result = next(n for n in made.status.nodes if n.name == node)
    digests: Mapping[str, str] = json.loads(made.metadata.annotations[TEST_DIGESTS_ANNOTATION])
    seen = fingerprint(readings)
    passed = Certificate(
        node_uid=f"uid-of-{node}",
        fingerprint=seen,
        recipe_digest="sha256:recipe",
        profile="bringup",
        tests=tuple(
            CertifiedTest(
                name=test,
                digest=digests[test],
                metrics={k: v for k, v in result.metrics.items() if k.startswith(f"{test}.")},
            )
            for test in result.tests
        ),
        certification=made.metadata.name,
        issued_at=ISSUED,
        expires_at=ISSUED + timedelta(days=90),
    )
    return Certified(health(node, passed), made, tuple(objects))


def health(node: str, passed: Certificate | None, readings: Sequence[Reading] = ()) -> NodeHealth:
    """The NodeHealth of a node in service; `readings` differ from the certified ones where they are given."""
    assert passed is not None or readings
    seen = fingerprint(readings) if readings else passed.fingerprint if passed else fingerprint(())
    return NodeHealth(
        metadata=ObjectMeta(name=node),
        status=NodeHealthStatus(
            observed=Observed(observed_at=ISSUED, node_uid=f"uid-of-{node}", boot_id="boot-1", fingerprint=seen),
            lifecycle=Lifecycle(state=State.IN_SERVICE, since=ISSUED, certificate=passed),
        ),
    )


def with_certificate(node: NodeHealth, passed: Certificate | None) -> NodeHealth:
    life = node.status.lifecycle
    assert life is not None
    return replace(node, status=replace(node.status, lifecycle=replace(life, certificate=passed)))
