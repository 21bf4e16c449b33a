"""What verbs take from the environment: the clock of a simulated cluster, where they are pointed at one."""

from __future__ import annotations

import math
import os
from typing import TYPE_CHECKING

from muster.errors import BadInputError

if TYPE_CHECKING:
    from muster.clock import Clock

CLOCK_VARIABLE = "MUSTER_CLOCK"


def clock_from_environment() -> Clock:
    """The clock that MUSTER_CLOCK asks for, else the machine's own. Raises BadInputError."""
    return read_clock(os.environ.get(CLOCK_VARIABLE, ""))


def read_clock(text: str) -> Clock:
    """The clock that `text` describes; empty text means the machine's own. Raises BadInputError."""
    from muster.clock import ScaledClock, SystemClock

    if not text:
        return SystemClock()
    try:
        clock = ScaledClock.decode(text)
        if not (math.isfinite(clock.speed) and math.isfinite(clock.origin_unix_s)):
            raise ValueError("its numbers must be finite")
    except ValueError as error:
        raise BadInputError(
            f"{CLOCK_VARIABLE} is not a clock ({text[:80]!r}); unset it or take what 'muster sim up' printed."
        ) from error
    return clock
