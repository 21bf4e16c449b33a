"""What of the Redfish schema a reset needs, read from answers. Pure.

Figures and names: DSP2046 (ComputerSystem, ResetActionInfo, Task), DSP0266 (asynchronous operations, sessions).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from muster.operate.providers.provider import PermanentProviderError
from muster.plain_text import plain
from muster.resources.repair import Rung

RESET = "#ComputerSystem.Reset"
ALLOWABLE = "ResetType@Redfish.AllowableValues"
ACTION_INFO = "@Redfish.ActionInfo"
MEMBERS_LIMIT = 64


class Power(StrEnum):
    ON = "On"
    OFF = "Off"
    OTHER = "other"
    """PoweringOn, PoweringOff, Paused, or not told."""


@dataclass(frozen=True)
class System:
    """One ComputerSystem."""

    path: str
    power: Power
    reset_path: str
    allowed: tuple[str, ...]
    """Reset types; empty when the BMC does not say."""
    action_info: str
    """Where the allowed reset types stand instead."""
    etag: str = ""


def link(value: Mapping[str, Any], *names: str) -> str:
    """The `@odata.id` under these names; empty when it is not there."""
    found: Any = value
    for name in names:
        found = found.get(name) if isinstance(found, Mapping) else None
    path = found.get("@odata.id") if isinstance(found, Mapping) else None
    return path if isinstance(path, str) else ""


def members(collection: Mapping[str, Any]) -> tuple[str, ...]:
    """Paths of a collection's members."""
    found = collection.get("Members")
    listed = found if isinstance(found, Sequence) and not isinstance(found, str) else ()
    return tuple(path for one in listed[:MEMBERS_LIMIT] if isinstance(one, Mapping) and (path := link(one)))


def choose(paths: tuple[str, ...], wanted: str, host: str) -> str:
    """The system that is meant. Raises PermanentProviderError."""
    names = [path.rstrip("/").rpartition("/")[2] for path in paths]
    if wanted and wanted in names:
        return paths[names.index(wanted)]
    if not wanted and len(paths) == 1:
        return paths[0]
    listed = ", ".join(plain(name, 40) for name in names) or "none"
    if wanted:
        raise PermanentProviderError(f"{host} has no system {wanted}; it has: {listed}.")
    raise PermanentProviderError(f"{host} has several systems or none ({listed}); set `system` of the provider.")


def system_of(value: Mapping[str, Any], path: str, etag: str, host: str) -> System:
    """Read a ComputerSystem. Raises PermanentProviderError when it cannot be reset."""
    actions = value.get("Actions")
    action = actions.get(RESET) if isinstance(actions, Mapping) else None
    target = action.get("target") if isinstance(action, Mapping) else None
    if not isinstance(action, Mapping) or not isinstance(target, str):
        raise PermanentProviderError(f"{host} offers no ComputerSystem.Reset for {plain(path, 80)}.")
    state = value.get("PowerState")
    power = Power(state) if state in (Power.ON, Power.OFF) else Power.OTHER
    info = action.get(ACTION_INFO)
    tag = value.get("@odata.etag")
    return System(
        path=path,
        power=power,
        reset_path=target,
        allowed=_texts(action.get(ALLOWABLE)),
        action_info=info if isinstance(info, str) else "",
        etag=etag or (tag if isinstance(tag, str) else ""),
    )


def allowed_in(action_info: Mapping[str, Any]) -> tuple[str, ...]:
    """The reset types that a ResetActionInfo lists."""
    parameters = action_info.get("Parameters")
    for one in parameters if isinstance(parameters, list) else ():
        if isinstance(one, Mapping) and one.get("Name") == "ResetType":
            return _texts(one.get("AllowableValues"))
    return ()


def _texts(value: object) -> tuple[str, ...]:
    return tuple(one for one in value[:32] if isinstance(one, str)) if isinstance(value, list) else ()


class Plan(StrEnum):
    """What is ordered: one reset type, or off and then on."""

    GRACEFUL_RESTART = "GracefulRestart"
    FORCE_RESTART = "ForceRestart"
    POWER_CYCLE = "PowerCycle"
    OFF_ON = "ForceOff"
    ON = "On"


def plan(rung: Rung, allowed: tuple[str, ...], power: Power, graceful: bool, host: str) -> Plan:
    """The mildest order that does the rung. Raises PermanentProviderError when the BMC can do none."""
    if power is Power.OFF:
        return Plan.ON
    cycle = [Plan.POWER_CYCLE] if not allowed or "PowerCycle" in allowed else []
    off_on = [Plan.OFF_ON] if not allowed or {"ForceOff", "On"} <= set(allowed) else []
    restart = [Plan.GRACEFUL_RESTART] if graceful and "GracefulRestart" in allowed else []
    restart += [Plan.FORCE_RESTART] if not allowed or "ForceRestart" in allowed else []
    if rung is Rung.REBOOT and not restart and "GracefulRestart" in allowed:
        restart = [Plan.GRACEFUL_RESTART]
    choices = [*restart, *cycle, *off_on] if rung is Rung.REBOOT else [*cycle, *off_on]
    if not choices:
        listed = ", ".join(plain(one, 40) for one in allowed)
        raise PermanentProviderError(f"{host} can do no {rung.value}: it allows {listed}.")
    return choices[0]


class TaskState(StrEnum):
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"


def task_state(value: Mapping[str, Any]) -> TaskState:
    """The end of a Task; without a TaskState it is the final answer of the operation itself."""
    state = value.get("TaskState")
    if state in ("Exception", "Killed", "Cancelled"):
        return TaskState.FAILED
    if state is None and "error" in value:
        return TaskState.FAILED
    if state is None or state == "Completed":
        bad = value.get("TaskStatus") in ("Critical", "Warning")
        return TaskState.FAILED if bad else TaskState.DONE
    return TaskState.RUNNING


def words(value: Mapping[str, Any]) -> str:
    """What an error or a Task says to people."""
    error = value.get("error")
    body = error if isinstance(error, Mapping) else value
    listed = body.get("@Message.ExtendedInfo") or body.get("Messages") or ()
    texts = [m["Message"] for m in listed if isinstance(m, Mapping) and isinstance(m.get("Message"), str)]
    message = body.get("message")
    return plain(" ".join(texts[:3]) or (message if isinstance(message, str) else ""), 300)
