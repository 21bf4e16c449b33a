"""Faults made for real, inside a rank: only when the run asks for them, for tests of the fault isolation itself.

Keys of `RunSpec.inject`: `node` (only the ranks of this node; missing: all), `local_rank` (only this one of the
node), `sleep_s` (before every step), `exit_at` and `hang_at` (number of the step), `corrupt` (one element of what is
sent, in every checked operation), `send_s_per_mib` (sleep before sending, in proportion to the bytes).
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from muster.workloads.params import Params

EXIT_CODE = 41
"""Exit code of a rank that was told to die, so that a test can tell it from an accident."""
_KEYS = ("node", "local_rank", "sleep_s", "exit_at", "hang_at", "corrupt", "send_s_per_mib")


@dataclass(frozen=True)
class Injection:
    """The faults of one rank; the empty one does nothing."""

    sleep_s: float = 0.0
    exit_at: int | None = None
    hang_at: int | None = None
    corrupt: bool = False
    send_s_per_mib: float = 0.0

    @staticmethod
    def of(inject: Mapping[str, object], *, node: str, local_rank: int) -> Injection:
        """What of `inject` concerns this rank. Raises `RankFailure` (`harness`) for an unknown key or a wrong
        value."""
        params = Params(inject)
        params.refuse_others(*_KEYS)
        if params.has("node") and params.text("node") != node:
            return Injection()
        if params.has("local_rank") and params.whole("local_rank", 0) != local_rank:
            return Injection()
        return Injection(
            sleep_s=params.number("sleep_s", 0.0, most=3600.0),
            exit_at=params.whole("exit_at", 0) if params.has("exit_at") else None,
            hang_at=params.whole("hang_at", 0) if params.has("hang_at") else None,
            corrupt=params.flag("corrupt"),
            send_s_per_mib=params.number("send_s_per_mib", 0.0, most=3600.0),
        )

    def before_step(self, step: int) -> None:
        """In the rank's own work, before step number `step` (from 0)."""
        if self.exit_at is not None and step >= self.exit_at:
            os._exit(EXIT_CODE)
        while self.hang_at is not None and step >= self.hang_at:
            time.sleep(3600)
        if self.sleep_s > 0:
            time.sleep(self.sleep_s)

    def before_send(self, size_bytes: int) -> None:
        """Before `size_bytes` leave this rank."""
        if self.send_s_per_mib > 0:
            time.sleep(self.send_s_per_mib * size_bytes / (1 << 20))

    def spoil(self, tensor: Any) -> None:
        """Changes one element of a tensor that is about to be sent."""
        if self.corrupt and tensor.numel():
            tensor.view(-1)[tensor.numel() // 2] += 1
