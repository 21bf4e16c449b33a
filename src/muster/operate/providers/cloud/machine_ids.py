"""How clouds name a machine in `spec.providerID`. Strict: what does not fit is refused, never guessed. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

from muster.operate.providers.provider import PermanentProviderError
from muster.plain_text import plain


@dataclass(frozen=True)
class AwsId:
    zone: str
    instance: str

    @property
    def region(self) -> str:
        """The zone without its letter. Local zones (`us-west-2-lax-1a`) belong to the region they begin with."""
        found = re.match(r"[a-z]{2}(?:-[a-z]+)+-\d", self.zone)
        return found.group(0) if found else ""


@dataclass(frozen=True)
class GcpId:
    project: str
    zone: str
    name: str


@dataclass(frozen=True)
class AzureId:
    subscription: str
    group: str
    scale_set: str
    """Empty for a machine of its own."""
    name: str
    """Name of the machine, or its number in the scale set."""


@dataclass(frozen=True)
class OciId:
    ocid: str
    region: str
    """As in the OCID: a name (`us-ashburn-1`) or a key of three letters (`iad`)."""


_AWS = re.compile(r"aws:///([a-z]{2}(?:-[a-z]+)+-\d[a-z0-9-]{1,20})/(i-[0-9a-f]{8,17})")
_GCP = re.compile(
    r"gce://((?:[a-z0-9.-]{1,60}:)?[a-z][a-z0-9-]{4,61}[a-z0-9])/([a-z]+-[a-z]+\d+-[a-z])/([a-z][a-z0-9-]{0,62})"
)
_AZURE = re.compile(
    r"azure:///subscriptions/([0-9a-f-]{36})/resourceGroups/([\w.()-]{1,90})/providers/Microsoft\.Compute"
    r"(?:/virtualMachineScaleSets/([\w.-]{1,64}))?/virtualMachines/([\w.-]{1,64})",
    re.IGNORECASE | re.ASCII,
)
_OCI = re.compile(r"(?:oci://)?(ocid1\.instance\.oc\d{1,3}\.([a-z0-9-]{3,30})\.[a-z0-9.]{20,120})")


def aws_id(provider_id: str) -> AwsId:
    """`aws:///<zone>/i-<hex>`. Raises PermanentProviderError."""
    zone, instance = _match(_AWS, provider_id, "aws:///<zone>/<instance>")
    return AwsId(zone, instance)


def gcp_id(provider_id: str) -> GcpId:
    """`gce://<project>/<zone>/<name>`. Raises PermanentProviderError."""
    project, zone, name = _match(_GCP, provider_id, "gce://<project>/<zone>/<name>")
    return GcpId(project, zone, name)


def azure_id(provider_id: str) -> AzureId:
    """`azure:///subscriptions/.../virtualMachines/<name>`, with or without a scale set. Raises as above."""
    wanted = "azure:///subscriptions/<id>/resourceGroups/<group>/providers/Microsoft.Compute/..."
    subscription, group, scale_set, name = _match(_AZURE, provider_id, wanted)
    return AzureId(subscription, group, scale_set, name)


def oci_id(provider_id: str) -> OciId:
    """`ocid1.instance...`, with or without `oci://`. Raises PermanentProviderError."""
    ocid, region = _match(_OCI, provider_id, "ocid1.instance.<realm>.<region>.<id>")
    return OciId(ocid, region)


def _match(pattern: re.Pattern[str], text: str, wanted: str) -> tuple[str, ...]:
    found = pattern.fullmatch(text)
    if found is None:
        shown = plain(text, 120) or "empty"
        raise PermanentProviderError(f"The node's spec.providerID is {shown}; this provider needs {wanted}.")
    return tuple(part or "" for part in found.groups())
