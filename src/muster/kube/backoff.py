"""Exponential backoff with jitter from a seeded generator."""

from __future__ import annotations

import random
import zlib


class Backoff:
    """Delays `base_s`, twice that, ... up to `cap_s`, each shortened by up to half so that clients spread out.

    `name` seeds the jitter: the same name gives the same delays in every run.
    """

    def __init__(self, name: str, base_s: float = 0.5, cap_s: float = 30.0) -> None:
        self._random = random.Random(zlib.crc32(name.encode()))  # noqa: S311 - jitter, not a secret
        self._base_s = base_s
        self._cap_s = cap_s
        self._failures = 0

    def next_s(self) -> float:
        """Seconds to wait after one more failure."""
        full_s = exponential_s(self._failures, self._base_s, self._cap_s)
        self._failures += 1
        return full_s * self._random.uniform(0.5, 1.0)

    def reset(self) -> None:
        """Something worked: start again from `base_s`."""
        self._failures = 0


def exponential_s(failures: int, base_s: float, cap_s: float) -> float:
    """`base_s` doubled `failures` times, at most `cap_s`."""
    return min(cap_s, base_s * 2.0 ** min(failures, 60))
