"""What the repair providers are told: the file of `--providers`. Pure; secrets are named here and read elsewhere.

providers:
  - name: gpu-jobs
    kind: job
  - name: bmc
    kind: redfish
    address: "https://{label:example.com/bmc}"
    usernameFile: /etc/muster/bmc/username
    passwordFile: /etc/muster/bmc/password
"""

from __future__ import annotations

import difflib
import re
from enum import StrEnum
from pathlib import Path
from typing import Any, get_args

import msgspec

from muster import yamlio
from muster.errors import BadInputError
from muster.resources.base import SYSTEM_NAMESPACE, Model
from muster.resources.repair import Rung

Strings = dict[str, str]


class Settings(Model, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind"):
    """What every provider has."""

    name: str
    """What `provider` in a FaultPolicy, and so `spec.provider` of a Repair, says."""
    rungs: tuple[Rung, ...] = ()
    """Only these of the rungs that the kind can do; empty means all."""


class DriverRestart(StrEnum):
    OPERATOR_POD = "operator-pod"
    """The GPU operator runs the driver in a pod: the pod is deleted and comes back."""
    HOST_SERVICES = "host-services"
    """The driver is installed on the host: GPU services stop, the modules are loaded anew, the services start."""


class JobSettings(Settings, frozen=True, kw_only=True, tag="job"):
    """In-cluster Jobs: reset-gpu, restart-driver, reboot. Needs a namespace that allows privileged pods."""

    namespace: str = SYSTEM_NAMESPACE
    image: str = "busybox:1.37"
    """Any image with /bin/sh, chroot, nsenter and timeout; the work is done with the programs of the host."""
    image_pull_secrets: tuple[str, ...] = ()
    driver_root: str = "/run/nvidia/driver"
    """Where nvidia-smi and its libraries are on the host: the GPU operator's driver container, `/` for host drivers.

    Where nothing is there, `/` is tried.
    """
    deploy_labels: tuple[str, ...] = (
        "nvidia.com/gpu.deploy.device-plugin",
        "nvidia.com/gpu.deploy.dcgm",
        "nvidia.com/gpu.deploy.dcgm-exporter",
        "nvidia.com/gpu.deploy.gpu-feature-discovery",
    )
    """Node labels by which the GPU operator takes its GPU clients off a node when they say `false`."""
    client_namespaces: tuple[str, ...] = ("gpu-operator",)
    """Where those clients run; their pods on the node must be gone before a reset."""
    client_apps: tuple[str, ...] = (
        "nvidia-device-plugin-daemonset",
        "nvidia-dcgm",
        "nvidia-dcgm-exporter",
        "gpu-feature-discovery",
    )
    """Values of the label `app` of those pods."""
    stop_services: tuple[str, ...] = ("nvidia-persistenced", "nvidia-dcgm", "nvidia-fabricmanager")
    """Host services that hold GPUs: stopped for a reset where they run, started again afterwards."""
    driver_restart: DriverRestart = DriverRestart.OPERATOR_POD
    driver_app: str = "nvidia-driver-daemonset"
    """Value of the label `app` of the operator's driver pods."""
    clients_gone_s: float = 300.0
    """How long the clients may take to leave, and to come back."""
    job_deadline_s: int = 600
    kept_s: int = 86_400
    """How long a finished Job stays for people to read (`ttlSecondsAfterFinished`)."""


class RedfishSettings(Settings, frozen=True, kw_only=True, tag="redfish"):
    """BMCs that speak Redfish: reboot, power-cycle."""

    address: str = ""
    """URL of a BMC, with `{name}`, `{label:KEY}`, `{annotation:KEY}` or `{providerID}` filled in from the node."""
    addresses: Strings = {}
    """Node -> URL; comes before `address`."""
    system: str = ""
    """Identifier of the ComputerSystem, where a BMC has several; empty takes the only one."""
    username_file: str
    password_file: str
    ca_file: str = ""
    """Certificates that sign those of the BMCs; empty takes the machine's own."""
    insecure_skip_verify: bool = False
    """Trust any certificate. Whoever can answer for the BMC then learns its password."""
    sessions: bool = True
    """Log in once for each look where the BMC has a SessionService; otherwise basic authentication."""
    graceful: bool = False
    """Reboot by asking the operating system first, where the BMC can."""
    request_limit_s: float = 30.0


class CloudReplace(StrEnum):
    NONE = "none"
    INSTANCE = "instance"
    """End the machine itself."""
    GROUP = "group"
    """Have its group (Auto Scaling group, MIG, scale set, instance pool) end it and make another."""
    MARK_UNHEALTHY = "mark-unhealthy"
    """AWS only: tell the Auto Scaling group that it is unhealthy."""


class LocalDisks(StrEnum):
    KEEP = "keep"
    """Refuse a power-cycle that would erase local disks."""
    MAY_BE_LOST = "may-be-lost"


class CloudSettings(Settings, frozen=True, kw_only=True):
    """What the four clouds share: reboot, power-cycle and, where chosen, replace."""

    replace: CloudReplace = CloudReplace.NONE
    local_disks: LocalDisks = LocalDisks.KEEP
    endpoint: str = ""
    """Another address of the cloud's API: private endpoints, tests."""
    request_limit_s: float = 60.0


class AwsSettings(CloudSettings, frozen=True, kw_only=True, tag="aws"):
    region: str = ""
    """Empty: as in the instance's availability zone."""


class GcpSettings(CloudSettings, frozen=True, kw_only=True, tag="gcp"):
    pass


class AzureSettings(CloudSettings, frozen=True, kw_only=True, tag="azure"):
    pass


class OciSettings(CloudSettings, frozen=True, kw_only=True, tag="oci"):
    region: str = ""
    """Empty: as in the OCID of the instance."""
    config_file: str = ""
    """Login by a configuration file; empty: the instance principal."""
    profile: str = "DEFAULT"
    graceful: bool = True
    """Reboot by SOFTRESET; false: RESET."""


class WebhookSettings(Settings, frozen=True, kw_only=True, tag="webhook"):
    """Any rung: the Repair is posted to a URL, signed; see docs/how-to/repairs.md for the answers."""

    url: str
    secret_file: str
    """Key of the HMAC-SHA256 over time and body."""
    ca_file: str = ""
    request_limit_s: float = 30.0
    poll_s: float = 15.0
    """How often the poll URL of an answer is asked."""


class TicketSettings(Settings, frozen=True, kw_only=True, tag="ticket"):
    """The rung `ticket`: by webhook, whose answer has the number; without a URL an Event tells people to file one."""

    url: str = ""
    secret_file: str = ""
    ca_file: str = ""
    request_limit_s: float = 30.0


class ExternalSettings(Settings, frozen=True, kw_only=True, tag="external"):
    """Somebody else's controller carries out the Repairs of this provider."""


class PluginSettings(Settings, frozen=True, kw_only=True, tag="plugin"):
    """A kind of provider that another package offers as an entry point of the group `muster.providers`."""

    type: str
    """Name of the entry point."""
    settings: dict[str, Any] = {}


AnySettings = (
    JobSettings
    | RedfishSettings
    | AwsSettings
    | GcpSettings
    | AzureSettings
    | OciSettings
    | WebhookSettings
    | TicketSettings
    | ExternalSettings
    | PluginSettings
)


class ProvidersConfig(Model, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole file."""

    providers: tuple[AnySettings, ...] = ()


_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?")


def load_config(path: Path) -> ProvidersConfig:
    """Read the file. Raises BadInputError in one sentence."""
    return read_config(yamlio.load(path), str(path))


def read_config(value: Any, source: str) -> ProvidersConfig:
    """Decode what `yamlio` read. Raises BadInputError that names the field and what to write instead."""
    try:
        config = msgspec.convert(value, ProvidersConfig)
    except msgspec.ValidationError as error:
        raise BadInputError(f"{source} is no list of repair providers: {_explain(str(error))}.") from error
    seen: set[str] = set()
    for settings in config.providers:
        if not _NAME.fullmatch(settings.name):
            raise BadInputError(f"{source}: {settings.name[:80]!r} is no name of a provider; use a-z, 0-9, '-', '.'.")
        if settings.name in seen:
            raise BadInputError(f"{source} has two providers named {settings.name}; give each a name of its own.")
        seen.add(settings.name)
        _check(settings, source)
    return config


def _check(settings: AnySettings, source: str) -> None:
    """What types alone cannot say."""
    where = f"{source}: provider {settings.name}"
    match settings:
        case RedfishSettings():
            urls = [*settings.addresses.values(), *([settings.address] if settings.address else [])]
            if not urls:
                raise BadInputError(f"{where} needs `address` or `addresses` to find the BMCs.")
            for url in urls:
                _check_url(url, where)
            if settings.ca_file and settings.insecure_skip_verify:
                raise BadInputError(f"{where} has caFile and insecureSkipVerify; choose one of them.")
        case WebhookSettings():
            _check_url(settings.url, where)
        case TicketSettings() if settings.url:
            _check_url(settings.url, where)
            if not settings.secret_file:
                raise BadInputError(f"{where} posts to {settings.url[:80]} and needs `secretFile` to sign with.")
        case GcpSettings() | AzureSettings() | OciSettings() if settings.replace is CloudReplace.MARK_UNHEALTHY:
            raise BadInputError(f"{where}: replace: mark-unhealthy is for aws; use `group` or `instance`.")
        case _:
            return


def _check_url(url: str, where: str) -> None:
    # Names of nodes may be filled in, never credentials: those stand in files.
    if not re.match(r"https?://[^/@\s]+(/\S*)?$", url):
        raise BadInputError(f"{where}: {url[:80]!r} is no http(s) URL without credentials in it.")


def _explain(text: str) -> str:
    """The decoder's sentence, with what was probably meant."""
    unknown = re.search(r"unknown field `([^`]*)`", text)
    invalid = re.search(r"Invalid value '([^']*)'", text)
    known: list[str] = []
    if unknown is not None:
        types = [ProvidersConfig, *get_args(AnySettings)]
        known = sorted({name for kind in types for name in kind.__struct_encode_fields__})
    elif invalid is not None:
        known = [str(kind.__struct_config__.tag) for kind in get_args(AnySettings)]
    wrong = unknown or invalid
    close = difflib.get_close_matches(wrong.group(1), known, n=1) if wrong is not None else []
    hint = f" (did you mean `{close[0]}`?)" if close else ""
    return f"{text}{hint}"
