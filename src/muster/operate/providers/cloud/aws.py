"""AWS through boto3: EC2, and Auto Scaling where a group is to replace the machine.

EC2 knows no token for reboot, stop and terminate; stop, start and terminate may be repeated without harm, reboot may
not. Retries of the SDK are off: whether an order is repeated is decided by the provider.
"""

from __future__ import annotations

from typing import Any, assert_never

from muster.operate.providers.cloud.gateway import Machine, MachineState, Operation, OperationState, load
from muster.operate.providers.cloud.machine_ids import AwsId, aws_id
from muster.operate.providers.config import AwsSettings, CloudReplace
from muster.operate.providers.http import NotSentError, UnansweredError
from muster.operate.providers.provider import PermanentProviderError, TransientProviderError
from muster.plain_text import plain

_STATES = {
    "pending": MachineState.STARTING,
    "running": MachineState.RUNNING,
    "stopping": MachineState.STOPPING,
    "stopped": MachineState.STOPPED,
    "shutting-down": MachineState.GONE,
    "terminated": MachineState.GONE,
}
_THROTTLED = frozenset(
    {
        "Throttling",
        "ThrottlingException",
        "RequestLimitExceeded",
        "RequestThrottled",
        "TooManyRequestsException",
        "EC2ThrottledException",
        "InsufficientInstanceCapacity",
        "IncorrectInstanceState",
        "IncorrectState",
        "ScalingActivityInProgress",
        "ResourceContention",
        "ExpiredToken",
        "ExpiredTokenException",
        "RequestExpired",
    }
)
"""Error codes that pass: nothing was done."""
_ABSENT = frozenset({"InvalidInstanceID.NotFound", "InvalidInstanceID.Malformed"})
_GROUP_TAG = "aws:autoscaling:groupName"


