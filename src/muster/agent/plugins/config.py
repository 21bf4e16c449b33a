"""Monitors of others: exit-code scripts, Python plugins, and conditions that other agents set on the Node."""

from __future__ import annotations

import re
from typing import Any

from muster.resources.base import ConditionStatus, Model
from muster.resources.fault import Entity, EntityKind, Hint, Scope, Severity

_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?")
MAX_ARGUMENTS = 64


class ScriptConfig(Model, frozen=True, kw_only=True):
    """A program that says by its exit code how something is: the convention of node-problem-detector's plugins.

    0 healthy, 1 faulty, anything else unknown; the first line of its output is the message.
    """

    command: tuple[str, ...]
    """Program and arguments. No shell reads them."""
    check: str
    code: str
    entity: Entity = Entity(kind=EntityKind.NODE)
    severity: Severity = Severity.WARNING
    scope: Scope = Scope.NODE
    hint: Hint = Hint.INSPECT
    ok_codes: tuple[int, ...] = (0,)
    faulty_codes: tuple[int, ...] = (1,)
    """Every other exit code, and an end by a signal or by the deadline, is unknown."""

    def __post_init__(self) -> None:
        if not self.command or not self.command[0].startswith("/") or len(self.command) > MAX_ARGUMENTS:
            raise ValueError(f"command must begin with an absolute path and have up to {MAX_ARGUMENTS} words")
        if any("\0" in word for word in self.command):
            raise ValueError("command must not hold a NUL character")
        _codes(self.check, self.code)
        if not self.ok_codes or {*self.ok_codes} & {*self.faulty_codes}:
            raise ValueError("okCodes must not be empty, nor share a code with faultyCodes")


class ConditionConfig(Model, frozen=True, kw_only=True):
    """A condition of the Node that somebody else sets, and what it means when it has its unhealthy status."""

    type: str
    unhealthy_status: ConditionStatus = ConditionStatus.TRUE
    """node-problem-detector sets problems to `True`; conditions like `Ready` are bad when `False`."""
    latched: bool = False
    """Its writer sets it once and leaves it until the node boots: it counts without a heartbeat. A condition whose
    message is a boot ID is known to be of that kind."""
    severity: Severity = Severity.WARNING
    scope: Scope = Scope.NODE
    hint: Hint = Hint.INSPECT

    def __post_init__(self) -> None:
        if not self.type or self.unhealthy_status is ConditionStatus.UNKNOWN:
            raise ValueError("a condition needs a type, and its unhealthyStatus is 'True' or 'False'")


class NodeConditionsConfig(Model, frozen=True, kw_only=True):
    conditions: tuple[ConditionConfig, ...]
    stale_s: float = 900.0
    """Without a heartbeat for so long a condition is unknown: its writer is gone. It writes every 5 minutes or so."""

    def __post_init__(self) -> None:
        types = [condition.type for condition in self.conditions]
        if not types or len(types) != len({*types}) or self.stale_s < 60:
            raise ValueError("conditions must name each type once, at least one, and staleS be 60 or more")


class EntryPointConfig(Model, frozen=True, kw_only=True):
    """A plugin in Python: an entry point of the group `muster.monitors`, loaded because it is named here."""

    name: str
    options: dict[str, Any] = {}
    """Handed to the plugin as they are."""


class PluginConfig(Model, frozen=True, kw_only=True):
    """One plugin: exactly one of `script`, `entry_point` and `node_conditions`."""

    name: str
    """Its monitor is `plugin-<name>`."""
    enabled: bool = True
    interval_s: float = 60.0
    timeout_s: float = 20.0
    script: ScriptConfig | None = None
    entry_point: EntryPointConfig | None = None
    node_conditions: NodeConditionsConfig | None = None

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ValueError(f"plugin name {self.name!r} must be lower-case letters, digits, '-' and '.', up to 63")
        kinds = [kind for kind in (self.script, self.entry_point, self.node_conditions) if kind is not None]
        if len(kinds) != 1:
            raise ValueError(f"plugin {self.name} needs exactly one of script, entryPoint and nodeConditions")
        if not 1 <= self.interval_s <= 86400 or not 0 < self.timeout_s <= 3600:
            raise ValueError(f"plugin {self.name}: intervalS must be 1 to 86400 and timeoutS up to 3600")


def _codes(*names: str) -> None:
    for name in names:
        if not _NAME.fullmatch(name):
            raise ValueError(f"{name!r} must be lower-case letters, digits, '-' and '.', up to 63 characters")
