"""Google Cloud through google-cloud-compute (REST). Orders bear a request ID; the cloud carries each out once."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime
from typing import Any, assert_never

from muster.operate.providers.cloud.gateway import Machine, MachineState, Operation, OperationState, load
from muster.operate.providers.cloud.machine_ids import gcp_id
from muster.operate.providers.config import CloudReplace, GcpSettings
from muster.operate.providers.http import NotSentError, UnansweredError
from muster.operate.providers.provider import PermanentProviderError, TransientProviderError
from muster.plain_text import plain

_STATES = {
    "PROVISIONING": MachineState.STARTING,
    "STAGING": MachineState.STARTING,
    "RUNNING": MachineState.RUNNING,
    "STOPPING": MachineState.STOPPING,
    "PENDING_STOP": MachineState.STOPPING,
    "SUSPENDING": MachineState.STOPPING,
    "TERMINATED": MachineState.STOPPED,
}
_GROUP = re.compile(r"projects/([^/]+)/(zones|regions)/([^/]+)/instanceGroupManagers/([^/]+)")


class GcpGateway:
    title = "Google Cloud"
    idempotent = True

    def __init__(self, settings: GcpSettings, credentials: Any = None) -> None:
        self._settings = settings
        self._credentials = credentials
        self._clients: dict[str, Any] = {}

    def target_of(self, provider_id: str) -> str:
        gcp_id(provider_id)
        return provider_id

    def machine(self, target: str) -> Machine:
        found = self._instance(target)
        if found is None:
            return Machine(state=MachineState.GONE)
        local = any(str(disk.type_) == "SCRATCH" for disk in found.disks)
        preemptible = found.scheduling.preemptible or found.scheduling.provisioning_model == "SPOT"
        cannot = "it is a spot machine, which may not come back" if preemptible else ""
        if not cannot and self._group_of(found):
            cannot = "its instance group starts or replaces machines that stop; use replace"
        return Machine(
            state=_STATES.get(str(found.status), MachineState.OTHER),
            started_at=_time(found.last_start_timestamp),
            cannot_stop=cannot,
            stop_erases=f"the local SSDs of {found.name}" if local else "",
        )

    def _instance(self, target: str) -> Any:
        where = gcp_id(target)
        request = {"project": where.project, "zone": where.zone, "instance": where.name}
        try:
            return self._ask("InstancesClient", "get", "GetInstanceRequest", request)
        except _AbsentError:
            return None

    def reboot(self, target: str, token: str) -> str:
        return self._order(target, "reset_unary", "ResetInstanceRequest", token)

    def stop(self, target: str, token: str, erase: bool) -> str:
        more = {"discard_local_ssd": True} if erase else {}
        return self._order(target, "stop_unary", "StopInstanceRequest", token, **more)

    def start(self, target: str, token: str) -> str:
        return self._order(target, "start_unary", "StartInstanceRequest", token)

    def replace(self, target: str, token: str, how: CloudReplace) -> str:
        match how:
            case CloudReplace.INSTANCE:
                return self._order(target, "delete_unary", "DeleteInstanceRequest", token)
            case CloudReplace.GROUP:
                return self._recreate(target, token)
            case CloudReplace.MARK_UNHEALTHY | CloudReplace.NONE:
                raise PermanentProviderError("Google Cloud replaces by `replace: group` or `replace: instance`.")
            case _ as never:
                assert_never(never)

    def _recreate(self, target: str, token: str) -> str:
        where, found = gcp_id(target), self._instance(target)
        group = self._group_of(found) if found is not None else None
        if group is None:
            raise PermanentProviderError(f"{where.name} belongs to no managed instance group; use replace: instance.")
        kind, place, name = group
        url = f"https://www.googleapis.com/compute/v1/projects/{where.project}/zones/{where.zone}/instances/{where.name}"
        prefix = "" if kind == "zones" else "Region"
        resource = (
            "region_instance_group_managers_recreate_request_resource"
            if prefix
            else "instance_group_managers_recreate_instances_request_resource"
        )
        request = {
            "project": where.project,
            ("region" if prefix else "zone"): place,
            "instance_group_manager": name,
            "request_id": token,
            resource: {"instances": [url]},
        }
        answer = self._ask(
            f"{prefix}InstanceGroupManagersClient",
            "recreate_instances_unary",
            f"RecreateInstances{prefix}InstanceGroupManagerRequest",
            request,
        )
        return f"{place}/{answer.name}" if prefix else str(answer.name)

    def operation(self, target: str, operation: str) -> Operation:
        where = gcp_id(target)
        region, _, name = operation.rpartition("/")
        request = {
            "project": where.project,
            "operation": name,
            ("region" if region else "zone"): region or where.zone,
        }
        kind = "RegionOperations" if region else "ZoneOperations"
        request_kind = "GetRegionOperationRequest" if region else "GetZoneOperationRequest"
        try:
            found = self._ask(f"{kind}Client", "get", request_kind, request)
        except _AbsentError:
            # Operations are forgotten after some days; the machine itself is looked at then.
            return Operation(OperationState.DONE)
        if found.http_error_status_code or found.error.errors:
            words = "; ".join(f"{one.code}: {one.message}" for one in list(found.error.errors)[:3])
            return Operation(OperationState.FAILED, plain(words or str(found.http_error_message), 300))
        done = "DONE" in str(load("google.cloud.compute_v1").Operation.Status(found.status).name)
        return Operation(OperationState.DONE if done else OperationState.RUNNING)

    def _group_of(self, instance: Any) -> tuple[str, str, str] | None:
        created = next((item.value for item in instance.metadata.items if item.key == "created-by"), "")
        found = _GROUP.fullmatch(str(created))
        return (found.group(2), found.group(3), found.group(4)) if found else None

    def _order(self, target: str, method: str, kind: str, token: str, **more: Any) -> str:
        where = gcp_id(target)
        request = {"project": where.project, "zone": where.zone, "instance": where.name, "request_id": token, **more}
        try:
            return str(self._ask("InstancesClient", method, kind, request).name)
        except _AbsentError as error:
            raise PermanentProviderError(f"Google Cloud has no instance {where.name}.") from error

    def _client(self, kind: str) -> Any:
        if kind not in self._clients:
            make = getattr(load("google.cloud.compute_v1"), kind)
            options = {"api_endpoint": self._settings.endpoint} if self._settings.endpoint else None
            self._clients[kind] = make(credentials=self._credentials, transport="rest", client_options=options)
        return self._clients[kind]

    def _ask(self, client: str, method: str, kind: str, request: dict[str, Any]) -> Any:
        made = getattr(load("google.cloud.compute_v1"), kind)(request)
        call: Callable[..., Any] = getattr(self._client_or_refuse(client), method)
        errors, auth = load("google.api_core.exceptions"), load("google.auth.exceptions")
        requests = load("requests.exceptions")
        try:
            return call(request=made, retry=None, timeout=self._settings.request_limit_s)
        except errors.NotFound as error:
            raise _AbsentError from error
        except errors.GoogleAPICallError as error:
            raise _translated(error, method) from error
        except (requests.ConnectTimeout, auth.GoogleAuthError) as error:
            raise NotSentError(f"Cannot log in or connect to Google Cloud: {plain(str(error), 200)}") from error
        except requests.ConnectionError as error:
            text = f"Google Cloud broke the connection: {plain(str(error), 200)}"
            raise (NotSentError(text) if "NewConnectionError" in str(error) else UnansweredError(text)) from error
        except requests.RequestException as error:
            raise UnansweredError(f"Google Cloud gave no answer: {plain(str(error), 200)}") from error

    def _client_or_refuse(self, kind: str) -> Any:
        auth = load("google.auth.exceptions")
        try:
            return self._client(kind)
        except auth.DefaultCredentialsError as error:
            text = f"There are no credentials for Google Cloud: {plain(str(error), 200)}"
            raise NotSentError(text) from error


class _AbsentError(Exception):
    """There is no such thing."""


def _translated(error: Any, method: str) -> Exception:
    code = int(error.code or 0)
    text = f"Google Cloud refused {method.removesuffix('_unary')}: {plain(str(error.message), 200)}"
    if code in (429, 503) or (code == 403 and "rateLimitExceeded" in str(error)):
        return TransientProviderError(text)
    if code >= 500:
        return UnansweredError(text)
    return PermanentProviderError(f"{text}.")


def _time(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text) if text else None
    except ValueError:
        return None
