"""Application errors that come back on one GPU move suspicion to the device: a diagnostic, never a replacement."""

from __future__ import annotations

from muster.read.kernel.aggregate import Collector, Tracked
from muster.resources.fault import Hint, Scope

MMU_FAULT = 31
ENGINE_EXCEPTION = 13
WINDOW_S = 24 * 3600.0
MMU_BURST_S = 180.0
"""Faults closer than this belong to one crash (reference: burst window of XID 31)."""
MANY_PROCESSES = 3
"""Without times: so many processes on one GPU cannot be one crash of one program."""


def escalate(collector: Collector) -> None:
    """Raise scope and hint of repeated MMU faults and engine exceptions, in place."""
    faults = [t for t in collector.listed() if t.code in (MMU_FAULT, ENGINE_EXCEPTION) and t.gpu is not None]
    for tracked in faults:
        comes_back = _repeats(tracked) if tracked.code == MMU_FAULT else _same_unit(tracked)
        if comes_back and not _elsewhere(tracked, faults):
            _suspect(tracked)


def _suspect(tracked: Tracked) -> None:
    tracked.detection = tracked.detection.changed(scope=Scope.GPU, hint=Hint.INSPECT, confidence="low")
    tracked.details["escalated"] = "repeated on one GPU"


def _episodes(tracked: Tracked) -> int | None:
    """Crashes at different times within a day of the last one; None when the log tells no time."""
    last = tracked.bursts[-1].end if tracked.bursts else None
    if last is None:
        return None
    episodes = 0
    previous = None
    for burst in tracked.bursts:
        age = last.since(burst.start)
        if age is None or age > WINDOW_S or burst.start is None:
            continue
        pause = burst.start.since(previous)
        if pause is None or pause > MMU_BURST_S:
            episodes += 1
        previous = burst.end
    return episodes


def _repeats(tracked: Tracked) -> bool:
    """Several processes, at several times."""
    pids, episodes = tracked.distinct_pids(), _episodes(tracked)
    if episodes is None:
        return pids >= MANY_PROCESSES
    return pids >= 2 and episodes >= 2


def _same_unit(tracked: Tracked) -> bool:
    """The same place on the chip, at several times."""
    units = tracked.distinct.get("unit_of_gpu", set())
    return len(units) == 1 and (_episodes(tracked) or 0) >= 2


def _elsewhere(tracked: Tracked, faults: list[Tracked]) -> bool:
    """The same code is as frequent on another GPU of the node: the program is the likelier cause."""
    own = len(tracked.bursts)
    return any(
        other is not tracked
        and other.code == tracked.code
        and other.host == tracked.host
        and 2 * len(other.bursts) >= own
        for other in faults
    )
