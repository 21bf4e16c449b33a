"""Azure through azure-mgmt-compute: machines of their own and machines of uniform scale sets.

A power-cycle is power-off and start without deallocation, so the machine keeps its host and its local disks. Azure
knows no token for orders.
"""

from __future__ import annotations

from typing import Any, assert_never

from muster.operate.providers.cloud.gateway import Machine, MachineState, Operation, OperationState, load
from muster.operate.providers.cloud.machine_ids import AzureId, azure_id
from muster.operate.providers.config import AzureSettings, CloudReplace
from muster.operate.providers.http import NotSentError, UnansweredError
from muster.operate.providers.provider import PermanentProviderError, TransientProviderError
from muster.plain_text import plain

_STATES = {
    "starting": MachineState.STARTING,
    "running": MachineState.RUNNING,
    "stopping": MachineState.STOPPING,
    "deallocating": MachineState.STOPPING,
    "stopped": MachineState.STOPPED,
    "deallocated": MachineState.STOPPED,
}


class AzureGateway:
    title = "Azure"
    idempotent = False

    def __init__(self, settings: AzureSettings, credential: Any = None, **options: Any) -> None:
        """`options` go to the SDK's client as they are."""
        self._settings = settings
        self._credential = credential
        self._options = options
        self._clients: dict[str, Any] = {}

    def target_of(self, provider_id: str) -> str:
        azure_id(provider_id)
        return provider_id

    def machine(self, target: str) -> Machine:
        found = azure_id(target)
        try:
            look = "get_instance_view" if found.scale_set else "instance_view"
            view = self._ask(found, look)
        except _AbsentError:
            return Machine(state=MachineState.GONE)
        codes = [str(status.code or "") for status in view.statuses or []]
        if "ProvisioningState/deleting" in codes:
            return Machine(state=MachineState.GONE)
        power = next((code.partition("/")[2] for code in codes if code.startswith("PowerState/")), "")
        return Machine(state=_STATES.get(power, MachineState.OTHER))

    def reboot(self, target: str, token: str) -> str:  # noqa: ARG002 - Azure takes no token
        return self._order(target, "begin_restart")

    def stop(self, target: str, token: str, erase: bool) -> str:  # noqa: ARG002 - as above; nothing is erased
        return self._order(target, "begin_power_off", skip_shutdown=True)

    def start(self, target: str, token: str) -> str:  # noqa: ARG002 - as above
        return self._order(target, "begin_start")

    def replace(self, target: str, token: str, how: CloudReplace) -> str:  # noqa: ARG002 - as above
        found = azure_id(target)
        match how:
            case CloudReplace.INSTANCE:
                return self._order(target, "begin_delete")
            case CloudReplace.GROUP:
                if not found.scale_set:
                    text = f"{found.name} is in no uniform scale set and cannot be reimaged; use replace: instance."
                    raise PermanentProviderError(text)
                return self._order(target, "begin_reimage")
            case CloudReplace.MARK_UNHEALTHY | CloudReplace.NONE:
                raise PermanentProviderError("Azure replaces by `replace: group` or `replace: instance`.")
            case _ as never:
                assert_never(never)

    def operation(self, target: str, operation: str) -> Operation:  # noqa: ARG002 - the machine is looked at
        return Operation(OperationState.DONE)

    def _order(self, target: str, method: str, **more: Any) -> str:
        found = azure_id(target)
        try:
            self._ask(found, method, polling=False, **more)
        except _AbsentError as error:
            raise PermanentProviderError(f"Azure has no machine {found.name}.") from error
        return ""

    def _client(self, subscription: str) -> Any:
        if subscription not in self._clients:
            if self._credential is None:
                self._credential = load("azure.identity").DefaultAzureCredential()
            limit_s = self._settings.request_limit_s
            self._clients[subscription] = load("azure.mgmt.compute").ComputeManagementClient(
                self._credential,
                subscription,
                **({"base_url": self._settings.endpoint} if self._settings.endpoint else {}),
                retry_total=0,
                connection_timeout=min(10.0, limit_s),
                read_timeout=limit_s,
                **self._options,
            )
        return self._clients[subscription]

    def _ask(self, found: AzureId, method: str, **more: Any) -> Any:
        errors = load("azure.core.exceptions")
        client = self._client(found.subscription)
        kind = client.virtual_machine_scale_set_vms if found.scale_set else client.virtual_machines
        place = (found.group, found.scale_set, found.name) if found.scale_set else (found.group, found.name)
        try:
            return getattr(kind, method)(*place, **more)
        except errors.ResourceNotFoundError as error:
            raise _AbsentError from error
        except errors.ClientAuthenticationError as error:
            raise NotSentError(f"Azure refuses the login: {plain(str(error.message), 200)}") from error
        except errors.HttpResponseError as error:
            raise _translated(error, method) from error
        except errors.ServiceRequestError as error:
            raise NotSentError(f"Cannot connect to Azure: {plain(str(error), 200)}") from error
        except errors.AzureError as error:
            raise UnansweredError(f"Azure gave no answer: {plain(str(error), 200)}") from error


class _AbsentError(Exception):
    """There is no such machine."""


def _translated(error: Any, method: str) -> Exception:
    status = int(error.status_code or 0)
    text = f"Azure refused {method.removeprefix('begin_')}: {plain(str(error.message), 200)}"
    response = getattr(error, "response", None)
    after = str(response.headers.get("Retry-After", "")) if response is not None else ""
    wait_s = min(3600.0, float(after)) if after.isdecimal() else None
    if status in (409, 429, 503):
        # 409: another operation on the machine is under way.
        return TransientProviderError(text, wait_s)
    if status >= 500:
        return UnansweredError(text)
    return PermanentProviderError(f"{text}.")
