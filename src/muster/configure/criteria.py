"""Criteria: what the user says about the cluster, in the vocabulary of the catalogue."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from enum import StrEnum
from typing import Protocol

from muster.errors import BadInputError


class Dimension(StrEnum):
    """What a recipe is chosen by, in the order in which it is written."""

    SERVICE = "service"
    ACCELERATOR = "accelerator"
    INTENT = "intent"
    OS = "os"
    PLATFORM = "platform"


VOCABULARY: Mapping[Dimension, tuple[str, ...]] = {
    Dimension.SERVICE: (
        "aks", "bcm", "eks", "generic", "gke", "k0s", "kind", "lke", "metal3", "ocp", "oke", "rke2",
    ),
    Dimension.ACCELERATOR: (
        "a100", "b200", "gb200", "gb300", "h100", "h200", "l40", "l40s", "rtx-pro-6000", "vr200",
    ),
    Dimension.INTENT: ("inference", "training"),
    Dimension.OS: ("amazonlinux", "cos", "ol", "rhel", "talos", "ubuntu"),
    Dimension.PLATFORM: ("dynamo", "kubeflow", "kueue", "nim", "runai", "slurm"),
}  # fmt: skip

Criteria = Mapping[Dimension, str]
"""Stated dimensions only; a dimension that is not there was not stated."""


class Vocabularies(Protocol):
    """Who knows the values of a dimension: a catalogue, whose layers may add some."""

    def vocabulary(self, dimension: Dimension) -> tuple[str, ...]: ...


def parse_criteria(stated: Mapping[str, str | None], catalogue: Vocabularies | None = None) -> dict[Dimension, str]:
    """Check what the user stated. None, empty and `any` mean not stated.

    Without `catalogue` the values are those of the built-in one. Raises BadInputError for an unknown dimension or
    value, with the valid ones and a suggestion, and when nothing was stated.
    """
    unknown = sorted(set(stated) - {d.value for d in Dimension})
    if unknown:
        raise BadInputError(
            f"Unknown dimension {unknown[0][:80]!r}; a recipe is chosen by {', '.join(d.value for d in Dimension)}."
        )
    criteria: dict[Dimension, str] = {}
    for dimension in Dimension:
        value = (stated.get(dimension.value) or "").strip().lower()
        if value in ("", "any"):
            continue
        valid = VOCABULARY[dimension] if catalogue is None else catalogue.vocabulary(dimension)
        if value not in valid:
            raise BadInputError(_unknown_value(dimension, value, valid))
        criteria[dimension] = value
    if not criteria:
        raise BadInputError("Nothing was stated; give at least --service or --accelerator.")
    return criteria


def _unknown_value(dimension: Dimension, value: str, valid: tuple[str, ...]) -> str:
    close = difflib.get_close_matches(value, valid, n=1)
    hint = f" (did you mean {close[0]!r}?)" if close else ""
    return f"Unknown {dimension} {value[:80]!r}{hint}; valid values: {', '.join(valid)}."


def text(criteria: Criteria) -> str:
    """`service=eks accelerator=h100`, dimensions in their fixed order."""
    return " ".join(f"{d}={criteria[d]}" for d in Dimension if d in criteria)
