"""Oracle Cloud: what an instance can see of its own maintenance.

Oracle announces maintenance in the Compute API (`timeMaintenanceRebootDue` of the Instance, or an
InstanceMaintenanceEvent), in the console and by mail. Its documentation does not promise that the instance metadata
service shows the field; where the service does, it is read. Where it does not, a file or URL of the site carries the
notice.
"""

from __future__ import annotations

from muster.agent.maintenance import answers
from muster.agent.maintenance.fetch import fetch
from muster.agent.maintenance.monitor import Heard
from muster.errors import BadInputError, UnreachableError
from muster.moments import after
from muster.resources.node_health import Notice, NoticeKind, NoticeStatus

SOURCE = "oci"
ENDPOINT = "http://169.254.169.254"
REQUESTS = 1
_HEADERS = {"Authorization": "Bearer Oracle"}
_INSTANCE = "/opc/v2/instance/"
REBOOT_WITHIN_S = 24 * 3600
"""Oracle reboots a machine that was not rebooted by its users within 24 hours after the due time (Compute API)."""


class OciSource:
    """The metadata service at `endpoint`."""

    name = SOURCE

    def __init__(self, endpoint: str, timeout_s: float) -> None:
        self._endpoint = (endpoint or ENDPOINT).rstrip("/")
        self._timeout_s = timeout_s

    async def ask(self, _: frozenset[str]) -> Heard:
        answer = await fetch(self._endpoint + _INSTANCE, _HEADERS, self._timeout_s)
        if answer.status != 200:
            raise UnreachableError(f"The metadata service answered {answer.status} to {_INSTANCE}.")
        return Heard(parse_instance(answer.body), answer.at)


def parse_instance(body: bytes) -> tuple[Notice, ...]:
    """The maintenance reboot that the answer to `opc/v2/instance/` names, if it does. Raises BadInputError."""
    entry = answers.read_json(body, "The description of the instance")
    if not isinstance(entry, dict):
        raise BadInputError("The description of the instance is no object.")
    answers.identifier(entry.get("id"), "id of the instance")  # without it, it describes something else
    due = answers.moment(entry.get("timeMaintenanceRebootDue"), "timeMaintenanceRebootDue")
    if due is None:
        return ()
    return (
        Notice(
            id=f"maintenance-reboot/{due.isoformat()}",
            source=SOURCE,
            kind=NoticeKind.REBOOT,
            status=NoticeStatus.SCHEDULED,
            not_before=due,
            ends_at=after(due, REBOOT_WITHIN_S),
            message="Oracle reboots the machine for maintenance of its host, unless it is rebooted before.",
        ),
    )
