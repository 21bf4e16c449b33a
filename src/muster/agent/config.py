"""The agent's configuration (`--config FILE`): one section for each room of monitors, and the timing of all.

Everything has a default, so a node without a file is watched as an HGX or DGX node is. A key that nobody knows is an
error: a misspelt switch must not be a silent one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args, get_origin, get_type_hints

import msgspec

from muster.agent.assignments.config import AssignmentsConfig
from muster.agent.gpu.config import GpuConfig
from muster.agent.host.config import HostConfig
from muster.agent.maintenance.config import MaintenanceConfig
from muster.agent.network.config import NetworkConfig
from muster.agent.plugins.config import PluginConfig
from muster.agent.timing import TimingConfig
from muster.errors import BadInputError
from muster.resources.base import Model

if TYPE_CHECKING:
    from muster.agent.monitor import Monitor
    from muster.clock import Clock
    from muster.kube.api import KubeApi


class AgentConfig(Model, frozen=True, kw_only=True):
    """The whole file."""

    gpu: GpuConfig = GpuConfig()
    network: NetworkConfig = NetworkConfig()
    host: HostConfig = HostConfig()
    plugins: tuple[PluginConfig, ...] = ()
    assignments: AssignmentsConfig = AssignmentsConfig()
    maintenance: MaintenanceConfig = MaintenanceConfig()
    timing: TimingConfig = TimingConfig()


def load(path: Path) -> AgentConfig:
    """Read the file at `path`. Raises BadInputError in one sentence."""
    from muster import yamlio

    return read(yamlio.load(path), str(path))


def read(document: Any, source: str) -> AgentConfig:
    """The configuration that a parsed document holds; `source` names it in errors. Raises BadInputError."""
    if document is None:
        return AgentConfig()
    _refuse_unknown(document, AgentConfig, source, "")
    try:
        return msgspec.convert(document, AgentConfig)
    except msgspec.ValidationError as error:
        raise BadInputError(f"{source} is no configuration of the agent: {error}.") from error


def monitors(config: AgentConfig, root: Path, clock: Clock, api: KubeApi, node: str) -> tuple[Monitor, ...]:
    """The monitors that the configuration asks for. Raises BadInputError when two have one name."""
    from muster.agent import assignments, gpu, host, maintenance, network, plugins

    found: tuple[Monitor, ...] = (
        *gpu.monitors(config.gpu, root, clock),
        *network.monitors(config.network, root, clock),
        *host.monitors(config.host, root, clock),
        *plugins.monitors(config.plugins, root, clock, api, node),
        *assignments.monitors(config.assignments, root, clock),
        *maintenance.monitors(config.maintenance, root, clock, node),
    )
    names = sorted(monitor.name for monitor in found)
    twice = next((a for a, b in pairwise(names) if a == b), None)
    if twice is not None:
        raise BadInputError(f"Two monitors of the agent are named {twice!r}; rename one of the plugins.")
    return found


def _refuse_unknown(value: Any, kind: Any, source: str, where: str) -> None:
    """Raise for the first key that no section has, with the nearest one that exists."""
    if isinstance(kind, type) and issubclass(kind, Model):
        if not isinstance(value, Mapping):
            return
        types = get_type_hints(kind)
        names = dict(zip(kind.__struct_encode_fields__, kind.__struct_fields__, strict=True))
        for key, inner in value.items():
            name = f"{where}.{key}" if where else str(key)
            if key not in names:
                raise BadInputError(f"{source} has {name!r}, which the agent does not know{_near(str(key), names)}")
            _refuse_unknown(inner, types[names[key]], source, name)
        return
    inner_kinds = [option for option in get_args(kind) if option is not Ellipsis]
    if get_origin(kind) is tuple:
        if isinstance(value, Sequence) and not isinstance(value, str):
            for number, item in enumerate(value):
                _refuse_unknown(item, inner_kinds[0], source, f"{where}[{number}]")
        return
    for option in inner_kinds:
        _refuse_unknown(value, option, source, where)


def _near(key: str, fields: Mapping[str, Any]) -> str:
    import difflib

    close = difflib.get_close_matches(key, sorted(fields), n=1)
    return f"; did you mean {close[0]!r}?" if close else f"; it knows {', '.join(sorted(fields))}."
