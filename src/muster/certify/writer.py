"""Writing to one Certification so that no other controller's writes are lost, and ours are durable."""

from __future__ import annotations

import asyncio
import logging
from functools import partial

import msgspec

from muster.certify.durable import SupersededError, persist
from muster.certify.parts import PartStore
from muster.clock import Clock
from muster.kube.api import CERTIFICATIONS, ConflictError, KubeApi, NotFoundError, Object, PatchType
from muster.resources.base import from_object, to_object
from muster.resources.certification import Certification, CertificationStatus

log = logging.getLogger(__name__)

MANAGER = "muster-certifier"


class CertificationWriter:
    """The certification as last read or written. Writes are conditional on nobody else having written the status."""

    def __init__(self, api: KubeApi, clock: Clock, obj: Object) -> None:
        """Raises msgspec.ValidationError when `obj` is no Certification."""
        self._api = api
        self._clock = clock
        self._obj = obj
        self._turn = asyncio.Lock()
        self.certification = from_object(Certification, obj)
        self.parts = PartStore(api, clock, self.name, self.uid)

    @classmethod
    async def load(cls, api: KubeApi, clock: Clock, name: str) -> CertificationWriter:
        """Read the certification. Raises NotFoundError, msgspec.ValidationError."""
        obj = await persist(clock, f"reading of certification {name}", partial(api.get, CERTIFICATIONS, name))
        return cls(api, clock, obj)

    @property
    def name(self) -> str:
        return self.certification.metadata.name

    @property
    def uid(self) -> str:
        return self.certification.metadata.uid

    @property
    def status(self) -> CertificationStatus:
        return self.certification.status

    async def annotate(self, annotations: dict[str, str]) -> None:
        """Set annotations. Raises SupersededError."""
        patch = {"metadata": {"uid": self.uid, "annotations": annotations}}
        act = partial(self._api.patch, CERTIFICATIONS, self.name, patch, PatchType.MERGE, manager=MANAGER)
        async with self._turn:
            try:
                self._take(await persist(self._clock, f"annotation of certification {self.name}", act))
            except (NotFoundError, ConflictError) as error:
                raise SupersededError(f"{self.name}: {error}") from error

    async def write(self, status: CertificationStatus) -> None:
        """Replace the status; return when the API server has it.

        Others may edit labels and annotations meanwhile. Raises SupersededError when the status is not the one that
        was read or written last, and other ApiErrors.
        """
        async with self._turn:
            if status == self.status:
                return
            before = self.status
            while True:
                body = {**self._obj, "status": to_object(status)}
                act = partial(self._api.replace, CERTIFICATIONS, body, subresource="status", manager=MANAGER)
                try:
                    self._take(await persist(self._clock, f"status of certification {self.name}", act))
                    return
                except NotFoundError as error:
                    raise SupersededError(f"{self.name}: {error}") from error
                except ConflictError:
                    await self._read_again()
                if self.status == status:
                    return  # an earlier attempt had taken effect after all
                if self.status != before:
                    raise SupersededError(f"{self.name}: another controller wrote the status")

    async def _read_again(self) -> None:
        uid = self.uid
        act = partial(self._api.get, CERTIFICATIONS, self.name)
        try:
            self._take(await persist(self._clock, f"reading of certification {self.name}", act))
        except (NotFoundError, msgspec.ValidationError) as error:
            raise SupersededError(f"{self.name}: {error}") from error
        if self.uid != uid:
            raise SupersededError(f"{self.name}: another certification has the name now")

    def _take(self, obj: Object) -> None:
        self.certification = from_object(Certification, obj)
        self._obj = obj
