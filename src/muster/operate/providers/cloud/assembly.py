"""From the settings of a cloud to its provider. A missing SDK is told at the start, not at the first repair."""

from __future__ import annotations

from typing import assert_never

from muster.clock import Clock
from muster.operate.providers.cloud.gateway import Gateway, require
from muster.operate.providers.cloud.provider import CloudProvider
from muster.operate.providers.config import AwsSettings, AzureSettings, GcpSettings, OciSettings

AnyCloud = AwsSettings | GcpSettings | AzureSettings | OciSettings


def cloud_provider(settings: AnyCloud, clock: Clock) -> CloudProvider:
    """Raises BadInputError, with the command that installs it, when the SDK is missing."""
    return CloudProvider(settings, _gateway(settings), clock)


def _gateway(settings: AnyCloud) -> Gateway:
    match settings:
        case AwsSettings():
            from muster.operate.providers.cloud.aws import AwsGateway

            require(("boto3",), "aws", settings.name)
            return AwsGateway(settings)
        case GcpSettings():
            from muster.operate.providers.cloud.gcp import GcpGateway

            require(("google.cloud.compute_v1",), "gcp", settings.name)
            return GcpGateway(settings)
        case AzureSettings():
            from muster.operate.providers.cloud.azure import AzureGateway

            require(("azure.identity", "azure.mgmt.compute"), "azure", settings.name)
            return AzureGateway(settings)
        case OciSettings():
            from muster.operate.providers.cloud.oci import OciGateway

            require(("oci",), "oracle", settings.name)
            return OciGateway(settings)
        case _ as never:
            assert_never(never)
