"""The axes of the matrix, and the cases that the covering arrays make of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from tests.matrix.covering import covering_rows, groups_of

AXES: Mapping[str, tuple[str, ...]] = {
    # How what the agent tells arrives.
    "delivery": ("once", "duplicate", "reordered", "delayed", "lostack", "replayed"),
    # What it tells: a fault that stays; one that ends by a healthy reading; one of two that ends; a healthy reading
    # of another check; a fault of unknown severity.
    "finding": ("fatal", "healthy", "partly", "other", "unknown"),
    # Who keeps the node from work beside Muster.
    "holder": ("us", "cordon", "hold", "both"),
    # What a person does, and at which stage.
    "act": (
        "none",
        "uncordon.Quarantined",
        "uncordon.Draining",
        "uncordon.Repairing",
        "uncordon.Certifying",
        "uncordon.OutOfService",
        "release.Draining",
        "release.Repairing",
        "release.OutOfService",
        "retire.Repairing",
    ),
    # What becomes of the Node object.
    "node": ("same", "recreated.Draining", "recreated.Repairing", "gone.Repairing"),
    # What becomes of the first repair.
    "repair": ("works", "failed", "lies", "failedafter", "timeout", "deleted", "geterror", "transient"),
    # Whether the budget has room.
    "budget": ("open", "spent", "closed", "approval"),
    # What becomes of the GPU at the next boot.
    "gpu": ("same", "uuid", "pci"),
}

SIZES = tuple(len(values) for values in AXES.values())
NAMES = tuple(AXES)
TRIPLE = (NAMES.index("delivery"), NAMES.index("finding"), NAMES.index("holder"))
QUICK_GROUPS = tuple(groups_of(len(AXES), 2, [TRIPLE]))
FULL_GROUPS = tuple(groups_of(len(AXES), 3))


@dataclass(frozen=True)
class Case:
    """One combination. Its `id` names it and is enough to play it again."""

    delivery: str
    finding: str
    holder: str
    act: str
    node: str
    repair: str
    budget: str
    gpu: str

    @property
    def id(self) -> str:
        return ":".join(getattr(self, name) for name in NAMES)


def case_of(text: str) -> Case:
    """The case of an ID. Raises ValueError for what is none."""
    values = text.split(":")
    if len(values) != len(NAMES) or any(v not in AXES[n] for n, v in zip(NAMES, values, strict=False)):
        raise ValueError(f"{text!r} is no case; a case has one value of each of {', '.join(NAMES)}, joined by ':'")
    return Case(*values)


@lru_cache
def cases_quick() -> tuple[Case, ...]:
    """All pairs of all axes, all triples of delivery, finding and holder."""
    return _cases(QUICK_GROUPS)


@lru_cache
def cases_full() -> tuple[Case, ...]:
    """All triples of all axes."""
    return _cases(FULL_GROUPS)


def _cases(groups: tuple[tuple[int, ...], ...]) -> tuple[Case, ...]:
    rows = covering_rows(SIZES, groups)
    return tuple(Case(*(AXES[name][value] for name, value in zip(NAMES, row, strict=True))) for row in rows)
