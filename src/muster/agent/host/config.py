"""What the host monitors watch. The defaults fit an unconfigured GPU node of Kubernetes."""

from __future__ import annotations

from enum import StrEnum

from muster.resources.base import Model
from muster.resources.fault import Hint, Severity


def _timing(interval_s: float, deadline_s: float) -> None:
    if not 1 <= interval_s <= 86400 or not 0 < deadline_s <= 3600:
        raise ValueError("intervalS must be 1 to 86400 and deadlineS up to 3600")


class FilesystemsConfig(Model, frozen=True, kw_only=True):
    """File systems that hold the watched paths. A path that does not exist is left out."""

    enabled: bool = True
    interval_s: float = 30.0
    deadline_s: float = 15.0
    paths: tuple[str, ...] = (
        "/",
        "/var",
        "/var/lib/kubelet",
        "/var/lib/containerd",
        "/var/lib/containers",
        "/var/lib/rancher",
        "/var/log",
        "/run",
    )
    full_percent: float = 95.0
    """From this use of blocks or inodes on a file system is full. The kubelet evicts pods before, at 85 to 90."""
    free_percent: float = 90.0
    """Below this use it is no longer full."""

    def __post_init__(self) -> None:
        if not 0 < self.free_percent <= self.full_percent <= 100:
            raise ValueError("freePercent must not be above fullPercent, and both lie in 0 to 100")
        if any(not path.startswith("/") for path in self.paths):
            raise ValueError("paths must be absolute")
        _timing(self.interval_s, self.deadline_s)


class ClockConfig(Model, frozen=True, kw_only=True):
    """The system clock, as the kernel knows it."""

    enabled: bool = True
    interval_s: float = 60.0
    deadline_s: float = 5.0
    grace_s: float = 900.0
    """A clock may be unsynchronised for so long; after a boot, a time service needs minutes."""
    max_error_s: float = 1.0
    """Largest error that the kernel may estimate for a synchronised clock. Logs and TLS suffer from it first."""
    jump_s: float = 5.0
    """A step of the clock of at least this is told."""

    def __post_init__(self) -> None:
        if min(self.grace_s, self.max_error_s) < 0 or self.jump_s <= 0:
            raise ValueError("graceS and maxErrorS must not be negative and jumpS be positive")
        _timing(self.interval_s, self.deadline_s)


class PressureConfig(Model, frozen=True, kw_only=True):
    """Memory pressure, killed processes, tasks that hang in I/O."""

    enabled: bool = True
    interval_s: float = 30.0
    deadline_s: float = 10.0
    memory_full_percent: float = 20.0
    """Share of the last minute in which all tasks waited for memory (PSI `full avg60`)."""
    available_percent: float = 2.0
    """Less memory available than this share is low."""
    blocked_tasks: int = 64
    """So many tasks in uninterruptible I/O are a hung disk or file server."""
    confirm_looks: int = 4
    clear_looks: int = 4

    def __post_init__(self) -> None:
        if min(self.confirm_looks, self.clear_looks, self.blocked_tasks) < 1:
            raise ValueError("confirmLooks, clearLooks and blockedTasks must be positive")
        if not 0 < self.memory_full_percent <= 100 or not 0 <= self.available_percent < 100:
            raise ValueError("memoryFullPercent and availablePercent must be percentages")
        _timing(self.interval_s, self.deadline_s)


class Expectation(StrEnum):
    """When a service must run. Whatever ran in this boot, or starts by itself at boot, is expected in any case."""

    WHEN_ENABLED = "when-enabled"
    WITH_NVSWITCH = "with-nvswitch"
    """Also where the machine has NVSwitches that this node must set up itself."""
    WHEN_CONFIGURED = "when-configured"
    """Only where the file `config` lists something, whatever is enabled."""


class ServiceConfig(Model, frozen=True, kw_only=True):
    """One service of the node: a systemd unit and the name of its main process."""

    name: str
    units: tuple[str, ...]
    """Names of its unit, the first that is installed counts."""
    process: str
    """Name of the main process; the kernel knows its first 15 characters."""
    expected: Expectation = Expectation.WHEN_ENABLED
    config: str = ""
    in_container: bool = False
    """It may run in a container instead of in its unit (driver pods of the GPU operator)."""
    severity: Severity = Severity.WARNING
    hint: Hint = Hint.INSPECT

    def __post_init__(self) -> None:
        if not self.name or not self.process or any("/" in unit or not unit for unit in self.units):
            raise ValueError("a service needs a name, a process and names of units without a folder")
        if self.expected is Expectation.WHEN_CONFIGURED and not self.config.startswith("/"):
            raise ValueError(f"service {self.name}: config must be the absolute path of its configuration")


SERVICES = (
    ServiceConfig(name="kubelet", units=("kubelet.service",), process="kubelet", severity=Severity.FATAL),
    ServiceConfig(name="containerd", units=("containerd.service",), process="containerd", severity=Severity.FATAL),
    ServiceConfig(name="crio", units=("crio.service", "cri-o.service"), process="crio", severity=Severity.FATAL),
    # Without it NVSwitch machines cannot start a CUDA program. Its loss leaves running jobs alone, so a restart of
    # the service comes before a reboot; the reference reboots at once.
    ServiceConfig(
        name="fabric-manager",
        units=("nvidia-fabricmanager.service",),
        process="nv-fabricmanager",
        expected=Expectation.WITH_NVSWITCH,
        in_container=True,
        severity=Severity.FATAL,
        hint=Hint.INSPECT,
    ),
    ServiceConfig(
        name="persistenced",
        units=("nvidia-persistenced.service",),
        process="nvidia-persistenced",
        in_container=True,
    ),
    # The state of a domain belongs to the NVLink monitor: an idle or single node shows no healthy domain and is well.
    ServiceConfig(
        name="imex",
        units=("nvidia-imex.service",),
        process="nvidia-imex",
        expected=Expectation.WHEN_CONFIGURED,
        config="/etc/nvidia-imex/nodes_config.cfg",
        in_container=True,
    ),
)


class ServicesConfig(Model, frozen=True, kw_only=True):
    """Services without which a GPU node does not work."""

    enabled: bool = True
    interval_s: float = 30.0
    deadline_s: float = 15.0
    services: tuple[ServiceConfig, ...] = SERVICES
    """Replaces the defaults as a whole."""
    confirm_looks: int = 3
    confirm_s: float = 90.0
    """Down is down after `confirm_looks` looks in a row and so many seconds."""
    boot_grace_s: float = 300.0
    flaps: int = 3
    """So many restarts within `flap_window_s` are flapping. A person's restart is one."""
    flap_window_s: float = 600.0

    def __post_init__(self) -> None:
        names = [service.name for service in self.services]
        if len(names) != len({*names}):
            raise ValueError("two services have the same name")
        if min(self.confirm_looks, self.flaps) < 1 or min(self.confirm_s, self.boot_grace_s) < 0:
            raise ValueError("confirmLooks and flaps must be positive, confirmS and bootGraceS not negative")
        _timing(self.interval_s, self.deadline_s)


class HostConfig(Model, frozen=True, kw_only=True):
    enabled: bool = True
    filesystems: FilesystemsConfig = FilesystemsConfig()
    clock: ClockConfig = ClockConfig()
    pressure: PressureConfig = PressureConfig()
    services: ServicesConfig = ServicesConfig()
