"""What the node controller keeps of Baselines: which recipe is in force on which nodes."""

from __future__ import annotations

import msgspec

from muster.operate.coverage import InForce
from muster.resources.base import ObjectMeta


class _Spec(msgspec.Struct, frozen=True, rename="camel"):
    node_selector: dict[str, str] = {}


class _Status(msgspec.Struct, frozen=True, rename="camel"):
    recipe_digest: str = ""


class _Baseline(msgspec.Struct, frozen=True):
    metadata: ObjectMeta
    spec: _Spec = _Spec()
    status: _Status = _Status()


_decoder = msgspec.json.Decoder(_Baseline, strict=False)


def baseline_in_force(raw: bytes) -> InForce:
    """What certificates need of a Baseline; the recipe itself, which is long, is not kept."""
    found = _decoder.decode(raw)
    selector = tuple(sorted(found.spec.node_selector.items()))
    return InForce(found.metadata.name, selector, found.status.recipe_digest)


class RecipesInForce:
    """The recipes of all Baselines. A Baseline is written with every comparison; its recipe changes rarely."""

    def __init__(self) -> None:
        self._known: dict[str, InForce] = {}

    def note(self, name: str, value: InForce | None) -> bool:
        """Take in the new value of a Baseline (None: gone). Whether that is news."""
        if self._known.get(name) == value:
            return False
        self._known.pop(name, None)
        if value is not None:
            self._known[name] = value
        return True

    def all(self) -> tuple[InForce, ...]:
        """By name."""
        return tuple(self._known[name] for name in sorted(self._known))
