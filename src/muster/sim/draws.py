"""Seeded draws that depend on what is drawn and not on the order of drawing.

Every draw has a name. Two runs with one seed agree even when their events interleave differently, and a new kind of
draw does not shift the old ones.
"""

from __future__ import annotations

import hashlib
import random
import uuid


def rng(seed: int, *name: object) -> random.Random:
    """A generator of its own for the draw called `name`."""
    text = "\x1f".join([str(seed), *(str(part) for part in name)])
    return random.Random(int.from_bytes(hashlib.sha256(text.encode()).digest()[:16], "big"))  # noqa: S311 - a simulation


def draw_uuid(seed: int, *name: object) -> str:
    """A random (version 4) UUID for the draw called `name`."""
    return str(uuid.UUID(int=rng(seed, *name).getrandbits(128), version=4))
