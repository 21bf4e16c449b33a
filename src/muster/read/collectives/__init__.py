"""What the collective library and its watchers print: NCCL logs, NCCL RAS, the torch watchdog."""

from __future__ import annotations

from muster.read.collectives import nccl_log, ras, watchdog
from muster.read.format import Format

FORMATS: tuple[Format, ...] = (
    Format("NCCL state query", (ras.KIND,), ras.score, ras.parse),
    Format("NCCL log", (nccl_log.KIND,), nccl_log.score, nccl_log.parse),
    Format("torch watchdog", (watchdog.KIND,), watchdog.score, nccl_log.parse_watchdog),
)
"""Of equal scores the first wins; lines of all kinds are read wherever they stand."""
