"""Monitors that are not Muster's own: scripts, Python plugins, conditions of the Node."""

from __future__ import annotations

from pathlib import Path

from muster.agent.monitor import Monitor
from muster.agent.plugins.config import PluginConfig
from muster.agent.plugins.entry_points import load
from muster.agent.plugins.node_conditions import NodeConditionsMonitor
from muster.agent.plugins.script import ScriptMonitor
from muster.clock import Clock
from muster.errors import BadInputError
from muster.kube.api import KubeApi


def monitors(
    plugins: tuple[PluginConfig, ...], root: Path, clock: Clock, api: KubeApi | None = None, node: str = ""
) -> tuple[Monitor, ...]:
    """One monitor for each enabled plugin, in the order of the config.

    A Python plugin that cannot be loaded is still a monitor: one that shows as degraded and says why. `api` and
    `node` (the name of the Node) are for plugins that read the Node's conditions.
    Raises BadInputError when two plugins have the same name, or when one needs an API that is not there.
    """
    names = [plugin.name for plugin in plugins]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise BadInputError(f"Two plugins are named {twice[0]!r}; give each its own name.")
    return tuple(_monitor(plugin, root, clock, api, node) for plugin in plugins if plugin.enabled)


def _monitor(plugin: PluginConfig, root: Path, clock: Clock, api: KubeApi | None, node: str) -> Monitor:
    if plugin.script is not None:
        return ScriptMonitor(plugin, plugin.script, root)
    if plugin.node_conditions is not None:
        if api is None or not node:
            raise BadInputError(
                f"Plugin {plugin.name!r} reads conditions of the Node, and there is no cluster to ask."
            )
        return NodeConditionsMonitor(plugin, plugin.node_conditions, api, node)
    return load(plugin, root, clock)
