"""What the provider of every cloud asks of that cloud's API. Gateways block; they are called in threads."""

from __future__ import annotations

import importlib
import importlib.util
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Protocol

from muster.errors import BadInputError
from muster.operate.providers.config import CloudReplace


class MachineState(StrEnum):
    RUNNING = "running"
    STOPPING = "stopping"
    STOPPED = "stopped"
    STARTING = "starting"
    GONE = "gone"
    """It was ended, is being ended, or there is none."""
    OTHER = "other"


@dataclass(frozen=True, kw_only=True)
class Machine:
    """The machine as the cloud shows it."""

    state: MachineState
    started_at: datetime | None = None
    """When it was started last, where the cloud says so."""
    cannot_stop: str = ""
    """Why a stop must not be ordered, whatever the settings say."""
    stop_erases: str = ""
    """What a stop would erase."""


class OperationState(StrEnum):
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"


@dataclass(frozen=True)
class Operation:
    state: OperationState
    message: str = ""


class Gateway(Protocol):
    """One cloud. Methods raise NotSentError, UnansweredError, TransientProviderError, PermanentProviderError.

    `target` is the machine as `target_of` wrote it: one word without blanks. Orders return the cloud's operation, or
    an empty text where the cloud has none. `token` is a UUID that is the same each time an order is repeated.
    """

    title: str
    idempotent: bool
    """Whether the cloud itself sees to it that an order with the same token is carried out once."""

    def target_of(self, provider_id: str) -> str: ...

    def machine(self, target: str) -> Machine: ...

    def reboot(self, target: str, token: str) -> str: ...

    def stop(self, target: str, token: str, erase: bool) -> str: ...

    def start(self, target: str, token: str) -> str: ...

    def replace(self, target: str, token: str, how: CloudReplace) -> str: ...

    def operation(self, target: str, operation: str) -> Operation: ...


def require(modules: tuple[str, ...], extra: str, provider: str) -> None:
    """Raise BadInputError, with the command that helps, when a module of an SDK is not installed."""
    for module in modules:
        try:
            found = importlib.util.find_spec(module)
        except ModuleNotFoundError:
            found = None
        if found is None:
            raise BadInputError(
                f"Provider {provider} needs the Python package with {module}; "
                f"install it with: pip install 'muster-gpu[{extra}]'"
            )


def load(module: str) -> Any:
    """A module of an SDK, read at its first use: they are large."""
    return importlib.import_module(module)
