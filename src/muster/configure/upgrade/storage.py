"""What a change of values does to the volumes of a component."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any, Final

from muster.configure.recipe import RecipeComponent
from muster.configure.upgrade.verdicts import Reason, blocked, care
from muster.configure.values import ABSENT, get, leaves, parse_path, path_text

_QUANTITY = re.compile(r"(\d{1,15}(?:\.\d{1,9})?)([KMGTPE]i|[kMGTPE])?", re.ASCII)
_FACTORS: Final = {
    "": 1,
    **{f"{letter}i": 1024**power for power, letter in enumerate("KMGTPE", start=1)},
    **{letter: 1000**power for power, letter in enumerate("kMGTPE", start=1)},
}
_SIZE_KEYS: Final = frozenset({"size", "storage"})


def claims(component: RecipeComponent) -> dict[str, dict[str, Any]]:
    """Value path of a claim -> the map that describes it (empty where only the chart does)."""
    found: dict[str, dict[str, Any]] = {}
    for text in (*component.storage.class_paths, *component.storage.shared_class_paths):
        around = get(component.values, parse_path(text)[:-1])
        if isinstance(around, Mapping) and around:
            found[text] = dict(around)
        elif component.storage.claims:
            found[text] = {}
    return found


def storage_changes(old: RecipeComponent, new: RecipeComponent) -> Iterator[Reason]:
    """Reasons about claims that come, go or change between `old` and `new`, in the order of their paths."""
    before, after = claims(old), claims(new)
    for text in sorted(before.keys() | after.keys()):
        path = parse_path(text)
        place = path_text(path[:-1])
        if text not in after:
            yield blocked(f"the volume at {place} goes, with what it holds", "back it up, or keep the claim")
        elif text not in before:
            yield care(
                f"a volume at {place} is new and starts empty",
                "what the component holds until now is not copied; export it first if it matters",
            )
        else:
            yield from _changes(place, path[-1], before[text], after[text])


def _changes(place: str, class_key: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Reason]:
    first, second = before.get(class_key), after.get(class_key)
    if first != second:
        yield blocked(
            f"storage class at {place}: {first or 'the default'} -> {second or 'the default'}; a volume cannot "
            "change its class",
            "back up, delete the old claim and let the new one be made, or keep the class",
        )
    old = {path: value for path, value in leaves(before) if path != (class_key,)}
    new = {path: value for path, value in leaves(after) if path != (class_key,)}
    for path in sorted(old.keys() | new.keys()):
        earlier, later = old.get(path, ABSENT), new.get(path, ABSENT)
        if earlier == later or (path[-1] in _SIZE_KEYS and same_quantity(earlier, later)):
            continue
        what = f"{place}.{path_text(path)}: {_text(earlier)} -> {_text(later)}"
        if path[-1] in _SIZE_KEYS and shrinks(earlier, later):
            yield blocked(f"{what}; a volume cannot shrink", "keep the size")
        else:
            yield care(
                f"{what}; the claim of a running StatefulSet is not changed in place",
                "after deploying, look at the claim and resize or make it again by hand",
            )


def same_quantity(before: Any, after: Any) -> bool:
    """Whether both are quantities of the same size, whatever their units."""
    first = _bytes(before)
    return first is not None and first == _bytes(after)


def shrinks(before: Any, after: Any) -> bool:
    """Whether both are quantities, and the second is smaller."""
    first, second = _bytes(before), _bytes(after)
    return first is not None and second is not None and second < first


def _bytes(quantity: Any) -> Decimal | None:
    """A Kubernetes quantity in bytes, or None when it is none."""
    match = _QUANTITY.fullmatch(str(quantity))
    return Decimal(match[1]) * _FACTORS[match[2] or ""] if match else None


def _text(value: Any) -> str:
    return "(not set)" if value is ABSENT else str(value)[:60]
