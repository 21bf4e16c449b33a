"""Oracle Cloud through its SDK: Compute, and Compute Management for instance pools. Orders bear a retry token."""

from __future__ import annotations

from typing import Any, assert_never

from muster.operate.providers.cloud.gateway import Machine, MachineState, Operation, OperationState, load
from muster.operate.providers.cloud.machine_ids import oci_id
from muster.operate.providers.config import CloudReplace, OciSettings
from muster.operate.providers.http import NotSentError, UnansweredError
from muster.operate.providers.provider import PermanentProviderError, TransientProviderError
from muster.plain_text import plain

_STATES = {
    "PROVISIONING": MachineState.STARTING,
    "STARTING": MachineState.STARTING,
    "RUNNING": MachineState.RUNNING,
    "STOPPING": MachineState.STOPPING,
    "STOPPED": MachineState.STOPPED,
    "TERMINATING": MachineState.GONE,
    "TERMINATED": MachineState.GONE,
}
POOLS_LIMIT = 200
"""Pools of a compartment that are looked through for the machine."""


class OciGateway:
    title = "Oracle Cloud"
    idempotent = True

    def __init__(self, settings: OciSettings, signer: Any = None) -> None:
        self._settings = settings
        self._signer = signer
        self._clients: dict[tuple[str, str], Any] = {}

    def target_of(self, provider_id: str) -> str:
        return oci_id(provider_id).ocid

    def machine(self, target: str) -> Machine:
        found = self._instance(target)
        if found is None:
            return Machine(state=MachineState.GONE)
        preemptible = getattr(found, "preemptible_instance_config", None) is not None
        return Machine(
            state=_STATES.get(str(found.lifecycle_state), MachineState.OTHER),
            cannot_stop="it is a preemptible instance, which may not come back" if preemptible else "",
        )

    def _instance(self, target: str) -> Any:
        try:
            return self._ask(target, "ComputeClient", "get_instance", target)
        except _AbsentError:
            return None

    def reboot(self, target: str, token: str) -> str:
        return self._act(target, "SOFTRESET" if self._settings.graceful else "RESET", token)

    def stop(self, target: str, token: str, erase: bool) -> str:  # noqa: ARG002 - local NVMe disks are kept
        return self._act(target, "STOP", token)

    def start(self, target: str, token: str) -> str:
        return self._act(target, "START", token)

    def replace(self, target: str, token: str, how: CloudReplace) -> str:
        match how:
            case CloudReplace.INSTANCE:
                self._order(target, "ComputeClient", "terminate_instance", target, preserve_boot_volume=False)
            case CloudReplace.GROUP:
                self._detach(target, token)
            case CloudReplace.MARK_UNHEALTHY | CloudReplace.NONE:
                raise PermanentProviderError("Oracle Cloud replaces by `replace: group` or `replace: instance`.")
            case _ as never:
                assert_never(never)
        return ""

    def operation(self, target: str, operation: str) -> Operation:  # noqa: ARG002 - the machine is looked at
        return Operation(OperationState.DONE)

    def _act(self, target: str, action: str, token: str) -> str:
        self._order(target, "ComputeClient", "instance_action", target, action, opc_retry_token=token)
        return ""

    def _detach(self, target: str, token: str) -> None:
        """Out of its pool, which ends it and makes another."""
        pool = self._pool_of(target)
        if not pool:
            raise PermanentProviderError(f"{target} belongs to no instance pool; use replace: instance.")
        details = load("oci.core.models").DetachInstancePoolInstanceDetails(
            instance_id=target, is_decrement_size=False, is_auto_terminate=True
        )
        self._order(
            target,
            "ComputeManagementClient",
            "detach_instance_pool_instance",
            pool,
            details,
            opc_retry_token=token,
        )

    def _pool_of(self, target: str) -> str:
        found = self._instance(target)
        if found is None:
            return ""
        home = found.compartment_id
        management = "ComputeManagementClient"
        for pool in self._ask(target, management, "list_instance_pools", home, limit=POOLS_LIMIT) or []:
            members = self._ask(target, management, "list_instance_pool_instances", home, pool.id, limit=1000)
            if any(member.id == target for member in members or []):
                return str(pool.id)
        return ""

    def _order(self, target: str, client: str, method: str, *arguments: Any, **more: Any) -> None:
        try:
            self._ask(target, client, method, *arguments, **more)
        except _AbsentError as error:
            raise PermanentProviderError(
                f"Oracle Cloud has no instance {target}, or this login may not see it."
            ) from error

    def _client(self, kind: str, target: str) -> Any:
        oci = load("oci")
        given = self._settings.region or oci_id(target).region
        region = given if "-" in given else oci.regions.get_region_from_short_name(given)
        key = (kind, region)
        if key not in self._clients:
            config: dict[str, Any] = {"region": region}
            options: dict[str, Any] = {}
            if self._settings.config_file:
                config = {
                    **oci.config.from_file(self._settings.config_file, self._settings.profile),
                    "region": region,
                }
            else:
                signer = self._signer or oci.auth.signers.InstancePrincipalsSecurityTokenSigner()
                options["signer"] = signer
            if self._settings.endpoint:
                options["service_endpoint"] = self._settings.endpoint
            self._clients[key] = getattr(oci.core, kind)(
                config,
                retry_strategy=oci.retry.NoneRetryStrategy(),
                circuit_breaker_strategy=oci.circuit_breaker.NoCircuitBreakerStrategy(),
                timeout=(min(10.0, self._settings.request_limit_s), self._settings.request_limit_s),
                **options,
            )
        return self._clients[key]

    def _ask(self, target: str, client: str, method: str, *arguments: Any, **more: Any) -> Any:
        errors = load("oci.exceptions")
        try:
            return getattr(self._client(client, target), method)(*arguments, **more).data
        except errors.ServiceError as error:
            if error.status == 404:
                raise _AbsentError from error
            raise _translated(error, method) from error
        except (errors.ConfigFileNotFound, errors.InvalidConfig, errors.ProfileNotFound) as error:
            raise PermanentProviderError(
                f"The login at Oracle Cloud is not set up: {plain(str(error), 200)}."
            ) from error
        except errors.BaseConnectTimeout as error:
            raise NotSentError(f"Cannot connect to Oracle Cloud: {plain(str(error), 200)}") from error
        except (errors.BaseRequestException, errors.ClientError, OSError) as error:
            text = f"Oracle Cloud gave no answer: {plain(str(error), 200)}"
            raise (NotSentError(text) if "NewConnectionError" in str(error) else UnansweredError(text)) from error


class _AbsentError(Exception):
    """There is no such thing, or it is hidden from this login."""


def _translated(error: Any, method: str) -> Exception:
    status = int(error.status or 0)
    text = f"Oracle Cloud refused {method}: {plain(str(error.code), 60)} ({plain(str(error.message), 200)})"
    if status in (409, 429, 503):
        # 409: another work request on the instance is under way.
        return TransientProviderError(text)
    if status >= 500 or status < 0:
        return UnansweredError(text)
    return PermanentProviderError(f"{text}.")
