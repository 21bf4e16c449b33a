"""The fingerprint of a node: what identifies its hardware and stack, and nothing volatile."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from enum import StrEnum

from muster.resources.base import Model


class ReadingClass(StrEnum):
    """What a change of the reading means for a certificate. Volatile readings never enter a fingerprint."""

    IDENTITY = "identity"
    STACK = "stack"
    CONFIG = "config"
    VOLATILE = "volatile"


class Reading(Model, frozen=True, kw_only=True):
    """One named reading of a node, for example `gpu.0.uuid` or `driver.version`."""

    name: str
    value: str
    reading_class: ReadingClass


class Fingerprint(Model, frozen=True, kw_only=True):
    """Digest over the readings, sorted by name; digests per class tell what kind of change happened."""

    digest: str
    readings: tuple[Reading, ...]


def fingerprint(readings: Iterable[Reading]) -> Fingerprint:
    """Build the fingerprint of `readings`; volatile ones are left out, order does not matter.

    Raises ValueError when one name occurs twice.
    """
    kept = sorted((r for r in readings if r.reading_class is not ReadingClass.VOLATILE), key=lambda r: r.name)
    names = [r.name for r in kept]
    if len(set(names)) != len(names):
        raise ValueError("a reading name occurs twice in one fingerprint")
    return Fingerprint(digest=class_digest(kept, tuple(ReadingClass)), readings=tuple(kept))


def class_digest(readings: Iterable[Reading], classes: Iterable[ReadingClass]) -> str:
    """`sha256:<hex>` over the readings of the given classes."""
    wanted = set(classes)
    digest = hashlib.sha256()
    for reading in sorted(readings, key=lambda r: r.name):
        if reading.reading_class in wanted:
            for part in (reading.name, reading.value, reading.reading_class.value):
                encoded = part.encode()
                digest.update(len(encoded).to_bytes(8, "big") + encoded)
    return f"sha256:{digest.hexdigest()}"


class Change(Model, frozen=True, kw_only=True):
    """One reading that differs between two fingerprints; None stands for absent."""

    name: str
    reading_class: ReadingClass
    before: str | None = None
    after: str | None = None

    def sentence(self) -> str:
        return f"{self.name} changed from {self.before or 'absent'} to {self.after or 'absent'}"


def changes(before: Fingerprint, after: Fingerprint) -> tuple[Change, ...]:
    """Every reading that differs, sorted by name."""
    old = {r.name: r for r in before.readings}
    new = {r.name: r for r in after.readings}
    found = []
    for name in sorted(old.keys() | new.keys()):
        a, b = old.get(name), new.get(name)
        if (a and a.value) != (b and b.value):
            known = b or a
            assert known is not None  # noqa: S101 - name comes from one of the two
            found.append(
                Change(
                    name=name,
                    reading_class=known.reading_class,
                    before=a.value if a else None,
                    after=b.value if b else None,
                )
            )
    return tuple(found)
