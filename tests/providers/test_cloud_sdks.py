"""The gateways through the real SDKs, against local stand-ins for the endpoints. They fail without the SDKs."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from muster.operate.providers.cloud.aws import AwsGateway
from muster.operate.providers.cloud.azure import AzureGateway
from muster.operate.providers.cloud.gateway import Gateway, MachineState, OperationState
from muster.operate.providers.cloud.gcp import GcpGateway
from muster.operate.providers.cloud.oci import OciGateway
from muster.operate.providers.config import AwsSettings, AzureSettings, CloudReplace, GcpSettings, OciSettings
from muster.operate.providers.http import NotSentError, UnansweredError
from muster.operate.providers.provider import PermanentProviderError, TransientProviderError
from tests.providers.cloud_api import Asked, CloudApi, Told, cloud_api
from tests.providers.test_cloud_provider import AZURE, OCID

pytestmark = pytest.mark.full

TOKEN = "0b1f6471-1bf0-4dda-aec3-cb9272f09590"
NOWHERE = "http://127.0.0.1:1"


class Side:
    """What a test tells the stand-in to do."""

    def __init__(self) -> None:
        self.state = ""
        self.fail: Told | None = None
        self.extra: dict[str, Any] = {}


@pytest.fixture
def side() -> Side:
    return Side()


# AWS

I = "i-0123456789abcdef0"  # noqa: E741 - as in i-...
AWS = f"aws:///us-east-1a/{I}"
_XMLNS = 'xmlns="http://ec2.amazonaws.com/doc/2016-11-15/"'


def _instance_xml(side: Side) -> str:
    tags = "".join(f"<item><key>{k}</key><value>{v}</value></item>" for k, v in side.extra.get("tags", {}).items())
    spot = "<instanceLifecycle>spot</instanceLifecycle>" if side.extra.get("spot") else ""
    return (
        f"<DescribeInstancesResponse {_XMLNS}><reservationSet><item><instancesSet><item><instanceId>{I}</instanceId>"
        f"<instanceState><code>16</code><name>{side.state or 'running'}</name></instanceState>{spot}"
        "<instanceType>p5.48xlarge</instanceType><launchTime>2026-01-05T08:00:00.000Z</launchTime>"
        f"<rootDeviceType>ebs</rootDeviceType><tagSet>{tags}</tagSet></item></instancesSet></item></reservationSet>"
        "</DescribeInstancesResponse>"
    )


def aws_error(code: str, status: int) -> Told:
    text = f"<Response><Errors><Error><Code>{code}</Code><Message>words</Message></Error></Errors></Response>"
    return Told(status, text)


@pytest.fixture
def aws(side: Side, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[AwsGateway, CloudApi]]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIATEST")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")

    def answer(asked: Asked) -> Told:
        if side.fail is not None:
            return side.fail
        action = asked.form.get("Action", "")
        if action == "DescribeInstances":
            return Told(body=_instance_xml(side))
        if action == "DescribeInstanceTypes":
            kind = "<item><instanceStorageSupported>true</instanceStorageSupported></item>"
            body = f"<instanceTypeSet>{kind}</instanceTypeSet>"
            return Told(body=f"<DescribeInstanceTypesResponse {_XMLNS}>{body}</DescribeInstanceTypesResponse>")
        result = f"<return>true</return><{action}Result></{action}Result>"
        return Told(body=f"<{action}Response {_XMLNS}>{result}</{action}Response>")

    with cloud_api(answer) as api:
        yield AwsGateway(AwsSettings(name="p", endpoint=api.url)), api


def test_aws_reads_a_machine(aws: tuple[AwsGateway, CloudApi], side: Side) -> None:
    gateway, _ = aws
    found = gateway.machine(AWS)
    assert found.state is MachineState.RUNNING
    assert found.started_at == datetime(2026, 1, 5, 8, tzinfo=UTC)
    assert found.stop_erases == "the local disks of the p5.48xlarge"
    assert found.cannot_stop == ""
    side.extra["tags"] = {"aws:autoscaling:groupName": "gpu-asg"}
    assert "gpu-asg" in gateway.machine(AWS).cannot_stop
    side.extra["spot"] = True
    assert "spot" in gateway.machine(AWS).cannot_stop
    side.state = "shutting-down"
    assert gateway.machine(AWS).state is MachineState.GONE
    side.fail = aws_error("InvalidInstanceID.NotFound", 400)
    assert gateway.machine(AWS).state is MachineState.GONE


def test_aws_orders(aws: tuple[AwsGateway, CloudApi]) -> None:
    gateway, api = aws
    gateway.reboot(AWS, TOKEN)
    gateway.stop(AWS, TOKEN, erase=False)
    gateway.start(AWS, TOKEN)
    for how in (CloudReplace.INSTANCE, CloudReplace.GROUP, CloudReplace.MARK_UNHEALTHY):
        gateway.replace(AWS, TOKEN, how)
    forms = [asked.form for asked in api.asked]
    assert [form["Action"] for form in forms] == [
        "RebootInstances",
        "StopInstances",
        "StartInstances",
        "TerminateInstances",
        "TerminateInstanceInAutoScalingGroup",
        "SetInstanceHealth",
    ]
    assert {form.get("InstanceId.1", form.get("InstanceId")) for form in forms} == {I}
    assert forms[4]["ShouldDecrementDesiredCapacity"] == "false"
    assert "/us-east-1/ec2/" in api.asked[0].headers["authorization"]


@pytest.mark.parametrize(
    ("told", "kind"),
    [
        (aws_error("RequestLimitExceeded", 503), TransientProviderError),
        (aws_error("InternalError", 500), UnansweredError),
        (aws_error("UnauthorizedOperation", 403), PermanentProviderError),
        (Told(cut=True), UnansweredError),
    ],
)
def test_aws_errors(aws: tuple[AwsGateway, CloudApi], side: Side, told: Told, kind: type[Exception]) -> None:
    gateway, api = aws
    side.fail = told
    with pytest.raises(kind) as caught:
        gateway.reboot(AWS, TOKEN)
    assert type(caught.value) is kind
    assert len(api.asked) == 1, "the SDK repeats nothing by itself"


# Google Cloud

GCP = "gce://my-project/us-central1-a/gpu-1"


@pytest.fixture
def gcp(side: Side) -> Iterator[tuple[GcpGateway, CloudApi]]:
    from google.auth.credentials import AnonymousCredentials

    def answer(asked: Asked) -> Told:
        if side.fail is not None:
            return side.fail
        if "/operations/" in asked.path:
            return Told(body={"name": "op-1", **side.extra.get("operation", {"status": "RUNNING"})})
        if asked.method == "GET":
            body = {
                "name": "gpu-1",
                "status": side.state or "RUNNING",
                "lastStartTimestamp": "2026-01-05T00:00:00.000-08:00",
                "disks": [{"type": "PERSISTENT", "boot": True}, {"type": "SCRATCH"}],
                "metadata": {"items": side.extra.get("metadata", [])},
            }
            return Told(body=body)
        return Told(body={"name": "op-1", "status": "RUNNING"})

    with cloud_api(answer) as api:
        yield GcpGateway(GcpSettings(name="p", endpoint=api.url), AnonymousCredentials()), api


def test_gcp_reads_a_machine(gcp: tuple[GcpGateway, CloudApi], side: Side) -> None:
    gateway, _ = gcp
    found = gateway.machine(GCP)
    assert found.state is MachineState.RUNNING
    assert found.started_at == datetime(2026, 1, 5, 8, tzinfo=UTC)
    assert found.stop_erases == "the local SSDs of gpu-1"
    side.state = "TERMINATED"
    assert gateway.machine(GCP).state is MachineState.STOPPED
    side.fail = Told(404, {"error": {"code": 404, "message": "was not found"}})
    assert gateway.machine(GCP).state is MachineState.GONE


def test_gcp_orders_bear_the_token(gcp: tuple[GcpGateway, CloudApi], side: Side) -> None:
    gateway, api = gcp
    assert gateway.reboot(GCP, TOKEN) == "op-1"
    gateway.stop(GCP, TOKEN, erase=True)
    gateway.start(GCP, TOKEN)
    gateway.replace(GCP, TOKEN, CloudReplace.INSTANCE)
    instance = "/compute/v1/projects/my-project/zones/us-central1-a/instances/gpu-1"
    assert [(a.method, a.path.removeprefix(instance)) for a in api.asked] == [
        ("POST", "/reset"),
        ("POST", "/stop"),
        ("POST", "/start"),
        ("DELETE", ""),
    ]
    assert {a.query["requestId"] for a in api.asked} == {TOKEN}
    assert api.asked[1].query["discardLocalSsd"].lower() == "true"


@pytest.mark.parametrize("place", ["zones/us-central1-a", "regions/us-central1"])
def test_gcp_recreates_in_the_group(gcp: tuple[GcpGateway, CloudApi], side: Side, place: str) -> None:
    gateway, api = gcp
    with pytest.raises(PermanentProviderError, match="no managed instance group"):
        gateway.replace(GCP, TOKEN, CloudReplace.GROUP)
    side.extra["metadata"] = [{"key": "created-by", "value": f"projects/77/{place}/instanceGroupManagers/gpus"}]
    operation = gateway.replace(GCP, TOKEN, CloudReplace.GROUP)
    asked = api.asked[-1]
    assert asked.path.endswith(f"/{place}/instanceGroupManagers/gpus/recreateInstances")
    assert asked.json()["instances"][0].endswith("/instances/gpu-1")
    assert gateway.operation(GCP, operation).state is OperationState.RUNNING
    assert f"/{place}/operations/op-1" in api.asked[-1].path
    assert "replace" in gateway.machine(GCP).cannot_stop


def test_gcp_operations(gcp: tuple[GcpGateway, CloudApi], side: Side) -> None:
    gateway, _ = gcp
    side.extra["operation"] = {"status": "DONE"}
    assert gateway.operation(GCP, "op-1").state is OperationState.DONE
    side.extra["operation"] = {
        "status": "DONE",
        "httpErrorStatusCode": 503,
        "error": {"errors": [{"code": "ZONE_RESOURCE_POOL_EXHAUSTED", "message": "no capacity"}]},
    }
    failed = gateway.operation(GCP, "op-1")
    assert (failed.state, failed.message) == (OperationState.FAILED, "ZONE_RESOURCE_POOL_EXHAUSTED: no capacity")


def gcp_error(code: int, reason: str = "") -> Told:
    return Told(code, {"error": {"code": code, "message": reason, "errors": [{"reason": reason, "message": reason}]}})


@pytest.mark.parametrize(
    ("told", "kind"),
    [
        (gcp_error(503), TransientProviderError),
        (gcp_error(403, "rateLimitExceeded"), TransientProviderError),
        (gcp_error(500), UnansweredError),
        (gcp_error(403, "forbidden"), PermanentProviderError),
        (Told(cut=True), UnansweredError),
    ],
)
def test_gcp_errors(gcp: tuple[GcpGateway, CloudApi], side: Side, told: Told, kind: type[Exception]) -> None:
    gateway, api = gcp
    side.fail = told
    with pytest.raises(kind) as caught:
        gateway.reboot(GCP, TOKEN)
    assert type(caught.value) is kind
    assert len(api.asked) == 1


# Azure

VM, VMSS = f"{AZURE}/virtualMachines/vm-1", f"{AZURE}/virtualMachineScaleSets/gpus/virtualMachines/4"


class _Login:
    def get_token(self, *scopes: str, **more: Any) -> Any:
        from azure.core.credentials import AccessToken

        return AccessToken("token", 2**33)


@pytest.fixture
def azure(side: Side) -> Iterator[tuple[AzureGateway, CloudApi]]:
    from azure.core.pipeline.policies import SansIOHTTPPolicy

    def answer(asked: Asked) -> Told:
        if side.fail is not None:
            return side.fail
        if asked.path.endswith("/instanceView"):
            codes = ["ProvisioningState/succeeded", f"PowerState/{side.state or 'running'}"]
            return Told(body={"statuses": [{"code": code} for code in codes]})
        return Told(202, "", {"Location": f"{api.url}/operations/1"})

    with cloud_api(answer) as api:
        # The SDK sends tokens over TLS alone; the stand-in has none, so its login policy is taken out.
        gateway = AzureGateway(
            AzureSettings(name="p", endpoint=api.url), _Login(), authentication_policy=SansIOHTTPPolicy()
        )
        yield gateway, api


def test_azure_reads_and_orders(azure: tuple[AzureGateway, CloudApi], side: Side) -> None:
    gateway, api = azure
    assert gateway.machine(VM).state is MachineState.RUNNING
    side.state = "deallocated"
    assert gateway.machine(VMSS).state is MachineState.STOPPED
    api.asked.clear()
    for target in (VM, VMSS):
        gateway.reboot(target, TOKEN)
        gateway.stop(target, TOKEN, erase=False)
        gateway.start(target, TOKEN)
        gateway.replace(target, TOKEN, CloudReplace.INSTANCE)
    gateway.replace(VMSS, TOKEN, CloudReplace.GROUP)
    vm = VM.removeprefix("azure://")
    vmss = VMSS.removeprefix("azure://").replace("virtualMachines/4", "virtualmachines/4")
    steps = [("POST", "restart"), ("POST", "powerOff"), ("POST", "start"), ("DELETE", "")]
    wanted = [(m, f"{at}/{step}".rstrip("/").lower()) for at in (vm, vmss) for m, step in steps]
    assert [(a.method, a.path.lower()) for a in api.asked] == [*wanted, ("POST", f"{vmss}/reimage".lower())]
    assert api.asked[1].query["skipShutdown"] == "true"
    with pytest.raises(PermanentProviderError, match="scale set"):
        gateway.replace(VM, TOKEN, CloudReplace.GROUP)
    side.fail = Told(404, {"error": {"code": "ResourceNotFound", "message": "gone"}})
    assert gateway.machine(VM).state is MachineState.GONE


@pytest.mark.parametrize(
    ("told", "kind"),
    [
        (Told(429, {"error": {"code": "TooManyRequests"}}, {"Retry-After": "7"}), TransientProviderError),
        (Told(409, {"error": {"code": "OperationNotAllowed"}}), TransientProviderError),
        (Told(500, {"error": {"code": "InternalError"}}), UnansweredError),
        (Told(403, {"error": {"code": "AuthorizationFailed"}}), PermanentProviderError),
        (Told(cut=True), UnansweredError),
    ],
)
def test_azure_errors(azure: tuple[AzureGateway, CloudApi], side: Side, told: Told, kind: type[Exception]) -> None:
    gateway, api = azure
    side.fail = told
    with pytest.raises(kind) as caught:
        gateway.reboot(VM, TOKEN)
    assert type(caught.value) is kind
    assert len(api.asked) == 1
    if told.status == 429:
        assert isinstance(caught.value, TransientProviderError)
        assert caught.value.retry_after_s == 7


# Oracle Cloud


@pytest.fixture
def oci(side: Side, tmp_path: Path) -> Iterator[tuple[OciGateway, CloudApi]]:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import rsa

    key = rsa.generate_private_key(65537, 2048).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )
    (tmp_path / "key.pem").write_bytes(key)
    (tmp_path / "key.pem").chmod(0o600)
    lines = [
        "[DEFAULT]",
        "tenancy=ocid1.tenancy.oc1..aaaaaaaatest",
        "user=ocid1.user.oc1..aaaaaaaatest",
        "fingerprint=" + ":".join(["ab"] * 16),
        f"key_file={tmp_path / 'key.pem'}",
        "region=us-ashburn-1",
    ]
    (tmp_path / "config").write_text("\n".join(lines))
    (tmp_path / "config").chmod(0o600)

    def answer(asked: Asked) -> Told:
        if side.fail is not None:
            return side.fail
        if asked.path.endswith("/instancePools/pool-1/instances"):
            return Told(body=[{"id": OCID, "instancePoolId": "pool-1"}])
        if asked.path.endswith("/instancePools"):
            return Told(body=[{"id": "pool-1"}])
        if asked.method == "DELETE":
            return Told(204)
        return Told(body={"id": OCID, "lifecycleState": side.state or "RUNNING", "compartmentId": "comp"})

    with cloud_api(answer) as api:
        yield OciGateway(OciSettings(name="p", endpoint=api.url, config_file=str(tmp_path / "config"))), api


def test_oci_reads_and_orders(oci: tuple[OciGateway, CloudApi], side: Side) -> None:
    gateway, api = oci
    target = gateway.target_of(f"oci://{OCID}")
    assert gateway.machine(target).state is MachineState.RUNNING
    side.state = "TERMINATING"
    assert gateway.machine(target).state is MachineState.GONE
    api.asked.clear()
    gateway.reboot(target, TOKEN)
    gateway.stop(target, TOKEN, erase=False)
    gateway.start(target, TOKEN)
    assert [a.query["action"] for a in api.asked] == ["SOFTRESET", "STOP", "START"]
    assert {a.headers["opc-retry-token"] for a in api.asked} == {TOKEN}
    gateway.replace(target, TOKEN, CloudReplace.INSTANCE)
    assert (api.asked[-1].method, api.asked[-1].query["preserveBootVolume"]) == ("DELETE", "false")
    gateway.replace(target, TOKEN, CloudReplace.GROUP)
    assert api.asked[-1].path.endswith("/instancePools/pool-1/actions/detachInstance")
    assert api.asked[-1].json() == {"instanceId": OCID, "isDecrementSize": False, "isAutoTerminate": True}
    side.fail = Told(404, {"code": "NotAuthorizedOrNotFound", "message": "either"})
    assert gateway.machine(target).state is MachineState.GONE


@pytest.mark.parametrize(
    ("told", "kind"),
    [
        (Told(429, {"code": "TooManyRequests", "message": "slow down"}), TransientProviderError),
        (Told(409, {"code": "IncorrectState", "message": "busy"}), TransientProviderError),
        (Told(500, {"code": "InternalServerError", "message": "oops"}), UnansweredError),
        (Told(401, {"code": "NotAuthenticated", "message": "who"}), PermanentProviderError),
        (Told(cut=True), UnansweredError),
    ],
)
def test_oci_errors(oci: tuple[OciGateway, CloudApi], side: Side, told: Told, kind: type[Exception]) -> None:
    gateway, api = oci
    side.fail = told
    with pytest.raises(kind) as caught:
        gateway.reboot(OCID, TOKEN)
    assert type(caught.value) is kind
    assert len(api.asked) == 1


# All of them


def test_an_endpoint_that_is_away_was_sent_nothing(
    side: Side, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, oci: tuple[OciGateway, CloudApi]
) -> None:
    from azure.core.pipeline.policies import SansIOHTTPPolicy
    from google.auth.credentials import AnonymousCredentials

    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIATEST")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    gateways: list[tuple[Gateway, str]] = [
        (AwsGateway(AwsSettings(name="p", endpoint=NOWHERE)), AWS),
        (GcpGateway(GcpSettings(name="p", endpoint=NOWHERE), AnonymousCredentials()), GCP),
        (
            AzureGateway(
                AzureSettings(name="p", endpoint=NOWHERE), _Login(), authentication_policy=SansIOHTTPPolicy()
            ),
            VM,
        ),
        (OciGateway(OciSettings(name="p", endpoint=NOWHERE, config_file=str(tmp_path / "config"))), OCID),
    ]
    for gateway, target in gateways:
        with pytest.raises(NotSentError):
            gateway.reboot(target, TOKEN)
