"""Exit-code scripts: what a program's exit code and first line say about an entity."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from muster.agent.host.child import PATH, Finished, run_child
from muster.agent.monitor import Look, NodeFacts
from muster.agent.plugins.config import PluginConfig, ScriptConfig
from muster.agent.sources import Probe
from muster.plain_text import plain

HOST_ROOT = "MUSTER_HOST_ROOT"
"""Variable that tells a program where the file system of the node is mounted."""
MAX_MESSAGE = 512
"""Characters of the first line that count."""
_MAX_OUTPUT_BYTES = 4096
_GRACE_S = 5.0
"""So much longer than the program's own deadline may a look take: its group must be ended."""


class ScriptMonitor:
    """Runs one program now and then."""

    def __init__(self, plugin: PluginConfig, script: ScriptConfig, root: Path = Path("/")) -> None:
        """`root` is where the node's file system is mounted; the program learns it from its environment."""
        self.name = f"plugin-{plugin.name}"
        self.interval_s = plugin.interval_s
        self.deadline_s = plugin.timeout_s + _GRACE_S
        self._timeout_s = plugin.timeout_s
        self._script = script
        self._environment = {"PATH": PATH, "LANG": "C.UTF-8", HOST_ROOT: str(root)}

    async def look(self, facts: NodeFacts, now: datetime) -> Look:  # noqa: ARG002 - the protocol of monitors
        finished = await run_child(
            self._script.command,
            timeout_s=self._timeout_s,
            max_bytes=_MAX_OUTPUT_BYTES,
            environment=self._environment,
        )
        return Look(probes=(interpret(self.name, self._script, finished, self._timeout_s),))

    def keep(self) -> str:
        return ""

    def restore(self, kept: str) -> None:  # noqa: ARG002 - nothing is kept
        return None

    async def close(self) -> None:
        return None


def interpret(source: str, script: ScriptConfig, finished: Finished, timeout_s: float) -> Probe:
    """What the end of the program says."""
    line = plain(finished.output.decode("utf-8", errors="replace").partition("\n")[0], MAX_MESSAGE)
    healthy: bool | None = None
    message = line
    if finished.code is None:
        message = f"{script.command[0]} did not end within {timeout_s:g} s and was killed"
    elif finished.code in script.ok_codes:
        healthy = True
    elif finished.code in script.faulty_codes:
        healthy = False
        message = line or f"{script.command[0]} ended with exit code {finished.code}"
    elif finished.code < 0:
        message = f"{script.command[0]} was ended by signal {-finished.code}"
    else:
        message = f"{script.command[0]} ended with exit code {finished.code}: {line or 'no output'}"
    return Probe(
        source=source,
        check=script.check,
        code=script.code,
        entity=script.entity,
        healthy=healthy,
        severity=script.severity,
        scope=script.scope,
        hint=script.hint,
        message=plain(message, MAX_MESSAGE),
    )
