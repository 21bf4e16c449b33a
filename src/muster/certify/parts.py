"""What outgrows a Certification, in objects of its own: measurements of runs, and the runs of earlier rounds.

A part is written before the status that counts it and never changed afterwards. A part beyond the count was left by
a controller that died in between: it belongs to no round that counts and is replaced.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import msgspec

from muster.certify.durable import SupersededError, persist
from muster.clock import Clock
from muster.errors import MusterError
from muster.kube.api import (
    CERTIFICATION_PARTS,
    CERTIFICATIONS,
    AlreadyExistsError,
    ConflictError,
    KubeApi,
    NotFoundError,
)
from muster.resources.base import API_VERSION, from_object, to_object
from muster.resources.certification import (
    Certification,
    CertificationPart,
    CertificationPartSpec,
    RunDetail,
    RunRecord,
)

PART_LIMIT_BYTES = 900_000
"""etcd takes 1.5 MiB a request; the API server's own fields and managed fields come on top."""
MANAGER = "muster-certifier"


class PartMissingError(MusterError):
    """A part that the status counts is gone or unreadable: the certification cannot be continued."""


def part_name(certification: str, number: int) -> str:
    """The same for the same part, so that writing it twice is noticed."""
    return f"{certification}-{number}"


def split(
    runs: Sequence[RunRecord], details: Sequence[RunDetail], limit_bytes: int = PART_LIMIT_BYTES
) -> tuple[tuple[tuple[RunRecord, ...], tuple[RunDetail, ...]], ...]:
    """Runs and details in as few parts as fit, in order. A single detail that is too large loses its ranks."""
    parts: list[tuple[list[RunRecord], list[RunDetail]]] = []
    room = 0

    def place(size: int) -> tuple[list[RunRecord], list[RunDetail]]:
        nonlocal room
        if not parts or size > room:
            parts.append(([], []))
            room = limit_bytes
        room -= size
        return parts[-1]

    for run in runs:
        place(len(msgspec.json.encode(run)) + 1)[0].append(run)
    for detail in details:
        size = len(msgspec.json.encode(detail)) + 1
        if size > limit_bytes:
            detail = msgspec.structs.replace(detail, ranks=())
            size = len(msgspec.json.encode(detail)) + 1
        place(size)[1].append(detail)
    return tuple((tuple(r), tuple(d)) for r, d in parts)


class PartStore:
    """The parts of one certification."""

    def __init__(self, api: KubeApi, clock: Clock, name: str, uid: str) -> None:
        self._api = api
        self._clock = clock
        self._name = name
        self._uid = uid

    async def read(self, count: int) -> tuple[CertificationPart, ...]:
        """The parts 0 to `count` - 1. Raises PartMissingError."""
        return tuple([await self._read(number) for number in range(count)])

    async def _read(self, number: int) -> CertificationPart:
        name = part_name(self._name, number)
        try:
            act = partial(self._api.get, CERTIFICATION_PARTS, name)
            obj = await persist(self._clock, f"reading of part {name}", act)
            return from_object(CertificationPart, obj)
        except (NotFoundError, msgspec.ValidationError) as error:
            raise PartMissingError(f"The part {name} of the certification cannot be read: {error}.") from error

    async def add(self, count: int, runs: Sequence[RunRecord], details: Sequence[RunDetail]) -> int:
        """Write `runs` and `details` as the parts from number `count` on; the number of parts there are then.

        Raises SupersededError when another controller carries out the certification.
        """
        for part_runs, part_details in split(runs, details):
            await self._write(count, part_runs, part_details)
            count += 1
        return count

    async def _write(self, number: int, runs: tuple[RunRecord, ...], details: tuple[RunDetail, ...]) -> None:
        name = part_name(self._name, number)
        spec = CertificationPartSpec(certification=self._name, number=number, runs=runs, details=details)
        owner = {"apiVersion": API_VERSION, "kind": "Certification", "name": self._name, "uid": self._uid}
        body = {
            "apiVersion": API_VERSION,
            "kind": "CertificationPart",
            "metadata": {"name": name, "ownerReferences": [owner]},
            "spec": to_object(spec),
        }
        what = f"creation of part {name}"
        create = partial(self._api.create, CERTIFICATION_PARTS, body, manager=MANAGER)
        while True:
            try:
                await persist(self._clock, what, create)
                return
            except AlreadyExistsError:
                try:
                    obj = await persist(self._clock, what, partial(self._api.get, CERTIFICATION_PARTS, name))
                    if obj.get("spec") == body["spec"]:
                        return  # an attempt that seemed to fail had taken effect
                    await self._still_ours(number)
                    uid = str(obj["metadata"]["uid"])
                    await persist(self._clock, what, partial(self._api.delete, CERTIFICATION_PARTS, name, uid=uid))
                except (NotFoundError, ConflictError):
                    continue  # deleted meanwhile; a certification that is gone ends at the next write of its status

    async def _still_ours(self, number: int) -> None:
        """Raises SupersededError when the status counts part `number` already: another controller wrote it."""
        act = partial(self._api.get, CERTIFICATIONS, self._name)
        found = from_object(Certification, await persist(self._clock, f"reading of certification {self._name}", act))
        if found.metadata.uid != self._uid or found.status.parts > number:
            raise SupersededError(f"{self._name}: another controller wrote part {number}")
