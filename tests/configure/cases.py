"""What several test modules share: the reference leaves, and recipes resolved once."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from muster import yamlio
from muster.configure import lock
from muster.configure.catalogue import load
from muster.configure.criteria import parse_criteria
from muster.configure.recipe import Recipe
from muster.configure.resolve import resolve

LEAVES: list[dict[str, Any]] = yamlio.load(Path(__file__).parent / "data" / "reference_leaves.yaml")
NAMES = [leaf["leaf"] for leaf in LEAVES]
H100_EKS = {"service": "eks", "accelerator": "h100", "intent": "training", "os": "ubuntu", "platform": "kubeflow"}


def leaf(name: str) -> dict[str, Any]:
    return next(leaf for leaf in LEAVES if leaf["leaf"] == name)


@cache
def recipe_of(name: str) -> Recipe:
    """The locked recipe of a reference leaf."""
    return lock.locked(resolve(parse_criteria(leaf(name)["criteria"]), load()).recipe)
