"""Where the agent hears of maintenance that the owner of the machine plans. Section `maintenance` of its config."""

from __future__ import annotations

from enum import StrEnum
from ipaddress import ip_address
from urllib.parse import urlsplit

from muster.resources.base import Model

METADATA_HOSTS = ("metadata.google.internal", "localhost")
"""Names that may stand for a metadata service; anything else must be a link-local or loopback address."""
_UNIQUE_LOCAL = ("fd00:ec2::254", "fd20:ce::254")
"""The IPv6 addresses of the metadata services of AWS and Google, which are unique local addresses."""


class Cloud(StrEnum):
    AUTO = "auto"
    """By the vendor that the firmware (DMI) names; none where that is unknown."""
    NONE = "none"
    AWS = "aws"
    GCP = "gcp"
    AZURE = "azure"
    OCI = "oci"


class WebhookConfig(Model, frozen=True, kw_only=True):
    """A URL of the site that answers with a list of notices (see docs/how-to/cloud-maintenance.md)."""

    url: str
    """`http` or `https`; `{node}` stands for the name of the node."""
    token_file: str = ""
    """File with a bearer token; read anew at each look, never logged."""
    ca_file: str = ""
    """PEM file of the authority that signed the server; empty: those of the system."""
    interval_s: float = 60.0
    timeout_s: float = 10.0

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("url must begin with http:// or https:// and name a host")
        if parts.username or parts.password:
            raise ValueError("url must not hold a password; put a token into tokenFile")
        _positive(self.interval_s, self.timeout_s)


class MaintenanceConfig(Model, frozen=True, kw_only=True):
    """Defaults fit a machine of AWS, Google, Azure or Oracle, and any other: there nothing is asked."""

    enabled: bool = True
    cloud: Cloud = Cloud.AUTO
    endpoint: str = ""
    """`http://` address of the metadata service, link-local or loopback; empty: the cloud's own."""
    interval_s: float = 60.0
    """Azure asks for no more than one question a second; Google warns 60 s before a live migration."""
    timeout_s: float = 5.0
    """For one answer. The first question to Azure switches its service on and fails for up to two minutes."""
    file: str = ""
    """A YAML or JSON file on the node, with the notices of the site."""
    webhook: WebhookConfig | None = None

    def __post_init__(self) -> None:
        _positive(self.interval_s, self.timeout_s)
        if self.endpoint and not _is_local(self.endpoint):
            raise ValueError("endpoint must be http:// with a link-local or loopback address, without a path")


def _positive(interval_s: float, timeout_s: float) -> None:
    if not (1 <= interval_s < 1e6 and 0 < timeout_s < 600):
        raise ValueError("intervalS must be at least 1, and timeoutS above 0 and below 600")


def _is_local(url: str) -> bool:
    parts = urlsplit(url)
    host = parts.hostname or ""
    if parts.scheme != "http" or parts.path not in ("", "/") or parts.query or parts.username:
        return False
    if host in METADATA_HOSTS or host in _UNIQUE_LOCAL:
        return True
    try:
        address = ip_address(host)
    except ValueError:
        return False
    return address.is_link_local or address.is_loopback