class AwsGateway:
    title = "AWS"
    idempotent = False

    def __init__(self, settings: AwsSettings) -> None:
        self._settings = settings
        self._clients: dict[tuple[str, str], Any] = {}
        self._local_disks: dict[str, bool] = {}

    def target_of(self, provider_id: str) -> str:
        aws_id(provider_id)
        return provider_id

    def machine(self, target: str) -> Machine:
        found = aws_id(target)
        try:
            answer = self._ask(found, "ec2", "describe_instances", InstanceIds=[found.instance])
        except _AbsentError:
            return Machine(state=MachineState.GONE)
        instances = [one for r in answer.get("Reservations", []) for one in r.get("Instances", [])]
        if not instances:
            return Machine(state=MachineState.GONE)
        one = instances[0]
        state = _STATES.get((one.get("State") or {}).get("Name", ""), MachineState.OTHER)
        return Machine(
            state=state,
            started_at=one.get("LaunchTime"),
            cannot_stop=_cannot_stop(one),
            stop_erases=self._erases(found, str(one.get("InstanceType", ""))),
        )

    def _erases(self, found: AwsId, kind: str) -> str:
        """Whether the type has disks of the host; asked once for each type."""
        if kind not in self._local_disks:
            answer = self._ask(found, "ec2", "describe_instance_types", InstanceTypes=[kind])
            types = answer.get("InstanceTypes") or [{}]
            self._local_disks[kind] = bool(types[0].get("InstanceStorageSupported"))
        return f"the local disks of the {kind}" if self._local_disks[kind] else ""

    def reboot(self, target: str, token: str) -> str:  # noqa: ARG002 - EC2 takes no token here
        found = aws_id(target)
        self._order(found, "ec2", "reboot_instances", InstanceIds=[found.instance])
        return ""

    def stop(self, target: str, token: str, erase: bool) -> str:  # noqa: ARG002 - nor here; it asks nothing more
        found = aws_id(target)
        self._order(found, "ec2", "stop_instances", InstanceIds=[found.instance])
        return ""

    def start(self, target: str, token: str) -> str:  # noqa: ARG002 - nor here
        found = aws_id(target)
        self._order(found, "ec2", "start_instances", InstanceIds=[found.instance])
        return ""

    def replace(self, target: str, token: str, how: CloudReplace) -> str:  # noqa: ARG002 - nor here
        found = aws_id(target)
        match how:
            case CloudReplace.INSTANCE:
                self._order(found, "ec2", "terminate_instances", InstanceIds=[found.instance])
            case CloudReplace.GROUP:
                self._order(
                    found,
                    "autoscaling",
                    "terminate_instance_in_auto_scaling_group",
                    InstanceId=found.instance,
                    ShouldDecrementDesiredCapacity=False,
                )
            case CloudReplace.MARK_UNHEALTHY:
                self._order(
                    found,
                    "autoscaling",
                    "set_instance_health",
                    InstanceId=found.instance,
                    HealthStatus="Unhealthy",
                    ShouldRespectGracePeriod=False,
                )
            case CloudReplace.NONE:
                raise PermanentProviderError("replace is off for this provider; set `replace`.")
            case _ as never:
                assert_never(never)
        return ""

    def operation(self, target: str, operation: str) -> Operation:  # noqa: ARG002 - EC2 has none
        return Operation(OperationState.DONE)

    def _client(self, service: str, region: str) -> Any:
        key = (service, region)
        if key not in self._clients:
            limit_s = self._settings.request_limit_s
            config = load("botocore.config").Config(
                retries={"total_max_attempts": 1}, connect_timeout=min(10.0, limit_s), read_timeout=limit_s
            )
            session = load("boto3").session.Session()
            self._clients[key] = session.client(
                service, region_name=region, endpoint_url=self._settings.endpoint or None, config=config
            )
        return self._clients[key]

    def _order(self, found: AwsId, service: str, action: str, **parameters: Any) -> None:
        try:
            self._ask(found, service, action, **parameters)
        except _AbsentError as error:
            raise PermanentProviderError(f"AWS has no instance {found.instance}.") from error

    def _ask(self, found: AwsId, service: str, action: str, **parameters: Any) -> Any:
        errors = load("botocore.exceptions")
        region = self._settings.region or found.region
        try:
            return getattr(self._client(service, region), action)(**parameters)
        except errors.ClientError as error:
            raise _translated(error, action) from error
        except (errors.NoCredentialsError, errors.CredentialRetrievalError, errors.PartialCredentialsError) as error:
            text = f"There are no credentials for AWS: {plain(str(error), 200)}"
            raise NotSentError(text) from error
        except (errors.EndpointConnectionError, errors.ConnectTimeoutError) as error:
            raise NotSentError(f"Cannot connect to AWS: {plain(str(error), 200)}") from error
        except (errors.HTTPClientError, errors.BotoCoreError) as error:
            raise UnansweredError(f"AWS gave no answer: {plain(str(error), 200)}") from error


class _AbsentError(Exception):
    """There is no such instance."""


def _translated(error: Any, action: str) -> Exception:
    """The error that fits the code and the status of the answer."""
    response = error.response
    code = str((response.get("Error") or {}).get("Code", ""))
    words = plain(str((response.get("Error") or {}).get("Message", "")), 200)
    status = (response.get("ResponseMetadata") or {}).get("HTTPStatusCode", 0)
    text = f"AWS refused {action}: {code} ({words})" if words else f"AWS refused {action}: {code}"
    if code in _ABSENT:
        return _AbsentError()
    if code in _THROTTLED or status in (429, 503):
        return TransientProviderError(text)
    if status >= 500:
        return UnansweredError(text)
    return PermanentProviderError(f"{text}.")


def _cannot_stop(instance: dict[str, Any]) -> str:
    tags = {tag.get("Key"): tag.get("Value") for tag in instance.get("Tags") or []}
    if instance.get("InstanceLifecycle"):
        return f"it is a {plain(str(instance['InstanceLifecycle']), 40)} instance, which may not come back"
    if instance.get("RootDeviceType") == "instance-store":
        return "its root disk is local and would be lost"
    if _GROUP_TAG in tags:
        group = plain(str(tags[_GROUP_TAG]), 80)
        return f"it belongs to the Auto Scaling group {group}, which ends instances that stop; use replace"
    return ""
