"""JSON merge patch (RFC 7386)."""

from __future__ import annotations

from typing import Any


def apply_merge_patch(document: Any, patch: Any) -> Any:
    """`document` after `patch`; neither is changed, and what the patch leaves alone is shared with the result."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(document) if isinstance(document, dict) else {}
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        elif isinstance(value, dict):
            merged[name] = apply_merge_patch(merged.get(name), value)
        else:
            merged[name] = value
    return merged
