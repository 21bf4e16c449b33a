"""Answers to "who set this value?"."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any

from muster.configure.resolve import Provenance, Setting
from muster.errors import BadInputError


def explain(provenance: Provenance, paths: Iterable[str]) -> list[dict[str, Any]]:
    """For each path (or everything below it) its value and who set it, in order.

    Raises BadInputError with a suggestion when nothing was set at a path.
    """
    explained: list[dict[str, Any]] = []
    for path in paths:
        found = [
            known for known in provenance if known == path or known.startswith((f"{path}.", f"{path}:", f"{path}["))
        ]
        if not found:
            close = difflib.get_close_matches(path, provenance, n=1, cutoff=0.5)
            hint = f"did you mean {close[0]!r}?" if close else "paths look like gpu-operator:driver.version."
            raise BadInputError(f"The recipe sets nothing at {path[:120]!r}; {hint}")
        explained += [_entry(known, provenance[known]) for known in found]
    return explained


def _entry(path: str, settings: tuple[Setting, ...]) -> dict[str, Any]:
    return {"path": path, "value": settings[-1].value, "settings": [_setting(setting) for setting in settings]}


def _setting(setting: Setting) -> dict[str, Any]:
    entry = {"value": setting.value, "source": setting.source}
    if setting.replaced is not None:
        entry["replaced"], entry["replacedSource"] = setting.replaced
    return entry
