"""The audit log: each action of Muster, and each decision of a person that it followed, one JSON object a line."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from muster.operate.outputs.action import Action
from muster.operate.outputs.config import AuditConfig
from muster.operate.outputs.encode import moment
from muster.plain_text import plain

log = logging.getLogger(__name__)

STANDARD_OUTPUT = "-"
MAX_MESSAGE = 1000


def record(action: Action, cluster: str = "") -> dict[str, Any]:
    """An action as plain values; every field is there, so that a schema can be strict."""
    return {
        "at": moment(action.at),
        "cluster": cluster,
        "actor": plain(action.actor, MAX_MESSAGE),
        "onBehalf": plain(action.on_behalf, MAX_MESSAGE),
        "action": action.action,
        "target": plain(action.target, MAX_MESSAGE),
        "node": plain(action.node, MAX_MESSAGE),
        "episode": plain(action.episode, MAX_MESSAGE),
        "result": action.result.value,
        "message": plain(action.message, MAX_MESSAGE),
    }


class AuditLog:
    """Appends to a file and moves it aside when it has grown. Failing to write never stops the work: it is told."""

    def __init__(
        self, config: AuditConfig, cluster: str = "", *, failed: Callable[[str], None] = log.warning
    ) -> None:
        """`failed` receives one sentence when writing begins to fail."""
        self._config = config
        self._cluster = cluster
        self._failed = failed
        self._failing = False
        self.lost = 0
        """Actions that could not be written."""

    def write(self, action: Action) -> None:
        line = json.dumps(record(action, self._cluster), ensure_ascii=False) + "\n"
        try:
            if self._config.path == STANDARD_OUTPUT:
                sys.stdout.write(line)
                sys.stdout.flush()
            else:
                self._append(line.encode())
        except (OSError, ValueError) as error:
            # A ValueError is a standard output that was closed.
            self.lost += 1
            if not self._failing:
                why = (error.strerror if isinstance(error, OSError) else None) or error or type(error).__name__
                self._failed(f"cannot write the audit log {self._config.path}: {why}")
            self._failing = True
        else:
            self._failing = False

    def _append(self, line: bytes) -> None:
        path = Path(self._config.path)
        if path.exists() and path.stat().st_size + len(line) > self._config.max_bytes:
            self._move_aside(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        # Opened for each line: a file that somebody moved or removed is made anew.
        with path.open("ab") as file:
            file.write(line)

    def _move_aside(self, path: Path) -> None:
        for number in range(self._config.keep, 0, -1):
            older = path.with_name(f"{path.name}.{number}")
            newer = path.with_name(f"{path.name}.{number - 1}") if number > 1 else path
            if newer.exists():
                newer.replace(older)
