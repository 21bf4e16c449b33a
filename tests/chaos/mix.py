"""What one seed plays: which kinds of trouble there are, how much of each, and for how long."""

from __future__ import annotations

import random
from dataclasses import dataclass
from enum import StrEnum

DEEDS = 40
"""Deeds of a seed, unless told otherwise."""


class Kind(StrEnum):
    """Kinds of trouble. A seed draws some of them (swarm testing): what is always on hides what needs quiet."""

    LATE_EVENTS = "late-events"
    DOUBLE_EVENTS = "double-events"
    CUT_WATCHES = "cut-watches"
    FORGOTTEN_HISTORY = "forgotten-history"
    LOST_ANSWERS = "lost-answers"
    ERRORS = "errors"
    OUTAGES = "outages"
    KILLS = "kills"
    FREEZES = "freezes"
    NODE_REBIRTH = "node-rebirth"
    GPU_SWAPS = "gpu-swaps"
    REBOOTS = "reboots"
    FAULTS = "faults"
    HIDDEN_DEFECTS = "hidden-defects"
    UNKNOWN_FAULTS = "unknown-faults"
    ROLL_OUTS = "roll-outs"
    AGENTS = "agents"
    CORDONS = "cordons"
    WORDS = "words"
    EDITS = "edits"
    DELETIONS = "deletions"
    MAINTENANCE = "maintenance"
    LYING_PROVIDER = "lying-provider"
    FAILING_PROVIDER = "failing-provider"
    WORK = "work"
    LEAPS = "leaps"


@dataclass(frozen=True)
class Mix:
    """The draw of one seed."""

    seed: int
    nodes: int
    deeds: int
    kinds: frozenset[Kind]
    pause_s: float
    """Mean time between two deeds."""
    rate: float
    """How often a request or an event meets trouble."""
    replicas: int
    skew_s: float
    """How far the clocks of the replicas may be off."""
    real_tests: bool
    """Whether the real certification controller judges the nodes. It costs ten times what a stand-in does."""

    def __contains__(self, kind: Kind) -> bool:
        return kind in self.kinds


def draw(seed: int, deeds: int = 0, nodes: int = 0, chosen: tuple[Kind, ...] = ()) -> Mix:
    """The mix of `seed`; `deeds`, `nodes` and the `chosen` kinds replace what it would draw where they are given."""
    drawn = random.Random(f"mix/{seed}")
    share = drawn.choice([0.35, 0.6, 0.85])
    kinds = frozenset(kind for kind in Kind if drawn.random() < share)
    drawn_nodes = drawn.randint(6, 16)
    return Mix(
        seed=seed,
        nodes=nodes or drawn_nodes,
        deeds=deeds or DEEDS,
        kinds=frozenset(chosen) or kinds,
        pause_s=drawn.choice([120.0, 400.0, 900.0]),
        rate=drawn.choice([0.01, 0.04, 0.1]),
        replicas=drawn.choice([1, 2, 2]),
        skew_s=drawn.choice([0.0, 0.0, 40.0]),
        real_tests=drawn.random() < 0.2 and not chosen,
    )
