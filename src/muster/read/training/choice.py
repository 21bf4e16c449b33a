"""Which profile reads a log, and which of two times before its lines counts. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from muster.read.training.lines import Line
from muster.read.training.profiles import GENERIC, Event, Profile


def best_profile(lines: Sequence[Line], known: Iterable[Profile]) -> tuple[Profile | None, int]:
    """The profile that reads the most from `lines`, and how many different steps it finds; (None, 0) when none reads
    any."""
    best: tuple[tuple[int, int, int], Profile] | None = None
    for profile in known:
        numbers, steps, figures = set[float](), 0, 0
        for line in lines:
            read = profile.read(line.text)
            if read is not None and read[0].event is Event.STEP:
                steps += 1
                figures += len(read[1])
                numbers.add(read[1].get("step", read[1].get("epoch_step", 0.0)))
        # A line that any program may write fits the lines of the named ones as well, down to a cut one.
        generic = profile.name == GENERIC
        rank = (len(numbers) // 2 if generic and best is not None else len(numbers), figures, steps)
        if steps and (best is None or rank > best[0]):
            best = (rank, profile)
    return (best[1], best[0][0]) if best else (None, 0)


def uses_outer_time(lines: Sequence[Line], profile: Profile) -> bool:
    """Whether the time of the collector or that of the program is told on more lines; the step lines say which
    matter."""
    steps = [line for line in lines if (read := profile.read(line.text)) and read[0].event is Event.STEP]
    counts = []
    for which in ("outer", "inner"):
        bases = Counter(moment.basis for line in steps if (moment := getattr(line, which)) is not None)
        basis = bases.most_common(1)[0][0] if bases else None
        counts.append(sum(1 for line in lines if (m := getattr(line, which)) is not None and m.basis is basis))
    return counts[0] >= counts[1]
