"""How states and classes of time look: a letter, a label and a colour that colour-blind people tell apart.

The colours are the set of Okabe and Ito (2008). No view relies on colour alone: a letter or a label stands with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_never

from muster.operate.ledger import TimeClass
from muster.resources.node_health import State

GREEN = "#009E73"
SKY = "#56B4E9"
ORANGE = "#E69F00"
YELLOW = "#F0E442"
VERMILION = "#D55E00"
PURPLE = "#CC79A7"
BLUE = "#0072B2"
DARK = "#444444"
GREY = "#BBBBBB"


@dataclass(frozen=True)
class Look:
    letter: str
    label: str
    colour: str
    """`#rrggbb`."""
    ink: str
    """Colour of text on it: `#000000` or `#ffffff`."""


def of_state(state: State | None, *, busy: bool = False) -> Look:
    """The look of a node; None: no controller has seen it."""
    match state:
        case State.IN_SERVICE:
            return of_class(TimeClass.BUSY if busy else TimeClass.IDLE)
        case State.UNCERTIFIED:
            return of_class(TimeClass.HELD)
        case State.CERTIFYING:
            return of_class(TimeClass.CERTIFYING)
        case State.QUARANTINED:
            return of_class(TimeClass.QUARANTINED)
        case State.DRAINING:
            return of_class(TimeClass.DRAINING)
        case State.REPAIRING:
            return of_class(TimeClass.REPAIRING)
        case State.OUT_OF_SERVICE:
            return of_class(TimeClass.OUT_OF_SERVICE)
        case None:
            return of_class(TimeClass.UNKNOWN)
        case _:
            assert_never(state)


def of_class(time_class: TimeClass) -> Look:
    """The look of a class of time."""
    match time_class:
        case TimeClass.BUSY:
            return Look("B", "in service, busy", GREEN, "#000000")
        case TimeClass.IDLE:
            return Look("i", "in service, idle", SKY, "#000000")
        case TimeClass.HELD:
            return Look("H", "held, waits for certification", ORANGE, "#000000")
        case TimeClass.CERTIFYING:
            return Look("C", "certifying", YELLOW, "#000000")
        case TimeClass.QUARANTINED:
            return Look("Q", "quarantined", VERMILION, "#000000")
        case TimeClass.DRAINING:
            return Look("D", "draining", PURPLE, "#000000")
        case TimeClass.REPAIRING:
            return Look("R", "repairing", BLUE, "#ffffff")
        case TimeClass.OUT_OF_SERVICE:
            return Look("X", "out of service", DARK, "#ffffff")
        case TimeClass.UNKNOWN:
            return Look("?", "unknown", GREY, "#000000")
        case _:
            assert_never(time_class)
