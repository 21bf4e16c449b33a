"""Which sources of notices a machine has: the cloud that its firmware names, and what the config adds."""

from __future__ import annotations

from pathlib import Path
from typing import assert_never

from muster.agent.maintenance import aws, azure, gcp, oci
from muster.agent.maintenance.config import Cloud, MaintenanceConfig
from muster.agent.maintenance.listed import FileSource, WebhookSource
from muster.agent.maintenance.monitor import NoticeMonitor
from muster.agent.monitor import Monitor

DMI = "sys/class/dmi/id"
AZURE_ASSET_TAG = "7783-7084-3265-9085-8269-3286-77"
"""Chassis asset tag of every Azure machine; `Microsoft Corporation` alone may be any Hyper-V host."""
ORACLE_ASSET_TAG = "OracleCloud.com"
GOOGLE_PRODUCTS = ("Google Compute Engine", "Google")
FILE_DEADLINE_S = 10.0


def sources(config: MaintenanceConfig, root: Path, node: str) -> tuple[Monitor, ...]:
    """The monitors, cloud first. Raises BadInputError for a URL that needs a name of the node that is not known."""
    made: list[Monitor] = []
    cloud = detect(root) if config.cloud is Cloud.AUTO else config.cloud
    endpoint, timeout_s = config.endpoint, config.timeout_s
    match cloud:
        case Cloud.AWS:
            made.append(_monitor(aws.AwsSource(endpoint, timeout_s), config, aws.REQUESTS))
        case Cloud.GCP:
            made.append(_monitor(gcp.GcpSource(endpoint, timeout_s), config, gcp.REQUESTS))
        case Cloud.AZURE:
            made.append(_monitor(azure.AzureSource(endpoint, timeout_s), config, azure.REQUESTS))
        case Cloud.OCI:
            made.append(_monitor(oci.OciSource(endpoint, timeout_s), config, oci.REQUESTS))
        case Cloud.NONE | Cloud.AUTO:
            pass
        case _:
            assert_never(cloud)
    if config.file:
        path = root / config.file.lstrip("/")
        made.append(NoticeMonitor(FileSource(path), config.interval_s, FILE_DEADLINE_S))
    if config.webhook is not None:
        hook = config.webhook
        made.append(NoticeMonitor(WebhookSource(hook, node), hook.interval_s, hook.timeout_s + FILE_DEADLINE_S))
    return tuple(made)


def _monitor(
    source: aws.AwsSource | gcp.GcpSource | azure.AzureSource | oci.OciSource,
    config: MaintenanceConfig,
    requests: int,
) -> NoticeMonitor:
    """The deadline lets every request have its time, so that the message names the one that was late."""
    return NoticeMonitor(source, config.interval_s, requests * config.timeout_s + 1.0)


def detect(root: Path) -> Cloud:
    """The cloud that the firmware names in `sys/class/dmi/id` below `root`; NONE when it names none that is known."""
    vendor, product, tag = (_dmi(root, name) for name in ("sys_vendor", "product_name", "chassis_asset_tag"))
    if vendor == "Amazon EC2" or _dmi(root, "bios_vendor") == "Amazon EC2":
        return Cloud.AWS
    if vendor == "Google" and product in GOOGLE_PRODUCTS:
        return Cloud.GCP
    if tag == AZURE_ASSET_TAG:
        return Cloud.AZURE
    if tag == ORACLE_ASSET_TAG:
        return Cloud.OCI
    return Cloud.NONE


def _dmi(root: Path, name: str) -> str:
    try:
        with (root / DMI / name).open("rb") as file:
            return file.read(256).decode("latin-1").strip()
    except OSError:
        return ""
