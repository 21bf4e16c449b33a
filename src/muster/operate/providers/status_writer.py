"""Writes the status of Repairs, on condition that they are as they were read, and tells of each begin and end."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping

import msgspec

from muster.clock import Clock
from muster.kube.api import REPAIRS, ConflictError, KubeApi, NotFoundError, PatchType
from muster.kube.events import EventKind, EventRecorder, node_reference
from muster.operate.carry_out import NotLeadingError
from muster.operate.outputs.action import Action, Result
from muster.plain_text import plain
from muster.resources.base import from_object, to_object
from muster.resources.repair import Repair, RepairPhase, RepairStatus

log = logging.getLogger(__name__)

MANAGER = "muster-repairer"
MESSAGE_LIMIT = 500
_FIELDS = ("phase", "startedAt", "finishedAt", "message", "externalId")


class StatusWriter:
    """`tell` receives one line for each begin and end, `on_action` the same for the audit log."""

    def __init__(
        self,
        api: KubeApi,
        clock: Clock,
        events: EventRecorder,
        *,
        still_leading: Callable[[], Awaitable[bool]],
        tell: Callable[[str], None],
        on_action: Callable[[Action], None],
    ) -> None:
        self._api = api
        self._clock = clock
        self._events = events
        self._still_leading = still_leading
        self._tell = tell
        self._on_action = on_action
        self._written: dict[str, Repair] = {}

    async def fence(self) -> None:
        """Raises NotLeadingError when the lease belongs to somebody else. Asked before whatever is done."""
        if not await self._still_leading():
            raise NotLeadingError("This controller has lost its lease and stops; another one goes on.")

    def present(self, seen: Mapping[str, Repair]) -> list[Repair]:
        """All Repairs by name, each in the newer of what was seen and what was written here."""
        found = []
        for key, cached in sorted(seen.items()):
            mine = self._written.get(key)
            if mine is not None and (mine.metadata.uid != cached.metadata.uid or _version(cached) >= _version(mine)):
                del self._written[key]
                mine = None
            found.append(mine or cached)
        return found

    def forget(self, name: str) -> None:
        """The Repair is gone."""
        self._written.pop(name, None)

    async def write(self, repair: Repair, status: RepairStatus) -> Repair:
        """Write the status of just this version of the object. Raises ConflictError when it changed since."""
        await self.fence()
        body = {**dict.fromkeys(_FIELDS), **to_object(status), "phase": status.phase.value}
        patch = {
            "metadata": {"uid": repair.metadata.uid, "resourceVersion": repair.metadata.resource_version},
            "status": body,
        }
        name = repair.metadata.name
        try:
            written = await self._api.patch(
                REPAIRS, name, patch, PatchType.MERGE, subresource="status", manager=MANAGER
            )
        except NotFoundError as error:
            self.forget(name)
            raise ConflictError(404, "NotFound", f"Repair {name} is gone") from error
        made = from_object(Repair, written)
        self._written[name] = made
        return made

    async def claim(self, repair: Repair, identity: str) -> Repair:
        """Say that it runs before anything is done; of two controllers only one can."""
        status = RepairStatus(
            phase=RepairPhase.RUNNING, started_at=self._clock.now(), message=f"Taken up by {identity}."
        )
        claimed = await self.write(repair, status)
        self._audit(claimed, "repair-begun", "asked of the provider")
        return claimed

    async def end(self, repair: Repair, phase: RepairPhase, message: str, external_id: str = "") -> None:
        """Write a phase that is final."""
        text = plain(message, MESSAGE_LIMIT)
        status = msgspec.structs.replace(
            repair.status,
            phase=phase,
            finished_at=self._clock.now(),
            message=text,
            external_id=external_id or repair.status.external_id,
        )
        ended = await self.write(repair, status)
        self._audit(ended, _word(repair.status.phase, phase), f"{phase.value}: {text}" if text else phase.value)

    def _audit(self, repair: Repair, word: str, result: str) -> None:
        """An Event on the Node, a line in the log, an entry of the audit log."""
        spec, status = repair.spec, repair.status
        failed, refused = status.phase is RepairPhase.FAILED, word == "repair-refused"
        self._events.record(
            node_reference(spec.node_name),
            "RepairBegun" if word == "repair-begun" else f"Repair{status.phase.value}",
            spec.rung.value,
            f"{spec.rung.value} by {spec.provider} ({repair.metadata.name}): {result}",
            EventKind.WARNING if failed else EventKind.NORMAL,
        )
        now = self._clock.now()
        self._tell(
            f"{now:%Y-%m-%dT%H:%M:%SZ} repair {repair.metadata.name} node={spec.node_name} rung={spec.rung.value} "
            f"provider={spec.provider} action={word} phase={status.phase.value} "
            f"external={status.external_id or '-'}: {result}"
        )
        self._on_action(
            Action(
                at=now,
                actor=f"muster/{spec.provider}",
                action=word,
                target=f"Repair/{repair.metadata.name}",
                result=Result.REFUSED if refused else Result.FAILED if failed else Result.DONE,
                node=spec.node_name,
                episode=spec.episode,
                message=f"{spec.rung.value}: {result}",
            )
        )


def _word(before: RepairPhase, after: RepairPhase) -> str:
    if after is RepairPhase.CANCELLED:
        return "repair-cancelled"
    return "repair-ended" if before is RepairPhase.RUNNING else "repair-refused"


def _version(repair: Repair) -> int:
    version = repair.metadata.resource_version
    return int(version) if version.isdecimal() else 0
